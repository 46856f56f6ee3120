//! CUDA devices, and modules of kernels in CUDA C, PTX or machine code.
//!
//! A program that links this crate has the device kind `cuda`. The driver library `libcuda.so.1` is opened at the first use of a
//! device, and the compiler `libnvrtc` when a kernel in CUDA C is built, so the program also starts on machines without either. This crate
//! was tested with a simulated driver only, never on a GPU.
//!
//! ```
//! # use anyfn_loader as _;
//! use anyfn::{DType, Device, Tensor};
//! use anyfn_cuda::{Kernel, module};
//!
//! let source = "extern \"C\" __global__ void scale(float *x, float by, int n) {
//!     int i = blockIdx.x * blockDim.x + threadIdx.x;
//!     if (i < n) x[i] *= by;
//! }";
//! let params = ["pointer", "float32", "int32", "blockIdx.x", "threadIdx.x"];
//! let scale = module(source, vec![Kernel::parse("scale", params)?], None)?.get_function("scale")?;
//!
//! let device: Device = "cuda:0".parse()?;
//! if anyfn_runtime::device::exists(device) {
//!     let x = Tensor::from_slice(&[3], &[1.0_f32, 2.0, 3.0])?.to_device(device)?;
//!     // 1 block of 64 threads.
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
mod context;
mod doctor;
mod driver;
mod event;
mod log;
mod memory;
mod module;
mod nvrtc;
mod process;
mod system;
mod work;

pub use anyfn_kernels::{Extent, Kernel};
pub use driver::Cuda;
pub use module::module;
