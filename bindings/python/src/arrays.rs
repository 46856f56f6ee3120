//! Conversion of arrays from any Python library to tensors.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyfn::Tensor;
use anyfn::abi::{DLTensor, TVMFFIObjectHandle};

use crate::at::At;
use crate::export::export;
use crate::py::{self, Obj, Raised, Res};
use crate::{buffer, calls, dlpack, error, gil, ndarray, object};

/// Makes a tensor from any object that exposes its memory: a NumPy array, a DLPack producer or
/// capsule, or a buffer. Returns the native tensor of an object that has one.
pub(crate) fn from_any(array: Obj<'_>, at: &At<'_>) -> Res<Tensor> {
    if let Some(Ok(tensor)) = object::reference_of(array).map(Tensor::try_from_object) {
        return Ok(tensor);
    }
    if ndarray::is_array(array) {
        return ndarray::tensor(array, at);
    }
    if dlpack::is_capsule(array) {
        return dlpack::take(array, at);
    }
    if let Some(tensor) = dlpack::tensor(array, at)? {
        return Ok(tensor);
    }
    match export(array)? {
        Some(export) => buffer::tensor(array, export, at),
        None => at.raise(
            py::exceptions::type_error(),
            &format!(
                "expected an array of NumPy, an object with `__dlpack__` or a buffer, but got {}",
                array.class_name()
            ),
        ),
    }
}

/// Makes an owning tensor from a view that native code is about to keep. The view must describe an array that
/// is an argument of a call in progress on this thread. For any other view, `out` stays unchanged.
///
/// # Safety
/// Must be called by the runtime with a valid view and a writable pointer to a handle that is NULL.
pub(crate) unsafe extern "C" fn own_view(view: *mut DLTensor, out: *mut TVMFFIObjectHandle) -> c_int {
    let Some(_held) = gil::enter() else { return 0 };
    // SAFETY: the runtime passes a valid view.
    let made = catch_unwind(AssertUnwindSafe(|| match unsafe { calls::array_of_view(view) } {
        None => Ok(None),
        Some(array) => from_any(array.obj(), &At::Value).map(Some),
    }));
    match made {
        Ok(Ok(tensor)) => {
            if let Some(tensor) = tensor {
                // SAFETY: the runtime passes a writable pointer.
                unsafe { out.write(tensor.into_object().into_handle()) };
            }
            0
        }
        Ok(Err(Raised)) => error::raise_to_native(),
        Err(payload) => {
            error::raise_panic(&*payload);
            error::raise_to_native()
        }
    }
}
