//! Logical operations whose operands are both evaluated.

use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::visit::Visitor;

/// Returns true if the second of two conditions may be evaluated even if the first one decides the result. The first
/// condition must read elements. The second condition must not contain an index that depends on elements, a division or
/// a call.
///
/// GCC 12 loses the second operand of some `||` when it turns them into vectors of 512 bits, so the host evaluates both
/// operands by `|` where it may.
pub(super) fn is_eager(first: &Expr, second: &Expr) -> bool {
    struct Loads {
        /// Number of loads that contain the current expression. `deepest` is its maximum.
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
