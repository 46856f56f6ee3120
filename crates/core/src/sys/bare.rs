//! The platform gives nothing but atomics and an allocator.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// A lock that spins.
pub(crate) struct Mutex<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` gives access to one holder at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to what a [`Mutex`] guards.
pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        while self.locked.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        MutexGuard(self)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only holder of the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only holder of the lock, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

/// Lets threads wait until a guarded state has changed, by asking again and again.
pub(crate) struct Condvar;

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar
    }

    /// Gives others a turn.
    pub(crate) fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        drop(guard);
        core::hint::spin_loop();
        mutex.lock()
    }

    pub(crate) fn notify_all(&self) {}
}

/// Declares a slot that each thread would have for itself; here all share one.
macro_rules! per_thread {
    ($(#[$doc:meta])* static $name:ident: $ty:ty = $init:expr;) => {
        $(#[$doc])*
        static $name: $crate::sys::PerThread<$ty> = $crate::sys::PerThread($init);
    };
}
pub(crate) use per_thread;

/// A slot that all threads share; see [`per_thread`].
pub(crate) struct PerThread<T>(pub(crate) T);

// SAFETY: without the standard library the process has one thread, or several that take turns at calls into the
// runtime; this is what the crate's documentation asks for when `std` is off.
unsafe impl<T> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        Some(body(&self.0))
    }
}

/// A number that no other living thread has; never 0.
pub(crate) fn thread_token() -> usize {
    1
}

/// Whether an environment variable is set to `1`: there are none.
pub(crate) fn env_flag(_name: &str) -> bool {
    false
}

/// Tells the person at the terminal of a condition that no call can report: there is none.
pub(crate) fn warn(_message: &str) {}

/// The calls that led here: not known.
pub(crate) fn native_frames() -> alloc::string::String {
    alloc::string::String::new()
}

#[path = "no_objects.rs"]
pub(crate) mod objects;
