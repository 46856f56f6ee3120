//! Conversions of standard library errors to [`Error`], for the operator `?`.

use core::array::TryFromSliceError;
use core::convert::Infallible;
use core::fmt;
use core::num::{IntErrorKind, ParseFloatError, ParseIntError, TryFromIntError};
use core::str::{ParseBoolError, Utf8Error};

use alloc::collections::TryReserveError;
use alloc::ffi::NulError;
use alloc::string::{FromUtf8Error, ToString};

use crate::Error;
use crate::error_kind::{MEMORY_ERROR, OVERFLOW_ERROR, RUNTIME_ERROR, VALUE_ERROR};

/// Implements the conversion into [`Error`] for standard error types, each of which has one fixed error kind.
macro_rules! conversions {
    ($( $ty:ty => $kind:ident; )*) => { $(
        impl From<$ty> for Error {
            #[track_caller]
            #[cold]
            fn from(error: $ty) -> Error {
                Error::new($kind, &error.to_string())
            }
        }
    )* };
}

conversions! {
    ParseFloatError => VALUE_ERROR;
    ParseBoolError => VALUE_ERROR;
    Utf8Error => VALUE_ERROR;
    FromUtf8Error => VALUE_ERROR;
    NulError => VALUE_ERROR;
    TryFromSliceError => VALUE_ERROR;
    TryFromIntError => OVERFLOW_ERROR;
    TryReserveError => MEMORY_ERROR;
    fmt::Error => RUNTIME_ERROR;
}

/// Converts an integer parse error. The kind of the result is `OverflowError` for a number that does not fit
/// into the type, and otherwise `ValueError`.
impl From<ParseIntError> for Error {
    #[track_caller]
    #[cold]
    fn from(error: ParseIntError) -> Error {
        let kind = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => OVERFLOW_ERROR,
            _ => VALUE_ERROR,
        };
        Error::new(kind, &error.to_string())
    }
}

/// Allows the operator `?` on conversions that cannot fail. The code is never executed, because `Infallible`
/// has no values.
impl From<Infallible> for Error {
    fn from(error: Infallible) -> Error {
        match error {}
    }
}

#[cfg(feature = "std")]
mod with_std {
    use alloc::string::ToString;
    use std::io;

    use crate::Error;
    use crate::error_kind::{
        CONNECTION_ERROR, FILE_EXISTS_ERROR, FILE_NOT_FOUND_ERROR, INTERRUPTED_ERROR, MEMORY_ERROR, OS_ERROR,
        PERMISSION_ERROR, TIMEOUT_ERROR,
    };

    /// Converts an I/O error. The kind is the name of the exception that Python raises in the same situation,
    /// or `OSError` if there is no more specific kind. An [`Error`] that the I/O error contains
    /// ([`io::Error::other`]) is returned unchanged.
    impl From<io::Error> for Error {
        #[track_caller]
        #[cold]
        fn from(error: io::Error) -> Error {
            match error.downcast::<Error>() {
                Ok(contained) => contained,
                Err(error) => Error::new(kind_of(error.kind()), &error.to_string()),
            }
        }
    }

    /// Returns the error kind that corresponds to a kind of I/O error.
    fn kind_of(kind: io::ErrorKind) -> &'static str {
        match kind {
            io::ErrorKind::NotFound => FILE_NOT_FOUND_ERROR,
            io::ErrorKind::AlreadyExists => FILE_EXISTS_ERROR,
            io::ErrorKind::PermissionDenied => PERMISSION_ERROR,
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset => CONNECTION_ERROR,
            io::ErrorKind::TimedOut => TIMEOUT_ERROR,
            io::ErrorKind::Interrupted => INTERRUPTED_ERROR,
            io::ErrorKind::OutOfMemory => MEMORY_ERROR,
            _ => OS_ERROR,
        }
    }
}
