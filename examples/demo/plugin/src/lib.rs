//! The Rust part of the demonstration: a plugin with examples of packed functions, some of which it registers
//! as global functions.
//!
//! The plugin depends on `anyfn` alone. All languages of the process can call its registered functions while the module
//! is loaded.

use std::time::Instant;

use anyfn::{Any, Args, PackedFunc, Result, register};

// [my_add.begin]
/// Adds two numbers. The body converts each argument to an `i32`, and the sum to an `Any`.
fn my_add(args: Args<'_>) -> Result<Any> {
    let a = args.get::<i32>(0)?;
    let b = args.get::<i32>(1)?;
    Any::new(a + b)
}

/// Creates a `PackedFunc` from `my_add` and calls it like any other function.
fn call_packed() -> Result<i32> {
    let my_add = PackedFunc::new(my_add);
    // get back 3
    my_add.call((1, 2))?.get::<i32>()
}
// [my_add.end]

/// Returns the sum of two numbers.
#[register("myadd")]
fn myadd(a: i32, b: i32) -> i32 {
    a + b
}

// [callhello.begin]
/// Calls a function that the caller passes, whatever language it is written in.
#[register("callhello")]
fn callhello(f: PackedFunc) -> Result<()> {
    f.call(("hello world",))?;
    Ok(())
}
// [callhello.end]

/// Returns the result of `call_packed`.
#[register("demo.call_packed")]
fn demo_call_packed() -> Result<i32> {
    call_packed()
}

/// Calls a global function of any language by name.
#[register("demo.call_global")]
fn call_global(name: &str, x: i64) -> Result<Any> {
    anyfn::registry::get(name)?.call((x,))
}

/// Calls `f(x)` `times` times and returns the nanoseconds per call.
#[register("demo.time_calls")]
fn time_calls(f: PackedFunc, x: i64, times: u32) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..times {
        f.call((x,))?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(times.max(1)))
}

/// Divides two numbers. Returns an error if `b` is zero.
#[register("demo.divide")]
fn divide(a: i64, b: i64) -> Result<i64> {
    if b == 0 {
        anyfn::bail!("ZeroDivisionError", "{a} cannot be divided by 0");
    }
    Ok(a / b)
}

anyfn::export! {
    "my_add" => myadd,
}
