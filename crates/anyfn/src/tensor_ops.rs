//! What one does with tensors: making, viewing and copying them, on every device.
//!
//! Each is a registered function of the runtime, which other languages call by its name; a program that links no runtime
//! gets a `ValueError` that names it. Examples, which run, are in `anyfn-runtime`.

use alloc::vec::Vec;
use core::ops::{Bound, RangeBounds};

use crate::{AnyView, Bytes, DType, Device, Element, IntoArg, Result, Shape, Tensor, TensorView, bail, global};

impl Tensor {
    /// Makes a tensor whose elements are anything, aligned to 64 bytes. On a device that has no driver here, the framework
    /// of the caller's arrays allocates it, if it offers an allocator.
    ///
    /// # Errors
    /// `ValueError` for a shape that is none, `RuntimeError` with the reason if the device is not there, `MemoryError` when
    /// memory is short.
    pub fn empty(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_empty")?.call((&Shape::from(shape), dtype, device))?.get::<Tensor>()
    }

    /// As [`Tensor::empty`], by the allocator of the framework whose arrays the caller has passed, if it offers one. What
    /// a function returns should be made so.
    ///
    /// # Errors
    /// As [`Tensor::empty`], or what the allocator says.
    pub fn empty_for_caller(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_empty_for_caller")?.call((&Shape::from(shape), dtype, device))?.get::<Tensor>()
    }

    /// Makes a tensor of zeros on a device.
    ///
    /// # Errors
    /// As [`Tensor::empty`].
    pub fn zeros_on(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_zeros")?.call((&Shape::from(shape), dtype, device))?.get::<Tensor>()
    }

    /// Makes a tensor of one number.
    ///
    /// # Errors
    /// `ValueError` if the type has no such value, `TypeError` if it is no number; as [`Tensor::empty`].
    pub fn full(dtype: DType, shape: &[i64], value: impl IntoArg, device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_full")?.call((&Shape::from(shape), dtype, device, value))?.get::<Tensor>()
    }

