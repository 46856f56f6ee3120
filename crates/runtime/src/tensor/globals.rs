//! Registered functions for tensors, used by all languages.
//!
//! The names `runtime.*` are those that clients of other runtimes call. Further functions are in `view_globals` and
//! `element_globals`, which features exclude from small builds.

use core::ffi::c_void;

use anyfn::tensor_mismatch::check_contiguous;
use anyfn::{
    Any, AnyView, DType, Device, FromArg, Mismatch, OpaquePtr, Result, Schema, Shape, Tensor, TensorView, bail,
    register,
};

use super::layout::Layout;
use super::view::Window;
use super::{copy, make, view};
use crate::device::{self, DEFAULT_STREAM, MemoryKind};

/// Tensor argument of a function that keeps a reference to the tensor. A borrowed `DLTensor` is converted to
/// a tensor object that keeps the caller's array alive.
pub(super) struct OwnedArg(pub(super) Tensor);

impl FromArg for OwnedArg {
    type Arg<'a> = OwnedArg;
    fn schema() -> Schema {
        Schema::plain("ffi.Tensor")
    }
    fn from_arg(view: &AnyView<'_>) -> Result<OwnedArg, Mismatch> {
        let owned = view.to_owned();
        owned.as_view().get::<Tensor>().map(OwnedArg).map_err(|_| Mismatch::of_type::<Self>(view))
    }
}

/// Tensor argument of a function that writes the tensor's elements. A read-only tensor is rejected.
pub(super) struct Target<'a>(pub(super) TensorView<'a>);

impl FromArg for Target<'_> {
    type Arg<'a> = Target<'a>;
    fn schema() -> Schema {
        Schema::plain("DLTensor*")
    }
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<Target<'a>, Mismatch> {
        let tensor = TensorView::from_arg(view)?;
        if tensor.is_read_only() {
            let text = "expected a writable tensor, but its memory is read-only";
            return Err(Mismatch::invalid("DLTensor*".into(), text.into()));
        }
        Ok(Target(tensor))
    }
}

// ---- Creation -----------------------------------------------------------------------------------------------------

/// Allocates a tensor with unspecified elements, aligned to 64 bytes. `scope` selects a kind of memory of the device,
/// such as "global.texture"; None is ordinary memory.
#[register("runtime.TVMTensorAllocWithScope")]
fn alloc_with_scope(
    shape: Shape,
    dtype: DType,
    device: Device,
    #[default(None)] scope: Option<&str>,
) -> Result<Tensor> {
    make::empty(&shape, dtype, device, scope)
}

/// Allocates a tensor with unspecified elements, aligned to 64 bytes. If no driver in this process
/// serves the device, the tensor is allocated by the caller's array framework (such as PyTorch), if
/// that framework has set an allocator.
#[register("anyfn.tensor_empty")]
fn tensor_empty(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    make::empty_anywhere(&shape, dtype, device)
}

/// Allocates a tensor with unspecified elements. The caller's array framework (such as PyTorch)
/// allocates the tensor, if it has set an allocator. Otherwise the driver of the device allocates
/// it.
#[register("anyfn.tensor_empty_for_caller")]
fn tensor_empty_for_caller(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    make::empty_for_caller(&shape, dtype, device)
}

/// Allocates a tensor of zeros.
#[register("anyfn.tensor_zeros")]
fn tensor_zeros(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    make::zeros(&shape, dtype, device)
}

/// Creates a tensor whose elements are copied from bytes, in row-major order.
#[register("anyfn.tensor_from_bytes", blocking)]
fn tensor_from_bytes(bytes: &[u8], shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    // SAFETY: the copy writes all elements before the tensor is shared.
    let tensor = unsafe { make::to_be_written(&shape, dtype, device) }?;
    // SAFETY: the tensor was created just now and is not shared.
    unsafe { copy::copy_from_bytes(bytes.as_ptr(), bytes.len(), &tensor.view()) }?;
    Ok(tensor)
}

// ---- Views --------------------------------------------------------------------------------------------------------

/// Returns a tensor that shares the memory of `tensor`, with another type and shape. The result begins
/// `relative_byte_offset` bytes after the first element of `tensor` and may be smaller. `tensor` must be contiguous.
#[register("runtime.TVMTensorCreateView")]
fn create_view(
    tensor: OwnedArg,
    shape: Shape,
    dtype: DType,
    #[default(0)] relative_byte_offset: i64,
) -> Result<Tensor> {
    let source = tensor.0.view();
    check_contiguous(&source)?;
    if relative_byte_offset < 0 {
        bail!("ValueError", "expected an offset of 0 or more but got {relative_byte_offset}");
    }
    let bit_offset = i128::from(relative_byte_offset) * 8;
    view::view(&tensor.0, &Window { shape: &shape, strides: None, dtype, bit_offset })
}

// ---- Copying ------------------------------------------------------------------------------------------------------

/// Copies the elements of a tensor to another tensor of the same shape and type, on any devices.
#[register("runtime.TVMTensorCopyFromTo", blocking)]
fn copy_from_to(#[read_only] from: TensorView<'_>, to: Target<'_>) -> Result<()> {
    // SAFETY: both are borrowed for the call, `Target` may be written, and the copy enters both in the table of
    // accesses.
    unsafe { copy::copy(&from, &to.0, DEFAULT_STREAM) }
}

