//! NumPy arrays that share the memory of tensors, created through NumPy's C API.
//!
//! The extension is not linked to NumPy. NumPy publishes a table of its C functions in a capsule, and the functions
//! that are used here have had the same indices in this table since version 1.7. If the table cannot be found, tensors are
//! exported by `numpy.from_dlpack`, which takes twice as long.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::abi::{DLTensor, kDLCPU, kDLCUDAHost, kDLROCMHost};
use pyo3_ffi as ffi;

use crate::kept::compact_strides;
use crate::py::{self, Obj, Own, PyObject, Raised, Res, names};
use crate::{ndarray, tensor};

/// Indices of functions in NumPy's table.
const GET_VERSION: usize = 0;
const ARRAY_CLASS: usize = 2;
const DESCR_FROM_TYPE: usize = 45;
const NEW_FROM_DESCR: usize = 94;
const SET_BASE_OBJECT: usize = 282;

type GetVersion = unsafe extern "C" fn() -> c_uint;
type DescrFromType = unsafe extern "C-unwind" fn(c_int) -> *mut PyObject;
type NewFromDescr = unsafe extern "C-unwind" fn(
    class: *mut ffi::PyTypeObject,
    descr: *mut PyObject,
    ndim: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
    flags: c_int,
    like: *mut PyObject,
) -> *mut PyObject;
type SetBaseObject = unsafe extern "C-unwind" fn(array: *mut PyObject, base: *mut PyObject) -> c_int;

/// NumPy's table of functions, or NULL before it has been found. It lives as long as the process.
static TABLE: AtomicPtr<*mut c_void> = AtomicPtr::new(ptr::null_mut());

/// Names of the module that publishes the table, in NumPy 2 and in NumPy 1.
const MODULES: [&CStr; 2] = [c"numpy._core._multiarray_umath", c"numpy.core._multiarray_umath"];

/// Number of dimensions that arrays have in all supported versions of NumPy.
const NDIM_MAX: usize = 32;

/// Returns a NumPy array that shares the memory of a `Tensor` and keeps the `Tensor` alive. The array is read-only if
/// the tensor is. Imports NumPy if necessary.
///
/// Returns `None` for a tensor that NumPy may support in another way: with a data type that is not NumPy's own, without
/// memory, or with memory that the host cannot read; and if NumPy's table of functions is unknown.
pub(crate) fn share(this: Obj<'_>) -> Res<Option<Own>> {
    let dl = tensor::content(this)?;
    let is_host = matches!(dl.device.device_type, kDLCPU | kDLCUDAHost | kDLROCMHost);
    let Some(number) = ndarray::type_number(dl.dtype) else { return Ok(None) };
    if !is_host || dl.data.is_null() || size_of::<isize>() != size_of::<i64>() {
        return Ok(None);
    }
    let Some(table) = table()? else { return Ok(None) };
    let mut steps = [0isize; NDIM_MAX];
    if !fill_strides(dl, &mut steps) {
        return Ok(None);
    }
    // SAFETY: every table that `table` accepts has this entry.
    let descr_from_type = unsafe { entry(table, DESCR_FROM_TYPE) };
    // SAFETY: the entry is a function of this type in every version that `table` accepts.
    let descr_from_type = unsafe { transmute::<*mut c_void, DescrFromType>(descr_from_type) };
    // SAFETY: every table that `table` accepts has this entry.
    let new_from_descr = unsafe { entry(table, NEW_FROM_DESCR) };
    // SAFETY: the entry is a function of this type in every version that `table` accepts.
    let new_from_descr = unsafe { transmute::<*mut c_void, NewFromDescr>(new_from_descr) };
    // SAFETY: every table that `table` accepts has this entry.
    let set_base_object = unsafe { entry(table, SET_BASE_OBJECT) };
    // SAFETY: the entry is a function of this type in every version that `table` accepts.
    let set_base_object = unsafe { transmute::<*mut c_void, SetBaseObject>(set_base_object) };
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    let descr = py::unsafe_new_ref!(descr_from_type(number))?;
    let flags = if tensor::is_read_only(this) { 0 } else { ndarray::WRITEABLE };
    // NumPy takes over the reference to the data type, and derives the other flags from the strides and the address.
    // SAFETY: class and data type are valid, and there are `ndim` extents and strides. `Tensor` describes memory that is
    // valid while it lives; the array keeps it alive from the next call on. The result is a new reference, or NULL with
    // an exception set.
    let array = py::unsafe_new_ref!(new_from_descr(
        ndarray::CLASS.ptr().cast(),
        descr.into_ptr(),
        dl.ndim,
        dl.shape.cast_const().cast(),
        steps.as_ptr(),
        dl.data.wrapping_byte_add(dl.byte_offset as usize),
        flags,
        ptr::null_mut(),
    ))?;
    let base = this.to_own().into_ptr();
    // SAFETY: the array is new and has no base yet; the reference to the base passes to NumPy even on failure.
    py::check(py::raw::run(|| unsafe { set_base_object(array.as_ptr(), base) }))?;
    Ok(Some(array))
}

