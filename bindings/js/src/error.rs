//! Conversion between JavaScript exceptions and native errors, in both directions.
//!
//! An exception that leaves a callback becomes a native error, whose context keeps the exception. When that error returns to
//! JavaScript, the same exception is thrown again. A native error becomes an `Error` of the class that its kind names, which
//! refers to the native error and becomes that error again.

use anyfn::{Error, ObjectRef};

use crate::env::{Env, Res, Thrown, Value};
use crate::js_function;
use crate::state::Js;
use crate::sys::value_type;

impl Js<'_> {
    /// Throws a native error as an exception.
    #[cold]
    pub(crate) fn throw(self, error: Error) -> Thrown {
        match self.lift_object(error.into_object()) {
            Ok(exception) => self.env.throw(exception),
            Err(thrown) => thrown,
        }
    }

    /// Takes the pending exception as a native error.
    #[cold]
    pub(crate) fn take_error(self) -> Error {
        match self.env.take_exception() {
            Some(exception) => self.error_of(exception, 32),
            // The engine is ending this environment.
            None => Error::new("RuntimeError", "the JavaScript environment is being terminated"),
        }
    }

    /// Converts a thrown value to a native error, and its chain of causes up to a length.
    pub(crate) fn error_of(self, exception: Value, causes: usize) -> Error {
        if let Ok(error) = self.describe(exception, causes) {
            return error;
        }
        // A getter of the exception has thrown, or there is no stack left.
        let _ = self.env.take_exception();
        let text = |name, other: &str| {
            let text = self.env.named(exception, name).and_then(|value| self.env.to_text(value));
            text.unwrap_or_else(|_| {
                let _ = self.env.take_exception();
                other.to_owned()
            })
        };
        let kind = text(c"name", "Error");
        let message = text(c"message", "a JavaScript exception that cannot be described");
        self.with_value(&kind, &message, "", None, exception)
    }

    /// Makes an error whose context keeps an exception.
    fn with_value(
        self,
        kind: &str,
        message: &str,
        trace: &str,
        cause: Option<ObjectRef>,
        exception: Value,
    ) -> Error {
        let holder = self.env.array(&[exception]).ok();
        let context =
            holder.and_then(|holder| js_function::make(self.env, &self.state.shared, holder, false, false));
        let made = Error::try_from_texts(kind.as_bytes(), message.as_bytes(), trace.as_bytes(), cause, context);
        made.unwrap_or_else(|| Error::new("MemoryError", "out of memory"))
    }

    fn describe(self, exception: Value, causes: usize) -> Res<Error> {
        let is_object = matches!(self.env.type_of(exception)?, value_type::OBJECT | value_type::FUNCTION);
        if is_object
            && let Some(slot) = self.tag_of(exception)?
            && slot >= 0.0
            && let Ok(error) = Error::try_from_object(self.object_of_slot(slot)?)
        {
            return Ok(error);
        }
        let parts = self.call_hook(&self.state.hooks.describe, &[exception])?;
        let parts = self.env.elements(parts)?;
        let text = |index: usize| parts.get(index).map_or(Ok(String::new()), |part| self.env.to_text(*part));
        let (kind, message, backtrace) = (text(0)?, text(1)?, text(2)?);
        let cause = parts.get(3).filter(|cause| causes > 0 && !self.env.is_undefined(**cause));
        let cause = cause.map(|cause| self.error_of(*cause, causes - 1).into_object());
        Ok(self.with_value(&kind, &message, &backtrace, cause, exception))
    }
}

/// Returns the texts of a native error: kind, message, backtrace.
pub(crate) fn texts(env: Env, error: &Error) -> Res<[Value; 3]> {
    Ok([
        env.string(error.kind().as_bytes())?,
        env.string(error.message().as_bytes())?,
        env.string(error.backtrace().as_bytes())?,
    ])
}
