//! Tensors: native objects with a shape, exchanged with Python's array libraries by DLPack.

use std::ptr;

use anyfn::Tensor;
use anyfn::abi::{
    DLDataType, DLDevice, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion,
    DLTensor, kTVMFFIDLTensorPtr,
};
use pyo3_ffi as ffi;

use crate::kept::{self, compact_strides};
use crate::lower::At;
use crate::py::{self, Global, Obj, Own, Res};
use crate::{buffer, dlpack, error, ndarray, object, words};

/// The class `Tensor`, of Python code.
pub(crate) static CLASS: Global = Global::new();

/// Makes a tensor of any object that shows its memory: by NumPy's layout, by DLPack or as a buffer.
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
    match buffer::export(array)? {
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

/// The tensor that an argument of a function of the module is.
pub(crate) fn argument(object: Obj<'_>) -> Res<Tensor> {
    match object::reference_of(object).and_then(|object| Tensor::try_from_object(object).ok()) {
        Some(tensor) => Ok(tensor),
        None => py::raise(
            py::exceptions::type_error(),
            &format!("expected a Tensor but got {}", object.class_name()),
        ),
    }
}

/// Shape, strides, data type, device, address of a tensor and whether it is read-only, for the Python part.
pub(crate) fn describe(object: Obj<'_>) -> Res<Own> {
    let tensor = argument(object)?;
    let view = tensor.view();
    let dl = view.as_dl();
    let strides = match view.strides() {
        Some(strides) => ints(strides)?,
        None => ints(&compact_strides(view.shape()))?,
    };
    py::tuple(vec![
        ints(view.shape())?,
        strides,
        words::make(words::DTYPE.get(), dtype_bits(dl.dtype))?,
        words::make(words::DEVICE.get(), device_bits(dl.device))?,
        py::int(view.data().addr() as i64)?,
        py::boolean(kept::is_read_only(tensor.as_object().as_handle().cast())),
    ])
}

/// The extents of a tensor, as a tuple.
pub(crate) fn shape(object: Obj<'_>) -> Res<Own> {
    ints(argument(object)?.view().shape())
}

/// Kind and number of a tensor's device, as DLPack has them.
pub(crate) fn device(object: Obj<'_>) -> Res<Own> {
    let device = argument(object)?.view().as_dl().device;
    ints(&[i64::from(device.device_type as u32), i64::from(device.device_id as u32)])
}

fn ints(values: &[i64]) -> Res<Own> {
    py::tuple(values.iter().map(|value| py::int(*value)).collect::<Res<Vec<Own>>>()?)
}

/// A tensor of the same memory whose elements are taken for another type of the same size.
pub(crate) fn with_dtype(object: Obj<'_>, bits: i64) -> Res<Own> {
    let tensor = argument(object)?;
    let mut described = *tensor.view().as_dl();
    let dtype = DLDataType { code: bits as u8, bits: (bits >> 8) as u8, lanes: (bits >> 16) as u16 };
    let size = |dtype: DLDataType| u32::from(dtype.bits) * u32::from(dtype.lanes);
    if size(dtype) != size(described.dtype) {
        return py::raise(py::exceptions::value_error(), "expected a data type of the same size");
    }
    described.dtype = dtype;
    let read_only = kept::is_read_only(tensor.as_object().as_handle().cast());
    let shown = kept::make(&described, object, kept::Lender::Object, read_only)?;
    object::wrap_as(CLASS.ptr().cast(), shown.into_object())
}

/// The bits that a data type has in a value.
pub(crate) fn dtype_bits(dtype: DLDataType) -> u64 {
    u64::from(dtype.code) | u64::from(dtype.bits) << 8 | u64::from(dtype.lanes) << 16
}

/// The bits that a device has in a value.
pub(crate) fn device_bits(device: DLDevice) -> u64 {
    u64::from(device.device_type as u32) | u64::from(device.device_id as u32) << 32
}

/// Memory of a tensor that shows a `DLTensor*` of somebody else for the duration of a callback.
#[repr(C)]
struct Borrow {
    tensor: DLManagedTensorVersioned,
    /// Extents and strides.
    words: Box<[i64]>,
}

/// Makes a tensor of a view that native code passes to a callback. It must not be used after [`end_borrow`].
pub(crate) fn borrow(view: *const DLTensor) -> Res<Own> {
    // SAFETY: native code passes a valid view, or NULL.
    let Some(view) = (unsafe { view.as_ref() }) else { return Ok(py::none()) };
    // SAFETY: valid for the duration of the callback.
    let shown = unsafe { anyfn::TensorView::from_dl(view) };
    let shape = shown.shape();
    let strides = shown.strides().map_or_else(|| compact_strides(shape), <[i64]>::to_vec);
    let mut borrow = Box::new(Borrow {
        tensor: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete_borrow),
            flags: 0,
            dl_tensor: *view,
        },
        words: [shape, &strides].concat().into_boxed_slice(),
    });
    borrow.tensor.dl_tensor.shape = borrow.words.as_mut_ptr();
    borrow.tensor.dl_tensor.strides = borrow.words[shape.len()..].as_mut_ptr();
    // The tensor is the first field, so this is its address too.
    let borrow: *mut DLManagedTensorVersioned = Box::into_raw(borrow).cast();
    anyfn::__private::object_created(borrow, kTVMFFIDLTensorPtr);
    // SAFETY: a valid tensor; `end_borrows` sees to it that it is not used for longer than its memory.
    let tensor = unsafe { Tensor::from_dlpack(borrow) }.map_err(|error| {
        // SAFETY: not taken over.
        unsafe { delete_borrow(borrow) };
        error::raise(error)
    })?;
    object::wrap_as(CLASS.ptr().cast(), tensor.into_object())
}