    /// A tensor of the same memory in another shape; one extent may be -1.
    ///
    /// # Errors
    /// `ValueError` if the number of elements differs, or if only a copy could have the shape.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor> {
        global!("anyfn.tensor_reshape")?.call((self, &Shape::from(shape)))?.get::<Tensor>()
    }

    /// Part of the tensor along a dimension; the same memory.
    ///
    /// # Errors
    /// `ValueError` for a dimension that there is not, or a first element that does not begin at a byte.
    pub fn slice(&self, dim: i64, range: impl RangeBounds<i64>) -> Result<Tensor> {
        self.slice_with_step(dim, range, 1)
    }

    /// As [`Tensor::slice`], of every so many elements; a negative step goes backwards through the range.
    ///
    /// # Errors
    /// As [`Tensor::slice`], and for a step of 0.
    pub fn slice_with_step(&self, dim: i64, range: impl RangeBounds<i64>, step: i64) -> Result<Tensor> {
        let first = match range.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => Some(before.saturating_add(1)),
            Bound::Unbounded => None,
        };
        let end = match range.end_bound() {
            // Behind the last element.
            Bound::Included(-1) => None,
            Bound::Included(last) => Some(last.saturating_add(1)),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => None,
        };
        if step >= 0 {
            return global!("anyfn.tensor_slice")?.call((self, dim, first, end, step))?.get::<Tensor>();
        }
        // The same elements, from the last one.
        let part: Tensor = global!("anyfn.tensor_slice")?.call((self, dim, first, end, 1))?.get::<Tensor>()?;
        global!("anyfn.tensor_slice")?.call((&part, dim, (), (), step))?.get::<Tensor>()
    }

    /// A tensor of the same memory with these extents and strides, from an element on.
    ///
    /// # Errors
    /// `ValueError` for elements outside of the memory that those of this tensor span.
    pub fn as_strided(&self, shape: &[i64], strides: &[i64], offset: i64) -> Result<Tensor> {
        let (shape, strides) = (Shape::from(shape), Shape::from(strides));
        global!("anyfn.tensor_as_strided")?.call((self, &shape, &strides, offset))?.get::<Tensor>()
    }

    /// The same memory with its dimensions in another order.
    ///
    /// # Errors
    /// `ValueError` if `axes` does not name each dimension once.
    pub fn permute(&self, axes: &[i64]) -> Result<Tensor> {
        global!("anyfn.tensor_permute")?.call((self, &Shape::from(axes)))?.get::<Tensor>()
    }

    /// Copies the elements to a tensor of the same shape and type, on whichever device.
    ///
    /// # Errors
    /// `ValueError` if the shapes differ or the memory of `to` is read-only, `TypeError` if the types differ.
    pub fn copy_to(&self, to: &Tensor) -> Result<()> {
        global!("runtime.TVMTensorCopyFromTo")?.call((self, to))?.get::<()>()
    }

    /// A tensor with these elements on a device: this one if it is there, else a copy.
    ///
    /// # Errors
    /// As [`Tensor::empty`].
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_to_device")?.call((self, device))?.get::<Tensor>()
    }

    /// A tensor with these elements in row-major order without gaps: this one if it is so, else a copy.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn contiguous(&self) -> Result<Tensor> {
        global!("anyfn.tensor_contiguous")?.call((self,))?.get::<Tensor>()
    }

    /// A copy with elements of another type, each the nearest value.
    ///
    /// # Errors
    /// `ValueError` for a value that the type has not.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        global!("anyfn.tensor_cast")?.call((self, dtype))?.get::<Tensor>()
    }

    /// A copy of the elements, in row-major order, from whichever device.
    ///
    /// # Errors
    /// `TypeError` if they are not of type `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.view().dtype() != T::DTYPE {
            bail!("TypeError", "expected a tensor of {} but got {}", T::DTYPE, self.view().dtype());
        }
        let bytes = self.to_bytes()?;
        let mut elements = Vec::new();
        if elements.try_reserve_exact(bytes.len() / size_of::<T>()).is_err() {
            bail!("MemoryError", "{} bytes of main memory are not available", bytes.len());
        }
        let chunks = bytes.chunks_exact(size_of::<T>());
        // SAFETY: an element is a plain number, of which there are so many bytes.
        elements.extend(chunks.map(|chunk| unsafe { chunk.as_ptr().cast::<T>().read_unaligned() }));
        Ok(elements)
    }

    /// The elements as bytes, in row-major order, from whichever device; those of less than a byte are packed.
    ///
    /// # Errors
    /// What the device says.
    pub fn to_bytes(&self) -> Result<Bytes> {
        global!("anyfn.tensor_to_bytes")?.call((self,))?.get::<Bytes>()
    }

    /// Copies bytes to the elements, in row-major order.
    ///
    /// # Errors
    /// `ValueError` if there are not exactly as many, or if the memory is read-only.
    pub fn set_bytes(&self, bytes: &[u8]) -> Result<()> {
        global!("anyfn.tensor_set_bytes")?.call((self, bytes))?.get::<()>()
    }

    /// Sets all elements to a number.
    ///
    /// # Errors
    /// `ValueError` if the type has no such value or the memory is read-only.
    pub fn fill(&self, value: impl IntoArg) -> Result<()> {
        global!("anyfn.tensor_fill")?.call((self, value))?.get::<()>()
    }

    /// Whether the memory must not be written.
    pub fn is_read_only(&self) -> bool {
        self.view().is_read_only()
    }
}

impl TensorView<'_> {
    /// A tensor object of the same memory, where the caller's language can keep it; to be used where a function keeps an
    /// argument. `None` if nobody knows who lends it.
    ///
    /// # Errors
    /// What the lender says.
    pub fn to_tensor(&self) -> Result<Option<Tensor>> {
        let raw = self.into_arg()?;
        // SAFETY: a view of a tensor that the borrow keeps alive.
        let view = unsafe { AnyView::from_raw(raw) };
        let owned = view.to_owned();
        Ok(owned.as_view().get::<Tensor>().ok())
    }
}
