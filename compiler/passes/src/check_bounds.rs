//! Bounds checks at run time.

use anyfn::{DType, Ref, Result};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::{Mutator, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::access::{Informed, PathStep};
use crate::loops::changed;
use crate::simplify::assume_shapes;

/// Inserts a bounds check before each statement with an access that is not proven to be in bounds, such as an
/// access whose index is read from another buffer. A failed check ends the call with `IndexError`.
///
/// Statements that have already been vectorized are not checked.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn check_bounds(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    let mut analyzer = Analyzer::new();
    assume_shapes(&mut analyzer, func)?;
    changed(func, CheckBounds { analyzer }.stmt(&func.body)?)
}

struct CheckBounds {
    analyzer: Analyzer,
}

impl Informed for CheckBounds {
    fn analyzer(&mut self) -> &mut Analyzer {
        &mut self.analyzer
    }
}

impl CheckBounds {
    /// Returns `stmt` preceded by bounds checks of the elements that `exprs` read and of the element that
    /// `write` sets.
    fn tested(&mut self, exprs: &[Expr], write: Option<(&Ref<Buffer>, Vec<Expr>)>, stmt: Stmt) -> Result<Stmt> {
        let mut loads = Loads { conditions: Vec::new(), found: Vec::new() };
        exprs.iter().for_each(|expr| loads.expr(expr));
        let mut found = loads.found;
        if let Some((buffer, indices)) = write {
            indices.iter().for_each(|index| {
                let mut loads = Loads { conditions: Vec::new(), found: Vec::new() };
                loads.expr(index);
                found.append(&mut loads.found);
            });
            found.push(Access { buffer: buffer.clone(), indices, conditions: Vec::new() });
        }
        let mut seq: Vec<Stmt> = Vec::new();
        for access in &found {
            seq.extend(self.tests(access)?);
        }
        if seq.is_empty() {
            return Ok(stmt);
        }
        seq.push(stmt);
        Ok(make::seq(seq))
    }

    fn tests(&mut self, access: &Access) -> Result<Vec<Stmt>> {
        let mark = self.analyzer.mark();
        for (condition, holds) in &access.conditions {
            if *holds { self.analyzer.assume(condition) } else { self.analyzer.assume_not(condition) }
        }
        let mut tests = Vec::new();
        let parts = access.indices.iter().zip(access.buffer.shape.iter()).enumerate();
        for (dimension, (index, extent)) in parts {
            if index.dtype.lanes() != 1 || !index.dtype.is_integer() {
                continue;
            }
            let (wide, limit) = match index.dtype == extent.dtype {
                true => (index.clone(), extent.clone()),
                false => (ops::cast(index.clone(), DType::INT64)?, ops::cast(extent.clone(), DType::INT64)?),
            };
            let zero = ops::int(0, wide.dtype)?;
            let mut inside: Option<Expr> = None;
            for test in
                [ops::binary(BinaryOp::Ge, wide.clone(), zero)?, ops::less(wide.clone(), limit.clone())?]
            {
                if !self.analyzer.can_prove(&test) {
                    inside = Some(match inside {
                        Some(other) => ops::and(other, test)?,
                        None => test,
                    });
                }
            }
            let Some(mut inside) = inside else { continue };
            // The access is executed only where the conditions around it hold.
            for (condition, holds) in access.conditions.iter().rev() {
                let passes_over = if *holds { ops::not(condition.clone())? } else { condition.clone() };
                inside = ops::or(passes_over, inside)?;
            }
            let message = [
                ops::string(&format!("dimension {dimension} of `{}` has extent ", access.buffer.name)),
                limit,
                ops::string(", but the index is "),
                wide,
            ];
            tests.push(make::assert_that(inside, "IndexError", message)?);
        }
        self.analyzer.restore(mark);
        Ok(tests)
    }
}

impl Mutator for CheckBounds {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                let indices = node.indices.iter().collect();
                self.tested(std::slice::from_ref(&node.value), Some((&node.buffer, indices)), stmt.clone())
            }
            StmtKind::Evaluate(node) => self.tested(std::slice::from_ref(&node.value), None, stmt.clone()),
            StmtKind::AssertStmt(node) => {
                let exprs: Vec<Expr> =
                    [node.condition.clone()].into_iter().chain(node.message.iter()).collect();
                self.tested(&exprs, None, stmt.clone())
            }
            StmtKind::For(node) => {
                let body = self.inside(&PathStep::Loop(node.clone()), &node.body)?;
                let new = match body.ptr_eq(&node.body) {
                    true => stmt.clone(),
                    false => make::for_with(node, node.min.clone(), node.extent.clone(), body),
                };
                self.tested(&[node.min.clone(), node.extent.clone()], None, new)
            }
            StmtKind::IfThenElse(node) => {
                let then_case =
                    self.inside(&PathStep::Branch(node.condition.clone(), true), &node.then_case)?;
                let else_case = match &node.else_case {
                    Some(other) => Some(self.inside(&PathStep::Branch(node.condition.clone(), false), other)?),
                    None => None,
                };
                let new = make::if_then(node.condition.clone(), then_case, else_case)?;
                self.tested(std::slice::from_ref(&node.condition), None, new)
            }
            StmtKind::LetStmt(node) => {
                let body = self.inside(&PathStep::Let(node.var.clone(), node.value.clone()), &node.body)?;
                let new = make::let_stmt(node.var.clone(), node.value.clone(), body)?;
                self.tested(std::slice::from_ref(&node.value), None, new)
            }
            StmtKind::Block(node) => {
                let mark = self.analyzer.mark();
                for axis in node.iter_vars.iter() {
                    self.analyzer.bind(&axis.var, &axis.dom.min, &axis.dom.extent);
                }
                let result = self.below_stmt(stmt);
                self.analyzer.restore(mark);
                result
            }
            _ => self.below_stmt(stmt),
        })
    }
}

/// Accessed element, and the conditions under which it is accessed.
struct Access {
    buffer: Ref<Buffer>,
    indices: Vec<Expr>,
    conditions: Vec<(Expr, bool)>,
}

/// Visitor that collects all elements that an expression reads. An element is listed after the elements that
/// its indices read.
struct Loads {
    conditions: Vec<(Expr, bool)>,
    found: Vec<Access>,
}

impl Loads {
    fn branch(&mut self, condition: &Expr, holds: bool, expr: &Expr) {
        let is_single = condition.dtype == DType::BOOL;
        if is_single {
            self.conditions.push((condition.clone(), holds));
        }
        self.expr(expr);
        if is_single {
            self.conditions.pop();
        }
    }
}

impl Visitor for Loads {
    fn expr(&mut self, expr: &Expr) {
        on_enough_stack(|| {
            match ExprKind::of(expr) {
                ExprKind::BufferLoad(node) => {
                    self.below_expr(expr);
                    let conditions = self.conditions.clone();
                    let indices = node.indices.iter().collect();
                    self.found.push(Access { buffer: node.buffer.clone(), indices, conditions });
                }
                ExprKind::Select(node) => {
                    self.expr(&node.condition);
                    self.branch(&node.condition, true, &node.true_value);
                    self.branch(&node.condition, false, &node.false_value);
                }
                ExprKind::Binary(op, node) if op.is_logical() => {
                    self.expr(&node.a);
                    self.branch(&node.a, op == BinaryOp::And, &node.b);
                }
                // The variable is visible only in the body, so accesses in the body are not checked.
                ExprKind::Let(node) => self.expr(&node.value),
                ExprKind::Reduce(_) => {}
                _ => self.below_expr(expr),
            }
        })
    }
}
