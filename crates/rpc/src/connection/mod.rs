//! Calls in flight, in both directions.
//!
//! There is no thread that reads: whoever waits for a result reads, one at a time, and hands out what it reads to the others
//! that wait. So a call costs one write and one read and wakes no other thread. A call that comes in while a thread waits for
//! the result of the call that led to it runs on that thread; calls and callbacks nest on one thread on each side.

mod answering;
mod life;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyfn::{Any, AnyView, Error, PackedFunc, Result, bail, check_signals, error};

use rustc_hash::FxBuildHasher;

use crate::channel::{Opener, Sealer};
use crate::frame::{self, Frames, HEADER, Kind};
use crate::handles::{Handles, Named};
use crate::policy::Policy;
use crate::scope::Scope;
use crate::socket::{LOOK, Patience, Socket};
use crate::value::{Class, Reader, Writer};

/// Deepest nesting of calls and callbacks.
pub const CALLS_MAX: u16 = 64;

/// After so long without a byte, whoever waits asks whether the other side is there.
const ASK: Duration = Duration::from_secs(5);
/// After so long without an answer to that it gives up.
const ANSWER: Duration = Duration::from_secs(15);
/// A side that takes no bytes for so long is given up.
const GIVE_UP: Duration = Duration::from_secs(20);

/// The waiter that is no call: the thread that serves.
const ROOT: u64 = 0;

/// Releases that are sent without waiting for the next message.
const RELEASES: usize = 64;

/// What a call names.
pub(crate) enum Target {
    /// A function or object of the other side.
    Handle(u64),
    /// Something that each session offers; see `service`.
    Service(u16),
}

/// A call as it was read.
struct Asked {
    id: u64,
    depth: u16,
    target: Callee,
    args: Vec<Any>,
}

/// A call that has come in and will run.
struct Incoming {
    asked: Asked,
    state: Arc<Running>,
}

enum Callee {
    Function(PackedFunc),
    Service(u16),
}

/// A call in progress on this side.
#[derive(Default)]
pub(crate) struct Running {
    cancelled: AtomicBool,
    /// When somebody who looks at the time has seen it first: asking the clock for each call costs more than it tells.
    seen: OnceLock<Instant>,
}

/// The bytes of a call that has some beside its arguments and its result.
#[derive(Default)]
pub(crate) struct Transfer<'a> {
    /// They are sent behind the arguments.
    pub(crate) bytes: &'a [u8],
    /// They are received before the result: as many as there is room for.
    pub(crate) into: Option<&'a mut [u8]>,
    /// Called with the bytes that were sent or received so far, and those in all. Its error gives the transfer up.
    pub(crate) progress: Option<&'a PackedFunc>,
}

/// Where the bytes of a transfer go.
pub(crate) trait Sink: Send {
    /// The next bytes, behind those before.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// All bytes have come.
    fn finish(self: Box<Self>) -> Result<Any>;
}

struct Upload {
    sink: Box<dyn Sink>,
    /// The handle that it writes to, if it does.
    of: Option<u64>,
    at: u64,
    total: u64,
}

/// What a side offers besides functions whose handles it has given.
pub(crate) trait Service: Send + Sync {
    /// A call of `code`.
    fn call(&self, connection: &Arc<Connection>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any>;
    /// For a call whose arguments are followed by bytes: where they go, and how many there are. None for other codes.
    fn upload(&self, connection: &Connection, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>>;
}

/// Memory that is filled by a transfer: what the thread that waits for it has borrowed mutably, and does not touch while the entry of
/// its call is in the table of waiters. [`Entry`] takes that out before the borrow ends.
struct Destination {
    data: *mut u8,
    length: usize,
    filled: usize,
}

// SAFETY: whoever writes through the pointer holds the lock of the table, so one thread at a time does, and none after `Entry` has
// ended; bytes may be written from any thread.
unsafe impl Send for Destination {}

#[derive(Default)]
struct Waiter {
    outcome: Option<Result<Any>>,
    incoming: VecDeque<Incoming>,
    into: Option<Destination>,
    /// The thread runs a call that has come in: which one, counted from 1; 0 if it does not.
    busy: u64,
    /// The last one that it has begun.
    begun: u64,
    /// What wakes the thread, while it sleeps since another one reads.
    woken: Option<Arc<Condvar>>,
}

impl Waiter {
    /// Tells the thread that there is something for it. The one that reads finds it by itself: waking costs a system call.
    fn wake(&self) {
        if let Some(woken) = &self.woken {
            woken.notify_one();
        }
    }
}

/// The entry of a call in the table of waiters. If its thread unwinds, nothing else would take it out, and bytes that come later would
/// be written to memory that is another's by then. In any other case the end of waiting has done so ([`Connection::leave`]).
struct Entry<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
    /// What the entry has a pointer to.
    _into: Option<&'a mut [u8]>,
}

impl<'a> Entry<'a> {
    /// Makes it.
    ///
    /// # Errors
    /// Why the connection is over.
    fn new(connection: &'a Arc<Connection>, id: u64, mut into: Option<&'a mut [u8]>) -> Result<Entry<'a>> {
        let memory =
            into.as_mut().map(|into| Destination { data: into.as_mut_ptr(), length: into.len(), filled: 0 });
        let mut state = lock(&connection.state);
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        state.waiters.insert(id, Waiter { into: memory, ..Waiter::default() });
        drop(state);
        Ok(Entry { connection, id, _into: into })
    }

