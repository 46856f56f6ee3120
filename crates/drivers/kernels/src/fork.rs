//! Forks, which drivers do not survive: their threads do not exist in a forked child, which would wait for them forever.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks that led to this process, since the first driver began to watch.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Forks since a driver was initialised. Each driver has a value of its own, so a child can use the drivers that its parent has not used.
#[derive(Debug, Default)]
pub struct Forks {
    /// [`COUNT`] in the process that initialised the driver, plus 1; 0 before that.
    at: AtomicU32,
}

impl Forks {
    /// Creates the value of a driver that was not initialised yet.
    #[must_use]
    pub const fn new() -> Forks {
        Forks { at: AtomicU32::new(0) }
    }

    /// Returns true if this process was forked after [`Forks::watch`].
    #[inline]
    pub fn is_forked(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != 0 && at != COUNT.load(Ordering::Relaxed) + 1
    }

    /// Begins to watch for forks.
    pub fn watch(&self) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler only changes an atomic. Its code stays mapped: a runtime is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        self.at.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Returns the reason why a forked child has no devices. `kind` is the name of the interface, such as `OpenCL`.
#[must_use]
pub fn reason(kind: &str) -> String {
    format!(
        "this process was forked after {kind} was initialised, and drivers of {kind} do not work in such a process; start a new \
         process instead"
    )
}

extern "C" fn in_child() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::Forks;

    /// Returns what a forked child returns, which must be less than 256.
    fn forked(child: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child reads atomics, forks, and ends without running destructors.
        let id = unsafe { libc::fork() };
        if id == 0 {
            let status = child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: waits for the child, and writes its status.
        unsafe { libc::waitpid(id, &raw mut status, 0) };
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn each_driver_is_watched_on_its_own() {
        static USED: Forks = Forks::new();
        static UNUSED: Forks = Forks::new();
        USED.watch();
        let states = || i32::from(USED.is_forked()) + 2 * i32::from(UNUSED.is_forked());
        assert_eq!(states(), 0);
        assert_eq!(forked(states), 1);
        // A child that initialises the driver can use it, and its own children cannot.
        let watched = || {
            UNUSED.watch();
            10 * states() + forked(states)
        };
        assert_eq!(forked(watched), 13);
    }
}
