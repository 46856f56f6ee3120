//! Unrolling of loops.

use anyfn::{Ref, Result};
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

/// Largest upper bound of a variable trip count for which a loop is still unrolled. The unrolled
/// loop has a condition around each iteration.
const MOST_CONDITIONS: i64 = 64;

/// Maximum number of conditions in an unrolled loop nest. `MOST_STATEMENTS` limits the number of
/// statements in the same way. C compilers take minutes to compile larger loop nests.
const MOST_NESTED: i64 = 256;
const MOST_STATEMENTS: i64 = 4096;

/// Numbers of statements and conditions in a loop body that is to be unrolled.
#[derive(Default)]
struct Size {
    statements: i64,
    conditions: i64,
}

impl Visitor for Size {
    fn expr(&mut self, _: &Expr) {}

    fn stmt(&mut self, stmt: &Stmt) {
        self.statements += i64::from(!matches!(StmtKind::of(stmt), StmtKind::SeqStmt(_)));
        self.conditions += i64::from(matches!(StmtKind::of(stmt), StmtKind::IfThenElse(_)));
        self.below_stmt(stmt);
    }
}

impl Size {
    fn allows(&self, repetitions: i64) -> bool {
        repetitions.saturating_mul(self.conditions) <= MOST_NESTED
            && repetitions.saturating_mul(self.statements.max(1)) <= MOST_STATEMENTS
    }
}

/// Unrolls the loops of kind `unrolled`.
///
/// A loop whose trip count is unknown but bounded by a constant gets a condition around each iteration. A loop whose
/// unrolled form would be too long becomes a serial loop.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn unroll(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    struct Unroll;
    impl Mutator for Unroll {
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let stmt = self.below_stmt(stmt)?;
            let StmtKind::For(node) = StmtKind::of(&stmt) else { return Ok(stmt) };
            let (ForKind::Unrolled, Some((most, extent))) = (node.kind, extent_of(&node.extent)) else {
                return Ok(stmt);
            };
            let mut size = Size::default();
            size.stmt(&node.body);
            if !size.allows(most) {
                let annotations = node.annotations.clone();
                return Ok(make::for_like(node, ForKind::Serial, node.body.clone(), annotations));
            }
            let mut bodies = Vec::new();
            for number in 0..most {
                let number = ops::int(number, node.min.dtype)?;
                let value = ops::add(node.min.clone(), number.clone())?;
                let body = simplified(&node.body, &node.loop_var, &value)?;
                bodies.push(match extent {
                    Some(extent) => make::if_then(ops::less(number, extent.clone())?, body, None)?,
                    None => body,
                });
            }
            Ok(make::seq(bodies))
        }
    }
    changed(func, Unroll.stmt(&func.body)?)
}

/// Returns the maximum trip count of a loop, and the expression for the actual trip count if that
/// may be smaller. Returns `None` if no maximum is known.
fn extent_of(extent: &Expr) -> Option<(i64, Option<&Expr>)> {
    match ExprKind::of(extent) {
        ExprKind::IntImm(number) => Some((number.value, None)),
        ExprKind::Binary(BinaryOp::Min, node) => match (as_int(&node.a), as_int(&node.b)) {
            (Some(most), None) if most <= MOST_CONDITIONS => Some((most, Some(&node.b))),
            (None, Some(most)) if most <= MOST_CONDITIONS => Some((most, Some(&node.a))),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the function with its body replaced by `body`.
pub(crate) fn changed(func: &Ref<PrimFunc>, body: Stmt) -> Result<Ref<PrimFunc>> {
    if body.ptr_eq(&func.body) {
        return Ok(func.clone());
    }
    let (params, buffer_map, attrs) = (func.params.clone(), func.buffer_map.clone(), func.attrs.clone());
    Ok(Ref::new(PrimFunc { params, buffer_map, body, attrs }))
}

/// Returns the statement with the variable `var` replaced by `value` and constants folded.
pub(crate) fn simplified(stmt: &Stmt, var: &Ref<Var>, value: &Expr) -> Result<Stmt> {
    struct Fold<'a>(&'a Ref<Var>, &'a Expr);
    impl Mutator for Fold<'_> {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            on_enough_stack(|| match ExprKind::of(expr) {
                ExprKind::Var(var) => Ok(if var.ptr_eq(self.0) { self.1.clone() } else { expr.clone() }),
                ExprKind::Binary(op, node) => {
                    let (a, b) = (self.expr(&node.a)?, self.expr(&node.b)?);
                    if a.ptr_eq(&node.a) && b.ptr_eq(&node.b) {
                        Ok(expr.clone())
                    } else {
                        ops::rebuilt(op, a, b)
                    }
                }
                _ => self.below_expr(expr),
            })
        }
    }
    Fold(var, value).stmt(stmt)
}
