//! Views: tensors that share the memory of other tensors.

use core::ptr;

use anyfn::abi::{DLTensor, TVMFFIObjectHandle, TVMFFITensorCreateUnsafeView};
use anyfn::{DType, Error, ObjectRef, Result, Tensor, bail};

use super::layout::{Layout, element_bits, element_count, numbers, push_compact, show, span};

/// Description of a view of a tensor, for [`view`].
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Extents of the view, one for each dimension.
    pub shape: &'a [i64],
    /// Strides of the view in elements, one for each dimension; `None` for a compact view.
    pub strides: Option<&'a [i64]>,
    /// Data type of the view's elements.
    pub dtype: DType,
    /// Distance in bits from the first element of the viewed tensor to the first element of the view.
    pub bit_offset: i128,
}

/// Returns a view of `source` with the extents, strides and type that `window` describes. The view keeps
/// `source` alive, and may use only the memory that the elements of `source` span. A view of a read-only
/// tensor is read-only.
///
/// # Errors
/// Returns `ValueError` if the shape is invalid, if the number of strides differs from the number of extents, if an
/// element would be outside the memory, or if the first element would not begin at a byte.
pub fn view(source: &Tensor, window: &Window<'_>) -> Result<Tensor> {
    let from = source.view();
    let layout = Layout::of(&from)?;
    let Window { shape, dtype, bit_offset, .. } = *window;
    let (bits, count) = (element_bits(dtype)?, element_count(shape)?);
    let mut extents = numbers(2 * shape.len())?;
    extents.extend_from_slice(shape);
    match window.strides {
        Some(strides) if strides.len() == shape.len() => extents.extend_from_slice(strides),
        Some(strides) => {
            bail!(
                "ValueError",
                "expected {} strides, one for each extent, but got {}",
                shape.len(),
                strides.len()
            )
        }
        None => push_compact(shape, &mut extents),
    }
    let (shape_at, strides_at) = extents.split_at_mut(shape.len());
    let (low, high) = span(shape_at, strides_at, bits);
    // The memory consists of whole bytes, even if the last element ends within one.
    let (first, end) = (layout.low.div_euclid(8) * 8, (layout.high + 7).div_euclid(8) * 8);
    let inside = low.saturating_add(bit_offset) >= first && high.saturating_add(bit_offset) <= end;
    if !inside {
        let bytes = |bits: i128| bits.saturating_add(bit_offset).div_euclid(8);
        bail!(
            "ValueError",
            "{dtype}{} with strides {} reaches from byte {} to byte {}, but {} has the bytes from {} to {}",
            show(shape),
            show(strides_at),
            bytes(low),
            bytes(high.saturating_add(7)),
            layout.describe(),
            first / 8,
            end / 8
        );
    }
    if bit_offset % 8 != 0 && count > 0 {
        bail!(
            "ValueError",
            "a view cannot begin with an element of {dtype} that does not begin at a byte boundary"
        );
    }
    let place = layout.at(if count == 0 { 0 } else { bit_offset.div_euclid(8) })?;
    let prototype = DLTensor {
        data: place.data,
        device: from.as_dl().device,
        ndim: shape.len() as i32,
        dtype: dtype.0,
        shape: shape_at.as_mut_ptr(),
        strides: if shape.is_empty() { ptr::null_mut() } else { strides_at.as_mut_ptr() },
        byte_offset: place.offset as u64,
    };
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: the prototype describes memory of the source, which is a tensor; `out` is writable.
    if unsafe { TVMFFITensorCreateUnsafeView(source.as_object().as_handle(), &prototype, &mut out) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned tensor.
    let made = unsafe { ObjectRef::from_owned_or_null(out) };
    made.and_then(|object| Tensor::try_from_object(object).ok())
        .ok_or_else(|| anyfn::error!("RuntimeError", "the runtime returned no tensor"))
}

/// Returns a tensor that shares the memory of `source` and has the same elements in another shape. One extent may be
/// -1, and is then inferred.
///
/// # Errors
/// Returns `ValueError` if the shape has another number of elements, or if no strides describe the shape without a
/// copy.
pub fn reshape(source: &Tensor, shape: &[i64]) -> Result<Tensor> {
    let from = source.view();
    let layout = Layout::of(&from)?;
    let shape = complete(shape, &layout)?;
    let strides = if layout.is_compact() { None } else { Some(kept_strides(&layout, &shape)?) };
    let window = Window { shape: &shape, strides: strides.as_deref(), dtype: from.dtype(), bit_offset: 0 };
    view(source, &window)
}

/// Returns `shape`, with an extent of -1 replaced by the inferred extent.
fn complete(shape: &[i64], layout: &Layout<'_>) -> Result<Vec<i64>> {
    let mut complete = numbers(shape.len())?;
    complete.extend_from_slice(shape);
    let mut open = shape.iter().enumerate().filter(|(_, extent)| **extent == -1).map(|(at, _)| at);
    if let (Some(at), None) = (open.next(), open.next()) {
        complete[at] = 1;
        let others = element_count(&complete)?;
        let fits = others != 0 && layout.count.is_multiple_of(others);
        complete[at] = if fits { (layout.count / others) as i64 } else { -1 };
    }
    let count = if complete.contains(&-1) { None } else { Some(element_count(&complete)?) };
    if count != Some(layout.count) {
        bail!(
            "ValueError",
            "{} with {} element{} cannot get the shape {}",
            layout.describe(),
            layout.count,
            if layout.count == 1 { "" } else { "s" },
            show(shape)
        );
    }
    Ok(complete)
}

/// Returns the strides that give a view of a non-compact tensor the shape `shape`. Returns an error if that
/// shape requires a copy.
fn kept_strides(layout: &Layout<'_>, shape: &[i64]) -> Result<Vec<i64>> {
    let mut strides = numbers(shape.len())?;
    strides.resize(shape.len(), 1);
    // Starting with the innermost, runs of old dimensions that can be merged into one are split into new dimensions.
    let mut old = layout.shape.iter().zip(&layout.strides).rev().filter(|(extent, _)| **extent != 1).peekable();
    let (mut left, mut stride) = (1i64, 1i64);
    for (at, extent) in shape.iter().enumerate().rev() {
        if *extent == 1 {
            strides[at] = stride;
            continue;
        }
        if left == 1
            && let Some((extent, first)) = old.next()
        {
            (left, stride) = (*extent, *first);
            while let Some((extent, next)) = old.peek() {
                if first.checked_mul(left) != Some(**next) {
                    break;
                }
                left *= **extent;
                old.next();
            }
        }
        if left % extent != 0 {
            bail!(
                "ValueError",
                "{} with strides {} has no view of shape {}: make it contiguous first",
                layout.describe(),
                show(&layout.strides),
                show(shape)
            );
        }
        strides[at] = stride;
        stride = stride.saturating_mul(*extent);
        left /= extent;
    }
    Ok(strides)
}

/// Returns a view of the part of a tensor that Python's slice `start:stop:step` selects along the
/// dimension `dim`. Negative indices count from the end, and indices are clamped to the dimension.
/// If `start` is `None`, the part begins at the first element in the direction of `step`; if `stop`
/// is `None`, it ends with the last one.
///
/// # Errors
/// Returns `ValueError` for a dimension that does not exist, a step of 0, or a first element that does not begin at a
/// byte.
pub fn slice(source: &Tensor, dim: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<Tensor> {
    let from = source.view();
    let layout = Layout::of(&from)?;
    let at = dimension(&layout, dim)?;
    if step == 0 || step == i64::MIN {
        bail!("ValueError", "expected a slice step other than 0 but got {step}");
    }
    let extent = layout.shape[at];
    let (least, most) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let bound = |index: i64| (if index < 0 { index.saturating_add(extent) } else { index }).clamp(least, most);
    let start = start.map_or(if step > 0 { least } else { most }, bound);
    let stop = stop.map_or(if step > 0 { most } else { least }, bound);
    let length = if step > 0 { stop - start } else { start - stop };
    let count = if length <= 0 { 0 } else { 1 + (length - 1) / step.abs() };
    let (mut shape, mut strides) = (layout.shape.to_vec(), layout.strides.clone());
    let first = if count == 0 { 0 } else { i128::from(start) * i128::from(strides[at]) };
    (shape[at], strides[at]) = (count, strides[at].saturating_mul(step));
    let bit_offset = first * i128::from(layout.bits);
    view(source, &Window { shape: &shape, strides: Some(&strides), dtype: from.dtype(), bit_offset })
}

/// Returns a view of a tensor with its dimensions in the order `axes`.
///
/// # Errors
/// Returns `ValueError` if `axes` does not contain each dimension exactly once.
pub fn permute(source: &Tensor, axes: &[i64]) -> Result<Tensor> {
    let from = source.view();
    let layout = Layout::of(&from)?;
    let order = axes.iter().map(|axis| dimension(&layout, *axis)).collect::<Result<Vec<usize>>>()?;
    let is_repeated = |(at, axis): (usize, &usize)| order[..at].contains(axis);
    if order.len() != layout.shape.len() || order.iter().enumerate().any(is_repeated) {
        bail!(
            "ValueError",
            "expected each of the {} dimensions once but got {}",
            layout.shape.len(),
            show(axes)
        );
    }
    let shape: Vec<i64> = order.iter().map(|axis| layout.shape[*axis]).collect();
    let strides: Vec<i64> = order.iter().map(|axis| layout.strides[*axis]).collect();
    view(source, &Window { shape: &shape, strides: Some(&strides), dtype: from.dtype(), bit_offset: 0 })
}

fn dimension(layout: &Layout<'_>, dim: i64) -> Result<usize> {
    let ndim = layout.shape.len() as i64;
    let at = if dim < 0 { dim.saturating_add(ndim) } else { dim };
    if !(0..ndim).contains(&at) {
        bail!("ValueError", "{} has no dimension {dim}", layout.describe());
    }
    Ok(at as usize)
}
