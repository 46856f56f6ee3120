//! The names that most programs and plugins use, for `use anyfn::prelude::*;`.
//!
//! The prelude does not contain [`String`](crate::String), [`Result`](crate::Result), [`Error`](crate::Error) and
//! [`Cell`](crate::Cell), because programs use types or traits of these names from the standard library. They are written with
//! the name of the crate: `anyfn::Result<()>`.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::prelude::*;
//!
//! /// Returns a greeting. `String` is that of the standard library.
//! #[register("doc.prelude.greet")]
//! fn greet(name: &str) -> String {
//!     format!("hello {name}")
//! }
//!
//! fn run() -> anyfn::Result<()> {
//!     let greeting = global!("doc.prelude.greet")?.call(("world",))?.get::<String>()?;
//!     assert_eq!(greeting, "hello world");
//!     let numbers: Array<i64> = [2, 3].into_iter().collect();
//!     assert_eq!(Any::from(numbers).get::<Vec<i64>>()?, [2, 3]);
//!     Ok(())
//! }
//! # run().unwrap();
//! ```

pub use crate::{
    Any, AnyView, Args, Array, Bytes, DType, Device, Dict, FromArg, IntoAny, IntoArg, IntoArgs, List, Map,
    Module, Object, ObjectRef, PackedFunc, Ref, Shape, Tensor, TensorView, TypedPackedFunc, bail, export,
    global, methods, register,
};