/// Writes the strides of a tensor to `steps`, in bytes. Returns false for more dimensions than NumPy supports and for
/// strides that do not fit.
fn fill_strides(dl: &DLTensor, steps: &mut [isize; NDIM_MAX]) -> bool {
    // SAFETY: the description belongs to a tensor, which keeps it valid.
    let view = unsafe { tensor::view(dl) };
    let item = i64::from(dl.dtype.bits / 8);
    let compact;
    let strides = match view.strides() {
        Some(strides) => strides,
        None => {
            compact = compact_strides(view.shape());
            &compact
        }
    };
    if strides.len() > NDIM_MAX {
        return false;
    }
    steps.iter_mut().zip(strides).all(|(step, stride)| match stride.checked_mul(item) {
        Some(bytes) => {
            *step = bytes as isize;
            true
        }
        None => false,
    })
}

#[inline]
fn table() -> Res<Option<*const *mut c_void>> {
    let table = TABLE.load(Ordering::Relaxed);
    if table.is_null() { find() } else { Ok(Some(table)) }
}

/// Finds NumPy's table of functions, and imports NumPy if necessary. Returns `None` if NumPy has no table, or a table of
/// an unknown version.
#[cold]
fn find() -> Res<Option<*const *mut c_void>> {
    py::import(c"numpy")?;
    if !ndarray::is_known() {
        return Ok(None);
    }
    for module in MODULES {
        let Some(module) = py::imported(module) else { continue };
        let Some(capsule) = module.obj().attr_opt(names::ARRAY_API.get())? else { continue };
        // SAFETY: the function accepts any object; NumPy's capsule has no name.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), ptr::null()) } == 0 {
            continue;
        }
        // SAFETY: the check above showed that the capsule is valid.
        let found: *mut *mut c_void =
            unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), ptr::null()) }.cast();
        if found.is_null() {
            return Err(Raised);
        }
        // SAFETY: the module of this name belongs to NumPy, as the class of arrays does, which only C code can define.
        let get_version = unsafe { entry(found, GET_VERSION) };
        // SAFETY: the entry at this index is a function of this type in all versions.
        let get_version = unsafe { transmute::<*mut c_void, GetVersion>(get_version) };
        // SAFETY: in all versions, the function at this index takes no arguments and returns the version.
        let major = unsafe { get_version() } >> 24;
        // SAFETY: the table has had this entry in all versions.
        let class = unsafe { entry(found, ARRAY_CLASS) };
        if matches!(major, 1 | 2) && ptr::eq(class.cast(), ndarray::CLASS.ptr()) {
            TABLE.store(found, Ordering::Relaxed);
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns an entry of NumPy's table.
///
/// # Safety
/// `table` must be NumPy's table, and have an entry at `index`.
#[inline]
unsafe fn entry(table: *const *mut c_void, index: usize) -> *mut c_void {
    // SAFETY: the caller guarantees that the table has this entry.
    let entry = unsafe { table.add(index) };
    // SAFETY: the caller guarantees that the table has this entry; NumPy fills it before it publishes the table.
    unsafe { *entry }
}
