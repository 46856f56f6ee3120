//! Printing of values without children.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use anyfn::abi::{
    DLDevice, kDLCPU, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIFloat,
    kTVMFFIInt, kTVMFFINone, kTVMFFIShape, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStr, kTVMFFITensor,
};
use anyfn::{Any, DType, Device, ObjectRef, Result, Shape, TensorView};

use crate::value;

/// Writes a value that is not an object. For an object, writes nothing and returns false.
#[inline]
pub(super) fn plain(text: &mut String, value: &Any) -> Result<bool> {
    let index = value.type_index();
    if value::is_object(index) {
        return Ok(false);
    }
    let bits = value::bits(value);
    match index {
        kTVMFFINone => text.push_str("None"),
        kTVMFFIBool => text.push_str(if bits != 0 { "True" } else { "False" }),
        kTVMFFIInt => _ = write!(text, "{}", bits as i64),
        kTVMFFIFloat => float(text, f64::from_bits(bits)),
        kTVMFFIDataType => dtype(text, value.get::<DType>()?),
        kTVMFFIDevice => device(text, value.get::<Device>()?),
        kTVMFFISmallStr => quoted(text, value::bytes_of(value)),
        kTVMFFISmallBytes => bytes(text, value::bytes_of(value)),
        _ => text.push_str(value.type_key()),
    }
    Ok(true)
}

/// Writes an object without children, such as a string or a tensor. For other objects, writes nothing and
/// returns false.
pub(super) fn leaf(text: &mut String, object: &ObjectRef) -> Result<bool> {
    match object.type_index() {
        kTVMFFIStr => quoted(text, value::bytes_of(&object.clone().into())),
        kTVMFFIBytes => bytes(text, value::bytes_of(&object.clone().into())),
        kTVMFFIBigInt => decimal(text, &value::words(&object.clone().into())),
        kTVMFFIShape => {
            let shape = Any::from(object.clone()).get::<Shape>()?;
            text.push_str("Shape(");
            list(text, &shape);
            text.push(')');
        }
        kTVMFFITensor => {
            let tensor = Any::from(object.clone());
            let tensor = tensor.get::<TensorView<'_>>()?;
            dtype(text, tensor.dtype());
            text.push('[');
            list(text, tensor.shape());
            text.push_str("]@");
            device(text, tensor.device());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn list(text: &mut String, extents: &[i64]) {
    for (at, extent) in extents.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { ", " });
        let _ = write!(text, "{extent}");
    }
}

fn dtype(text: &mut String, dtype: DType) {
    let _ = write!(text, "{dtype}");
}

fn device(text: &mut String, device: Device) {
    let DLDevice { device_type, device_id } = device.0;
    if device_type == kDLCPU {
        let _ = write!(text, "cpu:{device_id}");
    } else {
        let _ = write!(text, "{device}");
    }
}

/// Writes a float with at most six significant digits, as C's `%g` does.
pub(crate) fn float(text: &mut String, value: f64) {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let _ = write!(text, "{sign}{}", if value.is_nan() { "nan" } else { "inf" });
        return;
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |digits: &str| -> String {
        let kept =
            if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
        String::from(kept)
    };
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(text, "{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs());
        return;
    }
    let places = (5 - exponent).max(0) as usize;
    text.push_str(&trimmed(&format!("{value:.places$}")));
}

/// Writes a string in quotation marks. Characters that are not ASCII are escaped.
pub(crate) fn quoted(text: &mut String, content: &[u8]) {
    text.push('"');
    let mut rest = content;
    while let Some(first) = rest.first().copied() {
        let used = match first {
            0x1b => colour(text, rest),
            b'\n' => escape(text, "\\n"),
            b'\t' => escape(text, "\\t"),
            b'\r' => escape(text, "\\r"),
            b'\\' => escape(text, "\\\\"),
            b'"' => escape(text, "\\\""),
            b' '..=b'~' => {
                text.push(first as char);
                1
            }
            0..=0x7f => hex(text, first),
            _ => wide(text, rest),
        };
        rest = &rest[used..];
    }
    text.push('"');
}

fn escape(text: &mut String, shown: &str) -> usize {
    text.push_str(shown);
    1
}

fn hex(text: &mut String, byte: u8) -> usize {
    let _ = write!(text, "\\x{byte:02x}");
    1
}

/// Writes the terminal control sequence, such as `\x1b[31m`, with which `rest` begins. If `rest`
/// begins with a lone escape byte 0x1b, writes only this byte. Returns the number of bytes read.
fn colour(text: &mut String, rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'[') {
        let inner = rest[2..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
        if let Some(b'm' | b'K') = rest.get(2 + inner) {
            text.push_str("\\x1b[");
            rest[2..3 + inner].iter().for_each(|byte| text.push(*byte as char));
            return 3 + inner;
        }
    }
    hex(text, 0x1b)
}

/// Writes the first character of `rest`, which is not ASCII, as an escape sequence. If the bytes are not
/// valid UTF-8, escapes only the first byte. Returns the number of bytes read.
fn wide(text: &mut String, rest: &[u8]) -> usize {
    let len = match rest[0] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return hex(text, rest[0]),
    };
    let Some(tail) = rest.get(1..len).filter(|tail| tail.iter().all(|byte| byte & 0xc0 == 0x80)) else {
        return hex(text, rest[0]);
    };
    let head = u32::from(rest[0]) & (0x7f >> len);
    let code = tail.iter().fold(head, |code, byte| code << 6 | u32::from(byte & 0x3f));
    let _ = if len == 4 { write!(text, "\\U{code:08x}") } else { write!(text, "\\u{code:04x}") };
    len
}

