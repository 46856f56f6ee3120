//! Converts runs of numbers between the formats that processors support. The results equal those of `encoding`, which converts one
//! number of any format at a time.
//!
//! A run is converted in one loop that the compiler vectorises, or in two loops through a format that represents all its numbers
//! exactly. There is one loop per format instead of one per pair of formats, which would need many times as much code.

use core::mem::MaybeUninit;

use crate::encoding::{Element, Scalar};
use anyfn::DType;

/// Maximum number of scalars in a run: so many that the time for choosing the loops is negligible.
pub(crate) const RUN: usize = 4096;

/// Maximum number of scalars that are converted through another format at once, so that these remain in the cache.
const PART: usize = 512;

/// Format of a scalar that [`run`] converts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Format {
    /// Returns the format of a scalar, or `None` if [`run`] does not convert it.
    pub(crate) fn of(scalar: &Scalar) -> Option<Format> {
        let float = |code, bits| Element::of(DType::new(code, bits, 1)).is_some_and(|e| e.scalar == *scalar);
        Some(match scalar {
            Scalar::Bool { bits: 8 } => Format::Bool,
            Scalar::Int { bits: 8 } => Format::I8,
            Scalar::Uint { bits: 8 } => Format::U8,
            Scalar::Int { bits: 16 } => Format::I16,
            Scalar::Uint { bits: 16 } => Format::U16,
            Scalar::Int { bits: 32 } => Format::I32,
            Scalar::Uint { bits: 32 } => Format::U32,
            Scalar::Int { bits: 64 } => Format::I64,
            Scalar::Uint { bits: 64 } => Format::U64,
            Scalar::Float(_) if float(anyfn::abi::kDLFloat, 16) => Format::F16,
            Scalar::Float(_) if float(anyfn::abi::kDLBfloat, 16) => Format::Bf16,
            Scalar::Float(_) if float(anyfn::abi::kDLFloat, 32) => Format::F32,
            Scalar::Float(_) if float(anyfn::abi::kDLFloat, 64) => Format::F64,
            _ => return None,
        })
    }

    /// Returns the size of a scalar in bytes.
    fn size(self) -> usize {
        use Format::{Bf16, Bool, F16, F32, I8, I16, I32, U8, U16, U32};
        match self {
            Bool | I8 | U8 => 1,
            I16 | U16 | F16 | Bf16 => 2,
            I32 | U32 | F32 => 4,
            _ => 8,
        }
    }

    /// Returns true if `f32` represents all numbers of the format.
    fn is_in_f32(self) -> bool {
        use Format::{Bf16, Bool, F16, F32, I8, I16, U8, U16};
        matches!(self, Bool | I8 | U8 | I16 | U16 | F16 | Bf16 | F32)
    }
}

/// Converts each number: `$x` of the type `$from` in the bytes `$source` becomes `$value` in the bytes `$target`.
macro_rules! each {
    ($source:expr, $target:expr, |$x:ident: $from:ty| $value:expr) => {{
        let source = $source.as_chunks::<{ size_of::<$from>() }>().0;
        for (from, to) in source.iter().zip($target.as_chunks_mut().0) {
            let $x = <$from>::from_le_bytes(*from);
            *to = ($value).to_le_bytes().map(MaybeUninit::new);
        }
    }};
}

/// Returns `x`, or the NaN that `encoding` encodes, which has the sign of `x`.
macro_rules! one_nan {
    ($x:expr, $float:ident) => {{
        let x = $x;
        if x.is_nan() { $float::NAN.copysign(x) } else { x }
    }};
}

/// Converts the scalars in `source`, at most [`RUN`], from the format `from` to the format `to`, and writes them to the beginning of
/// `target`. The formats must differ unless both are bool. Returns false if this module does not convert between the formats, or if
/// `to` does not represent all of the scalars; the content of `target` is then unspecified, and may be uninitialised.
pub(crate) fn run(from: Format, to: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions, as was checked.
        return unsafe { wide_run(from, to, source, target) };
    }
    plain_run(from, to, source, target)
}

