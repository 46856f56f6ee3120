//! Conversion of C arguments into values.

use core::ffi::{CStr, c_char};

use crate::env;
use anyfn::abi::{
    TENSOR_VIEW_READ_ONLY, TVMFFIAny, TVMFFIByteArray, kTVMFFIByteArrayPtr, kTVMFFIDLTensorPtr,
    kTVMFFIObjectRValueRef, kTVMFFIOpaquePtr, kTVMFFIRawStr, kTVMFFIStaticObjectBegin,
};
use anyfn::{Any, AnyView, Error, ObjectRef, Result, bail};

#[cold]
pub(crate) fn out_of_memory(what: &str) -> Error {
    Error::from_parts("MemoryError", "not enough memory for ", what)
}

/// Creates a string value with a copy of `bytes`.
pub(crate) fn string(bytes: &[u8]) -> Result<Any> {
    anyfn::__private::try_string(bytes).ok_or_else(|| out_of_memory("a string"))
}

/// Creates a bytes value with a copy of `bytes`.
pub(crate) fn bytes(bytes: &[u8]) -> Result<Any> {
    anyfn::__private::try_bytes(bytes).ok_or_else(|| out_of_memory("bytes"))
}

/// Creates a string object on the heap with a copy of `bytes`, even if they are few enough to be stored in a value.
/// Returns `None` if `bytes` is empty.
pub(crate) fn heap_text(bytes: &[u8]) -> Result<Option<ObjectRef>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match anyfn::__private::try_heap_string(bytes) {
        Some(object) => Ok(Some(object)),
        None => Err(out_of_memory("a string")),
    }
}

/// Returns an owned value for a view. A borrowed string is copied, and the object of an r-value reference is moved out
/// of the slot to which the reference points.
///
/// # Safety
/// The view must be valid.
pub(crate) unsafe fn to_owned(view: &TVMFFIAny) -> Result<Any> {
    match view.type_index {
        kTVMFFIRawStr => {
            // SAFETY: a raw string view holds a C string, or NULL if its creator violates the ABI.
            let text = unsafe { view.value.v_c_str };
            // SAFETY: a raw string view holds a C string or (against the ABI) NULL; it is valid for the call.
            let text = unsafe { text_or_error(text, "const char*") }?;
            string(text.to_bytes())
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
            bytes(unsafe { array.as_slice() })
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
                Some(object) if is_read_only => Ok(crate::tensor::read_only(object).into()),
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

/// # Safety
/// `text` must be NULL or a C string that is valid for `'a`.
unsafe fn text_or_error<'a>(text: *const c_char, what: &str) -> Result<&'a CStr> {
    if text.is_null() {
        bail!("ValueError", "the value is a {what} that is NULL");
    }
    // SAFETY: the caller guarantees a C string.
    Ok(unsafe { CStr::from_ptr(text) })
}
