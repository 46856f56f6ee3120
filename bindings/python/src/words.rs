//! Small values that fit in one word: data types, devices and opaque pointers.
//!
//! The classes of data types and devices are written in Python and derived from `_core.Word`, which
//! only stores the 64 bits at a fixed offset. An opaque pointer is a `ctypes.c_void_p`.

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::types::{self, Class};

#[repr(C)]
struct Layout {
    base: PyObject,
    bits: u64,
}

/// The class `_core.Word`, from which the classes of data types and devices are derived.
pub(crate) static CLASS: Global = Global::new();
/// The class `anyfn.dtype`, which is written in Python.
pub(crate) static DTYPE: Global = Global::new();
/// The class `anyfn.device`, which is written in Python.
pub(crate) static DEVICE: Global = Global::new();
/// The class `ctypes.c_void_p`, which is looked up on first use.
static VOID_POINTER: Global = Global::new();
/// Base class of the typed pointers of `ctypes`.
static TYPED_POINTER: Global = Global::new();
/// The function `ctypes.cast`.
static CAST: Global = Global::new();

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let class = Class {
        name: c"anyfn._core.Word",
        size: size_of::<Layout>(),
        base_for_others: true,
        flags: 0,
        base: None,
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_hash, hash as *mut c_void),
            (ffi::Py_tp_richcompare, compare as *mut c_void),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

/// Makes an instance of `class`, which must derive from `Word`, with the given bits.
pub(crate) fn make(class: Obj<'_>, bits: u64) -> Res<Own> {
    let own = types::allocate(class.as_ptr().cast())?;
    // SAFETY: the instance is new and not shared.
    unsafe { (*own.as_ptr().cast::<Layout>()).bits = bits };
    Ok(own)
}

/// Returns the bits of `object`, which must be an instance of `Word`.
#[inline]
pub(crate) fn bits(object: Obj<'_>) -> u64 {
    // SAFETY: instances of `Word` and of derived classes begin with `Layout`.
    unsafe { (*object.as_ptr().cast::<Layout>()).bits }
}

/// Returns the address that a pointer object of `ctypes` contains. The object is a `c_void_p` or a
/// typed pointer. Returns `None` for any other object. Does not import `ctypes`.
pub(crate) fn address_of(object: Obj<'_>) -> Res<Option<u64>> {
    if VOID_POINTER.try_get().is_none() {
        let Some(ctypes) = py::imported(c"ctypes") else { return Ok(None) };
        if find_pointers(ctypes.obj()).is_err() {
            py::clear_error();
            return Ok(None);
        }
    }
    let pointer;
    let object = if object.is_instance_of(VOID_POINTER.ptr()) {
        object
    } else if object.is_instance_of(TYPED_POINTER.ptr()) {
        pointer = CAST.get().call(&[object, VOID_POINTER.get()])?;
        pointer.obj()
    } else {
        return Ok(None);
    };
    let value = object.attr(names::VALUE.get())?;
    if value.obj().is_none() { Ok(Some(0)) } else { value.obj().address().map(Some) }
}

/// Makes a `ctypes.c_void_p` from an address, or returns None for NULL.
pub(crate) fn void_pointer(address: u64) -> Res<Own> {
    if address == 0 {
        return Ok(py::none());
    }
    if VOID_POINTER.try_get().is_none() {
        find_pointers(py::import(c"ctypes")?.obj())?;
    }
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    let address = py::unsafe_new_ref!(ffi::PyLong_FromUnsignedLongLong(address))?;
    VOID_POINTER.get().call(&[address.obj()])
}

fn find_pointers(ctypes: Obj<'_>) -> Res<()> {
    let find = |slot: &Global, name| {
        let name = py::intern(name)?;
        slot.set(ctypes.attr(name.obj())?);
        Ok::<(), Raised>(())
    };
    find(&TYPED_POINTER, c"_Pointer")?;
    find(&CAST, c"cast")?;
    find(&VOID_POINTER, c"c_void_p")
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: this is the end of the destructor; there is nothing to release.
    unsafe { types::free(object) };
}

unsafe extern "C" fn hash(object: *mut PyObject) -> ffi::Py_hash_t {
    // SAFETY: the object is an instance of `Word`.
    let bits = unsafe { (*object.cast::<Layout>()).bits };
    // The value -1 is reserved for errors.
    ((bits.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 1) as ffi::Py_hash_t
}

unsafe extern "C" fn compare(left: *mut PyObject, right: *mut PyObject, operation: c_int) -> *mut PyObject {
    // SAFETY: Python passes valid objects and holds the GIL.
    let left: Obj<'_> = unsafe { Obj::from_ptr(left) };
    // SAFETY: Python passes a valid object of any class.
    let right: Obj<'_> = unsafe { Obj::from_ptr(right) };
    let comparable = left.type_ptr() == right.type_ptr();
    let result = match operation {
        ffi::Py_EQ if comparable => py::boolean(bits(left) == bits(right)),
        ffi::Py_NE if comparable => py::boolean(bits(left) != bits(right)),
        _ => py::not_implemented(),
    };
    result.into_ptr()
}
