//! Encoding and decoding of tensor elements, for all data types of DLPack.
//!
//! A floating-point format of any width is described by a [`Float`]: numbers of exponent and mantissa bits, bias, and
//! codes of special values.
//!
//! A conversion to a floating-point format rounds to the nearest number, ties to even. Integers are converted to `f64`
//! first. A number beyond the largest becomes infinity; in a format without infinity it becomes NaN, and in a format
//! without either the largest number. NaN becomes zero in a format without NaN. A format that only has powers of two
//! rounds ties up, and converts negative numbers to NaN and zero to the smallest power.

use anyfn::__private::parse_decimal;
use anyfn::DType;
use anyfn::abi::{
    kDLBfloat, kDLBool, kDLComplex, kDLFloat, kDLFloat4_e2m1fn, kDLFloat6_e2m3fn, kDLFloat6_e3m2fn,
    kDLFloat8_e3m4, kDLFloat8_e4m3, kDLFloat8_e4m3b11fnuz, kDLFloat8_e4m3fn, kDLFloat8_e4m3fnuz,
    kDLFloat8_e5m2, kDLFloat8_e5m2fnuz, kDLFloat8_e8m0fnu, kDLInt, kDLOpaqueHandle, kDLUInt,
};

/// Numeric value of a scalar. A complex number has two scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A truth value.
    Bool(bool),
    /// An integer; no element type has more than 64 bits.
    Int(i128),
    /// A floating-point number; `f64` represents all numbers of all element types exactly.
    Float(f64),
}

/// Encoding of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A bool: 0 is false, and 1 is true.
    Bool {
        /// Width in bits, from 1 to 64.
        bits: u32,
    },
    /// A signed integer in two's complement.
    Int {
        /// Width in bits, from 1 to 64.
        bits: u32,
    },
    /// An unsigned integer.
    Uint {
        /// Width in bits, from 1 to 64.
        bits: u32,
    },
    /// A number in a floating-point format.
    Float(Float),
}

/// Encoding of an element. Each lane of an element is one scalar, or two if the element is complex.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// Encoding of each scalar of the element.
    pub scalar: Scalar,
    /// Number of scalars of an element: the number of lanes, or twice that number if the element is complex.
    pub scalars: usize,
    /// True if the scalars are real and imaginary parts in turn.
    pub complex: bool,
    /// Number of lanes, at least 1.
    pub lanes: usize,
}

/// A floating-point format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// Encoding of infinity and NaN in a floating-point format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Special {
    /// Infinity and NaN have the highest exponent, as in IEEE 754.
    Ieee,
    /// NaN is encoded by ones in all bits except the sign. Infinity does not exist.
    AllOnes,
    /// NaN is encoded by the bit pattern that represents negative zero in IEEE 754. Infinity does
    /// not exist.
    MinusZero,
    /// Every bit pattern represents a finite number.
    None,
    /// The format has no sign and no mantissa. NaN is encoded by ones in all bits. Zero does not
    /// exist.
    ExponentOnly,
}

impl Float {
    const fn new(exponent: u32, mantissa: u32, bias: i32, special: Special) -> Float {
        Float { exponent, mantissa, bias, special }
    }

    fn bits(&self) -> u32 {
        self.exponent + self.mantissa + u32::from(self.special != Special::ExponentOnly)
    }

    fn decode(&self, code: u64) -> f64 {
        let Float { exponent, mantissa, bias, special } = *self;
        if exponent == 11 && mantissa == 52 {
            return f64::from_bits(code);
        }
        let fraction = code & ((1 << mantissa) - 1);
        let power = code >> mantissa & ((1 << exponent) - 1);
        let negative = special != Special::ExponentOnly && code >> (exponent + mantissa) & 1 == 1;
        let highest = (1 << exponent) - 1;
        let nan = match special {
            Special::Ieee if power == highest => {
                let value = if fraction == 0 { f64::INFINITY } else { f64::NAN };
                return if negative { -value } else { value };
            }
            Special::Ieee | Special::None => false,
            Special::AllOnes => power == highest && fraction == (1 << mantissa) - 1,
            Special::MinusZero => negative && power == 0 && fraction == 0,
            Special::ExponentOnly => power == highest,
        };
        if nan {
            return f64::NAN;
        }
        let value = if special == Special::ExponentOnly {
            power_of_two(power as i32 - bias)
        } else if power == 0 {
            fraction as f64 * power_of_two(1 - bias - mantissa as i32)
        } else {
            (fraction | 1 << mantissa) as f64 * power_of_two(power as i32 - bias - mantissa as i32)
        };
        if negative { -value } else { value }
    }

