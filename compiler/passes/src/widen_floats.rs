//! What is computed with numbers of 16 bits is computed with longer ones.

use anyfn::abi::kDLFloat;
use anyfn::{DType, ObjectRef, Ref, Result};
use anyfn_ir::ExprKind;
use anyfn_ir::expr::Expr;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::visit::{Mutator, Rewrite, on_enough_stack};

use crate::loops::changed;

/// The function with each operation on `float16` and `bfloat16` done in `float32`, and its result rounded: what is stored in
/// memory and variables is as short as before, and each result is what the operation itself would give.
///
/// What is left for code generators is to convert them from `float32`, and to it; and from `float64`, so that nothing is
/// rounded twice.
///
/// # Errors
/// `MemoryError` when memory is short.
pub fn widen_floats(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, Rewrite(widened).stmt(&func.body)?)
}

/// A value of 16 bits as one of 32; others stay.
fn wide(value: Expr) -> Result<Expr> {
    on_enough_stack(|| {
        if !value.dtype.is_half() {
            return Ok(value);
        }
        let dtype = DType::FLOAT32.with_lanes(value.dtype.lanes());
        match ExprKind::of(&value) {
            // Once instead of for each lane.
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
            // Longer integers are not exact in 32 bits; where that matters, a float16 has ended.
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
