//! Values of any type: a tag and eight bytes.

use core::ffi::{c_char, c_void};

use crate::{DLDataType, DLDevice, TVMFFIObject, kTVMFFINone};

/// A value of any type: 16 bytes that hold a type index and a union.
///
/// The same struct serves as a *view* (borrowed: it is never released) and as an *owned* value (it holds one reference
/// if the type index is 64 or more). The function that takes or returns the value determines which of the two it is. An
/// owned value never has the type `kTVMFFIRawStr`, `kTVMFFIByteArrayPtr` or `kTVMFFIObjectRValueRef`.
///
/// Equality and hashing read all 16 bytes. The second 32-bit word is therefore zero for all types except small strings
/// and small bytes, and the unused bytes of the union are always zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIAny {
    /// Type of the value, which selects the member of the union: `kTVMFFINone`..`kTVMFFIUnchanged`, or the index of an
    /// object type.
    pub type_index: i32,
    /// Length in bytes of a small string or of small bytes (0 to 7); zero for every other type.
    pub small_str_len: u32,
    /// Payload of the value.
    pub value: TVMFFIAnyValue,
}

/// Payload of a [`TVMFFIAny`], eight bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub union TVMFFIAnyValue {
    /// Value of an integer or boolean.
    pub v_int64: i64,
    /// Value of a floating-point number.
    pub v_float64: f64,
    /// Opaque pointer, or address of a `DLTensor`, of a byte array, or of a variable (for an
    /// r-value reference).
    pub v_ptr: *mut c_void,
    /// Borrowed, NUL-terminated string.
    pub v_c_str: *const c_char,
    /// Address of the object to which the value refers.
    pub v_obj: *mut TVMFFIObject,
    /// Data type; the upper four bytes of the union are zero.
    pub v_dtype: DLDataType,
    /// Device kind and index.
    pub v_device: DLDevice,
    /// Bytes of a small string or of small bytes, padded with zeros.
    pub v_bytes: [c_char; 8],
    /// All bits of the union, for hashing and comparison.
    pub v_uint64: u64,
}

impl TVMFFIAnyValue {
    /// Creates the payload of an opaque pointer, or of the address of a `DLTensor`, of a byte
    /// array, or of a variable (for an r-value reference). On a 32-bit target, the other four bytes
    /// are zero, so that all bits of the union can be compared.
    #[inline]
    pub const fn from_ptr(ptr: *mut c_void) -> Self {
        let mut value = TVMFFIAnyValue { v_uint64: 0 };
        value.v_ptr = ptr;
        value
    }

    /// Creates the payload of a borrowed, NUL-terminated string, like [`TVMFFIAnyValue::from_ptr`].
    #[inline]
    pub const fn from_c_str(text: *const c_char) -> Self {
        Self::from_ptr(text.cast_mut().cast())
    }

    /// Creates the payload of a reference to an object, like [`TVMFFIAnyValue::from_ptr`].
    #[inline]
    pub const fn from_obj(object: *mut TVMFFIObject) -> Self {
        Self::from_ptr(object.cast())
    }
}

impl TVMFFIAny {
    /// The value `None`.
    pub const NONE: TVMFFIAny =
        TVMFFIAny { type_index: kTVMFFINone, small_str_len: 0, value: TVMFFIAnyValue { v_uint64: 0 } };

    /// Creates a value of type `type_index` whose union holds `bits`.
    #[inline]
    pub const fn from_bits(type_index: i32, bits: u64) -> Self {
        TVMFFIAny { type_index, small_str_len: 0, value: TVMFFIAnyValue { v_uint64: bits } }
    }

    /// Returns all bits of the union.
    ///
    /// ```compile_fail,E0133
    /// use anyfn_abi::{DLDataType, TVMFFIAny, TVMFFIAnyValue};
    /// let mut value = TVMFFIAny::NONE;
    /// value.value = TVMFFIAnyValue { v_dtype: DLDataType { code: 0, bits: 32, lanes: 1 } };
    /// let half_of_them_are_not_initialised = value.bits();
    /// ```
    ///
    /// # Safety
    /// All eight bytes of the union must be initialised. They are in every valid value, because unused bytes are zero.
    #[inline]
    pub const unsafe fn bits(&self) -> u64 {
        // SAFETY: the caller guarantees that the bytes are initialised, and every bit pattern is a valid integer.
        unsafe { self.value.v_uint64 }
    }
}

/// Borrowed bytes: an address and a length.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIByteArray {
    /// Address of the first byte; may be NULL if `size` is zero.
    pub data: *const c_char,
    /// Number of bytes at `data`.
    pub size: usize,
}

impl TVMFFIByteArray {
    /// The empty byte array.
    pub const EMPTY: TVMFFIByteArray = TVMFFIByteArray { data: core::ptr::null(), size: 0 };

    /// Creates a byte array that borrows the bytes of a slice. The result is valid as long as the slice.
    #[inline]
    pub const fn from_slice(bytes: &[u8]) -> Self {
        TVMFFIByteArray { data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    /// Returns the bytes as a slice.
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
