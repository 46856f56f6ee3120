//! Tensors: memory with a shape and a data type, exchanged through DLPack.

use core::ffi::c_void;
use core::fmt;
use core::ptr;

use alloc::format;

use anyfn_abi::{
    DLManagedTensorVersioned, DLTensor, OBJECT_FLAG_TENSOR_READ_ONLY, TENSOR_VIEW_READ_ONLY, TVMFFIAny,
    TVMFFIAnyValue, TVMFFIObject, TVMFFIObjectHandle, TVMFFITensorFromDLPackVersioned,
    TVMFFITensorToDLPackVersioned, kTVMFFIDLTensorPtr, kTVMFFITensor,
};

use crate::tensor_mismatch::{self, TensorMismatch};
use crate::{AnyView, DType, Device, Error, FromArg, Mismatch, ObjectRef, Result, Schema};

/// Maximum number of dimensions of a tensor.
pub const NDIM_MAX: i32 = 64;

/// A strong reference to a tensor object.
///
/// A tensor object describes memory and may be used from all threads. Elements are read and written through
/// [`read`](Tensor::read), [`write`](Tensor::write) and the functions of the runtime, which exclude each other.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Tensor;
///
/// let tensor = Tensor::from_slice(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(tensor.view().shape(), [2, 2]);
/// tensor.write::<f32>()?[0] = 5.0;
/// assert_eq!(tensor.read::<f32>()?.iter().sum::<f32>(), 14.0);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Tensor(ObjectRef);

/// A borrowed tensor, usually an argument of a call: a tensor object, or a `DLTensor` that the caller provides.
///
/// A view describes memory. Elements are read and written through [`read`](TensorView::read) and
/// [`write`](TensorView::write).
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{PackedFunc, Tensor, TensorView, TypedPackedFunc};
///
/// fn total(x: TensorView<'_>) -> anyfn::Result<f64> {
///     Ok(x.read::<f64>()?.iter().sum())
/// }
///
/// let total = TypedPackedFunc::from_fn(total);
/// let tensor = Tensor::from_slice(&[3], &[1.0, 2.0, 3.0])?;
/// assert_eq!(total.as_packed().call((&tensor,))?.get::<f64>()?, 6.0);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    tensor: &'a DLTensor,
    /// Address of the tensor object to which the view refers, if that object is marked as read-only;
    /// otherwise NULL.
    read_only: *const TVMFFIObject,
    /// True if the memory of the tensor must not be written.
    is_read_only: bool,
}

impl Tensor {
    /// Creates a tensor that takes ownership of a DLPack tensor.
    ///
    /// # Safety
    /// - `from` must be valid, and its ownership passes to the tensor.
    /// - Any thread may read the memory, and write it unless the tensor is flagged as read-only.
    ///
    /// # Errors
    /// Returns `ValueError` if the DLPack version is not supported; `from` then stays with the caller.
    pub unsafe fn from_dlpack(from: *mut DLManagedTensorVersioned) -> Result<Tensor> {
        let mut out: TVMFFIObjectHandle = ptr::null_mut();
        // SAFETY: the caller passes a valid tensor, and `out` is writable.
        if unsafe { TVMFFITensorFromDLPackVersioned(from, 0, 0, &mut out) } != 0 {
            return Err(Error::take_raised());
        }
        // SAFETY: on success the result is an owned tensor.
        match unsafe { ObjectRef::from_owned_or_null(out) } {
            Some(object) => Ok(Tensor(object)),
            None => Err(Error::take_raised()),
        }
    }

