//! The compiler for other languages: registered functions, and nothing else.

use anyfn::{Any, AnyView, Array, DType, Map, Module, ObjectRef, PackedFunc, Ref, Result, bail, register};
use anyfn_ir::expr::{BinaryOp, CommReducer, Expr, IterVar, Var};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::operand::{Operand, exprs};
use anyfn_ir::{ops, printer};
use anyfn_te::Tensor;

/// A new variable.
#[register("tir.var")]
fn var(name: &str, #[default("int32")] dtype: DType) -> Ref<Var> {
    ops::var(name, dtype)
}

/// A constant: an int, float or bool as a value of a data type.
#[register("tir.const")]
fn constant(value: Operand, dtype: Option<DType>) -> Result<Expr> {
    let Some(dtype) = dtype else { return Ok(value.0) };
    let Operand(value) = value;
    match anyfn_ir::ExprKind::of(&value) {
        anyfn_ir::ExprKind::IntImm(node) if dtype.to_string().starts_with("bool") => {
            Ok(ops::bool(node.value != 0))
        }
        anyfn_ir::ExprKind::IntImm(node) => ops::number(node.value, dtype),
        anyfn_ir::ExprKind::FloatImm(node) => ops::float(node.value, dtype),
        _ => bail!("TypeError", "a constant is an int, float or bool, not `{}`", value.as_object().type_key()),
    }
}

/// A text as an argument of a call.
#[register("tir.string")]
fn string(text: &str) -> Expr {
    ops::string(text)
}

/// An operation on two values, by its sign: `+`, `//`, `min`, `<=`, ..
#[register("tir.binary")]
fn binary(op: &str, a: Operand, b: Operand) -> Result<Expr> {
    match BinaryOp::ALL.iter().find(|known| known.text() == op) {
        Some(op) => ops::binary(*op, a.0, b.0),
        None => bail!("ValueError", "there is no operation `{op}`"),
    }
}

/// The opposite of a truth value.
#[register("tir.not")]
fn not(a: Operand) -> Result<Expr> {
    ops::not(a.0)
}

/// A value with the other sign.
#[register("tir.neg")]
fn neg(a: Operand) -> Result<Expr> {
    let zero = ops::number(0, a.0.dtype)?;
    ops::sub(zero, a.0)
}

/// A value converted to another data type.
#[register("tir.cast")]
fn cast(value: Operand, dtype: DType) -> Result<Expr> {
    ops::cast(value.0, dtype)
}

/// One of two values; both are computed.
#[register("tir.select")]
fn select(condition: Operand, true_value: Operand, false_value: Operand) -> Result<Expr> {
    ops::select(condition.0, true_value.0, false_value.0)
}

/// A call of a function that code generators know, such as `exp`. Without a data type it is that of the first argument.
#[register("tir.call")]
fn call(op: &str, args: Vec<Operand>, dtype: Option<DType>) -> Result<Expr> {
    let first = args.first().map(|arg| arg.0.dtype);
    let Some(dtype) = dtype.or(first) else { bail!("TypeError", "the data type of `{op}()` is not known") };
    Ok(ops::call(dtype, op, args.into_iter().map(|arg| arg.0.into_object())))
}

/// An expression, statement, function or module as text.
#[register("tir.text")]
fn text(node: ObjectRef) -> String {
    printer::text(&node)
}

/// A module of functions, by the names under which they are called.
#[register("tir.module")]
fn module(functions: Map<anyfn::String, Ref<PrimFunc>>) -> Ref<IRModule> {
    Ref::new(IRModule { functions, attrs: Map::new() })
}

/// A tensor that is given when the function is called.
#[register("te.placeholder")]
fn placeholder(
    shape: Vec<Operand>,
    #[default("float32")] dtype: DType,
    #[default("placeholder")] name: &str,
) -> Result<Ref<Tensor>> {
    anyfn_te::placeholder(exprs(shape), dtype, name)
}

/// A tensor whose elements a function computes from their indices; several, if it gives several values.
#[register("te.compute")]
fn compute(shape: Vec<Operand>, element: PackedFunc, #[default("compute")] name: &str) -> Result<Any> {
    let mut is_one = false;
    let tensors = anyfn_te::compute_several(exprs(shape), name, |indices| {
        let views: Vec<AnyView<'_>> = indices.as_slice().iter().map(Any::as_view).collect();
        let result = element.call_views(&views)?;
        if let Ok(value) = result.get::<Operand>() {
            is_one = true;
            return Ok([value.0].into_iter().collect());
        }
        result.get::<Vec<Operand>>().map(exprs)
    })?;
    if is_one { Any::new(tensors.get(0)?) } else { Any::new(tensors) }
}

/// An axis over which values are combined.
#[register("te.reduce_axis")]
fn reduce_axis(min: Operand, extent: Operand, #[default("k")] name: &str) -> Result<Ref<IterVar>> {
    anyfn_te::reduce_axis(min.0, extent.0, name)
}

/// An element of a tensor.
#[register("te.element")]
fn element(tensor: Ref<Tensor>, indices: Vec<Operand>) -> Result<Expr> {
    anyfn_te::element(&tensor, exprs(indices))
}

/// The sum over axes.
#[register("te.sum")]
fn sum(value: Operand, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    anyfn_te::sum(value.0, axis)
}

/// The smallest value over axes.
#[register("te.min")]
fn min(value: Operand, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    anyfn_te::min(value.0, axis)
}

/// The largest value over axes.
#[register("te.max")]
fn max(value: Operand, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    anyfn_te::max(value.0, axis)
}

/// A way to combine values: a function of what has been combined and of what comes next, and what to begin with.
#[register("te.reducer")]
fn reducer(combine: PackedFunc, identity: Vec<Operand>) -> Result<Ref<CommReducer>> {
    let identity = exprs(identity);
    let dtypes: Vec<DType> = identity.iter().map(|value| value.dtype).collect();
    let combine = |lhs: Array<Expr>, rhs: Array<Expr>| {
        let result = if dtypes.len() == 1 {
            combine.call((lhs.get(0)?, rhs.get(0)?))?
        } else {
            combine.call((lhs, rhs))?
        };
        match result.get::<Operand>() {
            Ok(value) => Ok([value.0].into_iter().collect()),
            Err(_) => result.get::<Vec<Operand>>().map(exprs),
        }
    };
    anyfn_te::reducer(&dtypes, combine, identity)
}

/// Values combined over axes by a reducer, where a condition holds.
#[register("te.reduce")]
fn reduce(
    reducer: Ref<CommReducer>,
    source: Vec<Operand>,
    axis: Array<Ref<IterVar>>,
    condition: Option<Operand>,
) -> Result<Array<Expr>> {
    let condition = condition.map_or_else(|| ops::bool(true), |condition| condition.0);
    anyfn_te::reduce(&reducer, exprs(source), axis, condition)
}

/// A function that computes tensors.
#[register("te.create_prim_func")]
fn create_prim_func(args: Vec<ObjectRef>, #[default("main")] name: &str) -> Result<Ref<PrimFunc>> {
    anyfn_te::create_prim_func(&args, name)
}

/// The module as code generators take it.
#[register("compiler.lower")]
fn lower(module: Ref<IRModule>) -> Result<Ref<IRModule>> {
    crate::lower(&module)
}

/// The C source of a module.
#[register("compiler.source")]
fn source(module: Ref<IRModule>) -> Result<String> {
    crate::source(&module)
}

/// A module compiled for this machine and loaded.
#[register("compiler.build", blocking)]
fn build(module: Ref<IRModule>) -> Result<Module> {
    crate::build(&module)
}
