//! Conversions between Rust integers and BigInt objects, which represent integers beyond 64 bits.

use core::fmt;

use alloc::format;
use alloc::string::{String as StdString, ToString};

use anyfn_abi::{
    TVMFFIAny, TVMFFIBigIntFromByteArray, TVMFFIBigIntGetContentByteArray, TVMFFIByteArray, kTVMFFIBigInt,
    kTVMFFIBool,
};

use crate::{Any, AnyView, Error, FromArg, Mismatch, Result};

/// 64-bit words of a BigInt, borrowed from a value: two's complement, least significant word first.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn of(view: &'a AnyView<'_>) -> Option<Words<'a>> {
        if view.type_index() != kTVMFFIBigInt {
            return None;
        }
        // SAFETY: the view holds a valid value, and the result borrows from the view.
        let words = unsafe { TVMFFIBigIntGetContentByteArray(view.as_raw()) };
        // SAFETY: the view holds a valid value, and the result borrows from the view.
        Some(Words(unsafe { words.as_slice() }))
    }

    fn len(&self) -> usize {
        self.0.len() / 8
    }

    /// Returns the word at an index. Indices beyond the last word yield the sign extension.
    fn word(&self, index: usize) -> u64 {
        match self.0.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok()) {
            Some(bytes) => u64::from_ne_bytes(bytes),
            None if self.is_negative() => u64::MAX,
            None => 0,
        }
    }

    fn is_negative(&self) -> bool {
        self.len() > 0 && (self.word(self.len() - 1) as i64) < 0
    }

    fn low(&self) -> u128 {
        u128::from(self.word(0)) | u128::from(self.word(1)) << 64
    }

    fn to_i128(&self) -> Option<i128> {
        (self.len() <= 2).then(|| self.low() as i128)
    }

    fn to_u128(&self) -> Option<u128> {
        let fits = self.len() <= 2 || (self.len() == 3 && self.word(2) == 0);
        (fits && !self.is_negative()).then(|| self.low())
    }

    /// Returns the word at `index` of the absolute value. `zero_below` must be true if all lower words are zero, and
    /// false otherwise.
    fn magnitude(&self, index: usize, zero_below: bool) -> u64 {
        match (self.is_negative(), zero_below) {
            (false, _) => self.word(index),
            (true, true) => self.word(index).wrapping_neg(),
            (true, false) => !self.word(index),
        }
    }

    /// Returns the nearest `f64`; an infinity if the integer is out of range.
    fn to_f64(&self) -> f64 {
        // The two highest words contain all significant bits. The lower words affect the rounding only through
        // one sticky bit, which is set if any of them is not zero.
        let (mut top, mut sticky, mut zero_below, mut highest) = (0u128, false, true, 0);
        for index in 0..self.len() {
            let word = self.magnitude(index, zero_below);
            zero_below &= self.word(index) == 0;
            if word != 0 {
                highest = index;
            }
        }
        zero_below = true;
        for index in 0..=highest {
            let word = self.magnitude(index, zero_below);
            zero_below &= self.word(index) == 0;
            if index + 1 < highest {
                sticky |= word != 0;
            } else {
                top |= u128::from(word) << (64 * (index + 1 - highest));
            }
        }
        let mut value = (top | u128::from(sticky)) as f64;
        let mut shift = 64 * (highest as i64 - 1);
        while shift > 0 && value.is_finite() {
            value *= 18_446_744_073_709_551_616.0;
            shift -= 64;
        }
        if shift < 0 {
            value /= 18_446_744_073_709_551_616.0;
        }
        if self.is_negative() { -value } else { value }
    }
}

/// Formats the digits of integers up to 128 bits, and only the size of larger integers.
impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.to_u128(), self.to_i128()) {
            (Some(value), _) => write!(f, "int {value}"),
            (_, Some(value)) => write!(f, "int {value}"),
            _ => write!(f, "int of {} bits", 64 * self.len()),
        }
    }
}

/// Reads a bool or a BigInt as an integer that is in the range of the type `T`, which may be wider than 64 bits. Returns a
/// mismatch for other values and for integers out of range.
///
/// The result is not a `T`: a caller that returned this result as its own would be compiled to merge it with the results of
/// its fast path, and would then examine all of them.
#[cold]
pub(crate) fn narrow<T: FromArg + TryFrom<i128>>(
    view: &AnyView<'_>,
    range: fn() -> StdString,
) -> Result<i128, Mismatch> {
    if view.type_index() == kTVMFFIBool {
        // SAFETY: the value of a bool is in `v_int64`.
        let value = i128::from(unsafe { view.as_raw().value.v_int64 });
        return match T::try_from(value) {
            Ok(_) => Ok(value),
            Err(_) => Err(Mismatch::new("OverflowError", range(), format!("int {value}"))),
        };
    }
    let Some(words) = Words::of(view) else { return Err(Mismatch::of_type::<T>(view)) };
    let value = words.to_i128().filter(|value| T::try_from(*value).is_ok());
    value.ok_or_else(|| Mismatch::new("OverflowError", range(), words.to_string()))
}

/// Reads a BigInt as a float of magnitude at most `max`. Returns a mismatch for other values and for larger
/// integers.
#[cold]
pub(crate) fn to_float<T: FromArg>(view: &AnyView<'_>, max: f64) -> Result<f64, Mismatch> {
    let Some(words) = Words::of(view) else { return Err(Mismatch::of_type::<T>(view)) };
    let value = words.to_f64();
    if value.abs() <= max {
        return Ok(value);
    }
    Err(Mismatch::new("OverflowError", "float".to_string(), words.to_string()))
}

/// Reads a BigInt as an unsigned 128-bit integer. Returns a mismatch for other values and for integers out of
/// range.
#[cold]
pub(crate) fn to_u128(view: &AnyView<'_>) -> Result<u128, Mismatch> {
    let Some(words) = Words::of(view) else { return Err(Mismatch::of_type::<u128>(view)) };
    let range = || format!("u128 (0 to {})", u128::MAX);
    words.to_u128().ok_or_else(|| Mismatch::new("OverflowError", range(), words.to_string()))
}

/// Creates an integer value from its low 128 bits and `sign`. `sign` is the value of each higher 64-bit word:
/// all ones if the integer is negative, and zero otherwise.
#[cold]
pub(crate) fn make(low: u128, sign: u64) -> Result<Any> {
    let words = [low as u64, (low >> 64) as u64, sign];
    // SAFETY: the slice covers the array, which consists of plain integers.
    let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(&words)) };
    let bytes = TVMFFIByteArray::from_slice(bytes);
    let mut out = TVMFFIAny::NONE;
    // SAFETY: the bytes are borrowed for the call, and `out` is writable.
    match unsafe { TVMFFIBigIntFromByteArray(&bytes, &mut out) } {
        // SAFETY: on success the result is an owned value.
        0 => Ok(unsafe { Any::from_raw(out) }),
        _ => Err(Error::take_raised()),
    }
}

/// Formats a BigInt for debugging.
pub(crate) fn debug(view: &AnyView<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match Words::of(view) {
        Some(words) => write!(f, "{words}"),
        None => f.write_str("BigInt"),
    }
}