    /// Creates a tensor in main memory, aligned to 64 bytes, whose elements are a copy of `data`.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::Tensor;
    /// let tensor = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!(tensor.view().shape(), &[2, 3]);
    /// assert_eq!(tensor.view().dtype().to_string(), "float32");
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns `ValueError` if the shape has a different number of elements, and `MemoryError` if memory allocation
    /// fails.
    pub fn from_slice<T: Element>(shape: &[i64], data: &[T]) -> Result<Tensor> {
        // SAFETY: elements are plain numbers, so all of their bytes are initialised.
        let bytes = unsafe { core::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
        Tensor::from_bytes(T::DTYPE, shape, bytes)
    }

    /// Creates a tensor in main memory, aligned to 64 bytes, whose elements are a copy of `bytes`.
    ///
    /// # Errors
    /// Returns `ValueError` if the shape needs a different number of bytes, and `MemoryError` if memory allocation
    /// fails.
    pub fn from_bytes(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<Tensor> {
        let tensor = Tensor::zeros(dtype, shape)?;
        let size = owned::size(dtype, shape)?;
        if size != bytes.len() {
            return Err(TensorMismatch::Size { dtype, shape, expected: size, got: bytes.len() }.error());
        }
        // SAFETY: the tensor was just created with `size` bytes, and no other code has access to it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), tensor.view().data().cast::<u8>(), size) };
        Ok(tensor)
    }

    /// Creates a tensor of zeros in main memory, aligned to 64 bytes.
    ///
    /// # Errors
    /// Returns `ValueError` if an extent is negative or there are too many elements or dimensions, and `MemoryError` if
    /// memory allocation fails.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Result<Tensor> {
        let managed = owned::allocate(dtype, shape)?;
        // SAFETY: the tensor is valid and owned here, and its ownership passes on. Only its new owner uses the memory.
        let tensor = unsafe { Tensor::from_dlpack(managed) };
        if tensor.is_err() {
            // SAFETY: on failure the ownership of the tensor has not passed on.
            unsafe { owned::delete(managed) };
        }
        tensor
    }

    /// Exports the tensor as a managed DLPack tensor. The consumer must call the deleter of the result once.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn to_dlpack(&self) -> Result<*mut DLManagedTensorVersioned> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is a valid tensor, and `out` is writable.
        match unsafe { TVMFFITensorToDLPackVersioned(self.0.as_handle(), &mut out) } {
            0 => Ok(out),
            _ => Err(Error::take_raised()),
        }
    }

    /// Returns a view of the tensor.
    #[inline]
    pub fn view(&self) -> TensorView<'_> {
        // SAFETY: a `Tensor` refers to a tensor object, which lives as long as the reference.
        unsafe { TensorView::of_object(self.0.header()) }
    }

    /// Converts the tensor into an object reference.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// Returns the tensor as a borrowed object reference.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// Casts an object reference to a [`Tensor`].
    ///
    /// # Errors
    /// Returns the object if it is not a tensor.
    pub fn try_from_object(object: ObjectRef) -> Result<Tensor, ObjectRef> {
        if object.type_index() == kTVMFFITensor { Ok(Tensor(object)) } else { Err(object) }
    }
}

/// Creates a tensor of one dimension in main memory, whose elements are a copy of the slice.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Tensor;
///
/// let tensor = Tensor::try_from(&[1.0_f32, 2.0][..])?;
/// assert_eq!(tensor.view().shape(), [2]);
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// The error is a `MemoryError` if memory allocation fails.
impl<T: Element> TryFrom<&[T]> for Tensor {
    type Error = Error;
    fn try_from(data: &[T]) -> Result<Tensor> {
        Tensor::from_slice(&[i64::try_from(data.len())?], data)
    }
}

/// Returns a view of the tensor, as [`Tensor::view`] does.
impl<'a> From<&'a Tensor> for TensorView<'a> {
    fn from(tensor: &'a Tensor) -> TensorView<'a> {
        tensor.view()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
    }
}

impl<'a> TensorView<'a> {
    /// Creates a view of a DLPack tensor.
    ///
    /// # Safety
    /// The tensor's shape, strides and data must be valid for `'a`.
    pub unsafe fn from_dl(tensor: &'a DLTensor) -> TensorView<'a> {
        TensorView { tensor, read_only: ptr::null(), is_read_only: false }
    }

    /// Creates a view of a tensor object, given its header.
    ///
    /// # Safety
    /// `header` must be the header of a tensor object that lives for `'a`.
    #[inline]
    unsafe fn of_object(header: *const TVMFFIObject) -> TensorView<'a> {
        // SAFETY: the caller guarantees a live object. Other runtimes leave the flags zero.
        let flags = unsafe { (*header).flags };
        // SAFETY: in a tensor object the `DLTensor` directly follows the header in the same allocation.
        let tensor = unsafe { header.add(1) };
        // SAFETY: the tensor is part of the object, which lives for `'a`, as the caller guarantees.
        let tensor = unsafe { &*tensor.cast::<DLTensor>() };
        let is_read_only = flags & OBJECT_FLAG_TENSOR_READ_ONLY != 0;
        TensorView { tensor, read_only: if is_read_only { header } else { ptr::null() }, is_read_only }
    }

