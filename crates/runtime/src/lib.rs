//! What compiled code stands on: devices and their memory, tensors, worker threads, bundles, timing.
//!
//! Other languages reach all of it as registered functions; only what compiled libraries call by symbol is a C function.

#[cfg(test)]
extern crate anyfn_core as _;

pub mod timing;
mod units;
