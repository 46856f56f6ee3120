//! The state of the library under the name `libtvm_ffi.so`, where it stands in for the peer's library.

use core::sync::atomic::{AtomicBool, Ordering};

static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Returns true if this library stands in for the peer's `libtvm_ffi.so`. The libraries of a process are then written for
/// the peer, and may for example define functions under names that this runtime uses for functions of its own.
pub(crate) fn is_active() -> bool {
    cfg!(feature = "cpp") && IS_ACTIVE.load(Ordering::Relaxed)
}

/// Makes this library stand in for the peer's. The C++ code of `libtvm_ffi.so` causes this when the library is loaded.
pub(crate) fn activate() {
    IS_ACTIVE.store(true, Ordering::Relaxed);
}
