//! Tensors: native objects with a shape, exchanged with Python's array libraries by DLPack.

use anyfn::abi::{DLDataType, DLDevice, DLTensor};
use anyfn::{Tensor, TensorView};

use crate::kept::{self, compact_strides};
use crate::lower::At;
use crate::py::{self, Global, Obj, Own, Res};
use crate::{buffer, dlpack, ndarray, object, words};

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

/// A description as a view.
///
/// # Safety
/// It must be valid for `'a`.
pub(crate) unsafe fn view<'a>(description: *const DLTensor) -> TensorView<'a> {
    // SAFETY: the caller guarantees it.
    let description = unsafe { &*description };
    // SAFETY: the caller guarantees it.
    unsafe { TensorView::from_dl(description) }
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
