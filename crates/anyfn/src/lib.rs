//! Safe Rust API of anyfn: functions that are defined in one language and called from any other.
//!
//! Rust executables and plugins are written against this crate, the safe API over anyfn's C ABI. It calls the functions
//! of the ABI and never contains their implementation. A plugin therefore depends on this crate alone and uses the
//! implementation in the process that loads it. An executable adds `use anyfn_host as _;`.
//!
//! Main types, in reading order:
//! - [`Any`] and [`AnyView`]: a value of any type, owned or borrowed.
//! - [`PackedFunc`]: a function of any language; [`TypedPackedFunc`]: a packed function with a checked Rust signature.
//! - [`registry`]: functions by name, for all languages of the process.
//! - [`Error`]: the error of a failed call, with its kind ([`error_kind`]), message and backtrace.
//! - [`ObjectRef`], [`Ref`]: strong references to objects; [`String`], [`Bytes`], [`Shape`], [`Array`], [`List`],
//!   [`Map`], [`Dict`], [`Tensor`], [`Module`]: the built-in object types.
//!
//! # Names
//!
//! Types have the names that they have in every language of anyfn. Some of these are also names of the standard library:
//! [`String`], [`Result`], [`Error`], [`Cell`] and [`Any`]. An explicit import such as `use anyfn::{Any, Result};` states
//! which is meant, and `anyfn::String` or `use anyfn::String as Text;` serves code that needs both. `use anyfn::*;` would
//! replace the `String` and the `Result` of the standard prelude without a notice. Import [`prelude`] instead, which
//! replaces neither.
//!
//! # Example
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{PackedFunc, TypedPackedFunc};
//!
//! let my_add = TypedPackedFunc::from_fn(|a: i64, b: i64| a + b);
//! assert_eq!(my_add.call(1, 2)?, 3);
//!
//! let untyped: PackedFunc = my_add.into();
//! assert_eq!(untyped.call((1, 2))?.get::<i64>()?, 3);
//! # Ok::<(), anyfn::Error>(())
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;
// The expansions of the macros refer to the crate by its name, which must also resolve inside the crate.
#[cfg(test)]
extern crate anyfn_core as _;
extern crate self as anyfn;

pub mod access;
mod any;
mod args;
#[doc(hidden)]
pub mod atomic64;
mod bigint;
mod bytes_object;
mod cast;
mod cell;
mod collected;
mod containers;
mod convert;
mod decimal;
mod define;
mod device;
mod dtype;
mod error;
mod error_from;
pub mod error_kind;
mod function;
mod hash;
mod json;
mod literal;
mod live;
#[doc(hidden)]
pub mod making;
mod module;
mod module_kind;
mod nesting;
mod object;
#[doc(hidden)]
pub mod observe;
mod opaque_ptr;
mod panics;
pub mod prelude;
pub mod record;
mod refcount;
pub mod reflection;
mod registered;
pub mod registry;
mod representation;
mod schema;
mod shape;
#[doc(hidden)]
pub mod shared;
mod signals;
mod signature;
mod sort;
mod sorted_map;
mod string;
mod tensor;
#[doc(hidden)]
pub mod tensor_mismatch;
mod tensor_ops;
mod text;
mod typed;
mod typed_call;
mod types;
mod value_type;

pub use access::{TensorRead, TensorWrite};
pub use any::{Any, AnyView};
pub use args::{IntoArg, IntoArgs};
pub use cell::Cell;
pub use containers::{
    Array, ArrayBuilder, ArrayIter, Dict, DictIter, List, ListIter, Map, MapCursor, MapIter, Slice,
    SliceIndices, Value,
};
pub use convert::{FromArg, IntoAny, Mismatch};
pub use define::value::FieldValue;
pub use device::Device;
pub use dtype::DType;
pub use error::{Error, Result};
pub use function::{Args, PackedFunc};
pub use literal::Literal;
#[doc(hidden)]
pub use live::{CountEnd, Ended, Ledger, count_end, has_ledger, use_count_end, use_ledger};
pub use live::{live_objects, live_objects_by_type};
pub use module::Module;
pub use module_kind::ModuleKind;
pub use object::{Derived, Object, ObjectRef, Ref, WeakRef};
pub use opaque_ptr::OpaquePtr;
pub use panics::record_panic_locations;
pub use schema::Schema;
pub use shape::Shape;
pub use signals::check_signals;
pub use signature::{Fallback, Param, Signature, Source};
pub use string::{Bytes, String};
pub use tensor::{Element, NDIM_MAX, Tensor, TensorView};
pub use typed::{Blocking, Names, PackableFn, TypedPackedFunc, Unsafe};
pub use types::{is_instance, type_index_of, type_key};

pub use anyfn_abi as abi;
pub use anyfn_macros::{Object, export, methods, register};

#[doc(hidden)]
pub mod __private;
