//! Endpoints. An endpoint is one end of a session, with the calls in progress in both directions.
//! It does no I/O.
//!
//! Bytes of the peer go in by [`Endpoint::receive`], bytes for the peer come out by [`Endpoint::take_output`], and everything else
//! happens in between. A [`Driver`] that can block replaces both: it writes to its transport directly, and lets threads wait.

mod answer;
mod current;
mod dispatch;
mod output;
mod pending;
mod scope;
mod table;
mod time;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use anyfn::{Any, AnyView, Error, ObjectRef, PackedFunc, Result, bail, error};

use crate::channel::{Opener, Sealer};
use crate::frame::{FrameKind, Frames};
use crate::handles::Handles;
pub use crate::handles::Named;
use crate::sink::Sink;
use crate::sync::{Guard, Lock};
use crate::value::{Given, Wire, Writer};

pub use answer::{Answer, IncomingCall, answer_later};
pub use current::is_cancelled;
pub use dispatch::Interrupt;
pub use pending::PendingCall;
pub use table::{Incoming, ROOT, Step, Table};

use scope::Scope;
use table::{Completion, Destination};

/// Maximum nesting depth of calls and callbacks.
pub const CALLS_MAX: u16 = 64;

/// Limits of one end of a session, which protect that end from its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of handles that the peer may hold at any time.
    pub handles: u32,
    /// Maximum number of simultaneous incoming calls, including transfers.
    pub calls: u32,
    /// Maximum size of one message in bytes, sent or received.
    pub message_bytes: usize,
    /// Time limit of an incoming call in seconds; 0 for no limit. When it is exceeded, the session ends.
    pub call_seconds: u64,
    /// Time in seconds after which a session without received bytes ends; 0 for no limit.
    pub idle_seconds: u64,
}

impl SessionLimits {
    /// Limits for a peer that is trusted: messages of 1 GiB (a quarter of the address space on
    /// 32-bit systems), 2^24 handles, 4096 calls, no time limits. They only prevent a mistake from
    /// exhausting the memory of a computer.
    pub const TRUSTED: SessionLimits = SessionLimits {
        handles: 1 << 24,
        calls: 4096,
        message_bytes: 1 << 30,
        call_seconds: 0,
        idle_seconds: 0,
    };

    /// Limits for a peer that is not trusted, or for a board with little memory: messages of 64 KiB, 256 handles, 16 calls, no
    /// time limits.
    pub const SMALL: SessionLimits =
        SessionLimits { handles: 256, calls: 16, message_bytes: 64 << 10, call_seconds: 0, idle_seconds: 0 };
}

/// Target of a call to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Function of the peer, identified by the function's handle.
    Handle(u64),
    /// Service of the peer, identified by a constant in [`crate::code`].
    Service(u16),
}

/// Bulk data that a call transfers in addition to its arguments and its result.
#[derive(Default)]
pub struct Transfer<'a> {
    /// Bytes to send after the arguments of the call.
    pub bytes: &'a [u8],
    /// Buffer for the bytes that the peer sends before the result of the call. The peer must fill it exactly.
    pub into: Option<&'a mut [u8]>,
    /// Callback that receives the number of bytes transferred so far and the total. If it returns an error,
    /// the transfer is aborted.
    pub progress: Option<&'a PackedFunc>,
}

