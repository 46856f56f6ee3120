//! Operations on objects of any type and language, derived from their reflected fields: printing, comparing,
//! hashing, copying, walking, rewriting and saving.
//!
//! Everything here is a registered function (`ffi.ReprPrint`, `ffi.StructuralEqual`, ..), which every language calls by
//! its name. Only hooks of types recurse on the machine stack, and their depth is limited. Graphs of any depth are
//! therefore printed, compared and saved.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate anyfn_core as _;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod column;
mod copy;
mod define;
mod enums;
mod guard;
mod hook;
pub mod json;
mod plan;
mod printer;
mod published;
mod recursive;
mod rewrite;
mod structural;
mod table;
mod value;

pub use copy::{deep_copy, shallow_copy};
pub use hook::{attribute, function};
pub use json::{from_json, to_json};
pub use printer::{Limits, repr, repr_within};
pub use recursive::{recursive_compare, recursive_equal, recursive_hash};
pub use rewrite::{Flow, IntoFlow, Region, Rewrite, Walk, error_path, map, walk};
pub use structural::{
    AccessKind, Options, describe_path, first_mismatch, structural_equal, structural_hash, structural_key,
};
