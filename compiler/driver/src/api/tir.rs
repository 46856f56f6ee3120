//! Global functions `tir.*`: nodes of the tensor IR.

use anyfn::{DType, Map, ObjectRef, Ref, Result, bail, register};
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::operand::Operand;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::{ops, printer};

/// Creates a variable.
#[register("tir.var")]
fn var(name: &str, #[default("int32")] dtype: DType) -> Ref<Var> {
    ops::var(name, dtype)
}

/// Creates a constant of data type `dtype` from an int, float or bool.
#[register("tir.const")]
fn constant(value: Operand, dtype: Option<DType>) -> Result<Expr> {
    let Some(dtype) = dtype else { return Ok(value.0) };
    let Operand(value) = value;
    match anyfn_ir::ExprKind::of(&value) {
        anyfn_ir::ExprKind::IntImm(node) if dtype.to_string().starts_with("bool") => {
            Ok(ops::bool(node.value != 0))
        }
        anyfn_ir::ExprKind::IntImm(node) if dtype.is_float() => ops::float(node.whole() as f64, dtype),
        anyfn_ir::ExprKind::IntImm(node) => ops::whole(node.whole(), dtype),
        anyfn_ir::ExprKind::FloatImm(node) => ops::float(node.value, dtype),
        _ => bail!(
            "TypeError",
            "expected an int, float or bool as constant, got `{}`",
            value.as_object().type_key()
        ),
    }
}

/// Creates a string constant for use as an argument of a call.
#[register("tir.string")]
fn string(text: &str) -> Expr {
    ops::string(text)
}

/// Applies a binary operator, such as `+`, `//`, `min` or `<=`, to two values.
#[register("tir.binary")]
fn binary(op: &str, a: Operand, b: Operand) -> Result<Expr> {
    match BinaryOp::ALL.iter().find(|known| known.text() == op) {
        Some(op) => ops::binary(*op, a.0, b.0),
        None => bail!("ValueError", "unknown binary operator `{op}`"),
    }
}

/// Returns the absolute value of a number.
#[register("tir.abs")]
fn abs(a: Operand) -> Result<Expr> {
    ops::abs(a.0)
}

/// Returns the value `a` raised to the power `b`.
#[register("tir.power")]
fn power(a: Operand, b: Operand) -> Result<Expr> {
    ops::power(a.0, b.0)
}

/// Negates a Boolean, or inverts all bits of an integer.
#[register("tir.not")]
fn not(a: Operand) -> Result<Expr> {
    ops::not(a.0)
}

/// Returns a value with the opposite sign.
#[register("tir.neg")]
fn neg(a: Operand) -> Result<Expr> {
    ops::neg(a.0)
}

/// Returns a Boolean expression that is true where a floating-point number is NaN. The expression
/// is false for integers.
#[register("tir.isnan")]
fn isnan(a: Operand) -> Result<Expr> {
    ops::is_nan(a.0)
}

/// Returns the quotient of integers, rounded towards zero.
#[register("tir.truncdiv")]
fn truncdiv(a: Operand, b: Operand) -> Result<Expr> {
    ops::trunc_div(a.0, b.0)
}

/// Returns the largest value of a data type, or the smallest one if `largest` is false. For floating-point
/// types, the value is finite.
#[register("tir.limit")]
fn limit(dtype: DType, largest: bool) -> Result<Expr> {
    ops::finite_limit(dtype, largest)
}

/// Converts a value to another data type.
#[register("tir.cast")]
fn cast(value: Operand, dtype: DType) -> Result<Expr> {
    ops::cast(value.0, dtype)
}

/// Selects one of two values by a condition. If the condition is a scalar, the other value is not
/// evaluated, so its indices may be out of bounds.
#[register("tir.select")]
fn select(condition: Operand, true_value: Operand, false_value: Operand) -> Result<Expr> {
    ops::select(condition.0, true_value.0, false_value.0)
}

/// Creates a call of a function that code generators know by name, such as `exp`. If no data type is given,
/// the result has the data type of the first argument; two arguments are first converted to a common data
/// type.
#[register("tir.call")]
fn call(op: &str, mut args: Vec<Operand>, dtype: Option<DType>) -> Result<Expr> {
    if let ([a, b], None) = (&mut *args, dtype) {
        (a.0, b.0) = ops::unify(a.0.clone(), b.0.clone())?;
    }
    let args = args.into_iter().map(|arg| arg.0);
    match dtype {
        Some(dtype) => Ok(ops::call(dtype, op, args.map(Ref::into_object))),
        None => ops::math(op, args),
    }
}

/// Returns the source code of an expression, statement, function or module.
#[register("tir.text")]
fn text(node: ObjectRef) -> String {
    printer::text(&node)
}

/// Creates a module from a map of function names to functions.
#[register("tir.module")]
fn module(functions: Map<anyfn::String, Ref<PrimFunc>>) -> Ref<IRModule> {
    Ref::new(IRModule { functions, attrs: Map::new() })
}
