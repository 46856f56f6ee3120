//! Processing of received bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering;

use anyfn::{Any, Error, PackedFunc, Result, bail, error};

use super::scope::Scope;
use super::table::{Callee, ROOT, Request, Table, Upload};
use super::{CALLS_MAX, Endpoint, Input, reason};
use crate::channel::Forged;
use crate::frame::FrameKind;
use crate::value::{Class, Reader};

/// Maximum number of queued replies. It prevents a peer that does not read the replies from filling
/// the memory of this end.
const REPLIES_MAX: usize = 4096;

/// Check by which a driver can abort the decoding of a long message.
pub trait Interrupt {
    /// Returns an error if decoding must be aborted. Decoders of long messages call this function at intervals. `call` is the
    /// outgoing call to which the message belongs, if any, and `is_result` is true if the message is its result.
    ///
    /// # Errors
    /// Returns the error with which the affected call ends.
    fn check(&self, call: Option<u64>, is_result: bool) -> Result<()>;
}

/// State of decoding one message.
pub(super) struct Decoding<'a> {
    interrupt: Option<&'a dyn Interrupt>,
    /// Id of the outgoing call to which the decoded message belongs; `None` while the id is unknown.
    call: Cell<Option<u64>>,
    /// True if the decoded message is the result of the outgoing call `call`.
    is_result: bool,
}

impl Input {
    /// Returns a buffer into which a driver reads bytes from its transport. The driver reports with [`Input::received`] how many
    /// bytes it has read.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        self.opener.room(&mut self.frames)
    }

    /// Decodes the `count` bytes that the driver has written to the buffer returned by [`Input::room`].
    ///
    /// # Errors
    /// Returns [`Forged`] if a record is not authentic; the session cannot continue.
    #[inline]
    pub fn received(&mut self, count: usize) -> Result<(), Forged> {
        self.opener.received(count, &mut self.frames)
    }

    /// Returns the number of received bytes that have not been dispatched yet.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.frames.waiting()
    }
}

