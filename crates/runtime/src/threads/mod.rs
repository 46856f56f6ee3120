//! Worker threads for the parallel loops of compiled code.
//!
//! [`parallel`] runs tasks on the calling thread and on the worker threads of the process. No thread is started before
//! the first launch, no thread is bound to a processor while it runs tasks, and idle workers sleep. The number of
//! threads is set by `ANYFN_NUM_THREADS` or [`set_num_threads`]. By default it is the number of processors that the
//! process may use: its affinity mask, limited by the share of processor time of its control group. A host program with
//! its own threads runs the tasks itself after [`set_launcher`].
//!
//! In reading order: `job` (one launch), `pool` (the workers), `place` (where they wake), `host` (the threads of the
//! host), `size`, `fork`, `worker`, `waiting`, `sync`.

mod fork;
mod host;
mod job;
mod place;
mod pool;
mod size;
mod sync;
mod waiting;
#[cfg_attr(not(unix), path = "worker_disabled.rs")]
mod worker;

use core::ffi::{c_int, c_void};

use anyfn::abi::TVMParallelGroupEnv;
use anyfn::{PackedFunc, Result, bail, register};

use job::Job;
pub(crate) use job::Task;
pub(crate) use size::processors;

/// Returns the number of threads that run a parallel launch, including the calling thread.
pub fn num_threads() -> usize {
    size::get()
}

/// Sets the number of threads that run a parallel launch, including the calling thread; 0 restores the automatic
/// number.
///
/// Running launches keep their threads.
pub fn set_num_threads(threads: usize) {
    size::set(threads);
    pool::resized();
}

/// Sets the function `launcher(run, n)` that runs the tasks of parallel launches instead of the worker threads. `None`
/// restores the worker threads. Returns the previous launcher.
///
/// The launcher must call `run(i)` once for each `i` from 0 to `n - 1`, on any threads, and return after all these
/// calls have returned. `run` does not return the error of a task: the launch returns it after the launcher has
/// returned.
pub fn set_launcher(launcher: Option<PackedFunc>) -> Option<PackedFunc> {
    host::set(launcher)
}

/// Runs `tasks` tasks and waits for them. If `tasks` is 0, there is one task for each thread of a launch.
///
/// # Errors
/// Returns `ValueError` if `tasks` is negative, the error of the host's launcher, or the first error of a task after
/// all tasks have ended.
///
/// # Safety
/// It must be safe to call `task` with the context pointer `data` from any thread until this function returns.
pub(crate) unsafe fn launch(task: Task, data: *mut c_void, tasks: i32) -> Result<()> {
    let count = match usize::try_from(tasks) {
        Ok(0) => num_threads(),
        Ok(count) => count,
        Err(_) => bail!("ValueError", "TVMBackendParallelLaunch: expected a number of tasks, got {tasks}"),
    };
    // SAFETY: the caller guarantees the task, and the job has finished when it is dropped.
    let job = unsafe { Job::new(task, data, count) };
    match host::get() {
        Some(launcher) if count > 1 => host::run(&launcher, &job),
        _ => pool::run(&job),
    }
}

/// Runs `body(i, n)` for each `i` from 0 to `n - 1`, and waits for all calls. `n` is `tasks`, or [`num_threads`] if
/// `tasks` is 0. The calls run on this thread and the worker threads, or on the threads of the launcher if
/// [`set_launcher`] has set one.
///
/// # Errors
/// Returns the first error of a task after all tasks have ended; a panic counts as an error. Returns `ValueError` for
/// more than `i32::MAX` tasks.
pub fn parallel<F: Fn(usize, usize) -> Result<()> + Sync>(tasks: usize, body: F) -> Result<()> {
    unsafe extern "C" fn run<F: Fn(usize, usize) -> Result<()> + Sync>(
        index: c_int,
        group: *mut TVMParallelGroupEnv,
        body: *mut c_void,
    ) -> c_int {
        anyfn::__private::trampoline(|| {
            // SAFETY: a launch passes a valid group.
            let count = unsafe { (*group).num_task };
            // SAFETY: `body` is that of the call below, which waits for this task.
            let body = unsafe { &*body.cast_const().cast::<F>() };
            body(index as usize, count as usize)
        })
    }
    let Ok(tasks) = i32::try_from(tasks) else { bail!("ValueError", "expected at most {} tasks", i32::MAX) };
    // SAFETY: the task expects this `body`, which may be called from any thread and outlives the launch.
    unsafe { launch(run::<F>, (&raw const body).cast_mut().cast(), tasks) }
}

/// Blocks the calling task until all tasks of its launch have reached the barrier.
///
/// # Errors
/// Returns `RuntimeError` if another task has ended without reaching the barrier, `ValueError` if `group` belongs to no
/// launch.
///
/// # Safety
/// `group` must be the group that the task received.
pub(crate) unsafe fn barrier(group: &TVMParallelGroupEnv) -> Result<()> {
    if group.num_task == 1 {
        return Ok(());
    }
    // SAFETY: a launch stores its job there, which lives as long as its tasks run.
    let job = unsafe { group.sync_handle.cast::<Job>().as_ref() };
    match job {
        Some(job) => job.barrier(),
        None => bail!("ValueError", "TVMBackendParallelBarrier: the group does not belong to a launch"),
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
