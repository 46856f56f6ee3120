//! Forks: the child of a fork has only the thread that forked, and what other threads had locked stays locked in it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process is the child of a fork since the first launch.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and the children that it forks.
pub(super) fn process() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// From now on [`process`] tells, and the child of a fork makes worker threads of its own.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to atomics, and this code stays mapped (`worker::keep_mapped`).
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::pool::forget();
}
