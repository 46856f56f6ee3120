//! Shrinks allocated buffers, so that each contains only the region that the function accesses.

use std::collections::HashMap;

use anyfn::{Array, Ref, Result, String};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{self, HANDLE};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::{Mutator, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::access::{self, Access, Informed, PathStep};
use crate::loops::changed;
use crate::simplify::assume_shapes;

/// Maximum size in bytes of a `local` buffer, which is on the stack of one task.
const MAX_LOCAL: i64 = 64 * 1024;
/// Maximum constant that may replace an extent known only at run time when a buffer is shrunk.
const MAX_NUMBER: i64 = 64 * 1024;

/// Shrinks the allocated buffers of a function, so that each contains only the region that the body of its
/// allocation accesses. Each dimension shrinks to the range of its indices, which become relative to the start
/// of that range. A small buffer that only one task uses gets the scope `local`.
///
/// A buffer that is passed to a call is unchanged, as is a dimension for which no smaller extent is known.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn compact_buffers(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    let mut analyzer = Analyzer::new();
    assume_shapes(&mut analyzer, func)?;
    changed(func, Compact { analyzer }.stmt(&func.body)?)
}

/// Smaller buffer that replaces a buffer, and, for each dimension, the index in the replaced buffer
/// at which the smaller buffer starts. `None` represents the index 0.
type Smaller = (Ref<Buffer>, Vec<Option<Expr>>);

struct Compact {
    analyzer: Analyzer,
}

impl Informed for Compact {
    fn analyzer(&mut self) -> &mut Analyzer {
        &mut self.analyzer
    }
}

impl Compact {
    /// Returns the buffer that replaces `buffer`, with the indices in `buffer` at which the
    /// replacement starts. Returns `None` if the buffer stays unchanged.
    fn smaller(&mut self, buffer: &Ref<Buffer>, accesses: &[Access]) -> Result<Option<Smaller>> {
        let mut over: Vec<Ref<Var>> = Vec::new();
        for frame in accesses.iter().flat_map(|access| &access.frames) {
            let var = match frame {
                PathStep::Loop(node) => &node.loop_var,
                PathStep::Let(var, _) => var,
                _ => continue,
            };
            if !over.iter().any(|known| known.ptr_eq(var)) {
                over.push(var.clone());
                frame.enter(&mut self.analyzer);
            }
        }
        let indices: Vec<Array<Expr>> = accesses.iter().map(|access| access.indices.clone()).collect();
        let spans = self.analyzer.region(&indices, &over);
        let Some(spans) = spans.filter(|spans| spans.len() == buffer.shape.len()) else { return Ok(None) };
        let mut shape: Vec<Expr> = Vec::new();
        let mut begins: Vec<Option<Expr>> = Vec::new();
        for (span, old) in spans.iter().zip(buffer.shape.iter()) {
            let extent = self.analyzer.const_bound(&span.extent).max;
            let limit = as_int(&old).unwrap_or(MAX_NUMBER + 1);
            if extent >= 1
                && extent < limit
                && let Ok(extent) = ops::int(extent, old.dtype)
            {
                shape.push(extent);
                begins.push(Some(span.min.clone()));
            } else {
                shape.push(old);
                begins.push(None);
            }
        }
        let bytes = i64::from(buffer.dtype.0.bits.div_ceil(8));
        let size = shape.iter().try_fold(bytes, |size, extent| size.checked_mul(as_int(extent)?));
        let is_shared = accesses
            .iter()
            .flat_map(|access| &access.frames)
            .any(|frame| matches!(frame, PathStep::Loop(node) if node.kind.is_concurrent()));
        let is_local = &*buffer.scope == "global" && !is_shared && size.is_some_and(|size| size <= MAX_LOCAL);
        if !is_local && begins.iter().all(Option::is_none) {
            return Ok(None);
        }
        let new = Ref::new(Buffer {
            data: ops::var(&buffer.data.name, HANDLE),
            dtype: buffer.dtype,
            shape: shape.into_iter().collect(),
            strides: Array::new(),
            name: buffer.name.clone(),
            scope: if is_local { String::from("local") } else { buffer.scope.clone() },
            alignment: buffer.alignment,
        });
        Ok(Some((new, begins)))
    }

