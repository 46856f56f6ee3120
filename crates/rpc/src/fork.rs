//! Detection of forks.
//!
//! A forked process inherits the sessions of its parent and shares their sockets, pipes and folders with it, but has none of the
//! threads that use them. It must therefore leave these sessions alone.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};
use std::thread::JoinHandle;

/// Number of forks that separate this process from the process that created the first [`Owner`].
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Process that created an object, as opposed to processes that were forked from it later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    /// Returns an owner that represents this process.
    pub(crate) fn this_process() -> Owner {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler only changes an atomic; the system removes it when it unmaps this library.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Owner(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true if the calling code runs in the owner process itself, and false in a process
    /// that was forked from the owner.
    pub(crate) fn is_here(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }

    /// Forgets the handle of one of the owner's threads if this process was forked from the owner.
    /// Dropping the handle would detach the thread, which does not exist in this process. Does
    /// nothing in the owner itself.
    pub(crate) fn forget_thread(self, thread: &mut Mutex<Option<JoinHandle<()>>>) {
        if !self.is_here()
            && let Ok(thread) = thread.get_mut()
        {
            std::mem::forget(thread.take());
        }
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
