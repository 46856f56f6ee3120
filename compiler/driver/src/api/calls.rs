//! Global functions `tir.*`: calls from compiled code to external functions.

use anyfn::{Any, AnyView, DType, FromArg, IntoAny, Mismatch, ObjectRef, Result, Schema, register};
use anyfn_ir::expr::Expr;
use anyfn_ir::operand::Operand;
use anyfn_ir::{ops, packed};

/// Creates a call of a packed function by its name. Each argument is a number, a string, an address, a buffer, or a
/// region of a buffer. `dtype` is the data type of the result.
#[register("tir.call_packed")]
fn call_packed(name: &str, args: Vec<CallArg>, #[default("int32")] dtype: DType) -> Result<Expr> {
    packed::call_packed(name, args.into_iter().map(|arg| arg.0), dtype)
}

/// Creates a call of a C function by its symbol. The arguments have the same forms as in `call_packed`.
#[register("tir.call_extern")]
fn call_extern(name: &str, args: Vec<CallArg>, #[default("int32")] dtype: DType) -> Result<Expr> {
    packed::call_extern(name, args.into_iter().map(|arg| arg.0), dtype)
}

/// Marks a buffer argument, or a region of a buffer, as read-only for the called function.
#[register("tir.read_only")]
fn read_only(buffer: ObjectRef) -> Result<Expr> {
    packed::read_only(buffer)
}

/// Argument of a call, converted from a number, a string or an IR node.
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
