//! Elements as numbers: filling, changing their type, decoding types that languages have not.

use anyfn::{AnyView, DType, Device, Result, Tensor, TensorView, bail};

use super::copy::{Compact, copy, to_bytes};
use super::element::{Element, Number, Scalar};
use super::layout::{byte_count, element_bits, element_count, show};
use super::make;
use crate::device::{DEFAULT_STREAM, buffer};

/// The scalars of compact elements: each of so many bits, one behind the other, the lowest bits first.
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

/// Puts a scalar where [`Codes::get`] finds it; the bits there are zero before.
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

/// How elements of a type are read.
///
/// # Errors
/// `TypeError` if nobody knows how.
pub(super) fn known(dtype: DType) -> Result<Element> {
    element_bits(dtype)?;
    match Element::of(dtype) {
        Some(element) => Ok(element),
        None => bail!("TypeError", "elements of type {dtype} are not known as numbers"),
    }
}

/// The bytes of one element with a value; all of its lanes have the same.
///
/// # Errors
/// `TypeError` if the value is no number or elements of the type are not known, `ValueError` if the type has no such value.
pub(super) fn element(dtype: DType, value: &AnyView<'_>) -> Result<Vec<u8>> {
    let known = known(dtype)?;
    let number = number(value)?;
    let Some(code) = known.scalar.encode(number) else {
        bail!("ValueError", "{} is no {dtype}", shown(number));
    };
    let bits = known.scalar.bits() as usize;
    let mut bytes = buffer((bits * known.scalars).div_ceil(8))?;
    for index in 0..known.scalars {
        // The second part of a complex number is zero.
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

/// Sets all elements of a tensor to one, of these bytes.
///
/// # Errors
/// As [`copy`].
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn fill(to: &TensorView<'_>, element: &[u8]) -> Result<()> {
    let mut bytes = element.to_vec();
    let mut one = Compact::new(to.dtype(), to.shape(), bytes.as_mut_ptr())?;
    one.repeat();
    // SAFETY: every element of `one` is the element; the caller guarantees `to`.
    unsafe { copy(&one.view(), to, DEFAULT_STREAM) }
}

/// A copy with elements of another type.
///
/// # Errors
/// `ValueError` with the first value that the type has not, `TypeError` if elements of a type are not known, else as [`copy`].
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn cast(from: &TensorView<'_>, dtype: DType, device: Device) -> Result<Tensor> {
    // SAFETY: either copy below writes all elements, before anybody else gets the tensor.
    let made = unsafe { make::to_be_written(from.shape(), dtype, device) }?;
    if from.dtype() == dtype {
        // SAFETY: the caller guarantees one, the other one was made just now.
        unsafe { copy(from, &made.view(), DEFAULT_STREAM) }?;
        return Ok(made);
    }
    let (read, written) = (known(from.dtype())?, known(dtype)?);
    if read.lanes != written.lanes || read.complex && !written.complex {
        bail!("TypeError", "elements of {} do not become {dtype} one by one", from.dtype());
    }
    // SAFETY: the caller guarantees the tensor.
    let bytes = unsafe { to_bytes(from) }?;
    let codes = Codes::new(&bytes, &read.scalar);
    let mut out = buffer(byte_count(dtype, from.shape())?)?;
    let bits = written.scalar.bits() as usize;
    // A real number is the first part of a complex one.
    let step = if written.complex && !read.complex { 2 } else { 1 };
    for index in 0..element_count(from.shape())? * read.scalars {
        let number = read.scalar.decode(codes.get(index));
        let Some(code) = written.scalar.encode(number) else {
            let at = place(index / read.scalars, from.shape());
            bail!("ValueError", "{} at {at} is no {dtype}", shown(number));
        };
        put(&mut out, bits, index * step, code);
    }
    // SAFETY: the tensor was made just now.
    unsafe { super::copy::copy_from_bytes(out.as_ptr(), out.len(), &made.view()) }?;
    Ok(made)
}

/// The indices of an element.
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

/// A copy in main memory with elements of type bool, int64, uint64 or float64.
///
/// # Errors
/// As [`cast`].
///
/// # Safety
/// As [`copy`].
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
    // SAFETY: the copy writes all elements, before anybody else gets the tensor.
    let made = unsafe { make::to_be_written(&shape, dtype, Device::CPU) }?;
    // SAFETY: the tensor was made just now.
    unsafe { super::copy::copy_from_bytes(out.as_ptr(), out.len(), &made.view()) }?;
    Ok(made)
}
