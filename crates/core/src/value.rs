//! Creation of strings and bytes.

use anyfn::{Any, Error, ObjectRef, Result};

#[cold]
pub(crate) fn out_of_memory(what: &str) -> Error {
    Error::from_parts("MemoryError", "not enough memory for ", what)
}

/// Creates a string value with a copy of `bytes`.
pub(crate) fn string(bytes: &[u8]) -> Result<Any> {
    anyfn::__private::try_string(bytes).ok_or_else(|| out_of_memory("a string"))
}

/// Creates a bytes value with a copy of `bytes`.
pub(crate) fn bytes(bytes: &[u8]) -> Result<Any> {
    anyfn::__private::try_bytes(bytes).ok_or_else(|| out_of_memory("bytes"))
}

/// Creates a string object on the heap with a copy of `bytes`, even if `bytes` is short enough to be stored
/// inline in a value. Returns `None` if `bytes` is empty.
pub(crate) fn heap_text(bytes: &[u8]) -> Result<Option<ObjectRef>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match anyfn::__private::try_heap_string(bytes) {
        Some(object) => Ok(Some(object)),
        None => Err(out_of_memory("a string")),
    }
}
