//! Which greenlet runs.
//!
//! The greenlets of a thread take turns on its stack: the part that belongs to one that waits is copied away. So native code that
//! lends what lies on the stack has to know on which one it is: see `anyfn.set_stack_hooks`.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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
    let stack = match api() {
        Some(api) => running(api),
        None if is_loaded() => or_none(no_other()),
        None => None,
    };
    stack.map_or(ptr::null_mut(), |own| own.into_ptr().cast())
}

/// Whether the module's library is in the process, although the module cannot be found: there may be greenlets, but nobody can
/// tell which one runs.
fn is_loaded() -> bool {
    /// Number of libraries that had been loaded when there was none yet that is called so.
    static WITHOUT: AtomicU64 = AtomicU64::new(u64::MAX);
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the pair below, which nobody else uses during the call.
        let found = unsafe { &mut *found.cast::<(u64, bool)>() };
        // SAFETY: the system passes a valid description.
        let info = unsafe { &*info };
        found.0 = info.dlpi_adds;
        if WITHOUT.load(Ordering::Relaxed) == found.0 {
            return 1;
        }
        if !info.dlpi_name.is_null() {
            // SAFETY: the name of a library that is loaded.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
            let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            found.1 |= file.starts_with(b"_greenlet.");
        }
        c_int::from(found.1)
    }
    let mut found = (0_u64, false);
    // SAFETY: the function gets what it asks for, during the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    if !found.1 {
        WITHOUT.store(found.0, Ordering::Relaxed);
    }
    found.1
}

/// What stands for a stack that may be any: equal to no other one, so that nothing that lies on a stack is lent.
fn no_other() -> Res<Own> {
    // SAFETY: the lock is held; the class of all objects is called without arguments.
    py::unsafe_new_ref!(ffi::PyObject_CallObject((&raw mut ffi::PyBaseObject_Type).cast(), ptr::null_mut()))
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
