//! Tensors: native objects with a shape, exchanged with Python's array libraries through DLPack.

use anyfn::abi::{DLDataType, DLDevice, DLTensor, TVMFFIObject, kTVMFFITensor};
use anyfn::{Tensor, TensorView};

use crate::kept::{self, compact_strides};
use crate::py::{self, Global, Obj, Own, Res};
use crate::{object, words};

/// The class `anyfn.Tensor`, which is written in Python.
pub(crate) static CLASS: Global = Global::new();

/// Makes a tensor view from a `DLTensor`.
///
/// # Safety
/// The description must be valid for `'a`.
pub(crate) unsafe fn view<'a>(description: *const DLTensor) -> TensorView<'a> {
    // SAFETY: guaranteed by the caller.
    let description = unsafe { &*description };
    // SAFETY: guaranteed by the caller.
    unsafe { TensorView::from_dl(description) }
}

/// Returns the native tensor of a `Tensor` that was passed to a function of the module `anyfn._core`. Raises
/// `TypeError` for any other object.
pub(crate) fn argument(object: Obj<'_>) -> Res<Tensor> {
    match object::reference_of(object).and_then(|object| Tensor::try_from_object(object).ok()) {
        Some(tensor) => Ok(tensor),
        None => py::raise(
            py::exceptions::type_error(),
            &format!("expected a Tensor but got {}", object.class_name()),
        ),
    }
}

/// Returns the shape, strides, data type, device, address and read-only flag of a tensor as a tuple. Called from the
/// Python code of the package.
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

/// Borrows the description of a `Tensor`.
#[inline]
pub(crate) fn content<'a>(object: Obj<'a>) -> Res<&'a DLTensor> {
    let Some(handle) = object::handle_of(object).filter(|handle| is_tensor(*handle)) else {
        return py::raise(
            py::exceptions::type_error(),
            &format!("expected a Tensor but got {}", object.class_name()),
        );
    };
    // SAFETY: a tensor has its description behind the header.
    let content: *const DLTensor = unsafe { handle.add(1) }.cast();
    // SAFETY: the description of a tensor never changes. The Python object keeps the native tensor alive: no code takes
    // it out of a `Tensor`, and `lent` keeps a tensor that it replaces.
    Ok(unsafe { &*content })
}

/// Returns true if a handle is not NULL and refers to a native tensor.
#[inline]
fn is_tensor(handle: *mut TVMFFIObject) -> bool {
    // SAFETY: the handle is NULL or that of a valid object.
    let Some(header) = (unsafe { handle.as_ref() }) else { return false };
    header.type_index == kTVMFFITensor || anyfn::is_instance(header.type_index, kTVMFFITensor)
}

/// Returns true if the memory of a `Tensor` must not be written.
#[inline]
pub(crate) fn is_read_only(object: Obj<'_>) -> bool {
    object::handle_of(object).is_some_and(|handle| is_tensor(handle) && kept::is_read_only(handle))
}

// The functions below are the values of the properties of `Tensor`, which have the same names.

pub(crate) fn shape(object: Obj<'_>) -> Res<Own> {
    ints(shown(object)?.shape())
}

pub(crate) fn strides(object: Obj<'_>) -> Res<Own> {
    let view = shown(object)?;
    match view.strides() {
        Some(strides) => ints(strides),
        None => ints(&compact_strides(view.shape())),
    }
}

pub(crate) fn dtype(object: Obj<'_>) -> Res<Own> {
    words::make(words::DTYPE.get(), dtype_bits(content(object)?.dtype))
}

pub(crate) fn device(object: Obj<'_>) -> Res<Own> {
    words::make(words::DEVICE.get(), device_bits(content(object)?.device))
}

pub(crate) fn data_ptr(object: Obj<'_>) -> Res<Own> {
    py::int(shown(object)?.data().addr() as i64)
}

pub(crate) fn ndim(object: Obj<'_>) -> Res<Own> {
    py::int(content(object)?.ndim.into())
}

pub(crate) fn read_only(object: Obj<'_>) -> Res<Own> {
    content(object)?;
    Ok(py::boolean(is_read_only(object)))
}

/// Returns the type and index of a tensor's device, as in DLPack.
pub(crate) fn dlpack_device(object: Obj<'_>) -> Res<Own> {
    let device = content(object)?.device;
    ints(&[i64::from(device.device_type as u32), i64::from(device.device_id as u32)])
}

/// Borrows a `Tensor` as a view.
fn shown<'a>(object: Obj<'a>) -> Res<TensorView<'a>> {
    let content = content(object)?;
    // SAFETY: the description of a tensor is valid as long as the tensor.
    Ok(unsafe { view(content) })
}

fn ints(values: &[i64]) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    let tuple = py::unsafe_new_ref!(py::raw::PyTuple_New(values.len() as isize))?;
    for (index, value) in values.iter().enumerate() {
        let value = py::int(*value)?.into_ptr();
        // SAFETY: the tuple is new and not shared, and the index is within its size; the reference passes to the tuple.
        py::check(unsafe { pyo3_ffi::PyTuple_SetItem(tuple.as_ptr(), index as isize, value) })?;
    }
    Ok(tuple)
}

/// Makes a tensor that shares the memory of the tensor `object` and interprets the elements as
/// another data type of the same size. `bits` contains that data type, encoded as by
/// [`dtype_bits`].
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

/// Returns the eight payload bytes of a value that contains a data type.
pub(crate) fn dtype_bits(dtype: DLDataType) -> u64 {
    u64::from(dtype.code) | u64::from(dtype.bits) << 8 | u64::from(dtype.lanes) << 16
}

/// Returns the eight payload bytes of a value that contains a device.
pub(crate) fn device_bits(device: DLDevice) -> u64 {
    u64::from(device.device_type as u32) | u64::from(device.device_id as u32) << 32
}
