//! Exported functions of the C ABI, one file per subject.
//!
//! Each function checks its arguments and calls the table or type that does the work. All but the cheapest run their
//! body in the trampoline of `anyfn`, which turns errors and panics into a raised error and -1.
//!
//! The contract of a function is documented at its declaration, in `anyfn_abi::functions`.
#![allow(
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "the functions are exported by name, and their declarations have the documentation"
)]

mod api;
mod env;
mod error;
mod function;
mod object;
mod once;
mod tensor;
mod types;
mod value;

pub use function::watch_calls;

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::ptr::NonNull;

use anyfn::abi::{TVMFFIByteArray, TVMFFIObjectHandle};
use anyfn::{Error, ObjectRef, Result, bail};

#[cold]
fn null(function: &str, argument: &str) -> Error {
    anyfn::error!("ValueError", "{function}: argument `{argument}` is NULL")
}

/// Address to which an exported function writes its result, at most once. It is not NULL.
struct Out<'a, T>(NonNull<T>, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    fn write(self, value: T) {
        // SAFETY: the caller of `out` guarantees a writable location.
        unsafe { self.0.write(value) };
    }
}

/// Checks that the address `place`, at which the caller expects a result, is not NULL. The error
/// message contains `function` and `argument`.
///
/// # Safety
/// `place` must be NULL or writable for `'a`.
unsafe fn out<'a, T>(function: &str, argument: &str, place: *mut T) -> Result<Out<'a, T>> {
    match NonNull::new(place) {
        Some(place) => Ok(Out(place, PhantomData)),
        None => Err(null(function, argument)),
    }
}

/// Returns a reference to a struct that the caller passed by address, or an error if the address is NULL.
///
/// # Safety
/// `value` must be NULL or valid for `'a`.
unsafe fn reference<'a, T>(function: &str, argument: &str, value: *const T) -> Result<&'a T> {
    // SAFETY: the caller guarantees NULL or a valid value.
    unsafe { value.as_ref() }.ok_or_else(|| null(function, argument))
}

/// Returns the bytes to which a byte array refers, or an error if the array is NULL or invalid.
///
/// # Safety
/// `array` must be NULL or valid for `'a`, as must the bytes that it points to.
unsafe fn bytes<'a>(function: &str, argument: &str, array: *const TVMFFIByteArray) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees NULL or a valid array.
    let array = unsafe { reference(function, argument, array) }?;
    if array.size > isize::MAX as usize {
        bail!(
            "ValueError",
            "{function}: argument `{argument}` has a size of {} bytes, which exceeds the address space",
            array.size
        );
    }
    if array.data.is_null() && array.size > 0 {
        bail!(
            "ValueError",
            "{function}: argument `{argument}` has a size of {} bytes, but its data pointer is NULL",
            array.size
        );
    }
    // SAFETY: size and address were checked above; the caller guarantees the bytes.
    Ok(unsafe { array.as_slice() })
}

/// Maximum length of a function name in bytes. A longer name is rejected, because the size of its
/// byte array is probably not initialised.
const NAME_MAX: usize = 1 << 16;

/// Returns a function name that the caller passed as a byte array, or an error if it is longer than [`NAME_MAX`].
///
/// # Safety
/// The requirements of [`bytes`] apply.
unsafe fn name<'a>(function: &str, argument: &str, array: *const TVMFFIByteArray) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees NULL or a valid array.
    let size = unsafe { reference(function, argument, array) }?.size;
    if size > NAME_MAX {
        bail!(
            "ValueError",
            "{function}: argument `{argument}` has {size} bytes, but a name can have at most {NAME_MAX}"
        );
    }
    // SAFETY: the caller guarantees the requirements of `bytes`.
    unsafe { bytes(function, argument, array) }
}

/// Returns a function name as [`name`] does, and also checks that it is UTF-8, so that every frontend can show it.
/// Used for registration. A lookup does not need the check, because it finds only registered names.
///
/// # Safety
/// The requirements of [`bytes`] apply.
unsafe fn new_name<'a>(function: &str, argument: &str, array: *const TVMFFIByteArray) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees the requirements of `name`.
    let name = unsafe { name(function, argument, array) }?;
    if core::str::from_utf8(name).is_err() {
        bail!("ValueError", "{function}: argument `{argument}` is not UTF-8: \"{}\"", name.escape_ascii());
    }
    Ok(name)
}

/// Returns a C string that the caller passed by address, or an error if the address is NULL.
///
/// # Safety
/// `text` must be NULL or a C string that is valid for `'a`.
unsafe fn c_string<'a>(function: &str, argument: &str, text: *const c_char) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(null(function, argument));
    }
    // SAFETY: the caller guarantees a C string.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Returns a new reference to the object with the given handle, or an error if the handle is NULL.
///
/// # Safety
/// `handle` must be NULL or a valid handle.
unsafe fn object(function: &str, argument: &str, handle: TVMFFIObjectHandle) -> Result<ObjectRef> {
    // SAFETY: the caller guarantees NULL or a valid handle.
    unsafe { ObjectRef::from_borrowed_or_null(handle) }.ok_or_else(|| null(function, argument))
}

/// Runs the body of an exported function that does not return an error code. If `body` fails, its error is raised and
/// `fallback` is returned.
fn or_raise<T>(fallback: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut result = fallback;
    anyfn::__private::trampoline(|| {
        result = body()?;
        Ok(())
    });
    result
}
