//! Registered functions that fill, convert and print the elements of tensors, used by all languages.

use anyfn::{AnyView, DType, Device, Result, Shape, Tensor, TensorView, register};

use super::globals::{Target, home};
use super::{cast, make, text};

/// Creates a tensor whose elements all have the same value: a bool, an int or a float. A floating-point type rounds the
/// value. Raises `ValueError` if an integer or bool type cannot represent the value.
#[register("anyfn.tensor_full", blocking)]
fn tensor_full(shape: Shape, dtype: DType, device: Device, value: AnyView<'_>) -> Result<Tensor> {
    let element = cast::element(dtype, &value)?;
    // SAFETY: the fill writes all elements before the tensor is shared.
    let tensor = unsafe { make::to_be_written(&shape, dtype, device) }?;
    // SAFETY: the tensor was created just now and is not shared.
    unsafe { cast::fill(&tensor.view(), &element) }?;
    Ok(tensor)
}

/// Sets all elements of a tensor to `value`, under the rules of `anyfn.tensor_full`.
#[register("anyfn.tensor_fill", blocking)]
fn tensor_fill(tensor: Target<'_>, value: AnyView<'_>) -> Result<()> {
    let element = cast::element(tensor.0.dtype(), &value)?;
    // SAFETY: `Target` is borrowed for the call and may be written; the copy enters its memory in the table of
    // accesses.
    unsafe { cast::fill(&tensor.0, &element) }
}

/// Returns a copy with the elements converted to `dtype`, on `device` (None: the device of the tensor). A
/// floating-point type rounds to the nearest value; integers are converted to float64 first. Values beyond its range
/// become infinity; in a type without infinity they become NaN, or the largest value if the type has no NaN either. NaN
/// becomes zero in a type without NaN. An integer or bool type must represent each value exactly: `ValueError` is
/// raised, for example, for 300 as int8, 1.5 as int32 or 2 as bool. Raises `TypeError` if the numbers of lanes differ,
/// or if complex numbers would become real.
#[register("anyfn.tensor_cast", blocking)]
fn tensor_cast(
    #[read_only] tensor: TensorView<'_>,
    dtype: DType,
    #[default(None)] device: Option<Device>,
) -> Result<Tensor> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    unsafe { cast::cast(&tensor, dtype, device.unwrap_or_else(|| home(tensor.device()))) }
}

/// Returns a copy in main memory with elements of a type that every language has: bool, int64, uint64 or float64. The
/// lanes of a vector type and the two parts of a complex number become additional dimensions at the end.
#[register("anyfn.tensor_decode", blocking)]
fn tensor_decode(#[read_only] tensor: TensorView<'_>) -> Result<Tensor> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    unsafe { cast::decode(&tensor) }
}

/// Formats a tensor and its elements as text. If there are more than `limit` elements, only those at the edges of each
/// dimension are shown.
#[register("anyfn.tensor_text", blocking)]
fn tensor_text(#[read_only] tensor: TensorView<'_>, #[default(1000)] limit: i64) -> Result<String> {
    // SAFETY: the tensor is borrowed for the call, and reading it enters its memory in the table of accesses.
    unsafe { text::text(&tensor, usize::try_from(limit).unwrap_or(0)) }
}
