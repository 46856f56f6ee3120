//! Constants for the kinds of errors.
//!
//! The kind of an error is a string, and any string is a valid kind: a library can define further kinds. The
//! constants are the kinds that the runtime raises and those that the conversions of standard errors use. In
//! Python, each kind becomes the exception of the same name: a built-in exception, except for
//! [`INTERNAL_ERROR`] (`anyfn.InternalError`) and [`CANCELLED_ERROR`] (`asyncio.CancelledError`).
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{Error, error_kind, registry};
//!
//! let error = registry::get("doc.no_such_function").unwrap_err();
//! assert_eq!(error.kind(), error_kind::VALUE_ERROR);
//!
//! // A match on the kind.
//! let retry = match error.kind() {
//!     error_kind::TIMEOUT_ERROR | error_kind::CONNECTION_ERROR => true,
//!     _ => false,
//! };
//! assert!(!retry);
//!
//! let own = Error::new("demo.ParseError", "expected a digit");
//! assert_eq!(own.kind(), "demo.ParseError");
//! ```

macro_rules! kinds {
    ($( $(#[$doc:meta])* $name:ident = $kind:literal; )*) => {
        $( $(#[$doc])* pub const $name: &str = $kind; )*
    };
}

kinds! {
    /// An assertion failed.
    ASSERTION_ERROR = "AssertionError";
    /// An object has no attribute, or a module has no function, with the given name.
    ATTRIBUTE_ERROR = "AttributeError";
    /// A call was cancelled.
    CANCELLED_ERROR = "CancelledError";
    /// A connection was refused, broke or was closed.
    CONNECTION_ERROR = "ConnectionError";
    /// A file to be created already exists.
    FILE_EXISTS_ERROR = "FileExistsError";
    /// A file or directory does not exist.
    FILE_NOT_FOUND_ERROR = "FileNotFoundError";
    /// An index is out of bounds.
    INDEX_ERROR = "IndexError";
    /// Native code failed, for example with a panic, or a callee violated the ABI.
    INTERNAL_ERROR = "InternalError";
    /// A system call was interrupted, or a request was withdrawn before it was answered.
    INTERRUPTED_ERROR = "InterruptedError";
    /// A key is absent from a mapping.
    KEY_ERROR = "KeyError";
    /// The user interrupted the program, usually with Ctrl-C.
    KEYBOARD_INTERRUPT = "KeyboardInterrupt";
    /// Memory could not be allocated.
    MEMORY_ERROR = "MemoryError";
    /// A name is not defined.
    NAME_ERROR = "NameError";
    /// An operation is not implemented for its operands.
    NOT_IMPLEMENTED_ERROR = "NotImplementedError";
    /// The operating system reported an error.
    OS_ERROR = "OSError";
    /// A number does not fit into its type.
    OVERFLOW_ERROR = "OverflowError";
    /// The caller lacks a permission.
    PERMISSION_ERROR = "PermissionError";
    /// Calls or data are nested too deeply.
    RECURSION_ERROR = "RecursionError";
    /// An operation failed for a reason that no other kind describes.
    RUNTIME_ERROR = "RuntimeError";
    /// Source code is malformed.
    SYNTAX_ERROR = "SyntaxError";
    /// An operation exceeded its time limit.
    TIMEOUT_ERROR = "TimeoutError";
    /// A value has the wrong type, or a call has the wrong number of arguments.
    TYPE_ERROR = "TypeError";
    /// A value has the right type but is not acceptable.
    VALUE_ERROR = "ValueError";
    /// A number was divided by zero.
    ZERO_DIVISION_ERROR = "ZeroDivisionError";
}