    /// Rounds `value` to this floating-point format, and returns the code (bit pattern) of the result. The
    /// module documentation states the rounding rules.
    fn encode(&self, value: f64) -> u64 {
        let Float { exponent, mantissa, bias, special } = *self;
        if exponent == 11 && mantissa == 52 {
            return value.to_bits();
        }
        let sign = u64::from(value.is_sign_negative()) << (exponent + mantissa);
        let highest = (1u64 << exponent) - 1;
        let (nan, beyond) = match special {
            Special::Ieee => {
                let infinity = highest << mantissa;
                (infinity | 1 << (mantissa - 1) | sign, infinity | sign)
            }
            Special::AllOnes => {
                let ones = (1 << (exponent + mantissa)) - 1;
                (ones | sign, ones | sign)
            }
            Special::MinusZero => (1 << (exponent + mantissa), 1 << (exponent + mantissa)),
            // The format has no NaN. Zero is the least misleading substitute.
            Special::None => (0, sign | ((1 << (exponent + mantissa)) - 1)),
            Special::ExponentOnly => (highest, highest),
        };
        if value.is_nan() {
            return nan;
        }
        if special == Special::ExponentOnly {
            return self.encode_power(value, nan);
        }
        let magnitude = value.abs();
        if magnitude == f64::INFINITY {
            return beyond;
        }
        // The unit in the last place: that of the number itself, or of subnormal numbers.
        let power = exponent_of(magnitude).max(1 - bias);
        let units = magnitude / power_of_two(power - mantissa as i32);
        let mut units = round_even(units) as u64;
        let mut power = power;
        if units >> (mantissa + 1) != 0 {
            units >>= 1;
            power += 1;
        }
        let code = if units >> mantissa == 0 {
            units
        } else {
            (((power + bias) as u64) << mantissa) + (units - (1 << mantissa))
        };
        let largest = match special {
            Special::Ieee => (highest << mantissa) - 1,
            Special::AllOnes => (1 << (exponent + mantissa)) - 2,
            _ => (1 << (exponent + mantissa)) - 1,
        };
        if code > largest || power + bias > highest as i32 {
            return beyond;
        }
        if special == Special::MinusZero && code == 0 { 0 } else { code | sign }
    }

    /// Encodes `value` in a format that represents only powers of two. `nan` is the bit pattern of NaN in
    /// that format.
    fn encode_power(&self, value: f64, nan: u64) -> u64 {
        if value < 0.0 || value == f64::INFINITY {
            return nan;
        }
        let lower = exponent_of(value);
        let power = if value / power_of_two(lower) >= 1.5 { lower + 1 } else { lower };
        let code = (power + self.bias).max(0) as u64;
        if code >= nan { nan } else { code }
    }
}

