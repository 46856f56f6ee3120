//! The crate in the idioms of Rust: standard traits, `?`, and names that do not collide with those of `std`.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::ffi::CString;
use std::fmt::Write as _;
use std::num::ParseIntError;
use std::{fmt, io};

use anyfn::{Any, Error, FromArg, TypedPackedFunc, error_kind, registry};
use anyfn_core as _;

#[test]
fn the_source_of_an_error_is_its_cause() {
    let first = Error::new("KeyError", "port");
    let second = Error::new("ValueError", "incomplete settings").with_cause(&first);
    let third = Error::new("RuntimeError", "cannot start").with_cause(&second);
    let chain: Vec<String> =
        std::iter::successors(Some(&third as &dyn StdError), |error| StdError::source(*error))
            .map(ToString::to_string)
            .collect();
    assert_eq!(chain, ["RuntimeError: cannot start", "ValueError: incomplete settings", "KeyError: port"]);
    assert!(first.source().is_none());

    // A source is an error of this crate, with everything that it carries.
    let source = third.source().and_then(|source| source.downcast_ref::<Error>()).unwrap();
    assert!(source.as_object().ptr_eq(second.as_object()));
    assert_eq!(source.cause().unwrap().kind(), "KeyError");
    assert_eq!(second.as_object().use_count(), 2);

    // Reading the chain changes no reference count, and notes keep the cause.
    let noted = third.with_note("while starting");
    assert_eq!(noted.source().unwrap().to_string(), "ValueError: incomplete settings");
}

#[test]
fn an_error_crosses_a_boxed_error() {
    fn fails() -> Result<(), Box<dyn StdError + Send + Sync>> {
        let inner = Error::new("TypeError", "inner");
        Err(Error::new("ValueError", "outer").with_cause(&inner).into())
    }
    let error = fails().unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "TypeError: inner");
    assert_eq!(error.downcast::<Error>().unwrap().kind(), "ValueError");
}

#[test]
fn constants_name_the_kinds_that_the_runtime_raises() {
    assert_eq!(registry::get("tests.api.absent").unwrap_err().kind(), error_kind::VALUE_ERROR);
    assert_eq!(Any::NONE.get::<i64>().unwrap_err().kind(), error_kind::TYPE_ERROR);
    assert_eq!(Any::new(256).unwrap().get::<u8>().unwrap_err().kind(), error_kind::OVERFLOW_ERROR);
    let error = anyfn::error!(error_kind::KEY_ERROR, "no key {}", 1);
    assert_eq!((error.kind(), error.message()), ("KeyError", "no key 1"));
}

/// Converts the error of a result by the operator `?`.
fn convert<T, E>(result: Result<T, E>) -> anyfn::Result<T>
where
    Error: From<E>,
{
    Ok(result?)
}

/// Converts a result that is an error and returns that error as a string.
fn converted<T, E>(result: Result<T, E>) -> String
where
    Error: From<E>,
{
    convert(result).err().expect("an error").to_string()
}

#[test]
fn errors_of_the_standard_library_convert() {
    assert_eq!(converted("x".parse::<i64>()), "ValueError: invalid digit found in string");
    assert_eq!(converted("".parse::<i64>()), "ValueError: cannot parse integer from empty string");
    assert!(converted("300".parse::<u8>()).starts_with("OverflowError: "));
    assert!(converted("-300".parse::<i8>()).starts_with("OverflowError: "));
    assert!(converted(u8::try_from(300_i32)).starts_with("OverflowError: "));
    assert_eq!(converted("x".parse::<f64>()), "ValueError: invalid float literal");
    assert!(converted("x".parse::<bool>()).starts_with("ValueError: "));
    let invalid = b"ab\xff".to_vec();
    assert!(converted(std::str::from_utf8(&invalid)).contains("from index 2"));
    assert!(converted(String::from_utf8(invalid)).starts_with("ValueError: invalid utf-8"));
    assert!(converted(CString::new("a\0b")).starts_with("ValueError: nul byte found"));
    assert!(converted(<[u8; 2]>::try_from(&[1_u8][..])).starts_with("ValueError: "));
    assert!(converted(Vec::<u64>::new().try_reserve(usize::MAX)).starts_with("MemoryError: "));
    let never: Result<i32, Infallible> = Ok(7);
    assert_eq!(convert(never).unwrap(), 7);
}

#[test]
fn a_formatting_error_converts() {
    struct Fails;
    impl fmt::Display for Fails {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    assert!(converted(write!(String::new(), "{Fails}")).starts_with("RuntimeError: "));
}

#[test]
fn the_kind_of_an_io_error_is_that_of_python() {
    let of = |kind: io::ErrorKind| Error::from(io::Error::new(kind, "why")).to_string();
    assert_eq!(of(io::ErrorKind::NotFound), "FileNotFoundError: why");
    assert_eq!(of(io::ErrorKind::AlreadyExists), "FileExistsError: why");
    assert_eq!(of(io::ErrorKind::PermissionDenied), "PermissionError: why");
    assert_eq!(of(io::ErrorKind::BrokenPipe), "ConnectionError: why");
    assert_eq!(of(io::ErrorKind::ConnectionRefused), "ConnectionError: why");
    assert_eq!(of(io::ErrorKind::TimedOut), "TimeoutError: why");
    assert_eq!(of(io::ErrorKind::Interrupted), "InterruptedError: why");
    assert_eq!(of(io::ErrorKind::OutOfMemory), "MemoryError: why");
    assert_eq!(of(io::ErrorKind::Other), "OSError: why");
    assert_eq!(of(io::ErrorKind::UnexpectedEof), "OSError: why");
    let missing = converted(std::fs::read("tests/no such file"));
    assert!(missing.starts_with("FileNotFoundError: "), "{missing}");
}

#[test]
fn an_error_passes_through_an_io_error() {
    let own = Error::new("demo.Kind", "message").with_cause(&Error::new("KeyError", "cause"));
    let back = Error::from(io::Error::other(own.clone()));
    assert!(back.as_object().ptr_eq(own.as_object()));
}

#[test]
fn the_backtrace_begins_where_the_error_is_converted() {
    let line = line!() + 1;
    let error = Error::from("x".parse::<i64>().unwrap_err());
    assert!(error.backtrace().contains(&format!("{}\", line {line}, ", file!())), "{}", error.backtrace());
}

#[test]
fn functions_return_errors_of_the_standard_library() {
    fn parse(text: &str) -> Result<i64, ParseIntError> {
        text.parse()
    }
    let parse = TypedPackedFunc::from_fn(parse);
    assert_eq!(parse.as_packed().call(("12",)).unwrap().get::<i64>().unwrap(), 12);
    let error = parse.as_packed().call(("1x",)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("ValueError", "invalid digit found in string"));
}

#[test]
fn a_mismatch_is_an_error() {
    let mismatch: Box<dyn StdError> = <&str>::from_arg(&Any::new(1).unwrap().as_view()).unwrap_err().into();
    assert!(mismatch.to_string().starts_with("expected `"), "{mismatch}");
}
