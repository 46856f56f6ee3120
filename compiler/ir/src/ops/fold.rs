//! Constant folding.

use anyfn::DType;
use anyfn::Ref;
use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLUInt};

use crate::expr::{BinaryOp, Expr, FloatImm, IntImm, PrimExpr, is_unsigned_64};
use crate::kind::ExprKind;
use crate::ops::{self, DTypeExt};
use crate::stack::on_enough_stack;

/// Returns true if `value` is in the range of a scalar data type. For `uint64`, every `i64` is in range,
/// since `value` holds the bits of the unsigned value.
pub(crate) fn fits(value: i64, dtype: DType) -> bool {
    let bits = u32::from(dtype.0.bits);
    match dtype.0.code {
        kDLInt | kDLUInt if bits == 0 => false,
        kDLBool => value == 0 || value == 1,
        kDLInt if bits < 64 => (-(1 << (bits - 1))..1 << (bits - 1)).contains(&value),
        kDLUInt if bits < 64 => (0..1 << bits).contains(&value),
        _ => true,
    }
}

/// Returns the value of an integer constant, or of a vector that repeats an integer constant. Returns `None` for any
/// other expression.
pub(crate) fn constant(expr: &Expr) -> Option<i64> {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::IntImm(node) => Some(node.value),
        ExprKind::Broadcast(node) => constant(&node.value),
        _ => None,
    })
}

/// Returns the value of a floating-point constant, or of a vector that repeats a floating-point
/// constant. Returns `None` for any other expression.
fn float_constant(expr: &Expr) -> Option<f64> {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::FloatImm(node) => Some(node.value),
        ExprKind::Broadcast(node) => float_constant(&node.value),
        _ => None,
    })
}

fn int(value: i64, dtype: DType) -> Option<Expr> {
    if !fits(value, dtype.element()) {
        return None;
    }
    let scalar = Ref::new(IntImm { base: PrimExpr { dtype: dtype.element() }, value }).into_parent();
    ops::splat(scalar, dtype.lanes()).ok()
}

fn float(value: f64, dtype: DType) -> Option<Expr> {
    let scalar = Ref::new(FloatImm { base: PrimExpr { dtype: dtype.element() }, value }).into_parent();
    ops::splat(scalar, dtype.lanes()).ok()
}

/// Converts an integer or floating-point constant to the scalar type `dtype`. Returns `None` for an
/// integer that `dtype` cannot represent (beyond 2^53 for floating-point types), for a
/// floating-point constant unless `dtype` is a floating-point type, and for any other expression.
pub(crate) fn adopt(expr: &Expr, dtype: DType) -> Option<Expr> {
    match ExprKind::of(expr) {
        ExprKind::IntImm(node) if !node.dtype.is_bool() && node.whole() <= i64::MAX.into() => {
            // Beyond 2^53, not every integer has an exact floating-point representation.
            let is_exact = node.value.unsigned_abs() <= 1 << 53;
            match dtype {
                _ if dtype.is_integer() && (dtype.0.code == kDLInt || node.value >= 0) => {
                    int(node.value, dtype)
                }
                _ if dtype.is_float() && is_exact => float(node.value as f64, dtype),
                _ => None,
            }
        }
        ExprKind::FloatImm(node) if dtype.is_float() => float(node.value, dtype),
        _ => None,
    }
}

/// Folds the conversion of a constant to another data type. Returns `None` if the conversion must be left to
/// the generated code, such as a conversion to a narrower floating-point type.
pub(crate) fn cast(value: &Expr, dtype: DType) -> Option<Expr> {
    match ExprKind::of(value) {
        ExprKind::IntImm(node) if node.whole() > i64::MAX.into() => None,
        ExprKind::IntImm(node) if dtype.is_integer() => int(node.value, dtype),
        ExprKind::IntImm(node) if dtype.is_float() && node.value.unsigned_abs() <= 1 << 53 => {
            float(node.value as f64, dtype)
        }
        ExprKind::FloatImm(node) if dtype.is_float() && dtype.0.bits >= node.dtype.0.bits => {
            float(ops::rounded(node.value, node.dtype), dtype)
        }
        _ => None,
    }
}

