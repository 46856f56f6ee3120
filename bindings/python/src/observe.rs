//! Telling who watches of calls between Python and native code: see `anyfn::observe`.

use std::ffi::c_void;

use anyfn::Any;
use anyfn::abi::TVMFFIAny;
use anyfn::observe::{self, Call};

use crate::py::{self, Obj, names};
use crate::{callback, function, gil};

/// Has the runtime say here whether somebody watches.
pub(crate) fn init() {
    // SAFETY: the runtime stores observers there, which live as long as the process.
    let place = unsafe { observe::place() };
    let place: *mut c_void = std::ptr::from_ref(place).cast_mut().cast();
    // SAFETY: the function gets the address of such a variable, as it asks for.
    let tell = unsafe { anyfn::registry::get_unsafe("ffi.ObserverPlace") };
    // SAFETY: a static variable of the extension, which is never unloaded.
    let place = unsafe { anyfn::OpaquePtr::from_ptr(place) };
    let told = tell.and_then(|tell| tell.call((place,)));
    // A runtime of before has no observers.
    drop(told);
    // SAFETY: the runtime copies the name and calls the function by the type that it has for it.
    if unsafe { anyfn::abi::TVMFFIEnvRegisterCAPI(c"AnyfnFunctionName".as_ptr(), function_name as *mut _) } != 0
    {
        drop(anyfn::Error::take_raised());
    }
}

/// A call of `callable`, a `PackedFunc`, by Python.
pub(crate) fn call_of(callable: Obj<'_>, function: *mut c_void, args: *const TVMFFIAny, num_args: i32) -> Call {
    let data = callable.as_ptr().cast();
    Call { function, args, num_args, door: observe::door::PYTHON, name: Some(name_of_packed), data }
}

/// A call of a Python object by native code.
pub(crate) fn call_to(function: *mut c_void, args: *const TVMFFIAny, num_args: i32) -> Call {
    Call { function, args, num_args, door: observe::door::TO_PYTHON, name: None, data: std::ptr::null_mut() }
}

/// # Safety
/// `callable` must be a `PackedFunc` and the lock held; `out` must be writable and hold nothing.
unsafe extern "C" fn name_of_packed(callable: *mut c_void, out: *mut TVMFFIAny) {
    // SAFETY: as the caller guarantees.
    let callable: Obj<'_> = unsafe { Obj::from_ptr(callable.cast()) };
    let name = anyfn::String::from(function::name_of(callable));
    // SAFETY: as the caller guarantees.
    unsafe { out.write(Any::from(name).into_raw()) };
}

/// What the runtime calls for the name of a function: writes it and gives its length, 0 if the function is not Python's.
unsafe extern "C" fn function_name(function: *mut c_void, out: *mut u8, capacity: usize) -> usize {
    if !callback::is_made_here(function.cast()) {
        return 0;
    }
    let Some(_held) = gil::enter() else { return 0 };
    let Some(python) = callback::python_callable(function.cast()) else { return 0 };
    let mut name = full_name(python);
    while name.len() > capacity {
        name.pop();
    }
    // SAFETY: the caller has room for `capacity` bytes.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), out, name.len()) };
    name.len()
}

/// `module.Class.method` of a Python callable.
fn full_name(callable: Obj<'_>) -> String {
    // What is raised already is not ours.
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
