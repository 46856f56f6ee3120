//! Logical operations for which both operands are evaluated.

use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::visit::Visitor;

/// Returns true if both operands of a logical operation may and should be evaluated. The first operand must
/// read buffer elements. The second operand must not contain a division, a call, or an index that depends on
/// buffer elements.
///
/// GCC 12 drops the second operand of some `||` operations when it vectorizes them for 512-bit vectors. The
/// host dialect therefore evaluates both operands by `|` where this is allowed.
pub(super) fn is_eager(first: &Expr, second: &Expr) -> bool {
    struct Loads {
        /// Number of buffer loads that enclose the current expression. `deepest` is the maximum of this
        /// number so far.
        depth: usize,
        deepest: usize,
        divides: bool,
    }
    impl Visitor for Loads {
        fn expr(&mut self, expr: &Expr) {
            let is_load = matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
            self.divides |= matches!(
                ExprKind::of(expr),
                ExprKind::Call(_)
                    | ExprKind::Binary(
                        BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod,
                        _
                    )
            );
            self.depth += usize::from(is_load);
            self.deepest = self.deepest.max(self.depth);
            self.below_expr(expr);
            self.depth -= usize::from(is_load);
        }
    }
    let loads = |expr: &Expr| {
        let mut loads = Loads { depth: 0, deepest: 0, divides: false };
        loads.expr(expr);
        loads
    };
    let second = loads(second);
    loads(first).deepest > 0 && second.deepest <= 1 && !second.divides
}
