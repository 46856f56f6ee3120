//! OpenCL devices, and modules of kernels in OpenCL C.
//!
//! A program that links this crate has the device kind `opencl`. The OpenCL loader library is opened at the first use
//! of a device, so the program also starts on machines without OpenCL. Devices are numbered across all installed drivers:
//! GPUs first, then other accelerators, then processors.
//!
//! ```
//! # use anyfn_loader as _;
//! use anyfn::{DType, Device, Tensor};
//! use anyfn_opencl::{Kernel, module};
//!
//! let source = "kernel void scale(global float *x, float by, int n) {
//!     int i = get_global_id(0);
//!     if (i < n) x[i] *= by;
//! }";
//! let params = ["pointer", "float32", "int32", "blockIdx.x", "threadIdx.x"];
//! let scale = module(source, vec![Kernel::parse("scale", params)?], None)?.get_function("scale")?;
//!
//! let device: Device = "opencl:0".parse()?;
//! if anyfn_runtime::device::exists(device) {
//!     let x = Tensor::from_slice(&[3], &[1.0_f32, 2.0, 3.0])?.to_device(device)?;
//!     // 1 group of 64 work items.
//!     scale.call((&x, 10.0, 3, 1, 64))?;
//!     assert_eq!(x.to_device(Device::CPU)?.to_vec::<f32>()?, [10.0, 20.0, 30.0]);
//! }
//! # Ok::<(), anyfn::Error>(())
//! ```

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

mod api;
mod block;
mod copy;
mod doctor;
mod driver;
mod event;
mod memory;
mod module;
#[cfg(test)]
mod overhead;
mod process;
mod system;
mod work;

pub use anyfn_kernels::{Extent, Kernel};
pub use driver::OpenCl;
pub use module::module;
