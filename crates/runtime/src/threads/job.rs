//! One parallel launch: its tasks, which any thread may begin, and the wait until all tasks have ended.
//!
//! A job is stored on the stack of the launching thread. Other threads that access it are its *helpers*. A helper is
//! added to a count before it accesses the job, and removed from the count after its last access. The launch ends when
//! the count is 0. Threads claim one task at a time, so a thread that arrives late, or never, causes no delay.

use core::ffi::{c_int, c_void};
use std::sync::PoisonError;

use anyfn::abi::TVMParallelGroupEnv;
use anyfn::{Error, Result, bail};

use super::sync::{
    AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, Thread, be_patient, current, lock, park, spin_until,
};
use super::waiting::waiting;
use super::{fork, worker};

/// C function that runs one task. Arguments: index of the task, group of tasks, context pointer. It returns 0 if the
/// task succeeded.
pub(crate) type Task = unsafe extern "C" fn(c_int, *mut TVMParallelGroupEnv, *mut c_void) -> c_int;

/// A parallel launch and the state of its tasks.
pub(super) struct Job {
    task: Task,
    data: *mut c_void,
    count: usize,
    /// Index of the next task to begin. It may exceed the number of tasks.
    next: AtomicUsize,
    /// Number of helper threads: threads other than the launching thread that may access the job.
    helpers: AtomicUsize,
    launcher: Thread,
    /// Value of [`fork::process`] in the process that launched the job.
    process: u32,
    /// The first error that a task returned.
    failure: Mutex<Option<Error>>,
    /// Number of tasks that have ended.
    ended: AtomicUsize,
    /// True if a task has waited at a barrier.
    has_met: AtomicBool,
    meeting: Mutex<Meeting>,
    met: Condvar,
}

/// State of the barrier at which the tasks of a job wait for each other.
#[derive(Default)]
struct Meeting {
    arrived: usize,
    round: u32,
    /// Reason why the barrier can no longer be passed, or `None` if it can.
    broken: Option<&'static str>,
}

// SAFETY: how tasks use `data` is the responsibility of the compiled code, which requested threads; the rest is atomic
// or locked.
unsafe impl Sync for Job {}

impl Job {
    /// Creates a job of `count` tasks.
    ///
    /// # Safety
    /// It must be safe to call `task` with the context pointer `data` from any thread until the job has finished.
    pub(super) unsafe fn new(task: Task, data: *mut c_void, count: usize) -> Job {
        Job {
            task,
            data,
            count,
            next: AtomicUsize::new(0),
            helpers: AtomicUsize::new(0),
            launcher: current(),
            process: fork::process(),
            failure: Mutex::new(None),
            ended: AtomicUsize::new(0),
            has_met: AtomicBool::new(false),
            meeting: Mutex::new(Meeting::default()),
            met: Condvar::new(),
        }
    }

