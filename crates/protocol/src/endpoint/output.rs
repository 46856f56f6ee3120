//! Sending of messages: to the transport of a driver, or to the output that an event loop takes.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use anyfn::{PackedFunc, Result, error};

use super::{Endpoint, Output, Table};
use crate::channel::RECORD_MAX;
use crate::frame::{self, FrameKind, HEADER};

/// Maximum size, in bytes, of a frame's payload that is copied behind its header, so that both are sent in
/// one piece.
const FEW: usize = 8 << 10;

/// Number of bytes that are encrypted and written at a time. They are still in the processor's cache when they are written, and the
/// peer decrypts them while the next ones are encrypted.
const PIECE: usize = 2 * RECORD_MAX;

/// Maximum number of bytes in one frame of bulk data. Encrypted, they form records of the maximum size.
const DATA_MAX: usize = (frame::PAYLOAD_MAX - 8) / RECORD_MAX * RECORD_MAX;

/// Number of pending handle releases that triggers sending them immediately instead of with the next message.
pub(crate) const RELEASES: usize = 64;

/// Returns the beginning of a `Data` message: frame header, and offset of its bytes in the transfer.
fn data_head(id: u64, at: u64, length: usize) -> [u8; HEADER + 8] {
    let mut head = [0; HEADER + 8];
    head[..HEADER].copy_from_slice(&frame::header(FrameKind::Data, false, id, length + 8));
    head[HEADER..].copy_from_slice(&at.to_le_bytes());
    head
}

impl Endpoint {
    /// Sends one message.
    pub(super) fn send(&self, kind: FrameKind, id: u64, payload: &[u8]) -> Result<()> {
        let mut out = self.out.lock();
        let sent = self.put_replies(&mut out).and_then(|()| {
            frame::write_message(kind, id, payload, |header, part| self.put(&mut out, header, part))
        });
        drop(out);
        match sent {
            Ok(()) => self.flush_replies(),
            Err(error) => {
                self.run_completions();
                Err(error)
            }
        }
    }

