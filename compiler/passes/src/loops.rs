//! Loops that are written out.

use anyfn::{Ref, Result};
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

/// Repetitions that are written out with a condition each, at most.
const MOST_CONDITIONS: i64 = 64;

/// Conditions, and statements, that a nest of loops is written out to, at most: more of them take a C compiler minutes.
const MOST_NESTED: i64 = 256;
const MOST_STATEMENTS: i64 = 4096;

/// What there is to be written out.
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

/// The function with unrolled loops written out; those whose number of repetitions is not known, but no more than some
/// number, with conditions. A nest of loops that would become too long keeps its outer ones.
///
/// # Errors
/// `MemoryError` when memory is short.
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

/// How often a loop is repeated at most, and the number that may be less.
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

/// The function with another body.
pub(crate) fn changed(func: &Ref<PrimFunc>, body: Stmt) -> Result<Ref<PrimFunc>> {
    if body.ptr_eq(&func.body) {
        return Ok(func.clone());
    }
    let (params, buffer_map, attrs) = (func.params.clone(), func.buffer_map.clone(), func.attrs.clone());
    Ok(Ref::new(PrimFunc { params, buffer_map, body, attrs }))
}

/// The statement with a variable replaced, and what becomes constant folded.
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
