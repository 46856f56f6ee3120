//! The process: its signal handlers, which drivers of OpenCL replace, and its forks, which they do not survive.

use core::mem::MaybeUninit;

use anyfn_kernels::fork::Forks;

/// Highest number of a signal whose handler is restored. Real-time signals have higher numbers.
const SIGNALS: i32 = 31;

/// Calls `body`, and then restores the signal handlers of the process that `body` has replaced.
///
/// Drivers on the CPU set handlers for most signals when they are initialised, because they contain a compiler. The
/// program's handlers, such as Python's for Ctrl-C, must keep working.
pub(crate) fn with_signal_handlers<T>(body: impl FnOnce() -> T) -> T {
    let before: Vec<(i32, libc::sigaction)> =
        (1..=SIGNALS).filter_map(|signal| Some((signal, handler(signal)?))).collect();
    let result = body();
    for (signal, action) in before {
        let is_changed = handler(signal).is_some_and(|now| now.sa_sigaction != action.sa_sigaction);
        if is_changed {
            // SAFETY: `action` is the handler that this signal had.
            unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
        }
    }
    result
}

/// Returns the handler of a signal; `None` if the signal does not exist.
fn handler(signal: i32) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new handler, the call writes the old one to `action`.
    let code = unsafe { libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has succeeded; before it, all bytes were zero, which is a valid value of every field.
    (code == 0).then(|| unsafe { action.assume_init() })
}

/// Forks since OpenCL was initialised.
pub(crate) static FORKS: Forks = Forks::new();

/// Returns true if this process was forked after OpenCL was initialised.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKS.is_forked()
}
