//! Computes operations on 16-bit floating-point numbers in wider types.

use anyfn::abi::kDLFloat;
use anyfn::{DType, ObjectRef, Ref, Result};
use anyfn_ir::ExprKind;
use anyfn_ir::expr::Expr;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::visit::{Mutator, Rewrite, on_enough_stack};

use crate::loops::changed;

/// Rewrites operations on `float16` and `bfloat16` values so that each is computed in `float32` and
/// its result is rounded.
///
/// Values in memory and variables keep their 16 bits, and each result is the same as that of the operation on 16-bit
/// numbers. After this pass, code generators need only the conversions between these types and `float32`, and the
/// conversion from `float64`, which avoids rounding twice.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn widen_floats(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, Rewrite(widened).stmt(&func.body)?)
}

/// Converts a 16-bit floating-point value to `float32`. Returns other values unchanged.
fn wide(value: Expr) -> Result<Expr> {
    on_enough_stack(|| {
        if !value.dtype.is_half() {
            return Ok(value);
        }
        let dtype = DType::FLOAT32.with_lanes(value.dtype.lanes());
        match ExprKind::of(&value) {
            // Convert the value once instead of once for each lane.
            ExprKind::Broadcast(node) => ops::splat(wide(node.value.clone())?, dtype.lanes()),
            _ => ops::cast(value, dtype),
        }
    })
}

fn widened(expr: &Expr) -> Result<Option<Expr>> {
    let dtype = expr.dtype;
    let single = DType::FLOAT32.with_lanes(dtype.lanes());
    Ok(Some(match ExprKind::of(expr) {
        ExprKind::Binary(op, node) if node.a.dtype.is_half() => {
            ops::cast(ops::binary(op, wide(node.a.clone())?, wide(node.b.clone())?)?, dtype)?
        }
        ExprKind::Cast(node) if node.value.dtype.is_half() => {
            let value = wide(node.value.clone())?;
            if dtype == single { return Ok(None) } else { ops::cast(value, dtype)? }
        }
        ExprKind::Cast(node) if dtype.is_half() && !node.value.dtype.is_float() => {
            let from = node.value.dtype;
            // Integers of more than 16 bits may be inexact in float32, but the inexact ones are beyond the
            // range of float16.
            let is_exact = from.is_bool() || from.0.bits <= 16 || dtype.0.code == kDLFloat;
            let middle = if is_exact { single } else { DType::FLOAT64.with_lanes(dtype.lanes()) };
            ops::cast(ops::cast(node.value.clone(), middle)?, dtype)?
        }
        ExprKind::Call(node) => {
            let is_half =
                |arg: &ObjectRef| Expr::try_from_object(arg.clone()).is_ok_and(|arg| arg.dtype.is_half());
            if !dtype.is_half() && !node.args.iter().any(|arg| is_half(&arg)) {
                return Ok(None);
            }
            let args = node.args.iter().map(|arg| match Expr::try_from_object(arg) {
                Ok(arg) => wide(arg).map(Ref::into_object),
                Err(arg) => Ok(arg),
            });
            let args: Vec<ObjectRef> = args.collect::<Result<_>>()?;
            ops::cast(ops::call(if dtype.is_half() { single } else { dtype }, &node.op, args), dtype)?
        }
        _ => return Ok(None),
    }))
}
