//! Functions that make calls in a loop, to measure time and memory use.

use std::time::Instant;

use anyfn::{Any, Args, PackedFunc, Result, register};

/// Calls `body` `n` times and returns the nanoseconds per call.
fn time(n: u64, mut body: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..n {
        body()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / n.max(1) as f64)
}

/// Calls `f()` n times and returns the nanoseconds per call.
#[register("testing.call_n")]
fn call_n(f: PackedFunc, n: u64) -> Result<f64> {
    time(n, || f.call_views(&[]).map(drop))
}

/// Calls `f` n times with the arguments that follow `n` and returns the nanoseconds per call.
#[register("testing.call_n_with")]
fn call_n_with(args: Args<'_>) -> Result<f64> {
    let f = args.get::<PackedFunc>(0)?;
    let n = args.get::<u64>(1)?;
    let rest = &args.as_slice()[2..];
    time(n, || f.call_views(rest).map(drop))
}

/// Raises and catches n errors, each in a call of a function, and returns the nanoseconds per error.
#[register("testing.raise_n")]
fn raise_n(n: u64) -> Result<f64> {
    let fail = PackedFunc::new(|_| -> Result<Any> { anyfn::bail!("ValueError", "raised in a loop") });
    time(n, || {
        drop(fail.call_views(&[]).err());
        Ok(())
    })
}