/// Folds an operation on two constants, an operation whose result follows from a single operand,
/// such as `x * 0`, or an operation on a ramp and a broadcast.
///
/// Returns `None` if nothing can be folded, if an integer result overflows, or if folding would round a floating-point
/// result differently than the generated code does.
pub(crate) fn binary(op: BinaryOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let dtype = a.dtype;
    if dtype.is_float() {
        return floats(op, a, b);
    }
    if let (Some(x), Some(y)) = (constant(a), constant(b))
        && (!is_unsigned_64(dtype) || (x >= 0 && y >= 0) || matches!(op, BinaryOp::Eq | BinaryOp::Ne))
    {
        return ints(op, x, y, dtype);
    }
    on_enough_stack(|| ramps(op, a, b)).or_else(|| identities(op, a, b))
}

/// Folds the sum, difference or product of a ramp and a broadcast into a ramp.
fn ramps(op: BinaryOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let lanes = a.dtype.lanes();
    let one = |expr: &Expr| match ExprKind::of(expr) {
        ExprKind::Broadcast(node) => Some(node.value.clone()),
        _ => None,
    };
    let (ramp, other, is_first) = match (ExprKind::of(a), ExprKind::of(b)) {
        (ExprKind::Ramp(ramp), _) => (ramp, one(b)?, true),
        (_, ExprKind::Ramp(ramp)) => (ramp, one(a)?, false),
        _ => return None,
    };
    let (start, stride) = (ramp.start.clone(), ramp.stride.clone());
    let (start, stride) = match (op, is_first) {
        (BinaryOp::Add, true) | (BinaryOp::Sub, true) => (ops::binary(op, start, other).ok()?, stride),
        (BinaryOp::Add, false) => (ops::add(other, start).ok()?, stride),
        (BinaryOp::Mul, _) => (ops::mul(start, other.clone()).ok()?, ops::mul(stride, other).ok()?),
        _ => return None,
    };
    ops::ramp(start, stride, lanes).ok()
}

fn truth(value: bool, lanes: u16) -> Option<Expr> {
    int(value.into(), DType::BOOL.with_lanes(lanes))
}

fn ints(op: BinaryOp, x: i64, y: i64, dtype: DType) -> Option<Expr> {
    let value = match op {
        BinaryOp::Add => x.checked_add(y)?,
        BinaryOp::Sub => x.checked_sub(y)?,
        BinaryOp::Mul => x.checked_mul(y)?,
        BinaryOp::Div => x.checked_div(y)?,
        BinaryOp::Mod => x.checked_rem(y)?,
        BinaryOp::FloorDiv => floor_div(x, y)?,
        BinaryOp::FloorMod => x.checked_sub(floor_div(x, y)?.checked_mul(y)?)?,
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::BitAnd => x & y,
        BinaryOp::BitOr => x | y,
        BinaryOp::BitXor => x ^ y,
        // Folds only if no bits are lost.
        BinaryOp::ShiftLeft if is_shift_of(y, dtype) && y < 63 => x.checked_mul(1 << y)?,
        BinaryOp::ShiftRight if is_shift_of(y, dtype) => x >> y,
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => return None,
        BinaryOp::And => i64::from(x != 0 && y != 0),
        BinaryOp::Or => i64::from(x != 0 || y != 0),
        BinaryOp::Eq => return truth(x == y, dtype.lanes()),
        BinaryOp::Ne => return truth(x != y, dtype.lanes()),
        BinaryOp::Lt => return truth(x < y, dtype.lanes()),
        BinaryOp::Le => return truth(x <= y, dtype.lanes()),
        BinaryOp::Gt => return truth(x > y, dtype.lanes()),
        BinaryOp::Ge => return truth(x >= y, dtype.lanes()),
    };
    int(value, dtype)
}

/// Returns true if `by` is a valid shift count for a data type: not negative, and less than the number of bits.
pub(crate) fn is_shift_of(by: i64, dtype: DType) -> bool {
    (0..i64::from(dtype.0.bits)).contains(&by)
}

