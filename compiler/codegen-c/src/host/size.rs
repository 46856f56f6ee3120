//! Code generation for sizes whose overflow must be detected: extents of arguments and sizes of allocations.

use anyfn::Result;
use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::kind::as_int;
use anyfn_ir::visit::on_enough_stack;

use crate::family::Body;
use crate::host::Host;

impl Body<'_, Host> {
    /// Generates an extent as an `int64_t` expression. If a sum, difference or product overflows,
    /// its value is the largest or smallest `int64_t`.
    pub(super) fn size(&mut self, expr: &Expr) -> Result<String> {
        on_enough_stack(|| {
            let ExprKind::Binary(op, node) = ExprKind::of(expr) else {
                return Ok(format!("(int64_t)({})", self.place(expr)?));
            };
            let is_by_positive = as_int(&node.b).is_some_and(|by| by > 0);
            let name = match op {
                BinaryOp::Add => "sized_add",
                BinaryOp::Sub => "sized_sub",
                BinaryOp::Mul => "sized_mul",
                BinaryOp::FloorDiv if is_by_positive => "floordiv",
                BinaryOp::FloorMod if is_by_positive => "floormod",
                BinaryOp::Min => "min_int64_t",
                BinaryOp::Max => "max_int64_t",
                _ => return Ok(format!("(int64_t)({})", self.place(expr)?)),
            };
            Ok(format!("anyfn_{name}({}, {})", self.size(&node.a)?, self.size(&node.b)?))
        })
    }
}
