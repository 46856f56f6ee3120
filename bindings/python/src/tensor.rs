//! Tensors: native objects with a shape, exchanged with Python's array libraries through DLPack.

use anyfn::abi::{DLDataType, DLDevice, DLTensor};
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

/// Returns the shape of a tensor as a tuple.
pub(crate) fn shape(object: Obj<'_>) -> Res<Own> {
    ints(argument(object)?.view().shape())
}

/// Returns the type and index of a tensor's device, as in DLPack.
pub(crate) fn device(object: Obj<'_>) -> Res<Own> {
    let device = argument(object)?.view().as_dl().device;
    ints(&[i64::from(device.device_type as u32), i64::from(device.device_id as u32)])
}

fn ints(values: &[i64]) -> Res<Own> {
    py::tuple(values.iter().map(|value| py::int(*value)).collect::<Res<Vec<Own>>>()?)
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
