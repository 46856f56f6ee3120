//! Creation of tensors.

use anyfn::abi::{DLTensor, TVMFFIEnvTensorAlloc, TVMFFIObjectHandle, kTVMFFITensor};
use anyfn::{DType, Device, Error, ObjectRef, Result, Tensor, bail};

use super::layout::{byte_count, element_count, numbers, push_compact};
use crate::device::{ALIGNMENT, Memory, exists};

/// Content of a tensor object that owns its memory. Other implementations of the ABI read only its first field, the
/// `DLTensor`.
#[repr(C)]
struct Content {
    tensor: DLTensor,
    _memory: Memory,
    /// Array to which `tensor` points: the shape, followed by the strides.
    _extents: Box<[i64]>,
}

// SAFETY: the pointers refer to memory that the content owns; any thread may read, write and release a tensor.
unsafe impl Send for Content {}

/// Allocates a tensor in memory aligned to 64 bytes. The values of its elements are unspecified, but in main memory they are
/// always initialised, so that safe code may read them.
///
/// # Errors
/// Returns `ValueError` for an invalid shape, `TypeError` for elements without a size, `RuntimeError` if the device is
/// not available, `NotImplementedError` for a scope that the device does not have, `MemoryError` if the memory is not
/// available.
pub fn empty(shape: &[i64], dtype: DType, device: Device, scope: Option<&str>) -> Result<Tensor> {
    let bytes = byte_count(dtype, shape)?;
    own(shape, dtype, Memory::allocate_scope(device, bytes, ALIGNMENT, scope)?)
}

/// Allocates a tensor with uninitialised elements, all of which the caller must write.
///
/// # Errors
/// Returns the errors of [`empty`].
///
/// # Safety
/// In main memory all elements must be written before any is read. After an error the tensor must be dropped.
pub(super) unsafe fn to_be_written(shape: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    let bytes = byte_count(dtype, shape)?;
    // If the elements fill the last byte only in part, its other bits are read when the elements are written.
    let is_whole = (element_count(shape)? as u128 * u128::from(dtype.bits())).is_multiple_of(8);
    if is_whole && bytes > 0 {
        // SAFETY: the elements fill all bytes, and the caller writes all of them first.
        own(shape, dtype, unsafe { Memory::allocate_uninit(device, bytes, ALIGNMENT) }?)
    } else {
        empty(shape, dtype, device, None)
    }
}

/// Allocates a tensor as [`empty`] does. If no driver in this process serves the device, tries the
/// allocator that the caller's array framework (such as PyTorch) has set for this thread.
///
/// # Errors
/// Returns the errors of [`empty`].
pub fn empty_anywhere(shape: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    if device != Device::CPU && !exists(device) {
        byte_count(dtype, shape)?;
        // The framework may fail because it does not have the device either. The error of `empty` is more specific.
        if let Ok(tensor) = framework(shape, dtype, device) {
            return Ok(tensor);
        }
    }
    empty(shape, dtype, device, None)
}

/// Allocates a tensor of zeros.
///
/// # Errors
/// Returns the errors of [`empty`].
pub fn zeros(shape: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    own(shape, dtype, Memory::zeroed(device, byte_count(dtype, shape)?, ALIGNMENT)?)
}

/// Allocates a tensor with the allocator that the caller's array framework (such as PyTorch) has
/// set for this thread, so that native code can return a tensor of that framework. If no allocator
/// is set, allocates as [`empty`] does.
///
/// # Errors
/// Returns the error of the allocator, or the errors of [`empty`].
pub fn empty_for_caller(shape: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    byte_count(dtype, shape)?;
    match framework(shape, dtype, device) {
        Ok(tensor) => Ok(tensor),
        Err(error) if error.message().starts_with(NO_ALLOCATOR) => empty(shape, dtype, device, None),
        Err(error) => Err(error),
    }
}

/// Beginning of the error message with which `TVMFFIEnvTensorAlloc` reports that no allocator is set.
const NO_ALLOCATOR: &str = "TVMFFIEnvTensorAlloc: allocator is nullptr";

fn framework(shape: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    let mut extents = numbers(2 * shape.len())?;
    extents.extend_from_slice(shape);
    push_compact(shape, &mut extents);
    let (shape_at, strides_at) = extents.split_at_mut(shape.len());
    let mut prototype = DLTensor {
        data: core::ptr::null_mut(),
        device: device.0,
        ndim: shape.len() as i32,
        dtype: dtype.0,
        shape: shape_at.as_mut_ptr(),
        strides: strides_at.as_mut_ptr(),
        byte_offset: 0,
    };
    let mut out: TVMFFIObjectHandle = core::ptr::null_mut();
    // SAFETY: the prototype is complete except for its data; `out` is writable.
    if unsafe { TVMFFIEnvTensorAlloc(&mut prototype, &mut out) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned tensor.
    let made = unsafe { ObjectRef::from_owned_or_null(out) };
    match made.and_then(|object| Tensor::try_from_object(object).ok()) {
        Some(tensor) if tensor.view().shape() == shape && tensor.view().dtype() == dtype => Ok(tensor),
        _ => bail!(
            "RuntimeError",
            "the allocator of the framework returned a tensor other than {dtype}{shape:?}"
        ),
    }
}

/// Creates a tensor that owns `memory`, which must be large enough for its elements.
fn own(shape: &[i64], dtype: DType, memory: Memory) -> Result<Tensor> {
    let mut extents = numbers(2 * shape.len())?;
    extents.extend_from_slice(shape);
    push_compact(shape, &mut extents);
    let mut extents = extents.into_boxed_slice();
    let (shape_at, strides_at) = extents.split_at_mut(shape.len());
    let tensor = DLTensor {
        data: memory.data(),
        device: memory.device().0,
        ndim: shape.len() as i32,
        dtype: dtype.0,
        shape: shape_at.as_mut_ptr(),
        strides: strides_at.as_mut_ptr(),
        byte_offset: 0,
    };
    let content = Content { tensor, _memory: memory, _extents: extents };
    // SAFETY: the content begins with the description of a tensor, and owns its memory and extents.
    let object = unsafe { anyfn::__private::new_object(kTVMFFITensor, content) };
    Tensor::try_from_object(object)
        .map_err(|_| anyfn::error!("RuntimeError", "cannot create a tensor: the new object is not a tensor"))
}
