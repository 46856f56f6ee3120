//! Profiler: records calls across languages, their callers and their times, from `start` to `stop`.
//!
//! Calls are reported by the caller (`anyfn::observe`): Python, Rust code through the crate `anyfn`, C and compiled
//! code through `TVMFFIFunctionCall`. Python functions also report their own calls, whoever the caller is. A call
//! through the C++ headers of another vendor is only recorded if the function is a Python function. Within a function,
//! only the calls that it makes are recorded.
//!
//! In reading order: `recorder` records the calls, `recorded` holds the recorded calls, `names` finds the
//! names of functions, `report` holds the result, `trace` writes it for viewers.

mod args;
mod globals;
mod names;
mod recorded;
mod recorder;
mod report;
mod trace;

pub use recorder::{Options, is_on, start, stop};
pub use report::{Function, Order, Profile};