fn bytes(text: &mut String, content: &[u8]) {
    text.push_str("b\"");
    for byte in content {
        match byte {
            b'"' | b'\\' => _ = hex(text, *byte),
            b' '..=b'~' => text.push(*byte as char),
            _ => _ = hex(text, *byte),
        }
    }
    text.push('"');
}

/// Writes an integer of any size, given as 64-bit words in two's complement, least significant word first.
fn decimal(text: &mut String, words: &[u8]) {
    /// Largest power of ten that fits in a 64-bit word.
    const CHUNK: u64 = 10_000_000_000_000_000_000;
    let mut magnitude: Vec<u64> =
        words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
    let negative = magnitude.last().is_some_and(|word| (*word as i64) < 0);
    if negative {
        let mut carry = true;
        for word in &mut magnitude {
            (*word, carry) = (!*word).overflowing_add(u64::from(carry));
        }
    }
    let mut chunks = Vec::new();
    while let Some(last) = magnitude.last() {
        if *last == 0 {
            magnitude.pop();
            continue;
        }
        let mut rest = 0u128;
        for word in magnitude.iter_mut().rev() {
            let value = rest << 64 | u128::from(*word);
            *word = (value / u128::from(CHUNK)) as u64;
            rest = value % u128::from(CHUNK);
        }
        chunks.push(rest as u64);
    }
    text.push_str(if negative { "-" } else { "" });
    let _ = write!(text, "{}", chunks.pop().unwrap_or_default());
    for chunk in chunks.iter().rev() {
        let _ = write!(text, "{chunk:019}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut String)) -> String {
        let mut text = String::new();
        write(&mut text);
        text
    }

    #[test]
    fn floats_have_six_digits() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.333333"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.5, "1e+06"),
            (0.0001, "0.0001"),
            (0.000_012_345_67, "1.23457e-05"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(shown(|text| float(text, value)), expected);
        }
    }

    #[test]
    fn strings_are_ascii() {
        let text = "a\"\\\n\t\r\u{1}\u{7f}é€😀\u{1b}[1;31mx\u{1b}z".as_bytes();
        let expected = "\"a\\\"\\\\\\n\\t\\r\\x01\\x7f\\u00e9\\u20ac\\U0001f600\\x1b[1;31mx\\x1bz\"";
        assert_eq!(shown(|out| quoted(out, text)), expected);
        assert_eq!(shown(|out| quoted(out, b"\xff\xe2\x82")), "\"\\xff\\xe2\\x82\"");
    }
}