/// [`run`] compiled for registers of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn wide_run(from: Format, to: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    plain_run(from, to, source, target)
}

/// [`run`] compiled for the instructions of its caller, like the functions that it calls.
#[inline(always)]
fn plain_run(from: Format, to: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    match to {
        Format::F64 => to_f64(from, source, target),
        Format::F32 => to_f32(from, source, target),
        Format::F16 | Format::Bf16 if !from.is_in_f32() => false,
        Format::F16 | Format::Bf16 => parts(from, to, source, target, |source, target| {
            let mut floats = [MaybeUninit::uninit(); 4 * PART];
            let floats = &mut floats[..4 * (source.len() / from.size())];
            if !to_f32(from, source, floats) {
                return false;
            }
            // SAFETY: `to_f32` has written all of these, which are as many as the scalars.
            let floats = unsafe { floats.assume_init_ref() };
            if to == Format::F16 {
                return half::encode(floats, target);
            }
            each!(floats, target, |x: f32| bf16(x));
            true
        }),
        _ if from == Format::I64 => from_i64(to, source, target),
        _ => parts(from, to, source, target, |source, target| {
            let mut ints = [MaybeUninit::uninit(); 8 * PART];
            let ints = &mut ints[..8 * (source.len() / from.size())];
            if !to_i64(from, source, ints) {
                return false;
            }
            // SAFETY: `to_i64` has written all of these, which are as many as the scalars.
            from_i64(to, unsafe { ints.assume_init_ref() }, target)
        }),
    }
}

/// Calls `convert` with parts of at most [`PART`] scalars until it returns false. Returns false in that case.
#[inline(always)]
fn parts(
    from: Format,
    to: Format,
    source: &[u8],
    target: &mut [MaybeUninit<u8>],
    convert: impl Fn(&[u8], &mut [MaybeUninit<u8>]) -> bool,
) -> bool {
    let mut parts = source.chunks(PART * from.size()).zip(target.chunks_mut(PART * to.size()));
    parts.all(|(source, target)| convert(source, target))
}

/// Rounds a number to the nearest of `bfloat16`, ties to even. Returns its code.
#[inline(always)]
fn bf16(x: f32) -> u16 {
    let code = x.to_bits();
    let rounded = code.wrapping_add(0x7FFF + (code >> 16 & 1));
    let nan = 0x7FC0_0000 | code & 0x8000_0000;
    ((if x.is_nan() { nan } else { rounded }) >> 16) as u16
}

#[inline(always)]
fn of_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

#[inline(always)]
fn to_f32(from: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    match from {
        Format::Bool => each!(source, target, |x: u8| f32::from(u8::from(x != 0))),
        Format::I8 => each!(source, target, |x: i8| f32::from(x)),
        Format::U8 => each!(source, target, |x: u8| f32::from(x)),
        Format::I16 => each!(source, target, |x: i16| f32::from(x)),
        Format::U16 => each!(source, target, |x: u16| f32::from(x)),
        // `f64` represents all integers of 32 bits, so these are rounded once.
        Format::I32 => each!(source, target, |x: i32| x as f32),
        Format::U32 => each!(source, target, |x: u32| f64::from(x) as f32),
        Format::I64 => each!(source, target, |x: i64| x as f64 as f32),
        Format::U64 => each!(source, target, |x: u64| x as f64 as f32),
        Format::F16 => return half::decode(source, target),
        Format::Bf16 => each!(source, target, |x: u16| one_nan!(of_bf16(x), f32)),
        Format::F32 => each!(source, target, |x: f32| x),
        Format::F64 => each!(source, target, |x: f64| one_nan!(x as f32, f32)),
    }
    true
}

