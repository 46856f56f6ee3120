//! libanyfn: the runtime as a shared and a static library.
//!
//! The C functions are those of `anyfn-core`; naming the crate makes the linker keep and export them.
#![no_std]

#[cfg(feature = "bundle")]
extern crate anyfn_bundle as _;
#[cfg(feature = "classic")]
extern crate anyfn_classic as _;
extern crate anyfn_core as _;
#[cfg(feature = "cuda")]
extern crate anyfn_cuda as _;
#[cfg(feature = "doctor")]
extern crate anyfn_doctor as _;
#[cfg(feature = "modules")]
extern crate anyfn_loader as _;
#[cfg(feature = "opencl")]
extern crate anyfn_opencl as _;
#[cfg(feature = "reflect")]
extern crate anyfn_reflect as _;
#[cfg(feature = "rpc")]
extern crate anyfn_rpc as _;
#[cfg(feature = "runtime")]
extern crate anyfn_runtime as _;
#[cfg(feature = "vulkan")]
extern crate anyfn_vulkan as _;

#[cfg(panic = "unwind")]
use anyfn_core::startup::{STEPS, entry, record_panic_locations};

// The library has its own copy of the standard library, so the panic hook receives only panics of the runtime.
// Without unwinding, a panic ends the process, so nothing would read the recorded location.
#[cfg(panic = "unwind")]
entry!(STEPS: fn() = record_panic_locations);
