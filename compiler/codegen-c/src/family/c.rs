//! Literals, conversions and operations of C, for all dialects that extend C.
//!
//! The prelude of a module must define the types and macros of `stdint.h` that the literals use, `NAN`,
//! `INFINITY`, and the functions of [`SCALAR`].

use anyfn::abi::{kDLInt, kDLUInt};
use anyfn::{DType, Result};
use anyfn_ir::expr::BinaryOp;
use anyfn_ir::ops::DTypeExt;

use crate::family::{Dialect, Operation, type_name, uint_of};

/// Source of helper functions on scalars, which generated operations and mathematical functions
/// call. A dialect can use the helper functions if its types have the names of `stdint.h`, such as
/// `int32_t`.
pub(crate) const SCALAR: &str = include_str!("scalar.c");

/// Returns the C literal of an integer or Boolean constant.
pub(crate) fn int<D: Dialect>(value: i64, dtype: DType) -> Result<String> {
    type_name::<D>(dtype)?;
    Ok(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 64) if value == i64::MIN => "INT64_MIN".to_owned(),
        (kDLInt, 64) => format!("INT64_C({value})"),
        (kDLUInt, 64) => format!("UINT64_C({})", value as u64),
        (kDLUInt, 32) => format!("{value}u"),
        (kDLInt, 32) if value == i64::from(i32::MIN) => "INT32_MIN".to_owned(),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    })
}

/// Returns the C literal of a `float32` or `float64` constant.
pub(crate) fn float<D: Dialect>(value: f64, dtype: DType) -> Result<String> {
    let type_name = type_name::<D>(dtype)?;
    let is_single = dtype == DType::FLOAT32;
    let suffix = if is_single { "f" } else { "" };
    let value = if is_single { f64::from(value as f32) } else { value };
    let text = match value {
        _ if value.is_nan() => return Ok(format!("(({type_name})NAN)")),
        _ if value.is_infinite() => {
            let sign = if value < 0.0 { "-" } else { "" };
            return Ok(format!("({sign}(({type_name})INFINITY))"));
        }
        // The literal is the shortest one that gives the nearest float, not one that gives the nearest
        // double.
        _ if is_single => format!("{:?}", value as f32),
        _ => format!("{value:?}"),
    };
    Ok(if value.is_sign_negative() { format!("({text}{suffix})") } else { format!("{text}{suffix}") })
}

/// Returns a C expression that converts a value to another data type. Neither type is a 16-bit floating-point
/// type.
pub(crate) fn cast<D: Dialect>(value: &str, to: DType) -> Result<String> {
    if to.is_bool() {
        return Ok(format!("({value} != 0)"));
    }
    Ok(format!("(({}){value})", type_name::<D>(to.element())?))
}

/// Returns a C expression for an operation on scalars. Integers other than indices wrap around on overflow.
pub(crate) fn operation<D: Dialect>(operation: Operation, a: &str, b: &str) -> Result<String> {
    let Operation { op, dtype, in_place, is_safe } = operation;
    let c_type = type_name::<D>(dtype)?;
    let is_integer = dtype.is_integer();
    let is_signed = is_integer && dtype.0.code == kDLInt;
    Ok(match op {
        BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::Div | BinaryOp::Mod if is_integer && !is_safe => {
            let name = match op {
                BinaryOp::FloorDiv => "floordiv",
                BinaryOp::FloorMod => "floormod",
                BinaryOp::Div => "div",
                _ => "mod",
            };
            let sign = if is_signed { "" } else { "u" };
            format!("(({c_type})anyfn_safe_{sign}{name}({a}, {b}))")
        }
        BinaryOp::FloorDiv if is_signed => format!("(({c_type})anyfn_floordiv({a}, {b}))"),
        BinaryOp::FloorMod if is_signed => format!("(({c_type})anyfn_floormod({a}, {b}))"),
        BinaryOp::FloorDiv => format!("({a} / {b})"),
        BinaryOp::FloorMod | BinaryOp::Mod => format!("({a} % {b})"),
        BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{c_type}({a}, {b})", op.text()),
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => format!("(({c_type})({a} {} {b}))", op.text()),
        // The shift is unsigned, since bits may be shifted out.
        BinaryOp::ShiftLeft if dtype.0.bits == 64 => format!("(({c_type})((uint64_t){a} << {b}))"),
        BinaryOp::ShiftLeft => format!("(({c_type})((uint32_t){a} << {b}))"),
        BinaryOp::ShiftRight => format!("(({c_type})({a} >> {b}))"),
        BinaryOp::And => format!("({a} && {b})"),
        BinaryOp::Or => format!("({a} || {b})"),
        // Operands narrower than int are computed as int, so results are converted back to the original type.
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul if is_integer && dtype.0.bits < 32 => {
            format!("(({c_type})({a} {} {b}))", op.text())
        }
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul if is_signed && !in_place => {
            let unsigned = type_name::<D>(uint_of(dtype))?;
            format!("(({c_type})(({unsigned}){a} {} ({unsigned}){b}))", op.text())
        }
        _ => format!("({a} {} {b})", op.text()),
    })
}
