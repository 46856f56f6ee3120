//! A value of any type: a tag and eight bytes.

use core::ffi::{c_char, c_void};

use crate::{DLDataType, DLDevice, TVMFFIObject, kTVMFFINone};

/// A value of any type: 16 bytes, a type index and a union.
///
/// The same struct serves as *view* (borrowed: nothing is released) and as *owned* value (holds one reference when
/// the type index is 64 or more). Which one it is follows from the function that takes or gives it. An owned value
/// never has the types `kTVMFFIRawStr`, `kTVMFFIByteArrayPtr` or `kTVMFFIObjectRValueRef`.
///
/// For everything but small strings and small bytes the second word is zero, and so are unused bytes of the union,
/// since equality and hashing read the raw 16 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIAny {
    /// Which member of the union holds the value: `kTVMFFINone`..`kTVMFFIUnchanged`, or the index of an object type.
    pub type_index: i32,
    /// Length in bytes of a small string or of small bytes (0 to 7); zero for every other type.
    pub small_str_len: u32,
    /// The value.
    pub value: TVMFFIAnyValue,
}

/// The eight bytes of a [`TVMFFIAny`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union TVMFFIAnyValue {
    /// Integers and booleans.
    pub v_int64: i64,
    /// Floating-point numbers.
    pub v_float64: f64,
    /// Opaque pointers, tensor views, addresses of byte arrays.
    pub v_ptr: *mut c_void,
    /// A borrowed, NUL-terminated string.
    pub v_c_str: *const c_char,
    /// An object.
    pub v_obj: *mut TVMFFIObject,
    /// A data type; the upper four bytes are zero.
    pub v_dtype: DLDataType,
    /// A device.
    pub v_device: DLDevice,
    /// The bytes of a small string, filled up with zeros.
    pub v_bytes: [c_char; 8],
    /// All bits, for hashing and comparison.
    pub v_uint64: u64,
}

impl TVMFFIAny {
    /// The value `None`.
    pub const NONE: TVMFFIAny =
        TVMFFIAny { type_index: kTVMFFINone, small_str_len: 0, value: TVMFFIAnyValue { v_uint64: 0 } };

    /// A value of type `type_index` whose union holds `bits`.
    #[inline]
    pub const fn from_bits(type_index: i32, bits: u64) -> Self {
        TVMFFIAny { type_index, small_str_len: 0, value: TVMFFIAnyValue { v_uint64: bits } }
    }

    /// All bits of the union.
    ///
    /// ```compile_fail,E0133
    /// use anyfn_abi::{DLDataType, TVMFFIAny, TVMFFIAnyValue};
    /// let mut value = TVMFFIAny::NONE;
    /// value.value = TVMFFIAnyValue { v_dtype: DLDataType { code: 0, bits: 32, lanes: 1 } };
    /// let half_of_them_are_not_initialised = value.bits();
    /// ```
    ///
    /// # Safety
    /// All eight bytes of the union must be initialised, as those of a value are: what is smaller is filled up with zeros.
    #[inline]
    pub const unsafe fn bits(&self) -> u64 {
        // SAFETY: the caller guarantees the bytes, and every pattern of them is a number.
        unsafe { self.value.v_uint64 }
    }
}

/// Borrowed bytes: an address and a length.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIByteArray {
    /// First byte; may be NULL when `size` is zero.
    pub data: *const c_char,
    /// Number of bytes.
    pub size: usize,
}

impl TVMFFIByteArray {
    /// No bytes.
    pub const EMPTY: TVMFFIByteArray = TVMFFIByteArray { data: core::ptr::null(), size: 0 };

    /// The bytes of a slice; valid as long as the slice is.
    #[inline]
    pub const fn from_slice(bytes: &[u8]) -> Self {
        TVMFFIByteArray { data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// `data` must point to `size` readable bytes that stay valid and unchanged for `'a`, or `size` must be zero.
    #[inline]
    pub const unsafe fn as_slice<'a>(&self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the caller guarantees `size` valid bytes at `data` for `'a`.
        unsafe { core::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}
