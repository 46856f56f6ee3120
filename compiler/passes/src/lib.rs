//! Passes: each takes a function or a module and gives a new one.

#[cfg(test)]
extern crate anyfn_core as _;

mod loops;
mod lower_blocks;

pub use loops::{unroll, vectorize};
pub use lower_blocks::lower_blocks;
