//! Values of expressions, and operations on them.

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, bail};
use anyfn_ir::expr::BinaryOp;
use anyfn_ir::ops::{DTypeExt, rounded};

/// Scalar value: an integer or Boolean, or a floating-point number. Each variant represents all
/// values of its data types exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Int(i128),
    Float(f64),
}

/// Value of an expression: a scalar, the lanes of a vector, or a string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    One(Scalar),
    Lanes(Vec<Scalar>),
    Text(String),
}

impl Value {
    pub(crate) fn int(value: i128) -> Value {
        Value::One(Scalar::Int(value))
    }

    pub(crate) fn float(value: f64, dtype: DType) -> Value {
        Value::One(Scalar::Float(rounded(value, dtype)))
    }

    /// Returns the value of a lane. A scalar has the same value in all lanes.
    pub(crate) fn lane(&self, lane: usize) -> Scalar {
        match self {
            Value::One(value) => *value,
            Value::Lanes(lanes) => lanes.get(lane).copied().unwrap_or(Scalar::Int(0)),
            Value::Text(_) => Scalar::Int(0),
        }
    }

    /// Creates a vector of `count` lanes, or a scalar for one lane. The function `lane` computes the value of
    /// each lane.
    pub(crate) fn of_lanes(count: u16, mut lane: impl FnMut(usize) -> Result<Scalar>) -> Result<Value> {
        if count == 1 {
            return lane(0).map(Value::One);
        }
        (0..usize::from(count)).map(lane).collect::<Result<_>>().map(Value::Lanes)
    }
}

impl Scalar {
    pub(crate) fn as_int(self) -> i128 {
        match self {
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i128,
        }
    }

    pub(crate) fn as_float(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    pub(crate) fn is_true(self) -> bool {
        self.as_int() != 0
    }

    pub(crate) fn text(self) -> String {
        match self {
            Scalar::Int(value) => value.to_string(),
            Scalar::Float(value) => format!("{value:?}"),
        }
    }
}

/// Wraps an integer to the range of a data type by keeping its low bits. For a Boolean type, returns 1 for
/// every nonzero integer.
pub(crate) fn wrapped(value: i128, dtype: DType) -> i128 {
    let bits = u32::from(dtype.0.bits).clamp(1, 64);
    match dtype.0.code {
        kDLBool => i128::from(value != 0),
        kDLUInt => value & ((1i128 << bits) - 1),
        _ => (value << (128 - bits)) >> (128 - bits),
    }
}

/// Converts a scalar value to a data type.
pub(crate) fn converted(value: Scalar, dtype: DType) -> Scalar {
    match value {
        _ if dtype.is_float() => Scalar::Float(match value {
            // Converts with a single rounding.
            Scalar::Int(value) if dtype == DType::FLOAT32 => f64::from(value as f32),
            Scalar::Int(value) => rounded(value as f64, dtype),
            Scalar::Float(value) => rounded(value, dtype),
        }),
        Scalar::Int(value) => Scalar::Int(wrapped(value, dtype)),
        Scalar::Float(value) if dtype.is_bool() => Scalar::Int(i128::from(value != 0.0)),
        Scalar::Float(value) => Scalar::Int(wrapped(value as i128, dtype)),
    }
}

/// Applies a binary operation to two values of the data type `dtype`. If `in_place` is true, the
/// result is part of an index or trip count and must not overflow.
pub(crate) fn binary(op: BinaryOp, a: Scalar, b: Scalar, dtype: DType, in_place: bool) -> Result<Scalar> {
    let truth = |value: bool| Ok(Scalar::Int(i128::from(value)));
    if let (Scalar::Float(x), Scalar::Float(y)) = (a, b) {
        let result = match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div => x / y,
            // NaN operands propagate.
            BinaryOp::Min if y < x || y.is_nan() => y,
            BinaryOp::Max if y > x || y.is_nan() => y,
            BinaryOp::Min | BinaryOp::Max => x,
            BinaryOp::Eq => return truth(x == y),
            BinaryOp::Ne => return truth(x != y),
            BinaryOp::Lt => return truth(x < y),
            BinaryOp::Le => return truth(x <= y),
            BinaryOp::Gt => return truth(x > y),
            BinaryOp::Ge => return truth(x >= y),
            _ => bail!("TypeError", "`{}` does not take {dtype}", op.text()),
        };
        // For types of at most 32 bits, rounding the 64-bit result is equivalent to a single rounding.
        return Ok(Scalar::Float(rounded(result, dtype)));
    }
    let (x, y) = (a.as_int(), b.as_int());
    let is_division = matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
    if is_division && y == 0 {
        if in_place {
            bail!("ZeroDivisionError", "division by zero in `{}`", op.text());
        }
        return Ok(Scalar::Int(0));
    }
    let remainder = |x: i128, y: i128| x.wrapping_rem(y);
    let floor = |x: i128, y: i128| {
        x.wrapping_div(y).wrapping_sub(i128::from(remainder(x, y) != 0 && (x < 0) != (y < 0)))
    };
    let result = match op {
        // Operands of the right data type have at most 64 bits, so 128 bits are sufficient. Only the sign of
        // an unsigned product may be wrong, but it is not used. A floating-point operand that is used as an
        // integer may be larger.
        BinaryOp::Add => x.wrapping_add(y),
        BinaryOp::Sub => x.wrapping_sub(y),
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::Div => x.wrapping_div(y),
        BinaryOp::Mod => remainder(x, y),
        BinaryOp::FloorDiv => floor(x, y),
        BinaryOp::FloorMod => x.wrapping_sub(floor(x, y).wrapping_mul(y)),
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::BitAnd => x & y,
        BinaryOp::BitOr => x | y,
        BinaryOp::BitXor => x ^ y,
        BinaryOp::ShiftLeft => x << y.rem_euclid(dtype.0.bits.into()),
        BinaryOp::ShiftRight => x >> y.rem_euclid(dtype.0.bits.into()),
        BinaryOp::And => return truth(x != 0 && y != 0),
        BinaryOp::Or => return truth(x != 0 || y != 0),
        BinaryOp::Eq => return truth(x == y),
        BinaryOp::Ne => return truth(x != y),
        BinaryOp::Lt => return truth(x < y),
        BinaryOp::Le => return truth(x <= y),
        BinaryOp::Gt => return truth(x > y),
        BinaryOp::Ge => return truth(x >= y),
    };
    let kept = wrapped(result, dtype);
    if in_place && kept != result && !op.is_bitwise() && dtype.0.code == kDLInt {
        bail!("OverflowError", "{x} {} {y} does not fit into {dtype}", op.text());
    }
    Ok(Scalar::Int(kept))
}

