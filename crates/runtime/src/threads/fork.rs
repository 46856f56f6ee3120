//! Detection of forks. The child of a fork has only the forking thread, and locks that other threads held remain locked
//! in it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks that separate this process from the process that made the first launch.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns a number that differs between a process and the children that it forks, once [`watch`] has been called.
pub(super) fn process() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Installs the fork handler that updates the result of [`process`].
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only changes an atomic, and this code stays mapped (`worker::keep_mapped`).
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child))
        };
    });
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