    fn allocate(&mut self, buffer: &Ref<Buffer>, body: &Stmt) -> Result<Option<Stmt>> {
        let Some(accesses) = access::accesses(buffer, body).filter(|found| !found.is_empty()) else {
            return Ok(None);
        };
        if !buffer.strides.is_empty() || is_bound_twice(&accesses) {
            return Ok(None);
        }
        let mark = self.analyzer.mark();
        let smaller = self.smaller(buffer, &accesses);
        self.analyzer.restore(mark);
        let Some((new, begins)) = smaller? else { return Ok(None) };
        let body = Rebase { old: buffer, new: &new, begins: &begins }.stmt(body)?;
        Ok(Some(make::allocate(new, body)))
    }
}

/// Returns true if several loops or let statements around the accesses bind the same variable.
fn is_bound_twice(accesses: &[Access]) -> bool {
    let mut known: HashMap<usize, &PathStep> = HashMap::new();
    accesses.iter().flat_map(|access| &access.frames).any(|frame| {
        let var = match frame {
            PathStep::Loop(node) => &node.loop_var,
            PathStep::Let(var, _) => var,
            _ => return false,
        };
        let before = known.insert(var.as_object().as_handle().addr(), frame);
        before.is_some_and(|before| !before.is_same(frame))
    })
}

impl Mutator for Compact {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::Allocate(node) => {
                let body = self.stmt(&node.body)?;
                if let Some(new) = self.allocate(&node.buffer, &body)? {
                    return Ok(new);
                }
                Ok(if body.ptr_eq(&node.body) {
                    stmt.clone()
                } else {
                    make::allocate(node.buffer.clone(), body)
                })
            }
            StmtKind::For(node) => {
                let body = self.inside(&PathStep::Loop(node.clone()), &node.body)?;
                if body.ptr_eq(&node.body) {
                    return Ok(stmt.clone());
                }
                Ok(make::for_with(node, node.min.clone(), node.extent.clone(), body))
            }
            StmtKind::LetStmt(node) => {
                let body = self.inside(&PathStep::Let(node.var.clone(), node.value.clone()), &node.body)?;
                if body.ptr_eq(&node.body) {
                    return Ok(stmt.clone());
                }
                make::let_stmt(node.var.clone(), node.value.clone(), body)
            }
            _ => self.below_stmt(stmt),
        })
    }
}

/// Mutator that replaces accesses to the buffer `old` by accesses to the smaller buffer `new`.
struct Rebase<'a> {
    old: &'a Ref<Buffer>,
    new: &'a Ref<Buffer>,
    /// For each dimension, the index in the buffer `old` at which the buffer `new` starts. `None`
    /// represents the index 0.
    begins: &'a [Option<Expr>],
}

impl Rebase<'_> {
    fn moved(&mut self, indices: &Array<Expr>) -> Result<Array<Expr>> {
        let mut new = Vec::with_capacity(indices.len());
        for (index, begin) in indices.iter().zip(self.begins) {
            let index = self.expr(&index)?;
            new.push(match begin {
                Some(begin) => Analyzer::new().simplify(&ops::sub(index, begin.clone())?)?,
                None => index,
            });
        }
        Ok(new.into_iter().collect())
    }
}

impl Mutator for Rebase<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        match ExprKind::of(expr) {
            ExprKind::BufferLoad(node) if node.buffer.ptr_eq(self.old) => {
                ops::load(self.new, self.moved(&node.indices)?)
            }
            _ => self.below_expr(expr),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) if node.buffer.ptr_eq(self.old) => {
                make::store(self.new, self.expr(&node.value)?, self.moved(&node.indices)?)
            }
            _ => self.below_stmt(stmt),
        }
    }
}
