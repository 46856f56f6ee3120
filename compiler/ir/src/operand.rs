//! Conversion of function arguments to expressions.

use anyfn::abi::kDLUInt;
use anyfn::{Any, AnyView, Array, DType, FromArg, IntoAny, Mismatch, Ref, Result, Schema};

use crate::expr::{Expr, IterVar};
use crate::ops;

/// Expression converted from a function argument. An axis converts to its variable, an int to `int32` (or
/// `int64` or `uint64` if it does not fit), a float to `float32`, and a Boolean to a Boolean constant.
pub struct Operand(pub Expr);

impl FromArg for Operand {
    type Arg<'a> = Operand;

    fn schema() -> Schema {
        <Expr as FromArg>::schema()
    }

    fn from_arg(view: &AnyView<'_>) -> Result<Operand, Mismatch> {
        let invalid =
            |error: anyfn::Error| Mismatch::new("ValueError", "tir.PrimExpr".into(), error.message().into());
        if let Ok(expr) = Expr::from_arg(view) {
            return Ok(Operand(expr));
        }
        if let Ok(axis) = Ref::<IterVar>::from_arg(view) {
            return Ok(Operand(axis.var.clone().into_parent()));
        }
        match view.type_key() {
            "bool" => Ok(Operand(ops::bool(bool::from_arg(view)?))),
            "int" => {
                let value = i64::from_arg(view)?;
                let dtype = if i32::try_from(value).is_ok() { DType::INT32 } else { DType::INT64 };
                ops::int(value, dtype).map(Operand).map_err(invalid)
            }
            "ffi.BigInt" => match u64::from_arg(view) {
                Ok(bits) => ops::int(bits as i64, DType::new(kDLUInt, 64, 1)).map(Operand).map_err(invalid),
                Err(large) => Err(Mismatch::new("OverflowError", "int64 or uint64".into(), large.got().into())),
            },
            "float" => ops::float(f64::from_arg(view)?, DType::FLOAT32).map(Operand).map_err(invalid),
            _ => Err(Mismatch::of_type::<Self>(view)),
        }
    }
}

impl IntoAny for Operand {
    fn schema() -> Schema {
        <Expr as FromArg>::schema()
    }

    fn into_any(self) -> Result<Any> {
        self.0.into_any()
    }
}

/// Returns an array of the expressions that the operands hold.
#[must_use]
pub fn exprs(operands: Vec<Operand>) -> Array<Expr> {
    operands.into_iter().map(|operand| operand.0).collect()
}
