//! Acquisition of the GIL, from any thread and at any time.
//!
//! Native code calls and releases Python functions at arbitrary times: on threads that Python has never seen, while a
//! compiled function runs without the GIL, and after the interpreter has ended. [`enter`] distinguishes these cases.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;

use crate::py::{PyObject, builtins, raw};

/// Guard that keeps the GIL held by the current thread until the guard is dropped.
pub(crate) struct Held(Before);

/// State of the thread before the GIL was acquired, which determines how it is released.
#[derive(Clone, Copy)]
pub(crate) enum Before {
    /// The thread held the GIL, so it is not released.
    Held,
    /// The thread was known to the interpreter and had released the GIL, as during a call of a native function. The GIL is
    /// acquired and released with the thread's own state, which takes less time than `PyGILState_Ensure`.
    Released,
    /// The thread was unknown to the interpreter. `PyGILState_Release` needs the value.
    Unknown(ffi::PyGILState_STATE),
}

impl Held {
    /// Leaves the GIL held. The caller must pass the result to [`leave`].
    pub(crate) fn keep(self) -> Before {
        std::mem::ManuallyDrop::new(self).0
    }
}

/// Releases the GIL if [`enter`] has acquired it.
///
/// # Safety
/// `before` must be the result of [`Held::keep`] on the same thread, used once.
#[inline(always)]
pub(crate) unsafe fn leave(before: Before) {
    match before {
        Before::Held => {}
        Before::Released => {
            // SAFETY: the GIL is held, and the thread's state stays that of this thread.
            unsafe { ffi::PyEval_SaveThread() };
        }
        // SAFETY: `enter` obtained this state on the same thread, as the caller guarantees.
        Before::Unknown(state) => unsafe { raw::PyGILState_Release(state) },
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `enter` obtained this state on the same thread, which `Held` does not leave.
        unsafe { leave(self.0) };
    }
}

/// True if the interpreter that loaded the extension has ended. If the process starts another
/// interpreter, the Python objects that native code still holds do not belong to that interpreter.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Registers a function that records the end of this interpreter. Returns false if an interpreter has already
/// ended.
pub(crate) fn watch_end() -> bool {
    extern "C" fn ended() {
        ENDED.store(true, Ordering::Relaxed);
    }
    if ENDED.load(Ordering::Relaxed) {
        return false;
    }
    // If the list of exit functions is full, a later interpreter cannot be distinguished from this one.
    // SAFETY: the function belongs to the extension, which is never unloaded.
    unsafe { ffi::Py_AtExit(Some(ended)) };
    true
}

/// Acquires the GIL unless the thread already holds it. Returns `None` if the interpreter has ended
/// or is ending.
#[inline(always)]
pub(crate) fn enter() -> Option<Held> {
    if ENDED.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the function may be called at any time; it returns NULL if Python does not know this thread.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    if !own.is_null() && own == raw::current_thread() { Some(Held(Before::Held)) } else { acquire(own) }
}

/// Returns true if this thread holds the GIL of an interpreter that has not ended.
#[inline]
pub(crate) fn is_held() -> bool {
    !ENDED.load(Ordering::Relaxed) && holds()
}

/// Returns true if the interpreter has ended or is ending.
pub(crate) fn has_ended() -> bool {
    // SAFETY: the function may be called at any time.
    ENDED.load(Ordering::Relaxed) || unsafe { ffi::Py_IsInitialized() == 0 } || raw::is_finalizing()
}

/// Returns true if this thread holds the GIL.
#[inline(always)]
pub(crate) fn holds() -> bool {
    let current = raw::current_thread();
    // SAFETY: the function may be called at any time; it returns NULL if Python does not know this thread.
    !current.is_null() && current == unsafe { ffi::PyGILState_GetThisThreadState() }
}

/// Acquires the GIL, which this thread does not hold. `own` is the state of this thread, or NULL if Python does not know the
/// thread.
#[inline(never)]
fn acquire(own: *mut ffi::PyThreadState) -> Option<Held> {
    if has_ended() {
        return None;
    }
    // In both cases, if the interpreter begins to end at this moment, the call blocks permanently instead of terminating the
    // thread underneath the native frames of the caller.
    if own.is_null() {
        // SAFETY: the interpreter is running.
        return Some(Held(Before::Unknown(unsafe { ffi::PyGILState_Ensure() })));
    }
    // SAFETY: the interpreter is running, and this is the state of this thread, which does not hold the GIL.
    unsafe { ffi::PyEval_RestoreThread(own) };
    Some(Held(Before::Released))
}

