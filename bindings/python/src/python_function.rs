//! Native function objects that call Python callables.
//!
//! They are made here and not by the runtime, which saves one function call in each invocation. Their deleter shows
//! that they were made here.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;

use anyfn::abi::{
    AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject,
    TVMFFISafeCallType, kTVMFFIFunction, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, ObjectRef};
use pyo3_ffi as ffi;

use crate::gil;
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};

/// A native function object that calls a Python callable.
#[repr(C)]
pub(crate) struct PythonFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    /// Extension of the function object, through which the runtime queries the signature.
    ext: &'static AnyfnFunctionExt,
    /// Owned reference to the Python object that is called.
    pub(crate) callable: *mut PyObject,
}

/// The classes of Python functions and of bound methods: `types.FunctionType` and `types.MethodType`.
pub(crate) static PLAIN: [Global; 2] = [const { Global::new() }; 2];

/// Returns true if `class` is the class of Python functions, of bound methods, or of functions
/// written in C.
pub(crate) fn is_plain_function(class: *mut ffi::PyTypeObject) -> bool {
    class == &raw mut ffi::PyCFunction_Type || PLAIN.iter().any(|plain| ptr::eq(plain.ptr(), class.cast()))
}

/// The `safe_call` function that all function objects made by this module share. [`init`] sets it,
/// because the function is defined in `callback.rs`, which depends on this module.
static SAFE_CALL: OnceLock<TVMFFISafeCallType> = OnceLock::new();

/// Sets the `safe_call` function that all function objects made by this module share.
pub(crate) fn init(safe_call: TVMFFISafeCallType) {
    // A second initialisation passes the same function.
    let _ = SAFE_CALL.set(safe_call);
}

/// Makes a native function that calls `callable` and owns a reference to it.
fn make(callable: Obj<'_>, safe_call: TVMFFISafeCallType) -> Option<ObjectRef> {
    let function = Box::new(PythonFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: OBJECT_FLAG_FUNCTION_EXT,
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call, cpp_call: ptr::null_mut() },
        ext: &EXTENSION,
        callable: callable.to_own().into_ptr(),
    });
    let function = Box::into_raw(function);
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    unsafe { ObjectRef::from_owned_or_null(function.cast()) }
}

/// Makes a native function that calls `callable`, and returns it as a value.
pub(crate) fn function_object(callable: Obj<'_>) -> Res<Any> {
    let Some(safe_call) = SAFE_CALL.get() else {
        return py::raise(py::exceptions::system_error(), "the extension is not initialised");
    };
    match make(callable, *safe_call) {
        Some(function) => Ok(function.into()),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Deleter of function objects. Depending on `flags`, releases the callable, frees the memory of
/// the function object, or both. May run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let function: *mut PythonFunction = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, and the memory still exists.
        let callable = unsafe { (*function).callable };
        // SAFETY: the function owned this reference.
        unsafe { gil::release(callable) };
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: the pointer comes from `Box`, and the content no longer owns anything.
        drop(unsafe { Box::from_raw(function) });
    }
}

/// Returns true if a native function was made by this module and so calls a Python object.
pub(crate) fn is_python(function: &ObjectRef) -> bool {
    python_function(function.as_handle().cast()).is_some()
}

/// Returns true if the object at this address is a function that was made by this module and so calls a Python
/// object.
pub(crate) fn is_made_here(function: *mut TVMFFIObject) -> bool {
    python_function(function).is_some()
}

/// Returns the Python object that a native function calls, or `None` if the object is not a function that this
/// module made.
pub(crate) fn python_callable<'a>(function: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: `python_function` has checked the type of the object.
    let callable = unsafe { (*python_function(function)?).callable };
    // SAFETY: the function keeps the object alive; the caller holds the GIL and the function.
    unsafe { Obj::from_nullable(callable) }
}

/// Removes the Python object from a native function and returns the object. Returns `None` if this
/// module did not make the function. The caller must be the only owner of the function. Calling the
/// function afterwards is an error.
pub(crate) fn break_up(function: *mut TVMFFIObject) -> Option<Own> {
    let function = python_function(function)?;
    let none = py::none().into_ptr();
    // SAFETY: `python_function` has checked the type of the object, the GIL is held, and no call of the function is
    // in progress.
    let callable = unsafe { std::mem::replace(&mut (*function).callable, none) };
    // SAFETY: the function owned this reference.
    unsafe { Own::from_nullable(callable) }
}

fn python_function(function: *mut TVMFFIObject) -> Option<*mut PythonFunction> {
    // SAFETY: the caller has a valid object.
    if unsafe { (*function).type_index } != kTVMFFIFunction {
        return None;
    }
    // SAFETY: the caller has a valid object, whose deleter does not change.
    let deleter = unsafe { (*function).deleter }?;
    ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)).then_some(function.cast())
}

/// Python function `_signature.describe`, which returns the signature of a Python callable as JSON.
pub(crate) static DESCRIBE: Global = Global::new();

/// Extension that all function objects made by this module share. Through it, the runtime queries
/// their signatures.
static EXTENSION: AnyfnFunctionExt =
    AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 0, signature: Some(describe_python) };

/// Writes the signature of a Python function to `result` as JSON. Leaves `result` at None if the function has no
/// signature or the interpreter has ended.
unsafe extern "C" fn describe_python(handle: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    let Some(_held) = gil::enter() else { return 0 };
    let described = catch_unwind(AssertUnwindSafe(|| {
        let (Some(callable), Some(describe)) = (python_callable(handle.cast()), DESCRIBE.try_get()) else {
            return Ok(None);
        };
        let text = describe.call(&[callable])?;
        if text.obj().is_none() {
            return Ok(None);
        }
        text.obj().to_text().map(|text| Some(anyfn::String::from(text)))
    }));
    match described {
        Ok(Ok(Some(text))) => {
            // SAFETY: the caller passes a writable result that holds no value.
            unsafe { result.write(Any::from(text).into_raw()) };
        }
        Ok(Ok(None)) | Err(_) => {}
        // A callable that cannot be described has no signature.
        Ok(Err(Raised)) => py::clear_error(),
    }
    0
}
