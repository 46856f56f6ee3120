//! The crate in the idioms of Rust: standard traits, `?`, and names that do not collide with those of `std`.

use std::error::Error as StdError;

use anyfn::{Any, Error, error_kind, registry};
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