    /// Returns true if the memory of the tensor must not be written.
    ///
    /// This is the case if the tensor is in read-only memory, or if the caller passed a `DLTensor` for a
    /// parameter with `#[read_only]`. The mark is preserved when the view is passed to another function.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns the DLPack description of the tensor.
    pub fn as_dl(&self) -> &'a DLTensor {
        self.tensor
    }

    /// Returns true if the number of dimensions is valid and the shape is not NULL. Other properties are checked where
    /// the tensor is used.
    #[inline]
    fn is_described(&self) -> bool {
        let ndim = self.tensor.ndim;
        (0..=NDIM_MAX).contains(&ndim) && (ndim == 0 || !self.tensor.shape.is_null())
    }

    /// Returns the extents of all dimensions.
    pub fn shape(&self) -> &'a [i64] {
        match usize::try_from(self.tensor.ndim) {
            // SAFETY: DLPack requires `shape` to have `ndim` extents.
            Ok(ndim) if ndim > 0 && !self.tensor.shape.is_null() => unsafe {
                core::slice::from_raw_parts(self.tensor.shape, ndim)
            },
            _ => &[],
        }
    }

    /// Returns the strides in elements; `None` if the tensor specifies no strides, which means that it is
    /// compact (row-major without gaps).
    pub fn strides(&self) -> Option<&'a [i64]> {
        let ndim = usize::try_from(self.tensor.ndim).ok()?;
        if self.tensor.strides.is_null() {
            return None;
        }
        // SAFETY: DLPack requires `strides` to have `ndim` entries if it is not NULL.
        Some(unsafe { core::slice::from_raw_parts(self.tensor.strides, ndim) })
    }

    /// Returns the data type of the elements.
    pub fn dtype(&self) -> DType {
        DType(self.tensor.dtype)
    }

    /// Returns the device that holds the data.
    pub fn device(&self) -> Device {
        Device(self.tensor.device)
    }

    /// Returns the address of the first element on its device.
    pub fn data(&self) -> *mut c_void {
        self.tensor.data.wrapping_byte_add(self.tensor.byte_offset as usize)
    }

    /// Returns the number of elements; `None` if an extent is negative or the product overflows.
    pub fn num_elements(&self) -> Option<usize> {
        self.shape().iter().try_fold(1usize, |n, extent| n.checked_mul(usize::try_from(*extent).ok()?))
    }

    /// Returns true if the elements are stored in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        tensor_mismatch::check_contiguous(self).is_ok()
    }

    /// Returns true if the address ranges spanned by the elements of the two tensors overlap, so that elements
    /// may share memory.
    pub fn shares_memory(&self, other: &TensorView<'_>) -> bool {
        match (self.span(), other.span()) {
            (Some((start, end)), Some((other_start, other_end))) => start < other_end && other_start < end,
            _ => false,
        }
    }

    /// Returns the range of addresses that the elements span: the address of the first byte, and the address after the
    /// last byte. Returns `None` if there are no elements.
    pub(crate) fn span(&self) -> Option<(i128, i128)> {
        let element = (i128::from(self.tensor.dtype.bits) * i128::from(self.tensor.dtype.lanes) + 7) / 8;
        let (mut low, mut high, mut compact) = (0i128, 0i128, 1i128);
        for (i, extent) in self.shape().iter().enumerate().rev() {
            let last = i128::from(*extent) - 1;
            if last < 0 {
                return None;
            }
            let stride = self.strides().map_or(compact, |strides| i128::from(strides[i]));
            let end = if stride < 0 { &mut low } else { &mut high };
            *end = end.saturating_add(last.saturating_mul(stride));
            compact = compact.saturating_mul(last + 1);
        }
        let start = self.data().addr() as i128;
        let at = |offset: i128| start.saturating_add(offset.saturating_mul(element));
        Some((at(low), at(high.saturating_add(1))))
    }

    /// Returns the elements as a slice without registering an access; [`TensorView::read`] is the safe alternative.
    ///
    /// ```compile_fail,E0133
    /// fn f<'a>(tensor: &'a anyfn::Tensor) -> &'a [f32] {
    ///     tensor.view().as_slice::<f32>().unwrap()
    /// }
    /// ```
    ///
    /// # Errors
    /// Returns `TypeError` if the elements are not of type `T`, and `ValueError` if they are not contiguous, aligned
    /// and in main memory.
    ///
    /// # Safety
    /// The elements must be initialised, and no code may write them during `'a`. This includes functions of the
    /// runtime, which may wait for guards but not for this slice, and compiled or foreign code.
    pub unsafe fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        let (data, len) = self.checked::<T>()?;
        // SAFETY: the layout has been checked, and the caller guarantees the content.
        Ok(unsafe { core::slice::from_raw_parts(data, len) })
    }

    /// Returns the elements as a mutable slice without registering an access; [`TensorView::write`] is the safe
    /// alternative.
    ///
    /// ```compile_fail,E0133
    /// fn f<'a>(tensor: &'a anyfn::Tensor) -> &'a mut [f32] {
    ///     tensor.view().as_mut_slice::<f32>().unwrap()
    /// }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::as_slice`].
    ///
    /// # Safety
    /// The elements must be initialised and writable, and no other code may use them during `'a`. This includes
    /// functions of the runtime, which may wait for guards but not for this slice, and compiled or foreign code.
    pub unsafe fn as_mut_slice<T: Element>(&self) -> Result<&'a mut [T]> {
        let (data, len) = self.checked::<T>()?;
        // SAFETY: the layout has been checked, and the caller guarantees exclusive use.
        Ok(unsafe { core::slice::from_raw_parts_mut(data, len) })
    }

    /// Returns a copy of the elements as bytes.
    ///
    /// # Errors
    /// Returns `ValueError` if the elements are not contiguous in main memory, `MemoryError` if memory allocation
    /// fails, and otherwise the errors of [`TensorView::read`].
    pub fn to_bytes(&self) -> Result<alloc::vec::Vec<u8>> {
        let elements = self.read_bytes()?;
        let mut bytes = alloc::vec::Vec::new();
        if bytes.try_reserve_exact(elements.len()).is_err() {
            crate::bail!("MemoryError", "cannot allocate {} bytes of main memory", elements.len());
        }
        bytes.extend_from_slice(&elements);
        Ok(bytes)
    }

    /// Returns the address of the elements and their total size in bytes. Returns an error unless
    /// the elements are stored in main memory without gaps.
    pub(crate) fn checked_bytes(&self) -> Result<(*mut u8, usize)> {
        tensor_mismatch::check_host(self)?;
        tensor_mismatch::check_contiguous(self)?;
        let size = owned::size(self.dtype(), self.shape())?;
        let data: *mut u8 = self.data().cast();
        if size == 0 {
            return Ok((ptr::dangling_mut(), 0));
        }
        if data.is_null() || isize::try_from(size).is_err() {
            crate::bail!("ValueError", "expected {size} bytes of main memory but got the address {data:p}");
        }
        Ok((data, size))
    }

    /// Returns the address of the elements and their number. Returns an error unless the elements
    /// are of type `T`, aligned, and stored in main memory without gaps.
    pub(crate) fn checked<T: Element>(&self) -> Result<(*mut T, usize)> {
        tensor_mismatch::check_dtype(self, T::DTYPE)?;
        tensor_mismatch::check_host(self)?;
        tensor_mismatch::check_contiguous(self)?;
        let Some(len) = self.num_elements() else {
            crate::bail!("ValueError", "expected a valid shape but got {:?}", self.shape());
        };
        let data: *mut T = self.data().cast();
        if len == 0 {
            return Ok((ptr::dangling_mut(), 0));
        }
        if data.is_null() || len > isize::MAX as usize / size_of::<T>() {
            crate::bail!("ValueError", "expected {len} elements in main memory but got the address {data:p}");
        }
        if !data.is_aligned() {
            return Err(TensorMismatch::Alignment { expected: align_of::<T>(), address: data.addr() }.error());
        }
        Ok((data, len))
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}@{}", self.dtype(), self.shape(), self.device())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be the element type of a tensor.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Element, Tensor};
///
/// fn ones<T: Element + From<u8>>(len: usize) -> anyfn::Result<Tensor> {
///     Tensor::from_slice(&[len as i64], &vec![T::from(1); len])
/// }
///
/// assert_eq!(ones::<f32>(3)?.view().dtype(), f32::DTYPE);
/// # Ok::<(), anyfn::Error>(())
/// ```
pub trait Element: sealed::Sealed + Copy + 'static {
    /// Data type of tensors whose elements have this Rust type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty => $code:ident),*) => { $(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::new(anyfn_abi::$code, 8 * size_of::<$ty>() as u8, 1);
        }
    )* };
}

