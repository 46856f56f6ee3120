//! Reading from the socket and dispatching of received messages.

use super::*;

impl Connection {
    /// Reads from the socket once and dispatches all complete messages. Returns false if nothing has arrived.
    /// The caller must have set `ConnectionState::reading`.
    pub(super) fn read(self: &Arc<Self>, reading: Option<&Reading>) -> Result<bool> {
        let mut input = lock(&self.input);
        if let Some(deadline) = reading.and_then(|reading| reading.deadline) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < LOOK && !self.socket.poll(true, false, left).unwrap_or(true) {
                return Ok(false);
            }
        }
        // Bytes that a writing thread has read while it waited.
        if input.frames.waiting() > 0 && self.hand_out(&mut input, reading)? {
            drop(input);
            return self.send_own_replies().map(|()| true);
        }
        match self.receive(&mut input, true) {
            Ok(()) => self.has_heard.store(true, Ordering::Relaxed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                drop(input);
                return self.look_around().map(|()| false);
            }
            // The signal's handler runs when the waiting thread checks for signals.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => bail!("ConnectionError", "{}: {}", self.peer, text_of(&error)),
        }
        self.hand_out(&mut input, reading)?;
        drop(input);
        self.send_own_replies().map(|()| true)
    }

    pub(super) fn receive(&self, input: &mut Input, wait: bool) -> io::Result<()> {
        let Input { opener, frames, polling } = input;
        let room = opener.room(frames);
        let count = if wait { self.socket.read_polling(room, polling) } else { self.socket.read(room, false) }?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection"));
        }
        opener.received(count, frames).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "authentication failed: received bytes that the peer did not send",
            )
        })
    }

    /// Updates and returns the approximate time of the last received bytes.
    pub(super) fn heard(&self, state: &mut ConnectionState) -> Instant {
        if self.has_heard.swap(false, Ordering::Relaxed) {
            (state.heard, state.asked) = (Instant::now(), None);
        }
        state.heard
    }

    /// Dispatches all complete messages in the receive buffer. Returns true if there was at least one.
    pub(super) fn hand_out(self: &Arc<Self>, input: &mut Input, reading: Option<&Reading>) -> Result<bool> {
        let mut any = false;
        loop {
            match input.frames.next() {
                Ok(Some(message)) => {
                    any = true;
                    self.dispatch(message.kind, message.id, message.payload, reading)?;
                }
                Ok(None) => return Ok(any),
                Err(malformed) => bail!("ConnectionError", "{}: {malformed}", self.peer),
            }
        }
    }

    /// Sends queued replies after a period without received bytes. A client also checks with a `Ping` that
    /// the server is alive.
    pub(super) fn look_around(&self) -> Result<()> {
        // A client reads only while it waits for a result, so its silence means nothing. Dead clients are detected by the limit
        // on idle sessions and by the keep-alive probes of the operating system.
        if self.is_server() {
            return self.flush_replies();
        }
        let mut state = lock(&self.state);
        let silent = self.heard(&mut state).elapsed();
        match state.asked {
            // The peer may have been silent for a long time because no request was sent to it.
            Some(asked) if asked.elapsed() > ANSWER => {
                bail!("ConnectionError", "{}: no answer for {} seconds", self.peer, silent.as_secs());
            }
            None if silent > ASK => {
                state.asked = Some(Instant::now());
                self.push_reply(&mut state, (FrameKind::Ping, 0, Vec::new()));
            }
            _ => {}
        }
        drop(state);
        self.flush_replies()
    }

    /// Handles one received message. A returned error ends the connection; the failure of a single call is
    /// instead sent as the reply to that call.
    pub(super) fn dispatch(
        self: &Arc<Self>,
        kind: FrameKind,
        id: u64,
        payload: &[u8],
        reading: Option<&Reading>,
    ) -> Result<()> {
        let is_result = kind == FrameKind::Return;
        let decoding = Decoding { reading, call: Cell::new(is_result.then_some(id)), is_result };
        let scope = Scope::of_read(self, &decoding);
        let mut reader = Reader::new(&scope, payload, self.wire);
        match kind {
            FrameKind::Call => match self.incoming(id, &mut reader, &decoding) {
                Ok((parent, Some(asked))) => {
                    if self.take_in(parent, asked)? {
                        return Ok(());
                    }
                }
                Ok((_, None)) => {}
                Err(error) => {
                    self.give_back_unread(reader);
                    self.reply_error(id, &error);
                }
            },
            FrameKind::Return | FrameKind::Error => {
                let mut value = match kind {
                    FrameKind::Return => reader.value().and_then(|value| reader.end().map(|()| value)),
                    _ => reader.error().and_then(|error| Err(self.as_remote(error))),
                };
                self.give_back_unread(reader);
                let mut state = lock(&self.state);
                let mut unused = None;
                match state.waiters.get_mut(&id).filter(|waiter| id != ROOT && waiter.outcome.is_none()) {
                    Some(waiter) => {
                        if value.is_ok() && waiter.into.as_ref().is_some_and(|into| into.filled < into.length) {
                            unused = std::mem::replace(&mut value, Err(incomplete())).ok();
                        }
                        waiter.outcome = Some(value);
                        waiter.wake();
                    }
                    None => unused = value.ok(),
                }
                // Dropping it releases its handles, which locks the state again.
                drop(state);
                drop(unused);
                return Ok(());
            }
            FrameKind::Cancel => {
                let mut state = lock(&self.state);
                if let Some(running) = state.running.get(&id) {
                    running.cancelled.store(true, Ordering::Relaxed);
                }
                let upload = state.uploads.remove(&id);
                drop(state);
                if upload.is_some() {
                    self.reply_error(
                        id,
                        &error!("InterruptedError", "the transfer was cancelled before all bytes had arrived"),
                    );
                }
            }
            FrameKind::Release => {
                let mut gone = Vec::new();
                while !reader.rest().is_empty() {
                    let (handle, count) = (reader.u64()?, reader.u64()?);
                    gone.extend(lock(&self.handles).release(handle, count)?);
                }
            }
            FrameKind::Data => self.data(id, payload)?,
            FrameKind::Ping => self.push_reply(&mut lock(&self.state), (FrameKind::Pong, id, Vec::new())),
            FrameKind::Pong => {}
            FrameKind::Bye => {
                let why: String =
                    String::from_utf8_lossy(payload).chars().filter(|c| !c.is_control()).collect();
                let why = if why.is_empty() { "the peer ended the session" } else { &why };
                bail!("ConnectionError", "{}: {why}", self.peer);
            }
            FrameKind::Hello | FrameKind::Welcome | FrameKind::Queued => {
                bail!(
                    "ConnectionError",
                    "{}: unexpected handshake message in an established session",
                    self.peer
                )
            }
        }
        if lock(&self.state).replies.len() > 4096 {
            bail!("ConnectionError", "{}: the peer requests more replies than it reads", self.peer);
        }
        Ok(())
    }

    /// Returns an error if the decoding of a message must be aborted. The decoder of a long message calls
    /// this function at intervals.
    pub(crate) fn look(&self, decoding: &Decoding<'_>) -> Result<()> {
        let state = lock(&self.state);
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let waiter = decoding.call.get().and_then(|id| state.waiters.get(&id));
        if decoding.is_result && waiter.is_none_or(|waiter| waiter.outcome.is_some()) {
            bail!("InterruptedError", "no call waits for the result");
        }
        drop(state);
        let Some(reading) = decoding.reading else { return Ok(()) };
        let before = reading.given_up.take();
        // A signal is reported only once: a thread that waits for another call receives it after this message has been decoded.
        let Some(error) = before.or_else(|| given_up(reading.deadline)) else { return Ok(()) };
        if decoding.call.get() == Some(reading.id) {
            if !decoding.is_result {
                reading.given_up.set(Some(error.clone()));
            }
            return Err(error);
        }
        reading.given_up.set(Some(error));
        Ok(())
    }

    /// Releases the handles in the unread rest of a message whose decoding was aborted.
    fn give_back_unread(&self, reader: Reader<'_>) {
        reader.unread_handles().into_iter().for_each(|handle| self.release(handle, 1, false));
    }

    /// Handles a `Data` message: copies its bytes to the buffer of the waiting call `id`, or passes them to
    /// the upload `id`.
    pub(super) fn data(self: &Arc<Self>, id: u64, payload: &[u8]) -> Result<()> {
        let Some((at, bytes)) = payload.split_first_chunk::<8>() else {
            bail!("ConnectionError", "{}: received part of a transfer without its offset", self.peer);
        };
        let at = u64::from_le_bytes(*at);
        let mut state = lock(&self.state);
        if let Some(into) = state.waiters.get_mut(&id).and_then(|waiter| waiter.into.as_mut()) {
            if at != into.filled as u64 || bytes.len() > into.length - into.filled {
                bail!(
                    "ConnectionError",
                    "{}: received part of a transfer at an unexpected offset or beyond its end",
                    self.peer
                );
            }
            // SAFETY: `filled` is at most `length`, and the memory has `length` bytes: `Entry` has created the destination from a
            // slice.
            let to = unsafe { into.data.add(into.filled) };
            // SAFETY: `length - filled` bytes are left at `to`, which is enough, as checked above. `Entry` holds the only borrow
            // of the memory while this waiter is in the table, which is locked here. The payload lies in the buffer of frames.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            into.filled += bytes.len();
            return Ok(());
        }
        // The transfer was refused, or no caller waits for its result; the remaining bytes are still arriving.
        let Some(mut upload) = state.uploads.remove(&id) else { return Ok(()) };
        drop(state);
        let result = if at != upload.at || bytes.len() as u64 > upload.total - upload.at {
            Err(error!("ValueError", "received part of a transfer at an unexpected offset or beyond its end"))
        } else {
            upload.sink.write(bytes)
        };
        upload.at += bytes.len() as u64;
        match result {
            Ok(()) if upload.at == upload.total => self.reply(id, upload.sink.finish()),
            Ok(()) => {
                lock(&self.state).uploads.insert(id, upload);
            }
            Err(error) => self.reply_error(id, &error),
        }
        Ok(())
    }

    /// Decodes an incoming call. Returns the id of the outgoing call during which the peer made the incoming
    /// call (0 if none), and the decoded call. An upload needs no thread, so `None` is returned instead of its
    /// decoded call.
    pub(super) fn incoming(
        self: &Arc<Self>,
        id: u64,
        reader: &mut Reader<'_>,
        decoding: &Decoding<'_>,
    ) -> Result<(u64, Option<IncomingCall>)> {
        let (parent, depth) = (reader.u64()?, reader.u16()?);
        decoding.call.set((parent != ROOT).then_some(parent));
        if depth >= CALLS_MAX {
            bail!("RecursionError", "calls and callbacks nest deeper than {CALLS_MAX}");
        }
        let target = match reader.u8()? {
            0 => {
                let handle = reader.u64()?;
                let named = self.named(handle)?;
                match named.object.get::<PackedFunc>() {
                    Ok(function) if named.class == Class::Function => Callee::Function(function),
                    _ => bail!("TypeError", "handle {handle:#x} is a {}, not a function", named.class.name()),
                }
            }
            1 => Callee::Service(reader.u16()?),
            other => bail!("ValueError", "unknown call target kind {other}"),
        };
        let args = reader.values()?;
        reader.end()?;
        if let Callee::Service(code) = target {
            if self.has_enough(&lock(&self.state)) {
                return Err(self.enough());
            }
            let Some(service) = &self.service else {
                bail!("PermissionError", "this end of the session offers no services");
            };
            if let Some((sink, total)) = service.upload(self, code, &args)? {
                if total == 0 {
                    self.reply(id, sink.finish());
                } else {
                    let of = args.first().and_then(|handle| handle.get::<u64>().ok());
                    let upload = Upload { sink, of, at: 0, total };
                    let before = lock(&self.state).uploads.insert(id, upload);
                    if before.is_some() {
                        bail!("ValueError", "two transfers have the same number");
                    }
                }
                return Ok((parent, None));
            }
        }
        Ok((parent, Some(IncomingCall { id, depth, target, args })))
    }

    /// Returns true if the number of calls in progress has reached the limit of the policy.
    fn has_enough(&self, state: &ConnectionState) -> bool {
        state.running.len() + state.uploads.len() >= self.policy.calls as usize
    }

    #[cold]
    fn enough(&self) -> Error {
        let limit = self.policy.calls;
        error!("PermissionError", "{limit} calls are in progress, which is the limit (`calls`)")
    }

    /// Passes an incoming call to the thread that will run it: the thread that waits for the call `parent`,
    /// the serving thread, or a new thread. Refuses the call and returns false if too many calls are in
    /// progress.
    pub(super) fn take_in(self: &Arc<Self>, parent: u64, asked: IncomingCall) -> Result<bool> {
        let mut state = lock(&self.state);
        if self.has_enough(&state) {
            drop(state);
            self.reply_error(asked.id, &self.enough());
            return Ok(false);
        }
        let call = Incoming { asked, state: state.unused.take().unwrap_or_default() };
        if state.running.insert(call.asked.id, call.state.clone()).is_some() {
            // Unlock before the call is dropped, which releases its handles and locks the state again.
            drop(state);
            bail!("ConnectionError", "{}: two calls have the same number", self.peer);
        }
        if parent != ROOT
            && let Some(waiter) = state.waiters.get_mut(&parent)
        {
            waiter.incoming.push_back(call);
            waiter.wake();
            return Ok(true);
        }
        match state.waiters.get_mut(&ROOT) {
            Some(root) if root.busy == 0 => {
                root.incoming.push_back(call);
                root.wake();
            }
            _ => {
                state.workers += 1;
                drop(state);
                self.on_worker(call);
            }
        }
        Ok(true)
    }

    /// Aborts the uploads to a borrowed tensor after the end of the call for which it was borrowed. `handle`
    /// is the tensor's former handle.
    pub(crate) fn end_uploads_to(self: &Arc<Self>, handle: u64) {
        let mut state = lock(&self.state);
        let ids: Vec<u64> =
            state.uploads.iter().filter(|(_, u)| u.of == Some(handle)).map(|(id, _)| *id).collect();
        let gone: Vec<(u64, Upload)> =
            ids.into_iter().filter_map(|id| Some((id, state.uploads.remove(&id)?))).collect();
        drop(state);
        for (id, upload) in gone {
            drop(upload);
            self.reply_error(id, &error!("ValueError", "the tensor was borrowed for a call that has ended"));
        }
    }

    /// Runs an incoming call on a new thread. The caller has already incremented `ConnectionState::workers`.
    pub(super) fn on_worker(self: &Arc<Self>, call: Incoming) {
        let (this, id) = (self.clone(), call.asked.id);
        let started = std::thread::Builder::new().name("anyfn-rpc-call".into()).spawn(move || {
            this.execute(call);
            lock(&this.state).workers -= 1;
        });
        if let Err(error) = started {
            lock(&self.state).workers -= 1;
            self.fail(id, &error!("RuntimeError", "cannot start a thread for the call: {error}"));
        }
    }
}

#[cold]
fn incomplete() -> Error {
    error!("ConnectionError", "the peer sent fewer bytes than requested")
}
