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
/// Export of a module, and of all modules that it imports, as one library file.
#[cfg(feature = "bundle")]
pub use anyfn_bundle as bundle;
/// Diagnosis of the installation, with a test of each part.
#[cfg(feature = "doctor")]
pub use anyfn_doctor as doctor;
/// Printing, comparing, hashing, copying, rewriting and saving values.
#[cfg(feature = "reflect")]
pub use anyfn_reflect as reflect;
/// Sessions, which give access to functions, modules and tensors of another process or machine.
#[cfg(feature = "rpc")]
pub use anyfn_rpc as rpc;
/// Devices and their memory, tensors, worker threads, timing.
#[cfg(feature = "runtime")]
pub use anyfn_runtime as runtime;

#[cfg(feature = "build")]
pub mod build;

/// Rust samples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Rust samples of the page about object types, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/objects.md")]
struct Objects;

/// Rust samples of the page about modules and bundles, run as tests.
#[cfg(all(doctest, feature = "bundle"))]
#[doc = include_str!("../../../docs/bundles.md")]
struct Bundles;

/// Rust samples of the page about tensors, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
struct Tensors;

/// Rust samples of the page about signatures, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/signature.md")]
struct Signatures;

/// Rust samples of the page about errors, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/errors.md")]
struct Errors;

/// Rust samples of the page about walks and rewriting, run as tests.
#[cfg(all(doctest, feature = "reflect"))]
#[doc = include_str!("../../../docs/rewriting.md")]
struct Rewriting;