elements!(i8 => kDLInt, i16 => kDLInt, i32 => kDLInt, i64 => kDLInt, u8 => kDLUInt, u16 => kDLUInt, u32 => kDLUInt,
    u64 => kDLUInt, f32 => kDLFloat, f64 => kDLFloat);

impl FromArg for TensorView<'_> {
    type Arg<'a> = TensorView<'a>;
    fn schema() -> Schema {
        Schema::plain("DLTensor*")
    }
    #[inline]
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<TensorView<'a>, Mismatch> {
        let found = match view.type_index() {
            kTVMFFIDLTensorPtr => {
                // SAFETY: the value of a tensor view is in `v_ptr`.
                let tensor: *const DLTensor = unsafe { view.as_raw().value.v_ptr }.cast();
                let is_read_only = view.as_raw().small_str_len & TENSOR_VIEW_READ_ONLY != 0;
                // SAFETY: the pointer is NULL or refers to a tensor that lives as long as the view.
                unsafe { tensor.as_ref() }.map(|tensor| TensorView {
                    tensor,
                    read_only: ptr::null(),
                    is_read_only,
                })
            }
            kTVMFFITensor => {
                // SAFETY: the value of a tensor object is in `v_obj`.
                let object = unsafe { view.as_raw().value.v_obj };
                // SAFETY: the view borrows the object, which is a tensor by its type.
                Some(unsafe { TensorView::of_object(object) })
            }
            _ => None,
        };
        match found {
            Some(tensor) if tensor.is_described() => Ok(tensor),
            Some(_) => Err(undescribed()),
            None => Err(Mismatch::of_type::<Self>(view)),
        }
    }
}

