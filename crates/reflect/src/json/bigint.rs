//! Decimal representation of integers of more than 64 bits.

use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::abi::{
    TVMFFIAny, TVMFFIBigIntFromByteArray, TVMFFIBigIntGetContentByteArray, TVMFFIByteArray, kTVMFFIBigInt,
};
use anyfn::{Any, Error, Result};

/// Maximum number of decimal digits of an integer. The limit exists because reading and writing take
/// quadratic time.
pub(super) const DIGITS_MAX: usize = 1 << 17;

/// Base of the conversion, 10^19. Digits are converted in groups of 19, because every integer of 19 digits
/// fits in 64 bits.
const CHUNK: u64 = 10_000_000_000_000_000_000;
const CHUNK_DIGITS: usize = 19;

/// Formats a BigInt as a decimal number.
///
/// # Errors
/// Returns `ValueError` if the number has too many digits.
pub(super) fn to_text(value: &Any) -> Result<StdString> {
    debug_assert_eq!(value.type_index(), kTVMFFIBigInt);
    let view = value.as_view();
    // SAFETY: a valid value, from which the result borrows.
    let words = unsafe { TVMFFIBigIntGetContentByteArray(view.as_raw()) };
    // SAFETY: a valid value, from which the result borrows.
    let bytes = unsafe { words.as_slice() };
    let (words, _) = bytes.as_chunks::<8>();
    let mut words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let negative = words.last().is_some_and(|word| (*word as i64) < 0);
    if negative {
        negate(&mut words);
    }
    if words.len() * 20 > DIGITS_MAX {
        anyfn::bail!("ValueError", "an integer of {} bits is too large for JSON", words.len() * 64);
    }
    let mut chunks = Vec::new();
    while words.last() == Some(&0) {
        words.pop();
    }
    while !words.is_empty() {
        let rest = words.iter_mut().rev().fold(0u128, |rest, word| {
            let value = rest << 64 | u128::from(*word);
            *word = (value / u128::from(CHUNK)) as u64;
            value % u128::from(CHUNK)
        });
        chunks.push(rest as u64);
        while words.last() == Some(&0) {
            words.pop();
        }
    }
    let mut text = StdString::from(if negative { "-" } else { "" });
    let mut buffer = itoa::Buffer::new();
    for (at, chunk) in chunks.iter().rev().enumerate() {
        let digits = buffer.format(*chunk);
        if at != 0 {
            text.extend(core::iter::repeat_n('0', CHUNK_DIGITS - digits.len()));
        }
        text.push_str(digits);
    }
    if chunks.is_empty() {
        text.push('0');
    }
    Ok(text)
}

fn negate(words: &mut [u64]) {
    let mut carry = true;
    for word in words {
        (*word, carry) = (!*word).overflowing_add(u64::from(carry));
    }
}

/// Parses a decimal number as an int, or as a BigInt if it does not fit in 64 bits. Returns `None` if the
/// string is not a decimal number.
pub(super) fn from_text(text: &str) -> Option<Result<Any>> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut words: Vec<u64> = Vec::with_capacity(digits.len() / CHUNK_DIGITS + 2);
    let (first, rest) = digits.split_at(digits.len() % CHUNK_DIGITS);
    for chunk in core::iter::once(first).chain(rest.chunks(CHUNK_DIGITS)) {
        let mut carry = chunk.iter().fold(0u128, |value, digit| value * 10 + u128::from(digit - b'0'));
        for word in &mut words {
            let value = u128::from(*word) * u128::from(CHUNK) + carry;
            *word = value as u64;
            carry = value >> 64;
        }
        if carry != 0 {
            words.push(carry as u64);
        }
    }
    words.push(0);
    if negative {
        negate(&mut words);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let bytes = TVMFFIByteArray::from_slice(&bytes);
    let mut out = TVMFFIAny::NONE;
    // SAFETY: the bytes are borrowed for the call, `out` is writable.
    Some(match unsafe { TVMFFIBigIntFromByteArray(&bytes, &mut out) } {
        // SAFETY: on success the result is an owned value.
        0 => Ok(unsafe { Any::from_raw(out) }),
        _ => Err(Error::take_raised()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_back() {
        let mut text = StdString::from("9");
        for round in 0..400 {
            text.push(char::from(b'0' + (round * 7 % 10) as u8));
            for text in [text.clone(), alloc::format!("-{text}")] {
                let value = from_text(&text).unwrap().unwrap();
                if value.type_index() == kTVMFFIBigInt {
                    assert_eq!(to_text(&value).unwrap(), text);
                } else {
                    assert_eq!(value.get::<i64>().unwrap(), text.parse::<i64>().unwrap());
                }
            }
        }
        for text in
            ["18446744073709551616", "-9223372036854775809", "10000000000000000000", "-18446744073709551616"]
        {
            assert_eq!(to_text(&from_text(text).unwrap().unwrap()).unwrap(), text);
        }
        for text in ["", "-", "1x", "+1", " 1", "1_0"] {
            assert!(from_text(text).is_none(), "{text}");
        }
    }
}
