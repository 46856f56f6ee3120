//! The functions by which all languages work with tensors.
//!
//! Those named `runtime.*` are known to clients of other runtimes.

use core::ffi::c_void;

use anyfn::{
    Any, AnyView, DType, Device, FromArg, Mismatch, OpaquePtr, Result, Schema, Shape, Tensor, TensorView, bail,
    register,
};

use super::layout::{Layout, element_bits};
use super::view::Window;
use super::{cast, copy, make, text, view};
use crate::device::{self, DEFAULT_STREAM, MemoryKind};

/// A tensor that is kept: an array that the caller only lends becomes a tensor object that keeps it.
struct Kept(Tensor);

impl FromArg for Kept {
    type Arg<'a> = Kept;
    fn schema() -> Schema {
        Schema::plain("ffi.Tensor")
    }
    fn from_arg(view: &AnyView<'_>) -> Result<Kept, Mismatch> {
        let owned = view.to_owned();
        owned.as_view().get::<Tensor>().map(Kept).map_err(|_| Mismatch::of_type::<Self>(view))
    }
}

/// A tensor that is written: one that must not be written is refused.
struct Target<'a>(TensorView<'a>);

impl FromArg for Target<'_> {
    type Arg<'a> = Target<'a>;
    fn schema() -> Schema {
        Schema::plain("DLTensor*")
    }
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<Target<'a>, Mismatch> {
        let tensor = TensorView::from_arg(view)?;
        if tensor.is_read_only() {
            let text = "expected a tensor that may be written, but its memory is read-only";
            return Err(Mismatch::new("ValueError", "DLTensor*".into(), text.into()));
        }
        Ok(Target(tensor))
    }
}

// ---- Making -------------------------------------------------------------------------------------------------------

/// A tensor whose elements are anything, aligned to 64 bytes. `scope` is a kind of memory of the device, such as
/// "global.texture".
#[register("runtime.TVMTensorAllocWithScope")]
fn alloc_with_scope(
    shape: Shape,
    dtype: DType,
    device: Device,
    #[default(None)] scope: Option<&str>,
) -> Result<Tensor> {
    make::empty(&shape, dtype, device, scope)
}

/// A tensor whose elements are anything, aligned to 64 bytes. On a device that has no driver here, the framework of the
/// caller's arrays allocates it if it offers an allocator.
#[register("anyfn.tensor_empty")]
fn tensor_empty(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    make::empty_anywhere(&shape, dtype, device)
}

/// A tensor whose elements are anything, allocated by the framework of the caller's arrays if it offers an allocator.
#[register("anyfn.tensor_empty_for_caller")]
fn tensor_empty_for_caller(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    make::empty_for_caller(&shape, dtype, device)
}

/// A tensor of zeros.
#[register("anyfn.tensor_zeros")]
fn tensor_zeros(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    make::zeros(&shape, dtype, device)
}

/// A tensor of one value: a bool, an int or a float that is one of the type.
#[register("anyfn.tensor_full", blocking)]
fn tensor_full(shape: Shape, dtype: DType, device: Device, value: AnyView<'_>) -> Result<Tensor> {
    let element = cast::element(dtype, &value)?;
    // SAFETY: all elements are written by the fill, before anybody else gets the tensor.
    let tensor = unsafe { make::to_be_written(&shape, dtype, device) }?;
    // SAFETY: made just now, nobody else knows it.
    unsafe { cast::fill(&tensor.view(), &element) }?;
    Ok(tensor)
}

/// Sets all elements to one value.
#[register("anyfn.tensor_fill", blocking)]
fn tensor_fill(tensor: Target<'_>, value: AnyView<'_>) -> Result<()> {
    let element = cast::element(tensor.0.dtype(), &value)?;
    // SAFETY: `Target` is borrowed for the call and may be written; the copy enters its memory in the table of accesses.
    unsafe { cast::fill(&tensor.0, &element) }
}

/// A tensor with a copy of bytes as its elements, in row-major order.
#[register("anyfn.tensor_from_bytes", blocking)]
fn tensor_from_bytes(bytes: &[u8], shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    // SAFETY: the copy writes all elements, before anybody else gets the tensor.
    let tensor = unsafe { make::to_be_written(&shape, dtype, device) }?;
    // SAFETY: made just now, nobody else knows it.
    unsafe { copy::copy_from_bytes(bytes.as_ptr(), bytes.len(), &tensor.view()) }?;
    Ok(tensor)
}

