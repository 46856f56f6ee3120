//! Checks that the data types of an expression and its operands are consistent.

use anyfn::abi::kDLOpaqueHandle;
use anyfn::{Array, DType, Ref};
use anyfn_ir::ExprKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Call, Expr};
use anyfn_ir::ops::{DTypeExt, HANDLE, math_arity};
use anyfn_ir::words;

/// Kind and message of the error for an invalid data type.
pub(crate) type Reason = (&'static str, String);

fn wrong<T>(text: String) -> Result<T, Reason> {
    Err(("TypeError", text))
}

/// Returns true if a data type is a scalar integer type, whose values can be indices.
pub(crate) fn is_index(dtype: DType) -> bool {
    dtype.is_integer() && dtype.lanes() == 1
}

/// Returns true if values of a data type are numbers or Booleans.
pub(crate) fn is_number(dtype: DType) -> bool {
    dtype.is_integer() || dtype.is_float() || dtype.is_bool()
}

/// Returns the data type of a load or store at the given indices of a buffer. It is a vector type if the last
/// index is a vector.
pub(crate) fn element(buffer: &Ref<Buffer>, indices: &Array<Expr>) -> Result<DType, Reason> {
    let (name, ndim) = (&buffer.name, buffer.shape.len());
    if indices.len() != ndim {
        let (has, got) = (words::dimensions(ndim), words::indices(indices.len()));
        return Err(("IndexError", format!("`{name}` has {has} but got {got}")));
    }
    let mut lanes = 1;
    for (place, index) in indices.iter().enumerate() {
        if !index.dtype.is_integer() {
            return wrong(format!("index {place} of `{name}` must be an integer but is {}", index.dtype));
        }
        if index.dtype.lanes() != 1 && place + 1 != ndim {
            return wrong(format!("index {place} of `{name}` is a vector, but only the last index may be one"));
        }
        lanes = index.dtype.lanes();
    }
    Ok(buffer.dtype.with_lanes(lanes))
}

/// Checks that the data type of an expression follows from those of its operands.
pub(crate) fn check(expr: &Expr) -> Result<(), Reason> {
    let dtype = expr.dtype;
    let must_be = |expected: DType| {
        if dtype == expected {
            Ok(())
        } else {
            wrong(format!("expected an expression of data type {expected}, got {dtype}"))
        }
    };
    match ExprKind::of(expr) {
        ExprKind::Var(_) | ExprKind::Other => Ok(()),
        ExprKind::Call(node) => math(node)?.map_or(Ok(()), must_be),
        ExprKind::IntImm(node) => {
            let is_integer = (dtype.is_integer() || dtype.is_bool()) && dtype.lanes() == 1;
            if !is_integer || anyfn_ir::ops::int(node.value, dtype).is_err() {
                return wrong(format!("{} is not a value of {dtype}", node.value));
            }
            Ok(())
        }
        ExprKind::FloatImm(node) if !dtype.is_float() || dtype.lanes() != 1 => {
            wrong(format!("{} is not a value of {dtype}", node.value))
        }
        ExprKind::FloatImm(_) => Ok(()),
        ExprKind::StringImm(_) => must_be(HANDLE),
        ExprKind::Cast(node) => {
            let from = node.value.dtype;
            let fits = from.lanes() == dtype.lanes() && is_number(from) && is_number(dtype);
            if fits { Ok(()) } else { wrong(format!("a value of {from} cannot be converted to {dtype}")) }
        }
        ExprKind::Binary(op, node) => {
            let (a, b) = (node.a.dtype, node.b.dtype);
            if a != b {
                return wrong(format!(
                    "the operands of `{}` have different data types: {a} and {b}",
                    op.text()
                ));
            }
            let fits = match op {
                BinaryOp::And | BinaryOp::Or => a.is_bool(),
                BinaryOp::Eq | BinaryOp::Ne => is_number(a),
                BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::Mod => a.is_integer(),
                _ if op.is_bitwise() => a.is_integer(),
                _ => a.is_integer() || a.is_float(),
            };
            if !fits {
                return wrong(format!("`{}` does not take {a}", op.text()));
            }
            must_be(if op.is_comparison() { DType::BOOL.with_lanes(a.lanes()) } else { a })
        }
        ExprKind::Not(node) => {
            if !node.a.dtype.is_bool() {
                return wrong(format!("`not` does not take {}", node.a.dtype));
            }
            must_be(node.a.dtype)
        }
        ExprKind::Select(node) => {
            let (condition, a, b) = (node.condition.dtype, node.true_value.dtype, node.false_value.dtype);
            if !condition.is_bool() || (condition.lanes() != 1 && condition.lanes() != a.lanes()) {
                return wrong(format!("a condition of {condition} cannot select between values of {a}"));
            }
            if a != b {
                return wrong(format!("the values of `select` have different data types: {a} and {b}"));
            }
            must_be(a)
        }
        ExprKind::BufferLoad(node) => must_be(element(&node.buffer, &node.indices)?),
        ExprKind::ProducerLoad(_) => Err((
            "ValueError",
            "a tensor expression cannot be part of a function; use `te.create_prim_func`".to_owned(),
        )),
        ExprKind::Reduce(_) => Err((
            "ValueError",
            "a reduction of a tensor expression cannot be part of a function; use `te.create_prim_func`"
                .to_owned(),
        )),
        ExprKind::Ramp(node) => {
            let (start, stride) = (node.start.dtype, node.stride.dtype);
            if start != stride || !is_index(start) {
                return wrong(format!("a ramp needs integers of one data type but has {start} and {stride}"));
            }
            must_be(of_lanes(start, node.lanes)?)
        }
        ExprKind::Broadcast(node) => {
            let value = node.value.dtype;
            if value.lanes() != 1 || value.0.code == kDLOpaqueHandle {
                return wrong(format!("{value} cannot be an element of a vector"));
            }
            must_be(of_lanes(value, node.lanes)?)
        }
        ExprKind::Let(node) => {
            if node.var.dtype != node.value.dtype {
                let (var, value) = (node.var.dtype, node.value.dtype);
                return wrong(format!("variable `{}` is {var} but its value is {value}", node.var.name));
            }
            must_be(node.body.dtype)
        }
    }
}

/// Checks the arguments of a call of a mathematical function. Returns the common data type of the
/// arguments, which is also the data type of the result. Returns `None` for a call of any other
/// function.
fn math(node: &Call) -> Result<Option<DType>, Reason> {
    let (name, Some(expected)) = (&*node.op, math_arity(&node.op)) else { return Ok(None) };
    if node.args.len() != expected {
        let noun = if expected == 1 { "argument" } else { "arguments" };
        return wrong(format!("`{name}` takes {expected} {noun}, got {}", node.args.len()));
    }
    let mut common = None;
    for (place, arg) in node.args.iter().enumerate() {
        let wanted = "expected a floating-point number as argument";
        let dtype = match Expr::try_from_object(arg) {
            Ok(arg) => arg.dtype,
            Err(other) => return wrong(format!("{wanted} {place} of `{name}`, got `{}`", other.type_key())),
        };
        if !dtype.is_float() {
            return wrong(format!("{wanted} {place} of `{name}`, got {dtype} (`astype` converts it)"));
        }
        let first = *common.get_or_insert(dtype);
        if dtype != first {
            return wrong(format!("the arguments of `{name}` have different data types: {first} and {dtype}"));
        }
    }
    Ok(common)
}

/// Returns the vector type with the element type `dtype` and the given number of lanes.
fn of_lanes(dtype: DType, lanes: i32) -> Result<DType, Reason> {
    match u16::try_from(lanes) {
        Ok(lanes) if lanes >= 2 => Ok(dtype.with_lanes(lanes)),
        _ => wrong(format!("a vector cannot have {lanes} lanes")),
    }
}
