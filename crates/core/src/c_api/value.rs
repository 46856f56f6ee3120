//! Exported functions for values: strings, bytes, integers, data types.

use core::ffi::{CStr, c_char, c_int};

use alloc::string::String;

use anyfn::__private::trampoline;
use anyfn::abi::{
    DLDataType, TENSOR_VIEW_READ_ONLY, TVMFFIAny, TVMFFIByteArray, kTVMFFIByteArrayPtr, kTVMFFIDLTensorPtr,
    kTVMFFIObjectRValueRef, kTVMFFIOpaquePtr, kTVMFFIRawStr, kTVMFFIStaticObjectBegin,
};
use anyfn::{Any, AnyView, ObjectRef, Result, bail};

use super::{bytes, out, reference};
use crate::{bigint, dtype_text, env, tensor, value};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIAnyViewToOwnedAny(any_view: *const TVMFFIAny, result: *mut TVMFFIAny) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIAnyViewToOwnedAny";
        // SAFETY: the ABI requires a valid value.
        let view = unsafe { reference(THIS, "any_view", any_view) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        // SAFETY: the ABI requires a valid value.
        result.write(unsafe { to_owned(view) }?.into_raw());
        Ok(())
    })
}

/// Returns an owned value for a view. A borrowed string is copied. The object of an r-value reference is
/// moved out of the caller's variable.
///
/// # Safety
/// The view must be valid.
unsafe fn to_owned(view: &TVMFFIAny) -> Result<Any> {
    match view.type_index {
        kTVMFFIRawStr => {
            // SAFETY: a raw string view holds a C string, or NULL if its creator violates the ABI.
            let text = unsafe { view.value.v_c_str };
            // SAFETY: a raw string view holds a C string or (against the ABI) NULL; it is valid for the call.
            let text = unsafe { text_or_error(text, "const char*") }?;
            value::string(text.to_bytes())
        }
        kTVMFFIByteArrayPtr => {
            // SAFETY: a byte array view holds the address of a byte array or (against the ABI) NULL.
            let array = unsafe { view.value.v_ptr }.cast::<TVMFFIByteArray>();
            // SAFETY: a byte array view holds the address of a byte array or (against the ABI) NULL; it is valid for
            // the call.
            let Some(array) = (unsafe { array.as_ref() }) else {
                bail!("ValueError", "the value is a TVMFFIByteArray* that is NULL");
            };
            // SAFETY: the byte array and its bytes are valid for the call.
            value::bytes(unsafe { array.as_slice() })
        }
        kTVMFFIObjectRValueRef => {
            // SAFETY: an r-value reference holds the address of a slot or (against the ABI) NULL.
            let slot = unsafe { view.value.v_ptr }.cast::<anyfn::abi::TVMFFIObjectHandle>();
            if slot.is_null() {
                bail!("ValueError", "the value is an ObjectRValueRef that is NULL");
            }
            // SAFETY: the slot is valid; views may be shared among threads, so one atomic operation empties it.
            let slot = unsafe { core::sync::atomic::AtomicPtr::from_ptr(slot) };
            let handle = slot.swap(core::ptr::null_mut(), core::sync::atomic::Ordering::AcqRel);
            // SAFETY: the slot owned a reference, which moves out here, or was empty.
            Ok(unsafe { ObjectRef::from_owned_or_null(handle) }.map_or(Any::NONE, Any::from))
        }
        kTVMFFIDLTensorPtr => {
            // SAFETY: a tensor view holds the address of a tensor.
            let tensor = unsafe { view.value.v_ptr };
            let is_read_only = view.small_str_len & TENSOR_VIEW_READ_ONLY != 0;
            match env::own_tensor(tensor.cast())? {
                Some(object) if is_read_only => Ok(tensor::read_only(object).into()),
                Some(object) => Ok(object.into()),
                None => {
                    let raw = TVMFFIAny { type_index: kTVMFFIOpaquePtr, small_str_len: 0, ..*view };
                    // SAFETY: an opaque pointer owns nothing.
                    Ok(unsafe { Any::from_raw(raw) })
                }
            }
        }
        index if index >= kTVMFFIStaticObjectBegin => {
            // SAFETY: values of these types hold an object.
            if unsafe { view.value.v_obj }.is_null() {
                bail!("ValueError", "the value is an object of type {index} that is NULL");
            }
            // SAFETY: the caller guarantees a valid view.
            Ok(unsafe { AnyView::from_raw(*view) }.to_owned())
        }
        // SAFETY: values of other types own nothing, and borrow nothing that an owned value must not borrow.
        _ => Ok(unsafe { Any::from_raw(*view) }),
    }
}

/// Returns the C string at `text`, or an error if the address is NULL. `what` is the C type that the error
/// message shows.
///
/// # Safety
/// `text` must be NULL or a C string that is valid for `'a`.
unsafe fn text_or_error<'a>(text: *const c_char, what: &str) -> Result<&'a CStr> {
    if text.is_null() {
        bail!("ValueError", "the value is a {what} that is NULL");
    }
    // SAFETY: the caller guarantees a C string.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Creates a value from the bytes of `input` by calling `make`, and writes it to `result`. Returns 0, or -1
/// if this fails.
///
/// # Safety
/// `input` must be NULL or a valid byte array, and `result` must be NULL or writable.
unsafe fn from_bytes(
    this: &str,
    input: *const TVMFFIByteArray,
    result: *mut TVMFFIAny,
    make: fn(&[u8]) -> Result<Any>,
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
