//! Sample functions and types for the tests of every frontend.
//!
//! This crate is an ordinary plugin: it depends on `anyfn` alone, and its global functions, all named `testing.*`, are
//! registered while its module is loaded. Tests in Rust link it instead (`use anyfn_testing as _;`). `README.md` lists
//! all functions with their signatures.

mod callbacks;
mod containers;
mod errors;
mod extension;
pub mod ir;
mod loops;
mod methods;
mod modules;
mod objects;
mod tensors;
mod values;

pub use extension::{Complex, ComplexObject, Wave};
pub use methods::{Account, Savings};
pub use objects::{Counter, NamedPoint, Point};

use anyfn::{Any, Args, Map, PackedFunc, Result, String, register};

/// Accepts any arguments and returns None.
#[register("testing.nop")]
fn nop(_args: Args<'_>) {}

/// Returns its argument unchanged.
#[register("testing.echo")]
fn echo(x: Any) -> Any {
    x
}

/// Calls `f`, the first argument, with the remaining arguments and returns its result.
#[register("testing.apply")]
fn apply(args: Args<'_>) -> Result<Any> {
    let f = args.get::<PackedFunc>(0)?;
    f.call_views(&args.as_slice()[1..])
}

/// Returns the number of its arguments.
#[register("testing.count")]
fn count(args: Args<'_>) -> usize {
    args.len()
}

/// Returns the type key of its argument.
#[register("testing.type_key")]
fn type_key(x: Any) -> &'static str {
    x.type_key()
}

/// Returns the number of live objects that this library created.
#[register("testing.live_objects")]
fn live_objects() -> i64 {
    anyfn::live_objects() as i64
}

/// Returns the number of live objects that this library created, by type key.
#[register("testing.live_objects_by_type")]
fn live_objects_by_type() -> Map<String, i64> {
    let counts = anyfn::live_objects_by_type();
    counts.into_iter().map(|(key, count)| (String::from(key), count as i64)).collect()
}

anyfn::export! {
    /// Returns x + 1.
    fn add_one(x: i64) -> i64 {
        x + 1
    }

    /// Returns `x * factor + offset`.
    fn scale(x: f64, #[default(2.0)] factor: f64, #[default(0.0)] offset: f64) -> f64 {
        x * factor + offset
    }

    /// Returns its argument unchanged.
    fn echo_any(x: Any) -> Any {
        x
    }
}
