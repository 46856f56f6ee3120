//! Implementation of the anyfn C ABI.
//!
//! The crate defines the functions that `anyfn-abi` declares. Rust code does not call them directly: it uses
//! the crate `anyfn`, which calls them. A program links this crate through `anyfn-host`; everything else uses
//! the library that `anyfn-lib` builds. Only [`loader`] and [`startup`] are public, for the crates
//! `anyfn-loader` and `anyfn-lib`.
//!
//! Reading order:
//! - `c_api`: the exported functions, one file per subject. They check their arguments and call one of the following
//!   modules.
//! - `registry`, `function_table`: functions by name; `type_table`: types and their reflection data; `attributes`: one
//!   column per type attribute.
//! - `access`: the table of accesses to the elements of tensors.
//! - `value`, `dtype_text`, `bigint`, `opaque`, `extern_function`, `tensor`, `sentinel`: creation of the built-in objects.
//! - `raised`, `backtrace`, `once`, `env`: state of a thread or of the process.
//! - `construct`: constructors of types from their fields; `record`: objects of types that are defined at run time;
//!   `method`: methods of Rust types; `unload`: types whose library was unloaded.
//! - `globals`: the functions named `ffi.*`; `libraries`, [`loader`]: the interface to the crate that loads library
//!   modules.
//! - `sync`: the lock-free structures under the tables; `sys`: services required from the platform, with a plain
//!   fallback.
//! - `drop_in`: whether the library stands in for the peer's.
//! - `instance`: finds another copy of this implementation in the process.
//!
//! Everything works before any constructor has run: tables are created at their first use. Tables only grow, so the
//! result of a lookup stays valid for the lifetime of the process.
#![no_std]
// Thread-local variables without the standard library, for `crates/static`.
#![cfg_attr(anyfn_static, feature(thread_local))]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod access;
mod attributes;
mod backtrace;
mod bigint;
mod c_api;
#[cfg(feature = "construct")]
mod construct;
mod drop_in;
mod dtype_text;
mod env;
mod extern_function;
mod function_table;
mod globals;
mod instance;
mod libraries;
pub mod loader;
mod method;
mod once;
mod opaque;
mod raised;
#[cfg(feature = "define")]
mod record;
mod registry;
mod sentinel;
pub mod startup;
mod sync;
mod sys;
mod tensor;
mod type_table;
mod unload;
mod value;
