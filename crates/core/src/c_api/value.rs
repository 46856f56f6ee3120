//! Exported functions for values: strings, bytes, integers, data types.

use core::ffi::c_int;

use alloc::string::String;

use anyfn::__private::trampoline;
use anyfn::Any;
use anyfn::abi::{DLDataType, TVMFFIAny, TVMFFIByteArray};

use super::{bytes, out, reference};
use crate::{bigint, dtype_text, value};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIAnyViewToOwnedAny(any_view: *const TVMFFIAny, result: *mut TVMFFIAny) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIAnyViewToOwnedAny";
        // SAFETY: the ABI requires a valid value.
        let view = unsafe { reference(THIS, "any_view", any_view) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        // SAFETY: the ABI requires a valid value.
        result.write(unsafe { value::to_owned(view) }?.into_raw());
        Ok(())
    })
}

/// # Safety
/// `input` must be NULL or a valid byte array, and `result` must be NULL or writable.
unsafe fn from_bytes(
    this: &str,
    input: *const TVMFFIByteArray,
    result: *mut TVMFFIAny,
    make: fn(&[u8]) -> anyfn::Result<Any>,
) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the input.
        let input = unsafe { bytes(this, "input", input) }?;
        // SAFETY: the caller guarantees the result.
        let result = unsafe { out(this, "out", result) }?;
        result.write(make(input)?.into_raw());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIStringFromByteArray(
    input: *const TVMFFIByteArray,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller guarantees the same contract.
    unsafe { from_bytes("TVMFFIStringFromByteArray", input, result, value::string) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIBytesFromByteArray(
    input: *const TVMFFIByteArray,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller guarantees the same contract.
    unsafe { from_bytes("TVMFFIBytesFromByteArray", input, result, value::bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIBigIntFromByteArray(
    input: *const TVMFFIByteArray,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller guarantees the same contract.
    unsafe { from_bytes("TVMFFIBigIntFromByteArray", input, result, bigint::from_words) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIBigIntGetContentByteArray(value: *const TVMFFIAny) -> TVMFFIByteArray {
    // SAFETY: the ABI requires a valid value; NULL has no content.
    match unsafe { value.as_ref() } {
        // SAFETY: the ABI requires a valid value; NULL has no content.
        Some(value) => unsafe { bigint::words_of(value) },
        None => TVMFFIByteArray::EMPTY,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIDataTypeFromString(
    text: *const TVMFFIByteArray,
    result: *mut DLDataType,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIDataTypeFromString";
        // SAFETY: the ABI requires a valid string.
        let text = unsafe { bytes(THIS, "str", text) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        result.write(dtype_text::parse(&String::from_utf8_lossy(text))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIDataTypeToString(dtype: *const DLDataType, result: *mut TVMFFIAny) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIDataTypeToString";
        // SAFETY: the ABI requires a valid data type.
        let dtype = unsafe { reference(THIS, "dtype", dtype) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        result.write(value::string(dtype_text::print(*dtype)?.as_bytes())?.into_raw());
        Ok(())
    })
}