unsafe extern "C" fn delete_borrow(tensor: *mut DLManagedTensorVersioned) {
    anyfn::__private::object_freed(tensor, kTVMFFIDLTensorPtr);
    // SAFETY: the first field of a `Borrow` made by `Box`, released once.
    drop(unsafe { Box::from_raw(tensor.cast::<Borrow>()) });
}

/// Whether an argument of a callback is a tensor made by [`borrow`].
pub(crate) fn is_borrow(object: Obj<'_>) -> bool {
    object.type_ptr() == CLASS.ptr().cast()
}

/// Empties a tensor made by [`borrow`], unless only the call itself still holds it. Returns whether it was kept.
pub(crate) fn end_borrow(object: Obj<'_>) -> bool {
    if !is_borrow(object) {
        return false;
    }
    let handle = object::handle_unchecked(object);
    // NULL where `__class__` was set on an instance of another class.
    if handle.is_null() {
        return false;
    }
    // SAFETY: the object is alive.
    let python_count = unsafe { ffi::Py_REFCNT(object.as_ptr()) };
    // Others can only hold the tensor if they were given it, so a momentary count is enough.
    let native_count = object::reference_of(object).map_or(1, |tensor| tensor.use_count() - 1);
    if python_count == 1 && native_count == 1 {
        return false;
    }
    // SAFETY: a tensor object has its `DLTensor` behind the header; the lock is held.
    let tensor: *mut DLTensor = unsafe { handle.add(1) }.cast();
    // SAFETY: the tensor lies there, and the lock is held. Whoever looks at it from now on finds it empty.
    unsafe { empty(tensor) };
    true
}

/// # Safety
/// `tensor` must be valid and not be read meanwhile.
unsafe fn empty(tensor: *mut DLTensor) {
    // SAFETY: the caller guarantees it.
    let tensor = unsafe { &mut *tensor };
    // No element at all: a tensor without dimensions would still have one.
    static NONE: [i64; 1] = [0];
    static STEP: [i64; 1] = [1];
    tensor.data = ptr::null_mut();
    tensor.ndim = 1;
    tensor.shape = NONE.as_ptr().cast_mut();
    tensor.strides = STEP.as_ptr().cast_mut();
    tensor.byte_offset = 0;
}
