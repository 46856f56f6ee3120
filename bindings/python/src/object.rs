//! Instances of the Python class `Object`, each of which owns the handle of a native object.
//!
//! Every object that native code passes to Python becomes an instance of `Object` or of a class derived from it, with
//! the handle at a fixed offset. [`crate::classes`] selects the class, and [`crate::object_class`] makes `Object` itself.

use anyfn::ObjectRef;
use anyfn::abi::TVMFFIObject;
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};
use crate::types;

/// Memory layout of an instance of `Object`.
#[repr(C)]
pub(crate) struct Layout {
    base: PyObject,
    /// Owned handle of the native object. It is NULL in an instance of a class for native types until its `__init__`
    /// has constructed the native object, and while the object is rewritten in place.
    handle: *mut TVMFFIObject,
}

/// The class `Object`.
pub(crate) static CLASS: Global = Global::new();

/// The class `BuiltinObject`, base of the classes of built-in types. Instances of these classes always have a
/// native object.
pub(crate) static BUILTIN: Global = Global::new();

/// Borrows the handle of `object`, which must be an instance of `Object`. The handle is never NULL for an instance of
/// `PackedFunc`. A caller that uses the handle after Python code has run must have begun a [`crate::gil::Use`]
/// before that code ran.
#[inline(always)]
pub(crate) fn handle_unchecked(object: Obj<'_>) -> *mut TVMFFIObject {
    debug_assert!(object.is_instance_of(CLASS.ptr()));
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`.
    unsafe { (*object.as_ptr().cast::<Layout>()).handle }
}

/// Sets the native object of an instance that does not have a native object yet.
pub(crate) fn set_handle(object: Obj<'_>, made: ObjectRef) {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    unsafe { (*object.as_ptr().cast::<Layout>()).handle = made.into_handle().cast() };
}

/// Replaces the existing native object of an instance. The old object may still be used through its address, so
/// the new object must keep it alive.
pub(crate) fn replace_handle(object: Obj<'_>, made: ObjectRef) {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    let handle = unsafe { &mut (*object.as_ptr().cast::<Layout>()).handle };
    let old = std::mem::replace(handle, made.into_handle().cast());
    // SAFETY: the instance owned this reference.
    drop(unsafe { ObjectRef::from_owned_or_null(old.cast()) });
}

/// Borrows the handle of an object. Returns `None` if the object is not an `Object`. The handle is NULL if the native
/// object does not exist yet.
pub(crate) fn handle_of(object: Obj<'_>) -> Option<*mut TVMFFIObject> {
    object.is_instance_of(CLASS.ptr()).then(|| handle_unchecked(object))
}

/// Returns a reference to the native object of an `Object`. Returns `None` for any other object, and for an `Object`
/// without a native object.
pub(crate) fn reference_of(object: Obj<'_>) -> Option<ObjectRef> {
    let handle = handle_of(object)?;
    // SAFETY: the Python object holds a reference to the native object.
    unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) }
}

/// Makes an instance of `class` for a native object. `class` must derive from `Object`.
#[inline]
pub(crate) fn wrap_as(class: *mut ffi::PyTypeObject, object: ObjectRef) -> Res<Own> {
    let own = types::allocate(class)?;
    // SAFETY: the instance is new and not shared.
    unsafe { (*own.as_ptr().cast::<Layout>()).handle = object.into_handle().cast() };
    Ok(own)
}

/// Takes the native object out of an instance and leaves the instance without one. The object must not be in
/// use.
pub(crate) fn take_handle(object: Obj<'_>) -> *mut TVMFFIObject {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    let handle = unsafe { &mut (*object.as_ptr().cast::<Layout>()).handle };
    std::mem::replace(handle, std::ptr::null_mut())
}

/// Replaces the native object of an instance and returns the old one.
pub(crate) fn replace(object: Obj<'_>, by: ObjectRef) -> Option<ObjectRef> {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    let handle = unsafe { &mut (*object.as_ptr().cast::<Layout>()).handle };
    let old = std::mem::replace(handle, by.into_handle().cast());
    // SAFETY: the instance owned this reference.
    unsafe { ObjectRef::from_owned_or_null(old.cast()) }
}

/// Releases the handle of an instance.
///
/// # Safety
/// Must be called by Python, as the destructor of an instance.
pub(crate) unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the object is an instance of `Object`.
    let handle = unsafe { (*object.cast::<Layout>()).handle };
    // SAFETY: the instance owned this reference, and its memory is freed below.
    drop(unsafe { ObjectRef::from_owned_or_null(handle.cast()) });
    // SAFETY: this is the end of the destructor.
    unsafe { types::free(object) };
}

/// Converts a result to the return value of a C function that CPython calls: the reference, or NULL with the exception set.
#[inline(always)]
pub(crate) fn to_c(result: Res<Own>) -> *mut PyObject {
    match result {
        Ok(own) => own.into_ptr(),
        Err(Raised) => std::ptr::null_mut(),
    }
}

/// Raises `ValueError` for an instance without a native object: its `__init__` has not made a native object, or
/// the object is being rewritten in place.
#[cold]
pub(crate) fn uninitialised<T>(object: Obj<'_>) -> Res<T> {
    py::raise(py::exceptions::value_error(), &uninitialised_message(object))
}

/// Returns the message of the error that [`uninitialised`] raises.
#[cold]
pub(crate) fn uninitialised_message(object: Obj<'_>) -> String {
    format!(
        "{} object is not initialised: its __init__ created no native object, or it is being changed in place",
        object.class_name()
    )
}