    /// Waiting has ended, by which the entry was taken out.
    fn taken_out(self) {
        std::mem::forget(self);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.connection.leave(lock(&self.connection.state), self.id);
    }
}

/// By the number of a call. There are few enough that numbers chosen to collide do no harm.
type ById<T> = HashMap<u64, T, FxBuildHasher>;

struct State {
    reading: bool,
    waiters: ById<Waiter>,
    running: ById<Arc<Running>>,
    /// One that has ended and that nobody else knows: for the next call.
    unused: Option<Arc<Running>>,
    uploads: ById<Upload>,
    /// Handles to be given back, with how often they were received.
    releases: Vec<(u64, u64)>,
    /// Messages that a reader has to send, which must not wait.
    replies: VecDeque<(Kind, u64, Vec<u8>)>,
    /// Why the connection is over.
    ended: Option<Error>,
    /// Threads beside the one that serves.
    workers: usize,
    /// When bytes were last seen to have come.
    heard: Instant,
    /// Since when it was asked whether the other side is there.
    asked: Option<Instant>,
    /// When a call of the other side was last seen to have ended.
    worked: Instant,
    /// Whether one has ended since: whoever looks at the time next sees it.
    has_worked: bool,
}

struct Out {
    sealer: Sealer,
    /// What goes in front of the next bytes.
    held: Vec<u8>,
    /// What is sealed.
    sealed: Vec<u8>,
}

struct Input {
    opener: Opener,
    frames: Frames,
    patience: Patience,
}

/// How the two sides have agreed to write values.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    /// Whether values may refer to earlier values of their message.
    pub(crate) shares: bool,
    /// Bytes of the longest message that this side sends.
    pub(crate) longest: usize,
}

/// One side of a connection.
pub struct Connection {
    socket: Socket,
    out: Mutex<Out>,
    input: Mutex<Input>,
    state: Mutex<State>,
    handles: Mutex<Handles>,
    /// Whether bytes have come since `State::heard`.
    has_heard: AtomicBool,
    /// Whether there may be replies or releases.
    has_more: AtomicBool,
    ids: AtomicU64,
    wire: Wire,
    policy: Policy,
    service: Option<Box<dyn Service>>,
    /// What the other side is called in messages.
    pub(crate) peer: String,
    /// Whether to tell the ticker that there is work.
    dozing: AtomicBool,
    awake: Condvar,
}

/// The thread that reads for all: it may have to stop waiting while it decodes what is not for it.
struct Reading {
    /// What it waits for.
    id: u64,
    deadline: Option<Instant>,
    /// Why it stops waiting.
    given_up: Cell<Option<Error>>,
}

/// A message that is decoded.
pub(crate) struct Decoding<'a> {
    /// None for the second thread of a session that serves, which nobody interrupts.
    reading: Option<&'a Reading>,
    /// The call of this side that it belongs to, as far as that is known.
    call: Cell<Option<u64>>,
    /// Whether it is the result of that call.
    is_result: bool,
}

/// A call that a thread runs for the other side.
struct Serving {
    /// Address of the connection.
    connection: usize,
    id: u64,
    depth: u16,
    state: Arc<Running>,
}

