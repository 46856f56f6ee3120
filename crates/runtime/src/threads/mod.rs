//! Worker threads for the parallel loops of compiled code.
//!
//! [`parallel`] runs tasks on the calling thread and on the workers of the process. Nothing is started before the first
//! launch, no thread is bound to a processor while it runs tasks, and workers sleep when there is nothing to do. There are as
//! many threads as `ANYFN_NUM_THREADS` or [`set_num_threads`] say, else as the process may use: its affinity mask and the
//! share of processor time of its control group. A host with threads of its own takes over by [`set_launcher`].
//!
//! In reading order: `job` (one launch), `pool` (the workers), `place` (where they wake), `host` (the threads of the host),
//! `size`, `cgroup`, `fork`, `worker`, `waiting`, `sync`.

pub(crate) mod cgroup;
mod fork;
mod host;
mod job;
mod place;
mod pool;
mod size;
mod sync;
mod waiting;
mod worker;

use core::ffi::{c_int, c_void};

use anyfn::abi::TVMParallelGroupEnv;
use anyfn::{PackedFunc, Result, bail, register};

use job::Job;
pub(crate) use job::Task;

/// How many threads a launch has, this one included.
pub fn num_threads() -> usize {
    size::get()
}

/// Sets how many threads a launch has, this one included; 0 finds the number by itself again.
///
/// Launches that run keep theirs.
pub fn set_num_threads(threads: usize) {
    size::set(threads);
    pool::resized();
}

/// Has tasks run by `launcher(run, n)` instead of the pool; `None` brings the pool back. Gives the old launcher.
///
/// It must call `run(i)` once for each `i` below `n`, from whichever threads, and return when all these calls have
/// returned. An error of a task is not that of `run`: the launch gives it when the launcher has returned.
pub fn set_launcher(launcher: Option<PackedFunc>) -> Option<PackedFunc> {
    host::set(launcher)
}

/// Runs tasks and waits for them; 0 tasks means as many as there are threads.
///
/// # Errors
/// `ValueError` for a negative number; otherwise the first error of a task, after all have ended.
///
/// # Safety
/// `task` must be fit to be called with `data` from any thread meanwhile.
pub(crate) unsafe fn launch(task: Task, data: *mut c_void, tasks: i32) -> Result<()> {
    let count = match usize::try_from(tasks) {
        Ok(0) => num_threads(),
        Ok(count) => count,
        Err(_) => bail!("ValueError", "TVMBackendParallelLaunch: expected a number of tasks, got {tasks}"),
    };
    // SAFETY: the caller guarantees the task; the job has finished when it is dropped.
    let job = unsafe { Job::new(task, data, count) };
    match host::get() {
        Some(launcher) if count > 1 => host::run(&launcher, &job),
        _ => pool::run(&job),
    }
}

/// Runs `body(i, n)` for each `i` below the number of tasks, on this thread and the workers, and waits for all; 0 tasks means
/// as many as there are threads.
///
/// # Errors
/// The first error of a task, or its panic as one, after all have ended.
pub fn parallel<F: Fn(usize, usize) -> Result<()> + Sync>(tasks: usize, body: F) -> Result<()> {
    unsafe extern "C" fn run<F: Fn(usize, usize) -> Result<()> + Sync>(
        index: c_int,
        group: *mut TVMParallelGroupEnv,
        body: *mut c_void,
    ) -> c_int {
        anyfn::__private::trampoline(|| {
            // SAFETY: a launch passes a group.
            let count = unsafe { (*group).num_task };
            // SAFETY: the body of the call below, which waits for this task.
            let body = unsafe { &*body.cast_const().cast::<F>() };
            body(index as usize, count as usize)
        })
    }
    let Ok(tasks) = i32::try_from(tasks) else { bail!("ValueError", "expected at most {} tasks", i32::MAX) };
    // SAFETY: the task is for this body, which may be called from any thread and outlives the launch.
    unsafe { launch(run::<F>, (&raw const body).cast_mut().cast(), tasks) }
}

/// Waits in a task for the others of its launch.
///
/// # Errors
/// `RuntimeError` if one of them has ended without coming here.
///
/// # Safety
/// `group` must be what the task was given.
pub(crate) unsafe fn barrier(group: &TVMParallelGroupEnv) -> Result<()> {
    if group.num_task == 1 {
        return Ok(());
    }
    // SAFETY: a launch puts its job there, which lives as long as its tasks run.
    let job = unsafe { group.sync_handle.cast::<Job>().as_ref() };
    match job {
        Some(job) => job.barrier(),
        None => bail!("ValueError", "TVMBackendParallelBarrier: the group is of no launch"),
    }
}

#[register("anyfn.num_threads")]
fn num_threads_global() -> i64 {
    num_threads() as i64
}

#[register("anyfn.num_workers")]
fn num_workers_global() -> i64 {
    pool::workers() as i64
}

#[register("anyfn.set_num_threads")]
fn set_num_threads_global(threads: i64) -> Result<()> {
    match usize::try_from(threads) {
        Ok(n) if n <= size::THREADS_MAX => set_num_threads(n),
        _ => bail!("ValueError", "expected a number of threads from 0 to {}, got {threads}", size::THREADS_MAX),
    }
    Ok(())
}

#[register("anyfn.set_parallel_launcher")]
fn set_launcher_global(launcher: Option<PackedFunc>) -> Option<PackedFunc> {
    set_launcher(launcher)
}

#[cfg(all(test, not(loom)))]
mod tests;
