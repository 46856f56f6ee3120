//! Platform support on top of the standard library.

use core::ops::{Deref, DerefMut};
use std::sync;

/// Mutex without poisoning. Code that holds the lock changes the value in single steps, so the value is
/// consistent even after a panic.
pub struct Mutex<T>(sync::Mutex<T>);

/// Access to the value that a [`Mutex`] guards.
pub struct MutexGuard<'a, T>(sync::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    /// Locks the mutex. Waits while another thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().unwrap_or_else(sync::PoisonError::into_inner))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Condition variable, on which threads wait until a value guarded by a [`Mutex`] has changed.
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar(sync::Condvar::new())
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. It may also return without a
    /// notification.
    pub(crate) fn wait<'a, T>(&self, _mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard(self.0.wait(guard.0).unwrap_or_else(sync::PoisonError::into_inner))
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Declares a thread-local variable, which is used as `$name.with(|value| ..)`.
///
/// `with` returns `None` on a thread that is ending and has already dropped its instance.
macro_rules! per_thread {
    ($(#[$doc:meta])* static $name:ident: $ty:ty = $init:expr;) => {
        $(#[$doc])*
        static $name: $crate::sys::PerThread<$ty> = {
            std::thread_local! {
                static SLOT: $ty = const { $init };
            }
            $crate::sys::PerThread(&SLOT)
        };
    };
}
pub(crate) use per_thread;

/// Thread-local variable, declared by [`per_thread`].
pub(crate) struct PerThread<T: 'static>(pub(crate) &'static std::thread::LocalKey<T>);

impl<T> PerThread<T> {
    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_with(body).ok()
    }
}

/// Returns a nonzero number that identifies the current thread among all living threads.
pub(crate) fn thread_token() -> usize {
    std::thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| core::ptr::from_ref(mark).addr())
}

/// Returns true if an environment variable is set to `1`.
pub fn env_flag(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}

/// Prints a warning to the standard error stream. Used for problems that no call can report as an error.
pub fn warn(message: &str) {
    std::eprintln!("anyfn: warning: {message}");
}

/// Returns the native frames of the current thread in the text format of [`std::backtrace::Backtrace`], the innermost
/// frame first.
#[cfg(feature = "backtrace")]
pub(crate) fn native_frames() -> std::string::String {
    std::string::ToString::to_string(&std::backtrace::Backtrace::force_capture())
}

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
pub(crate) mod objects;
#[cfg(not(target_os = "linux"))]
#[path = "no_objects.rs"]
pub(crate) mod objects;
