//! Cancellation and deadlines of the calls that `call_async` makes on its threads.
//!
//! Each such call has a token ([`Layout`]). While the function runs, the thread's list `CURRENT` contains the token,
//! so native code that checks for signals on that thread learns that its call was cancelled or that its deadline has
//! passed. The check does not need the GIL, so a loop may check frequently.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use anyfn::Error;

use crate::error;
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};

/// Memory layout of an instance of `CallToken` (`call_token.rs`), the token of a call that can be stopped.
#[repr(C)]
pub(crate) struct Layout {
    base: PyObject,
    /// State of the call. It is [`RUNNING`] until the call is stopped, and then the reason:
    /// [`CANCELLED`] or [`TOO_LATE`].
    pub(crate) state: AtomicI32,
}

/// State of a call that has not been stopped.
pub(crate) const RUNNING: i32 = 0;
/// State of a call that was cancelled.
pub(crate) const CANCELLED: i32 = 1;
/// State of a call whose deadline has passed.
pub(crate) const TOO_LATE: i32 = 2;

/// Python function that [`finish`] calls to run a coroutine to completion.
static FINISH: Global = Global::new();

thread_local! {
    /// Calls in progress on this thread that can be stopped, innermost last. An entry contains a
    /// number and an owned reference to the token of the call. Greenlets take turns on a thread, so
    /// calls may end in any order. Each call therefore removes its own entry, at any position.
    static CURRENT: RefCell<Vec<(u64, *const Layout)>> = const { RefCell::new(Vec::new()) };
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Returns the token of the innermost call on this thread that can be stopped, or NULL if no such call is in progress.
fn innermost() -> *const Layout {
    let found = CURRENT.try_with(|calls| calls.borrow().last().map(|(_, token)| *token));
    found.ok().flatten().unwrap_or(ptr::null())
}

/// Sets the Python function that [`finish`] calls to run a coroutine to completion.
pub(crate) fn set_finish(function: Obj<'_>) {
    FINISH.set(function.to_own());
}

/// Returns true if a call that can be stopped is in progress on this thread.
pub(crate) fn is_running() -> bool {
    !innermost().is_null()
}

/// Checks whether the innermost call on this thread was stopped. The runtime calls this function when native
/// code checks for signals. Returns `None` if no call that can be stopped is in progress on this thread.
/// Otherwise returns 0, or -1 with an error raised if the call was stopped.
pub(crate) fn check() -> Option<c_int> {
    // SAFETY: the entry keeps the token alive.
    let token = unsafe { innermost().as_ref() }?;
    match token.state.load(Ordering::Relaxed) {
        RUNNING => Some(0),
        state => {
            let error = match state {
                TOO_LATE => Error::new("TimeoutError", "the deadline of the call has passed"),
                _ => Error::new("CancelledError", "the call was cancelled"),
            };
            error.raise();
            Some(-1)
        }
    }
}

/// Runs `object`, a coroutine that a Python function has returned to native code, and returns its result. The
/// coroutine runs on the event loop of this thread's asynchronous call. Returns `None` if the object is not a
/// coroutine or if no asynchronous call is in progress on this thread.
#[cold]
pub(crate) fn finish(object: Obj<'_>) -> Res<Option<Own>> {
    let token = innermost();
    let Some(finish) = FINISH.try_get().filter(|_| !token.is_null()) else { return Ok(None) };
    // SAFETY: a token is a Python object, which its entry keeps alive.
    let token: Obj<'_> = unsafe { Obj::from_ptr(token.cast_mut().cast()) };
    let result = finish.call(&[token, object])?;
    // The function returns the token itself if the object is not a coroutine.
    Ok((!result.obj().is(token.as_ptr())).then_some(result))
}

/// Guard that adds a token to the calls in progress on this thread, and removes the token when dropped. It
/// contains the number under which the token is stored.
pub(crate) struct Running(u64);

impl Running {
    /// Adds `token`, an instance of `CallToken`, to the calls in progress on this thread.
    pub(crate) fn new(token: Own) -> Running {
        let number = LAST.get() + 1;
        LAST.set(number);
        let token: *const Layout = token.into_ptr().cast();
        CURRENT.with_borrow_mut(|calls| calls.push((number, token)));
        Running(number)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = CURRENT.with_borrow_mut(|calls| {
            let place = calls.iter().rposition(|(number, _)| *number == self.0)?;
            Some(calls.remove(place).1)
        });
        // SAFETY: the entry owned this reference and has been removed; the GIL is held.
        drop(ended.and_then(|token| unsafe { Own::from_nullable(token.cast_mut().cast()) }));
    }
}

/// Returns the token of the innermost call on this thread that can be stopped, or None. Called from the Python code
/// of the package.
pub(crate) fn current() -> Own {
    // SAFETY: the pointer is NULL or a Python object, which its entry keeps alive.
    match unsafe { Obj::from_nullable(innermost().cast_mut().cast()) } {
        Some(token) => token.to_own(),
        None => py::none(),
    }
}

/// Raises an exception if the current call was cancelled or timed out, or if a signal is pending. Meant for
/// long-running Python functions that native code calls.
pub(crate) fn check_from_python() -> Res<Own> {
    match anyfn::check_signals() {
        Ok(()) => Ok(py::none()),
        Err(_) if py::error_occurred() => Err(Raised),
        Err(error) => Err(error::raise(error)),
    }
}
