//! Intermediate representation of the compiler: the tensor IR.
//!
//! All nodes are objects: every language can read their fields by name, print, compare, transform and serialise them.
//! This crate defines the node types, functions that build valid nodes, and functions that inspect them.
//!
//! - [`expr`]: expressions. [`stmt`]: statements. [`buffer`], [`func`]: buffers, functions and modules.
//! - [`ops`]: builds expressions, unifies data types and folds constants.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

pub mod analysis;
pub mod buffer;
pub mod expr;
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
mod stack;
pub mod stmt;
pub mod target;
pub mod visit;
pub mod words;

pub use kind::{ExprKind, StmtKind};
