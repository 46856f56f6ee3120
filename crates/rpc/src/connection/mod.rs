//! Connections: the calls in progress in both directions, and the threads that wait for them.
//!
//! No thread is dedicated to reading. Of the threads that wait for results, one reads at a time and passes
//! each message to the thread that waits for it. A call therefore costs one write and one read, and wakes no
//! other thread. A call that arrives while a thread waits for the result of the call that led to it runs on
//! that thread, so calls and callbacks nest on one thread at each end.

mod answering;
mod life;
mod reading;
mod scope;
#[cfg(test)]
mod tests;
mod writing;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyfn::{Any, AnyView, Error, ObjectRef, PackedFunc, Result, bail, check_signals, error};

use rustc_hash::FxBuildHasher;

use crate::channel::{Opener, Sealer};
use crate::frame::{self, FrameKind, Frames, HEADER};
use crate::handles::{Handles, Named};
use crate::policy::Policy;
use crate::polling::Polling;
use crate::sink::Sink;
use crate::socket::{LOOK, Socket};
use crate::value::{Class, Given, Reader, Wire, Writer};
use scope::Scope;

/// Maximum nesting depth of calls and callbacks.
pub const CALLS_MAX: u16 = 64;

/// Time without received bytes after which a waiting client sends a `Ping`, to check that the server is
/// alive.
const ASK: Duration = Duration::from_secs(5);
/// Time limit for the peer to send any bytes after a `Ping`. After that, the connection fails.
const ANSWER: Duration = Duration::from_secs(15);
/// Time after which the connection fails if the peer accepts no bytes.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Waiter id of the serving thread, which waits for incoming calls and not for a result.
const ROOT: u64 = 0;

/// Number of pending handle releases that triggers sending them immediately instead of with the next message.
const RELEASES: usize = 64;

/// Target of a call to the peer.
pub(crate) enum Target {
    /// Function of the peer, identified by its handle.
    Handle(u64),
    /// Service of the peer, identified by one of the constants in `code`.
    Service(u16),
}

/// Incoming call after decoding.
struct IncomingCall {
    id: u64,
    depth: u16,
    target: Callee,
    args: Vec<Any>,
}

/// Incoming call that was accepted and will run.
struct Incoming {
    asked: IncomingCall,
    state: Arc<Running>,
}

enum Callee {
    Function(PackedFunc),
    Service(u16),
}

/// State of an incoming call, which runs in this process.
#[derive(Default)]
pub(crate) struct Running {
    cancelled: AtomicBool,
    /// Time at which a check of the time limits first found the call running. The start of a call does not
    /// read the clock, which would slow down short calls.
    seen: OnceLock<Instant>,
}

/// Bulk data that a call transfers in addition to its arguments and its result.
#[derive(Default)]
pub(crate) struct Transfer<'a> {
    /// Bytes to send after the arguments of the call.
    pub(crate) bytes: &'a [u8],
    /// Buffer for the bytes that the peer sends before the result of the call. The peer must fill it exactly.
    pub(crate) into: Option<&'a mut [u8]>,
    /// Callback that receives the number of bytes transferred so far and the total. If it returns an error,
    /// the transfer is aborted.
    pub(crate) progress: Option<&'a PackedFunc>,
}

struct Upload {
    sink: Box<dyn Sink>,
    /// Handle of the tensor that the upload writes to; `None` for the upload of a file.
    of: Option<u64>,
    at: u64,
    total: u64,
}

