//! Reductions: values combined over axes.

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::expr::{BinaryOp, CommReducer, Expr, IterKind, IterVar, Reduce};
use anyfn_ir::kind::ExprKind;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::printer;

/// Creates the sum of a value over reduction axes.
///
/// # Errors
/// Returns `TypeError` if the value is not a number, or the error of [`reduce`].
pub fn sum(value: Expr, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    let identity = ops::number(0, value.dtype)?;
    simple(BinaryOp::Add, value, axis, identity)
}

/// Creates the product of a value over reduction axes.
///
/// # Errors
/// Returns `TypeError` if the value is not a number, or the error of [`reduce`].
pub fn prod(value: Expr, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    let identity = ops::number(1, value.dtype)?;
    simple(BinaryOp::Mul, value, axis, identity)
}

/// Creates the minimum of a value over reduction axes.
///
/// # Errors
/// Returns `TypeError` if the value is not a number, or the error of [`reduce`].
pub fn min(value: Expr, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    let identity = ops::limit(value.dtype, true)?;
    simple(BinaryOp::Min, value, axis, identity)
}

/// Creates the maximum of a value over reduction axes.
///
/// # Errors
/// Returns `TypeError` if the value is not a number, or the error of [`reduce`].
pub fn max(value: Expr, axis: Array<Ref<IterVar>>) -> Result<Expr> {
    let identity = ops::limit(value.dtype, false)?;
    simple(BinaryOp::Max, value, axis, identity)
}

fn simple(op: BinaryOp, value: Expr, axis: Array<Ref<IterVar>>, identity: Expr) -> Result<Expr> {
    let dtype = value.dtype;
    let reducer = reducer(
        &[dtype],
        |lhs, rhs| Ok([ops::binary(op, lhs.get(0)?, rhs.get(0)?)?].into_iter().collect()),
        [identity].into_iter().collect(),
    )?;
    let source = [value].into_iter().collect();
    reduce(&reducer, source, axis, ops::bool(true))?.get(0)
}

/// Creates a combiner for values of the data types `dtypes`. `combine` receives the values combined so far and the next
/// values, and returns the combined values.
///
/// # Errors
/// Returns the error of `combine`, and `TypeError` if the combined values or the identity differ from `dtypes` in number
/// or data type.
pub fn reducer(
    dtypes: &[DType],
    combine: impl FnOnce(Array<Expr>, Array<Expr>) -> Result<Array<Expr>>,
    identity: Array<Expr>,
) -> Result<Ref<CommReducer>> {
    let vars = |name: &str| -> Array<_> {
        dtypes.iter().enumerate().map(|(place, dtype)| ops::var(&format!("{name}{place}"), *dtype)).collect()
    };
    let (lhs, rhs) = (vars("x"), vars("y"));
    let exprs = |vars: &Array<Ref<anyfn_ir::expr::Var>>| vars.iter().map(Ref::into_parent).collect();
    let result = combine(exprs(&lhs), exprs(&rhs))?;
    for (what, values) in [("the combination", &result), ("the identity", &identity)] {
        let got: Vec<DType> = values.iter().map(|value| value.dtype).collect();
        if got != dtypes {
            bail!("TypeError", "{what} must return {dtypes:?} but returns {got:?}");
        }
    }
    Ok(Ref::new(CommReducer { lhs, rhs, result, identity }))
}

/// Creates the reduction of the values in `source` over axes. Only values for which `condition` holds are
/// combined. Returns one result for each expression in `source`.
///
/// # Errors
/// Returns `ValueError` if there are no axes or an axis is repeated. Returns `TypeError` if an axis was not created by
/// [`reduce_axis`](crate::reduce_axis), if the data types of the values differ from those of the reducer, or if the
/// condition is not Boolean.
pub fn reduce(
    reducer: &Ref<CommReducer>,
    source: Array<Expr>,
    axis: Array<Ref<IterVar>>,
    condition: Expr,
) -> Result<Array<Expr>> {
    if axis.is_empty() {
        bail!("ValueError", "a reduction needs at least one axis");
    }
    for (place, iter) in axis.iter().enumerate() {
        if axis.iter().take(place).any(|known| known.ptr_eq(&iter)) {
            bail!("ValueError", "axis `{}` occurs twice in a reduction", iter.var.name);
        }
        if iter.kind != IterKind::Reduce {
            bail!("TypeError", "`{}` is not a reduction axis; create one with `reduce_axis`", iter.var.name);
        }
    }
    let expected: Vec<DType> = reducer.identity.iter().map(|value| value.dtype).collect();
    let got: Vec<DType> = source.iter().map(|value| value.dtype).collect();
    if expected != got {
        bail!("TypeError", "the reducer combines {expected:?} but got {got:?}");
    }
    if !matches!(ExprKind::of(&condition), ExprKind::IntImm(_)) && !condition.dtype.is_bool() {
        bail!("TypeError", "a condition must be bool but got {}", condition.dtype);
    }
    (0..expected.len())
        .zip(&expected)
        .map(|(place, dtype)| {
            let base = anyfn_ir::expr::PrimExpr { dtype: *dtype };
            let (combiner, axis) = (reducer.clone(), axis.clone());
            let (source, condition) = (source.clone(), condition.clone());
            Ok(Reduce::make(base, combiner, axis, source, condition, place as i32))
        })
        .collect::<Result<Vec<_>>>()
        .map(|results| results.into_iter().collect())
}

/// Restricts a reduction to the values for which a condition holds. The condition may use the reduction axes.
///
/// # Errors
/// Returns `TypeError` if the expression is not a reduction or the condition is not Boolean.
pub fn only_where(reduction: &Expr, condition: Expr) -> Result<Expr> {
    let ExprKind::Reduce(node) = ExprKind::of(reduction) else {
        bail!("TypeError", "`{}` is not a reduction", printer::brief(reduction.as_object()));
    };
    reduce(&node.combiner, node.source.clone(), node.axis.clone(), condition)?.get(node.value_index as usize)
}
