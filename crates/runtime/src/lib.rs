//! Runtime services for compiled code: devices and their memory, tensors, worker threads, timing.
//!
//! Other languages use them through registered functions. Only the functions that compiled libraries call by symbol are
//! C functions (`backend`).

// The macros expand to paths that begin with `::anyfn`.
#[cfg(test)]
extern crate anyfn_loader as _;

mod backend;
#[cfg(feature = "cgroup")]
pub mod cgroup;
pub mod device;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg(feature = "suite")]
pub mod suite;
pub mod tensor;
pub mod threads;
#[cfg(feature = "timing")]
pub mod timing;
#[cfg(any(feature = "timing", feature = "profile"))]
mod units;
mod workspace;

pub use anyfn_driver::link_driver;