// ---- Showing ------------------------------------------------------------------------------------------------------

/// A tensor of the same memory with another shape, which may be smaller, and type, from a number of bytes on. The elements
/// of `tensor` must lie without gaps.
#[register("runtime.TVMTensorCreateView")]
fn create_view(
    tensor: Kept,
    shape: Shape,
    dtype: DType,
    #[default(0)] relative_byte_offset: i64,
) -> Result<Tensor> {
    let source = tensor.0.view();
    if !source.is_contiguous() {
        bail!("ValueError", "expected a contiguous tensor but got strides {:?}", source.strides());
    }
    if relative_byte_offset < 0 {
        bail!("ValueError", "an offset is not negative but got {relative_byte_offset}");
    }
    let bit_offset = i128::from(relative_byte_offset) * 8;
    view::view(&tensor.0, &Window { shape: &shape, strides: None, dtype, bit_offset })
}

/// A tensor of the same memory with these extents and strides (in elements; None: compact), from an element on, counted from
/// the first one. All elements must lie in the memory that those of `tensor` span.
#[register("anyfn.tensor_as_strided")]
fn as_strided(
    tensor: Kept,
    shape: Shape,
    #[default(None)] strides: Option<Shape>,
    #[default(0)] offset: i64,
    #[default(None)] dtype: Option<DType>,
) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(tensor.0.view().dtype());
    let bit_offset = i128::from(offset) * i128::from(element_bits(dtype)?);
    let strides = strides.as_deref();
    view::view(&tensor.0, &Window { shape: &shape, strides, dtype, bit_offset })
}

/// A tensor of the same memory and elements in another shape; one extent may be -1. An error if that takes a copy.
#[register("anyfn.tensor_reshape")]
fn tensor_reshape(tensor: Kept, shape: Shape) -> Result<Tensor> {
    view::reshape(&tensor.0, &shape)
}

/// Part of a tensor along a dimension, as Python slices.
#[register("anyfn.tensor_slice")]
fn tensor_slice(
    tensor: Kept,
    dim: i64,
    #[default(None)] start: Option<i64>,
    #[default(None)] stop: Option<i64>,
    #[default(1)] step: i64,
) -> Result<Tensor> {
    view::slice(&tensor.0, dim, start, stop, step)
}

/// The same memory with its dimensions in another order.
#[register("anyfn.tensor_permute")]
fn tensor_permute(tensor: Kept, axes: Shape) -> Result<Tensor> {
    view::permute(&tensor.0, &axes)
}

// ---- Copying ------------------------------------------------------------------------------------------------------

/// Copies the elements of a tensor to those of another one of the same shape and type, on whichever devices.
#[register("runtime.TVMTensorCopyFromTo", blocking)]
fn copy_from_to(#[read_only] from: TensorView<'_>, to: Target<'_>) -> Result<()> {
    // SAFETY: both are borrowed for the call, `Target` may be written, and the copy enters both in the table of accesses.
    unsafe { copy::copy(&from, &to.0, DEFAULT_STREAM) }
}

/// Copies so many bytes from an address in main memory to the elements of a tensor, in row-major order.
///
/// # Safety
/// So many bytes must be readable at the address.
#[register("runtime.TVMTensorCopyFromBytes", blocking, unsafe)]
unsafe fn copy_from_address(to: Target<'_>, data: OpaquePtr, nbytes: usize) -> Result<()> {
    let data = data.as_ptr();
    check_address(data, nbytes)?;
    // SAFETY: the caller says that so many bytes are there, and lends the tensor.
    unsafe { copy::copy_from_bytes(data.cast_const().cast(), nbytes, &to.0) }
}

/// Copies the elements of a tensor to so many bytes at an address in main memory, in row-major order.
///
/// # Safety
/// So many bytes must be writable at the address, and nobody else uses them meanwhile.
#[register("runtime.TVMTensorCopyToBytes", blocking, unsafe)]
unsafe fn copy_to_address(#[read_only] from: TensorView<'_>, data: OpaquePtr, nbytes: usize) -> Result<()> {
    let data = data.as_ptr();
    check_address(data, nbytes)?;
    // SAFETY: the caller says that so many bytes are there, and lends the tensor.
    unsafe { copy::copy_to_bytes(&from, data.cast(), nbytes) }
}

