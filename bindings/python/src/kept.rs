//! Tensor objects that show the memory of a Python object and keep that object.
//!
//! They are made here, not by the runtime: that takes one allocation less, and they are told apart by their deleter, so
//! an array that comes back from native code can be the very array again.

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

/// What lends the memory, besides the Python object.
pub(crate) enum Lender {
    /// The object itself.
    Object,
    /// A DLPack tensor that the object has handed out; released with the tensor.
    DLPack(*mut DLManagedTensorVersioned),
    /// A buffer that the object has exported; released with the tensor.
    Buffer(Export),
    /// A Python object to which the memory belongs among other memory, so the tensor does not stand for it; released with
    /// the tensor.
    Part(Own),
    /// A tensor object; released with the tensor.
    Tensor(Tensor),
}

#[repr(C)]
struct Kept {
    header: TVMFFIObject,
    tensor: DLTensor,
    /// Owned.
    object: *mut PyObject,
    lender: Lender,
    /// Extents and strides.
    words: Box<[i64]>,
}

/// Makes a tensor of a description, whose extents and strides are copied, and keeps `object`: the array that the tensor stands
/// for, or None.
///
/// With `read_only` whoever the tensor is passed on to is told that the memory must not be written.
pub(crate) fn make(described: &DLTensor, object: Obj<'_>, lender: Lender, read_only: bool) -> Res<Tensor> {
    // SAFETY: the caller describes memory that the lender keeps.
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
    // SAFETY: made above, and counted here alone.
    unsafe { anyfn::__private::object_created(kept, kTVMFFITensor) };
    // SAFETY: a valid object with one reference, which the result takes.
    let made = unsafe { ObjectRef::from_owned_or_null(kept.cast()) };
    match made.and_then(|object| Tensor::try_from_object(object).ok()) {
        Some(tensor) => Ok(tensor),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Strides of a compact tensor, row major.
pub(crate) fn compact_strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// The Python object that a tensor stands for, if it is such a tensor.
pub(crate) fn object_of<'a>(tensor: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: the caller has a valid object.
    let deleter = unsafe { (*tensor).deleter }?;
    if !ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)) {
        return None;
    }
    // SAFETY: the deleter says what it is.
    let object = unsafe { (*tensor.cast::<Kept>()).object };
    // SAFETY: the tensor keeps it; the caller holds the lock and the tensor.
    unsafe { Obj::from_nullable(object) }.filter(|object| !object.is_none())
}

/// Gives back what the tensor keeps, its memory, or both. Any thread may be the one.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let kept: *mut Kept = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, so nobody else uses what is behind the header; the memory is still there.
        let lender = unsafe { std::mem::replace(&mut (*kept).lender, Lender::Object) };
        match lender {
            Lender::Object => {}
            Lender::DLPack(tensor) => {
                // SAFETY: it was handed over and is released once, here.
                unsafe { release_managed(tensor) };
            }
            Lender::Buffer(export) => export.release(),
            // SAFETY: the tensor owned this reference.
            Lender::Part(object) => unsafe { gil::release(object.into_ptr()) },
            Lender::Tensor(tensor) => drop(tensor),
        }
        // SAFETY: no strong reference is left, and the memory is still there.
        let object = unsafe { (*kept).object };
        // SAFETY: the tensor owned this reference.
        unsafe { gil::release(object) };
    }
    if flags & WEAK != 0 {
        // SAFETY: counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(kept, kTVMFFITensor) };
        // SAFETY: made by `Box`; what it kept is given back by now.
        drop(unsafe { Box::from_raw(kept) });
    }
}

/// Releases a DLPack tensor that was handed over.
///
/// # Safety
/// The tensor must be valid and is not used again.
pub(crate) unsafe fn release_managed(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the caller guarantees it.
    if let Some(deleter) = unsafe { (*tensor).deleter } {
        // SAFETY: its own deleter, called once.
        unsafe { deleter(tensor) };
    }
}

/// Whether the memory of a tensor must not be written.
#[inline]
pub(crate) fn is_read_only(tensor: *mut TVMFFIObject) -> bool {
    // SAFETY: the caller has a valid object; other makers leave the flags zero.
    unsafe { (*tensor).flags & OBJECT_FLAG_TENSOR_READ_ONLY != 0 }
}
