//! Registered functions that return views of tensors, used by all languages.

use anyfn::{DType, Result, Shape, Tensor, register};

use super::globals::OwnedArg;
use super::layout::element_bits;
use super::view::{self, Window};

/// Returns a tensor that shares the memory of `tensor`, with the given extents and strides (in elements; None:
/// compact). The result begins `offset` elements after the first element of `tensor`. All its elements must be within
/// the memory that the elements of `tensor` span.
#[register("anyfn.tensor_as_strided")]
fn as_strided(
    tensor: OwnedArg,
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

/// Returns a tensor that shares the memory of `tensor` and has the same elements in another shape. One extent may be
/// -1, and is then inferred. Raises `ValueError` if the shape would require a copy.
#[register("anyfn.tensor_reshape")]
fn tensor_reshape(tensor: OwnedArg, shape: Shape) -> Result<Tensor> {
    view::reshape(&tensor.0, &shape)
}

/// Returns the part of a tensor that Python's slice `start:stop:step` selects along the dimension
/// `dim`. The result shares the memory of `tensor`.
#[register("anyfn.tensor_slice")]
fn tensor_slice(
    tensor: OwnedArg,
    dim: i64,
    #[default(None)] start: Option<i64>,
    #[default(None)] stop: Option<i64>,
    #[default(1)] step: i64,
) -> Result<Tensor> {
    view::slice(&tensor.0, dim, start, stop, step)
}

/// Returns a tensor that shares the memory of `tensor`, with its dimensions in the order `axes`.
#[register("anyfn.tensor_permute")]
fn tensor_permute(tensor: OwnedArg, axes: Shape) -> Result<Tensor> {
    view::permute(&tensor.0, &axes)
}
