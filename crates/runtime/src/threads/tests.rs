use core::ffi::{c_int, c_void};
use std::collections::HashSet;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyfn::abi::{TVMBackendParallelBarrier, TVMBackendParallelLaunch, TVMParallelGroupEnv};
use anyfn::{Any, Args, Error, PackedFunc, TypedPackedFunc, bail};

use super::*;

/// Acquires the lock that serialises the tests, which share the number of threads and the launcher.
/// Sets the number of threads to `threads`.
fn turn(threads: usize) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_num_threads(threads);
    turn
}

/// Waits until a condition is true. Panics after 60 seconds, which is enough even on a busy
/// machine.
fn wait_until(is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60);
        thread::yield_now();
    }
}

#[test]
fn each_task_runs_once_and_is_waited_for() {
    let _turn = turn(4);
    for tasks in [1, 2, 3, 4, 5, 100] {
        for _ in 0..200 {
            let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            parallel(tasks, |index, count| {
                assert_eq!(count, tasks);
                runs[index].fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        }
    }
    assert!(pool::workers() <= 3);
}

#[cfg(target_os = "linux")]
#[test]
fn tasks_may_run_on_all_processors() {
    let _turn = turn(3);
    let here = place::mask().unwrap();
    for _ in 0..50 {
        // The test depends on how the workers wake, so all must sleep first.
        wait_until(|| pool::asleep() == pool::workers());
        parallel(3, |_, _| {
            // SAFETY: `CPU_EQUAL` only compares the bits.
            assert!(unsafe { libc::CPU_EQUAL(&place::mask().unwrap(), &here) });
            thread::sleep(std::time::Duration::from_micros(100));
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn no_number_means_one_task_for_each_thread() {
    let _turn = turn(3);
    let tasks = AtomicUsize::new(0);
    parallel(0, |_, count| {
        assert_eq!(count, 3);
        tasks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .unwrap();
    assert_eq!(tasks.into_inner(), 3);
}

#[test]
fn the_first_error_comes_back_when_all_tasks_have_ended() {
    let _turn = turn(4);
    for _ in 0..100 {
        let ended = AtomicUsize::new(0);
        let error = parallel(16, |index, _| {
            ended.fetch_add(1, Ordering::Relaxed);
            if index % 5 == 3 {
                bail!("IndexError", "task {index}");
            }
            Ok(())
        })
        .unwrap_err();
        assert_eq!(error.kind(), "IndexError");
        assert_eq!(ended.into_inner(), 16);
    }
}

#[test]
fn a_panic_of_a_task_is_an_error_and_the_pool_goes_on() {
    let _turn = turn(3);
    for _ in 0..20 {
        let error = parallel(3, |index, _| if index == 1 { panic!("in a task") } else { Ok(()) }).unwrap_err();
        assert!(error.message().contains("in a task"), "{}", error.message());
    }
    parallel(3, |_, _| Ok(())).unwrap();
}

#[test]
fn tasks_launch_tasks() {
    let _turn = turn(3);
    let leaves = AtomicUsize::new(0);
    parallel(4, |_, _| {
        parallel(4, |_, _| {
            parallel(4, |_, _| {
                leaves.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        })
    })
    .unwrap();
    assert_eq!(leaves.into_inner(), 64);
}

#[test]
fn eight_threads_launch_at_once() {
    let _turn = turn(3);
    let sum = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mine = AtomicUsize::new(0);
                    parallel(0, |index, _| {
                        mine.fetch_add(index + 1, Ordering::Relaxed);
                        Ok(())
                    })
                    .unwrap();
                    assert_eq!(mine.load(Ordering::Relaxed), 6);
                    sum.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 4000);
    assert!(pool::workers() <= 2, "launches share the workers");
}

#[test]
fn workers_leave_when_there_are_too_many() {
    let _turn = turn(6);
    let all = AtomicUsize::new(0);
    // No task leaves the barrier before all have arrived.
    launch_c(6, &mut |group, index| {
        all.fetch_add(1, Ordering::Relaxed);
        barrier_of(index, group)
    })
    .unwrap();
    set_num_threads(2);
    wait_until(|| pool::workers() <= 1);
    assert_eq!(pool::workers(), 1);
    parallel(2, |_, _| Ok(())).unwrap();
}

/// Launches `body` through the C API. The body receives the group of tasks and the index of the task.
fn launch_c(
    tasks: c_int,
    body: &mut (dyn Fn(*mut TVMParallelGroupEnv, c_int) -> c_int + Sync),
) -> Result<(), Error> {
    type Body<'a> = &'a (dyn Fn(*mut TVMParallelGroupEnv, c_int) -> c_int + Sync);
    unsafe extern "C" fn run(index: c_int, group: *mut TVMParallelGroupEnv, data: *mut c_void) -> c_int {
        // SAFETY: `data` points to the body of the launch, which waits for this task.
        let body = unsafe { *data.cast::<Body<'_>>() };
        body(group, index)
    }
    let mut shared: Body<'_> = body;
    // SAFETY: the task expects this body, which may be called from any thread.
    match unsafe { TVMBackendParallelLaunch(Some(run), (&raw mut shared).cast(), tasks) } {
        0 => Ok(()),
        _ => Err(Error::take_raised()),
    }
}

fn barrier_of(index: c_int, group: *mut TVMParallelGroupEnv) -> c_int {
    // SAFETY: the group is one that a task received.
    unsafe { TVMBackendParallelBarrier(index, group) }
}

#[test]
fn tasks_wait_for_each_other_even_when_there_are_more_than_threads() {
    let _turn = turn(2);
    for tasks in [1, 2, 3, 9] {
        let steps = AtomicUsize::new(0);
        launch_c(tasks, &mut |group, index| {
            for round in 1..=5 {
                steps.fetch_add(1, Ordering::SeqCst);
                if barrier_of(index, group) != 0 {
                    return -1;
                }
                assert!(steps.load(Ordering::SeqCst) >= round * tasks as usize);
                if barrier_of(index, group) != 0 {
                    return -1;
                }
            }
            0
        })
        .unwrap();
        assert_eq!(steps.into_inner(), 5 * tasks as usize);
    }
}

#[test]
fn waiting_for_a_task_that_has_ended_is_an_error() {
    let _turn = turn(2);
    let error =
        launch_c(4, &mut |group, index| if index == 2 { 0 } else { barrier_of(index, group) }).unwrap_err();
    assert!(error.message().contains("ended without"), "{}", error.message());
}

#[test]
fn the_child_of_a_fork_inside_a_launch_is_told() {
    let _turn = turn(3);
    let launcher = thread::current().id();
    let (others, child) = (AtomicUsize::new(0), AtomicI32::new(-1));
    let wait = |done: &dyn Fn() -> bool| {
        let begin = std::time::Instant::now();
        while !done() && begin.elapsed().as_secs() < 20 {
            thread::yield_now();
        }
    };
    let outcome = launch_c(3, &mut |_, _| {
        if thread::current().id() != launcher {
            others.fetch_add(1, Ordering::SeqCst);
            wait(&|| child.load(Ordering::SeqCst) != -1);
        } else if child.load(Ordering::SeqCst) == -1 {
            wait(&|| others.load(Ordering::SeqCst) > 0);
            // SAFETY: the child only does what is safe after a fork, and ends by `_exit`.
            child.store(unsafe { libc::fork() }, Ordering::SeqCst);
        }
        0
    });
    let child = child.into_inner();
    if child == 0 {
        let told = outcome.is_err_and(|error| error.message().contains("forked during a parallel launch"));
        // SAFETY: ends the child without running anything else.
        unsafe { libc::_exit(if told { 7 } else { 8 }) };
    }
    outcome.unwrap();
    let mut status = 0;
    // SAFETY: the child created above; `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
}

#[test]
fn wrong_launches_are_refused() {
    let _turn = turn(2);
    assert_eq!(launch_c(-1, &mut |_, _| 0).unwrap_err().kind(), "ValueError");
    // SAFETY: NULL is refused.
    assert_eq!(unsafe { TVMBackendParallelLaunch(None, core::ptr::null_mut(), 1) }, -1);
    assert!(Error::take_raised().message().contains("`task` is NULL"));
    assert_eq!(barrier_of(0, core::ptr::null_mut()), -1);
    assert!(Error::take_raised().message().contains("`env` is NULL"));
    let mut group = TVMParallelGroupEnv { sync_handle: core::ptr::null_mut(), num_task: 2 };
    assert_eq!(barrier_of(0, &raw mut group), -1);
    assert!(Error::take_raised().message().contains("does not belong to a launch"));
}

/// Guard that removes the launcher on drop.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        set_launcher(None);
    }
}

#[test]
fn the_host_runs_tasks_on_its_own_threads() {
    let _turn = turn(4);
    let _restore = Restore;
    set_launcher(Some(PackedFunc::new(|args: Args<'_>| {
        let (run, count) = (args.get::<PackedFunc>(0)?, args.get::<i64>(1)?);
        thread::scope(|scope| {
            let all: Vec<_> = (0..count)
                .map(|index| {
                    scope.spawn({
                        let run = run.clone();
                        move || run.call((index,)).map(drop)
                    })
                })
                .collect();
            all.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        Ok(Any::default())
    })));
    let threads = Mutex::new(HashSet::new());
    parallel(0, |_, _| {
        threads.lock().unwrap().insert(thread::current().id());
        Ok(())
    })
    .unwrap();
    assert_eq!(threads.lock().unwrap().len(), 4);
    assert!(!threads.lock().unwrap().contains(&thread::current().id()));
    let error =
        parallel(4, |index, _| if index == 3 { bail!("KeyError", "three") } else { Ok(()) }).unwrap_err();
    assert_eq!(error.kind(), "KeyError");
    // Tasks wait for each other, but the host runs them one after another.
    set_launcher(Some(
        TypedPackedFunc::from_fn(|run: PackedFunc, count: i64| -> Result<()> {
            (0..count).try_for_each(|index| run.call((index,)).map(drop))
        })
        .into(),
    ));
    launch_c(3, &mut |group, index| barrier_of(index, group)).unwrap();
}

#[test]
fn a_host_that_does_not_do_its_part_is_told() {
    let _turn = turn(4);
    let _restore = Restore;
    static KEPT: Mutex<Option<PackedFunc>> = Mutex::new(None);
    set_launcher(Some(PackedFunc::new(|args: Args<'_>| {
        let run = args.get::<PackedFunc>(0)?;
        run.call((0,))?;
        *KEPT.lock().unwrap() = Some(run);
        Ok(Any::default())
    })));
    let error = parallel(4, |_, _| Ok(())).unwrap_err();
    assert!(error.message().contains("1 of 4"), "{}", error.message());
    let kept = KEPT.lock().unwrap().take().unwrap();
    assert!(kept.call((1,)).unwrap_err().message().contains("has ended"));
    set_launcher(Some(PackedFunc::new(|_| bail!("OSError", "no threads today"))));
    assert_eq!(parallel(4, |_, _| Ok(())).unwrap_err().kind(), "OSError");
}
