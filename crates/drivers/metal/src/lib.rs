//! Modules of kernels in the Metal Shading Language (MSL).
//!
//! A program that links this crate can create, save and load modules of kind `metal` on every system. The crate contains no driver of Metal
//! devices: another library registers one, with the function [`COMPILE`], which compiles a kernel and launches it. No kernel has been
//! compiled or run on a Mac yet.
//!
//! ```
//! # use anyfn_loader as _;
//! use anyfn_metal::{Kernel, module};
//!
//! let source = "#include <metal_stdlib>
//! kernel void one(device int* x [[buffer(0)]], uint3 at [[thread_position_in_grid]]) { x[at.x] = 1; }";
//! let kernels = vec![Kernel::parse("one", ["pointer", "blockIdx.x", "threadIdx.x"])?];
//! let module = module(source, kernels, None)?;
//! assert_eq!(&*module.kind()?, "metal");
//! # Ok::<(), anyfn::Error>(())
//! ```

#![forbid(unsafe_code)]

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

mod content;
mod launch;
mod module;

pub use anyfn_kernels::{Extent, Kernel};
pub use launch::{COMPILE, LOCATE};
pub use module::module;
