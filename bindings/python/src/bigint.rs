//! Conversion of Python ints that do not fit in a signed 64-bit integer. The ABI has a separate
//! object type for them, `BigInt`.

use anyfn::Any;
use anyfn::abi::{TVMFFIAny, TVMFFIBigIntFromByteArray, TVMFFIBigIntGetContentByteArray, TVMFFIByteArray};
use pyo3_ffi as ffi;

use crate::error;
use crate::py::{self, Obj, Own, Res, names};

/// Makes a `BigInt` value from a Python int that does not fit in a signed 64-bit integer.
#[cold]
pub(crate) fn lower(int: Obj<'_>) -> Res<Any> {
    // SAFETY: the object is an int and the GIL is held; an exception is set if the value is negative or too large.
    let value = unsafe { ffi::PyLong_AsUnsignedLongLong(int.as_ptr()) };
    if value != u64::MAX || !py::error_occurred() {
        return from_words(&[value, 0].map(u64::to_ne_bytes).concat());
    }
    py::clear_error();
    let method = |name| py::intern(name).and_then(|name| int.attr(name.obj()));
    let bits = method(c"bit_length")?.obj().call(&[])?;
    // The additional bit is the sign.
    let words = bits.obj().int().unwrap_or_default() / 64 + 1;
    let (size, order, signed) = (py::int(words * 8)?, py::string(b"little")?, py::boolean(true));
    let bytes = method(c"to_bytes")?.obj().call_named(&[
        (c"length", size.obj()),
        (c"byteorder", order.obj()),
        (c"signed", signed.obj()),
    ])?;
    from_words(bytes.obj().bytes()?)
}

/// Makes a `BigInt` value from the bytes of 64-bit words in two's complement, least significant byte first.
fn from_words(words: &[u8]) -> Res<Any> {
    const { assert!(cfg!(target_endian = "little"), "the ABI stores words in native byte order") };
    let words = TVMFFIByteArray::from_slice(words);
    let mut out = TVMFFIAny::NONE;
    // SAFETY: the words are borrowed for the call, and `out` is writable.
    match unsafe { TVMFFIBigIntFromByteArray(&words, &mut out) } {
        // SAFETY: on success the result is an owned value.
        0 => Ok(unsafe { Any::from_raw(out) }),
        code => Err(error::raise_from_native(code)),
    }
}

/// Converts a `BigInt` value to a Python int, as `int.from_bytes(words, "little", signed=True)` does.
#[cold]
pub(crate) fn lift(value: &TVMFFIAny) -> Res<Own> {
    // SAFETY: the value is a valid `BigInt`, from which the result borrows.
    let words = unsafe { TVMFFIBigIntGetContentByteArray(value) };
    // SAFETY: `value` keeps the words alive.
    let words = unsafe { words.as_slice() };
    // The class `int` is taken from an instance.
    let zero = py::int(0)?;
    let class = zero.obj().class();
    let from_bytes = class.attr(names::FROM_BYTES.get())?;
    let (content, order, signed) = (py::bytes(words)?, py::string(b"little")?, py::boolean(true));
    from_bytes.obj().call_named(&[
        (c"bytes", content.obj()),
        (c"byteorder", order.obj()),
        (c"signed", signed.obj()),
    ])
}
