//! What is called, by whom and for how long: calls across languages, recorded from `start` to `stop`.
//!
//! Calls are told by those who make them (`anyfn::observe`): Python, Rust code through the crate `anyfn`, C and compiled
//! code through `TVMFFIFunctionCall`; and by Python functions, whoever calls them. Not seen are calls that C++ headers of
//! another maker make of functions that are not Python's, and what happens inside of a function.
//!
//! In reading order: `recorder` is told of calls, `names` finds what functions are called, `report` is what is left,
//! `trace` writes it for viewers.

mod args;
mod globals;
mod names;
mod recorder;
mod report;
mod trace;

pub use recorder::{Options, is_on, start, stop};
pub use report::{Function, Order, Profile};