/// Services that this process offers to the peer, in addition to the functions whose handles it has sent.
pub(crate) trait Service: Send + Sync {
    /// Runs the service `code` for the call `id` and returns the result.
    fn call(&self, connection: &Arc<Connection>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any>;
    /// Returns the destination and number of the bytes that follow the arguments of a call; `None` if the
    /// service `code` is not an upload.
    fn upload(&self, connection: &Connection, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>>;
}

/// Functions that create and recognise proxies, the local objects that represent objects of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Proxies {
    /// Creates a proxy for the object of the peer that a received handle refers to.
    pub(crate) create: fn(&Arc<Connection>, Given) -> Result<Any>,
    /// Returns the connection and handle of a proxy, or `None` if the object is not a proxy.
    pub(crate) find: fn(&ObjectRef) -> Option<Proxied>,
}

/// Connection and handle of a proxy.
pub(crate) type Proxied = (Arc<Connection>, u64);

/// Buffer that a transfer fills for a waiting thread. While the thread's call has a [`Waiter`], the thread
/// borrows the buffer mutably but does not access it. [`WaiterEntry`] removes the waiter before the borrow
/// ends.
struct Destination {
    data: *mut u8,
    length: usize,
    filled: usize,
}

// SAFETY: every write through the pointer holds the lock of the table, so one thread at a time writes, and none after `WaiterEntry` has
// ended. Bytes may be written from any thread.
unsafe impl Send for Destination {}

#[derive(Default)]
struct Waiter {
    outcome: Option<Result<Any>>,
    incoming: VecDeque<Incoming>,
    into: Option<Destination>,
    /// Sequence number, counted from 1, of the incoming call that the waiting thread is running; 0 if it is
    /// running none.
    busy: u64,
    /// Sequence number of the incoming call that the waiting thread started most recently.
    begun: u64,
    /// Condition variable with which another thread wakes the waiting thread. Set only while the waiting
    /// thread sleeps.
    woken: Option<Arc<Condvar>>,
}

impl Waiter {
    /// Wakes the waiting thread if it sleeps. A waiting thread that reads from the socket does not need to be
    /// woken.
    fn wake(&self) {
        if let Some(woken) = &self.woken {
            woken.notify_one();
        }
    }
}

/// Guard that removes the [`Waiter`] of a call when it is dropped. This matters only if the thread unwinds:
/// later bytes of a transfer would otherwise be written to memory that is no longer borrowed. In all other
/// cases, [`Connection::leave`] has already removed the waiter.
struct WaiterEntry<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
    /// Mutable borrow of the buffer that the call's transfer fills.
    _into: Option<&'a mut [u8]>,
}

impl<'a> WaiterEntry<'a> {
    /// Adds a [`Waiter`] for the call `id` and returns its guard.
    ///
    /// # Errors
    /// Returns the error that ended the connection.
    fn new(
        connection: &'a Arc<Connection>,
        id: u64,
        mut into: Option<&'a mut [u8]>,
    ) -> Result<WaiterEntry<'a>> {
        let memory =
            into.as_mut().map(|into| Destination { data: into.as_mut_ptr(), length: into.len(), filled: 0 });
        let mut state = lock(&connection.state);
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        state.waiters.insert(id, Waiter { into: memory, ..Waiter::default() });
        drop(state);
        Ok(WaiterEntry { connection, id, _into: into })
    }

    /// Consumes the guard without removing the waiter, which [`Connection::leave`] has already removed.
    fn taken_out(self) {
        std::mem::forget(self);
    }
}

impl Drop for WaiterEntry<'_> {
    fn drop(&mut self) {
        self.connection.leave(lock(&self.connection.state), self.id);
    }
}

/// Map keyed by call id. The peer could choose ids whose hashes collide, which is harmless because the map
/// has few entries.
type ById<T> = HashMap<u64, T, FxBuildHasher>;

struct ConnectionState {
    reading: bool,
    waiters: ById<Waiter>,
    running: ById<Arc<Running>>,
    /// State of a completed incoming call, which the next incoming call reuses to avoid an allocation.
    unused: Option<Arc<Running>>,
    uploads: ById<Upload>,
    /// Handles of objects of the peer that are to be released, each with the number of times that it was
    /// received.
    releases: Vec<(u64, u64)>,
    /// Replies that a reading thread has queued, because it must not block on sending.
    replies: VecDeque<(FrameKind, u64, Vec<u8>)>,
    /// Error that ended the connection; `None` while it is open.
    ended: Option<Error>,
    /// Number of additional threads that run incoming calls, not counting the serving thread.
    workers: usize,
    /// Approximate time of the last received bytes: the time at which a thread last noticed that bytes had
    /// arrived.
    heard: Instant,
    /// Time at which a `Ping` was sent; `None` if bytes have arrived since.
    asked: Option<Instant>,
    /// Approximate time at which the last incoming call ended. It is set when a thread notices `has_worked`, which may be later.
    worked: Instant,
    /// True if an incoming call has ended since `worked` was last updated.
    has_worked: bool,
}