/// Services that one end offers to its peer, in addition to the functions whose handles it has sent.
pub trait Service: Send + Sync {
    /// Runs the service `code` for the call `id` and returns the result.
    ///
    /// # Errors
    /// The peer receives a returned error as the error of its call.
    fn call(&self, endpoint: &Arc<Endpoint>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any>;
    /// Returns the destination and number of the bytes that follow the arguments of a call; `None` if the
    /// service `code` is not an upload.
    ///
    /// # Errors
    /// The peer receives a returned error as the error of its call.
    fn upload(&self, endpoint: &Endpoint, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>>;
}

/// Connection of an endpoint to a transport on which threads can block. Without a driver, an
/// endpoint collects its output, and threads cannot wait for the results of calls.
pub trait Driver: Send + Sync {
    /// Sends `first` and then `second` completely. The output of `endpoint` is locked meanwhile, so
    /// only one thread at a time calls this method.
    ///
    /// # Errors
    /// Returns the error that ends the session.
    fn write(&self, endpoint: &Endpoint, first: &[u8], second: &[u8]) -> Result<()>;
    /// Returns true if [`Driver::write`] of a short message would not block.
    fn can_write(&self) -> bool;
    /// Returns the deadline of a call that this thread begins now, as the time since an origin of the driver's choice; `None` for
    /// no deadline. [`Driver::wait`] receives it.
    fn deadline(&self) -> Option<Duration>;
    /// Blocks until the call `id` has ended, and returns its result. See [`Table::step`].
    ///
    /// # Errors
    /// Returns the error of the call, or the reason why this thread no longer waits.
    fn wait(
        &self,
        endpoint: &Arc<Endpoint>,
        id: u64,
        deadline: Option<Duration>,
        progress: Option<&PackedFunc>,
    ) -> Result<Any>;
    /// Arranges for [`Endpoint::execute`] to run an incoming call that no waiting thread will run.
    fn run(&self, endpoint: &Arc<Endpoint>, call: Incoming);
    /// Closes the transport, because the session has ended.
    fn ended(&self);
}

/// Functions that create and recognise proxies, the local objects that represent objects of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Proxies {
    /// Creates a proxy for the peer's object to which a received handle refers.
    pub(crate) create: fn(&Arc<Endpoint>, Given) -> Result<Any>,
    /// Returns the endpoint and handle of a proxy, or `None` if the object is not a proxy.
    pub(crate) find: fn(&ObjectRef) -> Option<Proxied>,
    /// Converts the answer to a look-up into a proxy for the function, or returns `None` if the
    /// function does not exist.
    pub(crate) describe: fn(&Arc<Endpoint>, &Any) -> Result<Option<PackedFunc>>,
}

/// Endpoint and handle of a proxy.
pub(crate) type Proxied = (Arc<Endpoint>, u64);

/// State of a session after its greeting, from which an [`Endpoint`] is made.
pub(crate) struct Parts {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    pub(crate) frames: Frames,
    pub(crate) wire: Wire,
    pub(crate) limits: SessionLimits,
    pub(crate) service: Option<Box<dyn Service>>,
    pub(crate) proxies: Proxies,
    pub(crate) peer: String,
}

struct Output {
    sealer: Sealer,
    /// Bytes that are held back, to be sent before the next message and together with it.
    held: Vec<u8>,
    /// Buffer for the encoded (possibly encrypted) form of outgoing bytes.
    sealed: Vec<u8>,
    /// Bytes that the peer is to receive, collected for [`Endpoint::take_output`] if the endpoint
    /// has no driver. The first `taken` bytes have been taken already.
    waiting: Vec<u8>,
    taken: usize,
}

/// Received bytes of a session that have not been processed.
pub struct Input {
    opener: Opener,
    frames: Frames,
}

/// One end of a session, from the greeting to the end.
///
/// All methods may be called from any thread, and from functions that the peer calls. [`ClientOpening`] and [`ServerOpening`]
/// create endpoints.
///
/// [`ClientOpening`]: crate::opening::ClientOpening
/// [`ServerOpening`]: crate::opening::ServerOpening
pub struct Endpoint {
    out: Lock<Output>,
    input: Lock<Input>,
    table: Lock<Table>,
    handles: Lock<Handles>,
    /// True if bytes have arrived since the table last updated the time of the last received bytes.
    has_heard: AtomicBool,
    /// True if replies or releases may be waiting to be sent.
    has_more: AtomicBool,
    /// True if callbacks of calls that have ended may be waiting to be run.
    has_completed: AtomicBool,
    wire: Wire,
    limits: SessionLimits,
    service: Option<Box<dyn Service>>,
    driver: Option<Arc<dyn Driver>>,
    proxies: Proxies,
    peer: String,
}

/// Guard that removes the entry of a call when it is dropped. This matters only if the thread unwinds: later bytes of a transfer
/// would otherwise be written to memory that is no longer borrowed. In all other cases, [`Endpoint::leave`] has already removed
/// the entry.
pub struct WaiterEntry<'a> {
    endpoint: &'a Arc<Endpoint>,
    id: u64,
    /// Mutable borrow of the buffer that the call's transfer fills.
    _into: Option<&'a mut [u8]>,
}

