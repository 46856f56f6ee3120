//! Locks, atomics and threads of the standard library. With `--cfg loom`, they are replaced by those of the
//! crate loom, which explores all interleavings of threads.

#[cfg(not(loom))]
mod imp {
    pub(in crate::threads) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(in crate::threads) use std::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(not(target_family = "wasm"))]
    use std::thread::yield_now;
    pub(in crate::threads) use std::thread::{Thread, current, park};
    #[cfg(not(target_family = "wasm"))]
    use std::time::{Duration, Instant};

    /// Maximum time for which a thread spins before it sleeps.
    #[cfg(not(target_family = "wasm"))]
    const SPIN: Duration = Duration::from_micros(20);

    /// Spins until a condition is true, for at most [`SPIN`]. Returns true if the condition is true.
    #[cfg(not(target_family = "wasm"))]
    pub(in crate::threads) fn spin_until(done: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        loop {
            for _ in 0..32 {
                if done() {
                    return true;
                }
                core::hint::spin_loop();
            }
            if begin.elapsed() > SPIN {
                return done();
            }
        }
    }

    /// Yields the processor until a condition is true, for at most 200 microseconds. This gives woken threads time to
    /// begin their tasks.
    #[cfg(not(target_family = "wasm"))]
    pub(in crate::threads) fn be_patient(done: impl Fn() -> bool) {
        const PATIENCE: Duration = Duration::from_micros(200);
        let begin = Instant::now();
        while !done() && begin.elapsed() < PATIENCE {
            yield_now();
        }
    }

    /// Returns true if a condition is true. A WebAssembly module has no clock, and no other thread that could change the condition.
    #[cfg(target_family = "wasm")]
    pub(in crate::threads) fn spin_until(done: impl Fn() -> bool) -> bool {
        done()
    }

    /// Does nothing: there is no other thread to wait for.
    #[cfg(target_family = "wasm")]
    pub(in crate::threads) fn be_patient(_done: impl Fn() -> bool) {}
}

#[cfg(loom)]
mod imp {
    pub(in crate::threads) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(in crate::threads) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(in crate::threads) use loom::thread::{Thread, current, park};

    pub(in crate::threads) fn spin_until(done: impl Fn() -> bool) -> bool {
        done()
    }

    pub(in crate::threads) fn be_patient(_done: impl Fn() -> bool) {}
}

pub(super) use imp::*;

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
