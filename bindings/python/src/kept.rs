//! Tensor objects that refer to the memory of a Python object and keep that object alive.
//!
//! They are made here and not by the runtime, which saves an allocation. Their deleter shows that they were made
//! here, so a tensor that native code returns can be converted back to the array from which it was made.

use std::ffi::{c_int, c_void};
use std::ptr;

use anyfn::abi::{
    DLManagedTensorVersioned, DLTensor, OBJECT_FLAG_TENSOR_READ_ONLY, TVMFFIObject,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
    kTVMFFITensor,
};
use anyfn::{ObjectRef, Tensor};

use crate::export::Export;
use crate::gil;
use crate::py::{self, Obj, Own, PyObject, Res};

/// Additional owner of a tensor's memory, released together with the tensor.
pub(crate) enum Lender {
    /// No additional owner: the Python object itself owns the memory.
    Object,
    /// A DLPack tensor that the Python object has exported.
    DLPack(*mut DLManagedTensorVersioned),
    /// A buffer that the Python object has exported.
    Buffer(Export),
    /// A Python object that owns the memory. The tensor covers only a part of this memory and
    /// therefore does not represent the object.
    Part(Own),
    /// Another tensor object that owns the memory.
    Tensor(Tensor),
}

#[repr(C)]
struct OwnedTensor {
    header: TVMFFIObject,
    tensor: DLTensor,
    /// Owned reference to the Python object that the tensor represents, or to None.
    object: *mut PyObject,
    lender: Lender,
    /// True if `anyfn.const` made the tensor. The caller of `anyfn.const` guarantees that the
    /// functions that receive the tensor only read it.
    is_const: bool,
    /// Shape and strides of the tensor, to which the pointers in `tensor` refer.
    words: Box<[i64]>,
}

/// Makes a tensor from a description, whose shape and strides are copied. `object` is the array
/// that the tensor represents, or None. The tensor keeps `object` alive. `object` or `lender` must
/// keep the described memory valid.
///
/// If `read_only` is true, the tensor is flagged so that every recipient can tell that its memory must not be written.
pub(crate) fn make(described: &DLTensor, object: Obj<'_>, lender: Lender, read_only: bool) -> Res<Tensor> {
    build(described, object, lender, read_only, false)
}

/// Makes a read-only tensor that shares the memory of another tensor. The caller of `anyfn.const`
/// lends the result to functions that only read it.
pub(crate) fn make_const(tensor: Tensor) -> Res<Tensor> {
    let described = *tensor.view().as_dl();
    build(&described, py::none().obj(), Lender::Tensor(tensor), true, true)
}

fn build(
    described: &DLTensor,
    object: Obj<'_>,
    lender: Lender,
    read_only: bool,
    is_const: bool,
) -> Res<Tensor> {
    // SAFETY: the caller describes memory that `lender` keeps alive.
    let view = unsafe { anyfn::TensorView::from_dl(described) };
    let shape = view.shape();
    let strides = view.strides().map_or_else(|| compact_strides(shape), <[i64]>::to_vec);
    let mut words = [shape, &strides].concat().into_boxed_slice();
    let mut tensor = *described;
    tensor.shape = words.as_mut_ptr();
    tensor.strides = words[shape.len()..].as_mut_ptr();
    let kept = Box::new(OwnedTensor {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFITensor,
            flags: if read_only { OBJECT_FLAG_TENSOR_READ_ONLY } else { 0 },
            deleter: Some(delete),
        },
        tensor,
        object: object.to_own().into_ptr(),
        lender,
        is_const,
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

/// Returns the Python object that a tensor represents. Returns `None` if the tensor was not made by this module
/// or represents no object.
pub(crate) fn object_of<'a>(tensor: *mut TVMFFIObject) -> Option<Obj<'a>> {
    if !is_made_here(tensor) {
        return None;
    }
    // SAFETY: the deleter shows that the object is an `OwnedTensor`.
    let object = unsafe { (*tensor.cast::<OwnedTensor>()).object };
    // SAFETY: the tensor keeps the object alive; the caller holds the GIL and the tensor.
    unsafe { Obj::from_nullable(object) }.filter(|object| !object.is_none())
}

/// Returns true if `anyfn.const` made a tensor.
pub(crate) fn is_const(tensor: *mut TVMFFIObject) -> bool {
    // SAFETY: the deleter shows that the object is an `OwnedTensor`.
    is_made_here(tensor) && unsafe { (*tensor.cast::<OwnedTensor>()).is_const }
}

fn is_made_here(tensor: *mut TVMFFIObject) -> bool {
    // SAFETY: the caller has a valid object.
    let deleter = unsafe { (*tensor).deleter };
    deleter.is_some_and(|deleter| ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)))
}

/// Deleter of the tensors. Depending on `flags`, it releases the objects that the tensor keeps
/// alive, frees the memory of the tensor object, or both. May run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let kept: *mut OwnedTensor = object.cast();
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
