//! The worker threads of the process.
//!
//! Workers are created at the first launch that can use them and are named `anyfn-worker`. After a job, a worker looks
//! for the next one for a few microseconds and then sleeps. All launches share the workers. A launch never waits for a
//! worker to begin a task, because the launching thread runs all tasks that no other thread has begun.

use std::sync::atomic::AtomicPtr;
use std::sync::{Once, PoisonError};

use anyfn::Result;

use super::job::{Job, Shared};
use super::place::{self, Sleeper};
use super::sync::{AtomicUsize, Condvar, Mutex, Ordering, lock, spin_until};
use super::{fork, size, worker};

/// The pool of this process, created at the first launch that can use worker threads. The pool is
/// never freed, because worker threads keep waiting on its condition variable.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(core::ptr::null_mut());

struct Pool {
    process: u32,
    state: Mutex<PoolState>,
    work: Condvar,
    /// Number of jobs that have been launched and have not ended. It may be read without the lock.
    open: AtomicUsize,
}

#[derive(Default)]
struct PoolState {
    /// Launches that have not ended, oldest first.
    jobs: Vec<Shared>,
    workers: usize,
    /// Workers that sleep until they are woken. The worker that has slept longest is first.
    asleep: Vec<Sleeper>,
    /// Number of workers that are awake and looking for a job.
    looking: usize,
}

/// Abandons the parent's pool in the child of a fork. The child then creates its own worker threads.
#[cfg(unix)]
extern "C" fn forget() {
    POOL.store(core::ptr::null_mut(), Ordering::Relaxed);
}

fn pool() -> &'static Pool {
    static ONCE: Once = Once::new();
    fork::watch();
    ONCE.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only stores to an atomic, and this code stays mapped (`worker::keep_mapped`).
        unsafe {
            libc::pthread_atfork(None, None, Some(forget))
        };
    });
    let mut pool = POOL.load(Ordering::Acquire);
    if pool.is_null() {
        let new = Box::into_raw(Box::new(Pool::new()));
        match POOL.compare_exchange(pool, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => pool = new,
            Err(first) => {
                // SAFETY: allocated above and not shared.
                drop(unsafe { Box::from_raw(new) });
                pool = first;
            }
        }
    }
    // SAFETY: not NULL, and never freed.
    unsafe { &*pool }
}

/// Returns the number of worker threads.
pub(super) fn workers() -> usize {
    let pool = POOL.load(Ordering::Acquire);
    // SAFETY: NULL or a pool, which is never freed.
    unsafe { pool.as_ref() }.map_or(0, |pool| lock(&pool.state).workers)
}

/// Returns the number of worker threads that sleep until they are woken.
#[cfg(test)]
pub(super) fn asleep() -> usize {
    let pool = POOL.load(Ordering::Acquire);
    // SAFETY: NULL or a pool, which is never freed.
    unsafe { pool.as_ref() }.map_or(0, |pool| lock(&pool.state).asleep.len())
}

/// Wakes the sleeping workers, so that workers beyond the configured number of threads end.
pub(super) fn resized() {
    let pool = POOL.load(Ordering::Acquire);
    // SAFETY: NULL or a pool, which is never freed.
    if let Some(pool) = unsafe { pool.as_ref() } {
        pool.resized();
    }
}

/// Runs a job on this thread and the workers, and returns the outcome of the job.
pub(super) fn run(job: &Job) -> Result<()> {
    let wanted = size::get().min(job.count()) - 1;
    if wanted == 0 {
        job.run_tasks();
        return job.finish();
    }
    pool().run(job, wanted)
}

impl Pool {
    fn new() -> Pool {
        Pool {
            process: fork::process(),
            state: Mutex::new(PoolState::default()),
            work: Condvar::new(),
            open: AtomicUsize::new(0),
        }
    }

    /// Wakes the sleeping workers, so that workers beyond the configured number of threads end.
    fn resized(&self) {
        let _state = lock(&self.state);
        self.work.notify_all();
    }

    /// Runs a job on this thread and up to `wanted` workers.
    fn run(&'static self, job: &Job, wanted: usize) -> Result<()> {
        self.open(job, wanted);
        job.run_tasks();
        if self.process == fork::process() {
            self.close(job);
        }
        job.finish()
    }

    /// Publishes the job to the workers. Creates workers until `wanted` exist, and wakes sleeping workers so
    /// that `wanted` of them look for a job.
    fn open(&'static self, job: &Job, wanted: usize) {
        let mut state = lock(&self.state);
        while state.workers < wanted {
            // The tasks run without this worker.
            if worker::spawn(c"anyfn-worker", || self.work()).is_err() {
                break;
            }
            state.workers += 1;
            // The new worker looks for the job without being woken.
            state.looking += 1;
        }
        state.jobs.push(Shared(job));
        self.open.store(state.jobs.len(), Ordering::Relaxed);
        let wake = wanted.saturating_sub(state.looking).min(state.asleep.len());
        if wake > 0 {
            let here = place::here();
            // As a rule these are the workers that are woken.
            state.asleep[..wake].iter_mut().for_each(|sleeper| sleeper.keep_off(here));
        }
        drop(state);
        for _ in 0..wake {
            self.work.notify_one();
        }
    }