fn check_address(data: *mut c_void, nbytes: usize) -> Result<()> {
    if data.is_null() && nbytes > 0 {
        bail!("ValueError", "there are no {nbytes} bytes at address 0");
    }
    Ok(())
}

/// Copies bytes to the elements of a tensor, in row-major order.
#[register("anyfn.tensor_set_bytes", blocking)]
fn set_bytes(to: Target<'_>, bytes: &[u8]) -> Result<()> {
    // SAFETY: both are borrowed for the call, `Target` may be written, and the copy enters its memory in the table of accesses.
    unsafe { copy::copy_from_bytes(bytes.as_ptr(), bytes.len(), &to.0) }
}

/// The elements of a tensor as bytes, in row-major order; elements of less than a byte are packed.
#[register("anyfn.tensor_to_bytes", blocking)]
fn tensor_to_bytes(#[read_only] tensor: TensorView<'_>) -> Result<Any> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    let bytes = unsafe { copy::to_bytes(&tensor) }?;
    match anyfn::__private::try_bytes(&bytes) {
        Some(value) => Ok(value),
        None => bail!("MemoryError", "{} bytes of main memory are not available", bytes.len()),
    }
}

/// A tensor of the same elements on a device: the tensor itself if it is there.
#[register("anyfn.tensor_to_device", blocking)]
fn tensor_to_device(tensor: Kept, device: Device) -> Result<Tensor> {
    if tensor.0.view().device() == device {
        return Ok(tensor.0);
    }
    copied(&tensor.0.view(), device)
}

/// A compact copy of a tensor, on the same device or another one.
#[register("anyfn.tensor_copy", blocking)]
fn tensor_copy(#[read_only] tensor: TensorView<'_>, #[default(None)] device: Option<Device>) -> Result<Tensor> {
    copied(&tensor, device.unwrap_or_else(|| home(tensor.device())))
}

/// A tensor of the same elements without gaps, in row-major order: the tensor itself if it is so.
#[register("anyfn.tensor_contiguous", blocking)]
fn tensor_contiguous(tensor: Kept) -> Result<Tensor> {
    let layout = tensor.0.view();
    if Layout::of(&layout)?.is_compact() {
        return Ok(tensor.0);
    }
    copied(&layout, home(layout.device()))
}

/// Where a copy goes that is to be where the tensor is: memory that is pinned for a device without a driver here is main
/// memory.
fn home(device: Device) -> Device {
    if device::memory_kind(device) == MemoryKind::Host && !device::exists(device) {
        Device::CPU
    } else {
        device
    }
}

fn copied(from: &TensorView<'_>, device: Device) -> Result<Tensor> {
    // SAFETY: the copy writes all elements, before anybody else gets the tensor.
    let tensor = unsafe { make::to_be_written(from.shape(), from.dtype(), device) }?;
    // SAFETY: `from` is borrowed for the call and entered in the table of accesses; the other one was made just now.
    unsafe { copy::copy(from, &tensor.view(), DEFAULT_STREAM) }?;
    if device::memory_kind(from.device()) != MemoryKind::Host && device::memory_kind(device) != MemoryKind::Host
    {
        device::synchronize(from.device())?;
    }
    Ok(tensor)
}

// ---- Elements -----------------------------------------------------------------------------------------------------

/// A copy whose elements are of another type: the nearest value. `ValueError` for a value that the type has not, such as 300
/// for int8, or 1.5 for an integer.
#[register("anyfn.tensor_cast", blocking)]
fn tensor_cast(
    #[read_only] tensor: TensorView<'_>,
    dtype: DType,
    #[default(None)] device: Option<Device>,
) -> Result<Tensor> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    unsafe { cast::cast(&tensor, dtype, device.unwrap_or_else(|| home(tensor.device()))) }
}

/// A copy in main memory with elements that every language has: bool, int64, uint64 or float64. Lanes, and the two parts of a
/// complex number, become one more dimension.
#[register("anyfn.tensor_decode", blocking)]
fn tensor_decode(#[read_only] tensor: TensorView<'_>) -> Result<Tensor> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    unsafe { cast::decode(&tensor) }
}

/// What a tensor is, and its elements, as text; of more than `limit` elements only those at the edges.
#[register("anyfn.tensor_text", blocking)]
fn tensor_text(#[read_only] tensor: TensorView<'_>, #[default(1000)] limit: i64) -> Result<String> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    unsafe { text::text(&tensor, usize::try_from(limit).unwrap_or(0)) }
}
