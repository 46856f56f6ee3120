//! Conversion between data types and strings.

use core::fmt::Write;

use alloc::format;
use alloc::string::{String, ToString};

use anyfn::__private::{nearest, shorten};
use anyfn::abi::{
    DLDataType, kDLBfloat, kDLBool, kDLFloat, kDLFloat4_e2m1fn, kDLFloat6_e2m3fn, kDLFloat6_e3m2fn,
    kDLFloat8_e3m4, kDLFloat8_e4m3, kDLFloat8_e4m3b11fnuz, kDLFloat8_e4m3fn, kDLFloat8_e4m3fnuz,
    kDLFloat8_e5m2, kDLFloat8_e5m2fnuz, kDLFloat8_e8m0fnu, kDLInt, kDLOpaqueHandle, kDLUInt,
};
use anyfn::{Error, PackedFunc, Result, bail};

/// Smallest type code of custom data types. The global functions `dtype.get_custom_type_*` translate between their
/// codes and names.
const CUSTOM_BEGIN: u8 = 129;

/// Floating-point types of 8, 6 and 4 bits. Each element holds the part of the name after `float`, the type code and
/// the number of bits.
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

/// Names with which the string form of a data type may begin. A name that begins with a shorter
/// name precedes that name, as `uint` precedes `u`. Each element holds the name, the type code and
/// the default number of bits; 0 means that the string must specify the number.
const NAMES: &[(&str, u8, u8)] = &[
    ("uint", kDLUInt, 32),
    ("int", kDLInt, 32),
    ("bfloat", kDLBfloat, 16),
    ("float", kDLFloat, 32),
    ("handle", kDLOpaqueHandle, 64),
    ("bool", kDLBool, 8),
    ("u", kDLUInt, 0),
    ("i", kDLInt, 0),
    ("bf", kDLBfloat, 0),
    ("f", kDLFloat, 0),
];

/// Number of bits of a custom data type whose string form does not specify it.
const CUSTOM_BITS: u8 = 32;

/// Data type whose string form is `void` or the empty string.
const VOID: DLDataType = DLDataType { code: kDLOpaqueHandle, bits: 0, lanes: 0 };

/// Returns the string form of a data type, such as `float32x4`.
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
        let name = custom("dtype.get_custom_type_name")?.call((i64::from(code),))?;
        text = format!("custom[{}]", name.get::<&str>()?);
        if bits != CUSTOM_BITS {
            text.push_str(&bits.to_string());
        }
    } else {
        bail!("ValueError", "DLDataType contains unknown type_code={code}");
    }
    // Lanes are a signed number: a value below -1 is a negated multiple of the machine's vector length.
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
    // The common data types. Custom types are missing because only the process knows them.
    const USUAL: [&str; 22] = [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "handle",
        "void",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
        "float6_e2m3fn",
    ];
    // Names of the same types in C, NumPy and other libraries.
    const OTHERS: [(&str, &str); 6] = [
        ("long", "int64"),
        ("double", "float64"),
        ("half", "float16"),
        ("fp16", "float16"),
        ("fp32", "float32"),
        ("bf16", "bfloat16"),
    ];
    let other = || OTHERS.iter().find(|(other, _)| *other == text).map(|(_, name)| *name);
    let near = match cfg!(feature = "hints") {
        true => other().or_else(|| nearest(text, USUAL.into_iter())),
        false => None,
    };
    let text = shorten(text);
    match near {
        Some(near) => anyfn::error!("ValueError", "unknown dtype `{text}`; did you mean `{near}`?"),
        None => anyfn::error!(
            "ValueError",
            "unknown dtype `{text}`; expected a name such as `float32`, `int8`, `bool` or `float32x4`"
        ),
    }
}

/// Returns the global function `name`, which translates between the codes and names of custom data types.
fn custom(name: &str) -> Result<PackedFunc> {
    match anyfn::registry::find(name) {
        Some(function) => Ok(function),
        None => bail!("ValueError", "Function {name} not found"),
    }
}

/// Parses the string form of a data type, such as `float32x4`.
pub(crate) fn parse(text: &str) -> Result<DLDataType> {
    if text.is_empty() || text == "void" {
        return Ok(VOID);
    }
    /// Maximum length of the string form of a data type in bytes. Longer strings are rejected immediately,
    /// because error messages quote the string.
    const LONGEST: usize = 200;
    if text.len() > LONGEST {
        return Err(unknown(text));
    }
    if let Some(rest) = text.strip_prefix("custom[") {
        return parse_custom(text, rest);
    }
    if let Some(dtype) = parse_small_float(text) {
        return dtype;
    }
    let Some(&(name, code, default_bits)) = NAMES.iter().find(|(name, ..)| text.starts_with(name)) else {
        return Err(unknown(text));
    };
    let (bits, rest) = split_bits(text, &text[name.len()..])?;
    match bits.unwrap_or(default_bits) {
        0 => Err(unknown(text)),
        bits => Ok(DLDataType { code, bits, lanes: parse_lanes(text, rest)? }),
    }
}

