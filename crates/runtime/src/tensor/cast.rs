//! Numeric operations on the elements of tensors: filling, type conversion, and decoding to types that all
//! languages support.

use core::mem::MaybeUninit;

use anyfn::access::{Access, Mode};
use anyfn::{AnyView, DType, Device, Result, Tensor, TensorView, bail};

use super::convert::{Format, RUN, run};
use super::copy::{Compact, copy, to_bytes};
use super::element::{Element, Number, Scalar};
use super::layout::{Layout, byte_count, element_bits, element_count, show};
use super::make;
use crate::device::{DEFAULT_STREAM, MemoryKind, buffer, memory_kind};

/// The codes (bit patterns) of the scalars of a compact tensor. All codes have the same width. They are
/// packed without gaps, lowest bits first.
pub(super) struct Codes<'a> {
    bytes: &'a [u8],
    bits: usize,
}

impl<'a> Codes<'a> {
    pub(super) fn new(bytes: &'a [u8], scalar: &Scalar) -> Codes<'a> {
        Codes { bytes, bits: scalar.bits() as usize }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        let size = self.bits / 8;
        if self.bits.is_multiple_of(8) {
            let mut code = [0; 8];
            code[..size].copy_from_slice(&self.bytes[index * size..(index + 1) * size]);
            return u64::from_le_bytes(code);
        }
        let (first, mut code) = (index * self.bits, 0);
        for bit in 0..self.bits {
            let at = first + bit;
            code |= u64::from(self.bytes[at / 8] >> (at % 8) & 1) << bit;
        }
        code
    }
}

/// Stores `code` as the scalar at `index`, in the packed form that [`Codes::get`] reads. The bits of this
/// scalar must be zero before the call.
#[inline]
fn put(bytes: &mut [u8], bits: usize, index: usize, code: u64) {
    if bits.is_multiple_of(8) {
        let size = bits / 8;
        bytes[index * size..(index + 1) * size].copy_from_slice(&code.to_le_bytes()[..size]);
        return;
    }
    for bit in 0..bits {
        let at = index * bits + bit;
        bytes[at / 8] |= (code >> bit & 1) as u8 * (1 << (at % 8));
    }
}

/// Returns the encoding of elements of the type `dtype`, or an error if the type is not supported.
///
/// # Errors
/// Returns `TypeError` if the encoding of the type is not known.
pub(super) fn known(dtype: DType) -> Result<Element> {
    element_bits(dtype)?;
    match Element::of(dtype) {
        Some(element) => Ok(element),
        None => bail!("TypeError", "elements of type {dtype} cannot be converted to numbers"),
    }
}

/// Encodes a value as the bytes of one element. Every lane gets this value; the imaginary part of a complex number is
/// zero.
///
/// # Errors
/// Returns `TypeError` if the value is not a number or the encoding of the type is not known, `ValueError` if an
/// integer or bool type cannot represent the value.
pub(super) fn element(dtype: DType, value: &AnyView<'_>) -> Result<Vec<u8>> {
    let known = known(dtype)?;
    let number = number(value)?;
    let Some(code) = known.scalar.encode(number) else {
        bail!("ValueError", "{} cannot be represented as {dtype}", shown(number));
    };
    let bits = known.scalar.bits() as usize;
    let mut bytes = buffer((bits * known.scalars).div_ceil(8))?;
    for index in 0..known.scalars {
        // The imaginary part of a complex number is zero.
        let part = if known.complex && index % 2 == 1 { 0 } else { code };
        put(&mut bytes, bits, index, part);
    }
    Ok(bytes)
}

fn number(value: &AnyView<'_>) -> Result<Number> {
    use anyfn::abi::{kTVMFFIBool, kTVMFFIFloat};
    if value.type_index() == kTVMFFIBool {
        return Ok(Number::Bool(value.get::<bool>()?));
    }
    if value.type_index() == kTVMFFIFloat {
        return Ok(Number::Float(value.get::<f64>()?));
    }
    match value.get::<i128>() {
        Ok(value) => Ok(Number::Int(value)),
        Err(_) => bail!("TypeError", "expected a number but got {}", value.type_key()),
    }
}

fn shown(number: Number) -> String {
    match number {
        Number::Bool(value) => (if value { "True" } else { "False" }).into(),
        Number::Int(value) => value.to_string(),
        Number::Float(value) if value.is_nan() => "nan".into(),
        Number::Float(value) => format!("{value:?}"),
    }
}

/// Sets every element of the tensor `to` to a copy of the bytes `element`.
///
/// # Errors
/// Returns the errors of [`copy`].
///
/// # Safety
/// The requirements of [`copy`] apply.
pub(super) unsafe fn fill(to: &TensorView<'_>, element: &[u8]) -> Result<()> {
    let mut bytes = element.to_vec();
    let mut one = Compact::new(to.dtype(), to.shape(), bytes.as_mut_ptr())?;
    one.repeat();
    // SAFETY: every element of `one` is the element; the caller guarantees `to`.
    unsafe { copy(&one.view(), to, DEFAULT_STREAM) }
}

/// Copies a tensor, converting its elements to the type `dtype`. If `dtype` is a floating-point type, the
/// values are rounded as the module `element` describes. If it is an integer or bool type, it must represent
/// each value exactly.
///
/// # Errors
/// Returns `ValueError` with the first value that an integer or bool type cannot represent; `TypeError` if the encoding
/// of a type is not known, if the numbers of lanes differ, or if complex numbers would become real; or the errors of
/// [`copy`].
///
/// # Safety
/// The requirements of [`copy`] apply.
pub(super) unsafe fn cast(from: &TensorView<'_>, dtype: DType, device: Device) -> Result<Tensor> {
    // SAFETY: either copy below writes all elements before the tensor is shared.
    let made = unsafe { make::to_be_written(from.shape(), dtype, device) }?;
    if from.dtype() == dtype {
        // SAFETY: the caller guarantees `from`, and `made` was created just now.
        unsafe { copy(from, &made.view(), DEFAULT_STREAM) }?;
        return Ok(made);
    }
    let (read, written) = (known(from.dtype())?, known(dtype)?);
    if read.lanes != written.lanes || read.complex && !written.complex {
        bail!("TypeError", "elements of {} cannot be converted to {dtype} one by one", from.dtype());
    }
    // A real number becomes the real part of a complex one.
    let step = if written.complex && !read.complex { 2 } else { 1 };
    let layout = Layout::of(from)?;
    let in_place =
        layout.kind == MemoryKind::Host && layout.is_compact() && layout.total_bits().is_multiple_of(8);
    let (held, _access);
    let source: &[u8] = if in_place && layout.count > 0 {
        _access = Access::begin([(layout.region(), Mode::Read)])?;
        // SAFETY: the elements fill this range, which the caller guarantees, and functions of the runtime that write wait.
        unsafe { core::slice::from_raw_parts(layout.start(), (layout.total_bits() / 8) as usize) }
    } else {
        // SAFETY: the caller guarantees the tensor.
        held = unsafe { to_bytes(from) }?;
        &held
    };
    let view = made.view();
    let size = byte_count(dtype, from.shape())?;
    if memory_kind(device) == MemoryKind::Host {
        let start = Layout::of(&view)?.start().cast::<MaybeUninit<u8>>();
        let target: &mut [MaybeUninit<u8>] = if size == 0 {
            &mut []
        } else {
            // SAFETY: the elements fill this memory, which was allocated just now, so that nothing else reads or writes it.
            unsafe { core::slice::from_raw_parts_mut(start, size) }
        };
        convert_all(from, dtype, (&read, &written), source, step, target)?;
    } else {
        let mut out = buffer(size)?;
        // SAFETY: initialised bytes are converted to ones that may be uninitialised, of which `convert_all` initialises those that it
        // writes.
        let target = unsafe { core::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), size) };
        convert_all(from, dtype, (&read, &written), source, step, target)?;
        // SAFETY: the tensor was created just now.
        unsafe { super::copy::copy_from_bytes(out.as_ptr(), out.len(), &view) }?;
    }
    Ok(made)
}