/// Returns the quotient `x / y`, rounded down. Returns `None` if `y` is 0 or if the quotient overflows.
pub(crate) fn floor_div(x: i64, y: i64) -> Option<i64> {
    let quotient = x.checked_div(y)?;
    Some(if x % y != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient })
}

fn floats(op: BinaryOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let (x, y) = (float_constant(a)?, float_constant(b)?);
    let dtype = a.dtype;
    if op.is_comparison() {
        return comparison(op, x, y, dtype);
    }
    if dtype.0.code != kDLFloat {
        return None;
    }
    // Rounds once, in the precision of the data type, as the processor does.
    let narrow = |of32: fn(f32, f32) -> f32, of64: fn(f64, f64) -> f64| match dtype.0.bits {
        32 => float(of32(x as f32, y as f32).into(), dtype),
        64 => float(of64(x, y), dtype),
        _ => None,
    };
    match op {
        BinaryOp::Add => narrow(|x, y| x + y, |x, y| x + y),
        BinaryOp::Sub => narrow(|x, y| x - y, |x, y| x - y),
        BinaryOp::Mul => narrow(|x, y| x * y, |x, y| x * y),
        BinaryOp::Div => narrow(|x, y| x / y, |x, y| x / y),
        _ => None,
    }
}

/// Folds a comparison of two numbers that are constants of the floating-point type `dtype`.
fn comparison(op: BinaryOp, x: f64, y: f64, dtype: DType) -> Option<Expr> {
    if !matches!((dtype.0.code, dtype.0.bits), (kDLFloat, 16 | 32 | 64) | (kDLBfloat, 16)) {
        return None;
    }
    let (x, y) = (ops::rounded(x, dtype), ops::rounded(y, dtype));
    let holds = match op {
        BinaryOp::Eq => x == y,
        BinaryOp::Ne => x != y,
        BinaryOp::Lt => x < y,
        BinaryOp::Le => x <= y,
        BinaryOp::Gt => x > y,
        BinaryOp::Ge => x >= y,
        _ => return None,
    };
    truth(holds, dtype.lanes())
}

/// Folds an operation whose result follows from a constant operand, as in `x + 0`, or from identical
/// operands, as in `x - x`.
fn identities(op: BinaryOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let (x, y) = (constant(a), constant(b));
    match (op, x, y) {
        (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => Some(b.clone()),
        (BinaryOp::Add | BinaryOp::Sub, _, Some(0))
        | (BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv, _, Some(1)) => Some(a.clone()),
        (BinaryOp::Mul, Some(0), _) => Some(a.clone()),
        (BinaryOp::Mul, _, Some(0)) => Some(b.clone()),
        (BinaryOp::Mod | BinaryOp::FloorMod, _, Some(1)) => int(0, a.dtype),
        (BinaryOp::Sub, ..) if a.ptr_eq(b) => int(0, a.dtype),
        (BinaryOp::Min | BinaryOp::Max, ..) if a.ptr_eq(b) => Some(a.clone()),
        (BinaryOp::BitOr | BinaryOp::BitXor, Some(0), _) => Some(b.clone()),
        (BinaryOp::BitAnd, Some(0), _) => Some(a.clone()),
        (BinaryOp::BitAnd, _, Some(0)) => Some(b.clone()),
        (BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::ShiftLeft | BinaryOp::ShiftRight, _, Some(0)) => {
            Some(a.clone())
        }
        (BinaryOp::And, Some(1), _) | (BinaryOp::Or, Some(0), _) => Some(b.clone()),
        (BinaryOp::And, _, Some(1)) | (BinaryOp::Or, _, Some(0)) => Some(a.clone()),
        (BinaryOp::And, Some(0), _) | (BinaryOp::Or, Some(1), _) => Some(a.clone()),
        (BinaryOp::And, _, Some(0)) | (BinaryOp::Or, _, Some(1)) => Some(b.clone()),
        (BinaryOp::Eq | BinaryOp::Le | BinaryOp::Ge, ..) if a.ptr_eq(b) => truth(true, a.dtype.lanes()),
        (BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Gt, ..) if a.ptr_eq(b) => truth(false, a.dtype.lanes()),
        _ => None,
    }
}
