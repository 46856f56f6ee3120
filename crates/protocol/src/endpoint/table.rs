//! Table of the calls in progress. All its methods return at once.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::task::Waker;
use core::time::Duration;

use anyfn::{Any, Bytes, Error, PackedFunc, Result, error};

use super::current::Running;
use super::time::Liveness;
use crate::frame::FrameKind;
use crate::sink::Sink;
use crate::tables::HashMap;

/// Id of the entry for incoming calls that belong to no outgoing call. A serving driver waits for
/// this entry.
pub const ROOT: u64 = 0;

/// Incoming call after decoding.
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) depth: u16,
    pub(super) target: Callee,
    pub(super) args: Vec<Any>,
}

pub(super) enum Callee {
    Function(PackedFunc),
    Service(u16),
}

/// Incoming call that was accepted and has not been run. [`Endpoint::execute`](super::Endpoint::execute) runs it.
pub struct Incoming {
    pub(super) request: Request,
    pub(super) state: Arc<Running>,
}

impl Incoming {
    /// Returns the id of the call.
    pub fn id(&self) -> u64 {
        self.request.id
    }
}

/// Incoming call in progress.
pub(super) struct RunningEntry {
    pub(super) state: Arc<Running>,
    /// Time at which a check of the time limits first found the call running. The start of a call does not
    /// read the clock, which would slow down short calls.
    pub(super) seen: Option<Duration>,
}

pub(super) struct Upload {
    pub(super) sink: Box<dyn Sink>,
    /// Handle of the tensor that the upload writes to; `None` for the upload of a file.
    pub(super) of: Option<u64>,
    pub(super) at: u64,
    pub(super) total: u64,
}

/// Memory that a transfer fills.
enum Memory {
    /// Borrowed by a waiting thread. While the thread's call has an entry, the thread borrows the memory mutably but does not
    /// access it. `WaiterEntry` removes the entry before the borrow ends.
    Borrowed(*mut u8),
    /// Bytes that have arrived so far, for a call for which no thread waits.
    Owned(Vec<u8>),
}

/// Destination of the bytes that the peer sends before the result of a call.
pub(super) struct Destination {
    memory: Memory,
    length: usize,
    filled: usize,
}

// SAFETY: every write through the pointer holds the lock of the table, so one thread at a time writes, and none after `WaiterEntry` has
// ended. Bytes may be written from any thread.
unsafe impl Send for Destination {}

impl Destination {
    pub(super) fn borrowed(into: &mut [u8]) -> Destination {
        Destination { memory: Memory::Borrowed(into.as_mut_ptr()), length: into.len(), filled: 0 }
    }

    pub(super) fn owned(length: usize) -> Destination {
        Destination { memory: Memory::Owned(Vec::new()), length, filled: 0 }
    }

    /// Appends bytes. Returns false, and writes nothing, if the offset `at` is not the number of
    /// bytes that have arrived so far, or if the bytes exceed the expected length.
    pub(super) fn append(&mut self, at: u64, bytes: &[u8]) -> bool {
        if at != self.filled as u64 || bytes.len() > self.length - self.filled {
            return false;
        }
        match &mut self.memory {
            Memory::Owned(memory) => memory.extend_from_slice(bytes),
            Memory::Borrowed(memory) => {
                // SAFETY: `filled` is at most `length`, and the memory has `length` bytes: `borrowed` has created the destination
                // from a slice.
                let to = unsafe { memory.add(self.filled) };
                // SAFETY: `length - filled` bytes are left at `to`, which is enough, as checked above. `WaiterEntry` holds the
                // only borrow of the memory while its entry is in the table, which is locked here. The bytes lie in the buffer of
                // frames.
                unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            }
        }
        self.filled += bytes.len();
        true
    }
}

/// Callback that receives the result of a call.
pub(super) type Done = Box<dyn FnOnce(Result<Any>) + Send>;

/// Callback of a call that has ended, with the result of the call.
pub(super) struct Completion {
    pub(super) done: Done,
    pub(super) result: Result<Any>,
}

