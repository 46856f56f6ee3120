//! Passes: each takes a function or a module and gives a new one.

#[cfg(test)]
extern crate anyfn_core as _;

mod lower_blocks;

pub use lower_blocks::lower_blocks;
