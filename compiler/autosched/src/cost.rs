//! Estimates of the cost of expressions and statements.

use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::Visitor;

/// Cost of a call of a function, in simple operations per lane of a vector.
const CALL: i64 = 16;
const DIVISION: i64 = 4;

#[derive(Default)]
struct Cost {
    operations: i64,
    loads: i64,
    calls: i64,
}

impl Visitor for Cost {
    fn expr(&mut self, expr: &Expr) {
        self.operations += match ExprKind::of(expr) {
            ExprKind::Binary(BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod, _) => {
                DIVISION
            }
            ExprKind::Binary(..) | ExprKind::Select(_) | ExprKind::Not(_) | ExprKind::Cast(_) => 1,
            ExprKind::Call(_) | ExprKind::Other => {
                self.calls += 1;
                CALL
            }
            ExprKind::BufferLoad(_) => {
                self.loads += 1;
                // Computations of indices are not counted.
                return;
            }
            _ => 0,
        };
        self.below_expr(expr);
    }
}

/// Returns the cost of an expression in simple operations. Loads and the computation of their
/// indices are not counted.
pub(crate) fn of_expr(expr: &Expr) -> i64 {
    let mut cost = Cost::default();
    cost.expr(expr);
    cost.operations
}

/// Returns the cost of a statement in simple operations. A load costs one operation, and the
/// computation of its indices is not counted.
pub(crate) fn of_stmt(stmt: &Stmt) -> i64 {
    let mut cost = Cost::default();
    cost.stmt(stmt);
    cost.operations + cost.loads
}
