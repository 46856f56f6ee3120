//! The part of an environment that all threads use: a queue of work for its thread.
//!
//! A thread that calls a JavaScript function posts a [`Job`], wakes the environment and waits. The thread of the environment
//! takes jobs from the queue in its event loop, or while it waits for a function that runs on another thread. When the
//! environment ends, all jobs end with an error.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyfn::abi::{DLTensor, TVMFFIAny, TVMFFIObject};
use anyfn::{Any, Error, Tensor};

use crate::env::{Deferred, Ref, Waker};
use crate::sys;

/// Time after which a thread gives up waiting for an environment whose thread has not returned from one native call.
const STUCK: Duration = Duration::from_secs(5);
/// Interval at which a waiting thread checks whether the environment is stuck.
const INTERVAL: Duration = Duration::from_millis(200);

thread_local! {
    /// Variable whose address identifies the thread.
    static MARK: Cell<u8> = const { Cell::new(0) };
}

fn this_thread() -> usize {
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

/// Parts of an environment that any thread may use.
pub(crate) struct Shared {
    thread: usize,
    env: *mut sys::Env,
    /// State of the environment, for use on its thread.
    state: AtomicPtr<()>,
    closed: AtomicBool,
    /// Number of times that the thread has entered or left a native call that does not serve jobs: odd during such a call.
    calls: AtomicU64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

// SAFETY: `env` and what the queue contains are used only on the thread of the environment; everything else is atomic or locked.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

struct Queue {
    waker: Waker,
    jobs: VecDeque<Arc<Job>>,
    /// Jobs whose JavaScript function has returned a promise that is not settled.
    promised: Vec<(u64, Arc<Job>)>,
    deletions: Vec<Ref>,
    finished: Vec<Finished>,
    last: u64,
}

/// Result of a call that ran on a thread of the pool, for the promise that waits for it.
pub(crate) struct Finished {
    pub(crate) deferred: Deferred,
    /// Number of the call's token.
    pub(crate) number: u64,
    pub(crate) big: bool,
    pub(crate) result: Result<Any, Error>,
}

/// A call of a JavaScript function from another thread.
pub(crate) struct Job {
    /// The function object, which the caller keeps alive.
    pub(crate) function: *mut TVMFFIObject,
    pub(crate) args: *const TVMFFIAny,
    pub(crate) count: i32,
    result: Mutex<Option<Result<Any, Error>>>,
    ended: Condvar,
    /// Borrowed tensors among the arguments, with the copies that a function has received whose promise is not settled.
    pub(crate) copies: Mutex<Copies>,
    use_of_args: Mutex<UseOfArgs>,
}

/// User of the arguments and the function object of a job.
#[derive(Clone, Copy, PartialEq)]
enum UseOfArgs {
    /// The thread of the environment, or none yet.
    InUse,
    /// None, while JavaScript code runs: it has copies of its own.
    Unused,
    /// None any more: the caller has given up.
    Abandoned,
}

/// Borrowed tensors, and the copies that JavaScript has received.
pub(crate) type Copies = Vec<(*const DLTensor, Tensor)>;

// SAFETY: the posting thread waits until the job has ended, so the arguments stay valid.
unsafe impl Send for Job {}
// SAFETY: as for `Send`; the result is locked.
unsafe impl Sync for Job {}

impl Shared {
    /// Makes the shared part of the environment `env`, whose thread is the calling thread.
    pub(crate) fn new(env: *mut sys::Env) -> Shared {
        Shared {
            thread: this_thread(),
            env,
            state: AtomicPtr::new(ptr::null_mut()),
            closed: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            queue: Mutex::new(Queue {
                waker: Waker::NONE,
                jobs: VecDeque::new(),
                promised: Vec::new(),
                deletions: Vec::new(),
                finished: Vec::new(),
                last: 0,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        self.lock().waker = waker;
    }

    pub(crate) fn set_state(&self, state: *mut ()) {
        self.state.store(state, Ordering::Release);
    }

    /// Returns environment and state if this is the environment's thread and the environment has not ended.
    pub(crate) fn here(&self) -> Option<(*mut sys::Env, *mut ())> {
        let usable = self.thread == this_thread() && !self.closed.load(Ordering::Acquire);
        usable.then(|| (self.env, self.state.load(Ordering::Acquire)))
    }

    /// Tells whether the thread of the environment is in a native call that does not serve jobs. Returns what was told before.
    #[inline]
    pub(crate) fn set_native(&self, is_native: bool) -> bool {
        // Only the thread of the environment writes.
        let calls = self.calls.load(Ordering::Relaxed);
        let was_native = calls % 2 == 1;
        if is_native != was_native {
            self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
        }
        was_native
    }

    /// Ends the environment: wakes all waiting threads with an error.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        self.closed.store(true, Ordering::Release);
        let mut jobs = queue.jobs.drain(..).collect::<Vec<_>>();
        jobs.extend(queue.promised.drain(..).map(|(_, job)| job));
        for job in &jobs {
            job.end(Err(ended()));
        }
        queue.deletions.clear();
        let finished = std::mem::take(&mut queue.finished);
        drop(queue);
        self.changed.notify_all();
        drop((finished, jobs));
    }

    /// Deletes a reference on the thread of the environment. References end with their environment.
    pub(crate) fn delete_later(&self, reference: Ref) {
        let mut queue = self.lock();
        if !self.closed.load(Ordering::Acquire) {
            queue.deletions.push(reference);
            if queue.deletions.len() == 1 {
                queue.waker.wake();
            }
        }
    }

    /// Passes the result of a call to the thread of the environment. A result that comes too late is dropped.
    pub(crate) fn finish(&self, finished: Finished) {
        let mut queue = self.lock();
        if !self.closed.load(Ordering::Acquire) {
            queue.finished.push(finished);
            queue.waker.wake();
        }
    }

    pub(crate) fn take_deletions(&self) -> Vec<Ref> {
        std::mem::take(&mut self.lock().deletions)
    }

    pub(crate) fn take_finished(&self) -> Vec<Finished> {
        std::mem::take(&mut self.lock().finished)
    }

    pub(crate) fn take_job(&self) -> Option<Arc<Job>> {
        self.lock().jobs.pop_front()
    }

    /// Calls a JavaScript function on the thread of the environment, and waits for its result. While this takes long, `goes_on` is called
    /// now and then; if it returns false, the call ends with an error as soon as nothing uses the arguments.
    pub(crate) fn call(
        &self,
        function: *mut TVMFFIObject,
        args: *const TVMFFIAny,
        count: i32,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Any, Error> {
        let job = Arc::new(Job {
            function,
            args,
            count,
            result: Mutex::new(None),
            ended: Condvar::new(),
            copies: Mutex::default(),
            use_of_args: Mutex::new(UseOfArgs::InUse),
        });
        let mut queue = self.lock();
        if self.closed.load(Ordering::Acquire) {
            return Err(ended());
        }
        queue.jobs.push_back(job.clone());
        queue.waker.wake();
        drop(queue);
        // The thread may wait for jobs.
        self.changed.notify_one();
        let (mut began, mut at) = (Instant::now(), self.calls.load(Ordering::Relaxed));
        loop {
            if let Some(result) = job.wait(INTERVAL) {
                return result;
            }
            if !goes_on() && (self.withdraw(&job) || job.change(UseOfArgs::Unused, UseOfArgs::Abandoned)) {
                return Err(terminated());
            }
            let now = self.calls.load(Ordering::Relaxed);
            if now != at {
                // The thread may also have entered the call after the job was posted.
                (began, at) = (Instant::now(), now);
            }
            let is_stuck = at % 2 == 1 && began.elapsed() > STUCK;
            if is_stuck && self.withdraw(&job) {
                return Err(Error::new(
                    "RuntimeError",
                    "cannot call a JavaScript function: its thread has been in one native call for 5 seconds, which may wait \
                     for this function. Make that call with callAsync, or register the native function as blocking",
                ));
            }
        }
    }

    /// Removes a job from the queue. Returns false if it has begun.
    fn withdraw(&self, job: &Arc<Job>) -> bool {
        let mut queue = self.lock();
        let place = queue.jobs.iter().position(|other| Arc::ptr_eq(other, job));
        place.is_some_and(|place| queue.jobs.remove(place).is_some())
    }

    /// Runs jobs with `run` until `is_done` returns true. [`Shared::notify`] must be called when it begins to do so.
    pub(crate) fn serve_until(&self, is_done: impl Fn() -> bool, run: impl Fn(Arc<Job>)) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                run(job);
                queue = self.lock();
                continue;
            }
            if is_done() {
                return;
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Wakes [`Shared::serve_until`].
    pub(crate) fn notify(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Keeps a job until its promise is settled. Returns the number of the job.
    pub(crate) fn promise(&self, job: Arc<Job>) -> u64 {
        let mut queue = self.lock();
        queue.last += 1;
        let number = queue.last;
        queue.promised.push((number, job));
        number
    }

    /// Returns the job whose promise was settled.
    pub(crate) fn take_promised(&self, number: u64) -> Option<Arc<Job>> {
        let mut queue = self.lock();
        let place = queue.promised.iter().position(|(other, _)| *other == number)?;
        Some(queue.promised.swap_remove(place).1)
    }
}

impl Job {
    fn change(&self, from: UseOfArgs, to: UseOfArgs) -> bool {
        let mut now = self.use_of_args.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_from = *now == from;
        if is_from {
            *now = to;
        }
        is_from
    }

    /// Ends the use of the arguments and of the function object, while JavaScript code runs.
    pub(crate) fn leave_args(&self) {
        self.change(UseOfArgs::InUse, UseOfArgs::Unused);
    }

    /// Begins to use the arguments and the function object again. Returns false if the caller has given up, so that they are gone.
    pub(crate) fn use_args(&self) -> bool {
        self.change(UseOfArgs::Unused, UseOfArgs::InUse)
    }

    /// Ends the job.
    pub(crate) fn end(&self, result: Result<Any, Error>) {
        *self.result.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
        self.ended.notify_one();
    }

    /// Waits for the end of the job, at most for `time`.
    fn wait(&self, time: Duration) -> Option<Result<Any, Error>> {
        let result = self.result.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let waited = self.ended.wait_timeout_while(result, time, |result| result.is_none());
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0.take()
    }
}

/// Returns the error of a call in an environment that is being terminated.
pub(crate) fn terminated() -> Error {
    Error::new("RuntimeError", "the JavaScript environment that waits for this function is being terminated")
}

fn ended() -> Error {
    Error::new("RuntimeError", "the JavaScript environment that defined this function has ended")
}
