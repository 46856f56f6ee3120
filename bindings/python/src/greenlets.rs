//! Which greenlet runs.
//!
//! The greenlets of a thread take turns on its stack: the part that belongs to one that waits is copied away. So native code that
//! lends what lies on the stack has to know on which one it is: see `anyfn.set_stack_hooks`.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;

use crate::gil;
use crate::py::{self, Own, PyObject, Raised, Res, names, raw};

const CAPSULE: &CStr = c"greenlet._C_API";

/// The beginning of the table of functions of the module `greenlet`, the same in all of its versions.
#[repr(C)]
struct Api {
    class: *mut ffi::PyTypeObject,
    exceptions: [*mut PyObject; 2],
    new: *mut c_void,
    current: unsafe extern "C-unwind" fn() -> *mut PyObject,
}

static API: AtomicPtr<Api> = AtomicPtr::new(ptr::null_mut());

/// Tells the runtime how to find out which greenlet runs.
pub(crate) fn register_hooks() {
    // A runtime without reflection lends nothing that lies on the stack.
    // SAFETY: the function gets functions of the types that it asks for.
    if let Some(set) = unsafe { anyfn::registry::find_unsafe("anyfn.set_stack_hooks") } {
        let hooks = [current as *mut c_void, release as *mut c_void];
        // SAFETY: functions of the extension, which is never unloaded; only the function above gets them.
        let [current, release] = hooks.map(|hook| unsafe { anyfn::OpaquePtr::from_ptr(hook) });
        drop(set.call((current, release)));
    }
}

/// NULL if this thread runs no greenlet but its main one; else a reference to what stands for the running one.
extern "C" fn current() -> *mut c_void {
    // SAFETY: may be called at any time; NULL if Python does not know this thread, which has no greenlets then.
    if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        return ptr::null_mut();
    }
    // The lock may have been given back for the time of a call.
    let Some(_held) = gil::enter() else { return ptr::null_mut() };
    api().and_then(running).map_or(ptr::null_mut(), |own| own.into_ptr().cast())
}

extern "C" fn release(stack: *mut c_void) {
    // SAFETY: a reference that `current` gave.
    unsafe { gil::release(stack.cast()) };
}

/// The module's table, once the module is there.
fn api() -> Option<&'static Api> {
    let mut api: *const Api = API.load(Ordering::Acquire);
    if api.is_null() {
        let module = py::imported_by(names::GREENLET.get())?;
        let capsule = or_none(module.obj().attr_opt(names::C_API.get()))??;
        // SAFETY: any object may be asked.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), CAPSULE.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: valid by the check above.
        api = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()) }.cast();
        API.store(api.cast_mut(), Ordering::Release);
    }
    // SAFETY: a capsule of this name, which only native code can make, has the module's table, a static of a library that Python
    // never unloads.
    unsafe { api.as_ref() }
}

/// What stands for the running greenlet; `None` for the main one, whose stack a thread has also before the module is imported.
fn running(api: &Api) -> Option<Own> {
    // SAFETY: the lock is held; the module's function takes nothing, and gives a new reference or NULL with an exception set.
    let greenlet = or_none(py::unsafe_new_ref!((api.current)()))?;
    // Main greenlets are of this very class, which cannot be changed; others have a parent.
    if greenlet.obj().type_ptr() == api.class
        && or_none(greenlet.obj().attr(names::PARENT.get())).is_some_and(|parent| parent.obj().is_none())
    {
        return None;
    }
    // A weak reference does not keep the greenlet. There is one for each, which a later greenlet at the same address does not get.
    // SAFETY: the lock is held; a valid object.
    let reference = or_none(py::unsafe_new_ref!(raw::PyWeakref_NewRef(greenlet.as_ptr(), ptr::null_mut())));
    Some(reference.unwrap_or(greenlet))
}

fn or_none<T>(result: Res<T>) -> Option<T> {
    result.map_err(|Raised| py::clear_error()).ok()
}
