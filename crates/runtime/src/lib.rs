//! What compiled code stands on: devices and their memory, tensors, worker threads, bundles, timing.
//!
//! Other languages reach all of it as registered functions; only what compiled libraries call by symbol is a C function
//! (`backend`).

// The macros write `::anyfn`.
#[cfg(test)]
extern crate anyfn_core as _;

mod backend;
pub mod bundle;
pub mod device;
pub mod doctor;
pub mod profile;
pub mod tensor;
pub mod threads;
pub mod timing;
mod units;
mod workspace;
