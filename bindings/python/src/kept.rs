//! Tensor objects that show the memory of a Python object and keep that object alive.
//!
//! They are made here, not by the runtime. That saves an allocation, and their deleter identifies them, so an array
//! that native code returns can become the same array again.

use std::ffi::{c_int, c_void};
use std::ptr;

use anyfn::abi::{
    DLManagedTensorVersioned, DLTensor, OBJECT_FLAG_TENSOR_READ_ONLY, TVMFFIObject,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
    kTVMFFITensor,
};
use anyfn::{ObjectRef, Tensor};

use crate::buffer::Export;
use crate::gil;
use crate::py::{self, Obj, Own, PyObject, Res};

/// Owner of the memory, besides the Python object.
pub(crate) enum Lender {
    /// The Python object itself.
    Object,
    /// A DLPack tensor exported by the object; released with the tensor.
    DLPack(*mut DLManagedTensorVersioned),
    /// A buffer exported by the object; released with the tensor.
    Buffer(Export),
    /// A Python object whose memory contains that of the tensor, so the tensor does not represent it; released with the tensor.
    Part(Own),
    /// A tensor object; released with the tensor.
    Tensor(Tensor),
}

#[repr(C)]
struct Kept {
    header: TVMFFIObject,
    tensor: DLTensor,
    /// Owned reference to the Python object.
    object: *mut PyObject,
    lender: Lender,
    /// Shape and strides.
    words: Box<[i64]>,
}

/// Makes a tensor from a description, whose shape and strides are copied. The tensor keeps `object` alive: the array
/// that it represents, or None.
///
/// If `read_only` is true, the tensor is flagged so that every recipient can tell that its memory must not be written.
pub(crate) fn make(described: &DLTensor, object: Obj<'_>, lender: Lender, read_only: bool) -> Res<Tensor> {
    // SAFETY: the caller describes memory that `lender` keeps alive.
    let view = unsafe { anyfn::TensorView::from_dl(described) };
    let shape = view.shape();
    let strides = view.strides().map_or_else(|| compact_strides(shape), <[i64]>::to_vec);
    let mut words = [shape, &strides].concat().into_boxed_slice();
    let mut tensor = *described;
    tensor.shape = words.as_mut_ptr();
    tensor.strides = words[shape.len()..].as_mut_ptr();
    let kept = Box::new(Kept {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFITensor,
            flags: if read_only { OBJECT_FLAG_TENSOR_READ_ONLY } else { 0 },
            deleter: Some(delete),
        },
        tensor,
        object: object.to_own().into_ptr(),
        lender,
        words,
    });
    let kept = Box::into_raw(kept);
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(kept, kTVMFFITensor) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    let made = unsafe { ObjectRef::from_owned_or_null(kept.cast()) };
    match made.and_then(|object| Tensor::try_from_object(object).ok()) {
        Some(tensor) => Ok(tensor),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Returns the strides of a compact tensor (row-major order).
pub(crate) fn compact_strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// Returns the Python object that a tensor represents, if the tensor was made here for one.
pub(crate) fn object_of<'a>(tensor: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: the caller has a valid object.
    let deleter = unsafe { (*tensor).deleter }?;
    if !ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)) {
        return None;
    }
    // SAFETY: the deleter shows that the object is a `Kept`.
    let object = unsafe { (*tensor.cast::<Kept>()).object };
    // SAFETY: the tensor keeps the object alive; the caller holds the GIL and the tensor.
    unsafe { Obj::from_nullable(object) }.filter(|object| !object.is_none())
}

/// Releases the objects that the tensor keeps, its memory, or both. May run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let kept: *mut Kept = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, so no other code uses the content behind the header, and the memory
        // still exists.
        let lender = unsafe { std::mem::replace(&mut (*kept).lender, Lender::Object) };
        match lender {
            Lender::Object => {}
            Lender::DLPack(tensor) => {
                // SAFETY: ownership was transferred to the tensor, which releases it once, here.
                unsafe { release_managed(tensor) };
            }
            Lender::Buffer(export) => export.release(),
            // SAFETY: the tensor owned this reference.
            Lender::Part(object) => unsafe { gil::release(object.into_ptr()) },
            Lender::Tensor(tensor) => drop(tensor),
        }
        // SAFETY: no strong reference is left, and the memory still exists.
        let object = unsafe { (*kept).object };
        // SAFETY: the tensor owned this reference.
        unsafe { gil::release(object) };
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(kept, kTVMFFITensor) };
        // SAFETY: the pointer comes from `Box`, and the objects that it kept have been released.
        drop(unsafe { Box::from_raw(kept) });
    }
}

/// Releases a DLPack tensor whose ownership was transferred to the caller.
///
/// # Safety
/// The tensor must be valid and must not be used again.
pub(crate) unsafe fn release_managed(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: guaranteed by the caller.
    if let Some(deleter) = unsafe { (*tensor).deleter } {
        // SAFETY: this is the tensor's own deleter, called once.
        unsafe { deleter(tensor) };
    }
}

/// Returns true if the memory of a tensor must not be written.
#[inline]
pub(crate) fn is_read_only(tensor: *mut TVMFFIObject) -> bool {
    // SAFETY: the caller has a valid object; other implementations leave the flags zero.
    unsafe { (*tensor).flags & OBJECT_FLAG_TENSOR_READ_ONLY != 0 }
}
