//! Initialisation that runs once, at the first use. The initialisation step may itself use the state that it
//! initialises.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::sys::{self, Mutex};

const NEW: u8 = 0;
const DONE: u8 = 1;

/// State of an initialisation step that runs once.
///
/// While one thread runs the step, other threads that need it wait. The thread that runs it does not wait, so the step
/// may use what it initialises.
pub(crate) struct Start {
    state: AtomicU8,
    owner: AtomicUsize,
    lock: Mutex<()>,
}

impl Start {
    pub(crate) const fn new() -> Self {
        Start { state: AtomicU8::new(NEW), owner: AtomicUsize::new(0), lock: Mutex::new(()) }
    }

    /// Runs `step` if it has not run yet, and waits until it has completed. Returns immediately if `step` is
    /// running on this thread.
    #[inline]
    pub(crate) fn ensure(&self, step: fn()) {
        if self.state.load(Ordering::Acquire) != DONE {
            self.run(step);
        }
    }

    /// Returns true if the step has completed.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    #[cold]
    fn run(&self, step: fn()) {
        let me = sys::thread_token();
        // Only this thread can have written its token.
        if self.owner.load(Ordering::Relaxed) == me {
            return;
        }
        let guard = self.lock.lock();
        if self.state.load(Ordering::Acquire) == DONE {
            return;
        }
        self.owner.store(me, Ordering::Relaxed);
        let owned = Owned(&self.owner);
        step();
        self.state.store(DONE, Ordering::Release);
        drop(owned);
        drop(guard);
    }
}

/// Guard that clears [`Start::owner`], the token of the thread that runs the step, even if the step panics.
/// After a panic, the next use runs the step again.
struct Owned<'a>(&'a AtomicUsize);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_again_after_a_panic() {
        static START: Start = Start::new();
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        fn step() {
            assert!(RUNS.fetch_add(1, Ordering::Relaxed) > 0, "the first run fails");
        }
        assert!(std::panic::catch_unwind(|| START.ensure(step)).is_err());
        START.ensure(step);
        START.ensure(step);
        assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn runs_once_and_lets_its_own_thread_through() {
        static START: Start = Start::new();
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        fn step() {
            START.ensure(step);
            RUNS.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    START.ensure(step);
                    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
                });
            }
        });
    }
}
