//! The classic API: the C API of the runtime of TVM 0.8, as a client of the ABI.
//!
//! Values are converted at the door (`value`): a type code and eight bytes become a 16-byte value, and the reverse.
//! Functions, modules, arrays and objects are the same objects as everywhere else, and so are the global functions and
//! the raised error of a thread. Nothing is kept here except what the API returns without an owner: strings, which
//! belong to a thread (`returned`, `error`), and memory whose size the caller does not state again (`device`).
//!
//! An array handle is the address of the `DLTensor` in a tensor object. Type indices are those of the ABI; the type keys
//! of TVM 0.8 are other names of the same types (`object`).
//!
//! In reading order: `value`, `handle`, `error`, `returned`, `lowered`; then one module for each group of functions.
//! `library` calls the functions of libraries that follow the library convention of TVM 0.8, for the loader.
#![allow(
    non_snake_case,
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "the functions are exported by name, and their declarations have the documentation"
)]

// The macros expand to paths that begin with `::anyfn`.
#[cfg(test)]
extern crate anyfn_loader as _;
#[cfg(test)]
extern crate anyfn_runtime as _;

mod array;
mod backend;
mod c_function;
mod device;
mod error;
mod function;
mod handle;
mod library;
mod lowered;
mod module;
mod object;
mod returned;
mod value;