struct Out {
    sealer: Sealer,
    /// Bytes that are held back, to be sent before the next message and together with it.
    held: Vec<u8>,
    /// Buffer for the encoded (possibly encrypted) form of outgoing bytes.
    sealed: Vec<u8>,
}

struct Input {
    opener: Opener,
    frames: Frames,
    polling: Polling,
}

/// One end of a session's connection.
pub struct Connection {
    socket: Socket,
    out: Mutex<Out>,
    input: Mutex<Input>,
    state: Mutex<ConnectionState>,
    handles: Mutex<Handles>,
    /// True if bytes have arrived since `ConnectionState::heard` was last updated.
    has_heard: AtomicBool,
    /// True if replies or releases may be waiting to be sent.
    has_more: AtomicBool,
    ids: AtomicU64,
    wire: Wire,
    policy: Policy,
    service: Option<Box<dyn Service>>,
    proxies: Proxies,
    /// Name of the peer, for error messages.
    pub(crate) peer: String,
    /// True while the ticker thread sleeps for a long time and must be woken when a call starts.
    dozing: AtomicBool,
    awake: Condvar,
}

/// State of the waiting thread that currently reads from the socket on behalf of all waiting threads.
struct Reading {
    /// Id of the call whose result the reading thread waits for.
    id: u64,
    deadline: Option<Instant>,
    /// Error with which the reading thread will stop waiting. It is recorded while the thread decodes a
    /// message for another call.
    given_up: Cell<Option<Error>>,
}

/// State of decoding one message.
pub(crate) struct Decoding<'a> {
    /// State of the reading thread; `None` for the ticker thread, which has no deadline and handles no
    /// signals.
    reading: Option<&'a Reading>,
    /// Id of the outgoing call to which the decoded message belongs; `None` while the id is unknown.
    call: Cell<Option<u64>>,
    /// True if the decoded message is the result of the outgoing call `call`.
    is_result: bool,
}

/// Incoming call that this thread is running, as an element of the stack `CURRENT`.
struct Serving {
    /// Address of the [`Connection`] over which the call arrived.
    connection: usize,
    id: u64,
    depth: u16,
    state: Arc<Running>,
}

