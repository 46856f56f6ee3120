//! Functions that raise, catch and describe errors.

use anyfn::{Error, Result, register};

/// Raises an error of the given kind.
#[register("testing.raise_error")]
fn raise_error(kind: &str, message: &str) -> Result<()> {
    Err(Error::new(kind, message))
}

/// Raises an error that has a cause.
#[register("testing.raise_error_with_cause")]
fn raise_error_with_cause(kind: &str, message: &str, cause_kind: &str, cause_message: &str) -> Result<()> {
    Err(Error::new(kind, message).with_cause(&Error::new(cause_kind, cause_message)))
}

/// Panics with a message.
#[register("testing.panic")]
fn panic(message: &str) {
    panic!("{message}");
}

/// Calls `f` and returns the error that it raises, or None if `f` succeeds.
#[register("testing.catch_error")]
fn catch_error(f: anyfn::PackedFunc) -> Option<Error> {
    f.call(()).err()
}

/// Calls `f` and returns its result. If `f` raises an error, raises a new error with that error as its cause.
#[register("testing.wrap_error")]
fn wrap_error(f: anyfn::PackedFunc, kind: &str, message: &str) -> Result<anyfn::Any> {
    f.call(()).map_err(|cause| Error::new(kind, message).with_cause(&cause))
}

/// Returns an error and its chain of causes as a list of strings of the form `kind: message`.
#[register("testing.describe_causes")]
fn describe_causes(error: Error) -> Vec<String> {
    std::iter::successors(Some(error), Error::cause).map(|error| error.to_string()).collect()
}

/// Returns the backtrace of an error, most recent call first.
#[register("testing.trace_of_error")]
fn trace_of_error(error: Error) -> String {
    error.backtrace()
}

/// Returns kind and message of an error as `kind: message`.
#[register("testing.describe_error")]
fn describe_error(error: Error) -> String {
    error.to_string()
}