/// Parses a narrow float such as `float8_e4m3fn` or `fp4_e2m1fn`; returns `None` if `text` does not have this form.
fn parse_small_float(text: &str) -> Option<Result<DLDataType>> {
    let rest = ["float", "fp", "f"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let (width, _) = rest.split_once('_').filter(|(width, _)| ["8", "6", "4"].contains(width))?;
    // Some names are prefixes of others, so the longest one that fits is chosen.
    let fits = SMALL_FLOATS.iter().filter(|(name, ..)| rest.starts_with(name));
    let unknown = || anyfn::error!("ValueError", "unknown float{width} type `{text}`");
    let Some(&(name, code, bits)) = fits.max_by_key(|(name, ..)| name.len()) else {
        return Some(Err(unknown()));
    };
    let rest = &rest[name.len()..];
    // Two four-bit floats packed in a byte are also written with an underscore: `float4_e2m1fn_x2`.
    let packed = rest.strip_prefix('_').filter(|rest| code == kDLFloat4_e2m1fn && rest.starts_with('x'));
    let lanes = packed.unwrap_or(rest);
    if !lanes.is_empty() && !lanes.starts_with('x') {
        return Some(Err(unknown()));
    }
    Some(parse_lanes(text, lanes).map(|lanes| DLDataType { code, bits, lanes }))
}

/// Parses `custom[<name>]<bits>`, optionally followed by lanes. A global function provides the type code for the name.
/// `rest` is the part of `text` after the opening bracket.
fn parse_custom(text: &str, rest: &str) -> Result<DLDataType> {
    let find_code = custom("dtype.get_custom_type_code")?;
    let Some((name, rest)) = rest.split_once(']') else { return Err(unknown(text)) };
    let code = find_code.call_to::<u8>((name,))?;
    let (bits, rest) = split_bits(text, rest)?;
    Ok(DLDataType { code, bits: bits.unwrap_or(CUSTOM_BITS), lanes: parse_lanes(text, rest)? })
}

/// Splits the digits off the start of `rest` and parses them as a number of bits. Returns `None` for the number if
/// there are no digits.
fn split_bits<'a>(text: &str, rest: &'a str) -> Result<(Option<u8>, &'a str)> {
    let (digits, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    if digits.is_empty() {
        return Ok((None, rest));
    }
    match digits.parse() {
        Ok(bits) => Ok((Some(bits), rest)),
        Err(_) => bail!("ValueError", "Bits value {digits} is out of range for uint8_t in dtype '{text}'"),
    }
}

/// Parses the end of a data type's string form, which specifies the lanes: an empty string for one lane,
/// `x<lanes>`, or `xvscalex<lanes>` for a scalable vector.
fn parse_lanes(text: &str, rest: &str) -> Result<u16> {
    if rest.is_empty() {
        return Ok(1);
    }
    let Some(rest) = rest.strip_prefix('x') else { return Err(unknown(text)) };
    let (scalable, rest) = match rest.strip_prefix("vscalex") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (digits, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    if digits.bytes().all(|digit| digit == b'0') {
        bail!("ValueError", "Invalid lanes specification in dtype '{text}'. Lanes must be a positive integer.");
    }
    if !rest.is_empty() {
        return Err(unknown(text));
    }
    // A larger number would be read as a multiple of the vector length: lanes are signed where they are used.
    match digits.parse::<u16>() {
        Ok(lanes) if lanes > i16::MAX as u16 => {
            bail!("ValueError", "Lanes value {lanes} is more than {} in dtype '{text}'", i16::MAX)
        }
        Ok(lanes) => Ok(if scalable { lanes.wrapping_neg() } else { lanes }),
        Err(_) => bail!("ValueError", "Lanes value {digits} is out of range for uint16_t in dtype '{text}'"),
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
    fn the_nearest_data_type_is_named() {
        let message = |text: &str| parse(text).unwrap_err().message().to_string();
        assert_eq!(message("flaot32"), "unknown dtype `flaot32`; did you mean `float32`?");
        assert_eq!(message("double"), "unknown dtype `double`; did you mean `float64`?");
        assert!(message("xyz").starts_with("unknown dtype `xyz`; expected a name such as `float32`"));
        assert!(message(&"9".repeat(100_000)).len() < 400);
    }

    #[test]
    fn what_is_no_data_type_is_named() {
        let check = |text: &str, message: &str| {
            let error = parse(text).unwrap_err();
            assert_eq!((error.kind(), error.message()), ("ValueError", message));
        };
        for text in
            ["complex64", "f", "i", "fp16", "float32y", "x4", "é", "float16x2x2", "int+8", "int0", "int 8"]
        {
            let error = parse(text).unwrap_err();
            let message = error.message().split_once("; ").map_or(error.message(), |(start, _)| start);
            assert_eq!((error.kind(), message), ("ValueError", &*format!("unknown dtype `{text}`")));
        }
        for text in ["float32x", "float32x0", "int8x-1", "int8x+2", "float32xvscalex", "float4_e2m1fnx"] {
            let message =
                format!("Invalid lanes specification in dtype '{text}'. Lanes must be a positive integer.");
            check(text, &message);
        }
        check("float8_e4m3fn_x2", "unknown float8 type `float8_e4m3fn_x2`");
        check("float8_e4m3fn16", "unknown float8 type `float8_e4m3fn16`");
        check("float4_e2m1fn_", "unknown float4 type `float4_e2m1fn_`");
        check("float999", "Bits value 999 is out of range for uint8_t in dtype 'float999'");
        check("int8x99999", "Lanes value 99999 is out of range for uint16_t in dtype 'int8x99999'");
        check("int8x40000", "Lanes value 40000 is more than 32767 in dtype 'int8x40000'");
        check("custom[foo]8", "Function dtype.get_custom_type_code not found");
        let complex = DLDataType { code: 5, bits: 64, lanes: 1 };
        assert_eq!(print(complex).unwrap_err().message(), "DLDataType contains unknown type_code=5");
    }
}