impl<'a> WaiterEntry<'a> {
    /// Adds an entry for a call that this thread will wait for, and returns its guard.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    pub fn new(endpoint: &'a Arc<Endpoint>, mut into: Option<&'a mut [u8]>) -> Result<WaiterEntry<'a>> {
        let into_here = into.as_mut().map(|into| Destination::borrowed(into));
        let id = endpoint.table().begin(into_here, true)?;
        Ok(WaiterEntry { endpoint, id, _into: into })
    }

    /// Returns the id of the call.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Consumes the guard without removing the entry, which [`Endpoint::leave`] has already removed.
    fn taken_out(self) {
        core::mem::forget(self);
    }
}

impl Drop for WaiterEntry<'_> {
    fn drop(&mut self) {
        self.endpoint.leave(self.endpoint.table(), self.id);
    }
}

impl Endpoint {
    pub(crate) fn new(parts: Parts, driver: Option<Arc<dyn Driver>>) -> Arc<Endpoint> {
        current::watch_cancelled();
        let Parts { sealer, opener, mut frames, wire, limits, service, proxies, peer } = parts;
        frames.set_message_max(limits.message_bytes);
        let mut table = Table::new();
        if driver.is_none() {
            table.serve();
        }
        Arc::new(Endpoint {
            out: Lock::new(Output {
                sealer,
                held: Vec::new(),
                sealed: Vec::new(),
                waiting: Vec::new(),
                taken: 0,
            }),
            input: Lock::new(Input { opener, frames }),
            table: Lock::new(table),
            handles: Lock::new(Handles::new(limits.handles)),
            has_heard: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            has_completed: AtomicBool::new(false),
            wire,
            limits,
            service,
            driver,
            proxies,
            peer,
        })
    }

    /// Returns the name of the peer, for error messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the limits of this end.
    pub fn limits(&self) -> &SessionLimits {
        &self.limits
    }

    /// Returns true if this end offers services.
    pub fn is_server(&self) -> bool {
        self.service.is_some()
    }

    /// Returns the error that ended the session, or `None` while it is open.
    pub fn ended(&self) -> Option<Error> {
        self.table().ended.clone()
    }

    /// Returns the local object to which a handle held by the peer refers.
    ///
    /// # Errors
    /// Returns `ValueError` if the peer does not hold the handle.
    pub fn named(&self, handle: u64) -> Result<Named> {
        self.handles.lock().get(handle)
    }

