//! Scalar values in JSON: strings, numbers and bytes.

use core::fmt::{self, Write};

use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Escape of each byte in a JSON string: 0 if the byte needs no escape, `u` for the form `\u00..`, otherwise
/// the character after the backslash.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x7f] = b'u';
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table
};

/// Writes a string as JSON, with quotes and escapes. The output is UTF-8 if the input is.
pub(super) fn write_str(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut from = 0;
    for (at, byte) in text.iter().enumerate() {
        let escape = ESCAPES[*byte as usize];
        if escape != 0 {
            out.extend_from_slice(&text[from..at]);
            from = at + 1;
            out.extend_from_slice(&[b'\\', escape]);
            if escape == b'u' {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let digits = [b'0', b'0', HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]];
                out.extend_from_slice(&digits);
            }
        }
    }
    out.extend_from_slice(&text[from..]);
    out.push(b'"');
}

/// Writes an integer in decimal.
pub(super) fn write_int(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Output buffer on the stack, in which a number is formatted.
struct Buffer {
    bytes: [u8; 40],
    len: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Writes a float with at most 17 significant digits, as C's `%.17g` does, so that parsing restores the exact
/// value. A value without a fractional part is written with `.0` if its magnitude is below 2^53.
pub(super) fn write_float(out: &mut Vec<u8>, value: f64) {
    const EXACT: f64 = (1u64 << 53) as f64;
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value < 0.0 { b"-Infinity" } else { b"Infinity" });
    }
    if value.abs() < EXACT && (value as i64) as f64 == value {
        if value == 0.0 && value.is_sign_negative() {
            out.push(b'-');
        }
        write_int(out, value as i64);
        return out.extend_from_slice(b".0");
    }
    let mut buffer = Buffer { bytes: [0; 40], len: 0 };
    // One digit, 16 more, an exponent: 24 bytes at most.
    let _ = write!(buffer, "{:.16e}", value.abs());
    let text = &buffer.bytes[..buffer.len];
    let Some(e) = memchr::memchr(b'e', text) else { return };
    let exponent: i32 =
        core::str::from_utf8(&text[e + 1..]).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut digits = [b'0'; 17];
    digits[0] = text[0];
    digits[1..].copy_from_slice(&text[2..18]);
    let used = digits.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    if value < 0.0 {
        out.push(b'-');
    }
    if !(-4..17).contains(&exponent) {
        out.push(digits[0]);
        if used > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..used]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.abs() < 10 {
            out.push(b'0');
        }
        write_int(out, exponent.abs());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend_from_slice(&b"000"[..(-exponent - 1) as usize]);
        out.extend_from_slice(&digits[..used]);
    } else {
        let whole = exponent as usize + 1;
        out.extend_from_slice(&digits[..whole]);
        if used > whole {
            out.push(b'.');
            out.extend_from_slice(&digits[whole..used]);
        }
    }
}

/// Writes bytes as a base64 JSON string, in which `/` is escaped as in all strings.
pub(super) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let from = out.len();
    write_base64(out, bytes);
    if memchr::memchr(b'/', &out[from..]).is_some() {
        let text = out.split_off(from);
        write_str(out, &text[1..text.len() - 1]);
    }
}

/// Writes bytes as a base64 string without escapes.
pub(super) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let from = out.len();
    let len = bytes.len().div_ceil(3) * 4;
    out.resize(from + len, 0);
    // The buffer has the required length.
    let written = STANDARD.encode_slice(bytes, &mut out[from..]).unwrap_or(0);
    out.truncate(from + written);
    out.push(b'"');
}

/// Decodes base64. Returns `None` if the input is invalid.
pub(super) fn read_base64(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use anyfn_random::Random;

    fn float(value: f64) -> String {
        let mut out = Vec::new();
        write_float(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_written_as_c_writes_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (9007199254740991.0, "9007199254740991.0"),
            (9007199254740992.0, "9007199254740992"),
            (1e-5, "1.0000000000000001e-05"),
            (1.5e-7, "1.4999999999999999e-07"),
            (0.0001, "0.0001"),
            (0.00012345, "0.00012344999999999999"),
            (123456.789, "123456.789"),
            (1e22, "1e+22"),
            (1e23, "9.9999999999999992e+22"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn floats_come_back() {
        let mut random = Random::new(1);
        for _ in 0..100_000 {
            let value = f64::from_bits(random.number());
            if value.is_finite() {
                assert_eq!(float(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
            }
        }
    }

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        write_str(&mut out, "a/\\\"\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{80}\u{2028}é🦀".as_bytes());
        let text = "\"a\\/\\\\\\\"\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\u{80}\u{2028}é🦀\"";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn bytes_come_back() {
        for len in 0..20u8 {
            let bytes: Vec<u8> = (0..len).map(|at| at.wrapping_mul(57)).collect();
            let mut out = Vec::new();
            write_base64(&mut out, &bytes);
            assert_eq!(read_base64(&out[1..out.len() - 1]), Some(bytes));
        }
        for text in ["@@", "YQ", "YWI=\n", "YR=="] {
            assert_eq!(read_base64(text.as_bytes()), None, "{text}");
        }
    }
}
