//! Numbers of Python, and the conversions of operands, in TVMScript.
//!
//! TVMScript is evaluated by Python: `1 / 4` is `0.25` before Apache TVM sees it. Only an operation with a node, such as a
//! variable or `T.float32(1)`, is part of the function. Apache TVM then converts the operand with the narrower data type.

use anyfn::{DType, Result, bail};
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::ops::{self, DTypeExt};

/// Number of Python, which has no data type of the tensor IR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Bool(bool),
    Int(i128),
    Float(f64),
}

impl Number {
    fn int(self) -> Option<i128> {
        match self {
            Number::Bool(value) => Some(value.into()),
            Number::Int(value) => Some(value),
            Number::Float(_) => None,
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Float(value) => value,
            _ => self.int().unwrap_or_default() as f64,
        }
    }

    pub(crate) fn is_true(self) -> bool {
        self.float() != 0.0
    }

    /// Returns the number with the opposite sign.
    pub(crate) fn negated(self) -> Number {
        match self.int() {
            Some(value) => Number::Int(-value),
            None => Number::Float(-self.float()),
        }
    }

    /// Returns a constant of the data type that Apache TVM gives a number: `int32`, `int64` or `uint64` if it does not fit,
    /// `float32` or `bool`.
    pub(crate) fn constant(self) -> Result<Expr> {
        match self {
            Number::Bool(value) => Ok(ops::bool(value)),
            Number::Float(value) => ops::float(value, DType::FLOAT32),
            Number::Int(value) if i32::try_from(value).is_ok() => ops::whole(value, DType::INT32),
            Number::Int(value) => {
                match ops::whole(value, DType::INT64).or_else(|_| ops::whole(value, "uint64".parse()?)) {
                    Ok(constant) => Ok(constant),
                    Err(_) => bail!("ValueError", "{value} does not fit into int64"),
                }
            }
        }
    }

    /// Returns a constant of a data type. A floating-point number becomes an integer as in Python, by truncation.
    pub(crate) fn typed(self, dtype: DType) -> Result<Expr> {
        let element = dtype.element();
        let constant = match self {
            _ if element.is_float() => ops::float(self.float(), element),
            _ if element.is_bool() => Ok(ops::bool(self.is_true())),
            Number::Float(value) if value.is_finite() => ops::whole(value.trunc() as i128, element),
            _ => match self.int() {
                Some(value) => ops::whole(value, element),
                None => bail!("ValueError", "{} does not fit into {element}", self.float()),
            },
        };
        ops::cast(constant?, dtype)
    }

    /// Applies an operator as Python does.
    pub(crate) fn fold(op: BinaryOp, a: Number, b: Number) -> Result<Number> {
        use BinaryOp::{
            Add, And, BitAnd, BitOr, BitXor, Div, Eq, FloorDiv, FloorMod, Ge, Gt, Le, Lt, Mul, Ne, Or,
            ShiftLeft, ShiftRight, Sub,
        };
        let too_large = || anyfn::error!("OverflowError", "the result of `{}` is too large", op.text());
        if matches!(op, Div | FloorDiv | FloorMod) && !b.is_true() {
            bail!("ZeroDivisionError", "division by zero in `{}`", op.text());
        }
        match op {
            And => return Ok(if a.is_true() { b } else { a }),
            Or => return Ok(if a.is_true() { a } else { b }),
            Div => return Ok(Number::Float(a.float() / b.float())),
            _ => {}
        }
        let Some((x, y)) = a.int().zip(b.int()) else {
            let (x, y) = (a.float(), b.float());
            return Ok(match op {
                Add => Number::Float(x + y),
                Sub => Number::Float(x - y),
                Mul => Number::Float(x * y),
                FloorDiv => Number::Float((x / y).floor()),
                FloorMod => Number::Float(x - (x / y).floor() * y),
                Eq => Number::Bool(x == y),
                Ne => Number::Bool(x != y),
                Lt => Number::Bool(x < y),
                Le => Number::Bool(x <= y),
                Gt => Number::Bool(x > y),
                Ge => Number::Bool(x >= y),
                _ => bail!("TypeError", "`{}` does not take floats", op.text()),
            });
        };
        if let (Number::Bool(x), Number::Bool(y), BitAnd | BitOr | BitXor) = (a, b, op) {
            return Ok(Number::Bool(match op {
                BitAnd => x & y,
                BitOr => x | y,
                _ => x ^ y,
            }));
        }
        let by = || u32::try_from(y).ok().filter(|by| *by < 127).ok_or_else(too_large);
        let floor = || x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
        Ok(match op {
            Add => Number::Int(x.checked_add(y).ok_or_else(too_large)?),
            Sub => Number::Int(x.checked_sub(y).ok_or_else(too_large)?),
            Mul => Number::Int(x.checked_mul(y).ok_or_else(too_large)?),
            FloorDiv => Number::Int(floor()),
            FloorMod => Number::Int(x - floor() * y),
            BitAnd => Number::Int(x & y),
            BitOr => Number::Int(x | y),
            BitXor => Number::Int(x ^ y),
            ShiftLeft => {
                let shifted = x.checked_mul(1_i128.checked_shl(by()?).ok_or_else(too_large)?);
                Number::Int(shifted.ok_or_else(too_large)?)
            }
            ShiftRight => Number::Int(x >> by()?),
            Eq => Number::Bool(x == y),
            Ne => Number::Bool(x != y),
            Lt => Number::Bool(x < y),
            Le => Number::Bool(x <= y),
            Gt => Number::Bool(x > y),
            Ge => Number::Bool(x >= y),
            _ => bail!("TypeError", "`{}` does not take two numbers of Python", op.text()),
        })
    }
}

/// Converts operands to one data type, as Apache TVM does: to that of the floating-point number, or else to the wider one.
/// Numbers of lanes are left as they are.
pub(crate) fn matched(a: Expr, b: Expr) -> Result<(Expr, Expr)> {
    let (x, y) = (a.dtype.element(), b.dtype.element());
    let bits = |dtype: DType| if dtype.is_bool() { 1 } else { dtype.0.bits };
    let is_number = |dtype: DType| dtype.is_float() || dtype.is_integer() || dtype.is_bool();
    if x == y || !is_number(x) || !is_number(y) {
        return Ok((a, b));
    }
    let common = match (x.is_float(), y.is_float()) {
        (true, false) => x,
        (false, true) => y,
        (true, true) if bits(x) == bits(y) => {
            bail!("TypeError", "cannot combine {x} and {y}; convert one of them")
        }
        _ if bits(x) > bits(y) => x,
        _ if bits(x) < bits(y) => y,
        // Of a signed and an unsigned integer, the signed one.
        _ if x.to_string().starts_with("int") => x,
        _ => y,
    };
    let convert = |value: Expr| {
        let lanes = value.dtype.lanes();
        ops::cast(value, common.with_lanes(lanes))
    };
    Ok((convert(a)?, convert(b)?))
}
