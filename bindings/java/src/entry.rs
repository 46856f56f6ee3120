//! Entry points from Java: errors and panics become exceptions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::Error;

use crate::sys::{Arg, Env, MethodId, Obj};

/// Reason why a native method has no result.
pub(crate) enum Failure {
    /// A native error, which becomes an exception.
    Error(Error),
    /// An exception is pending.
    Pending,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

pub(crate) type Res<T> = Result<T, Failure>;

/// Result of a native method that fails, which Java ignores.
pub(crate) trait Nothing {
    const NOTHING: Self;
}

impl Nothing for () {
    const NOTHING: () = ();
}
impl Nothing for u8 {
    const NOTHING: u8 = 0;
}
impl Nothing for i32 {
    const NOTHING: i32 = 0;
}
impl Nothing for i64 {
    const NOTHING: i64 = 0;
}
impl Nothing for f64 {
    const NOTHING: f64 = 0.0;
}
impl Nothing for Obj {
    const NOTHING: Obj = ptr::null_mut();
}

/// The static method `raise(long)` of the class of native methods, which throws a native error as an exception.
static RAISE: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets the method that throws native errors.
pub(crate) fn set_raise(method: MethodId) {
    RAISE.store(method, Ordering::Release);
}

/// Declares a native method of the class `org.anyfn.Native`.
macro_rules! native {
    ($(#[$doc:meta])* fn $name:ident($env:ident, $class:ident $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        extern "system" fn $name($env: $crate::sys::Env, $class: $crate::sys::Obj $(, $arg: $ty)*) -> $ret {
            #[allow(unused_variables, reason = "not every method uses its environment")]
            let body = move || -> $crate::entry::Res<$ret> { $body };
            $crate::entry::enter($env, $class, body)
        }
    };
}
pub(crate) use native;

/// Runs the body of a native method.
#[inline]
pub(crate) fn enter<T: Nothing>(env: Env, class: Obj, body: impl FnOnce() -> Res<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Failure::Pending)) => T::NOTHING,
        Ok(Err(Failure::Error(error))) => {
            raise(env, class, error);
            T::NOTHING
        }
        Err(payload) => {
            raise(env, class, Error::new("InternalError", panic_text(&*payload)));
            T::NOTHING
        }
    }
}

/// Throws a native error as an exception.
#[cold]
fn raise(env: Env, class: Obj, error: Error) {
    let args = [Arg { long: owned_handle(error.into_object()) }];
    // SAFETY: the method belongs to this class, and takes the ownership of an error object.
    unsafe { env.call_static_void_method(class, RAISE.load(Ordering::Acquire), args.as_ptr()) };
    // SAFETY: may be called at any time. The method always throws; the check tells the VM that this is expected.
    unsafe { env.exception_check() };
}

/// Returns the address of an object, with the ownership of a reference.
pub(crate) fn owned_handle(object: anyfn::ObjectRef) -> i64 {
    object.into_handle().expose_provenance() as i64
}

/// Returns the message of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "unknown reason",
    }
}

/// Copies the content of an array of bytes.
pub(crate) fn bytes(env: Env, array: Obj) -> Res<Vec<u8>> {
    if array.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the argument is an array.
    let length = unsafe { env.get_array_length(array) };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize).map_err(Error::from)?;
    bytes.resize(length as usize, 0);
    // SAFETY: the buffer has the length of the array.
    unsafe { env.get_byte_array_region(array, 0, length, bytes.as_mut_ptr()) };
    Ok(bytes)
}

/// Copies a string that Java has encoded as UTF-8.
pub(crate) fn text(env: Env, array: Obj) -> Res<String> {
    String::from_utf8(bytes(env, array)?).map_err(|error| Failure::Error(error.into()))
}

/// Makes an array of bytes.
pub(crate) fn byte_array(env: Env, bytes: &[u8]) -> Res<Obj> {
    let Ok(length) = i32::try_from(bytes.len()) else {
        return Err(Error::new(
            "ValueError",
            "a string or bytes of 2^31 bytes or more does not fit in a Java array",
        )
        .into());
    };
    // SAFETY: the length is not negative.
    let array = unsafe { env.new_byte_array(length) };
    if array.is_null() {
        return Err(Failure::Pending);
    }
    // SAFETY: the array has this length.
    unsafe { env.set_byte_array_region(array, 0, length, bytes.as_ptr()) };
    Ok(array)
}

/// Makes an array of longs.
pub(crate) fn long_array(env: Env, longs: &[i64]) -> Res<Obj> {
    // SAFETY: shapes are short.
    let array = unsafe { env.new_long_array(longs.len() as i32) };
    if array.is_null() {
        return Err(Failure::Pending);
    }
    // SAFETY: the array has this length.
    unsafe { env.set_long_array_region(array, 0, longs.len() as i32, longs.as_ptr()) };
    Ok(array)
}
