//! Profiler: records calls across languages, their callers and their times, from `start` to `stop`.
//!
//! Calls are reported by the caller (`anyfn::observe`): Python, Rust code through the crate `anyfn`, C and compiled
//! code through `TVMFFIFunctionCall`. Python functions also report calls themselves, whoever the caller is. Calls that
//! the C++ headers of another vendor make of functions that are not Python functions are not recorded, nor is anything
//! inside a function.
//!
//! In reading order: `recorder` receives the calls, `names` finds the names of functions, `report` holds the result,
//! `trace` writes it for viewers.

mod args;
mod globals;
mod names;
mod recorder;
mod report;
mod trace;

pub use recorder::{Options, is_on, start, stop};
pub use report::{Function, Order, Profile};
