//! Tensors: memory with a shape and an element type, exchanged by DLPack.

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

use anyfn_abi::{
    DLManagedTensorVersioned, DLTensor, TVMFFIAnyValue, TVMFFIObjectHandle, TVMFFITensorFromDLPackVersioned,
    TVMFFITensorToDLPackVersioned, kDLCPU, kTVMFFIDLTensorPtr, kTVMFFITensor,
};

use crate::convert::plain;
use crate::{Any, AnyView, DType, Device, Error, FromArg, IntoAny, Mismatch, ObjectRef, Result, Schema};

/// A tensor that this reference keeps alive.
#[derive(Clone)]
#[repr(transparent)]
pub struct Tensor(ObjectRef);

/// A tensor, borrowed for a call: a tensor object's, or one that the caller describes.
#[derive(Clone, Copy)]
pub struct TensorView<'a>(&'a DLTensor);

impl Tensor {
    /// Takes a DLPack tensor over.
    ///
    /// # Safety
    /// `from` must be valid, its memory may be read (and written, unless flagged otherwise) from any thread, and it
    /// passes to the tensor.
    ///
    /// # Errors
    /// `ValueError` for a version of DLPack that cannot be read; `from` stays with the caller then.
    pub unsafe fn from_dlpack(from: *mut DLManagedTensorVersioned) -> Result<Tensor> {
        let mut out: TVMFFIObjectHandle = ptr::null_mut();
        // SAFETY: the caller passes a valid tensor; `out` is writable.
        if unsafe { TVMFFITensorFromDLPackVersioned(from, 0, 0, &mut out) } != 0 {
            return Err(Error::take_raised());
        }
        // SAFETY: on success the result is an owned tensor.
        match unsafe { ObjectRef::from_owned_or_null(out) } {
            Some(object) => Ok(Tensor(object)),
            None => Err(Error::take_raised()),
        }
    }

    /// Exports the tensor; whoever takes the result calls its deleter once.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn to_dlpack(&self) -> Result<*mut DLManagedTensorVersioned> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is a valid tensor, `out` is writable.
        match unsafe { TVMFFITensorToDLPackVersioned(self.0.as_handle(), &mut out) } {
            0 => Ok(out),
            _ => Err(Error::take_raised()),
        }
    }

    /// The tensor as a view.
    #[inline]
    pub fn view(&self) -> TensorView<'_> {
        // SAFETY: a tensor object has the `DLTensor` right behind the header.
        let tensor = unsafe { self.0.header().add(1) };
        // SAFETY: as above; `self` keeps it alive.
        TensorView(unsafe { &*tensor.cast() })
    }

    /// The tensor as an object.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// The tensor as an object, borrowed.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// A tensor object as a tensor.
    ///
    /// # Errors
    /// The object itself, if it is none.
    pub fn try_from_object(object: ObjectRef) -> Result<Tensor, ObjectRef> {
        if object.type_index() == kTVMFFITensor { Ok(Tensor(object)) } else { Err(object) }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
    }
}

impl<'a> TensorView<'a> {
    /// A view of a DLPack tensor.
    ///
    /// # Safety
    /// The tensor's shape, strides and data must be valid for `'a`.
    pub unsafe fn from_dl(tensor: &'a DLTensor) -> TensorView<'a> {
        TensorView(tensor)
    }

    /// The tensor as DLPack describes it.
    pub fn as_dl(&self) -> &'a DLTensor {
        self.0
    }

