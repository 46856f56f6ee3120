//! Direct access to the values of Python's built-in types, and to reference counts.
//!
//! The stable ABI reads an int, a string or an item of a list by a function call, which takes longer than the rest of
//! the conversion of such a value. The layouts of these objects differ little between the supported versions of CPython,
//! so the fields are read directly instead. [`init`] compares what it reads with the results of the C API for sample
//! objects. Where they differ, as in an interpreter with another layout, values of that type are read by the C API.

use std::ffi::c_longlong;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use pyo3_ffi as ffi;

use super::{Obj, Own, PyObject, Res, raw};

/// Offset of the first field after the object header: the number of items, or the value of a float.
const HEADER: usize = size_of::<PyObject>();
/// Offset of the first field after the header of an object with a variable number of items.
const ITEMS: usize = HEADER + size_of::<isize>();

/// Way in which the interpreter stores ints, one of the constants below.
static INT: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
/// A word with the number of digits, negative for negative ints, precedes the digits: CPython 3.9 to 3.11.
const SIGNED_COUNT: u8 = 1;
/// A word with the number of digits above three bits for the sign precedes the digits: since CPython 3.12.
const TAG: u8 = 2;

/// True if the value of a float follows the object header.
static FLOAT: AtomicBool = AtomicBool::new(false);
/// True if the bytes of a bytes object follow its size and its hash.
static BYTES: AtomicBool = AtomicBool::new(false);
/// True if a pointer to the items of a list follows their number.
static LIST: AtomicBool = AtomicBool::new(false);
/// True if the items of a tuple follow their number.
static TUPLE: AtomicBool = AtomicBool::new(false);
/// Offset of the characters of an ASCII string, or 0 if strings cannot be read directly.
static TEXT: AtomicUsize = AtomicUsize::new(0);

/// Reads a field of an object.
///
/// # Safety
/// The memory of the object must extend beyond the field, and the field must hold a valid value of the type `T`.
#[inline(always)]
unsafe fn field<T: Copy>(object: Obj<'_>, offset: usize) -> T {
    // SAFETY: guaranteed by the caller.
    let place = unsafe { object.as_ptr().byte_add(offset) };
    // SAFETY: guaranteed by the caller; CPython aligns its fields.
    unsafe { place.cast::<T>().read() }
}

/// Returns the value of an int that has one digit (30 bits) at most. Returns `None` for larger ints, which the C API
/// must read. `object` must be an instance of `int`.
#[inline(always)]
pub(crate) fn small_int(object: Obj<'_>) -> Option<i64> {
    read_int(object, int_layout())
}

/// Returns the layout of ints, for loops that call [`read_int`].
#[inline(always)]
pub(crate) fn int_layout() -> u8 {
    INT.load(Ordering::Relaxed)
}

/// Returns the value of an int like [`small_int`]. `layout` must be the result of [`int_layout`].
#[inline(always)]
pub(crate) fn read_int(object: Obj<'_>, layout: u8) -> Option<i64> {
    // SAFETY: each int has this word, whatever its meaning.
    let word: isize = unsafe { field(object, HEADER) };
    let sign = match layout {
        SIGNED_COUNT if (-1..=1).contains(&word) => word,
        // The number of digits is at most one; the sign is 0 for positive numbers, 1 for zero and 2 for negative ones.
        TAG if (0..16).contains(&word) => 1 - (word & 3),
        _ => return None,
    };
    if sign == 0 {
        return Some(0);
    }
    // SAFETY: a number other than zero has a digit.
    let digit: u32 = unsafe { field(object, ITEMS) };
    Some(sign as i64 * i64::from(digit))
}

/// Returns the value of a float, or `None` if the C API must read it. `object` must be an instance of `float`.
#[inline(always)]
pub(crate) fn float(object: Obj<'_>) -> Option<f64> {
    // SAFETY: `init` has found the value at this offset.
    FLOAT.load(Ordering::Relaxed).then(|| unsafe { field(object, HEADER) })
}

/// Returns the content of a string that consists of ASCII characters, or `None` if the C API must read the string.
/// `object` must be an instance of `str`.
#[inline(always)]
pub(crate) fn ascii<'a>(object: Obj<'a>) -> Option<&'a [u8]> {
    match TEXT.load(Ordering::Relaxed) {
        0 => None,
        data => read_ascii(object, data),
    }
}

/// Bits in the state of a string: its characters follow the header, and they are ASCII.
const COMPACT_ASCII: u32 = 0x60;

#[inline(always)]
fn read_ascii<'a>(object: Obj<'a>, data: usize) -> Option<&'a [u8]> {
    // SAFETY: each string has a length, a hash and a state after its header.
    let state: u32 = unsafe { field(object, ITEMS + size_of::<isize>()) };
    if state & COMPACT_ASCII != COMPACT_ASCII {
        return None;
    }
    // SAFETY: the length is the first of these fields.
    let len: isize = unsafe { field(object, HEADER) };
    // SAFETY: `init` has found the characters of such strings at this offset.
    let start: *const u8 = unsafe { object.as_ptr().byte_add(data) }.cast();
    // SAFETY: the string has `len` characters of one byte, and keeps them for as long as it lives.
    Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
}

