//! Extents, strides and sizes of tensors.

use anyfn::abi::DLTensor;
use anyfn::access::Region;
use anyfn::tensor_mismatch::TensorMismatch;
pub(crate) use anyfn::tensor_mismatch::show;
use anyfn::{DType, NDIM_MAX, Result, TensorView, bail};

use crate::device::{MemoryKind, MemoryLocation, memory_kind};

/// Returns the number of bits of an element, including all lanes.
///
/// # Errors
/// Returns `TypeError` for types without elements of a known size, such as `void` or scalable vectors.
pub(crate) fn element_bits(dtype: DType) -> Result<u64> {
    if dtype.0.bits == 0 || dtype.0.lanes == 0 || dtype.0.lanes as i16 <= 0 {
        let anyfn::abi::DLDataType { code, bits, lanes } = dtype.0;
        bail!(
            "TypeError",
            "expected a data type with a fixed size but got code {code}, {bits} bits, {lanes} lanes"
        );
    }
    Ok(dtype.bits())
}

/// Returns the number of elements of a tensor with the shape `shape`.
///
/// # Errors
/// Returns `ValueError` for a negative extent or too many dimensions, `MemoryError` if the number exceeds any address
/// space.
pub(crate) fn element_count(shape: &[i64]) -> Result<usize> {
    if shape.len() > NDIM_MAX as usize {
        return Err(TensorMismatch::TooManyDimensions { got: shape.len() as i64 }.error());
    }
    if let Some(extent) = shape.iter().find(|extent| **extent < 0) {
        bail!("ValueError", "expected extents of 0 or more but got {extent} in shape {}", show(shape));
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let count = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(usize::try_from(*extent).ok()?));
    match count.filter(|count| *count <= isize::MAX as usize) {
        Some(count) => Ok(count),
        None => bail!("MemoryError", "a tensor of shape {} exceeds the address space", show(shape)),
    }
}

/// Returns the number of bytes of a compact tensor. Elements that are smaller than a byte are packed without gaps.
///
/// # Errors
/// Returns the errors of [`element_bits`] and [`element_count`].
pub(crate) fn byte_count(dtype: DType, shape: &[i64]) -> Result<usize> {
    let bits = u128::from(element_bits(dtype)?) * element_count(shape)? as u128;
    match usize::try_from(bits.div_ceil(8)) {
        Ok(bytes) if bytes <= isize::MAX as usize => Ok(bytes),
        _ => bail!("MemoryError", "a tensor of {dtype} and shape {} exceeds the address space", show(shape)),
    }
}

/// Allocates an empty vector of integers with the given capacity.
///
/// # Errors
/// Returns `MemoryError` if the memory is not available.
pub(crate) fn numbers(capacity: usize) -> Result<Vec<i64>> {
    let mut numbers = Vec::new();
    if numbers.try_reserve_exact(capacity).is_err() {
        bail!("MemoryError", "out of memory for a shape of {capacity} dimensions");
    }
    Ok(numbers)
}

/// Appends the strides of a compact row-major tensor to `out`.
pub(crate) fn push_compact(shape: &[i64], out: &mut Vec<i64>) {
    let start = out.len();
    out.resize(start + shape.len(), 1);
    let mut stride = 1i64;
    for (at, extent) in shape.iter().enumerate().rev() {
        out[start + at] = stride;
        stride = stride.saturating_mul((*extent).max(1));
    }
}

/// Checked metadata of a tensor, for reading or writing its elements. The strides are always explicit.
#[derive(Clone, Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [i64],
    pub(crate) strides: Vec<i64>,
    /// Number of bits of one element, including all lanes.
    pub(crate) bits: u64,
    /// Number of elements of the tensor.
    pub(crate) count: usize,
    /// Start of the range that the elements occupy, in bits relative to the first element. `high` is the end
    /// of this range.
    pub(crate) low: i128,
    pub(crate) high: i128,
    pub(crate) place: MemoryLocation,
    pub(crate) kind: MemoryKind,
}

