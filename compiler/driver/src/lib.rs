//! Compiler driver: compiles functions of the tensor IR to modules whose functions can be called.

#[cfg(test)]
extern crate anyfn_host as _;

mod api;
mod build;
mod cache;
mod compile;
mod foreign;
mod identity;
mod lower;
mod pipeline;
pub mod target;
mod write;

pub use anyfn_arith as arith;
pub use anyfn_autosched as autosched;
pub use anyfn_codegen_c as codegen_c;
pub use anyfn_interp as interp;
pub use anyfn_ir as ir;
pub use anyfn_parser as parser;
pub use anyfn_passes as passes;
pub use anyfn_schedule as schedule;
pub use anyfn_te as te;
pub use anyfn_wgsl as wgsl;
pub use build::{BuildOptions, Buildable, build, build_with, export, source, source_of_built};
pub use lower::{lower, notes};
pub use pipeline::{default_pipeline, pass};

/// Item whose documentation is the compiler guide, so that the Rust example of the guide runs as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/compiler.md")]
struct Guide;