/// Returns the content of a bytes object, or `None` if the C API must read it. `object` must be an instance of `bytes`.
#[inline(always)]
pub(crate) fn bytes<'a>(object: Obj<'a>) -> Option<&'a [u8]> {
    BYTES.load(Ordering::Relaxed).then(|| read_bytes(object))
}

#[inline(always)]
fn read_bytes<'a>(object: Obj<'a>) -> &'a [u8] {
    // SAFETY: each bytes object has its length after the header.
    let len: isize = unsafe { field(object, HEADER) };
    // SAFETY: `init` has found the bytes at this offset, after the length and the hash.
    let start: *const u8 = unsafe { object.as_ptr().byte_add(ITEMS + size_of::<isize>()) }.cast();
    // SAFETY: the object has `len` bytes, and keeps them for as long as it lives.
    unsafe { std::slice::from_raw_parts(start, len as usize) }
}

/// Borrows the items of a list. Returns `None` if the C API must read the list, and for objects whose class is not exactly
/// `list`.
///
/// # Safety
/// The result must not be used after Python code has run, which may change the list.
#[inline(always)]
pub(crate) unsafe fn list_items<'a>(list: Obj<'a>) -> Option<&'a [*mut PyObject]> {
    if list.type_ptr() != &raw mut ffi::PyList_Type || !LIST.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { read_list(list) })
}

#[inline(always)]
unsafe fn read_list<'a>(list: Obj<'a>) -> &'a [*mut PyObject] {
    // SAFETY: each list has its length after the header.
    let len: isize = unsafe { field(list, HEADER) };
    // SAFETY: `init` has found the address of the items at this offset.
    let items: *const *mut PyObject = unsafe { field(list, ITEMS) };
    if len <= 0 || items.is_null() {
        return &[];
    }
    // SAFETY: the list has `len` items at this address, which the caller uses only until the list may change.
    unsafe { std::slice::from_raw_parts(items, len as usize) }
}

/// Borrows the items of a tuple. Returns `None` if the C API must read the tuple, and for objects whose class is not exactly
/// `tuple`.
#[inline(always)]
pub(crate) fn tuple_items<'a>(tuple: Obj<'a>) -> Option<&'a [*mut PyObject]> {
    let is_direct = tuple.type_ptr() == &raw mut ffi::PyTuple_Type && TUPLE.load(Ordering::Relaxed);
    is_direct.then(|| read_tuple(tuple))
}

#[inline(always)]
fn read_tuple<'a>(tuple: Obj<'a>) -> &'a [*mut PyObject] {
    // SAFETY: each tuple has its length after the header.
    let len: isize = unsafe { field(tuple, HEADER) };
    if len <= 0 {
        return &[];
    }
    // SAFETY: `init` has found the items at this offset.
    let items: *const *mut PyObject = unsafe { tuple.as_ptr().byte_add(ITEMS) }.cast();
    // SAFETY: the tuple has `len` items, and keeps them for as long as it lives.
    unsafe { std::slice::from_raw_parts(items, len as usize) }
}

/// Lowest reference count that is left to the interpreter: the counts of immortal objects are not lower, and other
/// objects have fewer references.
const LEFT_TO_PYTHON: usize = 1 << 31;

/// Adds a reference to an object.
#[inline(always)]
pub(crate) fn add_reference(object: Obj<'_>) {
    let count: *mut usize = object.as_ptr().cast();
    // SAFETY: an object begins with its reference count, which the GIL protects.
    let now = unsafe { count.read() };
    if now < LEFT_TO_PYTHON {
        // SAFETY: the count may be changed while the GIL is held.
        unsafe { count.write(now + 1) };
    } else {
        // SAFETY: the object is valid, and the GIL is held.
        unsafe { ffi::Py_IncRef(object.as_ptr()) };
    }
}

/// Releases a reference to an object.
///
/// # Safety
/// The caller must own the reference, and hold the GIL.
#[inline(always)]
pub(crate) unsafe fn release_reference(object: *mut PyObject) {
    // SAFETY: guaranteed by the caller.
    if !unsafe { release_shared(object) } {
        // SAFETY: guaranteed by the caller.
        unsafe { raw::Py_DecRef(object) };
    }
}