#[cold]
fn undescribed() -> Mismatch {
    let text =
        format!("expected a tensor with 0 to {NDIM_MAX} dimensions and a shape, got an invalid DLTensor");
    Mismatch::invalid("DLTensor*".into(), text)
}

// SAFETY: the result is a view of a tensor that the borrow keeps alive.
unsafe impl crate::IntoArg for TensorView<'_> {
    const OWNED: bool = false;
    fn into_arg(self) -> Result<TVMFFIAny> {
        if !self.read_only.is_null() {
            // The object is passed, because it is marked as read-only also for code that does not check the flag of the
            // view.
            let value = TVMFFIAnyValue::from_obj(self.read_only.cast_mut());
            return Ok(TVMFFIAny { type_index: kTVMFFITensor, small_str_len: 0, value });
        }
        let value = TVMFFIAnyValue::from_ptr(ptr::from_ref(self.tensor).cast_mut().cast());
        let small_str_len = if self.is_read_only { TENSOR_VIEW_READ_ONLY } else { 0 };
        Ok(TVMFFIAny { type_index: kTVMFFIDLTensorPtr, small_str_len, value })
    }
}

/// Tensors whose memory this crate allocates.
mod owned {
    use core::alloc::Layout;
    use core::ptr;

    use alloc::alloc::{alloc_zeroed, dealloc};
    use alloc::boxed::Box;

