//! Identification of the running greenlet.
//!
//! The greenlets of a thread take turns on its stack: while a greenlet waits, its part of the stack is copied elsewhere. Native
//! code that passes out borrowed stack memory must therefore know on which greenlet it runs: see `anyfn.set_stack_hooks`.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pyo3_ffi as ffi;

use crate::gil;
use crate::py::{self, Own, PyObject, Raised, Res, names, raw};

const CAPSULE: &CStr = c"greenlet._C_API";

/// First members of the function table of the module `greenlet`. They are the same in all versions of the
/// module.
#[repr(C)]
struct Api {
    class: *mut ffi::PyTypeObject,
    exceptions: [*mut PyObject; 2],
    new: *mut c_void,
    current: unsafe extern "C-unwind" fn() -> *mut PyObject,
}

static API: AtomicPtr<Api> = AtomicPtr::new(ptr::null_mut());

/// Registers with the runtime the functions that identify the running greenlet.
pub(crate) fn register_hooks() {
    // A runtime without reflection passes out no stack memory.
    // SAFETY: the function receives functions of the types that it expects.
    if let Some(set) = unsafe { anyfn::registry::find_unsafe("anyfn.set_stack_hooks") } {
        let hooks = [current as *mut c_void, release as *mut c_void];
        // SAFETY: the functions belong to the extension, which is never unloaded; only the function above receives them.
        let [current, release] = hooks.map(|hook| unsafe { anyfn::OpaquePtr::from_ptr(hook) });
        drop(set.call((current, release)));
    }
}

/// Returns an owned reference to an object that identifies the running greenlet. Returns NULL if the thread runs its
/// main greenlet or has no greenlets.
extern "C" fn current() -> *mut c_void {
    // SAFETY: the function may be called at any time. It returns NULL if Python does not know this thread, which then
    // has no greenlets.
    if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        return ptr::null_mut();
    }
    // The GIL may have been released for the duration of a call.
    let Some(_held) = gil::enter() else { return ptr::null_mut() };
    let stack = match api() {
        Some(api) => running(api),
        None if is_loaded() => or_none(no_other()),
        None => None,
    };
    stack.map_or(ptr::null_mut(), |own| own.into_ptr().cast())
}

/// Returns true if the shared library of the module `greenlet` is loaded. Called if the Python
/// module cannot be found. If the library is loaded nevertheless, greenlets may exist, but the
/// running greenlet cannot be determined.
fn is_loaded() -> bool {
    /// Number of libraries that the process had loaded when the last search for the library of `greenlet`
    /// failed. The next search is needed only once this number has changed.
    static WITHOUT: AtomicU64 = AtomicU64::new(u64::MAX);
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: this is the pair below, which no other code uses during the call.
        let found = unsafe { &mut *found.cast::<(u64, bool)>() };
        // SAFETY: the system passes a valid description.
        let info = unsafe { &*info };
        found.0 = info.dlpi_adds;
        if WITHOUT.load(Ordering::Relaxed) == found.0 {
            return 1;
        }
        if !info.dlpi_name.is_null() {
            // SAFETY: this is the name of a loaded library.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
            let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            found.1 |= file.starts_with(b"_greenlet.");
        }
        c_int::from(found.1)
    }
    let mut found = (0_u64, false);
    // SAFETY: the function receives a pointer to the pair that it expects, valid during the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    if !found.1 {
        WITHOUT.store(found.0, Ordering::Relaxed);
    }
    found.1
}

/// Makes an object that represents an unidentified stack. The object equals no other object, so the runtime
/// does not expose pointers into that stack.
fn no_other() -> Res<Own> {
    // SAFETY: the GIL is held, and `object` is called without arguments.
    py::unsafe_new_ref!(ffi::PyObject_CallObject((&raw mut ffi::PyBaseObject_Type).cast(), ptr::null_mut()))
}

extern "C" fn release(stack: *mut c_void) {
    // SAFETY: `current` returned this reference.
    unsafe { gil::release(stack.cast()) };
}

/// Returns the function table of the module `greenlet` once the module is imported.
fn api() -> Option<&'static Api> {
    let mut api: *const Api = API.load(Ordering::Acquire);
    if api.is_null() {
        let module = py::imported_by(names::GREENLET.get())?;
        let capsule = or_none(module.obj().attr_opt(names::C_API.get()))??;
        // SAFETY: the function accepts any object.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), CAPSULE.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: the check above showed that the capsule is valid.
        api = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()) }.cast();
        API.store(api.cast_mut(), Ordering::Release);
    }
    // SAFETY: a capsule with this name, which only native code can make, contains the module's table: a static
    // variable of a library that Python never unloads.
    unsafe { api.as_ref() }
}

/// Returns an object that identifies the running greenlet. Returns `None` for the main greenlet, which runs
/// on the thread's own stack.
fn running(api: &Api) -> Option<Own> {
    // SAFETY: the GIL is held; the module's function takes no arguments and returns a new reference, or NULL with an
    // exception set.
    let greenlet = or_none(py::unsafe_new_ref!((api.current)()))?;
    // Main greenlets have exactly this class, which cannot be changed, and no parent; all other greenlets have a parent.
    if greenlet.obj().type_ptr() == api.class
        && or_none(greenlet.obj().attr(names::PARENT.get())).is_some_and(|parent| parent.obj().is_none())
    {
        return None;
    }
    // A weak reference does not keep the greenlet alive. Each greenlet has its own, which a later greenlet at the
    // same address does not get.
    // SAFETY: the GIL is held and the object is valid.
    let reference = or_none(py::unsafe_new_ref!(raw::PyWeakref_NewRef(greenlet.as_ptr(), ptr::null_mut())));
    Some(reference.unwrap_or(greenlet))
}

fn or_none<T>(result: Res<T>) -> Option<T> {
    result.map_err(|Raised| py::clear_error()).ok()
}
