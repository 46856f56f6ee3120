//! Exported functions that create errors, and those that raise and take the error of a thread.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::trampoline;
use anyfn::abi::{TVMFFIByteArray, TVMFFIObjectHandle, kTVMFFIError};
use anyfn::{Error, ObjectRef, bail};

use super::{bytes, out};
use crate::{backtrace, raised};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorMoveFromRaised(result: *mut TVMFFIObjectHandle) {
    // SAFETY: the ABI requires NULL or a writable location. With NULL the error stays in its slot.
    if let Some(result) = unsafe { result.as_mut() } {
        *result = raised::take().map_or(ptr::null_mut(), ObjectRef::into_handle);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorSetRaised(error: TVMFFIObjectHandle) {
    // SAFETY: the ABI requires NULL (which clears the slot) or a valid handle.
    let error = unsafe { ObjectRef::from_borrowed_or_null(error) };
    match error {
        Some(other) if !other.is_instance(kTVMFFIError) => {
            let text = alloc::format!("TVMFFIErrorSetRaised: expected an error but got `{}`", other.type_key());
            raised::set(Some(Error::new("TypeError", &text).into_object()));
        }
        error => raised::set(error),
    }
}

/// Returns the bytes of a C string without the terminating NUL, or an empty slice if `text` is NULL.
///
/// # Safety
/// `text` must be NULL or a C string that is valid for `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees a C string.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

fn raise(kind: &[u8], message: &[u8]) {
    let trace = backtrace::text(None);
    // When memory is exhausted, the slot becomes empty; a caller that finds it empty reports a failure without a
    // reason.
    raised::set(Error::try_from_texts(kind, message, trace.as_bytes(), None, None).map(Error::into_object));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorSetRaisedFromCStr(kind: *const c_char, message: *const c_char) {
    trampoline(|| {
        // SAFETY: the ABI requires C strings or NULL.
        let kind = unsafe { text(kind) };
        // SAFETY: the ABI requires C strings or NULL.
        raise(kind, unsafe { text(message) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorSetRaisedFromCStrParts(
    kind: *const c_char,
    message_parts: *mut *const c_char,
    num_parts: i32,
) {
    trampoline(|| {
        // SAFETY: the ABI requires a C string or NULL.
        let kind = unsafe { text(kind) };
        let mut message = Vec::new();
        let count = if message_parts.is_null() { 0 } else { usize::try_from(num_parts).unwrap_or(0) };
        for at in 0..count {
            // SAFETY: the ABI requires `num_parts` pointers.
            let part = unsafe { message_parts.add(at) };
            // SAFETY: the ABI requires `num_parts` pointers.
            let part = unsafe { *part };
            // SAFETY: each part is a C string or NULL.
            message.extend_from_slice(unsafe { text(part) });
        }
        raise(kind, &message);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorCreate(
    kind: *const TVMFFIByteArray,
    message: *const TVMFFIByteArray,
    backtrace: *const TVMFFIByteArray,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    let none = ptr::null_mut();
    // SAFETY: the caller guarantees the same contract.
    unsafe { create("TVMFFIErrorCreate", [kind, message, backtrace], none, none, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorCreateWithCauseAndExtraContext(
    kind: *const TVMFFIByteArray,
    message: *const TVMFFIByteArray,
    backtrace: *const TVMFFIByteArray,
    cause_chain: TVMFFIObjectHandle,
    extra_context: TVMFFIObjectHandle,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    const THIS: &str = "TVMFFIErrorCreateWithCauseAndExtraContext";
    // SAFETY: the caller guarantees the same contract.
    unsafe { create(THIS, [kind, message, backtrace], cause_chain, extra_context, result) }
}

/// Creates an error object and writes its handle to `result`. Returns 0, or -1 if this fails. `this` is the
/// name of the exported function for error messages.
///
/// # Safety
/// Each string, each object and `result` must be NULL or valid. NULL is an error for the kind, the message
/// and `result`; the backtrace, the cause and the context are optional.
unsafe fn create(
    this: &str,
    [kind, message, trace]: [*const TVMFFIByteArray; 3],
    cause: TVMFFIObjectHandle,
    context: TVMFFIObjectHandle,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    let mut short_of_memory = false;
    let code = trampoline(|| {
        // SAFETY: the caller guarantees the strings.
        let kind = unsafe { bytes(this, "kind", kind) }?;
        // SAFETY: the caller guarantees the strings.
        let message = unsafe { bytes(this, "message", message) }?;
        // SAFETY: the caller guarantees the strings.
        let trace = if trace.is_null() { &[] } else { unsafe { bytes(this, "backtrace", trace) }? };
        // SAFETY: the caller guarantees the result.
        let result = unsafe { out(this, "out", result) }?;
        // SAFETY: the caller guarantees NULL or a valid handle.
        let cause = unsafe { ObjectRef::from_borrowed_or_null(cause) };
        if let Some(cause) = &cause
            && !cause.is_instance(kTVMFFIError)
        {
            bail!(
                "TypeError",
                "{this}: argument `cause_chain`: expected an error but got `{}`",
                cause.type_key()
            );
        }
        // SAFETY: the caller guarantees NULL or a valid handle.
        let context = unsafe { ObjectRef::from_borrowed_or_null(context) };
        match Error::try_from_texts(kind, message, trace, cause, context) {
            Some(error) => result.write(error.into_object().into_handle()),
            None => short_of_memory = true,
        }
        Ok(())
    });
    // When memory is exhausted, nothing is raised, because that would need memory.
    if short_of_memory { -1 } else { code }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIBacktrace(
    filename: *const c_char,
    lineno: c_int,
    func: *const c_char,
    _cross_ffi_boundary: c_int,
) -> *const TVMFFIByteArray {
    static EMPTY: Empty = Empty(TVMFFIByteArray::EMPTY);
    super::or_raise(&EMPTY.0, || {
        // SAFETY: the ABI requires a C string or NULL.
        let file = String::from_utf8_lossy(unsafe { text(filename) });
        // SAFETY: the ABI requires a C string or NULL.
        let function = String::from_utf8_lossy(unsafe { text(func) });
        let known = !filename.is_null() && !func.is_null();
        Ok(backtrace::in_buffer(known.then_some((&*file, lineno, &*function))))
    })
}

/// An empty byte array, which all threads may read.
struct Empty(TVMFFIByteArray);

// SAFETY: the byte array is empty and only read.
unsafe impl Sync for Empty {}
