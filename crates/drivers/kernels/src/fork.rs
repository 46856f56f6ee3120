//! Forks, which drivers do not survive: their threads do not exist in a forked child, which would wait for them forever.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// True in a child that was forked after a driver was initialised in its parent.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns true if this process was forked after [`watch`].
#[inline]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Returns the reason why a forked child has no devices. `kind` is the name of the interface, such as `OpenCL`.
#[must_use]
pub fn reason(kind: &str) -> String {
    format!(
        "this process was forked after {kind} was initialised, and drivers of {kind} do not work in such a process; start a new \
         process instead"
    )
}

/// Begins to watch for forks.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only changes an atomic. Its code stays mapped: a runtime is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}
