//! The one implementation behind the anyfn C ABI.
//!
//! The crate defines the functions that `anyfn-abi` declares. Rust code does not call it: it uses `anyfn`, whose calls
//! end here. A program gets it through `anyfn-host`, everything else through the library that `anyfn-lib` builds.
//!
//! Reading order:
//! - `c_api`: the exported functions, one file per noun. They check what they are given and call one of:
//! - `registry`: functions by name; `type_table`: types and what they tell of themselves; `attributes`: one column per
//!   type attribute.
//! - `access`: the table of accesses to the elements of tensors.
//! - `value`, `dtype_text`, `bigint`, `opaque`, `extern_function`, `tensor`: making the built-in objects.
//! - `raised`, `backtrace`, `once`, `env`: what belongs to a thread or to the process.
//! - `record`: objects of types that are defined at run time; `method`: methods of types in Rust; `unload`: types whose
//!   library is gone.
//! - `module`: library modules; `globals`: the functions named `ffi.*`.
//! - `sync`: the lock-free structures under the tables; `sys`: what the platform must give, with a plain fallback.
//! - `instance`: finds another copy of this implementation in the process.
//!
//! Everything works before any constructor has run: tables are made at their first use. Tables only grow, so what a
//! look-up returns stays valid for ever.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod access;
mod attributes;
mod backtrace;
mod bigint;
mod c_api;
mod dtype_text;
mod env;
mod extern_function;
mod globals;
mod instance;
mod method;
mod module;
mod once;
mod opaque;
mod raised;
mod record;
mod registry;
mod sync;
mod sys;
mod tensor;
mod type_table;
mod unload;
mod value;
