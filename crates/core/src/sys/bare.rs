//! Platform support without the standard library, where only atomics and an allocator exist.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// Mutex that waits in a busy loop.
pub struct Mutex<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` grants access to one holder at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to the value that a [`Mutex`] guards.
pub struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Locks the mutex. Waits while another thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
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

/// Condition variable that waits by polling: each wait returns after a moment, whether or not it was notified.
pub(crate) struct Condvar;

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar
    }

    /// Unlocks `mutex` for a moment, so that other threads can lock it, and locks it again.
    pub(crate) fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        drop(guard);
        core::hint::spin_loop();
        mutex.lock()
    }

    pub(crate) fn notify_all(&self) {}
}

/// Declares a variable that all threads share. On other platforms the same macro declares one variable per
/// thread.
#[cfg(not(anyfn_static))]
macro_rules! per_thread {
    ($(#[$doc:meta])* static $name:ident: $ty:ty = $init:expr;) => {
        $(#[$doc])*
        static $name: $crate::sys::PerThread<$ty> = $crate::sys::PerThread($init);
    };
}

/// Declares a variable of each thread, for the runtime that is linked into programs (`crates/static`). Its content is not
/// dropped when a thread ends.
#[cfg(anyfn_static)]
macro_rules! per_thread {
    ($(#[$doc:meta])* static $name:ident: $ty:ty = $init:expr;) => {
        $(#[$doc])*
        #[thread_local]
        static $name: $crate::sys::PerThread<$ty> = $crate::sys::PerThread($init);
    };
}
pub(crate) use per_thread;

/// Variable declared by [`per_thread`].
pub(crate) struct PerThread<T>(pub(crate) T);

// SAFETY: without the standard library the process has one thread, or several that take turns at calls into the
// runtime; the crate's documentation requires this when `std` is off. With `anyfn_static`, each thread has a variable of its own.
unsafe impl<T> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        Some(body(&self.0))
    }
}

/// Returns a nonzero number that identifies the current thread. Without the standard library, all threads
/// have the number 1.
#[cfg(not(anyfn_static))]
pub(crate) fn thread_token() -> usize {
    1
}

/// Returns a nonzero number that identifies the current thread among all living threads.
#[cfg(anyfn_static)]
pub(crate) fn thread_token() -> usize {
    per_thread! {
        static MARK: u8 = 0;
    }
    core::ptr::from_ref(&MARK).addr()
}

/// Returns false, because environment variables do not exist without the standard library.
pub fn env_flag(_name: &str) -> bool {
    false
}

/// Does nothing, because messages cannot be printed without the standard library.
pub fn warn(_message: &str) {}

#[path = "no_objects.rs"]
pub(crate) mod objects;
