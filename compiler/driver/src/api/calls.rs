//! `tir.*`: calls out of compiled code.

use anyfn::{Any, AnyView, DType, FromArg, IntoAny, Mismatch, ObjectRef, Result, Schema, register};
use anyfn_ir::expr::Expr;
use anyfn_ir::operand::Operand;
use anyfn_ir::{ops, packed};

/// A call of a packed function by its name; the arguments are numbers, texts, addresses, buffers and parts of buffers.
#[register("tir.call_packed")]
fn call_packed(name: &str, args: Vec<CallArg>, #[default("int32")] dtype: DType) -> Result<Expr> {
    packed::call_packed(name, args.into_iter().map(|arg| arg.0), dtype)
}

/// A call of a function of C by its symbol; the arguments are as those of `call_packed`.
#[register("tir.call_extern")]
fn call_extern(name: &str, args: Vec<CallArg>, #[default("int32")] dtype: DType) -> Result<Expr> {
    packed::call_extern(name, args.into_iter().map(|arg| arg.0), dtype)
}

/// Says that a call only reads a buffer or part of one.
#[register("tir.read_only")]
fn read_only(buffer: ObjectRef) -> Result<Expr> {
    packed::read_only(buffer)
}

/// What may be written as an argument of a call.
struct CallArg(ObjectRef);

impl FromArg for CallArg {
    type Arg<'a> = CallArg;

    fn schema() -> Schema {
        <ObjectRef as FromArg>::schema()
    }

    fn from_arg(view: &AnyView<'_>) -> Result<CallArg, Mismatch> {
        let of = |expr: Result<Expr>| match expr {
            Ok(expr) => Ok(CallArg(expr.into_object())),
            Err(error) => {
                Err(Mismatch::new("ValueError", "an argument of a call".into(), error.message().into()))
            }
        };
        match view.type_key() {
            "float" => of(ops::float(f64::from_arg(view)?, DType::FLOAT64)),
            _ if <&str>::from_arg(view).is_ok() => of(Ok(ops::string(<&str>::from_arg(view)?))),
            _ => match Operand::from_arg(view) {
                Ok(Operand(value)) => of(Ok(value)),
                Err(_) => ObjectRef::from_arg(view).map(CallArg),
            },
        }
    }
}

impl IntoAny for CallArg {
    fn schema() -> Schema {
        <ObjectRef as FromArg>::schema()
    }

    fn into_any(self) -> Result<Any> {
        Ok(Any::from(self.0))
    }
}
