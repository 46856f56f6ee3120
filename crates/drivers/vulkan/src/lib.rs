//! Vulkan devices, and modules of kernels in SPIR-V.
//!
//! A program that links this crate has the device kind `vulkan`. The Vulkan loader library is opened at the first use of a device, so the
//! program also starts on machines without Vulkan. Devices are numbered across all installed drivers: discrete GPUs first, then
//! integrated ones, then virtual ones, then processors. A device needs Vulkan 1.2 with timeline semaphores.
//!
//! In reading order: `system` (the devices and their limits), `logical` (a device in use), `stream` (queues, and what was queued),
//! `memory` (buffers), `driver` (the interface to the runtime), `module` (kernels).

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

mod api;
mod copy;
mod doctor;
mod driver;
mod event;
mod logical;
mod memory;
mod module;
#[cfg(test)]
mod overhead;
mod stream;
mod system;
mod work;

pub use anyfn_kernels::{Extent, Kernel};
pub use driver::Vulkan;
pub use module::{module, spirv_module};
