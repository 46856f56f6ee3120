//! Services that the platform provides: locks, per-thread variables, environment variables, queries about loaded files.
//!
//! The implementation in `hosted` is for platforms with the standard library. The one in `bare` is for all others, on
//! which the process must have one thread, or several threads that take turns.

#[cfg(feature = "std")]
#[path = "hosted.rs"]
mod imp;
#[cfg(not(feature = "std"))]
#[path = "bare.rs"]
mod imp;

pub use imp::*;
