//! The compiler's intermediate representation.
//!
//! All nodes are objects: every language reads their fields by name, prints, compares, rewrites and saves them. What
//! Rust code adds is here: types, ways to make nodes that are right, and ways to look at them.
//!
//! - [`expr`]: what has a value. [`stmt`]: what is done. [`buffer`], [`func`]: memory, functions, modules.
//! - [`ops`]: makes expressions; data types are unified and constants folded.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

pub mod analysis;
pub mod buffer;
pub mod expr;
mod fold;
pub mod func;
mod init;
pub mod kind;
pub mod make;
pub mod node;
pub mod operand;
pub mod ops;
pub mod packed;
pub mod printer;
pub mod reduction;
pub mod share;
pub mod size;
pub mod stmt;
pub mod target;
pub mod visit;
mod words;

pub use kind::{ExprKind, StmtKind};
