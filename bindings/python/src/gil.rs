//! Holding the interpreter's lock, from any thread and at any time.
//!
//! Native code calls and releases Python functions when it likes: on threads that Python has never seen, while a
//! compiled function runs without the lock, and after the interpreter has ended. [`enter`] finds out which it is.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;

use crate::cancel;
use crate::py::{PyObject, raw};

/// The thread holds the lock as long as this exists.
pub(crate) struct Held(Option<ffi::PyGILState_STATE>);

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            // SAFETY: the state that `enter` got, given back on the same thread (`Held` does not leave it).
            unsafe { raw::PyGILState_Release(state) };
        }
    }
}

/// Whether the interpreter that loaded the extension has ended. The process may begin another one, which knows nothing of the
/// objects that native code holds.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Notes the end of this interpreter when it comes; `false` if one has ended already.
pub(crate) fn watch_end() -> bool {
    extern "C" fn ended() {
        ENDED.store(true, Ordering::Relaxed);
    }
    if ENDED.load(Ordering::Relaxed) {
        return false;
    }
    // Where the list of such functions is full, a later interpreter cannot be told from this one.
    // SAFETY: a function of the extension, which is never unloaded.
    unsafe { ffi::Py_AtExit(Some(ended)) };
    true
}

/// Takes the lock unless the thread has it; `None` if the interpreter has ended or is about to.
#[inline(always)]
pub(crate) fn enter() -> Option<Held> {
    if ENDED.load(Ordering::Relaxed) {
        return None;
    }
    if holds() { Some(Held(None)) } else { enter_slow() }
}

/// Whether this thread holds the lock.
#[inline(always)]
fn holds() -> bool {
    let current = raw::current_thread();
    // SAFETY: may be called at any time; NULL if Python does not know this thread.
    !current.is_null() && current == unsafe { ffi::PyGILState_GetThisThreadState() }
}

#[cold]
fn enter_slow() -> Option<Held> {
    // SAFETY: may be called at any time.
    let initialized = unsafe { ffi::Py_IsInitialized() != 0 };
    if !initialized || raw::is_finalizing() {
        return None;
    }
    // SAFETY: the interpreter runs. Should it begin to end just now, then this waits for ever instead of ending the
    // thread under the native frames that called.
    Some(Held(Some(unsafe { ffi::PyGILState_Ensure() })))
}

/// Gives a reference back, from any thread. After the end of the interpreter the object is left alone.
///
/// # Safety
/// The caller must own a reference to `object` and gives it away.
pub(crate) unsafe fn release(object: *mut PyObject) {
    if let Some(_held) = enter() {
        // SAFETY: the lock is held, and the caller gives its reference.
        unsafe { release_nested(object) };
    }
}

/// How deep releases of Python objects by native ones nest before they are put off.
const RELEASES_MAX: u32 = 32;

thread_local! {
    /// How deep this thread is in releases.
    static RELEASES: Cell<u32> = const { Cell::new(0) };
    /// What is to be released when the outermost release is done: made by `Box`, or NULL. A plain pointer, so that a
    /// thread has no destructor to run at its end.
    static PUT_OFF: Cell<*mut Vec<*mut PyObject>> = const { Cell::new(ptr::null_mut()) };
}

/// Gives a reference back. What that frees may hold a native object that holds a Python object, and so on: a chain of any
/// length must not need a stack of any size.
///
/// # Safety
/// As for [`release`], with the lock held.
unsafe fn release_nested(object: *mut PyObject) {
    let depth = RELEASES.get();
    if depth >= RELEASES_MAX {
        return put_off(object);
    }
    RELEASES.set(depth + 1);
    // SAFETY: the lock is held, and the caller gives its reference.
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
    // SAFETY: made by `Box`; only this thread knows it, and nobody holds a reference to it while Python code runs.
    unsafe { (*PUT_OFF.get()).push(object) };
}

#[cold]
fn release_rest() {
    loop {
        // Read anew each time: what a release runs may be another greenlet.
        let rest = PUT_OFF.get();
        // SAFETY: NULL, or made by `Box`; only this thread knows it, and nobody holds a reference to it while Python code runs.
        let Some(list) = (unsafe { rest.as_mut() }) else { return };
        match list.pop() {
            // SAFETY: the lock is held by the outermost release, and this reference was given to it.
            Some(object) => unsafe { raw::Py_DecRef(object) },
            None => {
                PUT_OFF.set(ptr::null_mut());
                // SAFETY: made by `Box`, and unlinked just now.
                drop(unsafe { Box::from_raw(rest) });
                return;
            }
        }
    }
}

