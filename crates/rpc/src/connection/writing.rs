//! Writing to the socket. It never deadlocks with a peer that also blocks on writing.

use super::*;

/// Maximum size, in bytes, of a frame's payload that is copied behind its header, so that both are sent in
/// one piece.
const FEW: usize = 8 << 10;

/// Returns the beginning of a `Data` message: frame header, and offset of its bytes in the transfer.
fn data_head(id: u64, at: u64, length: usize) -> [u8; HEADER + 8] {
    let mut head = [0; HEADER + 8];
    head[..HEADER].copy_from_slice(&frame::header(FrameKind::Data, false, id, length + 8));
    head[HEADER..].copy_from_slice(&at.to_le_bytes());
    head
}

impl Connection {
    /// Sends one message.
    pub(crate) fn send(&self, kind: FrameKind, id: u64, payload: &[u8]) -> Result<()> {
        let mut out = lock(&self.out);
        self.put_replies(&mut out)?;
        frame::write_message(kind, id, payload, |header, part| self.put(&mut out, header, part))?;
        drop(out);
        self.flush_replies()
    }

    /// Holds a message back, to be sent together with the next message. The caller must send the next message
    /// immediately.
    pub(super) fn send_before(&self, kind: FrameKind, id: u64, payload: &[u8]) -> Result<()> {
        let mut out = lock(&self.out);
        self.put_replies(&mut out)?;
        frame::write_message(kind, id, payload, |header, part| self.hold(&mut out, header, part))
    }

    /// Sends the bulk data that precedes the result of the call `id`. The caller must send the result next. A
    /// small amount of data is held back and sent together with the result.
    pub(crate) fn send_result_data(&self, id: u64, bytes: &[u8]) -> Result<()> {
        if bytes.len() > FEW {
            return self.send_data(id, bytes, None);
        }
        let mut out = lock(&self.out);
        self.hold(&mut out, &data_head(id, 0, bytes.len()), bytes)
    }

    /// Sends the bulk data of a transfer in parts. `progress` is called after each part with the number of
    /// bytes sent so far and the total.
    pub(super) fn send_data(&self, id: u64, bytes: &[u8], progress: Option<&PackedFunc>) -> Result<()> {
        const PART: usize = frame::PAYLOAD_MAX - 8;
        let mut at = 0_u64;
        for part in bytes.chunks(PART) {
            let mut out = lock(&self.out);
            self.put(&mut out, &data_head(id, at, part.len()), part)?;
            drop(out);
            at += part.len() as u64;
            if let Some(progress) = progress {
                progress.call((at, bytes.len()))?;
            }
            // A refusal ends the transfer early: the peer would discard the remaining bytes.
            if lock(&self.state).waiters.get(&id).is_some_and(|waiter| waiter.outcome.is_some()) {
                return Ok(());
            }
        }
        self.flush_replies()
    }

    /// Sends the replies that this thread has queued, unless another thread has already sent them.
    pub(super) fn send_own_replies(&self) -> Result<()> {
        if self.has_more.load(Ordering::Relaxed) { self.flush_replies() } else { Ok(()) }
    }

    /// Sends queued replies. Does nothing if another thread is writing, because that thread sends them.
    pub(super) fn flush_replies(&self) -> Result<()> {
        loop {
            if lock(&self.state).replies.is_empty() {
                return Ok(());
            }
            let Ok(mut out) = self.out.try_lock() else { return Ok(()) };
            self.put_replies(&mut out)?;
        }
    }

    /// Queues a reply. The next thread that writes sends it.
    pub(super) fn push_reply(&self, state: &mut ConnectionState, reply: (FrameKind, u64, Vec<u8>)) {
        state.replies.push_back(reply);
        self.has_more.store(true, Ordering::Relaxed);
    }