/// Converts all scalars of a tensor, which are packed in `source`, and writes the results to `target`, which must have their size.
/// Each result is followed by `step - 1` zeros.
///
/// # Errors
/// Returns `ValueError` with the first value that `dtype` cannot represent. Otherwise all bytes of `target` were written.
fn convert_all(
    from: &TensorView<'_>,
    dtype: DType,
    (read, written): (&Element, &Element),
    source: &[u8],
    step: usize,
    target: &mut [MaybeUninit<u8>],
) -> Result<()> {
    let count = element_count(from.shape())? * read.scalars;
    let (size, bits) = (read.scalar.bits() as usize, written.scalar.bits() as usize);
    let formats = (Format::of(&read.scalar), Format::of(&written.scalar));
    let codes = Codes::new(source, &read.scalar);
    for first in (0..count).step_by(RUN) {
        let end = count.min(first + RUN);
        // A run begins at a byte, because its length is a multiple of 8.
        let piece = &mut target[first * step * bits / 8..(end * step * bits).div_ceil(8)];
        let is_done = step == 1
            && match formats {
                (Some(from), Some(to)) => run(from, to, &source[first * size / 8..end * size / 8], piece),
                _ => false,
            };
        if !is_done {
            piece.fill(MaybeUninit::new(0));
            // SAFETY: the bytes were written just now.
            let piece = unsafe { piece.assume_init_mut() };
            for index in first..end {
                let number = read.scalar.decode(codes.get(index));
                let Some(code) = written.scalar.encode(number) else {
                    let at = place(index / read.scalars, from.shape());
                    bail!("ValueError", "{} at {at} cannot be represented as {dtype}", shown(number));
                };
                put(piece, bits, (index - first) * step, code);
            }
        }
    }
    Ok(())
}