/// Returns the size of an element in bytes.
pub(crate) fn size_of(dtype: DType) -> Result<usize> {
    match (dtype.0.code, dtype.0.bits) {
        (kDLInt | kDLUInt, 8 | 16 | 32 | 64) | (kDLFloat, 16 | 32 | 64) | (kDLBfloat, 16) | (kDLBool, 8) => {
            Ok(usize::from(dtype.0.bits) / 8)
        }
        _ => bail!("TypeError", "cannot interpret a buffer with elements of {dtype}"),
    }
}

/// Converts a scalar value to the bytes that represent it in memory, followed by zeros.
pub(crate) fn to_bytes(value: Scalar, dtype: DType) -> [u8; 8] {
    let bits = match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 64) => value.as_float().to_bits(),
        (kDLFloat, 32) => u64::from((value.as_float() as f32).to_bits()),
        (kDLBfloat, 16) => u64::from((value.as_float() as f32).to_bits() >> 16),
        (kDLFloat, _) => u64::from(half_bits(value.as_float())),
        _ => value.as_int() as u64,
    };
    bits.to_le_bytes()
}

/// Converts bytes in memory to a scalar value.
pub(crate) fn from_bytes(bytes: [u8; 8], dtype: DType) -> Scalar {
    let bits = u64::from_le_bytes(bytes);
    match (dtype.0.code, dtype.0.bits) {
        (kDLFloat, 64) => Scalar::Float(f64::from_bits(bits)),
        (kDLFloat, 32) => Scalar::Float(f64::from(f32::from_bits(bits as u32))),
        (kDLBfloat, 16) => Scalar::Float(f64::from(f32::from_bits((bits as u32) << 16))),
        (kDLFloat, _) => Scalar::Float(half(bits as u16)),
        _ => Scalar::Int(wrapped(i128::from(bits), dtype)),
    }
}

/// Returns the `float16` encoding of a number that `float16` can represent.
fn half_bits(value: f64) -> u16 {
    let sign = u16::from(value.is_sign_negative()) << 15;
    let size = value.abs();
    let rest = match size {
        _ if size.is_nan() => 0x7e00,
        _ if size.is_infinite() => 0x7c00,
        // Multiples of the smallest subnormal number.
        _ if size < f64::from(-14).exp2() => (size * f64::from(24).exp2()) as u16,
        _ => {
            let exponent = (size.to_bits() >> 52) as i32 - 1023;
            let mantissa = (size.to_bits() >> 42) & 0x3ff;
            ((exponent + 15) as u16) << 10 | mantissa as u16
        }
    };
    sign | rest
}

fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => mantissa * f64::from(-24).exp2(),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa / 1024.0) * f64::from(exponent - 15).exp2(),
    };
    if bits >> 15 == 1 { -size } else { size }
}
