//! Parallel launches on the threads of the host program, instead of the worker threads.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use anyfn::{Blocking, PackedFunc, Result, TypedPackedFunc, bail};

use super::job::{Job, Shared};
use super::sync::{Condvar, Mutex, Ordering, lock};
use super::waiting::waiting;

static LAUNCHER: RwLock<Option<PackedFunc>> = RwLock::new(None);
/// True if the host program has set a launcher, a function that runs the tasks of launches. Launches read
/// this flag first, so that they take no lock if no launcher is set.
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Sets the launcher, the function that runs the tasks of launches; `None` removes it. Returns the
/// previous launcher.
pub(super) fn set(launcher: Option<PackedFunc>) -> Option<PackedFunc> {
    let mut place = LAUNCHER.write().unwrap_or_else(PoisonError::into_inner);
    IS_SET.store(launcher.is_some(), Ordering::Release);
    core::mem::replace(&mut *place, launcher)
}

/// Returns the launcher, the function that runs the tasks of launches, if the host program has set
/// one.
pub(super) fn get() -> Option<PackedFunc> {
    if !IS_SET.load(Ordering::Acquire) {
        return None;
    }
    LAUNCHER.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Object through which the launcher of the host program runs the tasks of a launch. The launcher
/// may keep the object after the launch has ended; the object then refuses to run tasks.
struct Ticket {
    job: Shared,
    state: Mutex<TicketState>,
    left: Condvar,
}

struct TicketState {
    is_open: bool,
    running: usize,
}

// SAFETY: the job is only touched while the ticket is open, and it outlives that time.
unsafe impl Sync for Ticket {}

impl Ticket {
    /// Runs one task that has not begun, if one is left. Returns an error if the launch has ended.
    fn run(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if !state.is_open {
            bail!("RuntimeError", "the parallel launch that this task belongs to has ended");
        }
        state.running += 1;
        drop(state);
        // SAFETY: the launch waits for the running tasks.
        unsafe { &*self.job.0 }.run_next();
        let mut state = lock(&self.state);
        state.running -= 1;
        self.left.notify_all();
        Ok(())
    }

    /// Refuses to run further tasks, and waits for the running tasks.
    fn close(&self) {
        let mut state = lock(&self.state);
        state.is_open = false;
        while state.running > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs a job by calling `launcher(run, n)`. The launcher calls `run(i)` for each `i` from 0 to
/// `n - 1`, on any threads. Waits for the tasks, and returns an error if the launcher has not run
/// all of them.
pub(super) fn run(launcher: &PackedFunc, job: &Job) -> Result<()> {
    let state = Mutex::new(TicketState { is_open: true, running: 0 });
    let ticket = Arc::new(Ticket { job: Shared(job), state, left: Condvar::new() });
    let shared = ticket.clone();
    // Each call runs one task regardless of the index, so no task can run twice.
    let run = TypedPackedFunc::from_fn(Blocking(move |_index: i64| shared.run()));
    let launched = launcher.call((PackedFunc::from(run), job.count() as i64));
    waiting(|| ticket.close());
    let outcome = job.finish();
    launched?;
    outcome?;
    if job.begun() < job.count() {
        bail!(
            "RuntimeError",
            "the parallel launcher of the host has run {} of {} tasks; it must call its first argument once for each",
            job.begun(),
            job.count()
        );
    }
    Ok(())
}
