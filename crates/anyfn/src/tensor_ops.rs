//! Operations on tensors of any device: creating, viewing and copying them.
//!
//! Each operation is a registered function of the runtime, which other languages call by its name. In an executable
//! that links no runtime, it returns a `ValueError` that names the function. `anyfn-runtime` contains examples that
//! run.

use alloc::vec::Vec;
use core::ops::{Bound, RangeBounds};

use crate::tensor_mismatch::check_dtype;
use crate::{AnyView, Bytes, DType, Device, Element, IntoArg, Result, Shape, Tensor, TensorView, bail, global};

impl Tensor {
    /// Creates a tensor with unspecified elements, aligned to 64 bytes.
    ///
    /// If this process has no driver for the device, the framework whose arrays the caller has passed allocates the
    /// tensor, provided that it offers an allocator.
    ///
    /// # Errors
    /// Returns `ValueError` if the shape is invalid, `RuntimeError` with the reason if the device is not available, and
    /// `MemoryError` if memory allocation fails.
    pub fn empty(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_empty")?.call((&Shape::from(shape), dtype, device))?.get::<Tensor>()
    }

    /// Creates a tensor with unspecified elements, like [`Tensor::empty`], for the result of a
    /// function. If the function's caller passed arrays of a framework with its own allocator, that
    /// framework allocates the tensor.
    ///
    /// # Errors
    /// Returns the errors of [`Tensor::empty`] or the error of the allocator.
    pub fn empty_for_caller(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_empty_for_caller")?.call((&Shape::from(shape), dtype, device))?.get::<Tensor>()
    }

    /// Creates a tensor of zeros on a device.
    ///
    /// # Errors
    /// Returns the errors of [`Tensor::empty`].
    pub fn zeros_on(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_zeros")?.call((&Shape::from(shape), dtype, device))?.get::<Tensor>()
    }

    /// Creates a tensor whose elements all have the same value.
    ///
    /// # Errors
    /// Returns `ValueError` if the data type cannot represent the value, `TypeError` if the value is not a number, and
    /// otherwise the errors of [`Tensor::empty`].
    pub fn full(dtype: DType, shape: &[i64], value: impl IntoArg, device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_full")?.call((&Shape::from(shape), dtype, device, value))?.get::<Tensor>()
    }

