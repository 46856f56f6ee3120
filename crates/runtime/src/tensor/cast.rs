//! Numeric operations on the elements of tensors: filling, type conversion, and decoding to types that all
//! languages support.

use core::mem::MaybeUninit;

use anyfn::access::{Access, Mode};
use anyfn::{AnyView, DType, Device, Result, Tensor, TensorView, bail};
use anyfn_elements::{Codes, Element, Number, Scalar, convert, put};

use super::copy::{Compact, copy, to_bytes};
use super::layout::{Layout, byte_count, element_bits, element_count, show};
use super::make;
use crate::device::{DEFAULT_STREAM, MemoryKind, buffer, memory_kind};

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
/// values are rounded as `anyfn_elements::Scalar::encode` describes. If it is an integer or bool type, it must represent
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
    let mut made = unsafe { make::to_be_written(from.shape(), dtype, device) }?;
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
    let size = byte_count(dtype, from.shape())?;
    if memory_kind(device) == MemoryKind::Host {
        // SAFETY: the tensor was created just now.
        let target = unsafe { written_bytes(&mut made, size) }?;
        convert_all(from, dtype, (&read, &written), source, step, target)?;
    } else {
        let mut out = buffer(size)?;
        // SAFETY: initialised bytes are converted to ones that may be uninitialised, of which `convert_all` initialises those that it
        // writes.
        let target = unsafe { core::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), size) };
        convert_all(from, dtype, (&read, &written), source, step, target)?;
        // SAFETY: the tensor was created just now.
        unsafe { super::copy::copy_from_bytes(out.as_ptr(), out.len(), &made.view()) }?;
    }
    Ok(made)
}

/// Returns the memory of a compact tensor in main memory whose elements have `size` bytes.
///
/// # Safety
/// Nothing else may read or write the tensor while the slice is in use.
unsafe fn written_bytes(made: &mut Tensor, size: usize) -> Result<&mut [MaybeUninit<u8>]> {
    if size == 0 {
        return Ok(&mut []);
    }
    let start = Layout::of(&made.view())?.start().cast::<MaybeUninit<u8>>();
    // SAFETY: the elements fill this memory; the caller guarantees that nothing else uses it.
    Ok(unsafe { core::slice::from_raw_parts_mut(start, size) })
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
    let Err(index) = convert(&read.scalar, &written.scalar, source, count, step, target) else {
        return Ok(());
    };
    let number = read.scalar.decode(Codes::new(source, &read.scalar).get(index));
    let at = place(index / read.scalars, from.shape());
    bail!("ValueError", "{} at {at} cannot be represented as {dtype}", shown(number));
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
    // SAFETY: all elements are written below, before the tensor is shared.
    let mut made = unsafe { make::to_be_written(&shape, dtype, Device::CPU) }?;
    // SAFETY: the tensor was created just now.
    let target = unsafe { written_bytes(&mut made, byte_count(dtype, &shape)?) }?;
    let count = element_count(from.shape())? * read.scalars;
    if convert(&read.scalar, &known(dtype)?.scalar, &bytes, count, 1, target).is_err() {
        bail!("InternalError", "{dtype} does not represent all numbers of {}", from.dtype());
    }
    Ok(made)
}
