//! Copies between tensors of any layout on any devices.

use anyfn::abi::DLTensor;
use anyfn::access::{Access, Mode};
use anyfn::tensor_mismatch::TensorMismatch;
use anyfn::{DType, Device, Result, TensorView, bail};
use anyfn_elements::move_elements;

use super::layout::{Layout, byte_count, numbers, push_compact};
use crate::device::{DEFAULT_STREAM, Handle, MemoryKind, buffer, copy_bytes, driver_of, host};

/// Copies the elements of one tensor to another tensor of the same shape and type. The copy has finished when the call
/// returns, unless both tensors are compact and on devices of the same type, outside main memory. Such a copy may still
/// be queued in `stream`.
///
/// # Errors
/// Returns `RuntimeError` if this thread has a conflicting access to the elements or a device is not available,
/// `ValueError` if the shapes differ or a tensor has no memory, `TypeError` if the types differ, `MemoryError` if the
/// memory is not available.
///
/// # Safety
/// The memory of both tensors must be valid and initialised, and that of `to` writable. Functions of the runtime and
/// guards of safe code wait for each other (see [`anyfn::access`]); other code must not use the memory during the copy.
pub unsafe fn copy(from: &TensorView<'_>, to: &TensorView<'_>, stream: Handle) -> Result<()> {
    let (from, to) = (Layout::of(from)?, Layout::of(to)?);
    if from.shape != to.shape {
        bail!("ValueError", "cannot copy {} to {}: the shapes differ", from.describe(), to.describe());
    }
    if from.dtype != to.dtype {
        bail!("TypeError", "cannot copy {} to {}: the types differ", from.describe(), to.describe());
    }
    if from.count == 0 {
        return Ok(());
    }
    // Both at once. If the tensors overlap, the elements are copied through a buffer.
    let _accesses = Access::begin([(from.region(), Mode::Read), (to.region(), Mode::Write)])?;
    for side in [&from, &to] {
        if side.kind != MemoryKind::Host {
            driver_of(side.place.device)?;
        }
    }
    let whole_bytes = from.total_bits().is_multiple_of(8);
    if from.is_compact() && to.is_compact() && whole_bytes {
        let bytes = (from.total_bits() / 8) as usize;
        // SAFETY: the caller guarantees the memory.
        return unsafe { copy_bytes(from.at(0)?, to.at(0)?, bytes, stream) };
    }
    // Elements are moved individually in main memory, through a copy of a tensor that is elsewhere.
    let source = match from.kind {
        MemoryKind::Host if !meet(&from, &to) => Side::in_place(&from),
        // SAFETY: the caller guarantees the memory.
        _ => unsafe { Side::fetched(&from, stream) }?,
    };
    if to.kind == MemoryKind::Host {
        // SAFETY: the caller guarantees the memory of `to`; `source` holds its own memory.
        unsafe { source.move_to(&Side::in_place(&to)) };
        return Ok(());
    }
    // The bytes between the elements are written back unchanged.
    // SAFETY: the caller guarantees the memory.
    let target = unsafe { Side::fetched(&to, stream) }?;
    // SAFETY: `source` and `target` hold their memory.
    unsafe { source.move_to(&target) };
    // SAFETY: the caller guarantees the memory.
    unsafe { target.send_back(&to, stream) }
}

/// Returns true if two tensors span overlapping ranges of main memory.
fn meet(from: &Layout<'_>, to: &Layout<'_>) -> bool {
    let range = |side: &Layout<'_>| {
        let start = side.start().addr() as i128;
        (start + side.low.div_euclid(8), start + (side.high + 7).div_euclid(8))
    };
    if to.kind != MemoryKind::Host {
        return false;
    }
    let ((start, end), (other_start, other_end)) = (range(from), range(to));
    start < other_end && other_start < end
}

/// Copies `length` bytes at `bytes` to the elements of a tensor, in row-major order.
///
/// # Errors
/// Returns `ValueError` if `length` differs from the number of bytes of the tensor's elements, or the errors of
/// [`copy`].
///
/// # Safety
/// The requirements of [`copy`] apply; `length` bytes must be readable at `bytes`.
pub unsafe fn copy_from_bytes(bytes: *const u8, length: usize, to: &TensorView<'_>) -> Result<()> {
    let compact = Compact::of(to, bytes.cast_mut(), length)?;
    // SAFETY: the caller guarantees both memories.
    unsafe { copy(&compact.view(), to, DEFAULT_STREAM) }
}

/// Copies the elements of a tensor, in row-major order, to the buffer of `length` bytes at `bytes`.
///
/// # Errors
/// Returns the errors of [`copy_from_bytes`].
///
/// # Safety
/// The requirements of [`copy`] apply; `length` bytes must be writable at `bytes`.
pub unsafe fn copy_to_bytes(from: &TensorView<'_>, bytes: *mut u8, length: usize) -> Result<()> {
    let compact = Compact::of(from, bytes, length)?;
    if from.num_elements() != Some(0) && !compact.whole {
        // The bits behind the last element are set to zero, as no element covers them.
        // SAFETY: the length was checked, and is not 0 because there are elements.
        unsafe { bytes.wrapping_add(length - 1).write(0) };
    }
    // SAFETY: the caller guarantees both memories.
    unsafe { copy(from, &compact.view(), DEFAULT_STREAM) }
}

