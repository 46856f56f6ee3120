//! The error of a thread as text.
//!
//! The error itself is the raised error of the ABI, so that errors pass through functions of this API as the same
//! object. `TVMGetLastError` writes it as text, and `TVMAPISetLastError` reads one:
//!
//! ```text
//! ValueError: too large
//! Stack trace:
//!   File "f.py", line 7, in g
//! ```

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use std::ffi::CString;
use std::string::{String, ToString};

use anyfn::abi::{TVMFFIErrorMoveFromRaised, TVMFFIErrorSetRaised, TVMFFIObjectHandle};
use anyfn::{Error, ObjectRef};

/// Line between the message and the backtrace.
const TRACE: &str = "\nStack trace:\n";

/// Text of an error.
struct Text {
    error: ObjectRef,
    text: CString,
}

std::thread_local! {
    /// Text that this thread has set or returned last.
    static LAST: RefCell<Option<Text>> = const { RefCell::new(None) };
}

/// Takes the raised error of this thread; `None` if no error is raised.
fn take() -> Option<ObjectRef> {
    let mut handle: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: `handle` is writable.
    unsafe { TVMFFIErrorMoveFromRaised(&mut handle) };
    // SAFETY: the slot returns an owned error or NULL.
    unsafe { ObjectRef::from_owned_or_null(handle) }
}

fn raise(error: &ObjectRef) {
    // SAFETY: this is an error, and the slot takes its own reference.
    unsafe { TVMFFIErrorSetRaised(error.as_handle()) };
}

/// Returns the error that a failed C function has set, or one that states that it has set none.
pub(crate) fn of_failed(code: c_int) -> Error {
    match take().map(Error::try_from_object) {
        Some(Ok(error)) => error,
        _ => anyfn::error!("RuntimeError", "a C function returned {code} without setting an error"),
    }
}

/// Makes `text` the text of `error`, and returns its address.
fn keep(error: ObjectRef, text: String) -> *const c_char {
    let bytes: std::vec::Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    let address = text.as_ptr();
    // The old one is released outside of the borrow, because releasing may run any code.
    let old = LAST.try_with(|last| last.replace(Some(Text { error, text })));
    drop(old);
    address
}

/// Returns an error with a kind, message and backtrace that are parts of `text`.
fn parse(text: &str) -> Error {
    let (message, trace) = text.split_once(TRACE).unwrap_or((text, ""));
    let is_kind = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'.')
    };
    let (kind, message) = match message.split_once(':') {
        Some((name, rest)) if is_kind(name) => (name, rest.strip_prefix(' ').unwrap_or(rest)),
        _ => ("RuntimeError", message),
    };
    Error::try_from_texts(kind.as_bytes(), message.as_bytes(), trace.as_bytes(), None, None)
        .unwrap_or_else(|| Error::untraced("MemoryError", "cannot allocate an error"))
}

fn text_of(error: &Error) -> String {
    let mut text = [error.kind(), ": ", error.message()].concat();
    let trace = error.backtrace();
    if !trace.is_empty() {
        text += TRACE;
        text += &trace;
    }
    text
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMAPISetLastError(msg: *const c_char) {
    anyfn::__private::trampoline(|| {
        // SAFETY: by the API, `msg` is a C string; NULL is treated as an empty one.
        let text = if msg.is_null() { c"" } else { unsafe { CStr::from_ptr(msg) } };
        let text = text.to_string_lossy().to_string();
        let error = parse(&text).into_object();
        raise(&error);
        keep(error, text);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMGetLastError() -> *const c_char {
    let mut address = c"".as_ptr();
    let _ = anyfn::__private::catch(|| {
        let raised = take();
        // The error stays raised, for the caller of a C function that fails because of it.
        raised.iter().for_each(raise);
        let known = LAST.try_with(|last| {
            let last = last.borrow();
            let is_same = |last: &&Text| raised.as_ref().is_none_or(|raised| raised.ptr_eq(&last.error));
            last.as_ref().filter(is_same).map(|last| last.text.as_ptr())
        });
        address = match (known, raised.map(Error::try_from_object)) {
            (Ok(Some(known)), _) => known,
            (_, Some(Ok(error))) => {
                let text = text_of(&error);
                keep(error.into_object(), text)
            }
            _ => c"".as_ptr(),
        };
        Ok(())
    });
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_traces_are_read() {
        let check = |text: &str, kind: &str, message: &str, trace: &str| {
            let error = parse(text);
            assert_eq!((error.kind(), error.message(), &*error.backtrace()), (kind, message, trace), "{text}");
        };
        check("ValueError: too large", "ValueError", "too large", "");
        check("my.Error: a: b", "RuntimeError", "my.Error: a: b", "");
        check("My.Error:x", "My.Error", "x", "");
        check("Check failed: x < 3", "RuntimeError", "Check failed: x < 3", "");
        check("", "RuntimeError", "", "");
        check("TypeError: no\nStack trace:\n  File \"f\"\n", "TypeError", "no", "  File \"f\"\n");
    }
}
