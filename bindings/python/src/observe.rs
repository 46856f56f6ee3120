//! Reports calls between Python and native code to observers: see `anyfn::observe`.

use std::ffi::c_void;

use anyfn::Any;
use anyfn::abi::TVMFFIAny;
use anyfn::observe::{self, Call};

use crate::py::{self, Obj, names};
use crate::{gil, packed, python_function};

/// Passes the address of the variable for this extension's call observer to the runtime, which sets
/// the variable. Also registers the function that returns the names of Python callables.
pub(crate) fn init() {
    // SAFETY: the runtime stores observers in it, which live as long as the process.
    let place = unsafe { observe::place() };
    let place: *mut c_void = std::ptr::from_ref(place).cast_mut().cast();
    // SAFETY: the function receives the address of such a variable, as it expects.
    let tell = unsafe { anyfn::registry::get_unsafe("ffi.ObserverPlace") };
    // SAFETY: this is a static variable of the extension, which is never unloaded.
    let place = unsafe { anyfn::OpaquePtr::from_ptr(place) };
    let told = tell.and_then(|tell| tell.call((place,)));
    // An older runtime has no observers.
    drop(told);
    // SAFETY: the runtime copies the name and calls the function with the type that it expects under that name.
    if unsafe { anyfn::abi::TVMFFIEnvRegisterCAPI(c"AnyfnFunctionName".as_ptr(), function_name as *mut _) } != 0
    {
        drop(anyfn::Error::take_raised());
    }
}

/// Describes a call from Python to a native function, for the observer. `callable` must be a
/// `PackedFunc`.
pub(crate) fn call_of(callable: Obj<'_>, function: *mut c_void, args: *const TVMFFIAny, num_args: i32) -> Call {
    let data = callable.as_ptr().cast();
    Call { function, args, num_args, door: observe::door::PYTHON, name: Some(name_of_packed), data }
}

/// Describes a call from native code to a Python object, for the observer.
pub(crate) fn call_to(function: *mut c_void, args: *const TVMFFIAny, num_args: i32) -> Call {
    Call { function, args, num_args, door: observe::door::TO_PYTHON, name: None, data: std::ptr::null_mut() }
}

/// Writes the name of a `PackedFunc` to `out`.
///
/// # Safety
/// `callable` must be a `PackedFunc` and the GIL must be held. `out` must be writable and hold no value.
unsafe extern "C" fn name_of_packed(callable: *mut c_void, out: *mut TVMFFIAny) {
    // SAFETY: guaranteed by the caller.
    let callable: Obj<'_> = unsafe { Obj::from_ptr(callable.cast()) };
    let name = anyfn::String::from(packed::name_of(callable));
    // SAFETY: guaranteed by the caller.
    unsafe { out.write(Any::from(name).into_raw()) };
}

/// Writes to `out` the name of the Python object that a native function calls, shortened to
/// `capacity` bytes. Returns the length of the name, or 0 if the function calls no Python object.
/// Called by the runtime.
unsafe extern "C" fn function_name(function: *mut c_void, out: *mut u8, capacity: usize) -> usize {
    if !python_function::is_made_here(function.cast()) {
        return 0;
    }
    let Some(_held) = gil::enter() else { return 0 };
    let Some(python) = python_function::python_callable(function.cast()) else { return 0 };
    let mut name = full_name(python);
    while name.len() > capacity {
        name.pop();
    }
    // SAFETY: the caller has room for `capacity` bytes.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), out, name.len()) };
    name.len()
}

/// Returns the name of a Python callable in the form `module.Class.method`.
fn full_name(callable: Obj<'_>) -> String {
    // An exception that is already set belongs to the caller and is preserved.
    let raised = py::take_error();
    let text = |object: Obj<'_>, name: Obj<'static>| {
        let found = object.attr(name).ok()?;
        let is_str = found.obj().type_flags() & pyo3_ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0;
        is_str.then(|| found.obj().to_text().ok()).flatten()
    };
    let name = text(callable, names::QUALNAME.get()).or_else(|| text(callable, names::NAME.get()));
    let name = match (name, text(callable, names::MODULE.get())) {
        (Some(name), Some(module)) if module != "builtins" => format!("{module}.{name}"),
        (Some(name), _) => name,
        (None, _) => format!("{} object", callable.class_name()),
    };
    py::clear_error();
    if let Some(raised) = raised {
        py::restore_error(raised);
    }
    name
}