/// Copies `nbytes` bytes from an address in main memory to the elements of a tensor, in row-major order.
///
/// # Safety
/// `nbytes` bytes must be readable at `data`.
#[register("runtime.TVMTensorCopyFromBytes", blocking, unsafe)]
unsafe fn copy_from_address(to: Target<'_>, data: OpaquePtr, nbytes: usize) -> Result<()> {
    let data = data.as_ptr();
    check_address(data, nbytes)?;
    // SAFETY: the caller guarantees that `nbytes` bytes are readable, and passes the tensor for the duration of the
    // call.
    unsafe { copy::copy_from_bytes(data.cast_const().cast(), nbytes, &to.0) }
}

/// Copies the elements of a tensor to `nbytes` bytes at an address in main memory, in row-major order.
///
/// # Safety
/// `nbytes` bytes must be writable at `data`, and no other code may use them meanwhile.
#[register("runtime.TVMTensorCopyToBytes", blocking, unsafe)]
unsafe fn copy_to_address(#[read_only] from: TensorView<'_>, data: OpaquePtr, nbytes: usize) -> Result<()> {
    let data = data.as_ptr();
    check_address(data, nbytes)?;
    // SAFETY: the caller guarantees that `nbytes` bytes are writable, and passes the tensor for the duration of the
    // call.
    unsafe { copy::copy_to_bytes(&from, data.cast(), nbytes) }
}

fn check_address(data: *mut c_void, nbytes: usize) -> Result<()> {
    if data.is_null() && nbytes > 0 {
        bail!("ValueError", "expected the address of {nbytes} bytes but got NULL");
    }
    Ok(())
}

/// Copies bytes to the elements of a tensor, in row-major order.
#[register("anyfn.tensor_set_bytes", blocking)]
fn set_bytes(to: Target<'_>, bytes: &[u8]) -> Result<()> {
    // SAFETY: both are borrowed for the call, `Target` may be written, and the copy enters its memory in the table of
    // accesses.
    unsafe { copy::copy_from_bytes(bytes.as_ptr(), bytes.len(), &to.0) }
}

/// Returns the elements of a tensor as bytes, in row-major order. Elements that are smaller than a byte are packed
/// without gaps.
#[register("anyfn.tensor_to_bytes", blocking)]
fn tensor_to_bytes(#[read_only] tensor: TensorView<'_>) -> Result<Any> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    let bytes = unsafe { copy::to_bytes(&tensor) }?;
    match anyfn::__private::try_bytes(&bytes) {
        Some(value) => Ok(value),
        None => bail!("MemoryError", "cannot allocate {} bytes of main memory", bytes.len()),
    }
}

/// Returns a tensor with the same elements on `device`. If `tensor` is on that device already, the result is `tensor`
/// itself.
#[register("anyfn.tensor_to_device", blocking)]
fn tensor_to_device(tensor: OwnedArg, device: Device) -> Result<Tensor> {
    if tensor.0.view().device() == device {
        return Ok(tensor.0);
    }
    copied(&tensor.0.view(), device)
}

/// Returns a compact copy of a tensor on `device`; None is the device of the tensor.
#[register("anyfn.tensor_copy", blocking)]
fn tensor_copy(#[read_only] tensor: TensorView<'_>, #[default(None)] device: Option<Device>) -> Result<Tensor> {
    copied(&tensor, device.unwrap_or_else(|| home(tensor.device())))
}

/// Returns a tensor with the same elements in row-major order without gaps. If `tensor` is compact already, the result
/// is `tensor` itself.
#[register("anyfn.tensor_contiguous", blocking)]
fn tensor_contiguous(tensor: OwnedArg) -> Result<Tensor> {
    let layout = tensor.0.view();
    if Layout::of(&layout)?.is_compact() {
        return Ok(tensor.0);
    }
    copied(&layout, home(layout.device()))
}

/// Returns the device on which to allocate a copy of a tensor that is on `device`. This is main
/// memory (`cpu:0`) if `device` is host memory without a driver in this process, such as pinned
/// memory. Otherwise it is `device` itself.
pub(super) fn home(device: Device) -> Device {
    if device::memory_kind(device) == MemoryKind::Host && !device::exists(device) {
        Device::CPU
    } else {
        device
    }
}

fn copied(from: &TensorView<'_>, device: Device) -> Result<Tensor> {
    // SAFETY: the copy writes all elements before the tensor is shared.
    let tensor = unsafe { make::to_be_written(from.shape(), from.dtype(), device) }?;
    // SAFETY: `from` is borrowed for the call and entered in the table of accesses; the new tensor was created just
    // now.
    unsafe { copy::copy(from, &tensor.view(), DEFAULT_STREAM) }?;
    if device::memory_kind(from.device()) != MemoryKind::Host && device::memory_kind(device) != MemoryKind::Host
    {
        device::synchronize(from.device())?;
    }
    Ok(tensor)
}
