//! Links the implementation of the anyfn runtime into a Rust program.
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

#[cfg(feature = "classic")]
extern crate anyfn_classic as _;
extern crate anyfn_core as _;
#[cfg(feature = "modules")]
extern crate anyfn_loader as _;
/// Writing a module, and all modules that it imports, to one library file.
#[cfg(feature = "bundle")]
pub use anyfn_bundle as bundle;
/// CUDA devices, and modules of kernels in CUDA C, PTX and machine code.
#[cfg(feature = "cuda")]
pub use anyfn_cuda as cuda;
/// Diagnosis of the anyfn installation, with a test of each component, such as the compiler or a device.
#[cfg(feature = "doctor")]
pub use anyfn_doctor as doctor;
/// OpenCL devices, and modules of kernels in OpenCL C.
#[cfg(feature = "opencl")]
pub use anyfn_opencl as opencl;
/// Printing, comparing, hashing, copying, rewriting and saving values.
#[cfg(feature = "reflect")]
pub use anyfn_reflect as reflect;
/// Sessions, which give access to functions, modules and tensors of another process or machine.
#[cfg(feature = "rpc")]
pub use anyfn_rpc as rpc;
/// Devices and device memory, tensors, worker threads and timing.
#[cfg(feature = "runtime")]
pub use anyfn_runtime as runtime;
/// Vulkan devices, and modules of kernels in SPIR-V.
#[cfg(feature = "vulkan")]
pub use anyfn_vulkan as vulkan;

#[cfg(feature = "build")]
pub mod build;

/// Documentation tests: the Rust samples of `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Documentation tests: the Rust samples of `docs/start/rust.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/start/rust.md")]
struct Start;

/// Documentation tests: the Rust samples of `docs/coming-from-pyo3.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from-pyo3.md")]
struct ComingFromPyo3;

/// Documentation tests: the Rust samples of `docs/coming-from-tvm-ffi.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from-tvm-ffi.md")]
struct ComingFromTvmFfi;

/// Documentation tests: the Rust samples of `docs/functions.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/functions.md")]
struct Functions;

/// Documentation tests: the Rust samples of `docs/objects.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/objects.md")]
struct Objects;

/// Documentation tests: the Rust samples of `docs/bundles.md`.
#[cfg(all(doctest, feature = "bundle"))]
#[doc = include_str!("../../../docs/bundles.md")]
struct Bundles;

/// Documentation tests: the Rust samples of `docs/tensors.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
struct Tensors;

/// Documentation tests: the Rust samples of `docs/cuda.md`.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../../../docs/cuda.md")]
struct CudaDevices;

/// Documentation tests: the Rust samples of `docs/devices.md`.
#[cfg(all(doctest, feature = "opencl"))]
#[doc = include_str!("../../../docs/devices.md")]
struct Devices;

/// Documentation tests: the Rust samples of `docs/drivers.md`.
#[cfg(all(doctest, feature = "drivers", feature = "null"))]
#[doc = include_str!("../../../docs/drivers.md")]
struct Drivers;

/// Documentation tests: the Rust samples of `docs/vulkan.md`.
#[cfg(all(doctest, feature = "vulkan"))]
#[doc = include_str!("../../../docs/vulkan.md")]
struct VulkanDevices;

/// Documentation tests: the Rust samples of `docs/signature.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/signature.md")]
struct Signatures;

/// Documentation tests: the Rust samples of `docs/errors.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/errors.md")]
struct Errors;

/// Documentation tests: the Rust samples of `docs/rewriting.md`.
#[cfg(all(doctest, feature = "reflect"))]
#[doc = include_str!("../../../docs/rewriting.md")]
struct Rewriting;