/// Returns the elements of a tensor as bytes, in row-major order.
///
/// # Errors
/// Returns the errors of [`copy`].
///
/// # Safety
/// The requirements of [`copy`] apply.
pub unsafe fn to_bytes(from: &TensorView<'_>) -> Result<Vec<u8>> {
    let mut bytes = buffer(byte_count(from.dtype(), from.shape())?)?;
    // SAFETY: the buffer is writable; the caller guarantees the tensor.
    unsafe { copy_to_bytes(from, bytes.as_mut_ptr(), bytes.len()) }?;
    Ok(bytes)
}

/// A range of main memory, described as a compact tensor.
pub(crate) struct Compact {
    tensor: DLTensor,
    whole: bool,
    _shape: Vec<i64>,
}

impl Compact {
    /// Describes the `length` bytes at `bytes` as a compact tensor that has the shape and type of `like`.
    fn of(like: &TensorView<'_>, bytes: *mut u8, length: usize) -> Result<Compact> {
        let needed = byte_count(like.dtype(), like.shape())?;
        if needed != length {
            let (dtype, shape) = (like.dtype(), like.shape());
            return Err(TensorMismatch::Size { dtype, shape, expected: needed, got: length }.error());
        }
        Compact::new(like.dtype(), like.shape(), bytes)
    }

    /// Describes the memory at `bytes` as a compact tensor. The memory must be large enough for all elements.
    pub(crate) fn new(dtype: DType, shape: &[i64], bytes: *mut u8) -> Result<Compact> {
        let mut extents = numbers(2 * shape.len())?;
        extents.extend_from_slice(shape);
        push_compact(shape, &mut extents);
        let (shape_at, strides_at) = extents.split_at_mut(shape.len());
        let tensor = DLTensor {
            data: bytes.cast(),
            device: Device::CPU.0,
            ndim: shape.len() as i32,
            dtype: dtype.0,
            shape: shape_at.as_mut_ptr(),
            strides: strides_at.as_mut_ptr(),
            byte_offset: 0,
        };
        let count = super::layout::element_count(shape)? as u128;
        let whole = (count * u128::from(dtype.bits())).is_multiple_of(8);
        Ok(Compact { tensor, whole, _shape: extents })
    }

    /// Sets all strides to 0, so that one element is repeated at all indices.
    #[cfg(feature = "elements")]
    pub(crate) fn repeat(&mut self) {
        self._shape[self.tensor.ndim as usize..].fill(0);
    }

    pub(crate) fn view(&self) -> TensorView<'_> {
        // SAFETY: `self` holds shape and strides.
        unsafe { TensorView::from_dl(&self.tensor) }
    }
}

/// Source or target of an element-wise copy in main memory.
struct Side<'a> {
    layout: &'a Layout<'a>,
    /// Address of the first element of the source or target. If strides are negative, some elements are
    /// stored before this address.
    start: *mut u8,
    /// Copy of the byte range that the elements occupy; empty if the elements are accessed in place.
    held: Vec<u8>,
}

impl<'a> Side<'a> {
    fn in_place(layout: &'a Layout<'a>) -> Side<'a> {
        Side { layout, start: layout.start(), held: Vec::new() }
    }

    /// Copies the byte range of a tensor's elements to a buffer in main memory, and returns this
    /// buffer as one side of an element-wise copy.
    ///
    /// # Safety
    /// The tensor's memory must be valid.
    unsafe fn fetched(layout: &'a Layout<'a>, stream: Handle) -> Result<Side<'a>> {
        let (low, high) = (layout.low.div_euclid(8), (layout.high + 7).div_euclid(8));
        let mut held = buffer((high - low) as usize)?;
        // SAFETY: the tensor spans these bytes, and the buffer has the same length.
        unsafe { copy_bytes(layout.at(low)?, host(held.as_mut_ptr()), held.len(), stream) }?;
        let start = held.as_mut_ptr().wrapping_offset(-low as isize);
        Ok(Side { layout, start, held })
    }

    /// Copies the elements to another side that does not overlap this one.
    ///
    /// # Safety
    /// Both sides must be valid, and have the same shape and element type.
    unsafe fn move_to(&self, to: &Side<'_>) {
        let strides = [&self.layout.strides[..], &to.layout.strides[..]];
        // SAFETY: the caller guarantees the elements. Tensors without elements were returned from before.
        unsafe { move_elements(self.start, to.start, self.layout.shape, strides, self.layout.bits) };
    }

    /// Writes the buffer that [`Side::fetched`] returned back to the memory of the tensor.
    ///
    /// # Safety
    /// The tensor's memory must be valid and writable.
    unsafe fn send_back(&self, layout: &Layout<'_>, stream: Handle) -> Result<()> {
        let low = layout.low.div_euclid(8);
        // SAFETY: the tensor spans these bytes.
        unsafe { copy_bytes(host(self.held.as_ptr()), layout.at(low)?, self.held.len(), stream) }
    }
}
