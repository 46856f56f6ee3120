//! Data types as text.

use core::fmt::Write;

use alloc::format;
use alloc::string::{String, ToString};

use anyfn::abi::{
    DLDataType, kDLBfloat, kDLBool, kDLFloat, kDLFloat4_e2m1fn, kDLFloat6_e2m3fn, kDLFloat6_e3m2fn,
    kDLFloat8_e3m4, kDLFloat8_e4m3, kDLFloat8_e4m3b11fnuz, kDLFloat8_e4m3fn, kDLFloat8_e4m3fnuz,
    kDLFloat8_e5m2, kDLFloat8_e5m2fnuz, kDLFloat8_e8m0fnu, kDLInt, kDLOpaqueHandle, kDLUInt,
};
use anyfn::{Error, Result, bail};

/// First code of custom data types, which have their names from the global functions `dtype.get_custom_type_*`.
const CUSTOM_BEGIN: u8 = 129;

/// Floats whose name says how many bits they have: name behind `float`, code, bits.
const SMALL_FLOATS: &[(&str, u8, u8)] = &[
    ("8_e3m4", kDLFloat8_e3m4, 8),
    ("8_e4m3", kDLFloat8_e4m3, 8),
    ("8_e4m3b11fnuz", kDLFloat8_e4m3b11fnuz, 8),
    ("8_e4m3fn", kDLFloat8_e4m3fn, 8),
    ("8_e4m3fnuz", kDLFloat8_e4m3fnuz, 8),
    ("8_e5m2", kDLFloat8_e5m2, 8),
    ("8_e5m2fnuz", kDLFloat8_e5m2fnuz, 8),
    ("8_e8m0fnu", kDLFloat8_e8m0fnu, 8),
    ("6_e2m3fn", kDLFloat6_e2m3fn, 6),
    ("6_e3m2fn", kDLFloat6_e3m2fn, 6),
    ("4_e2m1fn", kDLFloat4_e2m1fn, 4),
];

/// Names, long and short: name, code, bits when none are given.
const NAMES: &[(&str, u8, u8)] = &[
    ("uint", kDLUInt, 32),
    ("int", kDLInt, 32),
    ("bfloat", kDLBfloat, 16),
    ("float", kDLFloat, 32),
    ("handle", kDLOpaqueHandle, 64),
    ("bool", kDLBool, 8),
    ("u", kDLUInt, 32),
    ("i", kDLInt, 32),
    ("bf", kDLBfloat, 16),
    ("fp", kDLFloat, 32),
    ("f", kDLFloat, 32),
];

/// The data type that stands for no value.
const VOID: DLDataType = DLDataType { code: kDLOpaqueHandle, bits: 0, lanes: 0 };

/// Prints a data type, such as `float32x4`.
pub(crate) fn print(dtype: DLDataType) -> Result<String> {
    let DLDataType { code, bits, lanes } = dtype;
    if dtype == VOID {
        return Ok(String::new());
    }
    let mut text = String::new();
    let named = [(kDLInt, "int"), (kDLUInt, "uint"), (kDLFloat, "float"), (kDLBfloat, "bfloat")];
    if let Some((_, name)) = named.iter().find(|(named, _)| *named == code) {
        text = format!("{name}{bits}");
    } else if code == kDLOpaqueHandle {
        text.push_str("handle");
        return Ok(text);
    } else if code == kDLBool {
        text.push_str("bool");
        if bits != 8 {
            text.push_str(&bits.to_string());
        }
    } else if let Some((name, ..)) = SMALL_FLOATS.iter().find(|(_, small, _)| *small == code) {
        text = format!("float{name}");
    } else if code >= CUSTOM_BEGIN {
        let name = anyfn::registry::get("dtype.get_custom_type_name")?.call((i64::from(code),))?;
        text = format!("custom[{}]{bits}", name.get::<&str>()?);
    } else {
        bail!("ValueError", "DLDataType contains unknown type_code={code}");
    }
    // Lanes are read as a signed number: below -1 they are a multiple of the machine's vector length.
    let written = match lanes as i16 {
        lanes if lanes > 1 => write!(text, "x{lanes}"),
        lanes if lanes < -1 => write!(text, "xvscalex{}", -i32::from(lanes)),
        _ => Ok(()),
    };
    // Writing to a string cannot fail.
    let _ = written;
    Ok(text)
}

#[cold]
fn unknown(text: &str) -> Error {
    anyfn::error!("ValueError", "unknown dtype `{text}`")
}

/// Parses a data type.
pub(crate) fn parse(text: &str) -> Result<DLDataType> {
    if text.is_empty() || text == "void" {
        return Ok(VOID);
    }
    if text == "bool" {
        return Ok(DLDataType { code: kDLBool, bits: 8, lanes: 1 });
    }
    if let Some(rest) = text.strip_prefix("custom[") {
        return parse_custom(text, rest);
    }
    if let Some(dtype) = parse_small_float(text) {
        return dtype;
    }
    let Some(&(name, code, bits)) = NAMES.iter().find(|(name, ..)| text.starts_with(name)) else {
        return Err(unknown(text));
    };
    let rest = &text[name.len()..];
    // The short names mean nothing without their bits.
    if rest.is_empty() && name.len() <= 2 {
        return Err(unknown(text));
    }
    parse_bits_and_lanes(text, rest, code, bits)
}

