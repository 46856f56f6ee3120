//! The exported functions, one file per noun.
//!
//! Each checks what it is given and calls the table or type that does the work. All but the cheapest run their body in
//! the trampoline of `anyfn`, which turns errors and panics into a raised error and -1.
//!
//! What a function promises is documented where it is declared, in `anyfn_abi::functions`.
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

#[cfg(any(feature = "std", test))]
pub(crate) use function::watch_calls;

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::ptr::NonNull;

use anyfn::abi::{TVMFFIByteArray, TVMFFIObjectHandle};
use anyfn::{Error, ObjectRef, Result, bail};

#[cold]
fn null(function: &str, argument: &str) -> Error {
    anyfn::error!("ValueError", "{function}: argument `{argument}` is NULL")
}

/// A place for a result: not NULL, and written once.
struct Out<'a, T>(NonNull<T>, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    fn write(self, value: T) {
        // SAFETY: whoever made this by `out` guarantees a writable place.
        unsafe { self.0.write(value) };
    }
}

/// The place for a result.
///
/// # Safety
/// `place` must be NULL or writable for `'a`.
unsafe fn out<'a, T>(function: &str, argument: &str, place: *mut T) -> Result<Out<'a, T>> {
    match NonNull::new(place) {
        Some(place) => Ok(Out(place, PhantomData)),
        None => Err(null(function, argument)),
    }
}

/// A struct that is passed by address.
///
/// # Safety
/// `value` must be NULL or valid for `'a`.
unsafe fn reference<'a, T>(function: &str, argument: &str, value: *const T) -> Result<&'a T> {
    // SAFETY: the caller guarantees NULL or a valid value.
    unsafe { value.as_ref() }.ok_or_else(|| null(function, argument))
}

/// The bytes of a byte array.
///
/// # Safety
/// `array` must be NULL or valid for `'a`, as must be what it points to.
unsafe fn bytes<'a>(function: &str, argument: &str, array: *const TVMFFIByteArray) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees NULL or a valid array.
    let array = unsafe { reference(function, argument, array) }?;
    if array.size > isize::MAX as usize {
        bail!("ValueError", "{function}: argument `{argument}` has a size of {} bytes", array.size);
    }
    if array.data.is_null() && array.size > 0 {
        bail!("ValueError", "{function}: argument `{argument}` has {} bytes at NULL", array.size);
    }
    // SAFETY: checked above; the caller guarantees the bytes.
    Ok(unsafe { array.as_slice() })
}

/// Longest name of a function, in bytes: what is longer is a mistake, such as a size that was never set.
const NAME_MAX: usize = 1 << 16;

/// The name of a function, of a sensible length.
///
/// # Safety
/// As [`bytes`].
unsafe fn name<'a>(function: &str, argument: &str, array: *const TVMFFIByteArray) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees NULL or a valid array.
    let size = unsafe { reference(function, argument, array) }?.size;
    if size > NAME_MAX {
        bail!(
            "ValueError",
            "{function}: argument `{argument}` has {size} bytes, a name has at most {NAME_MAX}"
        );
    }
    // SAFETY: the caller guarantees what `bytes` needs.
    unsafe { bytes(function, argument, array) }
}

/// The name that a function is to have: text, so that every frontend can show it. Looking up need not check that.
///
/// # Safety
/// As [`bytes`].
unsafe fn new_name<'a>(function: &str, argument: &str, array: *const TVMFFIByteArray) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees what `name` needs.
    let name = unsafe { name(function, argument, array) }?;
    if core::str::from_utf8(name).is_err() {
        bail!("ValueError", "{function}: argument `{argument}` is not UTF-8: \"{}\"", name.escape_ascii());
    }
    Ok(name)
}

/// A C string.
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

/// An object that is passed by handle, with a reference of its own.
///
/// # Safety
/// `handle` must be NULL or a valid handle.
unsafe fn object(function: &str, argument: &str, handle: TVMFFIObjectHandle) -> Result<ObjectRef> {
    // SAFETY: the caller guarantees NULL or a valid handle.
    unsafe { ObjectRef::from_borrowed_or_null(handle) }.ok_or_else(|| null(function, argument))
}

/// Runs the body of an exported function that has no error code: an error is raised, and `fallback` is the result.
fn or_raise<T>(fallback: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut result = fallback;
    anyfn::__private::trampoline(|| {
        result = body()?;
        Ok(())
    });
    result
}
