//! Formats values for the terminal in the notation of Python, as `anyfn call` of the Python package does.

use anyfn::abi::{kDLBool, kDLComplex, kDLInt, kDLUInt, kTVMFFIBool, kTVMFFIFloat};
use anyfn::{Any, Array, Bytes, DType, Device, Dict, List, Map, Result, Shape, Tensor, bail, registry};

/// Maximum nesting depth of the values that are shown. A list that contains itself is deeper.
const DEPTH_MAX: usize = 500;

/// Formats a value, such as the result of the called function.
///
/// # Errors
/// Returns `RecursionError` if containers are nested too deeply, and the errors of reading a tensor and of converting
/// an object to a string.
pub(crate) fn shown(value: &Any) -> Result<String> {
    within(value, DEPTH_MAX)
}

fn within(value: &Any, depth: usize) -> Result<String> {
    if depth == 0 {
        bail!("RecursionError", "cannot show the result: it is nested more than {DEPTH_MAX} levels deep");
    }
    if value.is_none() {
        return Ok("None".into());
    }
    match value.type_index() {
        kTVMFFIBool => return Ok(bool_text(value.get::<bool>()?).into()),
        kTVMFFIFloat => return Ok(float(value.get::<f64>()?)),
        _ => {}
    }
    if let Ok(text) = value.get::<&str>() {
        return Ok(string(text));
    }
    if let Ok(found) = value.get::<Tensor>() {
        return tensor(&found);
    }
    if let Ok(shape) = value.get::<Shape>() {
        return Ok(list(shape.iter().map(i64::to_string)));
    }
    if let Ok(items) = value.get::<Array<Any>>() {
        return Ok(list(items.iter().map(|item| within(&item, depth - 1)).collect::<Result<Vec<_>>>()?));
    }
    if let Ok(items) = value.get::<List<Any>>() {
        return Ok(list(items.iter().map(|item| within(&item?, depth - 1)).collect::<Result<Vec<_>>>()?));
    }
    let pair = |key: &Any, item: &Any| Ok(format!("{}: {}", within(key, depth - 1)?, within(item, depth - 1)?));
    if let Ok(map) = value.get::<Map<Any, Any>>() {
        let pairs = map.iter_any().map(|(key, item)| pair(key, item)).collect::<Result<Vec<_>>>()?;
        return Ok(format!("{{{}}}", pairs.join(", ")));
    }
    if let Ok(map) = value.get::<Dict<Any, Any>>() {
        let pairs = map
            .iter()
            .map(|entry| entry.and_then(|(key, item)| pair(&key, &item)))
            .collect::<Result<Vec<_>>>()?;
        return Ok(format!("{{{}}}", pairs.join(", ")));
    }
    if let Ok(bytes) = value.get::<Bytes>() {
        return Ok(byte_string(&bytes));
    }
    if let Ok(number) = value.get::<i128>() {
        return Ok(number.to_string());
    }
    if let Ok(dtype) = value.get::<DType>() {
        return Ok(format!("dtype('{dtype}')"));
    }
    if let Ok(device) = value.get::<Device>() {
        return Ok(format!("device({device:?})"));
    }
    Ok(registry::get("ffi.ReprPrint")?.call((value,))?.get::<&str>()?.to_owned())
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

fn bool_text(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Formats a tensor as its data type and its elements, such as `float32[1.0, 2.0]`.
fn tensor(tensor: &Tensor) -> Result<String> {
    let dtype = tensor.view().dtype();
    let plain = registry::get("anyfn.tensor_decode")?.call((tensor,))?.get::<Tensor>()?;
    let view = plain.view();
    let shape = view.shape();
    let bytes = plain.to_bytes()?;
    let numbers: Vec<String> = match view.dtype().0.code {
        kDLBool => bytes.iter().map(|byte| bool_text(*byte != 0).to_owned()).collect(),
        kDLInt => words(&bytes).map(|word| i64::from_ne_bytes(word).to_string()).collect(),
        kDLUInt => words(&bytes).map(|word| u64::from_ne_bytes(word).to_string()).collect(),
        _ if dtype.0.code == kDLComplex => {
            let numbers: Vec<f64> = words(&bytes).map(f64::from_ne_bytes).collect();
            numbers.chunks_exact(2).map(|pair| complex(pair[0], pair[1])).collect()
        }
        _ => words(&bytes).map(|word| float(f64::from_ne_bytes(word))).collect(),
    };
    // The two parts of complex numbers are the last dimension.
    let shape = if dtype.0.code == kDLComplex { &shape[..shape.len() - 1] } else { shape };
    let text = nested(&mut numbers.into_iter(), shape);
    Ok(if shape.is_empty() { format!("{dtype} {text}") } else { format!("{dtype}{text}") })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    bytes.as_chunks().0.iter().copied()
}

/// Joins numbers into nested lists whose lengths are the extents of `shape`.
fn nested(numbers: &mut impl Iterator<Item = String>, shape: &[i64]) -> String {
    match shape.split_first() {
        None => numbers.next().unwrap_or_default(),
        Some((extent, rest)) => list((0..*extent).map(|_| nested(&mut *numbers, rest)).collect::<Vec<_>>()),
    }
}

/// Formats a floating-point number as Python does: with the fewest digits that identify it, and with an exponent if
/// that is below -4 or above 15.
fn float(value: f64) -> String {
    let text = plain_float(value);
    let is_integer = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_integer { format!("{text}.0") } else { text }
}

/// Formats a floating-point number like [`float`], but integers without `.0`.
fn plain_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..=15) => value.to_string(),
        Ok(exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
        }
        Err(_) => text,
    }
}

