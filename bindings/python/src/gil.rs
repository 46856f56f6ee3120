//! Acquisition of the GIL, from any thread and at any time.
//!
//! Native code calls and releases Python functions at arbitrary times: on threads that Python has never seen, while a
//! compiled function runs without the GIL, and after the interpreter has ended. [`enter`] distinguishes these cases.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;

use crate::cancel;
use crate::py::{PyObject, raw};

/// Guard that keeps the GIL held by the current thread.
pub(crate) struct Held(Option<ffi::PyGILState_STATE>);

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            // SAFETY: `enter` obtained this state on the same thread, which `Held` does not leave.
            unsafe { raw::PyGILState_Release(state) };
        }
    }
}

/// True if the interpreter that loaded the extension has ended. The process may start another interpreter, which does
/// not know the objects that native code holds.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Arranges for the end of this interpreter to be recorded. Returns false if an interpreter has already ended.
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

/// Acquires the GIL unless the thread already holds it. Returns `None` if the interpreter has ended or is about to end.
#[inline(always)]
pub(crate) fn enter() -> Option<Held> {
    if ENDED.load(Ordering::Relaxed) {
        return None;
    }
    if holds() { Some(Held(None)) } else { enter_slow() }
}

/// Returns true if this thread holds the GIL.
#[inline(always)]
fn holds() -> bool {
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

/// Maximum depth of nested releases, in which destroying a native object releases a Python object. Deeper releases
/// are deferred.
const RELEASES_MAX: u32 = 32;

thread_local! {
    /// Nesting depth of releases on this thread.
    static RELEASES: Cell<u32> = const { Cell::new(0) };
    /// Objects whose release is deferred until the outermost release ends: a pointer from `Box`, or NULL. It is a
    /// plain pointer so that the thread has no destructor to run at its end.
    static PUT_OFF: Cell<*mut Vec<*mut PyObject>> = const { Cell::new(ptr::null_mut()) };
}

/// Releases a reference with bounded recursion. The freed object may own a native object that owns a Python object,
/// and so on: the length of such a chain must not be limited by the size of the stack.
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

/// Guard for a use of native objects that Python objects own, without counted references to them. While a guard
/// exists on any thread, cycles are not collected and graphs are not rewritten in place: see `containers/collect.rs`
/// and `rewrite.rs`.
pub(crate) struct Use(PhantomData<*mut ()>);

impl Use {
    /// Begins a use of native objects. The caller must hold the GIL.
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

/// Runs native code as a use of native objects ([`Use`]), because it may use objects that Python objects own without
/// references of its own.
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

/// Registers with the runtime the functions by which it checks for signals, acquires and releases the GIL, and finds
/// the owners of arrays. They remain safe to call after the interpreter has ended.
pub(crate) fn register_functions() {
    let functions: [(&std::ffi::CStr, *mut std::ffi::c_void); 4] = [
        (c"AnyfnTensorOwner", crate::lower::own_view as *mut _),
        (c"PyErr_CheckSignals", check_signals as *mut _),
        (c"PyGILState_Ensure", ensure as *mut _),
        (c"PyGILState_Release", unensure as *mut _),
    ];
    for (name, function) in functions {
        // SAFETY: the runtime copies the name and calls the function with the type that the function of this name has
        // in Python.
        let code = unsafe { anyfn::abi::TVMFFIEnvRegisterCAPI(name.as_ptr(), function) };
        if code != 0 {
            // Native loops then do not check for signals; nothing else depends on it.
            drop(anyfn::Error::take_raised());
        }
    }
    // A runtime without worker threads has no use for these hooks.
    // SAFETY: the function receives functions of the types that it expects.
    if let Some(set) = unsafe { anyfn::registry::find_unsafe("anyfn.set_wait_hooks") } {
        let hooks = [unlock as *mut std::ffi::c_void, lock as *mut std::ffi::c_void];
        // SAFETY: the functions belong to the extension, which is never unloaded; only the function above receives them.
        let [unlock, lock] = hooks.map(|hook| unsafe { anyfn::OpaquePtr::from_ptr(hook) });
        drop(set.call((unlock, lock)));
    }
}

/// Releases the GIL before this thread waits for other threads. Returns the state for [`lock`], or NULL if the thread
/// does not hold the GIL.
extern "C" fn unlock() -> *mut std::ffi::c_void {
    if !holds() {
        return ptr::null_mut();
    }
    // SAFETY: the GIL is held.
    unsafe { ffi::PyEval_SaveThread() }.cast()
}

/// Acquires the GIL again with the state that [`unlock`] returned.
extern "C" fn lock(state: *mut std::ffi::c_void) {
    // SAFETY: `unlock` returned this state on the same thread. If the interpreter is ending, the call blocks permanently.
    unsafe { ffi::PyEval_RestoreThread(state.cast()) };
}

/// Result of [`ensure`] if the GIL is unavailable or not needed.
const NOT_TAKEN: c_int = -1;

extern "C" fn ensure() -> c_int {
    // A thread of `call_async` handles no signals, and it can check without the GIL whether its call was stopped.
    if cancel::is_running() && !holds() {
        return NOT_TAKEN;
    }
    match enter() {
        None => NOT_TAKEN,
        Some(held) => {
            let state = held.0;
            std::mem::forget(held);
            match state {
                Some(ffi::PyGILState_STATE::PyGILState_UNLOCKED) => 1,
                Some(ffi::PyGILState_STATE::PyGILState_LOCKED) => 0,
                None => 2,
            }
        }
    }
}

extern "C" fn unensure(state: c_int) {
    let state = match state {
        0 => ffi::PyGILState_STATE::PyGILState_LOCKED,
        1 => ffi::PyGILState_STATE::PyGILState_UNLOCKED,
        _ => return,
    };
    // SAFETY: `ensure` obtained this state on the same thread.
    unsafe { raw::PyGILState_Release(state) };
}

extern "C" fn check_signals() -> c_int {
    if let Some(code) = cancel::check() {
        return code;
    }
    if !holds() {
        return 0;
    }
    // SAFETY: the GIL is held.
    unsafe { raw::PyErr_CheckSignals() }
}