    /// Returns the number of tasks.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of tasks that have begun.
    pub(super) fn begun(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.count)
    }

    /// Claims a task that has not begun, and returns its index.
    fn claim(&self) -> Option<usize> {
        // Read first, so that threads that call repeatedly do not make the counter overflow.
        if self.next.load(Ordering::Relaxed) >= self.count {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.count).then_some(index)
    }

    /// Runs tasks on this thread until all tasks have begun.
    pub(super) fn run_tasks(&self) {
        while self.run_next() {}
    }

    /// Claims one task that has not begun, and runs it on this thread. Returns false if all tasks have begun.
    pub(super) fn run_next(&self) -> bool {
        let Some(index) = self.claim() else { return false };
        self.run(index);
        true
    }

    fn run(&self, index: usize) {
        let mut group = TVMParallelGroupEnv {
            sync_handle: core::ptr::from_ref(self).cast_mut().cast(),
            num_task: self.count as i32,
        };
        // SAFETY: the creator of the job guarantees the task; the group lives for the call.
        let code = unsafe { (self.task)(index as c_int, &raw mut group, self.data) };
        if code != 0 {
            self.fail(Error::take_raised());
        }
        self.end_task();
    }

    fn fail(&self, error: Error) {
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            *failure = Some(error);
        }
    }

    fn end_task(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        // A waiting task sets `has_met` before it reads the number of ended tasks.
        if self.has_met.load(Ordering::SeqCst) {
            let _meeting = lock(&self.meeting);
            self.met.notify_all();
        }
    }

    /// Increments the number of helper threads. The job must still be alive.
    pub(super) fn enter(&self) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
    }

    /// Decrements the number of helper threads, and wakes the launching thread when none is left.
    ///
    /// # Safety
    /// The helper must have been counted, and must not access the job afterwards.
    pub(super) unsafe fn leave(this: *const Job) {
        // SAFETY: the job lives as long as the helper is counted.
        let launcher = unsafe { (*this).launcher.clone() };
        // SAFETY: the launcher frees the job only after this count was returned; it is not touched afterwards.
        let before = unsafe { (*this).helpers.fetch_sub(1, Ordering::Release) };
        if before == 1 {
            launcher.unpark();
        }
    }

    /// Waits until no helper thread is left, and returns the first error of a task, if any. No helper may be
    /// added after this call.
    pub(super) fn finish(&self) -> Result<()> {
        if self.process != fork::process() && self.helpers.load(Ordering::Acquire) > 0 {
            // The locks of lost threads may never be released either.
            bail!(
                "RuntimeError",
                "the process was forked during a parallel launch: the tasks that other threads ran are lost in the child"
            );
        }
        if self.helpers.load(Ordering::Acquire) > 0 {
            let is_done = || self.helpers.load(Ordering::Acquire) == 0;
            if !spin_until(is_done) {
                waiting(|| {
                    while !is_done() {
                        park();
                    }
                });
            }
        }
        match lock(&self.failure).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Blocks the calling task until all tasks of the job have reached the barrier.
    pub(super) fn barrier(&self) -> Result<()> {
        if self.count == 1 {
            return Ok(());
        }
        self.has_met.store(true, Ordering::SeqCst);
        self.begin_all();
        waiting(|| self.meet())
    }

    fn meet(&self) -> Result<()> {
        let mut meeting = lock(&self.meeting);
        meeting.arrived += 1;
        if meeting.arrived == self.count && meeting.broken.is_none() {
            meeting.arrived = 0;
            meeting.round = meeting.round.wrapping_add(1);
            self.met.notify_all();
            return Ok(());
        }
        let round = meeting.round;
        while meeting.round == round {
            if meeting.broken.is_none() && meeting.arrived + self.ended.load(Ordering::SeqCst) >= self.count {
                meeting.broken = Some("another task of the launch has ended without reaching the barrier");
            }
            if let Some(reason) = meeting.broken {
                self.met.notify_all();
                bail!("RuntimeError", "TVMBackendParallelBarrier: {reason}");
            }
            meeting = self.met.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Begins all tasks that have not begun, each on a new thread. Tasks that wait for each other need one thread each.
    fn begin_all(&self) {
        be_patient(|| self.begun() >= self.count);
        while let Some(index) = self.claim() {
            self.enter();
            let job = Shared(self);
            let begun = worker::spawn(c"anyfn-task", move || {
                let Shared(job) = { job };
                // SAFETY: counted as a helper since before the thread was created.
                unsafe { &*job }.run(index);
                // SAFETY: counted by `enter` before the thread was created; it does not touch the job afterwards.
                unsafe { Job::leave(job) };
            });
            if let Err(reason) = begun {
                self.helpers.fetch_sub(1, Ordering::Relaxed);
                self.fail(anyfn::error!(
                    "RuntimeError",
                    "cannot start a thread for task {index} of {}, for which the other tasks wait: {reason}",
                    self.count
                ));
                lock(&self.meeting).broken = Some("cannot start a thread for another task of the launch");
                self.end_task();
            }
        }
    }
}

/// Pointer to a job, for use by another thread.
#[derive(Clone, Copy)]
pub(super) struct Shared(pub(super) *const Job);

// SAFETY: a job may be used from any thread; counting helpers keeps it alive.
unsafe impl Send for Shared {}
