//! Conversion of numbers and strings to native values.

use anyfn::Any;
use anyfn::abi::{TVMFFIAny, kTVMFFIInt};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::bigint;
use crate::py::{self, IntError, Obj, Raised, Res, builtins};
use crate::shared_bytes::{self, SHARED_MIN};

/// Converts an int of any size to a native value. `arg` must be an instance of `int`.
#[inline]
pub(crate) fn int(arg: Obj<'_>) -> Res<Any> {
    if let Some(value) = builtins::small_int(arg) {
        return Ok(plain(kTVMFFIInt, value as u64));
    }
    match arg.int() {
        Ok(value) => Ok(plain(kTVMFFIInt, value as u64)),
        Err(IntError::Raised) => Err(Raised),
        Err(IntError::Overflow) => bigint::lower(arg),
    }
}

/// Makes a native value from its type index and the eight bytes of its payload. The type must be
/// one whose values own nothing, such as int.
#[inline]
pub(crate) fn plain(type_index: i32, bits: u64) -> Any {
    // SAFETY: only called with types that own nothing, and with valid bits of these types.
    unsafe { Any::from_raw(TVMFFIAny::from_bits(type_index, bits)) }
}

/// Returns the native value of an object whose class is exactly `int`. Returns `None` for other classes and for ints
/// that do not fit in 64 bits.
#[inline(always)]
pub(crate) fn exact_int(value: Obj<'_>) -> Option<Any> {
    let value = exact_i64(value)?;
    // SAFETY: an int owns nothing.
    Some(unsafe { Any::from_raw(TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) })
}

/// Returns an int as an `i64`. Returns `None` for the objects that [`exact_int`] does not convert.
#[inline(always)]
pub(crate) fn exact_i64(value: Obj<'_>) -> Option<i64> {
    if value.type_ptr() != &raw mut ffi::PyLong_Type {
        return None;
    }
    builtins::small_int(value).or_else(|| large_i64(value))
}

/// Returns the value of an int with more than one digit, or `None` if it does not fit in 64 bits.
#[cold]
#[inline(never)]
pub(crate) fn large_i64(value: Obj<'_>) -> Option<i64> {
    value.int().ok()
}

/// Raises `ValueError` for a str that has no UTF-8 encoding.
#[cold]
pub(crate) fn bad_text<T>(at: &At<'_>) -> Res<T> {
    py::clear_error();
    at.raise(py::exceptions::value_error(), "the str holds lone surrogates and cannot be encoded as UTF-8")
}

/// Returns the content of a Python string as UTF-8. Raises an exception if the string contains lone surrogates. `text`
/// must be an instance of `str`.
#[inline(always)]
pub(crate) fn text_bytes<'a>(text: Obj<'a>) -> Res<&'a [u8]> {
    match builtins::ascii(text) {
        Some(content) => Ok(content),
        None => text.str_bytes(),
    }
}

/// Makes a native string from a Python string. A long string keeps its memory. `text` must be an instance of `str`.
#[inline]
pub(crate) fn native_string(text: Obj<'_>) -> Res<Any> {
    let content = text_bytes(text)?;
    if content.len() >= SHARED_MIN && text.type_ptr() == &raw mut ffi::PyUnicode_Type {
        return Ok(shared_bytes::string(text, content));
    }
    Ok(string(content))
}

/// Makes native bytes from a bytes object. A long one keeps its memory. `arg` must be an instance of `bytes`.
pub(crate) fn native_bytes(arg: Obj<'_>) -> Res<Any> {
    let content = arg.bytes()?;
    if content.len() >= SHARED_MIN && arg.type_ptr() == &raw mut ffi::PyBytes_Type {
        return Ok(shared_bytes::bytes(arg, content));
    }
    Ok(anyfn::Bytes::from(content).into())
}

/// Makes a native string from the UTF-8 bytes of a Python string.
#[inline]
pub(crate) fn string(bytes: &[u8]) -> Any {
    // SAFETY: Python returns UTF-8.
    anyfn::String::from(unsafe { std::str::from_utf8_unchecked(bytes) }).into()
}

/// Returns the address of the object True.
pub(crate) fn true_ptr() -> *mut py::PyObject {
    // SAFETY: this only takes the address of True.
    unsafe { ffi::Py_True() }
}
