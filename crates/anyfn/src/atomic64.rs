//! The 64-bit atomic integers: those of the processor or, on processors without them, those of `portable-atomic`.

#[cfg(target_has_atomic = "64")]
pub use core::sync::atomic::{AtomicI64, AtomicU64};
#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::{AtomicI64, AtomicU64};