/// Releases a reference, from any thread. After the end of the interpreter, the object is not touched and the
/// reference is leaked.
///
/// # Safety
/// The caller must own a reference to `object`, which passes to this function.
pub(crate) unsafe fn release(object: *mut PyObject) {
    if let Some(_held) = enter() {
        // SAFETY: the GIL is held, and the caller transfers its reference.
        if !unsafe { builtins::release_shared(object) } {
            // SAFETY: the GIL is held, and the reference is still the caller's.
            unsafe { release_nested(object) };
        }
    }
}

/// Maximum nesting depth of releases. Releases are nested if destroying a native object releases further
/// Python objects. Deeper releases are deferred.
const RELEASES_MAX: u32 = 32;

thread_local! {
    /// Nesting depth of releases on this thread.
    static RELEASES: Cell<u32> = const { Cell::new(0) };
    /// Objects whose release is deferred until the outermost release ends. The value is a pointer
    /// from `Box`, or NULL. A plain pointer needs no destructor at the end of the thread.
    static PUT_OFF: Cell<*mut Vec<*mut PyObject>> = const { Cell::new(ptr::null_mut()) };
}

/// Releases a reference with bounded recursion. The freed object may own a native object that owns
/// a Python object, and so on. The size of the stack must not limit the length of such a chain.
///
/// # Safety
/// The conditions of [`release`] apply, and the GIL must be held.
unsafe fn release_nested(object: *mut PyObject) {
    let depth = RELEASES.get();
    if depth >= RELEASES_MAX {
        return put_off(object);
    }
    RELEASES.set(depth + 1);
    // SAFETY: the GIL is held, and the caller transfers its reference.
    unsafe { raw::Py_DecRef(object) };
    if depth == 0 && !PUT_OFF.get().is_null() {
        release_rest();
    }
    RELEASES.set(depth);
}

#[cold]
fn put_off(object: *mut PyObject) {
    if PUT_OFF.get().is_null() {
        PUT_OFF.set(Box::into_raw(Box::default()));
    }
    // SAFETY: the pointer comes from `Box` and is known to this thread only; no reference to it exists while Python code runs.
    unsafe { (*PUT_OFF.get()).push(object) };
}

#[cold]
fn release_rest() {
    loop {
        // The pointer is read again in each iteration, because a release may switch to another greenlet.
        let rest = PUT_OFF.get();
        // SAFETY: the pointer is NULL or comes from `Box` and is known to this thread only; no reference to it exists
        // while Python code runs.
        let Some(list) = (unsafe { rest.as_mut() }) else { return };
        match list.pop() {
            // SAFETY: the outermost release holds the GIL, and this reference was transferred to it.
            Some(object) => unsafe { raw::Py_DecRef(object) },
            None => {
                PUT_OFF.set(ptr::null_mut());
                // SAFETY: the pointer comes from `Box` and was unlinked above.
                drop(unsafe { Box::from_raw(rest) });
                return;
            }
        }
    }
}

/// Number of uses of native objects ([`Use`]) that are in progress on all threads. Changed only by threads that hold
/// the GIL.
static IN_PROGRESS: AtomicUsize = AtomicUsize::new(0);

/// Guard that marks a use of native objects without owned references: only their Python objects keep them
/// alive. While such a guard exists on any thread, cycles are not collected and graphs are not rewritten in
/// place: see `collect.rs` and `rewrite.rs`.
pub(crate) struct Use(PhantomData<*mut ()>);

impl Use {
    /// Begins a use of native objects without owned references to them. The caller must hold the GIL.
    #[inline(always)]
    pub(crate) fn begin() -> Use {
        IN_PROGRESS.store(IN_PROGRESS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Use(PhantomData)
    }
}

impl Drop for Use {
    #[inline(always)]
    fn drop(&mut self) {
        IN_PROGRESS.store(IN_PROGRESS.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

/// Runs native code within a [`Use`], because the code may use objects that only their Python objects keep
/// alive.
#[inline(always)]
pub(crate) fn counted<T>(call: impl FnOnce() -> T) -> T {
    let _use = Use::begin();
    call()
}

/// Returns true if a use of native objects is in progress on any thread. The caller must hold the GIL.
pub(crate) fn any_in_progress() -> bool {
    IN_PROGRESS.load(Ordering::Relaxed) != 0
}

/// Releases the GIL, runs native code, and acquires the GIL again.
#[inline]
pub(crate) fn without<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the caller holds the GIL, as does all code that Python calls.
    let state = unsafe { ffi::PyEval_SaveThread() };
    let result = body();
    // SAFETY: the state was saved above, on the same thread. If the interpreter is ending, the call blocks permanently.
    unsafe { ffi::PyEval_RestoreThread(state) };
    result
}
