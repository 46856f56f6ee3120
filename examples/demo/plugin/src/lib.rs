//! The Rust half of the demonstration: the functions that the documents define, as a plugin.
//!
//! The plugin depends on `anyfn` alone. Its registered functions are there for every language of the process as long as
//! the module is loaded.

use std::time::Instant;

use anyfn::{Any, Args, PackedFunc, Result, register};

// [my_add.begin]
/// Adds two numbers: arguments are converted to the types asked for, the result to a value.
fn my_add(args: Args<'_>) -> Result<Any> {
    let a = args.get::<i32>(0)?;
    let b = args.get::<i32>(1)?;
    Any::new(a + b)
}

/// Makes a PackedFunc of `my_add` and calls it like any other function.
fn call_packed() -> Result<i32> {
    let my_add = PackedFunc::new(my_add);
    // get back 3
    my_add.call((1, 2))?.get::<i32>()
}
// [my_add.end]

/// Adds two numbers, for all languages.
#[register("myadd")]
fn myadd(a: i32, b: i32) -> i32 {
    a + b
}

// [callhello.begin]
/// Calls a function that somebody passes in, whatever language it is written in.
#[register("callhello")]
fn callhello(f: PackedFunc) -> Result<()> {
    f.call(("hello world",))?;
    Ok(())
}
// [callhello.end]

/// What Rust gets from `call_packed`.
#[register("demo.call_packed")]
fn demo_call_packed() -> Result<i32> {
    call_packed()
}

/// Calls a global function of any language by name.
#[register("demo.call_global")]
fn call_global(name: &str, x: i64) -> Result<Any> {
    anyfn::registry::get(name)?.call((x,))
}

/// Calls `f(x)` so many times and gives the time of one call in nanoseconds.
#[register("demo.time_calls")]
fn time_calls(f: PackedFunc, x: i64, times: u32) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..times {
        f.call((x,))?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(times.max(1)))
}

/// Divides, and fails for zero as Rust code fails.
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
