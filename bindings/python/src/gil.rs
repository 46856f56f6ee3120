//! Acquisition of the GIL, from any thread and at any time.
//!
//! Native code calls and releases Python functions at arbitrary times: on threads that Python has never seen, while a
//! compiled function runs without the GIL, and after the interpreter has ended. [`enter`] distinguishes these cases.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;

use crate::py::{PyObject, raw};

/// Guard that keeps the GIL held by the current thread until the guard is dropped.
pub(crate) struct Held(Option<ffi::PyGILState_STATE>);

impl Held {
    /// Leaves the GIL held. Returns the state with which the caller must release it, or `None` if the thread
    /// already held the GIL before.
    pub(crate) fn keep(self) -> Option<ffi::PyGILState_STATE> {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            // SAFETY: `enter` obtained this state on the same thread, which `Held` does not leave.
            unsafe { raw::PyGILState_Release(state) };
        }
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
    if holds() { Some(Held(None)) } else { enter_slow() }
}

/// Returns true if this thread holds the GIL.
#[inline(always)]
pub(crate) fn holds() -> bool {
    let current = raw::current_thread();
    // SAFETY: the function may be called at any time; it returns NULL if Python does not know this thread.
    !current.is_null() && current == unsafe { ffi::PyGILState_GetThisThreadState() }
}

#[cold]
fn enter_slow() -> Option<Held> {
    // SAFETY: the function may be called at any time.
    let initialized = unsafe { ffi::Py_IsInitialized() != 0 };
    if !initialized || raw::is_finalizing() {
        return None;
    }
    // SAFETY: the interpreter is running. If it begins to end at this moment, the call blocks permanently instead of
    // terminating the thread underneath the native frames of the caller.
    Some(Held(Some(unsafe { ffi::PyGILState_Ensure() })))
}

/// Releases a reference, from any thread. After the end of the interpreter, the object is not touched and the
/// reference is leaked.
///
/// # Safety
/// The caller must own a reference to `object`, which passes to this function.
pub(crate) unsafe fn release(object: *mut PyObject) {
    if let Some(_held) = enter() {
        // SAFETY: the GIL is held, and the caller transfers its reference.
        unsafe { release_nested(object) };
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