    /// The extents.
    pub fn shape(&self) -> &'a [i64] {
        match usize::try_from(self.0.ndim) {
            // SAFETY: DLPack says that `shape` has `ndim` extents.
            Ok(ndim) if ndim > 0 && !self.0.shape.is_null() => unsafe { core::slice::from_raw_parts(self.0.shape, ndim) },
            _ => &[],
        }
    }

    /// The strides in elements; `None` means compact, row major.
    pub fn strides(&self) -> Option<&'a [i64]> {
        let ndim = usize::try_from(self.0.ndim).ok()?;
        if self.0.strides.is_null() {
            return None;
        }
        // SAFETY: DLPack says that `strides` has `ndim` entries when it is not NULL.
        Some(unsafe { core::slice::from_raw_parts(self.0.strides, ndim) })
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        DType(self.0.dtype)
    }

    /// Where the data is.
    pub fn device(&self) -> Device {
        Device(self.0.device)
    }

    /// Address of the first element on its device.
    pub fn data(&self) -> *mut c_void {
        self.0.data.wrapping_byte_add(self.0.byte_offset as usize)
    }

    /// Number of elements; `None` if the extents are negative or their product overflows.
    pub fn len(&self) -> Option<usize> {
        self.shape().iter().try_fold(1usize, |n, extent| n.checked_mul(usize::try_from(*extent).ok()?))
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let Some(strides) = self.strides() else { return true };
        let mut expected = 1i64;
        for (extent, stride) in self.shape().iter().zip(strides).rev() {
            if *extent == 0 {
                return true;
            }
            if *extent != 1 && *stride != expected {
                return false;
            }
            expected = expected.saturating_mul(*extent);
        }
        true
    }

    /// The elements as a slice.
    ///
    /// # Errors
    /// `TypeError` if they are not of type `T`, `ValueError` if they are not contiguous, aligned, in main memory.
    ///
    /// # Safety
    /// The elements must be initialised and not change during `'a`.
    pub unsafe fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        let (data, len) = self.checked::<T>()?;
        // SAFETY: the layout was checked; the caller guarantees the content.
        Ok(unsafe { core::slice::from_raw_parts(data, len) })
    }

    /// The elements as a slice that can be written.
    ///
    /// # Errors
    /// As [`TensorView::as_slice`].
    ///
    /// # Safety
    /// The elements must be initialised, writable, and not used otherwise during `'a`.
    pub unsafe fn as_mut_slice<T: Element>(&self) -> Result<&'a mut [T]> {
        let (data, len) = self.checked::<T>()?;
        // SAFETY: the layout was checked; the caller guarantees exclusive use.
        Ok(unsafe { core::slice::from_raw_parts_mut(data, len) })
    }

    fn checked<T: Element>(&self) -> Result<(*mut T, usize)> {
        if self.dtype() != T::DTYPE {
            crate::bail!("TypeError", "expected a tensor of {} but got {}", T::DTYPE, self.dtype());
        }
        if self.0.device.device_type != kDLCPU {
            crate::bail!("ValueError", "expected a tensor in main memory but got one on {}", self.device());
        }
        if !self.is_contiguous() {
            crate::bail!("ValueError", "expected a contiguous tensor but got strides {:?}", self.strides());
        }
        let Some(len) = self.len() else {
            crate::bail!("ValueError", "expected a valid shape but got {:?}", self.shape());
        };
        let data: *mut T = self.data().cast();
        if len == 0 {
            return Ok((ptr::dangling_mut(), 0));
        }
        if data.is_null() || !data.is_aligned() || len > isize::MAX as usize / size_of::<T>() {
            crate::bail!("ValueError", "expected data aligned to {} bytes but got {data:p}", align_of::<T>());
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

/// A Rust type that tensors have as elements.
pub trait Element: sealed::Sealed + Copy + 'static {
    /// The data type.
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
        let tensor: *const DLTensor = match view.type_index() {
            // SAFETY: tensor views have their value in `v_ptr`.
            kTVMFFIDLTensorPtr => unsafe { view.as_raw().value.v_ptr }.cast(),
            kTVMFFITensor => {
                // SAFETY: tensor objects have their value in `v_obj`.
                let object = unsafe { view.as_raw().value.v_obj };
                // SAFETY: a tensor object has the `DLTensor` right behind the header.
                unsafe { object.add(1) }.cast()
            }
            _ => ptr::null(),
        };
        // SAFETY: NULL, or a tensor that lives as long as the view.
        unsafe { tensor.as_ref() }.map(TensorView).ok_or_else(|| Mismatch::of_type::<Self>(view))
    }
}

impl IntoAny for TensorView<'_> {
    fn schema() -> Schema {
        Schema::plain("DLTensor*")
    }
    fn into_any(self) -> Result<Any> {
        Ok(plain(kTVMFFIDLTensorPtr, TVMFFIAnyValue { v_ptr: ptr::from_ref(self.0).cast_mut().cast() }))
    }
}

// SAFETY: a view of a tensor that the borrow keeps alive.
unsafe impl crate::IntoArg for TensorView<'_> {
    const OWNED: bool = false;
    fn into_arg(self) -> Result<anyfn_abi::TVMFFIAny> {
        Ok(self.into_any()?.into_raw())
    }
}

const _: PhantomData<AnyView<'_>> = PhantomData;
