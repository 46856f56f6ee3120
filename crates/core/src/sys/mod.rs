//! Services required from the platform: locks, per-thread slots, environment variables, loaded libraries.
//!
//! `hosted` is for platforms with the standard library; `bare` is a fallback for one thread, or for several that take
//! turns.

#[cfg(feature = "std")]
#[path = "hosted.rs"]
mod imp;
#[cfg(not(feature = "std"))]
#[path = "bare.rs"]
mod imp;

pub(crate) use imp::*;
