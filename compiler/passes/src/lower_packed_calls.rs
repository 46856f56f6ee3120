//! Moves calls of packed functions out of expressions: each becomes a statement or the value of a variable.

use anyfn::{Array, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::{Mutator, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make, ops, packed};

/// Moves calls of packed functions out of expressions, in front of the statements that contain
/// them. In front of a statement, code generators can allocate arguments and end the function with
/// an error, which is impossible within an expression.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn lower_packed_calls(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    let body = TakeOut::default().stmt(&func.body)?;
    Ok(PrimFunc::with_body(func.clone(), body))
}

#[derive(Default)]
struct TakeOut {
    /// Code that was extracted from the expressions of the current statement.
    taken: Vec<Taken>,
}

/// Code that was extracted from an expression, to be executed in front of the statement that
/// contains the expression.
enum Taken {
    /// Definition of a variable whose value contains a call of a packed function.
    Value(Ref<Var>, Expr),
    /// Buffer for the value of a conditional expression, and the conditional statement that stores the value
    /// in it.
    Branch(Ref<Buffer>, Stmt),
}

impl TakeOut {
    /// Replaces a conditional expression by a load from a buffer, which a conditional statement sets. Calls in the two
    /// values are made only in the branch that is taken.
    fn branch(&mut self, condition: &Expr, true_value: &Expr, false_value: &Expr) -> Result<Expr> {
        let condition = self.expr(condition)?;
        let zero: Array<Expr> = [ops::i32(0)].into_iter().collect();
        let buffer = make::buffer("chosen", [ops::i32(1)].into_iter().collect(), true_value.dtype);
        let mut store = |value: &Expr| {
            let outer = std::mem::take(&mut self.taken);
            let value = self.expr(value)?;
            let taken = std::mem::replace(&mut self.taken, outer);
            before(taken, make::store(&buffer, value, zero.clone())?)
        };
        let (then_case, else_case) = (store(true_value)?, store(false_value)?);
        let stmt = make::if_then(condition, then_case, Some(else_case))?;
        let value = ops::load(&buffer, zero)?;
        self.taken.push(Taken::Branch(buffer, stmt));
        Ok(value)
    }
}

/// Returns the statement with the extracted code `taken` in front of it.
fn before(taken: Vec<Taken>, stmt: Stmt) -> Result<Stmt> {
    taken.into_iter().rev().try_fold(stmt, |body, taken| match taken {
        Taken::Value(var, value) => make::let_stmt(var, value, body),
        Taken::Branch(buffer, stmt) => Ok(make::allocate(buffer, make::seq([stmt, body]))),
    })
}

impl Mutator for TakeOut {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        // The code in front of this statement is separate from the code in front of the enclosing one.
        let outer = std::mem::take(&mut self.taken);
        let new = match StmtKind::of(stmt) {
            // A call that is a statement stays in place. Only calls in its arguments are moved.
            StmtKind::Evaluate(node) if packed::as_packed(&node.value).is_some() => {
                let value = self.below_expr(&node.value)?;
                if value.ptr_eq(&node.value) { stmt.clone() } else { make::evaluate(value) }
            }
            StmtKind::LetStmt(node) if packed::as_packed(&node.value).is_some() => {
                let value = self.below_expr(&node.value)?;
                let body = self.stmt(&node.body)?;
                if value.ptr_eq(&node.value) && body.ptr_eq(&node.body) {
                    stmt.clone()
                } else {
                    make::let_stmt(node.var.clone(), value, body)?
                }
            }
            _ => self.below_stmt(stmt)?,
        };
        let taken = std::mem::replace(&mut self.taken, outer);
        before(taken, new)
    }

    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Call(_) if packed::as_packed(expr).is_some() => {
                let call = self.below_expr(expr)?;
                let var = ops::var("result", expr.dtype);
                self.taken.push(Taken::Value(var.clone(), call));
                Ok(var.into_parent())
            }
            // Calls moved out of the body may need the variable.
            ExprKind::Let(node) if contains_call(&node.body) => {
                let value = self.expr(&node.value)?;
                self.taken.push(Taken::Value(node.var.clone(), value));
                self.expr(&node.body)
            }
            // A value that is not selected is not computed.
            ExprKind::Select(node)
                if expr.dtype.lanes() == 1
                    && (contains_call(&node.true_value) || contains_call(&node.false_value)) =>
            {
                self.branch(&node.condition, &node.true_value, &node.false_value)
            }
            ExprKind::Binary(BinaryOp::And, node) if expr.dtype.lanes() == 1 && contains_call(&node.b) => {
                self.branch(&node.a, &node.b, &ops::bool(false))
            }
            ExprKind::Binary(BinaryOp::Or, node) if expr.dtype.lanes() == 1 && contains_call(&node.b) => {
                self.branch(&node.a, &ops::bool(true), &node.b)
            }
            _ => self.below_expr(expr),
        })
    }
}

fn contains_call(expr: &Expr) -> bool {
    struct Find(bool);
    impl anyfn_ir::visit::Visitor for Find {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= packed::as_packed(expr).is_some();
            self.below_expr(expr);
        }
    }
    let mut find = Find(false);
    anyfn_ir::visit::Visitor::expr(&mut find, expr);
    find.0
}