    /// Sends queued replies and releases. Those queued in the meantime are sent by
    /// [`Connection::flush_replies`] or with the next message.
    pub(super) fn put_replies(&self, out: &mut Out) -> Result<()> {
        if !self.has_more.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (replies, releases) = {
            let mut state = lock(&self.state);
            self.has_more.store(false, Ordering::Relaxed);
            (std::mem::take(&mut state.replies), std::mem::take(&mut state.releases))
        };
        if replies.is_empty() && releases.is_empty() {
            return Ok(());
        }
        for part in releases.chunks(frame::PAYLOAD_MAX / 16) {
            let mut payload = Vec::with_capacity(part.len() * 16);
            for (handle, count) in part {
                payload.extend_from_slice(&handle.to_le_bytes());
                payload.extend_from_slice(&count.to_le_bytes());
            }
            frame::write_message(FrameKind::Release, 0, &payload, |header, part| self.put(out, header, part))?;
        }
        for (kind, id, payload) in replies {
            frame::write_message(kind, id, &payload, |header, part| self.put(out, header, part))?;
        }
        Ok(())
    }

    /// Holds a frame (`head` and `part`) back until the next [`Connection::put`], or sends it immediately if
    /// it is too long for that.
    fn hold(&self, out: &mut Out, head: &[u8], part: &[u8]) -> Result<()> {
        if out.held.len() + part.len() > 2 * FEW {
            return self.put(out, head, part);
        }
        out.held.extend_from_slice(head);
        out.held.extend_from_slice(part);
        Ok(())
    }

    /// Sends a frame (`head` and `part`), preceded by the bytes that were held back.
    pub(super) fn put(&self, out: &mut Out, head: &[u8], part: &[u8]) -> Result<()> {
        let Out { sealer, held, sealed } = out;
        held.extend_from_slice(head);
        let mut part = part;
        if part.len() <= FEW {
            // Copied, so that they form one piece and one record.
            held.extend_from_slice(part);
            part = &[];
        }
        let written = if sealer.is_plain() {
            self.write(held, part)
        } else {
            sealed.clear();
            if sealer.seal(held, sealed).and_then(|()| sealer.seal(part, sealed)).is_err() {
                bail!(
                    "ConnectionError",
                    "{}: the connection has reached the limit of encrypted data: connect again",
                    self.peer
                );
            }
            self.write(sealed, &[])
        };
        held.clear();
        written
    }

    fn write(&self, first: &[u8], second: &[u8]) -> Result<()> {
        let written = self.write_all(first, second);
        if let Err(error) = &written {
            // Part of a frame may have been sent, so the peer would not understand anything that follows.
            self.end(error.clone());
        }
        written
    }

    fn write_all(&self, mut first: &[u8], mut second: &[u8]) -> Result<()> {
        // Time at which the socket was first full; the clock is read only when needed.
        let mut full = None;
        while !first.is_empty() || !second.is_empty() {
            match self.socket.write(first, second) {
                Ok(count) => {
                    full = None;
                    let of_first = count.min(first.len());
                    first = &first[of_first..];
                    second = &second[count - of_first..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.make_room(*full.get_or_insert_with(Instant::now))?;
                }
                Err(error) => bail!("ConnectionError", "{}: {}", self.peer, text_of(&error)),
            }
        }
        Ok(())
    }

    /// Waits briefly until the peer accepts bytes, and reads from the socket in the meantime, since the peer
    /// may be blocked until this end reads. `full` is the time at which the peer stopped accepting bytes.
    pub(super) fn make_room(&self, full: Instant) -> Result<()> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        // Only if no other thread reads. What is read stays in the buffer, and the next waiting thread hands it out.
        let readable = match self.input.try_lock() {
            Ok(mut input) => {
                let room = input.frames.waiting() < self.policy.message_bytes;
                let readable = self.socket.poll(room, true, LOOK).unwrap_or(false) && room;
                if readable {
                    match self.receive(&mut input, false) {
                        Ok(()) => self.has_heard.store(true, Ordering::Relaxed),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => bail!("ConnectionError", "{}: {}", self.peer, text_of(&error)),
                    }
                }
                readable
            }
            Err(_) => self.socket.poll(false, true, LOOK).unwrap_or(false),
        };
        let limit = match self.policy.idle_seconds {
            0 => GIVE_UP,
            idle => GIVE_UP.min(Duration::from_secs(idle)),
        };
        if !readable && full.elapsed() > limit && self.heard(&mut lock(&self.state)).elapsed() > limit {
            bail!(
                "ConnectionError",
                "{}: the peer has not read any bytes for {} seconds",
                self.peer,
                limit.as_secs()
            );
        }
        Ok(())
    }
}