/// Uses of native objects that are in progress, on all threads. Changed only by threads that hold the lock.
static IN_PROGRESS: AtomicUsize = AtomicUsize::new(0);

/// As long as it exists, native objects that Python's objects hold are used without being counted: see `containers/collect.rs` and
/// `rewrite.rs`.
pub(crate) struct Use(PhantomData<*mut ()>);

impl Use {
    /// The caller holds the lock.
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

/// Runs native code that may use what Python's objects hold without counting it.
#[inline(always)]
pub(crate) fn counted<T>(call: impl FnOnce() -> T) -> T {
    let _use = Use::begin();
    call()
}

/// Whether a use of native objects is in progress on any thread. The caller holds the lock.
pub(crate) fn any_in_progress() -> bool {
    IN_PROGRESS.load(Ordering::Relaxed) != 0
}

/// Runs native code without the lock.
#[inline]
pub(crate) fn without<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the caller holds the lock, as all code that Python calls does.
    let state = unsafe { ffi::PyEval_SaveThread() };
    let result = body();
    // SAFETY: the state that was saved, on the same thread. If the interpreter is ending, this waits for ever.
    unsafe { ffi::PyEval_RestoreThread(state) };
    result
}

/// Gives the runtime the functions that it checks for signals and asks for the owners of arrays by. They stay safe to call after the interpreter's end.
pub(crate) fn register_functions() {
    let functions: [(&std::ffi::CStr, *mut std::ffi::c_void); 4] = [
        (c"AnyfnTensorOwner", crate::lower::own_view as *mut _),
        (c"PyErr_CheckSignals", check_signals as *mut _),
        (c"PyGILState_Ensure", ensure as *mut _),
        (c"PyGILState_Release", unensure as *mut _),
    ];
    for (name, function) in functions {
        // SAFETY: the runtime copies the name and calls the function by the type that the name has in Python.
        let code = unsafe { anyfn::abi::TVMFFIEnvRegisterCAPI(name.as_ptr(), function) };
        if code != 0 {
            // Signals are not checked in native loops then; nothing else depends on it.
            drop(anyfn::Error::take_raised());
        }
    }
    // A runtime without worker threads has no use for them.
    // SAFETY: the function gets functions of the types that it asks for.
    if let Some(set) = unsafe { anyfn::registry::find_unsafe("anyfn.set_wait_hooks") } {
        let hooks = [unlock as *mut std::ffi::c_void, lock as *mut std::ffi::c_void];
        // SAFETY: functions of the extension, which is never unloaded; only the function above gets them.
        let [unlock, lock] = hooks.map(|hook| unsafe { anyfn::OpaquePtr::from_ptr(hook) });
        drop(set.call((unlock, lock)));
    }
}

/// Gives the lock back before this thread waits for others; NULL if it does not hold it.
extern "C" fn unlock() -> *mut std::ffi::c_void {
    if !holds() {
        return ptr::null_mut();
    }
    // SAFETY: the lock is held.
    unsafe { ffi::PyEval_SaveThread() }.cast()
}

/// Takes the lock again.
extern "C" fn lock(state: *mut std::ffi::c_void) {
    // SAFETY: the state that `unlock` gave, on the same thread. If the interpreter is ending, this waits for ever.
    unsafe { ffi::PyEval_RestoreThread(state.cast()) };
}

/// What [`ensure`] gives when the lock is not to be had, or not needed.
const NOT_TAKEN: c_int = -1;

extern "C" fn ensure() -> c_int {
    // A thread of `call_async` handles no signals; whether its call was given up is known without the lock.
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
    // SAFETY: the state that `ensure` got, given back on the same thread.
    unsafe { raw::PyGILState_Release(state) };
}

extern "C" fn check_signals() -> c_int {
    if let Some(code) = cancel::check() {
        return code;
    }
    if !holds() {
        return 0;
    }
    // SAFETY: the lock is held.
    unsafe { raw::PyErr_CheckSignals() }
}
