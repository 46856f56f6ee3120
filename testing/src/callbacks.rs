//! Sample functions that store callbacks and call them, also on other threads.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyfn::{Any, Args, Error, PackedFunc, Result, register};

static KEPT: Mutex<Option<PackedFunc>> = Mutex::new(None);

fn replace(f: Option<PackedFunc>) -> Option<PackedFunc> {
    let mut kept = KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::mem::replace(&mut *kept, f)
}

fn kept() -> Result<PackedFunc> {
    let kept = KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    kept.clone().ok_or_else(|| Error::new("RuntimeError", "no function is kept"))
}

/// Calls `f` on a new thread and waits for it.
fn on_thread(f: &PackedFunc, args: &[Any]) -> Result<Any> {
    thread::scope(|scope| scope.spawn(|| f.call(args)).join())
        .unwrap_or_else(|_| Err(Error::new("InternalError", "the thread panicked")))
}

fn owned(args: Args<'_>, skip: usize) -> Vec<Any> {
    args.as_slice().iter().skip(skip).map(anyfn::AnyView::to_owned).collect()
}

/// Stores a function until `testing.keep` is called with another function, or until `testing.drop_kept` is
/// called.
#[register("testing.keep")]
fn keep(f: PackedFunc) {
    // Released after the lock, because a release may run arbitrary code.
    drop(replace(Some(f)));
}

/// Drops the function that `testing.keep` has stored. Returns false if there was no such function.
#[register("testing.drop_kept")]
fn drop_kept() -> bool {
    replace(None).is_some()
}

/// Calls the function that `testing.keep` has stored, with the given arguments.
#[register("testing.call_kept")]
fn call_kept(args: Args<'_>) -> Result<Any> {
    kept()?.call_views(args.as_slice())
}

/// Registers an exit handler that calls the function stored by `testing.keep` and prints `called` or the
/// error. It runs after all exit handlers that are registered later. Returns true on success; a WebAssembly module has no
/// exit handlers.
#[register("testing.call_kept_at_exit")]
fn call_kept_at_exit() -> bool {
    if cfg!(target_family = "wasm") {
        return false;
    }
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
    }
    extern "C" fn at_exit() {
        match kept().map(|function| function.call(())) {
            Ok(Ok(_)) => println!("called"),
            Ok(Err(error)) => println!("{error}"),
            // The function was dropped before the process ended.
            Err(_) => {}
        }
    }
    // SAFETY: `at_exit` never unwinds, and this library stays loaded.
    unsafe { atexit(at_exit) == 0 }
}

/// Calls the function that `testing.keep` has stored, on another thread, and waits for it.
#[register("testing.call_kept_on_thread", blocking)]
fn call_kept_on_thread(args: Args<'_>) -> Result<Any> {
    on_thread(&kept()?, &owned(args, 0))
}

/// Calls `f`, the first argument, with the remaining arguments on another thread and waits for it.
#[register("testing.apply_on_thread", blocking)]
fn apply_on_thread(args: Args<'_>) -> Result<Any> {
    on_thread(&args.get::<PackedFunc>(0)?, &owned(args, 1))
}

/// Calls `f(i)` for i from 0 to `threads` - 1, each on its own thread, and returns the sum of the results.
#[register("testing.apply_on_threads", blocking)]
fn apply_on_threads(f: PackedFunc, threads: u16) -> Result<i64> {
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|i| {
                (
                    i,
                    scope.spawn({
                        let f = &f;
                        move || f.call_to::<i64>((i,))
                    }),
                )
            })
            .collect();
        started.into_iter().try_fold(0i64, |sum, (_, thread)| match thread.join() {
            Ok(result) => Ok(sum.wrapping_add(result?)),
            Err(_) => Err(Error::new("InternalError", "a thread panicked")),
        })
    })
}

/// Returns a function that adds `n` to its argument.
#[register("testing.make_adder")]
fn make_adder(n: i64) -> PackedFunc {
    anyfn::TypedPackedFunc::from_fn(move |x: i64| x.wrapping_add(n)).into()
}

/// Sleeps for the given number of seconds and returns that number. If `check` is true, it checks for signals about
/// every millisecond.
#[register("testing.sleep", blocking)]
fn sleep(seconds: f64, check: bool) -> Result<f64> {
    let length =
        Duration::try_from_secs_f64(seconds).map_err(|error| Error::new("ValueError", &error.to_string()))?;
    let start = Instant::now();
    if !check {
        thread::sleep(length);
        return Ok(seconds);
    }
    while let Some(rest) = length.checked_sub(start.elapsed()) {
        anyfn::check_signals()?;
        thread::sleep(rest.min(Duration::from_millis(1)));
    }
    Ok(seconds)
}

/// Calls `f()` `n` times and returns `n`. It checks for signals before each call.
#[register("testing.call_n_checked", blocking)]
fn call_n_checked(f: PackedFunc, n: u64) -> Result<u64> {
    for _ in 0..n {
        anyfn::check_signals()?;
        f.call_views(&[])?;
    }
    Ok(n)
}
