//! Reads the file format `.npy` of NumPy, versions 1 to 3.
//!
//! The crate npyz reads the format as well, but brings 25 crates, among them a parser generator and assembly
//! sources, for a header of three fields.

use std::path::Path;

use anyfn::abi::{DLDataType, kDLBool, kDLComplex, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, Tensor, error};
use anyfn_host::bundle::read_file;

/// First bytes of every file in the format.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum number of dimensions of an array.
const NDIM_MAX: usize = 64;

/// Reads the array in a file as a tensor in main memory.
///
/// # Errors
/// Returns an error of the kinds of `OSError` if the file cannot be read, and `ValueError` if it is not in the format
/// or its elements are not numbers or bools.
pub(crate) fn read(file: &str) -> Result<Tensor> {
    let bytes = read_file(file.as_ref()).map_err(|why| {
        let (kind, why) = match Path::new(file).exists() {
            true => ("OSError", &*why),
            false => ("FileNotFoundError", "No such file or directory"),
        };
        error!(kind, "cannot read {file}: {why}")
    })?;
    parse(&bytes).map_err(|why| error!("ValueError", "cannot read {file}: {why}"))?.tensor()
}

/// Array as a file describes it.
#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    dtype: DLDataType,
    shape: Vec<i64>,
    /// True if the first index varies fastest.
    is_fortran: bool,
    /// Elements in the byte order of this machine.
    elements: Vec<u8>,
}

impl Parsed {
    fn tensor(&self) -> Result<Tensor> {
        if !self.is_fortran {
            return Tensor::from_bytes(DType::from(self.dtype), &self.shape, &self.elements);
        }
        let reversed: Vec<i64> = self.shape.iter().rev().copied().collect();
        let axes: Vec<i64> = (0..self.shape.len() as i64).rev().collect();
        Tensor::from_bytes(DType::from(self.dtype), &reversed, &self.elements)?.permute(&axes)?.contiguous()
    }
}

fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let not_saved = || "expected a file that NumPy has saved".to_owned();
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(not_saved)?;
    let (version, rest) = rest.split_at_checked(2).ok_or_else(not_saved)?;
    let (length, rest) = match version[0] {
        1 => {
            rest.split_first_chunk::<2>().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest))
        }
        2 | 3 => {
            rest.split_first_chunk::<4>().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest))
        }
        other => return Err(format!("expected version 1, 2 or 3 of the format, got {other}")),
    }
    .ok_or_else(not_saved)?;
    let (header, data) = rest.split_at_checked(length).ok_or("the file ends within its header")?;
    let header = Header::parse(header).ok_or("the header of the file is invalid")?;
    let (dtype, is_swapped) = element(&header.descr).ok_or_else(|| {
        format!("expected elements that are numbers or bools, got the NumPy type {}", header.descr)
    })?;
    let size = usize::from(dtype.bits / 8);
    let count = header.shape.iter().try_fold(size, |count, extent| {
        usize::try_from(*extent).ok().and_then(|extent| count.checked_mul(extent))
    });
    let count = count.ok_or("the array is larger than main memory")?;
    let data = data
        .get(..count)
        .ok_or_else(|| format!("expected {count} bytes of elements after the header, got {}", data.len()))?;
    let mut elements = data.to_vec();
    if is_swapped {
        // The two parts of a complex number are swapped separately.
        let part = if dtype.code == kDLComplex { size / 2 } else { size };
        elements.chunks_exact_mut(part).for_each(<[u8]>::reverse);
    }
    Ok(Parsed { dtype, shape: header.shape, is_fortran: header.is_fortran, elements })
}

/// Returns the data type that a type string of NumPy such as `'<f4'` denotes, and true if the byte order is not that
/// of this machine. Returns `None` for other elements than numbers and bools.
fn element(descr: &str) -> Option<(DLDataType, bool)> {
    let descr = descr.strip_prefix('\'')?.strip_suffix('\'')?;
    let order = descr.chars().next()?;
    let is_swapped = match order {
        '<' => cfg!(target_endian = "big"),
        '>' => cfg!(target_endian = "little"),
        '|' | '=' => false,
        _ => return None,
    };
    let (code, bits) = match &descr[1..] {
        "b1" => (kDLBool, 8),
        "i1" => (kDLInt, 8),
        "i2" => (kDLInt, 16),
        "i4" => (kDLInt, 32),
        "i8" => (kDLInt, 64),
        "u1" => (kDLUInt, 8),
        "u2" => (kDLUInt, 16),
        "u4" => (kDLUInt, 32),
        "u8" => (kDLUInt, 64),
        "f2" => (kDLFloat, 16),
        "f4" => (kDLFloat, 32),
        "f8" => (kDLFloat, 64),
        "c8" => (kDLComplex, 64),
        "c16" => (kDLComplex, 128),
        _ => return None,
    };
    Some((DLDataType { code, bits, lanes: 1 }, is_swapped))
}