#[inline(always)]
fn to_f64(from: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    match from {
        Format::Bool => each!(source, target, |x: u8| f64::from(u8::from(x != 0))),
        Format::I8 => each!(source, target, |x: i8| f64::from(x)),
        Format::U8 => each!(source, target, |x: u8| f64::from(x)),
        Format::I16 => each!(source, target, |x: i16| f64::from(x)),
        Format::U16 => each!(source, target, |x: u16| f64::from(x)),
        Format::I32 => each!(source, target, |x: i32| f64::from(x)),
        Format::U32 => each!(source, target, |x: u32| f64::from(x)),
        Format::I64 => each!(source, target, |x: i64| x as f64),
        Format::U64 => each!(source, target, |x: u64| x as f64),
        Format::F16 => {
            return parts(from, Format::F64, source, target, |source, target| {
                let mut floats = [MaybeUninit::uninit(); 4 * PART];
                let floats = &mut floats[..2 * source.len()];
                if !half::decode(source, floats) {
                    return false;
                }
                // SAFETY: `half::decode` has written all of these, which are as many as the scalars.
                let floats = unsafe { floats.assume_init_ref() };
                each!(floats, target, |x: f32| one_nan!(f64::from(x), f64));
                true
            });
        }
        Format::Bf16 => each!(source, target, |x: u16| one_nan!(f64::from(of_bf16(x)), f64)),
        Format::F32 => each!(source, target, |x: f32| one_nan!(f64::from(x), f64)),
        Format::F64 => each!(source, target, |x: f64| x),
    }
    true
}

/// Converts integers, and floats that are integers, to `i64`. Returns false if that is not possible.
#[inline(always)]
fn to_i64(from: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    let mut fits = true;
    macro_rules! whole {
        ($float:ty) => {
            each!(source, target, |x: $float| {
                let value = x as i64;
                // The conversion saturates, and the largest integer would become the next power of two here.
                fits &= value as $float == x && value != i64::MAX;
                value
            })
        };
    }
    match from {
        Format::Bool => each!(source, target, |x: u8| i64::from(x != 0)),
        Format::I8 => each!(source, target, |x: i8| i64::from(x)),
        Format::U8 => each!(source, target, |x: u8| i64::from(x)),
        Format::I16 => each!(source, target, |x: i16| i64::from(x)),
        Format::U16 => each!(source, target, |x: u16| i64::from(x)),
        Format::I32 => each!(source, target, |x: i32| i64::from(x)),
        Format::U32 => each!(source, target, |x: u32| i64::from(x)),
        Format::I64 => each!(source, target, |x: i64| x),
        Format::U64 => each!(source, target, |x: u64| {
            fits &= x <= i64::MAX as u64;
            x
        }),
        Format::F32 => whole!(f32),
        Format::F64 => whole!(f64),
        Format::F16 | Format::Bf16 => return false,
    }
    fits
}

/// Converts integers to an integer format or bool. Returns false if the format does not represent all of them.
#[inline(always)]
fn from_i64(to: Format, source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
    let mut fits = true;
    macro_rules! narrow {
        ($int:ty) => {
            each!(source, target, |x: i64| {
                fits &= x as $int as i64 == x;
                x as $int
            })
        };
    }
    match to {
        Format::Bool => each!(source, target, |x: i64| {
            fits &= (0..=1).contains(&x);
            x as u8
        }),
        Format::I8 => narrow!(i8),
        Format::U8 => narrow!(u8),
        Format::I16 => narrow!(i16),
        Format::U16 => narrow!(u16),
        Format::I32 => narrow!(i32),
        Format::U32 => narrow!(u32),
        Format::I64 => each!(source, target, |x: i64| x),
        Format::U64 => each!(source, target, |x: i64| {
            fits &= x >= 0;
            x
        }),
        _ => return false,
    }
    fits
}

/// Conversions of `float16` by the F16C instructions, which x86-64 processors have had since 2012.
#[cfg(target_arch = "x86_64")]
mod half {
    use core::mem::MaybeUninit;