    use anyfn_abi::{
        DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
        kTVMFFIDLTensorPtr,
    };

    use super::NDIM_MAX;
    use crate::live::{self, Ended};
    use crate::tensor_mismatch::TensorMismatch;
    use crate::{DType, Device, Result};

    const ALIGNMENT: usize = 64;
    /// Alignment in bytes that is requested from the allocator. Within the allocated block, the
    /// elements are aligned to `ALIGNMENT`. With the smaller alignment, the allocator can return
    /// zeroed pages of the operating system for large tensors; with the larger one, it would have
    /// to write the zeros.
    const BASE: usize = 16;

    /// A managed DLPack tensor, together with its shape and the memory block for its elements.
    #[repr(C)]
    struct Owned {
        managed: DLManagedTensorVersioned,
        shape: Box<[i64]>,
        /// Address of the memory block that contains the elements.
        block: *mut u8,
        layout: Layout,
    }

    /// Returns the size of a compact tensor in bytes.
    pub(super) fn size(dtype: DType, shape: &[i64]) -> Result<usize> {
        let elements = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(usize::try_from(*extent).ok()?));
        let bits = elements.and_then(|n| n.checked_mul(usize::try_from(dtype.bits()).ok()?));
        match bits {
            Some(bits) => Ok(bits.div_ceil(8)),
            None => crate::bail!(
                "ValueError",
                "cannot allocate a tensor of {dtype} with the shape {shape:?}: an extent is negative, or the \
                 size overflows"
            ),
        }
    }

    pub(super) fn allocate(dtype: DType, shape: &[i64]) -> Result<*mut DLManagedTensorVersioned> {
        let ndim = i32::try_from(shape.len()).ok().filter(|ndim| *ndim <= NDIM_MAX);
        let Some(ndim) = ndim else {
            return Err(TensorMismatch::TooManyDimensions { got: shape.len() as i64 }.error());
        };
        let size = size(dtype, shape)?;
        let layout = size.checked_add(ALIGNMENT).and_then(|size| Layout::from_size_align(size, BASE).ok());
        let Some(layout) = layout else {
            crate::bail!(
                "ValueError",
                "cannot allocate a tensor of {dtype} with the shape {shape:?}: an extent is negative, or the \
                 size overflows"
            );
        };
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc_zeroed(layout) };
        if block.is_null() {
            crate::bail!("MemoryError", "cannot allocate {size} bytes for a tensor");
        }
        // SAFETY: the address is within the block, which is longer than the elements by `ALIGNMENT` bytes.
        let data = unsafe { block.add(ALIGNMENT - block.addr() % ALIGNMENT) };
        let shape: Box<[i64]> = shape.into();
        let dl_tensor = DLTensor {
            data: data.cast(),
            device: Device::CPU.0,
            ndim,
            dtype: dtype.0,
            shape: shape.as_ptr().cast_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor,
        };
        let owned = Box::into_raw(Box::new(Owned { managed, shape, block, layout }));
        live::created(owned, kTVMFFIDLTensorPtr);
        Ok(owned.cast())
    }

    live::deleter!(pub(super) fn delete(managed: *mut DLManagedTensorVersioned) by release);

    /// Frees a managed tensor together with its shape and its elements.
    ///
    /// # Safety
    /// `managed` must come from `allocate` and not be used again.
    unsafe extern "C" fn release(managed: *mut DLManagedTensorVersioned) -> Ended {
        let ended = live::ending(managed, kTVMFFIDLTensorPtr);
        // SAFETY: `allocate` created the tensor with `Box`, as the first field of `Owned`.
        let owned = unsafe { Box::from_raw(managed.cast::<Owned>()) };
        // SAFETY: the block was allocated with this layout.
        unsafe { dealloc(owned.block, owned.layout) };
        drop(owned);
        ended
    }
}