    /// Notifies the peer that this end no longer waits for the call `id`. The function that runs
    /// the call can check for this.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    pub fn cancel(&self, id: u64) -> Result<()> {
        self.send(FrameKind::Cancel, id, &[])
    }

    /// Holds a message back, to be sent together with the next message. The caller must send the next message
    /// immediately.
    pub(super) fn send_before(&self, kind: FrameKind, id: u64, payload: &[u8]) -> Result<()> {
        let mut out = self.out.lock();
        self.put_replies(&mut out)?;
        frame::write_message(kind, id, payload, |header, part| self.hold(&mut out, header, part))
    }

    /// Sends the bulk data that precedes the result of the incoming call `id`. The caller must send the result next. A
    /// small amount of data is held back and sent together with the result.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    pub fn send_result_data(&self, id: u64, bytes: &[u8]) -> Result<()> {
        if bytes.len() > FEW.min(self.wire.longest / 4) {
            return self.send_data(id, bytes, None);
        }
        let mut out = self.out.lock();
        self.hold(&mut out, &data_head(id, 0, bytes.len()), bytes)
    }

    /// Sends the bulk data of a transfer in parts. `progress` is called after each part with the number of
    /// bytes sent so far and the total.
    pub(super) fn send_data(&self, id: u64, bytes: &[u8], progress: Option<&PackedFunc>) -> Result<()> {
        let mut at = 0_u64;
        // A frame must not be longer than the longest message, which a board with little memory limits.
        let part_max = DATA_MAX.min(self.wire.longest.saturating_sub(8)).max(1);
        for part in bytes.chunks(part_max) {
            let mut out = self.out.lock();
            self.put(&mut out, &data_head(id, at, part.len()), part)?;
            drop(out);
            at += part.len() as u64;
            if let Some(progress) = progress {
                progress.call((at, bytes.len()))?;
            }
            // A refusal ends the transfer early: the peer would discard the remaining bytes.
            if self.table().is_done(id) {
                return Ok(());
            }
        }
        self.flush_replies()
    }

    /// Sends the replies that this thread has queued, unless another thread has already sent them, and runs the callbacks of calls
    /// that have ended.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    #[inline]
    pub fn settle(&self) -> Result<()> {
        if self.has_completed.load(Ordering::Relaxed) {
            self.run_completions();
        }
        if self.has_more.load(Ordering::Relaxed) { self.flush_replies() } else { Ok(()) }
    }

    /// Queues a reply, which is sent with the next message or by [`Endpoint::flush_replies`].
    pub(super) fn push_reply(&self, table: &mut Table, reply: (FrameKind, u64, Vec<u8>)) {
        if table.ended.is_some() {
            return;
        }
        table.replies.push_back(reply);
        self.has_more.store(true, Ordering::Relaxed);
    }

    /// Sends queued replies. Does nothing if another thread is writing, because that thread sends
    /// the replies. Without a driver, the replies are sent when the output is taken.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    pub fn flush_replies(&self) -> Result<()> {
        if self.driver.is_none() {
            return Ok(());
        }
        loop {
            if self.table().replies.is_empty() {
                return Ok(());
            }
            let Some(mut out) = self.out.try_lock() else { return Ok(()) };
            self.put_replies(&mut out)?;
        }
    }

    /// Sends the replies and releases that are queued now. Those queued in the meantime are sent by
    /// [`Endpoint::flush_replies`] or with the next message.
    fn put_replies(&self, out: &mut Output) -> Result<()> {
        if !self.has_more.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (replies, releases) = {
            let mut table = self.table();
            self.has_more.store(false, Ordering::Relaxed);
            (core::mem::take(&mut table.replies), core::mem::take(&mut table.releases))
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

    /// Releases a handle whose proxy was dropped. `count` is the number of times that the peer has
    /// sent the handle. The release is sent immediately if `at_once` is true or many releases are
    /// pending, unless another thread is writing at that moment. Otherwise, it is sent with the
    /// next message.
    pub(crate) fn release(&self, handle: u64, count: u64, at_once: bool) {
        let mut table = self.table();
        if table.ended.is_some() {
            return;
        }
        table.releases.push((handle, count));
        self.has_more.store(true, Ordering::Relaxed);
        let many = table.releases.len() >= RELEASES;
        drop(table);
        if (many || at_once)
            && let Some(mut out) = self.out.try_lock()
        {
            let _ = self.put_replies(&mut out);
        }
    }

    /// Sends a `Bye` message with the reason `why`, unless sending would block because the peer has stopped
    /// reading.
    pub(super) fn say_bye(&self, why: &[u8]) {
        if let Some(mut out) = self.out.try_lock()
            && self.driver.as_ref().is_none_or(|driver| driver.can_write())
        {
            if self.driver.is_none() {
                // Nothing follows a `Bye` message.
                let _ = self.put_replies(&mut out);
            }
            let _ =
                frame::write_message(FrameKind::Bye, 0, why, |header, part| self.put(&mut out, header, part));
        }
    }

    /// Takes the bytes that the peer is to receive. Each byte is returned only once. The bytes of
    /// an ended session include its `Bye` message. An endpoint with a driver has no output.
    pub fn take_output(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.send_output(|bytes| {
            all.extend_from_slice(bytes);
            bytes.len()
        });
        all
    }

    /// Passes the bytes that the peer is to receive to `send`, which returns the number of bytes
    /// that it has sent; the other bytes remain. `send` is not called if there are no bytes.
    /// Returns the number of bytes that remain.
    pub fn send_output(&self, send: impl FnOnce(&[u8]) -> usize) -> usize {
        let mut out = self.out.lock();
        if let Err(error) = self.put_replies(&mut out) {
            // Callbacks of calls may send, so they run when the output is unlocked.
            drop(out);
            self.end(error);
            out = self.out.lock();
        }
        let Output { waiting, taken, .. } = &mut *out;
        let rest = &waiting[*taken..];
        if rest.is_empty() {
            return 0;
        }
        *taken += send(rest).min(rest.len());
        let remain = waiting.len() - *taken;
        if remain == 0 {
            waiting.clear();
            *taken = 0;
        } else if *taken >= remain {
            // At least as many bytes have been sent as are moved.
            waiting.drain(..*taken);
            *taken = 0;
        }
        remain
    }

    /// Holds a frame (`head` and `part`) back until the next [`Endpoint::put`], or sends the frame
    /// immediately if too many bytes would be held back.
    fn hold(&self, out: &mut Output, head: &[u8], part: &[u8]) -> Result<()> {
        if out.held.len() + part.len() > 2 * FEW {
            return self.put(out, head, part);
        }
        out.held.extend_from_slice(head);
        out.held.extend_from_slice(part);
        Ok(())
    }

    /// Sends a frame (`head` and `part`), preceded by the bytes that were held back.
    fn put(&self, out: &mut Output, head: &[u8], part: &[u8]) -> Result<()> {
        out.held.extend_from_slice(head);
        let mut part = part;
        if part.len() <= FEW {
            // Copied, so that they form one piece and one record.
            out.held.extend_from_slice(part);
            part = &[];
        }
        let written = if out.sealer.is_plain() {
            self.write(&mut out.waiting, &out.held, part)
        } else {
            self.write_sealed(out, part)
        };
        out.held.clear();
        written
    }

    /// Encrypts and sends the bytes that were held back, and then `part`.
    fn write_sealed(&self, out: &mut Output, mut part: &[u8]) -> Result<()> {
        let Output { sealer, held, sealed, waiting, .. } = out;
        let mut held = &held[..];
        loop {
            let (piece, later) = part.split_at(part.len().min(PIECE));
            let end = sealer.seal_at(held, sealed, 0).and_then(|end| sealer.seal_at(piece, sealed, end));
            let Ok(end) = end else {
                let error = error!(
                    "ConnectionError",
                    "{}: the connection has reached the limit of encrypted data: connect again", self.peer
                );
                self.end_only(error.clone());
                return Err(error);
            };
            self.write(waiting, &sealed[..end], &[])?;
            if later.is_empty() {
                return Ok(());
            }
            (held, part) = (&[], later);
        }
    }

    fn write(&self, waiting: &mut Vec<u8>, first: &[u8], second: &[u8]) -> Result<()> {
        let Some(driver) = &self.driver else {
            waiting.extend_from_slice(first);
            waiting.extend_from_slice(second);
            return Ok(());
        };
        let written = driver.write(self, first, second);
        if let Err(error) = &written {
            // Part of a frame may have been sent, so the peer would not understand anything that follows. Callbacks of calls may
            // send, so they run when the output is unlocked.
            self.end_only(error.clone());
        }
        written
    }
}