    use core::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_cvtph_ps, _mm_cvtps_ph, _mm_loadl_epi64, _mm_loadu_ps, _mm_storel_epi64,
        _mm_storeu_ps,
    };
    use std::is_x86_feature_detected;

    /// Decodes codes of 2 bytes to `f32`. Returns false if the processor cannot.
    pub(super) fn decode(source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
        // SAFETY: the processor has the instructions, as was checked.
        is_x86_feature_detected!("f16c") && unsafe { decode_by_processor(source, target) }
    }

    /// Encodes numbers of `f32`, rounded to the nearest, ties to even. Returns false if the processor cannot.
    pub(super) fn encode(source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
        // SAFETY: the processor has the instructions, as was checked.
        is_x86_feature_detected!("f16c") && unsafe { encode_by_processor(source, target) }
    }

    #[target_feature(enable = "f16c")]
    fn decode_by_processor(source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
        let (blocks, rest) = source.as_chunks::<8>();
        let (to, to_rest) = target[..2 * source.len()].as_chunks_mut::<16>();
        let four = |from: &[u8; 8]| {
            // SAFETY: it has the size of four codes.
            let codes = unsafe { _mm_loadl_epi64(from.as_ptr().cast()) };
            let (numbers, mut floats) = (_mm_cvtph_ps(codes), [0; 16]);
            // SAFETY: it has the size of four numbers.
            unsafe { _mm_storeu_ps(floats.as_mut_ptr().cast(), numbers) };
            for float in floats.as_chunks_mut::<4>().0 {
                *float = one_nan!(f32::from_le_bytes(*float), f32).to_le_bytes();
            }
            floats.map(MaybeUninit::new)
        };
        for (from, to) in blocks.iter().zip(to) {
            *to = four(from);
        }
        let mut from = [0; 8];
        from[..rest.len()].copy_from_slice(rest);
        to_rest.copy_from_slice(&four(&from)[..to_rest.len()]);
        true
    }

    #[target_feature(enable = "f16c")]
    fn encode_by_processor(source: &[u8], target: &mut [MaybeUninit<u8>]) -> bool {
        let (blocks, rest) = source.as_chunks::<16>();
        let (to, to_rest) = target[..source.len() / 2].as_chunks_mut::<8>();
        let four = |from: &[u8; 16]| {
            let mut floats = *from;
            for float in floats.as_chunks_mut::<4>().0 {
                *float = one_nan!(f32::from_le_bytes(*float), f32).to_le_bytes();
            }
            // SAFETY: it has the size of four numbers.
            let numbers = unsafe { _mm_loadu_ps(floats.as_ptr().cast()) };
            let codes = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers);
            let mut bytes = [0_u8; 8];
            // SAFETY: it has the size of four codes.
            unsafe { _mm_storel_epi64(bytes.as_mut_ptr().cast(), codes) };
            bytes.map(MaybeUninit::new)
        };
        for (from, to) in blocks.iter().zip(to) {
            *to = four(from);
        }
        let mut from = [0; 16];
        from[..rest.len()].copy_from_slice(rest);
        to_rest.copy_from_slice(&four(&from)[..to_rest.len()]);
        true
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod half {
    use core::mem::MaybeUninit;

    pub(super) fn decode(_source: &[u8], _target: &mut [MaybeUninit<u8>]) -> bool {
        false
    }

    pub(super) fn encode(_source: &[u8], _target: &mut [MaybeUninit<u8>]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [&str; 13] = [
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
        "bfloat16", "float32", "float64",
    ];

    fn scalar(name: &str) -> Scalar {
        Element::of(name.parse().unwrap()).unwrap().scalar
    }

    /// Returns codes of a format: all of at most 16 bits, otherwise the ones near powers of two and many others.
    fn codes(scalar: &Scalar) -> Vec<u64> {
        let bits = scalar.bits();
        if bits <= 16 {
            return (0..1 << bits).collect();
        }
        let most = u64::MAX >> (64 - bits);
        let near =
            (0..bits).flat_map(|bit| (0..5).map(move |by| (1_u64 << bit).wrapping_add(by).wrapping_sub(2)));
        let mut codes: Vec<u64> = near.flat_map(|code| [code & most, !code & most]).collect();
        if let Scalar::Float(_) = scalar {
            let values = [
                0.0,
                0.5,
                1.5,
                65504.0,
                65519.9,
                65520.0,
                1e-8,
                5.96e-8,
                3.4e38,
                1e39,
                255.0,
                256.0,
                f64::INFINITY,
            ];
            let tops = [8, 16, 31, 32, 53, 63, 64].map(|bits| f64::powi(2.0, bits));
            for value in values.into_iter().chain(tops).chain(tops.map(|top| top - 1.0)) {
                codes.extend(
                    [value, -value].map(|value| scalar.encode(crate::encoding::Number::Float(value)).unwrap()),
                );
            }
        }
        let mut next = 1_u64;
        codes.extend((0..20_000).map(|_| {
            next = next.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (next ^ next >> 32) & most
        }));
        codes
    }

    #[test]
    fn every_format_is_converted_as_single_numbers_are() {
        for from in TYPES {
            let read = scalar(from);
            let (size, codes) = ((read.bits() / 8) as usize, codes(&read));
            for to in TYPES.into_iter().filter(|to| *to != from || from == "bool") {
                let written = scalar(to);
                let formats = (Format::of(&read).unwrap(), Format::of(&written).unwrap());
                let (mut converted, bytes) = (0, (written.bits() / 8) as usize);
                let mut target = [MaybeUninit::new(0xA5); 8 * RUN];
                let mut expect = |codes: &[u64]| {
                    let source: Vec<u8> =
                        codes.iter().flat_map(|code| code.to_le_bytes()[..size].to_vec()).collect();
                    let expected: Option<Vec<u64>> =
                        codes.iter().map(|code| written.encode(read.decode(*code))).collect();
                    // On this processor, and on those with fewer instructions.
                    let mut plain = [MaybeUninit::new(0x5A); 8 * RUN];
                    let is_plain = plain_run(formats.0, formats.1, &source, &mut plain);
                    let is_run = run(formats.0, formats.1, &source, &mut target);
                    assert_eq!(is_run, is_plain, "{from} to {to}");
                    if is_run {
                        let length = codes.len() * bytes;
                        // SAFETY: both were initialised above, and bytes that were written stay initialised.
                        let [target, plain] =
                            [&target, &plain].map(|bytes| unsafe { bytes[..length].assume_init_ref() });
                        assert_eq!(target, plain, "{from} to {to}");
                        let got: Vec<u64> = target.chunks(bytes).map(little).collect();
                        assert_eq!(Some(got), expected, "{from} to {to}: {codes:x?}");
                        converted += codes.len();
                    }
                };
                // Each number alone, so that those that are not represented do not hide others, and runs of all lengths.
                codes.iter().for_each(|code| expect(&[*code]));
                (1..40).for_each(|length| expect(&codes[..length]));
                codes.chunks(RUN).for_each(&mut expect);
                let is_slow = |format: &str| matches!(format, "float16" | "bfloat16");
                let through_f32 = formats.0.is_in_f32() || !is_slow(to);
                let to_int = !is_slow(from) || to.starts_with("float") || is_slow(to);
                let is_known = through_f32
                    && to_int
                    && (cfg!(target_arch = "x86_64") || (from != "float16" && to != "float16"));
                assert!(!is_known || converted > 0, "{from} to {to}");
            }
        }
    }

    fn little(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |code, byte| code << 8 | u64::from(*byte))
    }

    #[test]
    fn other_formats_are_left_to_single_numbers() {
        for name in ["int4", "uint1", "float8_e4m3", "int24"] {
            assert_eq!(Format::of(&scalar(name)), None, "{name}");
        }
    }
}
