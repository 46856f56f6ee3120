//! Functions of the extension that the runtime calls: to check for signals, to acquire and release the GIL, and to find
//! the owners of arrays.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;

use crate::gil::{self, Before};
use crate::py::raw;
use crate::{arrays, cancel};

/// Registers the functions through which the runtime checks for signals, acquires and releases the
/// GIL, and finds the owners of arrays. These functions remain safe to call after the interpreter
/// has ended.
pub(crate) fn register() {
    let functions: [(&CStr, *mut c_void); 4] = [
        (c"AnyfnTensorOwner", arrays::own_view as *mut _),
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
        let hooks = [unlock as *mut c_void, lock as *mut c_void];
        // SAFETY: the functions belong to the extension, which is never unloaded; only the function above receives them.
        let [unlock, lock] = hooks.map(|hook| unsafe { anyfn::OpaquePtr::from_ptr(hook) });
        drop(set.call((unlock, lock)));
    }
}

/// Releases the GIL before this thread waits for other threads. Returns the state for [`lock`], or NULL if the thread
/// does not hold the GIL.
extern "C" fn unlock() -> *mut c_void {
    if !gil::holds() {
        return ptr::null_mut();
    }
    // SAFETY: the GIL is held.
    unsafe { ffi::PyEval_SaveThread() }.cast()
}

/// Acquires the GIL again with the state that [`unlock`] returned.
extern "C" fn lock(state: *mut c_void) {
    // SAFETY: `unlock` returned this state on the same thread. If the interpreter is ending, the call blocks permanently.
    unsafe { ffi::PyEval_RestoreThread(state.cast()) };
}

/// Result of [`ensure`] if the GIL is unavailable or not needed.
const NOT_TAKEN: c_int = -1;

extern "C" fn ensure() -> c_int {
    // A thread of `call_async` handles no signals, and it can check without the GIL whether its call was stopped.
    if cancel::is_running() && !gil::holds() {
        return NOT_TAKEN;
    }
    match gil::enter() {
        None => NOT_TAKEN,
        Some(held) => match held.keep() {
            Before::Unknown(ffi::PyGILState_STATE::PyGILState_LOCKED) => 0,
            Before::Unknown(ffi::PyGILState_STATE::PyGILState_UNLOCKED) => 1,
            Before::Held => 2,
            Before::Released => 3,
        },
    }
}

extern "C" fn unensure(state: c_int) {
    let before = match state {
        0 => Before::Unknown(ffi::PyGILState_STATE::PyGILState_LOCKED),
        1 => Before::Unknown(ffi::PyGILState_STATE::PyGILState_UNLOCKED),
        3 => Before::Released,
        _ => return,
    };
    // SAFETY: `ensure` obtained this state on the same thread.
    unsafe { gil::leave(before) };
}

extern "C" fn check_signals() -> c_int {
    if let Some(code) = cancel::check() {
        return code;
    }
    if !gil::holds() {
        return 0;
    }
    // SAFETY: the GIL is held.
    unsafe { raw::PyErr_CheckSignals() }
}