    /// Locks and returns the table of the calls in progress, for drivers.
    #[inline]
    pub fn table(&self) -> Guard<'_, Table> {
        self.table.lock()
    }

    /// Calls a function or service of the peer without transferring bulk data, and waits for the result.
    ///
    /// # Errors
    /// Returns the error of [`Endpoint::transfer`].
    pub fn call(self: &Arc<Self>, target: &Target, args: &[AnyView<'_>]) -> Result<Any> {
        self.transfer(target, args, Transfer::default())
    }

    /// Calls a function or service of the peer while transferring bulk data, and waits for the result.
    ///
    /// # Errors
    /// Returns the error of the call, `ConnectionError` if the session ends, and `RuntimeError` if this endpoint has no driver that
    /// can block.
    pub fn transfer(
        self: &Arc<Self>,
        target: &Target,
        args: &[AnyView<'_>],
        transfer: Transfer<'_>,
    ) -> Result<Any> {
        let Transfer { bytes, into, progress } = transfer;
        let Some(driver) = &self.driver else { return Err(self.cannot_wait()) };
        let deadline = driver.deadline();
        let scope = Scope::new(self, true);
        let payload = self.written_call(&scope, target, args)?;
        let entry = WaiterEntry::new(self, into)?;
        let id = entry.id;
        let sent = self.send_call(id, &payload, bytes, progress);
        current::give_back(payload);
        if let Err(error) = sent {
            drop(entry);
            // An error of `progress` leaves the connection open and the peer waiting for the remaining bytes.
            let _ = self.send(FrameKind::Cancel, id, &[]);
            return Err(error);
        }
        let result = driver.wait(self, id, deadline, progress);
        entry.taken_out();
        drop(scope);
        result
    }

    #[cold]
    fn cannot_wait(&self) -> Error {
        error!(
            "RuntimeError",
            "{}: cannot wait for a result: the event loop that drives this session must not block; start the call with \
             `Endpoint::start` and take the result when it has arrived",
            self.peer
        )
    }

    /// Encodes a call. Afterwards, dropping `scope` no longer releases the handles in the call.
    fn written_call(&self, scope: &Scope<'_>, target: &Target, args: &[AnyView<'_>]) -> Result<Vec<u8>> {
        let (parent, depth) = self.current();
        if depth >= CALLS_MAX {
            bail!("RecursionError", "{}: calls and callbacks nest deeper than {CALLS_MAX}", self.peer);
        }
        let mut writer = Writer::new(scope, current::spare(), self.wire);
        writer.out.extend_from_slice(&parent.to_le_bytes());
        writer.out.extend_from_slice(&depth.to_le_bytes());
        match target {
            Target::Handle(handle) => {
                writer.out.push(0);
                writer.out.extend_from_slice(&handle.to_le_bytes());
            }
            Target::Service(code) => {
                writer.out.push(1);
                writer.out.extend_from_slice(&code.to_le_bytes());
            }
        }
        writer.values(args)?;
        scope.is_written();
        Ok(writer.out)
    }

    fn send_call(&self, id: u64, payload: &[u8], bytes: &[u8], progress: Option<&PackedFunc>) -> Result<()> {
        match bytes {
            [] => self.send(FrameKind::Call, id, payload),
            bytes => {
                self.send_before(FrameKind::Call, id, payload)?;
                self.send_data(id, bytes, progress)
            }
        }
    }

    /// Returns the id of the incoming call that this thread is running (0 if none), and the nesting depth of
    /// the next outgoing call.
    fn current(&self) -> (u64, u16) {
        let of_this = |call: &&current::Serving| core::ptr::eq(Arc::as_ptr(&call.endpoint), self);
        current::with(|calls| calls.iter().rev().find(of_this).map(|call| (call.id, call.depth + 1)))
            .flatten()
            .unwrap_or((ROOT, 0))
    }

    /// Ends the wait for the call `id`: removes its entry, refuses the incoming calls that were queued for
    /// its thread, and wakes another thread to read.
    pub fn leave(self: &Arc<Self>, mut table: Guard<'_, Table>, id: u64) {
        // The entry is removed as a whole and dropped after unlocking: an unclaimed result may hold handles, whose release locks
        // the table.
        let waiter = table.remove(id);
        table.wake_reader(id);
        drop(table);
        // Calls that have arrived for this entry will not run.
        for call in waiter.incoming {
            self.fail(call.id(), &error!("RuntimeError", "the call that this callback belongs to has ended"));
        }
    }

    /// Ends the session with a `Bye` message, unless sending would block because the peer has stopped reading. Does nothing if the
    /// session has ended.
    pub fn close(&self) {
        if self.ended().is_none() {
            self.say_bye(&[]);
            self.end(Error::untraced(
                "ConnectionError",
                &alloc::format!("{}: the session was closed", self.peer),
            ));
        }
    }

    /// Ends the session with the error `why`, without notifying the peer. Waiting calls receive the error, and all objects that
    /// the peer held are released.
    pub fn end(&self, why: Error) {
        self.end_only(why);
        self.run_completions();
    }

    /// Ends the session like [`Endpoint::end`], but does not run the callbacks of the calls that
    /// end with it.
    fn end_only(&self, why: Error) {
        let mut table = self.table();
        let Some(left) = table.end(why) else { return };
        drop(table);
        if let Some(driver) = &self.driver {
            driver.ended();
        }
        drop(left);
        let held = self.handles.lock().clear();
        drop(held);
    }

    /// Runs the callbacks of calls that have ended.
    fn run_completions(&self) {
        self.has_completed.store(false, Ordering::Relaxed);
        loop {
            let next = self.table().completed.pop_front();
            let Some(Completion { done, result }) = next else { return };
            done(result);
        }
    }
}

/// Returns the reason in a `Bye` message without control characters, or a default reason if the
/// message contains none.
pub(crate) fn reason(payload: &[u8]) -> String {
    let why: String = String::from_utf8_lossy(payload).chars().filter(|c| !c.is_control()).collect();
    if why.is_empty() { "the peer ended the session".to_owned() } else { why }
}