    /// Returns a tensor over the same memory with another shape. One extent may be -1; it is computed from the
    /// number of elements.
    ///
    /// # Errors
    /// Returns `ValueError` if the number of elements differs, or if a copy would be necessary.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor> {
        global!("anyfn.tensor_reshape")?.call((self, &Shape::from(shape)))?.get::<Tensor>()
    }

    /// Returns the part of the tensor with the indices `range` along the dimension `dim`, over the same
    /// memory.
    ///
    /// # Errors
    /// Returns `ValueError` if the dimension does not exist, or if the first element does not begin at a byte boundary.
    pub fn slice(&self, dim: i64, range: impl RangeBounds<i64>) -> Result<Tensor> {
        self.slice_with_step(dim, range, 1)
    }

    /// Returns the part of the tensor that consists of every `step`-th index of `range` along the dimension `dim`, over
    /// the same memory. A negative step traverses the range backwards.
    ///
    /// # Errors
    /// Returns the errors of [`Tensor::slice`], and an error if the step is 0.
    pub fn slice_with_step(&self, dim: i64, range: impl RangeBounds<i64>, step: i64) -> Result<Tensor> {
        let first = match range.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => Some(before.saturating_add(1)),
            Bound::Unbounded => None,
        };
        let end = match range.end_bound() {
            // The range ends after the last element.
            Bound::Included(-1) => None,
            Bound::Included(last) => Some(last.saturating_add(1)),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => None,
        };
        if step >= 0 {
            return global!("anyfn.tensor_slice")?.call((self, dim, first, end, step))?.get::<Tensor>();
        }
        // These are the same elements, starting with the last one.
        let part: Tensor = global!("anyfn.tensor_slice")?.call((self, dim, first, end, 1))?.get::<Tensor>()?;
        global!("anyfn.tensor_slice")?.call((&part, dim, (), (), step))?.get::<Tensor>()
    }

    /// Returns a tensor over the same memory with the extents `shape` and the strides `strides` (in elements).
    /// Its first element is `offset` elements after the first element of this tensor.
    ///
    /// # Errors
    /// Returns `ValueError` if an element is outside the memory that the elements of this tensor span.
    pub fn as_strided(&self, shape: &[i64], strides: &[i64], offset: i64) -> Result<Tensor> {
        let (shape, strides) = (Shape::from(shape), Shape::from(strides));
        global!("anyfn.tensor_as_strided")?.call((self, &shape, &strides, offset))?.get::<Tensor>()
    }

    /// Returns a tensor over the same memory with its dimensions in the order `axes`.
    ///
    /// # Errors
    /// Returns `ValueError` if `axes` does not contain each dimension once.
    pub fn permute(&self, axes: &[i64]) -> Result<Tensor> {
        global!("anyfn.tensor_permute")?.call((self, &Shape::from(axes)))?.get::<Tensor>()
    }

    /// Copies the elements to a tensor of the same shape and data type, on any device.
    ///
    /// # Errors
    /// Returns `ValueError` if the shapes differ or the memory of `to` is read-only, and `TypeError` if the data types
    /// differ.
    pub fn copy_to(&self, to: &Tensor) -> Result<()> {
        global!("runtime.TVMTensorCopyFromTo")?.call((self, to))?.get::<()>()
    }

    /// Returns a tensor with the same elements on `device`: this tensor if it is already there, and otherwise a copy.
    ///
    /// # Errors
    /// Returns the errors of [`Tensor::empty`].
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        global!("anyfn.tensor_to_device")?.call((self, device))?.get::<Tensor>()
    }

    /// Returns a tensor with the same elements in row-major order without gaps: this tensor if it is contiguous, and
    /// otherwise a copy.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn contiguous(&self) -> Result<Tensor> {
        global!("anyfn.tensor_contiguous")?.call((self,))?.get::<Tensor>()
    }

    /// Returns a copy of the tensor with another data type. A conversion to a floating-point data
    /// type rounds to the nearest value, and a conversion to an integer data type requires values
    /// that this type can represent exactly.
    ///
    /// # Errors
    /// Returns `ValueError` if the data type cannot represent a value, such as 300 or 1.5 for `int8`. Returns
    /// `TypeError` if elements of the data type cannot be converted one by one, such as complex numbers to real ones.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        global!("anyfn.tensor_cast")?.call((self, dtype))?.get::<Tensor>()
    }

    /// Returns a copy of the elements in row-major order, from any device.
    ///
    /// # Errors
    /// Returns `TypeError` if the elements are not of type `T`, and otherwise the errors of [`Tensor::to_bytes`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check_dtype(&self.view(), T::DTYPE)?;
        let bytes = self.to_bytes()?;
        let mut elements = Vec::new();
        if elements.try_reserve_exact(bytes.len() / size_of::<T>()).is_err() {
            bail!("MemoryError", "cannot allocate {} bytes of main memory", bytes.len());
        }
        let chunks = bytes.chunks_exact(size_of::<T>());
        // SAFETY: the chunk has the size of an element, and an element is a plain number.
        elements.extend(chunks.map(|chunk| unsafe { chunk.as_ptr().cast::<T>().read_unaligned() }));
        Ok(elements)
    }

    /// Returns the elements as bytes in row-major order, from any device. Elements smaller than a byte are
    /// packed.
    ///
    /// # Errors
    /// Returns the error of the device.
    pub fn to_bytes(&self) -> Result<Bytes> {
        global!("anyfn.tensor_to_bytes")?.call((self,))?.get::<Bytes>()
    }

    /// Sets all elements to the values in `bytes`, which are in row-major order.
    ///
    /// # Errors
    /// Returns `ValueError` if the number of bytes differs or the memory is read-only.
    pub fn set_bytes(&self, bytes: &[u8]) -> Result<()> {
        global!("anyfn.tensor_set_bytes")?.call((self, bytes))?.get::<()>()
    }

    /// Sets all elements to one value.
    ///
    /// # Errors
    /// Returns `ValueError` if the data type cannot represent the value or the memory is read-only.
    pub fn fill(&self, value: impl IntoArg) -> Result<()> {
        global!("anyfn.tensor_fill")?.call((self, value))?.get::<()>()
    }

    /// Returns true if the memory of the tensor must not be written.
    pub fn is_read_only(&self) -> bool {
        self.view().is_read_only()
    }
}

impl TensorView<'_> {
    /// Returns a tensor object over the same memory, for functions that use the tensor after the call has
    /// ended. Returns `None` for a borrowed tensor whose memory no frontend can keep alive.
    pub fn to_tensor(&self) -> Option<Tensor> {
        let raw = self.into_arg().ok()?;
        // SAFETY: the value is a view of a tensor that the borrow keeps alive.
        let view = unsafe { AnyView::from_raw(raw) };
        view.to_owned().as_view().get::<Tensor>().ok()
    }
}