/// Floats such as `float8_e4m3fn` and `fp4_e2m1fn`; `None` if the text is none of them.
fn parse_small_float(text: &str) -> Option<Result<DLDataType>> {
    let rest = ["float", "fp", "f"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    // The longest name that fits, as some names begin with others.
    let fits = SMALL_FLOATS.iter().filter(|(name, ..)| rest.starts_with(name));
    let &(name, code, bits) = fits.max_by_key(|(name, ..)| name.len())?;
    let rest = &rest[name.len()..];
    // Two of these floats in a byte are also written with an underscore: `float4_e2m1fn_x2`.
    let rest = rest.strip_prefix('_').filter(|lanes| lanes.starts_with('x')).unwrap_or(rest);
    Some(parse_lanes(rest).map(|lanes| DLDataType { code, bits, lanes }).ok_or_else(|| unknown(text)))
}

fn parse_custom(text: &str, rest: &str) -> Result<DLDataType> {
    let Some((name, rest)) = rest.split_once(']') else { return Err(unknown(text)) };
    let code = anyfn::registry::get("dtype.get_custom_type_code")?.call((name,))?;
    let code = code.get::<u8>()?;
    parse_bits_and_lanes(text, rest, code, 0)
}

/// Parses `<bits>[x<lanes>]`.
fn parse_bits_and_lanes(text: &str, rest: &str, code: u8, default_bits: u8) -> Result<DLDataType> {
    let (digits, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let bits =
        if digits.is_empty() { Some(default_bits) } else { digits.parse().ok().filter(|bits| *bits > 0) };
    match (bits, parse_lanes(rest)) {
        (Some(bits), Some(lanes)) => Ok(DLDataType { code, bits, lanes }),
        _ => Err(unknown(text)),
    }
}

/// Parses nothing, `x<lanes>`, or `xvscalex<lanes>`.
fn parse_lanes(text: &str) -> Option<u16> {
    if text.is_empty() {
        return Some(1);
    }
    let text = text.strip_prefix('x')?;
    let number = |digits: &str| digits.parse::<i16>().ok().filter(|n| *n > 0 && !digits.starts_with('+'));
    match text.strip_prefix("vscalex") {
        Some(digits) => number(digits).map(|lanes| (-lanes) as u16),
        // Up to the largest unsigned 16-bit number that does not read as a multiple of the vector length.
        None => number(text).map(|lanes| lanes as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: u8, bits: u8, lanes: u16) {
        let dtype = DLDataType { code, bits, lanes };
        assert_eq!(parse(text).map_err(|error| error.to_string()), Ok(dtype), "{text}");
    }

    #[test]
    fn names_and_short_names() {
        check("float32", kDLFloat, 32, 1);
        check("float", kDLFloat, 32, 1);
        check("f32", kDLFloat, 32, 1);
        check("fp16", kDLFloat, 16, 1);
        check("i8", kDLInt, 8, 1);
        check("u8", kDLUInt, 8, 1);
        check("uint64x4", kDLUInt, 64, 4);
        check("int1", kDLInt, 1, 1);
        check("bf16", kDLBfloat, 16, 1);
        check("bfloat16", kDLBfloat, 16, 1);
        check("bfloat", kDLBfloat, 16, 1);
        check("bool", kDLBool, 8, 1);
        check("boolx4", kDLBool, 8, 4);
        check("bool1", kDLBool, 1, 1);
        check("handle", kDLOpaqueHandle, 64, 1);
        check("", kDLOpaqueHandle, 0, 0);
        check("void", kDLOpaqueHandle, 0, 0);
        check("float32xvscalex4", kDLFloat, 32, -4i16 as u16);
    }

    #[test]
    fn small_floats() {
        check("float8_e4m3fn", kDLFloat8_e4m3fn, 8, 1);
        check("f8_e4m3fnuz", kDLFloat8_e4m3fnuz, 8, 1);
        check("fp8_e5m2", kDLFloat8_e5m2, 8, 1);
        check("float8_e4m3b11fnuzx2", kDLFloat8_e4m3b11fnuz, 8, 2);
        check("fp6_e2m3fn", kDLFloat6_e2m3fn, 6, 1);
        check("float4_e2m1fn_x2", kDLFloat4_e2m1fn, 4, 2);
        check("float4_e2m1fnx2", kDLFloat4_e2m1fn, 4, 2);
    }

    #[test]
    fn print_is_the_inverse_of_parse() {
        let texts = [
            "float32",
            "int8x4",
            "uint1",
            "bool",
            "bool1",
            "boolx2",
            "bfloat16",
            "handle",
            "",
            "float8_e4m3fn",
        ];
        for text in
            texts.into_iter().chain(["float4_e2m1fnx2", "float32xvscalex4", "float6_e3m2fn", "float8_e8m0fnu"])
        {
            assert_eq!(print(parse(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_data_type_is_named() {
        for text in
            ["complex64", "float32x", "float32x0", "f", "i", "float32y", "x4", "float999", "int8x99999", "é"]
        {
            let error = parse(text).unwrap_err();
            assert_eq!((error.kind(), error.message()), ("ValueError", &*format!("unknown dtype `{text}`")));
        }
        let complex = DLDataType { code: 5, bits: 64, lanes: 1 };
        assert_eq!(print(complex).unwrap_err().message(), "DLDataType contains unknown type_code=5");
    }
}
