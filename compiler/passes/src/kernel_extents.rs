//! Extents of the loops of kernels, which host code computes without overflow.

use anyfn::{DType, Ref, Result};
use anyfn_ir::expr::{Binary, BinaryOp, Expr};
use anyfn_ir::kind::as_int;
use anyfn_ir::stmt::{For, Stmt};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, make, ops};

/// Returns the number of blocks or threads along an axis, or 0 for a negative extent. Computes an `int32` in `int64`.
pub(crate) fn launched(extent: &Expr) -> Result<Expr> {
    if as_int(extent).is_some() {
        return Ok(extent.clone());
    }
    let extent = if is_narrow(extent) { wide(extent)? } else { extent.clone() };
    let none = ops::int(0, extent.dtype)?;
    ops::binary(BinaryOp::Max, extent, none)
}

/// Returns assertions that the loops of a kernel do not run more iterations than `int32` can count, as far as this depends
/// on products and on the splits of loops. Kernels compute the indices of such loops in `int32`. All extents must consist of
/// values that the host knows. `function` is the name of the function in messages.
pub(crate) fn checks(function: &str, loops: &[Ref<For>]) -> Result<Vec<Stmt>> {
    let mut found: Vec<(Expr, i64)> = Vec::new();
    let mut checks = Vec::new();
    for node in loops.iter().filter(|node| is_narrow(&node.extent)) {
        limits(&node.extent, node.kind.is_bound(), &mut |value, most| {
            if found.iter().any(|(known, least)| *least == most && make::is_equal(known, &value)) {
                return Ok(());
            }
            found.push((value.clone(), most));
            let limit = |op, limit| ops::binary(op, value.clone(), ops::int(limit, DType::INT64)?);
            // The lower limit keeps the product of more than two factors within `int64`.
            let fits = ops::binary(
                BinaryOp::And,
                limit(BinaryOp::Le, most)?,
                limit(BinaryOp::Ge, i64::from(i32::MIN))?,
            )?;
            let message = [
                ops::string(&format!("{function}: loop `{}` would run ", node.loop_var.name)),
                value,
                ops::string(" iterations, more than int32 can count"),
            ];
            checks.push(make::assert_that(fits, "OverflowError", message)?);
            Ok(())
        })?;
    }
    Ok(checks)
}

fn is_narrow(expr: &Expr) -> bool {
    expr.dtype == DType::INT32
}

/// Passes the values in an extent that `int32` must be able to represent to `add`, each with its largest value, and operands
/// first.
fn limits(expr: &Expr, is_launched: bool, add: &mut dyn FnMut(Expr, i64) -> Result<()>) -> Result<()> {
    on_enough_stack(|| {
        let ExprKind::Binary(op, node) = ExprKind::of(expr) else { return Ok(()) };
        limits(&node.a, is_launched, add)?;
        limits(&node.b, is_launched, add)?;
        if op == BinaryOp::Mul {
            add(wide(expr)?, i64::from(i32::MAX))?;
        }
        let Some(factor) = divisor(op, node) else { return Ok(()) };
        if !is_launched {
            add(wide(&node.a)?, i64::from(i32::MAX))?;
        }
        // A split loop ends at a multiple of the factor, which is one more than the largest index.
        if !is_rounded_up(&node.a, factor) {
            add(ops::binary(BinaryOp::Mul, wide(expr)?, ops::int(factor, DType::INT64)?)?, 1 << 31)?;
        }
        Ok(())
    })
}

/// Returns true for the dividend of a value of `int32` that is divided by a power of 2 and rounded up. Rounded up to a
/// multiple of the factor, no such value exceeds 2^31.
fn is_rounded_up(dividend: &Expr, factor: i64) -> bool {
    let ExprKind::Binary(BinaryOp::Add, sum) = ExprKind::of(dividend) else { return false };
    let is_value = matches!(ExprKind::of(&sum.a), ExprKind::Var(_) | ExprKind::Binary(BinaryOp::Mul, _));
    is_value && as_int(&sum.b) == Some(factor - 1) && factor.count_ones() == 1
}

/// Returns the divisor of a quotient by a constant.
fn divisor(op: BinaryOp, node: &Binary) -> Option<i64> {
    as_int(&node.b).filter(|by| op == BinaryOp::FloorDiv && *by > 0)
}

/// Returns the value of an `int32` expression as `int64`, computed in `int64`.
fn wide(expr: &Expr) -> Result<Expr> {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Binary(op, node)
            if matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max)
                || (matches!(op, BinaryOp::FloorDiv | BinaryOp::FloorMod)
                    && as_int(&node.b).is_some_and(|by| by > 0)) =>
        {
            ops::binary(op, wide(&node.a)?, wide(&node.b)?)
        }
        _ => ops::cast(expr.clone(), DType::INT64),
    })
}