thread_local! {
    /// The calls that this thread runs, the innermost last.
    static CURRENT: RefCell<Vec<Serving>> = const { RefCell::new(Vec::new()) };
    /// The time limit of calls that this thread makes.
    static DEADLINE: Cell<Option<Duration>> = const { Cell::new(None) };
    /// Memory for a message that this thread writes.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory for a message; see [`give_back`].
fn spare() -> Vec<u8> {
    // A thread that ends may still call.
    SPARE.try_with(Cell::take).unwrap_or_default()
}

/// Memory that the next message of this thread may use.
fn give_back(mut message: Vec<u8>) {
    const KEPT_MAX: usize = 4096;
    if message.capacity() <= KEPT_MAX {
        message.clear();
        let _ = SPARE.try_with(|spare| spare.set(message));
    }
}

/// Runs `body` with a time limit for each remote call that this thread makes in it.
pub(crate) fn with_timeout<T>(limit: Option<Duration>, body: impl FnOnce() -> T) -> T {
    let before = DEADLINE.replace(limit);
    let result = body();
    DEADLINE.set(before);
    result
}

/// Whether the call that this thread runs for the other side was cancelled.
pub fn is_cancelled() -> bool {
    CURRENT.with_borrow(|calls| calls.last().is_some_and(|call| call.state.cancelled.load(Ordering::Relaxed)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that may panic runs under these locks but allocation.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Both directions of an established connection, and what has arrived already.
    pub(crate) fn new(
        socket: Socket,
        (sealer, opener, frames): (Sealer, Opener, Frames),
        wire: Wire,
        policy: Policy,
        service: Option<Box<dyn Service>>,
        peer: String,
    ) -> Arc<Connection> {
        answering::watch_cancelled();
        Arc::new(Connection {
            socket,
            out: Mutex::new(Out { sealer, held: Vec::new(), sealed: Vec::new() }),
            input: Mutex::new(Input { opener, frames, patience: Patience::default() }),
            state: Mutex::new(State {
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
            peer,
            dozing: AtomicBool::new(false),
            awake: Condvar::new(),
        })
    }

    pub(crate) fn is_server(&self) -> bool {
        self.service.is_some()
    }

    /// What a handle of this side names.
    pub(crate) fn named(&self, handle: u64) -> Result<Named> {
        lock(&self.handles).get(handle)
    }

    /// Why the connection is over, if it is.
    pub(crate) fn ended(&self) -> Option<Error> {
        lock(&self.state).ended.clone()
    }

    /// Calls the other side and waits for the result.
    pub(crate) fn call(self: &Arc<Self>, target: &Target, args: &[AnyView<'_>]) -> Result<Any> {
        self.transfer(target, args, Transfer::default())
    }

    /// A call with a transfer.
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
        let entry = Entry::new(self, id, into)?;
        let sent = match bytes {
            [] => self.send(Kind::Call, id, &payload),
            bytes => {
                self.send_before(Kind::Call, id, &payload).and_then(|()| self.send_data(id, bytes, progress))
            }
        };
        give_back(payload);
        if let Err(error) = sent {
            drop(entry);
            // What `progress` has raised leaves the connection as it is, and the other side waiting for the rest.
            let _ = self.send(Kind::Cancel, id, &[]);
            return Err(error);
        }
        let result = self.wait(id, deadline, progress);
        entry.taken_out();
        drop(scope);
        result
    }

    /// The call of the other side that this thread runs, and the depth of a call that it makes.
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

    /// Waits for the result of a call; for [`ROOT`], until the connection ends.
    fn wait(
        self: &Arc<Self>,
        id: u64,
        deadline: Option<Instant>,
        progress: Option<&PackedFunc>,
    ) -> Result<Any> {
        let mut told = 0;
        let waits = Reading { id, deadline, given_up: Cell::new(None) };
        // Whether nothing has come for a while; if much comes, signals are looked at now and then. Asking the clock takes longer.
        let (mut idle, mut passes) = (false, 0_u8);
        let mut state = lock(&self.state);
        loop {
            let (ended, reading) = (state.ended.clone(), state.reading);
            let Some(waiter) = state.waiters.get_mut(&id) else {
                bail!("InternalError", "nobody waits for call {id}");
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
                    let _ = self.send(Kind::Cancel, id, &[]);
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
                // Whoever runs it may find out that nobody waits.
                let _ = self.send(Kind::Cancel, id, &[]);
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
                let _ = self.send(Kind::Cancel, id, &[]);
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

    /// Ends waiting: somebody else must read now.
    fn leave(self: &Arc<Self>, mut state: MutexGuard<'_, State>, id: u64) {
        // Whole: a result that nobody takes may hold handles, for which the state is locked again.
        let waiter = state.waiters.remove(&id).unwrap_or_default();
        Self::wake_reader(&state, id);
        drop(state);
        // Calls that have come in for it will get no answer from here.
        for call in waiter.incoming {
            self.fail(call.asked.id, &error!("RuntimeError", "the call that this one belongs to is over"));
        }
    }

    fn wake_reader(state: &State, but: u64) {
        if state.reading {
            return;
        }
        // One that does not sleep looks by itself before it does.
        let mut sleeping = state.waiters.iter().filter(|(id, waiter)| **id != but && waiter.woken.is_some());
        if let Some((_, next)) = sleeping.next() {
            next.wake();
        }
    }
}

fn text_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "the other side is gone".into(),
        io::ErrorKind::TimedOut => "the other machine no longer answers".into(),
        _ => error.to_string(),
    }
}

/// Why whoever waits stops waiting.
#[cold]
fn given_up(deadline: Option<Instant>) -> Option<Error> {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Some(error!("TimeoutError", "no result within the time allowed"));
    }
    check_signals().err()
}
