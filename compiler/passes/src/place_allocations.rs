//! Moves allocations to the statements that use the memory.

use anyfn::{Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::{Mutator, on_enough_stack};
use anyfn_ir::{StmtKind, make};

use crate::access::{self, Access, PathStep};
use crate::loops::changed;

/// Moves the allocation of each buffer to the innermost statement that contains all its uses.
///
/// An allocation moves into a loop only if each iteration writes the elements that it reads, so that no value is
/// carried from one iteration to the next. Each iteration of a parallel loop then has its own buffer. No value is carried
/// between blocks of threads, which run in any order, so an allocation always moves into a loop over them: otherwise, blocks
/// that compute the same elements would write them while others read them. A buffer with the scope `shared` moves into a loop over blocks of threads, but not into a parallel loop or a loop over the threads of a
/// block. Blocks must be lowered before; nothing is moved inside a block.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn place_allocations(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, AllocationPlacer { outer: Vec::new() }.stmt(&func.body)?)
}

struct AllocationPlacer {
    /// Path from the body of the function to the current statement.
    outer: Vec<PathStep>,
}

impl AllocationPlacer {
    fn inside(&mut self, frame: PathStep, stmt: &Stmt) -> Result<Stmt> {
        self.outer.push(frame);
        let result = self.stmt(stmt);
        self.outer.pop();
        result
    }
}

impl Mutator for AllocationPlacer {
    fn expr(&mut self, expr: &anyfn_ir::expr::Expr) -> Result<anyfn_ir::expr::Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::Allocate(node) => {
                let body = self.stmt(&node.body)?;
                let Some(accesses) = access::accesses(&node.buffer, &body) else {
                    return Ok(if body.ptr_eq(&node.body) {
                        stmt.clone()
                    } else {
                        make::allocate(node.buffer.clone(), body)
                    });
                };
                let sink = Sink { buffer: &node.buffer, accesses, outer: &self.outer };
                sink.stmt(&body, 0)
            }
            StmtKind::For(node) => {
                let body = self.inside(PathStep::Loop(node.clone()), &node.body)?;
                if body.ptr_eq(&node.body) {
                    return Ok(stmt.clone());
                }
                Ok(make::for_with(node, node.min.clone(), node.extent.clone(), body))
            }
            StmtKind::IfThenElse(node) => {
                let then_case = self.inside(PathStep::Branch(node.condition.clone(), true), &node.then_case)?;
                let else_case = match &node.else_case {
                    Some(other) => Some(self.inside(PathStep::Branch(node.condition.clone(), false), other)?),
                    None => None,
                };
                let is_same = then_case.ptr_eq(&node.then_case)
                    && else_case.iter().zip(&node.else_case).all(|(new, old)| new.ptr_eq(old));
                if is_same {
                    Ok(stmt.clone())
                } else {
                    make::if_then(node.condition.clone(), then_case, else_case)
                }
            }
            StmtKind::LetStmt(node) => {
                let body = self.inside(PathStep::Let(node.var.clone(), node.value.clone()), &node.body)?;
                if body.ptr_eq(&node.body) {
                    return Ok(stmt.clone());
                }
                make::let_stmt(node.var.clone(), node.value.clone(), body)
            }
            _ => self.below_stmt(stmt),
        })
    }
}

/// Allocation that is being moved to an inner statement.
struct Sink<'a> {
    buffer: &'a Ref<Buffer>,
    accesses: Vec<Access>,
    outer: &'a [PathStep],
}

impl Sink<'_> {
    /// Returns the statement with the allocation moved into it as far as possible. `depth` is the number of levels
    /// between the original allocation and the statement.
    fn stmt(&self, stmt: &Stmt, depth: usize) -> Result<Stmt> {
        on_enough_stack(|| self.stmt_here(stmt, depth))
    }

    fn uses(&self, stmt: &Stmt) -> bool {
        access::uses(self.buffer, stmt)
    }

    fn stmt_here(&self, stmt: &Stmt, depth: usize) -> Result<Stmt> {
        let here = || make::allocate(self.buffer.clone(), stmt.clone());
        Ok(match StmtKind::of(stmt) {
            StmtKind::SeqStmt(node) => {
                let mut seq: Vec<Stmt> = node.seq.iter().collect();
                let first = seq.iter().position(|inner| self.uses(inner));
                let last = seq.iter().rposition(|inner| self.uses(inner));
                let (Some(first), Some(last)) = (first, last) else { return Ok(stmt.clone()) };
                if first == last {
                    seq[first] = self.stmt(&seq[first], depth + 1)?;
                } else if first > 0 || last + 1 < seq.len() {
                    let part = make::seq(seq.drain(first..=last).collect::<Vec<_>>());
                    seq.insert(first, make::allocate(self.buffer.clone(), part));
                } else {
                    return Ok(here());
                }
                make::seq(seq)
            }
            StmtKind::For(node) => {
                let is_around =
                    access::uses_in(self.buffer, &node.min) || access::uses_in(self.buffer, &node.extent);
                // The threads of a block share the buffer, and those of a parallel loop do if there are no blocks.
                let is_shared =
                    &*self.buffer.scope == "shared" && node.kind.is_concurrent() && !node.kind.is_over_blocks();
                let may_enter = !is_around
                    && !is_shared
                    && node.kind != ForKind::Vectorized
                    && (node.kind.is_over_blocks()
                        || access::is_written_first(&self.accesses, self.outer, depth + 1)?);
                if !may_enter {
                    return Ok(here());
                }
                let body = self.stmt(&node.body, depth + 1)?;
                make::for_with(node, node.min.clone(), node.extent.clone(), body)
            }
            StmtKind::IfThenElse(node) => {
                let in_then = self.uses(&node.then_case);
                let in_else = node.else_case.as_ref().is_some_and(|other| self.uses(other));
                match (access::uses_in(self.buffer, &node.condition), in_then, in_else, &node.else_case) {
                    (false, true, false, other) => {
                        let then_case = self.stmt(&node.then_case, depth + 1)?;
                        make::if_then(node.condition.clone(), then_case, other.clone())?
                    }
                    (false, false, true, Some(other)) => {
                        let other = self.stmt(other, depth + 1)?;
                        make::if_then(node.condition.clone(), node.then_case.clone(), Some(other))?
                    }
                    (false, false, false, _) => stmt.clone(),
                    _ => here(),
                }
            }
            StmtKind::LetStmt(node) if !access::uses_in(self.buffer, &node.value) => {
                make::let_stmt(node.var.clone(), node.value.clone(), self.stmt(&node.body, depth + 1)?)?
            }
            StmtKind::Allocate(node) => make::allocate(node.buffer.clone(), self.stmt(&node.body, depth)?),
            _ if self.uses(stmt) => here(),
            _ => stmt.clone(),
        })
    }
}