/// Outgoing call in progress.
#[derive(Default)]
pub(super) struct Waiter {
    outcome: Option<Result<Any>>,
    pub(super) incoming: VecDeque<Incoming>,
    /// Destination of the bytes that the peer sends before the result, if any. Boxed, because few
    /// calls have such bytes and entries are moved.
    into: Option<Box<Destination>>,
    /// True if a thread waits for the call and runs the incoming calls that belong to it.
    runs_calls: bool,
    /// Sequence number, counted from 1, of the incoming call that the waiting thread is running; 0 if it is
    /// running none.
    busy: u64,
    /// Sequence number of the incoming call that the waiting thread started most recently.
    begun: u64,
    /// Wakes the waiting thread or task. Set only while that thread or task sleeps.
    woken: Option<Waker>,
    done: Option<Done>,
}

impl Waiter {
    /// Wakes the waiting thread if it sleeps. A waiting thread that reads from the transport does not need to be
    /// woken.
    fn wake(&self) {
        if let Some(woken) = &self.woken {
            woken.wake_by_ref();
        }
    }
}

/// Next step of a thread that waits for a call.
pub enum Step {
    /// Bytes of a transfer have arrived: number so far, and total.
    Progress(usize, usize),
    /// The call has ended. The thread calls [`Endpoint::leave`](super::Endpoint::leave) and returns the result.
    Done(Result<Any>),
    /// A callback has arrived. The thread runs it with
    /// [`Endpoint::execute`](super::Endpoint::execute) and then calls [`Table::has_run`].
    Run(Incoming),
    /// The thread reads from the transport, or sleeps while another thread reads.
    Wait,
}

/// Calls in progress in both directions, messages that wait to be sent, and the state of the session.
pub struct Table {
    /// True while a thread reads on behalf of all waiting threads. Drivers with several threads set
    /// and clear this flag.
    pub reading: bool,
    waiters: HashMap<u64, Waiter>,
    pub(super) running: HashMap<u64, RunningEntry>,
    /// State of a completed incoming call, which the next incoming call reuses to avoid an allocation.
    unused: Option<Arc<Running>>,
    pub(super) uploads: HashMap<u64, Upload>,
    /// Handles of objects of the peer that are to be released, each with the number of times that it was
    /// received.
    pub(super) releases: Vec<(u64, u64)>,
    /// Replies that a reading thread has queued, because it must not block on sending.
    pub(super) replies: VecDeque<(FrameKind, u64, Vec<u8>)>,
    pub(super) completed: VecDeque<Completion>,
    /// Error that ended the session; `None` while it is open.
    pub(super) ended: Option<Error>,
    next_id: u64,
    pub(super) liveness: Liveness,
}

/// Uploads and incoming calls that the end of a session leaves behind, to be dropped after the table is unlocked.
pub(super) type Left = (HashMap<u64, Upload>, VecDeque<Incoming>);

impl Table {
    pub(super) fn new() -> Table {
        Table {
            reading: false,
            waiters: HashMap::default(),
            running: HashMap::default(),
            unused: None,
            uploads: HashMap::default(),
            releases: Vec::new(),
            replies: VecDeque::new(),
            completed: VecDeque::new(),
            ended: None,
            next_id: 1,
            liveness: Liveness::default(),
        }
    }

    /// Adds the entry [`ROOT`], for a thread or event loop that runs the incoming calls which belong to no outgoing call.
    pub fn serve(&mut self) {
        self.waiters.insert(ROOT, Waiter { runs_calls: true, ..Waiter::default() });
    }

