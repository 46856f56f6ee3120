//! Integers of arbitrary size. Integers that do not fit into 64 bits are objects.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr;

use alloc::alloc::{alloc, dealloc};

use anyfn::abi::{
    TVMFFIAny, TVMFFIBigIntCell, TVMFFIByteArray, TVMFFIObject, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIInt,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, IntoAny, ObjectRef, Result, bail};

use crate::value::out_of_memory;

/// Start of the memory of a BigInt: header and number of words. The words follow directly, as one integer in two's
/// complement with the least significant word first.
#[repr(C)]
struct BigInt {
    header: TVMFFIObject,
    cell: TVMFFIBigIntCell,
}

const WORD: usize = size_of::<i64>();

impl BigInt {
    fn layout(words: usize) -> Option<Layout> {
        let size = size_of::<BigInt>().checked_add(words.checked_mul(WORD)?)?;
        Layout::from_size_align(size, align_of::<BigInt>().max(align_of::<i64>())).ok()
    }

    /// Returns the address of the first word of a BigInt.
    ///
    /// # Safety
    /// `object` must be live.
    unsafe fn words(object: *mut BigInt) -> *mut u8 {
        // SAFETY: the words directly follow the struct.
        unsafe { object.add(1) }.cast()
    }

    fn allocate(words: &[u8]) -> Option<ObjectRef> {
        let layout = Self::layout(words.len() / WORD)?;
        // SAFETY: the layout is not empty.
        let this: *mut BigInt = unsafe { alloc(layout) }.cast();
        if this.is_null() {
            return None;
        }
        let header = TVMFFIObject {
            combined_ref_count: anyfn::__private::UNIQUE,
            type_index: kTVMFFIBigInt,
            flags: 0,
            deleter: Some(Self::delete),
        };
        // SAFETY: the memory is fresh, and large and aligned enough.
        unsafe { this.write(BigInt { header, cell: TVMFFIBigIntCell { word_count: words.len() / WORD } }) };
        // SAFETY: the allocation is live.
        let data = unsafe { Self::words(this) };
        // SAFETY: the allocation has room for the words after the struct.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), data, words.len()) };
        // SAFETY: the object was created above and is counted only here.
        unsafe { anyfn::__private::object_created(this, kTVMFFIBigInt) };
        // SAFETY: a valid object with one reference, which the result takes.
        unsafe { ObjectRef::from_owned_or_null(this.cast()) }
    }

    unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
        if flags & WEAK == 0 {
            return;
        }
        // SAFETY: the object is of this type, and only this call releases its memory.
        let words = unsafe { (*object.cast::<BigInt>()).cell.word_count };
        if let Some(layout) = Self::layout(words) {
            // SAFETY: the object was counted when it was created, and the deleter frees its memory once.
            unsafe { anyfn::__private::object_freed(object, kTVMFFIBigInt) };
            // SAFETY: the memory was allocated with this layout.
            unsafe { dealloc(object.cast(), layout) };
        }
    }
}

fn word(bytes: &[u8], at: usize) -> i64 {
    let mut buffer = [0; WORD];
    buffer.copy_from_slice(&bytes[at * WORD..(at + 1) * WORD]);
    i64::from_ne_bytes(buffer)
}

/// Creates an integer from `bytes`, which must be whole 64-bit words in two's complement, least significant first.
/// Returns an int if the integer fits into 64 bits, and otherwise a BigInt without redundant words of sign bits.
pub(crate) fn from_words(bytes: &[u8]) -> Result<Any> {
    if !bytes.len().is_multiple_of(WORD) {
        bail!("ValueError", "BigInt content must contain whole 64-bit words");
    }
    let mut count = bytes.len() / WORD;
    // The last word is redundant if it only repeats the sign of the word before it.
    while count > 1 && word(bytes, count - 1) == word(bytes, count - 2) >> 63 {
        count -= 1;
    }
    match count {
        0 => 0i64.into_any(),
        1 => word(bytes, 0).into_any(),
        _ => match BigInt::allocate(&bytes[..count * WORD]) {
            Some(object) => Ok(object.into()),
            None => Err(out_of_memory("an integer")),
        },
    }
}

/// Returns the 64-bit words of an int or a BigInt as bytes borrowed from `value`. The result is empty for values of
/// other types.
///
/// # Safety
/// The value must be valid.
pub(crate) unsafe fn words_of(value: &TVMFFIAny) -> TVMFFIByteArray {
    match value.type_index {
        kTVMFFIInt => TVMFFIByteArray { data: (&raw const value.value).cast(), size: WORD },
        kTVMFFIBigInt => {
            // SAFETY: BigInts hold an object.
            let object: *mut BigInt = unsafe { value.value.v_obj }.cast();
            // SAFETY: the caller guarantees a valid value, so the object is live.
            let count = unsafe { (*object).cell.word_count };
            // SAFETY: the caller guarantees a valid value, so the object is live.
            let data = unsafe { BigInt::words(object) };
            TVMFFIByteArray { data: data.cast_const().cast(), size: count * WORD }
        }
        _ => TVMFFIByteArray::EMPTY,
    }
}

/// Returns the type attributes for hashing and comparing BigInts as map keys: their names, and the addresses
/// of the functions.
pub(crate) fn hooks() -> [(&'static str, *mut c_void); 2] {
    [("__any_hash__", hash as *mut c_void), ("__any_equal__", equal as *mut c_void)]
}

/// Returns the words of a BigInt as bytes.
///
/// # Safety
/// The value must be a valid BigInt and remain so for `'a`.
unsafe fn content<'a>(value: *const TVMFFIAny) -> &'a [u8] {
    // SAFETY: the caller passes a valid value.
    let value = unsafe { &*value };
    // SAFETY: the caller passes a valid value.
    let words = unsafe { words_of(value) };
    // SAFETY: the words are borrowed from the value, which the caller keeps.
    unsafe { words.as_slice() }
}

/// Computes the hash of a BigInt as a map key.
///
/// # Safety
/// The value must be a valid BigInt.
unsafe extern "C" fn hash(value: *const TVMFFIAny) -> TVMFFIAny {
    // SAFETY: the caller passes a valid value, which outlives the call.
    let words = unsafe { content(value) };
    let mix =
        |hash: u64, at| (hash ^ word(words, at) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let hash = (0..words.len() / WORD).fold(0, mix);
    TVMFFIAny::from_bits(kTVMFFIInt, hash)
}

/// Compares two BigInts as map keys. Returns a boolean value, which is true if they are equal.
///
/// # Safety
/// Both values must be valid BigInts.
unsafe extern "C" fn equal(left: *const TVMFFIAny, right: *const TVMFFIAny) -> TVMFFIAny {
    // SAFETY: the caller passes a valid value, which outlives the call.
    let left = unsafe { content(left) };
    // SAFETY: the caller passes a valid value, which outlives the call.
    let right = unsafe { content(right) };
    TVMFFIAny::from_bits(kTVMFFIBool, u64::from(left == right))
}
