//! Links the implementation of anyfn into a Rust program.
//!
//! A library that other programs load depends on `anyfn` alone and finds the implementation in the process. A program has to
//! provide the implementation, by naming this crate:
//!
//! ```
//! use anyfn_host as _;
//!
//! let double = anyfn::TypedPackedFunc::from_fn(|x: i64| 2 * x);
//! assert_eq!(double.call(21)?, 42);
//! # Ok::<(), anyfn::Error>(())
//! ```
//!
//! A program that loads libraries must also export its functions to them: its build script calls
//! `anyfn_host::build::export_functions`, which requires the feature `build`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "build")]
extern crate std;

extern crate anyfn_core as _;
#[cfg(feature = "modules")]
extern crate anyfn_loader as _;
/// Writing a library and all modules that it imports as one file.
#[cfg(feature = "bundle")]
pub use anyfn_bundle as bundle;
/// Checks of what works on this machine.
#[cfg(feature = "doctor")]
pub use anyfn_doctor as doctor;
/// Printing, comparing, hashing, copying, rewriting and saving values.
#[cfg(feature = "reflect")]
pub use anyfn_reflect as reflect;
/// Functions, modules and tensors of another process or machine.
#[cfg(feature = "rpc")]
pub use anyfn_rpc as rpc;
/// Devices and their memory, tensors, worker threads, timing.
#[cfg(feature = "runtime")]
pub use anyfn_runtime as runtime;

#[cfg(feature = "build")]
pub mod build;

/// Rust sample of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Rust sample of the page about object types.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/objects.md")]
struct Objects;

/// Rust sample of the page about modules and bundles.
#[cfg(all(doctest, feature = "bundle"))]
#[doc = include_str!("../../../docs/bundles.md")]
struct Bundles;

/// Rust sample of the page about tensors.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
struct Tensors;

/// Rust sample of the page about signatures.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/signature.md")]
struct Signatures;

/// Rust sample of the page about errors.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/errors.md")]
struct Errors;

/// Rust sample of the page about walks and rewriting.
#[cfg(all(doctest, feature = "reflect"))]
#[doc = include_str!("../../../docs/rewriting.md")]
struct Rewriting;