    /// Adds an entry for a new outgoing call and returns its id.
    pub(super) fn begin(&mut self, into: Option<Destination>, runs_calls: bool) -> Result<u64> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let id = self.next_id;
        self.next_id += 1;
        self.waiters.insert(id, Waiter { into: into.map(Box::new), runs_calls, ..Waiter::default() });
        Ok(id)
    }

    /// Records that a thread now waits for the call `id` and runs the incoming calls that belong to
    /// it.
    pub(super) fn has_thread(&mut self, id: u64) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.runs_calls = true;
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Waiter {
        self.waiters.remove(&id).unwrap_or_default()
    }

    /// Returns the error that ended the session, or `None` while it is open.
    pub fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Returns the next step of the thread that waits for the call `id`. `told` is the number of
    /// transferred bytes that the thread has reported as progress, or `None` if the thread does not
    /// report progress.
    #[inline]
    pub fn step(&mut self, id: u64, told: Option<usize>) -> Step {
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return Step::Done(Err(error!("InternalError", "no thread waits for call {id}")));
        };
        if let Some(told) = told
            && let Some(into) = &waiter.into
            && into.filled > told
        {
            return Step::Progress(into.filled, into.length);
        }
        if let Some(outcome) = waiter.outcome.take() {
            return Step::Done(outcome);
        }
        if let Some(error) = &self.ended {
            return Step::Done(Err(error.clone()));
        }
        let Some(call) = waiter.incoming.pop_front() else { return Step::Wait };
        waiter.begun += 1;
        waiter.busy = waiter.begun;
        Step::Run(call)
    }

    /// Records that the thread which waits for the call `id` has run an incoming call.
    #[inline]
    pub fn has_run(&mut self, id: u64) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.busy = 0;
        }
    }

    /// Records that the thread which waits for the call `id` sleeps until `woken` is woken or, if
    /// `woken` is `None`, that it no longer sleeps.
    pub fn sleeps(&mut self, id: u64, woken: Option<Waker>) {
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.woken = woken;
        }
    }

    /// Wakes a sleeping thread, so that this thread reads from the transport, unless another thread
    /// reads already. The thread that waits for the call `but` is not woken.
    #[inline]
    pub fn wake_reader(&self, but: u64) {
        if self.reading {
            return;
        }
        // A thread that does not sleep checks for work before it does.
        let mut sleeping = self
            .waiters
            .iter()
            .filter(|(id, waiter)| **id != but && waiter.runs_calls && waiter.woken.is_some());
        if let Some((_, next)) = sleeping.next() {
            next.wake();
        }
    }

    /// Returns the sequence number of the incoming call that the thread of the entry [`ROOT`] is running; 0 if it is running none.
    pub fn serving(&self) -> u64 {
        self.waiters.get(&ROOT).map_or(0, |root| root.busy)
    }

    /// Takes a queued call that the thread of the entry [`ROOT`] would otherwise run after its
    /// current call.
    pub fn next_behind(&mut self) -> Option<Incoming> {
        self.waiters.get_mut(&ROOT)?.incoming.pop_front()
    }

    /// Returns true if a thread waits for an outgoing call and runs nothing meanwhile.
    pub(super) fn waits(&self) -> bool {
        self.waiters.iter().any(|(id, waiter)| *id != ROOT && waiter.busy == 0)
    }

    /// Returns true if the outgoing call `id` is in progress and its result has not arrived.
    pub(super) fn expects(&self, id: u64) -> bool {
        id != ROOT && self.waiters.get(&id).is_some_and(|waiter| waiter.outcome.is_none())
    }

    /// Returns true if the result of the outgoing call `id` has arrived and has not been taken.
    pub(super) fn is_done(&self, id: u64) -> bool {
        self.waiters.get(&id).is_some_and(|waiter| waiter.outcome.is_some())
    }

    /// Returns the memory into which the outgoing call `id` transfers bytes, or `None` if the call
    /// transfers no bytes from the peer.
    pub(super) fn destination(&mut self, id: u64) -> Option<&mut Destination> {
        self.waiters.get_mut(&id)?.into.as_deref_mut()
    }

    /// Returns the number of bytes that a transfer has received, and the total.
    pub(super) fn transferred(&self, id: u64) -> (usize, usize) {
        let into = self.waiters.get(&id).and_then(|waiter| waiter.into.as_ref());
        into.map_or((0, 0), |into| (into.filled, into.length))
    }

    /// Records the result of the outgoing call `id`. Returns the part of the result that no caller
    /// takes. The table must be unlocked before the returned value is dropped, because dropping the
    /// value releases handles.
    pub(super) fn finish(&mut self, id: u64, mut value: Result<Any>) -> Option<Any> {
        let Some(waiter) = self.waiters.get_mut(&id).filter(|waiter| id != ROOT && waiter.outcome.is_none())
        else {
            return value.ok();
        };
        let mut unused = None;
        if let Some(into) = &mut waiter.into
            && value.is_ok()
        {
            if into.filled < into.length {
                unused = core::mem::replace(&mut value, Err(incomplete())).ok();
            } else if let Memory::Owned(bytes) = &mut into.memory {
                let bytes = core::mem::take(bytes);
                unused = core::mem::replace(&mut value, Any::new(Bytes::from(&bytes[..]))).ok();
            }
        }
        if let Some(done) = waiter.done.take() {
            self.waiters.remove(&id);
            self.completed.push_back(Completion { done, result: value });
        } else {
            waiter.outcome = Some(value);
            waiter.wake();
        }
        unused
    }

    /// Sets the callback that receives the result of the outgoing call `id`. Returns true if the
    /// result has already arrived, so that the callback can run.
    pub(super) fn on_done(&mut self, id: u64, done: Done) -> bool {
        let Some(waiter) = self.waiters.get_mut(&id) else { return false };
        let result = waiter.outcome.take().or_else(|| self.ended.clone().map(Err));
        match result {
            Some(result) => {
                self.waiters.remove(&id);
                self.completed.push_back(Completion { done, result });
                true
            }
            None => {
                waiter.done = Some(done);
                false
            }
        }
    }

    /// Adds an accepted call to the calls that are running. If the id of the call is in use
    /// already, returns the call as the error; the session cannot continue then.
    pub(super) fn accept(&mut self, request: Request) -> Result<Incoming, Incoming> {
        let state = self.unused.take().unwrap_or_default();
        let before = self.running.insert(request.id, RunningEntry { state: state.clone(), seen: None });
        let call = Incoming { request, state };
        if before.is_some() { Err(call) } else { Ok(call) }
    }

    /// Queues an incoming call for the thread that waits for the call `parent`, or else for the
    /// event loop or an idle serving thread. Returns the call, not queued, if none of them can take
    /// it. `has_threads` is false if an event loop runs the calls.
    pub(super) fn queue(&mut self, parent: u64, call: Incoming, has_threads: bool) -> Option<Incoming> {
        if parent != ROOT
            && let Some(waiter) = self.waiters.get_mut(&parent)
            && waiter.runs_calls
        {
            waiter.incoming.push_back(call);
            waiter.wake();
            return None;
        }
        match self.waiters.get_mut(&ROOT) {
            Some(root) if root.busy == 0 || !has_threads => {
                root.incoming.push_back(call);
                root.wake();
                None
            }
            _ => Some(call),
        }
    }

    /// Removes an incoming call that has ended. Returns false if the call was removed before, which
    /// means that it has been answered, or if the session has ended.
    pub(super) fn finish_incoming(&mut self, id: u64, state: Arc<Running>) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let Some(mut ended) = self.running.remove(&id) else { return false };
        if !Arc::ptr_eq(&ended.state, &state) {
            // The call has been answered, and the peer has used its id again.
            self.running.insert(id, ended);
            return false;
        }
        drop(state);
        if let Some(unused) = Arc::get_mut(&mut ended.state) {
            *unused = Running::default();
            self.unused = Some(ended.state);
        }
        self.liveness.has_worked = true;
        true
    }

    /// Ends the session. Returns the uploads and incoming calls that are left, or `None` if the
    /// session had already ended.
    pub(super) fn end(&mut self, why: Error) -> Option<Left> {
        if self.ended.is_some() {
            return None;
        }
        for running in self.running.values() {
            running.state.cancelled.store(true, Ordering::Relaxed);
        }
        let mut incoming = VecDeque::new();
        let completed = &mut self.completed;
        self.waiters.retain(|_, waiter| {
            waiter.wake();
            let Some(done) = waiter.done.take() else { return true };
            completed.push_back(Completion { done, result: Err(why.clone()) });
            incoming.append(&mut waiter.incoming);
            false
        });
        self.ended = Some(why);
        Some((core::mem::take(&mut self.uploads), incoming))
    }
}

#[cold]
fn incomplete() -> Error {
    error!("ConnectionError", "the peer sent fewer bytes than requested")
}