    /// Withdraws the job, so that no further worker runs its tasks.
    fn close(&self, job: &Job) {
        let mut state = lock(&self.state);
        state.jobs.retain(|Shared(known)| !core::ptr::eq(*known, job));
        self.open.store(state.jobs.len(), Ordering::Relaxed);
    }

    /// Main loop of a worker thread, which runs the tasks of jobs and sleeps while none are left.
    fn work(&'static self) {
        let me = place::this_thread();
        // The creating thread has counted this worker as looking.
        let mut state = lock(&self.state);
        state.looking -= 1;
        let mut has_looked = true;
        loop {
            if let Some(Shared(job)) = PoolState::job(&state) {
                drop(state);
                // SAFETY: counted as a helper under the lock, while the job was open.
                unsafe { &*job }.run_tasks();
                // SAFETY: counted as a helper in `PoolState::job`; this returns that count, and the job is not touched
                // afterwards.
                unsafe { Job::leave(job) };
                if self.process != fork::process() {
                    // A task has forked on this thread, and the child has another pool.
                    return;
                }
                has_looked = false;
                state = lock(&self.state);
            } else if state.workers >= size::get() {
                state.workers -= 1;
                return;
            } else if !has_looked {
                state.looking += 1;
                drop(state);
                spin_until(|| self.open.load(Ordering::Relaxed) > 0);
                has_looked = true;
                state = lock(&self.state);
                state.looking -= 1;
            } else {
                state.asleep.push(Sleeper::new(me));
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                if let Some(at) = state.asleep.iter().position(|sleeper| sleeper.is(me)) {
                    state.asleep.remove(at).run_anywhere();
                }
            }
        }
    }
}

impl PoolState {
    /// Returns a job with tasks that have not begun, and counts the caller as a helper thread of that job.
    /// Returns `None` if no such job exists.
    fn job(&self) -> Option<Shared> {
        // SAFETY: jobs live as long as they are listed, and the caller holds the lock of the list.
        let job = |Shared(job): &Shared| unsafe { &**job };
        let found = self.jobs.iter().find(|known| job(known).begun() < job(known).count())?;
        job(found).enter();
        Some(*found)
    }
}

/// Tests that explore all interleavings of threads; `./x test` runs them with `--cfg loom`.
#[cfg(all(test, loom))]
mod orders {
    use core::ffi::{c_int, c_void};

    use anyfn::abi::TVMParallelGroupEnv;

    use super::*;

    unsafe extern "C" fn count(index: c_int, _group: *mut TVMParallelGroupEnv, runs: *mut c_void) -> c_int {
        // SAFETY: the counters of the launch below, one for each task.
        let runs = unsafe { &*runs.cast::<[AtomicUsize; 2]>() };
        runs[index as usize].fetch_add(1, Ordering::Relaxed);
        0
    }

    unsafe extern "C" fn meet(index: c_int, group: *mut TVMParallelGroupEnv, runs: *mut c_void) -> c_int {
        // SAFETY: the arguments are those that this task received.
        unsafe { count(index, group, runs) };
        // SAFETY: the group is the one that the task received.
        let met = unsafe { super::super::barrier(&*group) };
        // SAFETY: the counters of the launch below, which outlive its tasks.
        let runs = unsafe { &*runs.cast::<[AtomicUsize; 2]>() };
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        met.is_err().into()
    }

    fn launch(pool: &'static Pool, task: super::super::Task) {
        let runs = [AtomicUsize::new(0), AtomicUsize::new(0)];
        // SAFETY: the task expects these counters, which outlive the job.
        let job = unsafe { Job::new(task, (&raw const runs).cast_mut().cast(), 2) };
        pool.run(&job, 1).unwrap();
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    }

    fn check(body: impl Fn(&'static Pool) + Sync + Send + 'static) {
        // The number of threads is shared by the process, so concurrent tests would change it between iterations of a
        // model.
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut model = loom::model::Builder::new();
        // More preemptions take hours and find nothing that fewer do not find.
        model.preemption_bound = Some(2);
        model.check(move || {
            size::set(2);
            let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
            body(pool);
            // All workers must end, or loom reports a deadlock.
            size::set(1);
            pool.resized();
        });
    }

    #[test]
    fn tasks_run_once_and_nobody_touches_a_job_that_has_ended() {
        check(|pool| launch(pool, count));
    }

    #[test]
    fn a_worker_comes_again() {
        check(|pool| {
            launch(pool, count);
            launch(pool, count);
        });
    }

    #[test]
    fn two_threads_launch() {
        check(|pool| {
            let other = loom::thread::spawn(move || launch(pool, count));
            launch(pool, count);
            other.join().unwrap();
        });
    }

    #[test]
    fn tasks_wait_for_each_other() {
        check(|pool| launch(pool, meet));
    }
}
