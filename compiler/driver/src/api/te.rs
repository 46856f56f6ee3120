//! Global functions `te.*`: tensor expressions.

use anyfn::{Any, AnyView, Array, DType, Error, ObjectRef, PackedFunc, Ref, Result, bail, register};
use anyfn_ir::expr::{CommReducer, Expr, IterVar};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::operand::{Operand, exprs};
use anyfn_ir::stmt::StmtNode;
use anyfn_ir::{make, ops};
use anyfn_te::Tensor;

/// Creates an input tensor, whose elements are passed to the compiled function as an argument.
#[register("te.placeholder")]
fn placeholder(
    shape: Vec<Operand>,
    #[default("float32")] dtype: DType,
    #[default("placeholder")] name: &str,
) -> Result<Ref<Tensor>> {
    anyfn_te::placeholder(exprs(shape), dtype, name)
}

/// Creates a tensor. `element` receives the indices of an element and returns its value. If
/// `element` returns several values, creates a tensor for each value and returns an array of the
/// tensors.
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

/// Creates a reduction axis that takes `extent` consecutive values, beginning with `min`.
#[register("te.reduce_axis")]
fn reduce_axis(min: Operand, extent: Operand, #[default("k")] name: &str) -> Result<Ref<IterVar>> {
    anyfn_te::reduce_axis(min.0, extent.0, name)
}

/// Returns an expression that reads an element of a tensor.
#[register("te.element")]
fn element(tensor: Ref<Tensor>, indices: Vec<Operand>) -> Result<Expr> {
    anyfn_te::element(&tensor, exprs(indices))
}

/// Returns an expression for the sum of `value` over reduction axes. If `where` is given, only
/// values for which the condition `where` holds are added.
#[register("te.sum")]
fn sum(value: Operand, axis: Array<Ref<IterVar>>, #[default(None)] r#where: Option<Operand>) -> Result<Expr> {
    limited(anyfn_te::sum(value.0, axis)?, r#where)
}

/// Returns an expression for the product of `value` over reduction axes. If `where` is given, only
/// values for which the condition `where` holds are multiplied.
#[register("te.prod")]
fn prod(value: Operand, axis: Array<Ref<IterVar>>, #[default(None)] r#where: Option<Operand>) -> Result<Expr> {
    limited(anyfn_te::prod(value.0, axis)?, r#where)
}

/// Returns an expression for the minimum of `value` over reduction axes. If `where` is given, only
/// values for which the condition `where` holds are compared.
#[register("te.min")]
fn min(value: Operand, axis: Array<Ref<IterVar>>, #[default(None)] r#where: Option<Operand>) -> Result<Expr> {
    limited(anyfn_te::min(value.0, axis)?, r#where)
}

/// Returns an expression for the maximum of `value` over reduction axes. If `where` is given, only
/// values for which the condition `where` holds are compared.
#[register("te.max")]
fn max(value: Operand, axis: Array<Ref<IterVar>>, #[default(None)] r#where: Option<Operand>) -> Result<Expr> {
    limited(anyfn_te::max(value.0, axis)?, r#where)
}

fn limited(reduction: Expr, condition: Option<Operand>) -> Result<Expr> {
    match condition {
        Some(condition) => anyfn_te::only_where(&reduction, condition.0),
        None => Ok(reduction),
    }
}

/// Creates a reducer. `combine` receives the values combined so far and the next values, and returns the combined
/// values. `identity` contains the initial values.
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

/// Combines the values `source` over reduction axes by a reducer, and returns an expression for
/// each result. If `condition` is given, only values for which the condition holds are combined.
#[register("te.reduce")]
fn reduce(
    reducer: Ref<CommReducer>,
    source: Vec<Operand>,
    axis: Array<Ref<IterVar>>,
    #[default(None)] condition: Option<Operand>,
) -> Result<Array<Expr>> {
    let condition = condition.map_or_else(|| ops::bool(true), |condition| condition.0);
    anyfn_te::reduce(&reducer, exprs(source), axis, condition)
}

/// Creates tensors that a statement computes from the tensors `inputs`. `body(inputs, results)` receives a buffer for
/// each input and result, and returns the statement or a call.
#[register("te.extern")]
fn external(
    shapes: Vec<Vec<Operand>>,
    dtypes: Vec<DType>,
    inputs: Vec<Ref<Tensor>>,
    body: PackedFunc,
    #[default("extern")] name: &str,
) -> Result<Vec<Ref<Tensor>>> {
    if shapes.len() != dtypes.len() {
        bail!("ValueError", "`{name}` has {} shapes but {} data types", shapes.len(), dtypes.len());
    }
    let results = shapes.into_iter().map(exprs).zip(dtypes).collect();
    anyfn_te::external(results, &inputs, name, |inputs, results| {
        let result = body.call((inputs.to_vec(), results.to_vec()))?;
        match result.get::<Ref<StmtNode>>() {
            Ok(stmt) => Ok(stmt),
            Err(_) => Ok(make::evaluate(result.get::<Expr>().map_err(|_| {
                let got = result.type_key();
                Error::new(
                    "TypeError",
                    &format!("the body of `{name}` must be a statement or a call but is `{got}`"),
                )
            })?)),
        }
    })
}

/// Creates a function that computes tensors. `args` contains the arguments of the function: placeholders,
/// variables, and the computed tensors.
#[register("te.create_prim_func")]
fn create_prim_func(args: Vec<ObjectRef>, #[default("main")] name: &str) -> Result<Ref<PrimFunc>> {
    anyfn_te::create_prim_func(&args, name)
}
