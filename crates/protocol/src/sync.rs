//! Locks: those of the standard library or, in builds without the standard library, spin locks.

#[cfg(feature = "std")]
mod imp {
    use std::sync::{Mutex, PoisonError, TryLockError};

    /// Guard that holds a lock and gives access to the value in it.
    pub type Guard<'a, T> = std::sync::MutexGuard<'a, T>;

    /// Mutual exclusion of threads. If a thread panics while it holds the lock, the value stays
    /// accessible. This is safe because, except for allocation, nothing that may panic runs while a
    /// lock is held.
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    /// Lets other threads run for a moment.
    pub(crate) fn pause() {
        std::thread::sleep(core::time::Duration::from_micros(20));
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    use spin::mutex::{SpinMutex, SpinMutexGuard};

    /// Guard that holds a lock and gives access to the value in it.
    pub type Guard<'a, T> = SpinMutexGuard<'a, T>;

    /// Mutual exclusion of threads, which wait in a busy loop.
    pub(crate) struct Lock<T>(SpinMutex<T>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Lock<T> {
            Lock(SpinMutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock()
        }

        pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock()
        }
    }

    /// Lets other threads run for a moment.
    pub(crate) fn pause() {
        core::hint::spin_loop();
    }
}

pub use imp::Guard;
pub(crate) use imp::{Lock, pause};
