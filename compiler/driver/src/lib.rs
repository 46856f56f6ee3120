//! From functions to modules that can be called.

#[cfg(test)]
extern crate anyfn_host as _;

mod api;
mod build;

pub use anyfn_codegen_c as codegen_c;
pub use anyfn_ir as ir;
pub use anyfn_passes as passes;
pub use anyfn_schedule as schedule;
pub use anyfn_te as te;
pub use build::{build, lower, source};
