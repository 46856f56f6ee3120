//! Conversion of function arguments to expressions.

use anyfn::abi::kDLUInt;
use anyfn::{Any, AnyView, Array, DType, FromArg, IntoAny, Mismatch, ObjectRef, Ref, Result, Schema};

use crate::expr::{Expr, IterVar};
use crate::ops;

/// Expression converted from a function argument. An axis converts to its variable, an int to the
/// first of `int32`, `int64` and `uint64` that can represent it, a float to `float32`, and a
/// Boolean to a Boolean constant.
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

/// Argument of a `Call` node that another language creates. A number or a string converts to a
/// constant, and an axis converts to its variable. Any other object remains unchanged.
pub struct Argument {
    object: ObjectRef,
    is_number: bool,
}

impl Argument {
    /// Returns the argument as an object. A number is converted to the given data type if that type
    /// can represent the number.
    #[must_use]
    pub fn adopted(self, dtype: DType) -> ObjectRef {
        if !self.is_number {
            return self.object;
        }
        match Expr::try_from_object(self.object) {
            Ok(number) => ops::adopt(number, dtype).into_object(),
            Err(object) => object,
        }
    }

    /// Returns the argument as an object.
    #[must_use]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }
}

impl FromArg for Argument {
    type Arg<'a> = Argument;

    fn schema() -> Schema {
        <ObjectRef as FromArg>::schema()
    }

    fn from_arg(view: &AnyView<'_>) -> Result<Argument, Mismatch> {
        let is_number = matches!(view.type_key(), "bool" | "int" | "float" | "ffi.BigInt");
        if let Ok(text) = <&str>::from_arg(view) {
            return Ok(Argument { object: ops::string(text).into_object(), is_number });
        }
        match Operand::from_arg(view) {
            Ok(Operand(value)) => Ok(Argument { object: value.into_object(), is_number }),
            Err(mismatch) if is_number => Err(mismatch),
            Err(_) => ObjectRef::from_arg(view).map(|object| Argument { object, is_number }),
        }
    }
}

impl IntoAny for Argument {
    fn schema() -> Schema {
        <ObjectRef as FromArg>::schema()
    }

    fn into_any(self) -> Result<Any> {
        Ok(Any::from(self.object))
    }
}

/// Returns an array of the expressions that the operands hold.
#[must_use]
pub fn exprs(operands: Vec<Operand>) -> Array<Expr> {
    operands.into_iter().map(|operand| operand.0).collect()
}