/// Formats the indices of the element at the position `index` in row-major order.
fn place(mut index: usize, shape: &[i64]) -> String {
    let mut indices: Vec<i64> = shape
        .iter()
        .rev()
        .map(|extent| {
            let extent = *extent as usize;
            let at = index % extent;
            index /= extent;
            at as i64
        })
        .collect();
    indices.reverse();
    show(&indices)
}

/// Copies a tensor to main memory, with its elements converted to bool, int64, uint64 or float64. Lanes and the two
/// parts of complex numbers become additional dimensions at the end.
///
/// # Errors
/// Returns the errors of [`cast`].
///
/// # Safety
/// The requirements of [`copy`] apply.
pub(super) unsafe fn decode(from: &TensorView<'_>) -> Result<Tensor> {
    let read = known(from.dtype())?;
    let dtype = match read.scalar {
        Scalar::Bool { .. } => DType::BOOL,
        Scalar::Uint { bits: 64 } => DType::new(anyfn::abi::kDLUInt, 64, 1),
        Scalar::Int { .. } | Scalar::Uint { .. } => DType::INT64,
        Scalar::Float(_) => DType::FLOAT64,
    };
    let mut shape = super::layout::numbers(from.shape().len() + 2)?;
    shape.extend_from_slice(from.shape());
    if read.lanes > 1 {
        shape.push(read.lanes as i64);
    }
    if read.complex {
        shape.push(2);
    }
    // SAFETY: the caller guarantees the tensor.
    let bytes = unsafe { to_bytes(from) }?;
    let codes = Codes::new(&bytes, &read.scalar);
    let mut out = buffer(byte_count(dtype, &shape)?)?;
    let size = usize::from(dtype.0.bits) / 8;
    for index in 0..element_count(from.shape())? * read.scalars {
        let code = match read.scalar.decode(codes.get(index)) {
            Number::Bool(value) => u64::from(value),
            Number::Int(value) => value as u64,
            Number::Float(value) => value.to_bits(),
        };
        put(&mut out, size * 8, index, code);
    }
    // SAFETY: the copy writes all elements before the tensor is shared.
    let made = unsafe { make::to_be_written(&shape, dtype, Device::CPU) }?;
    // SAFETY: the tensor was created just now.
    unsafe { super::copy::copy_from_bytes(out.as_ptr(), out.len(), &made.view()) }?;
    Ok(made)
}