/// Releases a reference to an object if there are others, and returns true. Otherwise, or if the count is left to the
/// interpreter, returns false and changes nothing.
///
/// # Safety
/// The conditions of [`release_reference`] apply if the result is true.
#[inline(always)]
pub(crate) unsafe fn release_shared(object: *mut PyObject) -> bool {
    let count: *mut usize = object.cast();
    // SAFETY: the caller's reference keeps the object alive. An object begins with its reference count, which the GIL
    // protects.
    let now = unsafe { count.read() };
    let is_shared = now > 1 && now < LEFT_TO_PYTHON;
    if is_shared {
        // SAFETY: the count may be changed while the GIL is held; another reference is left.
        unsafe { count.write(now - 1) };
    }
    is_shared
}

/// Determines which types can be read directly. Called once, before any value is read.
pub(crate) fn init() -> Res<()> {
    let ints = ints()?;
    let layout = [SIGNED_COUNT, TAG].into_iter().find(|layout| {
        ints.iter().all(|(value, int)| match read_int(int.obj(), *layout) {
            Some(read) => read == *value,
            None => value.unsigned_abs() >> 30 != 0,
        })
    });
    INT.store(layout.unwrap_or(UNKNOWN), Ordering::Relaxed);
    FLOAT.store(floats_are_direct()?, Ordering::Relaxed);
    TEXT.store(text_offset()?, Ordering::Relaxed);
    BYTES.store(bytes_are_direct()?, Ordering::Relaxed);
    let items = || ints.iter().map(|(_, int)| int.obj().to_own()).collect::<Vec<_>>();
    let (list, tuple) = (super::list(items())?, super::tuple(items())?);
    let same = |found: &[*mut PyObject]| {
        found.len() == ints.len()
            && found.iter().zip(&ints).all(|(item, (_, int))| ptr::eq(*item, int.as_ptr()))
    };
    // SAFETY: each list is at least as large as the two fields that are read. They are compared with the C API first, so no
    // address is used that is not that of the items.
    let list_is_direct = unsafe { field::<isize>(list.obj(), HEADER) } == ints.len() as isize
        && is_readable(unsafe { field(list.obj(), ITEMS) }, ints.len())
        // SAFETY: no Python code runs.
        && same(unsafe { read_list(list.obj()) });
    LIST.store(list_is_direct, Ordering::Relaxed);
    // SAFETY: each tuple is as large as its items after a header with their number.
    let tuple_is_direct =
        unsafe { field::<isize>(tuple.obj(), HEADER) } == ints.len() as isize && same(read_tuple(tuple.obj()));
    TUPLE.store(tuple_is_direct, Ordering::Relaxed);
    Ok(())
}

/// Returns true if an address could be that of `count` pointers: it is aligned and not near the ends of the address space.
fn is_readable(items: *const *mut PyObject, count: usize) -> bool {
    let (size, first) = (count * size_of::<usize>(), 1 << 16);
    items.is_aligned() && items.addr() >= first && items.addr().checked_add(size).is_some()
}

/// Returns sample ints with their values: with one digit and more, and of both signs.
fn ints() -> Res<Vec<(c_longlong, Own)>> {
    let digit = 1 << 30;
    let values =
        [0, 1, -1, 5, -5, 256, 257, -300, digit - 1, 1 - digit, digit, -digit, 1 << 60, i64::MAX, i64::MIN];
    values.into_iter().map(|value| Ok((value, super::int(value)?))).collect()
}

fn floats_are_direct() -> Res<bool> {
    for value in [0.0, -1.5, 1e300] {
        let float = super::float(value)?;
        // SAFETY: the memory of each float has a field of eight bytes after the header.
        let read: u64 = unsafe { field(float.obj(), HEADER) };
        if read != value.to_bits() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the offset of the characters of ASCII strings, or 0 if strings are not stored as expected.
fn text_offset() -> Res<usize> {
    let mut offset = 0;
    for text in ["", "a", "an ASCII string", "\u{e9}t\u{e9}", "\u{4e2d}", "\u{1f600} wide"] {
        let string = super::string(text.as_bytes())?;
        let content = string.obj().str_bytes()?;
        let here = content.as_ptr().addr().wrapping_sub(string.as_ptr().addr());
        if offset == 0 {
            offset = here;
        }
        // The characters of an ASCII string are in the object, after the state; those of others are elsewhere.
        let is_plausible = (ITEMS + 2 * size_of::<isize>()..128).contains(&offset);
        if !is_plausible || (text.is_ascii() && here != offset) {
            return Ok(0);
        }
        match read_ascii(string.obj(), offset) {
            Some(read) if text.is_ascii() && read.len() == text.len() && read == content => {}
            None if !text.is_ascii() => {}
            _ => return Ok(0),
        }
    }
    Ok(offset)
}

fn bytes_are_direct() -> Res<bool> {
    for content in [&b""[..], b"a", b"some bytes\0and more"] {
        let bytes = super::bytes(content)?;
        let (expected, read) = (bytes.obj().bytes()?, read_bytes(bytes.obj()));
        if !ptr::eq(expected.as_ptr(), read.as_ptr()) || expected.len() != read.len() {
            return Ok(false);
        }
    }
    Ok(true)
}
