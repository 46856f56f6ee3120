//! Saved form of tensors: the bytes of the elements in row-major order, each element with the
//! little-endian byte order that it has in memory.

use alloc::vec::Vec;

use anyfn::abi::kDLCPU;
use anyfn::access::{Access, Mode};
use anyfn::{DType, Result, Tensor};

/// Returns the bytes of a tensor's elements.
///
/// # Errors
/// Returns `ValueError` if the elements are not in main memory, or have strides and do not consist of whole bytes.
pub(super) fn content(tensor: &Tensor) -> Result<Vec<u8>> {
    let view = tensor.view();
    if view.as_dl().device.device_type != kDLCPU {
        anyfn::bail!(
            "ValueError",
            "a tensor on {} cannot be saved: copy it to main memory first",
            view.device()
        );
    }
    if view.is_contiguous() {
        return view.to_bytes();
    }
    let bits = view.dtype().bits() as usize;
    let (Some(strides), Some(count), 0) = (view.strides(), view.num_elements(), bits % 8) else {
        anyfn::bail!("ValueError", "a tensor of {} with strides cannot be saved", view.dtype());
    };
    let (shape, size) = (view.shape(), bits / 8);
    let mut bytes = Vec::new();
    let total = count.saturating_mul(size);
    if bytes.try_reserve_exact(total).is_err() {
        anyfn::bail!("MemoryError", "cannot allocate memory for the {count} elements of a tensor");
    }
    if count == 0 {
        return Ok(bytes);
    }
    let Some(region) = view.host_region() else {
        anyfn::bail!(
            "ValueError",
            "a tensor of shape {shape:?} with strides {strides:?} exceeds the address space"
        );
    };
    let [_access] = Access::begin([(region, Mode::Read)])?;
    let mut place: Vec<i64> = alloc::vec![0; shape.len()];
    for _ in 0..count {
        let offset: i64 = place.iter().zip(strides).map(|(at, stride)| at.wrapping_mul(*stride)).sum();
        let element = view.data().cast::<u8>().wrapping_offset((offset as isize).wrapping_mul(size as isize));
        // SAFETY: a valid tensor has an element of this size at each index within its shape, and the access excludes
        // writers.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(element, size) });
        for axis in (0..shape.len()).rev() {
            place[axis] += 1;
            if place[axis] < shape[axis] {
                break;
            }
            place[axis] = 0;
        }
    }
    Ok(bytes)
}

/// Creates a tensor in main memory from the bytes of its elements.
///
/// # Errors
/// Returns `ValueError` if `bytes` does not have the length that `dtype` and `shape` require, `MemoryError` if the
/// memory is not available.
pub(super) fn make(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<Tensor> {
    let count =
        shape.iter().try_fold(1usize, |count, extent| count.checked_mul(usize::try_from(*extent).ok()?));
    let size = count.and_then(|count| count.checked_mul(dtype.bits() as usize)).map(|bits| bits.div_ceil(8));
    // Checked before any memory is allocated, because the shape may be arbitrary.
    if size != Some(bytes.len()) {
        anyfn::bail!(
            "ValueError",
            "{} bytes do not match a tensor of {dtype} with the shape {shape:?}",
            bytes.len()
        );
    }
    Tensor::from_bytes(dtype, shape, bytes)
}