/// Fields of the header, which is a dictionary in the notation of Python.
struct Header {
    /// Type of the elements, as it is written, such as `'<f4'` or a list of fields.
    descr: String,
    is_fortran: bool,
    shape: Vec<i64>,
}

impl Header {
    fn parse(text: &[u8]) -> Option<Header> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = rest.strip_prefix('\'')?.split_once('\'')?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            let end = value_end(value);
            let (value, after) = value.split_at(end);
            let value = value.trim();
            match key {
                "descr" => descr = Some(value.to_owned()),
                "fortran_order" => order = Some(value),
                "shape" => shape = Some(value.strip_prefix('(')?.strip_suffix(')')?),
                _ => return None,
            }
            rest = after.strip_prefix(',').unwrap_or(after).trim_start();
        }
        let is_fortran = match order? {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        // A shape of one extent ends with a comma. Python 2 wrote long integers with an `L`.
        let extents = shape?.split(',').map(|extent| extent.trim().trim_end_matches('L'));
        let extents = extents.filter(|extent| !extent.is_empty());
        let shape = extents.map(|extent| extent.parse().ok().filter(|extent| *extent >= 0));
        let shape: Vec<i64> = shape.collect::<Option<_>>()?;
        (shape.len() <= NDIM_MAX).then_some(Header { descr: descr?, is_fortran, shape })
    }
}

/// Returns the length of the value at the beginning of `text`: the offset of the next comma outside of brackets and
/// strings.
fn value_end(text: &str) -> usize {
    let (mut depth, mut is_string) = (0_usize, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => is_string = !is_string,
            _ if is_string => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[version, 0]].concat();
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn each_version_is_read() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 2), }   \n";
        for version in 1..=3 {
            let parsed = parse(&file(version, header, &[1, 0, 2, 0])).expect("it is valid");
            assert_eq!((parsed.dtype.code, parsed.dtype.bits), (kDLInt, 16));
            assert_eq!((&*parsed.shape, parsed.is_fortran), (&[1, 2][..], false));
            assert_eq!(parsed.elements, [1_i16.to_ne_bytes(), 2_i16.to_ne_bytes()].concat());
        }
        let message = parse(&file(4, header, &[1, 0, 2, 0])).expect_err("the version is unknown");
        assert_eq!(message, "expected version 1, 2 or 3 of the format, got 4");
    }

    #[test]
    fn keys_come_in_any_order_and_shapes_in_each_spelling() {
        for (shape, extents) in
            [("()", &[][..]), ("(2,)", &[2]), ("(2L, 0L)", &[2, 0]), ("(1, 2, 1)", &[1, 2, 1])]
        {
            let header = format!("{{'shape':{shape},'fortran_order':True,'descr':'|u1'}}");
            let parsed = parse(&file(1, &header, &[7, 8])).expect("it is valid");
            assert_eq!((&*parsed.shape, parsed.is_fortran), (extents, true), "{shape}");
        }
    }

    #[test]
    fn the_byte_order_becomes_that_of_the_machine() {
        let header = "{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }";
        let data = [1.5_f32.to_be_bytes(), (-2.0_f32).to_be_bytes()].concat();
        let parsed = parse(&file(1, header, &data)).expect("it is valid");
        assert_eq!(parsed.elements, [1.5_f32.to_ne_bytes(), (-2.0_f32).to_ne_bytes()].concat());
    }

    #[test]
    fn damaged_files_are_errors() {
        let fails = |bytes: &[u8], expected: &str| {
            let message = parse(bytes).expect_err("it is invalid");
            assert!(message.contains(expected), "{message}");
        };
        fails(b"", "NumPy has saved");
        fails(b"\x93NUMPY", "NumPy has saved");
        fails(b"\x93NUMPY\x01\x00\xff", "NumPy has saved");
        fails(b"\x93NUMPY\x01\x00\xff\xff{", "ends within its header");
        let header = |descr: &str, shape: &str| {
            file(1, &format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"), &[0; 8])
        };
        fails(&header("'<f4'", "(3,)"), "expected 12 bytes of elements after the header, got 8");
        fails(&header("'<f4'", "(-1,)"), "header of the file is invalid");
        fails(&header("'<f4'", "(x,)"), "header of the file is invalid");
        fails(&header("'<f4'", &format!("({})", "1,".repeat(65))), "header of the file is invalid");
        fails(&header("'<f4'", "(9223372036854775807, 9223372036854775807)"), "larger than main memory");
        fails(&header("'<U3'", "(2,)"), "got the NumPy type '<U3'");
        fails(
            &header("[('a', '<f4'), ('b', '<i4')]", "(1,)"),
            "got the NumPy type [('a', '<f4'), ('b', '<i4')]",
        );
        fails(&file(1, "{'descr': '<f4', 'shape': (1,)}", &[0; 4]), "header of the file is invalid");
        fails(&file(1, "{'descr'", &[0; 4]), "header of the file is invalid");
        // Every prefix of a valid file is an error, and no byte makes the reader panic.
        let whole = header("'<f8'", "(1,)");
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                drop(parse(&damaged));
            }
        }
    }
}
