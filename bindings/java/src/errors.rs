//! Native errors and Java exceptions.
//!
//! An exception that leaves a callback becomes a native error, whose context keeps the exception. When that error returns to Java, the
//! same exception is thrown again.

use std::ptr;

use anyfn::abi::kTVMFFIFunction;
use anyfn::{Any, Error, Map, ObjectRef};

use crate::entry::{Res, byte_array, bytes, native, owned_handle};
use crate::java_function;
use crate::objects::object;
use crate::sys::{Env, Obj};

/// Returns the native error for an exception that Java could not convert, for example because its memory or its stack was exhausted.
#[cold]
pub(crate) fn of_escaped(env: Env, exception: Obj) -> Error {
    let context = java_function::keep(env, exception).ok();
    // A failure may have left another exception.
    let _ = env.take_exception();
    // SAFETY: the reference is a local one of this call.
    unsafe { env.delete_local_ref(exception) };
    let message = "the Java VM has no memory or no stack left";
    Error::try_from_texts(b"MemoryError", message.as_bytes(), b"", None, context)
        .unwrap_or_else(|| Error::new("MemoryError", message))
}

fn error_at(handle: i64) -> Res<Error> {
    Error::try_from_object(object(handle)?)
        .map_err(|_| Error::new("TypeError", "expected a native error").into())
}

native! {
    /// `makeError(kind, message, trace, cause, exception)`: makes a native error that keeps an exception. The texts are in UTF-8.
    fn Java_org_anyfn_Native_makeError(env, class, kind: Obj, message: Obj, trace: Obj, cause: i64, exception: Obj) -> i64 {
        let (kind, message, trace) = (bytes(env, kind)?, bytes(env, message)?, bytes(env, trace)?);
        let context = if exception.is_null() { None } else { Some(java_function::keep(env, exception)?) };
        let cause = if cause == 0 { None } else { Some(object(cause)?) };
        let error = Error::try_from_texts(&kind, &message, &trace, cause, context);
        Ok(owned_handle(error.unwrap_or_else(|| Error::new("MemoryError", "out of memory")).into_object()))
    }
}

native! {
    /// `keepException(error, trace, exception)`: returns an error with the texts of a native one, which keeps the exception that Java has
    /// made of it. Returns the native error itself if it keeps an object of another language.
    fn Java_org_anyfn_Native_keepException(env, class, error: i64, trace: Obj, exception: Obj) -> i64 {
        let error = error_at(error)?;
        if error.context().is_some() {
            return Ok(owned_handle(error.into_object()));
        }
        let trace = bytes(env, trace)?;
        let cause = error.cause().map(Error::into_object);
        let context = Some(java_function::keep(env, exception)?);
        let kept = Error::try_from_texts(error.kind().as_bytes(), error.message().as_bytes(), &trace, cause, context);
        Ok(owned_handle(kept.unwrap_or(error).into_object()))
    }
}

native! {
    /// `errorText(error, part)`: returns the kind (0), the message (1) or the backtrace (2) in UTF-8.
    fn Java_org_anyfn_Native_errorText(env, class, error: i64, part: i32) -> Obj {
        let error = error_at(error)?;
        match part {
            0 => byte_array(env, error.kind().as_bytes()),
            1 => byte_array(env, error.message().as_bytes()),
            _ => byte_array(env, error.backtrace().as_bytes()),
        }
    }
}

native! {
    /// `errorCause(error)`: returns the cause, or 0.
    fn Java_org_anyfn_Native_errorCause(env, class, error: i64) -> i64 {
        Ok(error_at(error)?.cause().map_or(0, |cause| owned_handle(cause.into_object())))
    }
}

native! {
    /// `errorException(error)`: returns the exception from which the error was made, or null.
    fn Java_org_anyfn_Native_errorException(env, class, error: i64) -> Obj {
        Ok(exception_of(env, &error_at(error)?).unwrap_or(ptr::null_mut()))
    }
}

fn exception_of(env: Env, error: &Error) -> Option<Obj> {
    let mut context = error.context()?;
    // A walk over a graph wraps the context in an object that adds the access path.
    if context.type_key() == "ffi.VisitErrorContext" {
        context = context.get_field("prev_error_context").ok()?.into_object()?;
    }
    if let Some(exception) = kept(env, &context) {
        return Some(exception);
    }
    // Native code that adds notes to an error puts its context into a map.
    let map = Map::<Any, Any>::try_from_object(context).ok()?;
    let context = map.get(&Any::new("exception").ok()?).ok()??.into_object()?;
    kept(env, &context)
}

/// Returns the Java object that a native object keeps.
fn kept(env: Env, context: &ObjectRef) -> Option<Obj> {
    if context.type_index() != kTVMFFIFunction {
        return None;
    }
    // SAFETY: the reference keeps the object alive.
    let holder = unsafe { java_function::from_handle(context.as_handle().cast()) }?;
    // SAFETY: the reference is valid as long as the object.
    (!holder.is_function).then(|| unsafe { env.new_local_ref(holder.target) })
}
