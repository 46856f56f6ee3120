//! Functions that fail.

use anyfn::{Error, Result, register};

/// Raises an error.
#[register("testing.raise_error")]
fn raise_error(kind: &str, message: &str) -> Result<()> {
    Err(Error::new(kind, message))
}

/// Raises an error that another one has caused.
#[register("testing.raise_error_with_cause")]
fn raise_error_with_cause(kind: &str, message: &str, cause_kind: &str, cause_message: &str) -> Result<()> {
    Err(Error::new(kind, message).with_cause(&Error::new(cause_kind, cause_message)))
}

/// Panics.
#[register("testing.panic")]
fn panic(message: &str) {
    panic!("{message}");
}

/// Calls `f` and gives the error that it raises as a value, None if it raises none.
#[register("testing.catch_error")]
fn catch_error(f: anyfn::PackedFunc) -> Option<Error> {
    f.call(()).err()
}

/// Kind and message of an error, as `kind: message`.
#[register("testing.describe_error")]
fn describe_error(error: Error) -> String {
    error.to_string()
}