impl<'a> Layout<'a> {
    /// Checks the metadata of a tensor, which may come from any library, and returns its layout.
    ///
    /// # Errors
    /// Returns the errors of [`byte_count`], and `ValueError` if there are elements without memory or beyond the
    /// address space.
    pub(crate) fn of(tensor: &TensorView<'a>) -> Result<Layout<'a>> {
        let dl: &DLTensor = tensor.as_dl();
        if dl.ndim < 0 || dl.ndim > 0 && dl.shape.is_null() {
            bail!("ValueError", "invalid tensor with {} dimensions: it has no shape", dl.ndim);
        }
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let (bits, count) = (element_bits(dtype)?, element_count(shape)?);
        let mut strides = numbers(shape.len())?;
        match tensor.strides() {
            Some(given) => strides.extend_from_slice(given),
            None => push_compact(shape, &mut strides),
        }
        let (low, high) = span(shape, &strides, bits);
        if high - low > 8 * isize::MAX as i128 {
            bail!("ValueError", "strides {} of shape {} exceed the address space", show(&strides), show(shape));
        }
        if dl.data.is_null() && count > 0 {
            bail!(
                "ValueError",
                "invalid tensor of {count} elements on {}: its data pointer is NULL",
                tensor.device()
            );
        }
        let kind = memory_kind(tensor.device());
        let offset = usize::try_from(dl.byte_offset).unwrap_or(usize::MAX);
        let place = MemoryLocation { device: tensor.device(), data: dl.data, offset };
        let layout = Layout { dtype, shape, strides, bits, count, low, high, place, kind };
        Ok(layout)
    }

    /// Returns the location that is `bytes` bytes after the first element, or before it if `bytes` is negative.
    ///
    /// # Errors
    /// Returns `ValueError` if the location would be before the start of opaque memory.
    pub(crate) fn at(&self, bytes: i128) -> Result<MemoryLocation> {
        let offset = self.place.offset as i128 + bytes;
        if self.kind != MemoryKind::Handle {
            // An address, which supports offsets in both directions.
            return Ok(MemoryLocation {
                data: self.place.data.wrapping_byte_offset(offset as isize),
                offset: 0,
                ..self.place
            });
        }
        match usize::try_from(offset) {
            Ok(offset) => Ok(MemoryLocation { offset, ..self.place }),
            Err(_) => bail!("ValueError", "the tensor begins {} bytes before its memory", -offset),
        }
    }

    /// Returns the memory region that the elements occupy, for claiming access to it.
    pub(crate) fn region(&self) -> Region {
        let (low, high) = (self.low.div_euclid(8), (self.high + 7).div_euclid(8));
        let (data, offset) = (self.place.data.addr() as u64, self.place.offset as u64);
        // `of` checked that both ends are less than the address space apart.
        let (low, bytes) = (low as i64, (high - low) as u64);
        match self.kind {
            MemoryKind::Host => Region::host(self.start().wrapping_offset(low as isize), bytes as usize),
            MemoryKind::Address => {
                let start = data.wrapping_add(offset).wrapping_add_signed(low);
                Region::on_device(self.place.device, 0, start, bytes)
            }
            MemoryKind::Handle => {
                Region::on_device(self.place.device, data, offset.saturating_add_signed(low), bytes)
            }
        }
    }

    /// Returns the address of the first element. The tensor must be in main memory.
    pub(crate) fn start(&self) -> *mut u8 {
        self.place.data.wrapping_byte_add(self.place.offset).cast()
    }

    /// Returns true if the elements are stored in row-major order without gaps.
    pub(crate) fn is_compact(&self) -> bool {
        if self.count == 0 {
            return true;
        }
        let mut expected = 1i64;
        self.shape.iter().zip(&self.strides).rev().all(|(extent, stride)| {
            let fits = *extent == 1 || *stride == expected;
            expected = expected.saturating_mul(*extent);
            fits
        })
    }

    /// Returns the total number of bits of all elements.
    pub(crate) fn total_bits(&self) -> u128 {
        self.count as u128 * u128::from(self.bits)
    }

    /// Describes the tensor for messages: `float32[2, 3]@cuda:0`.
    pub(crate) fn describe(&self) -> String {
        let Layout { dtype, shape, place, .. } = self;
        format!("{dtype}{}@{}", show(shape), place.device)
    }
}

/// Returns the start and end of the range that elements occupy, in bits relative to the first element. The
/// range is empty if there are no elements.
pub(crate) fn span(shape: &[i64], strides: &[i64], bits: u64) -> (i128, i128) {
    if shape.contains(&0) {
        return (0, 0);
    }
    let (mut low, mut high) = (0i128, 0i128);
    for (extent, stride) in shape.iter().zip(strides) {
        let reach = i128::from(extent - 1).saturating_mul(i128::from(*stride));
        let end = if reach < 0 { &mut low } else { &mut high };
        *end = end.saturating_add(reach);
    }
    let bits = i128::from(bits);
    (low.saturating_mul(bits), high.saturating_add(1).saturating_mul(bits))
}
