//! What follows from the fields of objects, for all types of all languages: printing, comparing, hashing, copying,
//! walking, rewriting and saving.
//!
//! Everything here is a registered function (`ffi.ReprPrint`, `ffi.StructuralEqual`, ..), which every language calls by its
//! name. Nothing recurses on the machine's stack but the hooks of types, whose depth is limited, so graphs of any depth
//! are printed, compared and saved.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate anyfn_core as _;
#[cfg(test)]
extern crate std;

mod hook;

pub use hook::{attribute, function};