impl Endpoint {
    /// Processes received bytes, which may begin and end anywhere in a message. Incoming calls are queued for
    /// [`Endpoint::next_call`], results for the calls that expect them, and replies for [`Endpoint::take_output`].
    ///
    /// # Errors
    /// Returns the error that ended the session: malformed bytes, a `Bye` message of the peer, or an earlier end.
    pub fn receive(self: &Arc<Self>, bytes: &[u8]) -> Result<()> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let mut input = self.input();
        let Input { opener, frames } = &mut *input;
        let done = match opener.push(bytes, frames) {
            Ok(()) => self.hand_out(&mut input, None).map(drop),
            Err(forged) => Err(error!("ConnectionError", "{}: {forged}", self.peer)),
        };
        drop(input);
        self.note_heard();
        match done.and_then(|()| self.settle()) {
            Ok(()) => self.ended().map_or(Ok(()), Err),
            Err(error) => {
                self.end(error.clone());
                Err(error)
            }
        }
    }

    /// Ends the session because the transport has no more bytes. `why` describes the end, such as "the peer closed the connection".
    pub fn disconnected(&self, why: &str) {
        self.end(error!("ConnectionError", "{}: {why}", self.peer));
    }

    /// Locks and returns the received bytes, for drivers. A thread that reads from the transport holds this lock.
    #[inline]
    pub fn input(&self) -> crate::sync::Guard<'_, Input> {
        self.input.lock()
    }

    /// Locks and returns the received bytes like [`Endpoint::input`], or returns `None` if another thread reads.
    pub fn try_input(&self) -> Option<crate::sync::Guard<'_, Input>> {
        self.input.try_lock()
    }

    /// Records that bytes have arrived.
    #[inline]
    pub fn note_heard(&self) {
        self.has_heard.store(true, Ordering::Relaxed);
    }

    /// Dispatches all complete messages in the receive buffer. Returns true if there was at least
    /// one complete message.
    ///
    /// # Errors
    /// Returns the error with which the caller must end the session.
    pub fn hand_out(self: &Arc<Self>, input: &mut Input, interrupt: Option<&dyn Interrupt>) -> Result<bool> {
        let mut any = false;
        loop {
            match input.frames.next() {
                Ok(Some(message)) => {
                    any = true;
                    self.dispatch(message.kind, message.id, message.payload, interrupt)?;
                }
                Ok(None) => return Ok(any),
                Err(malformed) => bail!("ConnectionError", "{}: {malformed}", self.peer),
            }
        }
    }

    /// Handles one received message. A returned error ends the session; the failure of a single call is
    /// instead sent as the reply to that call.
    fn dispatch(
        self: &Arc<Self>,
        kind: FrameKind,
        id: u64,
        payload: &[u8],
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<()> {
        let is_result = kind == FrameKind::Return;
        let decoding = Decoding { interrupt, call: Cell::new(is_result.then_some(id)), is_result };
        let scope = Scope::of_read(self, &decoding);
        let mut reader = Reader::new(&scope, payload, self.wire);
        match kind {
            FrameKind::Call => match self.incoming(id, &mut reader, &decoding) {
                Ok((parent, Some(request))) => {
                    if self.take_in(parent, request)? {
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
                let value = match kind {
                    FrameKind::Return => reader.value().and_then(|value| reader.end().map(|()| value)),
                    _ => reader.error().and_then(|error| Err(self.as_remote(error))),
                };
                self.give_back_unread(reader);
                let mut table = self.table();
                let unused = table.finish(id, value);
                if !table.completed.is_empty() {
                    self.has_completed.store(true, Ordering::Relaxed);
                }
                // Dropping it releases its handles, which locks the table again.
                drop(table);
                drop(unused);
                return Ok(());
            }
            FrameKind::Cancel => {
                let mut table = self.table();
                if let Some(running) = table.running.get(&id) {
                    running.state.cancelled.store(true, Ordering::Relaxed);
                }
                let upload = table.uploads.remove(&id);
                drop(table);
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
                    gone.extend(self.handles.lock().release(handle, count)?);
                }
            }
            FrameKind::Data => self.data(id, payload)?,
            FrameKind::Ping => self.push_reply(&mut self.table(), (FrameKind::Pong, id, Vec::new())),
            FrameKind::Pong => {}
            FrameKind::Bye => bail!("ConnectionError", "{}: {}", self.peer, reason(payload)),
            FrameKind::Hello | FrameKind::Welcome | FrameKind::Queued => {
                bail!(
                    "ConnectionError",
                    "{}: unexpected handshake message in an established session",
                    self.peer
                )
            }
        }
        if self.table().replies.len() > REPLIES_MAX {
            bail!("ConnectionError", "{}: the peer requests more replies than it reads", self.peer);
        }
        Ok(())
    }

    /// Returns an error if the decoding of a message must be aborted. The decoder of a long message calls
    /// this function at intervals.
    pub(super) fn look(&self, decoding: &Decoding<'_>) -> Result<()> {
        let table = self.table();
        if let Some(error) = &table.ended {
            return Err(error.clone());
        }
        let call = decoding.call.get();
        if decoding.is_result && !call.is_some_and(|id| table.expects(id)) {
            bail!("InterruptedError", "no call waits for the result");
        }
        drop(table);
        decoding.interrupt.map_or(Ok(()), |interrupt| interrupt.check(call, decoding.is_result))
    }

    /// Releases the handles in the unread rest of a message whose decoding was aborted.
    fn give_back_unread(&self, reader: Reader<'_>) {
        reader.unread_handles().into_iter().for_each(|handle| self.release(handle, 1, false));
    }

    /// Handles a `Data` message: copies its bytes to the buffer of the waiting call `id`, or passes them to
    /// the upload `id`.
    fn data(self: &Arc<Self>, id: u64, payload: &[u8]) -> Result<()> {
        let Some((at, bytes)) = payload.split_first_chunk::<8>() else {
            bail!("ConnectionError", "{}: received part of a transfer without its offset", self.peer);
        };
        let at = u64::from_le_bytes(*at);
        let mut table = self.table();
        if let Some(into) = table.destination(id) {
            if !into.append(at, bytes) {
                bail!(
                    "ConnectionError",
                    "{}: received part of a transfer at an unexpected offset or beyond its end",
                    self.peer
                );
            }
            return Ok(());
        }
        // The transfer was refused, or no caller waits for its result; the remaining bytes are still arriving.
        let Some(mut upload) = table.uploads.remove(&id) else { return Ok(()) };
        drop(table);
        let result = if at != upload.at || bytes.len() as u64 > upload.total - upload.at {
            Err(error!("ValueError", "received part of a transfer at an unexpected offset or beyond its end"))
        } else {
            upload.sink.write(bytes)
        };
        upload.at += bytes.len() as u64;
        match result {
            Ok(()) if upload.at == upload.total => self.reply(id, upload.sink.finish()),
            Ok(()) => {
                self.table().uploads.insert(id, upload);
            }
            Err(error) => self.reply_error(id, &error),
        }
        Ok(())
    }

    /// Decodes an incoming call. Returns the id of the outgoing call during which the peer made the incoming
    /// call (0 if none), and the decoded call. An upload needs no thread, so `None` is returned instead of its
    /// decoded call.
    fn incoming(
        self: &Arc<Self>,
        id: u64,
        reader: &mut Reader<'_>,
        decoding: &Decoding<'_>,
    ) -> Result<(u64, Option<Request>)> {
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
            if self.has_enough(&self.table()) {
                return Err(self.enough());
            }
            let Some(service) = &self.service else {
                bail!("PermissionError", "this end of the session offers no services");
            };
            if let Some((sink, total)) = service.upload(self, code, &args)? {
                self.begin_upload(id, Upload { sink, of: first_handle(&args), at: 0, total })?;
                return Ok((parent, None));
            }
        }
        Ok((parent, Some(Request { id, depth, target, args })))
    }

    fn begin_upload(self: &Arc<Self>, id: u64, upload: Upload) -> Result<()> {
        if upload.total == 0 {
            self.reply(id, upload.sink.finish());
            return Ok(());
        }
        let before = self.table().uploads.insert(id, upload);
        if before.is_some() {
            bail!("ValueError", "two transfers have the same number");
        }
        Ok(())
    }

    /// Returns true if the number of incoming calls in progress, including uploads, has reached the
    /// limit.
    fn has_enough(&self, table: &Table) -> bool {
        table.running.len() + table.uploads.len() >= self.limits.calls as usize
    }

    #[cold]
    fn enough(&self) -> Error {
        let limit = self.limits.calls;
        error!("PermissionError", "{limit} calls are in progress, which is the limit (`calls`)")
    }

    /// Passes an incoming call to the thread or event loop that will run it: the thread that waits
    /// for the call `parent`, the serving thread, or a new thread of the driver. Refuses the call
    /// and returns false if too many calls are in progress.
    fn take_in(self: &Arc<Self>, parent: u64, request: Request) -> Result<bool> {
        let mut table = self.table();
        if self.has_enough(&table) {
            drop(table);
            self.reply_error(request.id, &self.enough());
            return Ok(false);
        }
        let call = match table.accept(request) {
            Ok(call) => call,
            Err(call) => {
                // Unlock before the call is dropped, which releases its handles and locks the table again.
                drop(table);
                drop(call);
                bail!("ConnectionError", "{}: two calls have the same number", self.peer);
            }
        };
        let left = table.queue(parent, call, self.driver.is_some());
        drop(table);
        if let (Some(call), Some(driver)) = (left, &self.driver) {
            driver.run(self, call);
        }
        Ok(true)
    }

    /// Aborts the uploads to a borrowed tensor after the end of the call for which it was borrowed. `handle`
    /// is the tensor's former handle.
    pub(super) fn end_uploads_to(self: &Arc<Self>, handle: u64) {
        let mut table = self.table();
        let ids: Vec<u64> =
            table.uploads.iter().filter(|(_, u)| u.of == Some(handle)).map(|(id, _)| *id).collect();
        let gone: Vec<(u64, Upload)> =
            ids.into_iter().filter_map(|id| Some((id, table.uploads.remove(&id)?))).collect();
        drop(table);
        for (id, upload) in gone {
            drop(upload);
            self.reply_error(id, &error!("ValueError", "the tensor was borrowed for a call that has ended"));
        }
    }
}

/// Returns the handle of the tensor that an upload writes to, or `None` if the upload does not
/// write to a tensor.
fn first_handle(args: &[Any]) -> Option<u64> {
    args.first().and_then(|handle| handle.get::<u64>().ok())
}