thread_local! {
    /// Stack of the incoming calls that this thread is running, innermost last.
    static CURRENT: RefCell<Vec<Serving>> = const { RefCell::new(Vec::new()) };
    /// Time limit of each remote call that this thread makes; `None` for no limit.
    static DEADLINE: Cell<Option<Duration>> = const { Cell::new(None) };
    /// Spare buffer, which the next message of this thread reuses.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the spare message buffer of this thread, or creates an empty one. [`give_back`] makes it available
/// for the next message.
fn spare() -> Vec<u8> {
    // A thread that is exiting may still make calls.
    SPARE.try_with(Cell::take).unwrap_or_default()
}

/// Stores a message buffer for reuse by this thread.
fn give_back(mut message: Vec<u8>) {
    const KEPT_MAX: usize = 4096;
    if message.capacity() <= KEPT_MAX {
        message.clear();
        let _ = SPARE.try_with(|spare| spare.set(message));
    }
}

/// Runs `body` with a time limit for each remote call that `body` makes on this thread; `None` for no limit.
pub(crate) fn with_timeout<T>(limit: Option<Duration>, body: impl FnOnce() -> T) -> T {
    let before = DEADLINE.replace(limit);
    let result = body();
    DEADLINE.set(before);
    result
}

/// Returns true if this thread is running an incoming call that the peer has cancelled.
pub fn is_cancelled() -> bool {
    CURRENT.with_borrow(|calls| calls.last().is_some_and(|call| call.state.cancelled.load(Ordering::Relaxed)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Except for allocation, nothing that may panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Creates one end of a connection after the handshake. `frames` contains the bytes that have already
    /// arrived.
    pub(crate) fn new(
        socket: Socket,
        (sealer, opener, frames): (Sealer, Opener, Frames),
        wire: Wire,
        policy: Policy,
        service: Option<Box<dyn Service>>,
        proxies: Proxies,
        peer: String,
    ) -> Arc<Connection> {
        answering::watch_cancelled();
        Arc::new(Connection {
            socket,
            out: Mutex::new(Out { sealer, held: Vec::new(), sealed: Vec::new() }),
            input: Mutex::new(Input { opener, frames, polling: Polling::default() }),
            state: Mutex::new(ConnectionState {
                reading: false,
                waiters: ById::default(),
                running: ById::default(),
                unused: None,
                uploads: ById::default(),
                releases: Vec::new(),
                replies: VecDeque::new(),
                ended: None,
                workers: 0,
                heard: Instant::now(),
                asked: None,
                worked: Instant::now(),
                has_worked: false,
            }),
            handles: Mutex::new(Handles::new(policy.handles)),
            has_heard: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            ids: AtomicU64::new(1),
            wire,
            policy,
            service,
            proxies,
            peer,
            dozing: AtomicBool::new(false),
            awake: Condvar::new(),
        })
    }

    pub(crate) fn is_server(&self) -> bool {
        self.service.is_some()
    }

    /// Returns the local object that a handle of the peer refers to.
    pub(crate) fn named(&self, handle: u64) -> Result<Named> {
        lock(&self.handles).get(handle)
    }

    /// Returns the error that ended the connection, or `None` while it is open.
    pub(crate) fn ended(&self) -> Option<Error> {
        lock(&self.state).ended.clone()
    }

    /// Calls a function or service of the peer without transferring bulk data, and waits for the result.
    pub(crate) fn call(self: &Arc<Self>, target: &Target, args: &[AnyView<'_>]) -> Result<Any> {
        self.transfer(target, args, Transfer::default())
    }

    /// Calls a function or service of the peer while transferring bulk data, and waits for the result.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        target: &Target,
        args: &[AnyView<'_>],
        transfer: Transfer<'_>,
    ) -> Result<Any> {
        let Transfer { bytes, into, progress } = transfer;
        let limit = DEADLINE.get();
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (parent, depth) = self.current();
        if depth >= CALLS_MAX {
            bail!("RecursionError", "{}: calls and callbacks nest deeper than {CALLS_MAX}", self.peer);
        }
        let scope = Scope::new(self);
        let mut writer = Writer::new(&scope, spare(), self.wire);
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
        let payload = writer.out;
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let entry = WaiterEntry::new(self, id, into)?;
        let sent = match bytes {
            [] => self.send(FrameKind::Call, id, &payload),
            bytes => self
                .send_before(FrameKind::Call, id, &payload)
                .and_then(|()| self.send_data(id, bytes, progress)),
        };
        give_back(payload);
        if let Err(error) = sent {
            drop(entry);
            // An error of `progress` leaves the connection open and the peer waiting for the remaining bytes.
            let _ = self.send(FrameKind::Cancel, id, &[]);
            return Err(error);
        }
        let result = self.wait(id, deadline, progress);
        entry.taken_out();
        drop(scope);
        result
    }

    /// Returns the id of the incoming call that this thread is running (0 if none), and the nesting depth of
    /// the next outgoing call.
    fn current(&self) -> (u64, u16) {
        let me = std::ptr::from_ref(self).addr();
        CURRENT.with_borrow(|calls| {
            calls
                .iter()
                .rev()
                .find(|call| call.connection == me)
                .map_or((0, 0), |call| (call.id, call.depth + 1))
        })
    }

    /// Waits for the result of the call `id`. If `id` is [`ROOT`], runs incoming calls until the connection
    /// ends.
    fn wait(
        self: &Arc<Self>,
        id: u64,
        deadline: Option<Instant>,
        progress: Option<&PackedFunc>,
    ) -> Result<Any> {
        let mut told = 0;
        let waits = Reading { id, deadline, given_up: Cell::new(None) };
        // `idle` is true if nothing has arrived for a while. Otherwise signals are checked every 16 passes; reading the clock
        // would take longer.
        let (mut idle, mut passes) = (false, 0_u8);
        let mut state = lock(&self.state);
        loop {
            let (ended, reading) = (state.ended.clone(), state.reading);
            let Some(waiter) = state.waiters.get_mut(&id) else {
                bail!("InternalError", "no thread waits for call {id}");
            };
            if let Some(progress) = progress
                && let Some((filled, length)) = waiter.into.as_ref().map(|into| (into.filled, into.length))
                && filled > told
            {
                told = filled;
                Self::wake_reader(&state, id);
                drop(state);
                let heard = progress.call((filled, length));
                state = lock(&self.state);
                if let Err(error) = heard {
                    self.leave(state, id);
                    let _ = self.send(FrameKind::Cancel, id, &[]);
                    return Err(error);
                }
                continue;
            }
            if let Some(outcome) = waiter.outcome.take() {
                self.leave(state, id);
                return outcome;
            }
            if let Some(error) = ended {
                self.leave(state, id);
                return Err(error);
            }
            if let Some(call) = waiter.incoming.pop_front() {
                waiter.begun += 1;
                waiter.busy = waiter.begun;
                Self::wake_reader(&state, id);
                drop(state);
                if id == ROOT && self.dozing.load(Ordering::Relaxed) {
                    self.awake.notify_one();
                }
                self.execute(call);
                state = lock(&self.state);
                if let Some(waiter) = state.waiters.get_mut(&id) {
                    waiter.busy = 0;
                }
                continue;
            }
            passes = passes.wrapping_add(1);
            let signals = deadline.is_some() || idle || passes.is_multiple_of(16);
            if signals && let Some(error) = given_up(deadline) {
                self.leave(state, id);
                // The code that runs the call can find out that its caller no longer waits.
                let _ = self.send(FrameKind::Cancel, id, &[]);
                return Err(error);
            }
            if reading {
                let woken = Arc::new(Condvar::new());
                waiter.woken = Some(woken.clone());
                let (again, slept) = woken.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
                (state, idle) = (again, slept.timed_out());
                if let Some(waiter) = state.waiters.get_mut(&id) {
                    waiter.woken = None;
                }
                continue;
            }
            state.reading = true;
            drop(state);
            let read = self.read(Some(&waits));
            state = lock(&self.state);
            state.reading = false;
            if let Some(error) = waits.given_up.take() {
                self.leave(state, id);
                let _ = self.send(FrameKind::Cancel, id, &[]);
                return Err(error);
            }
            match read {
                Ok(any) => idle = !any,
                Err(error) => {
                    drop(state);
                    self.end(error);
                    state = lock(&self.state);
                }
            }
        }
    }

    /// Ends the wait for the call `id`: removes its waiter, refuses the incoming calls that were queued for
    /// its thread, and wakes another thread to read.
    fn leave(self: &Arc<Self>, mut state: MutexGuard<'_, ConnectionState>, id: u64) {
        // The waiter is removed as a whole and dropped after unlocking: an unclaimed result may hold handles, whose release locks
        // the state.
        let waiter = state.waiters.remove(&id).unwrap_or_default();
        Self::wake_reader(&state, id);
        drop(state);
        // Calls that have arrived for this waiter will not run.
        for call in waiter.incoming {
            self.fail(
                call.asked.id,
                &error!("RuntimeError", "the call that this callback belongs to has ended"),
            );
        }
    }

    fn wake_reader(state: &ConnectionState, but: u64) {
        if state.reading {
            return;
        }
        // A thread that does not sleep checks for work before it does.
        let mut sleeping = state.waiters.iter().filter(|(id, waiter)| **id != but && waiter.woken.is_some());
        if let Some((_, next)) = sleeping.next() {
            next.wake();
        }
    }
}

fn text_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the peer closed the connection (reset)".into()
        }
        io::ErrorKind::TimedOut => "the remote machine no longer answers".into(),
        _ => error.to_string(),
    }
}

/// Returns an error if a waiting thread must stop: its deadline has passed, or a signal is pending.
#[cold]
fn given_up(deadline: Option<Instant>) -> Option<Error> {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Some(error!("TimeoutError", "no result within the time allowed"));
    }
    check_signals().err()
}
