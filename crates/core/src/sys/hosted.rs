//! Platform support on top of the standard library.

use core::ops::{Deref, DerefMut};
use std::sync;

/// A mutex. A panic of its holder does not poison it, because the guarded value is changed in single steps.
pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// Access to the value that a [`Mutex`] guards.
pub(crate) struct MutexGuard<'a, T>(sync::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
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

/// Lets threads wait until a guarded state has changed.
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar(sync::Condvar::new())
    }

    /// Waits for a notification; spurious wake-ups are possible.
    pub(crate) fn wait<'a, T>(&self, _mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard(self.0.wait(guard.0).unwrap_or_else(sync::PoisonError::into_inner))
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Declares a per-thread slot, used as `$name.with(|value| ..)`.
///
/// `with` returns `None` on a thread that is ending and has dropped its slot.
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

/// A slot that each thread has for itself; see [`per_thread`].
pub(crate) struct PerThread<T: 'static>(pub(crate) &'static std::thread::LocalKey<T>);

impl<T> PerThread<T> {
    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_with(body).ok()
    }
}

/// Returns a number that no other living thread has; never 0.
pub(crate) fn thread_token() -> usize {
    std::thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| core::ptr::from_ref(mark).addr())
}

/// Returns true if an environment variable is set to `1`.
pub(crate) fn env_flag(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}

/// Prints a warning about a condition that no call can report.
pub(crate) fn warn(message: &str) {
    std::eprintln!("anyfn: warning: {message}");
}

/// Returns the native frames of this thread as the standard library prints them, the most recent first.
pub(crate) fn native_frames() -> std::string::String {
    std::string::ToString::to_string(&std::backtrace::Backtrace::force_capture())
}

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
pub(crate) mod objects;
#[cfg(not(target_os = "linux"))]
#[path = "no_objects.rs"]
pub(crate) mod objects;