/// Returns two to the power of `n`. The result must be representable as `f64`.
fn power_of_two(n: i32) -> f64 {
    if n >= -1022 {
        f64::from_bits(((n.min(1023) + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (n + 1074).max(0))
    }
}

/// Returns the exponent of the greatest power of two that does not exceed `value`; for 0, the exponent of the smallest
/// positive `f64`.
fn exponent_of(value: f64) -> i32 {
    let bits = value.to_bits() >> 52 & 0x7FF;
    if bits == 0 { -1074 + (63 - (value.to_bits() | 1).leading_zeros() as i32) } else { bits as i32 - 1023 }
}

fn round_even(value: f64) -> f64 {
    value.round_ties_even()
}

impl Element {
    /// Returns the encoding of elements of the type `dtype`, or `None` if the encoding is not known.
    pub fn of(dtype: DType) -> Option<Element> {
        let (code, bits) = (dtype.0.code, u32::from(dtype.0.bits));
        let lanes = usize::from(dtype.0.lanes);
        let complex = code == kDLComplex;
        let scalar = match code {
            kDLInt if (1..=64).contains(&bits) => Scalar::Int { bits },
            kDLUInt if (1..=64).contains(&bits) => Scalar::Uint { bits },
            kDLOpaqueHandle if bits == 64 => Scalar::Uint { bits },
            kDLBool if (1..=64).contains(&bits) => Scalar::Bool { bits },
            kDLFloat => Scalar::Float(ieee(bits)?),
            kDLComplex => Scalar::Float(ieee(bits / 2).filter(|_| bits.is_multiple_of(2))?),
            _ => Scalar::Float(small(code).filter(|float| float.bits() == bits)?),
        };
        Some(Element { scalar, scalars: lanes << u32::from(complex), complex, lanes })
    }
}

impl Scalar {
    /// Returns the width in bits.
    pub fn bits(&self) -> u32 {
        match self {
            Scalar::Bool { bits } | Scalar::Int { bits } | Scalar::Uint { bits } => *bits,
            Scalar::Float(float) => float.bits(),
        }
    }

    /// Returns the number with the code (bit pattern) `code`. Bits beyond the width of the scalar must be 0.
    #[inline]
    pub fn decode(&self, code: u64) -> Number {
        match self {
            Scalar::Bool { .. } => Number::Bool(code != 0),
            Scalar::Int { bits } => Number::Int(i128::from((code << (64 - bits)) as i64 >> (64 - bits))),
            Scalar::Uint { .. } => Number::Int(i128::from(code)),
            Scalar::Float(float) => Number::Float(float.decode(code)),
        }
    }

    /// Returns the code (bit pattern) of a number. For a bool or integer type, returns `None` if the number
    /// is out of range or not an integer. For a floating-point type, rounds the number and never returns
    /// `None`.
    #[inline]
    pub fn encode(&self, number: Number) -> Option<u64> {
        let whole = || match number {
            Number::Bool(value) => Some(i128::from(value)),
            Number::Int(value) => Some(value),
            // No type has larger numbers, and the conversion of smaller ones is exact.
            Number::Float(value) if value.trunc() == value && value.abs() < 1e30 => Some(value as i128),
            Number::Float(_) => None,
        };
        match *self {
            Scalar::Bool { .. } => match number {
                Number::Bool(value) => Some(value.into()),
                _ => Some(u64::from(whole()? != 0)).filter(|_| matches!(whole(), Some(0 | 1))),
            },
            Scalar::Int { bits } => {
                let value = i64::try_from(whole()?).ok()?;
                let fits = value << (64 - bits) >> (64 - bits) == value;
                fits.then_some(value as u64 & (u64::MAX >> (64 - bits)))
            }
            Scalar::Uint { bits } => {
                let value = u64::try_from(whole()?).ok()?;
                (value <= u64::MAX >> (64 - bits)).then_some(value)
            }
            Scalar::Float(float) => Some(float.encode(match number {
                Number::Bool(value) => f64::from(u8::from(value)),
                Number::Int(value) => value as f64,
                Number::Float(value) => value,
            })),
        }
    }

    /// Appends the number with the code (bit pattern) `code` to `out`, as text. Floats are written
    /// with the fewest digits that decode to the same code. Numbers of formats with fewer than 7
    /// mantissa bits are written exactly.
    pub fn text(&self, code: u64, out: &mut String) {
        use core::fmt::Write;
        // Writing to a string cannot fail.
        let _ = match (self.decode(code), self) {
            (Number::Bool(value), _) => write!(out, "{}", if value { "True" } else { "False" }),
            (Number::Int(value), _) => write!(out, "{value}"),
            (Number::Float(value), _) if value.is_nan() => write!(out, "nan"),
            (Number::Float(value), Scalar::Float(float)) if matches!(float.mantissa, 7..23) => {
                let short = (1..9).map(|digits| format!("{value:.digits$e}")).find_map(|text| {
                    let value = parse_decimal(&text)?;
                    (float.encode(value) == code).then_some(value)
                });
                write!(out, "{:?}", short.unwrap_or(value))
            }
            (Number::Float(value), Scalar::Float(float)) if float.bits() == 32 => {
                write!(out, "{:?}", value as f32)
            }
            (Number::Float(value), _) => write!(out, "{value:?}"),
        };
    }
}

fn ieee(bits: u32) -> Option<Float> {
    match bits {
        16 => Some(Float::new(5, 10, 15, Special::Ieee)),
        32 => Some(Float::new(8, 23, 127, Special::Ieee)),
        64 => Some(Float::new(11, 52, 1023, Special::Ieee)),
        _ => None,
    }
}

fn small(code: u8) -> Option<Float> {
    Some(match code {
        kDLBfloat => Float::new(8, 7, 127, Special::Ieee),
        kDLFloat8_e3m4 => Float::new(3, 4, 3, Special::Ieee),
        kDLFloat8_e4m3 => Float::new(4, 3, 7, Special::Ieee),
        kDLFloat8_e4m3b11fnuz => Float::new(4, 3, 11, Special::MinusZero),
        kDLFloat8_e4m3fn => Float::new(4, 3, 7, Special::AllOnes),
        kDLFloat8_e4m3fnuz => Float::new(4, 3, 8, Special::MinusZero),
        kDLFloat8_e5m2 => Float::new(5, 2, 15, Special::Ieee),
        kDLFloat8_e5m2fnuz => Float::new(5, 2, 16, Special::MinusZero),
        kDLFloat8_e8m0fnu => Float::new(8, 0, 127, Special::ExponentOnly),
        kDLFloat6_e2m3fn => Float::new(2, 3, 1, Special::None),
        kDLFloat6_e3m2fn => Float::new(3, 2, 3, Special::None),
        kDLFloat4_e2m1fn => Float::new(2, 1, 1, Special::None),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(name: &str) -> Float {
        match Element::of(name.parse().unwrap()).unwrap().scalar {
            Scalar::Float(float) => float,
            other => panic!("{name} is {other:?}"),
        }
    }

    const SMALL: [&str; 13] = [
        "float16",
        "bfloat16",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float4_e2m1fn",
    ];

    #[test]
    fn every_code_comes_back() {
        for name in SMALL {
            let float = float(name);
            for code in 0..1u64 << float.bits() {
                let value = float.decode(code);
                if value.is_nan() {
                    assert!(float.decode(float.encode(value)).is_nan(), "{name} {code:#x}");
                } else {
                    assert_eq!(float.encode(value), code, "{name} {code:#x} = {value}");
                }
            }
        }
    }

    #[test]
    fn values_between_two_go_to_the_nearest() {
        for name in SMALL {
            let float = float(name);
            let mut values: Vec<(f64, u64)> = (0..1u64 << float.bits())
                .map(|code| (float.decode(code), code))
                .filter(|(value, _)| value.is_finite() && *value > 0.0)
                .collect();
            values.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in values.windows(2) {
                let ((low, low_code), (high, high_code)) = (pair[0], pair[1]);
                let middle = low + (high - low) / 2.0;
                let nearest = |value: f64| float.encode(value);
                assert_eq!(nearest(middle - (high - low) / 8.0), low_code, "{name} near {low}");
                assert_eq!(nearest(middle + (high - low) / 8.0), high_code, "{name} near {high}");
                if name != "float8_e8m0fnu" {
                    let even = if low_code % 2 == 0 { low_code } else { high_code };
                    assert_eq!(nearest(middle), even, "{name} between {low} and {high}");
                }
            }
        }
    }

    #[test]
    fn known_values() {
        for (name, largest, smallest) in [
            ("float16", 65504.0, 5.960464477539063e-8),
            ("bfloat16", 3.3895313892515355e38, 9.183549615799121e-41),
            ("float8_e3m4", 15.5, 0.015625),
            ("float8_e4m3", 240.0, 0.001953125),
            ("float8_e4m3b11fnuz", 30.0, 0.0001220703125),
            ("float8_e4m3fn", 448.0, 0.001953125),
            ("float8_e4m3fnuz", 240.0, 0.0009765625),
            ("float8_e5m2", 57344.0, 1.52587890625e-5),
            ("float8_e5m2fnuz", 57344.0, 7.62939453125e-6),
            ("float8_e8m0fnu", 1.7014118346046923e38, 5.877471754111438e-39),
            ("float6_e2m3fn", 7.5, 0.125),
            ("float6_e3m2fn", 28.0, 0.0625),
            ("float4_e2m1fn", 6.0, 0.5),
        ] {
            let float = float(name);
            let values =
                (0..1u64 << float.bits()).map(|code| float.decode(code)).filter(|x| x.is_finite() && *x > 0.0);
            let (low, high) = values.fold((f64::MAX, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
            assert_eq!((high, low), (largest, smallest), "{name}");
        }
    }

    #[test]
    fn what_is_beyond() {
        let of = |name: &str, value: f64| {
            let float = float(name);
            float.decode(float.encode(value))
        };
        assert_eq!(of("float16", 65519.0), 65504.0);
        assert_eq!(of("float16", 65520.0), f64::INFINITY);
        assert_eq!(of("float8_e5m2", -1e9), f64::NEG_INFINITY);
        assert!(of("float8_e4m3fn", 500.0).is_nan());
        assert_eq!(of("float8_e4m3fn", 460.0), 448.0);
        assert!(of("float8_e4m3fnuz", 1e9).is_nan());
        assert_eq!(of("float4_e2m1fn", -1e9), -6.0);
        assert!(of("float8_e8m0fnu", -1.0).is_nan());
        assert_eq!(of("float8_e5m2fnuz", -0.0).to_bits(), 0);
        assert_eq!(of("bfloat16", 1.0 + 1.0 / 256.0), 1.0);
    }

    #[test]
    fn integers_keep_their_range() {
        let int4 = Element::of("int4".parse().unwrap()).unwrap().scalar;
        assert_eq!(int4.encode(Number::Int(-8)), Some(8));
        assert_eq!(int4.decode(8), Number::Int(-8));
        assert_eq!(int4.encode(Number::Int(8)), None);
        assert_eq!(int4.encode(Number::Float(7.0)), Some(7));
        assert_eq!(int4.encode(Number::Float(0.5)), None);
        let uint64 = Element::of("uint64".parse().unwrap()).unwrap().scalar;
        assert_eq!(uint64.encode(Number::Int(u64::MAX.into())), Some(u64::MAX));
        assert_eq!(uint64.encode(Number::Int(-1)), None);
        assert_eq!(uint64.encode(Number::Float(f64::NAN)), None);
    }

    #[test]
    fn floats_are_written_short() {
        let text = |name: &str, value: f64| {
            let scalar = Element::of(name.parse().unwrap()).unwrap().scalar;
            let mut out = String::new();
            scalar.text(scalar.encode(Number::Float(value)).unwrap(), &mut out);
            out
        };
        assert_eq!(text("float32", 0.1), "0.1");
        assert_eq!(text("float64", 0.1), "0.1");
        assert_eq!(text("bfloat16", 0.1), "0.1");
        assert_eq!(text("float16", 1.0), "1.0");
        assert_eq!(text("float8_e4m3fn", 448.0), "448.0");
        assert_eq!(text("float8_e8m0fnu", 0.25), "0.25");
        assert_eq!(text("float16", f64::NEG_INFINITY), "-inf");
        assert_eq!(text("float4_e2m1fn", -0.0), "-0.0");
    }
}