/// Formats a complex number as Python does, such as `(1+2j)`.
fn complex(real: f64, imaginary: f64) -> String {
    let sign = if imaginary.is_sign_negative() && !imaginary.is_nan() { "" } else { "+" };
    let imaginary = plain_float(imaginary);
    if real == 0.0 && real.is_sign_positive() {
        return format!("{imaginary}j");
    }
    format!("({}{sign}{imaginary}j)", plain_float(real))
}

/// Formats a string as a literal of Python.
fn string(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                code @ ..0x100 => out.push_str(&format!("\\x{code:02x}")),
                code @ ..0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
    out
}

fn is_printable(c: char) -> bool {
    // A combining character is escaped at the beginning of a string only.
    let mut escaped = ['a', c].iter().collect::<String>().escape_debug().to_string();
    escaped.remove(0);
    !escaped.starts_with("\\u") && !escaped.starts_with("\\0")
}

/// Formats bytes as a literal of Python.
fn byte_string(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut out = format!("b{quote}");
    for &byte in bytes {
        match char::from(byte) {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c @ ' '..='~' => out.push(c),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_python() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (1e-5, "1e-05"),
            (0.1, "0.1"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(value), expected);
        }
        assert_eq!(complex(1.0, -2.5), "(1-2.5j)");
        assert_eq!(complex(0.0, 1e16), "1e+16j");
        assert_eq!(complex(-0.0, f64::NAN), "(-0+nanj)");
    }

    #[test]
    fn strings_are_written_as_in_python() {
        for (text, expected) in [
            ("it", "'it'"),
            ("it's", "\"it's\""),
            ("it's \"it\"", "'it\\'s \"it\"'"),
            ("\u{e9}\u{301}", "'\u{e9}\u{301}'"),
            ("\0\u{7f}\u{85}\u{200b}\\\t", "'\\x00\\x7f\\x85\\u200b\\\\\\t'"),
            ("\u{10ffff}", "'\\U0010ffff'"),
        ] {
            assert_eq!(string(text), expected);
        }
        assert_eq!(byte_string(b"a'\x00\xff"), "b\"a'\\x00\\xff\"");
    }
}
