//! Divides local buffers among the threads of a block.

use anyfn::{Array, Ref, Result};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{self, HANDLE};
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::{Mutator, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::access::{self, Access, PathStep};
use crate::loops::changed;

/// Thread axes of a block, in the order of the first dimensions of a divided buffer.
pub const THREAD_AXES: [ForKind; 3] = [ForKind::ThreadIdxX, ForKind::ThreadIdxY, ForKind::ThreadIdxZ];

/// Divides local buffers that are allocated outside of the loops over threads, if each thread accesses elements of its own.
///
/// The first dimensions of a divided buffer are the indices of the thread, one for each thread axis. A code generator can
/// therefore give each thread a buffer of the remaining dimensions, which fits into registers. A buffer whose elements
/// several threads access is unchanged.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn private_buffers(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, Divide.stmt(&func.body)?)
}

struct Divide;

impl Mutator for Divide {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| match StmtKind::of(stmt) {
            // Within a loop over threads, each thread has its own buffers already.
            StmtKind::For(node) if node.kind.is_over_threads() => Ok(stmt.clone()),
            StmtKind::Allocate(node) if &*node.buffer.scope == "local" => {
                let body = self.stmt(&node.body)?;
                let accesses = access::accesses(&node.buffer, &body).unwrap_or_default();
                match parts(&node.buffer, &accesses) {
                    Some(parts) => divided(&node.buffer, &parts, &body),
                    None if body.ptr_eq(&node.body) => Ok(stmt.clone()),
                    None => Ok(make::allocate(node.buffer.clone(), body)),
                }
            }
            _ => self.below_stmt(stmt),
        })
    }
}

/// Division of a buffer among threads.
struct Parts {
    /// Thread axes of the loops around all accesses, with their extents.
    axes: Vec<(ForKind, i64)>,
    /// For each dimension, the thread axis along which it is divided, and the number of elements that a thread has along
    /// the dimension. `None` for a dimension that is not divided.
    dims: Vec<Option<(ForKind, i64)>>,
}

/// Returns the variables of the loops over threads in a path, by axis, with their extents.
fn threads(frames: &[PathStep]) -> Vec<(ForKind, Ref<Var>, i64)> {
    let mut found = Vec::new();
    for frame in frames {
        if let PathStep::Loop(node) = frame
            && node.kind.is_over_threads()
        {
            found.push((node.kind, node.loop_var.clone(), as_int(&node.extent).unwrap_or(0)));
        }
    }
    found
}

/// Returns the division of a buffer, or `None` if the threads share elements of the buffer.
fn parts(buffer: &Ref<Buffer>, accesses: &[Access]) -> Option<Parts> {
    if accesses.is_empty() || !buffer.strides.is_empty() {
        return None;
    }
    let mut axes: Vec<(ForKind, i64)> = Vec::new();
    let mut dims: Option<Vec<Option<(ForKind, i64)>>> = None;
    for access in accesses {
        let own = threads(&access.frames);
        for (kind, _, extent) in &own {
            match axes.iter_mut().find(|(known, _)| known == kind) {
                Some((_, most)) => *most = (*most).max(*extent),
                None => axes.push((*kind, *extent)),
            }
        }
        let found = dims_of(access, &own)?;
        if dims.as_ref().is_some_and(|known| *known != found) {
            return None;
        }
        dims = Some(found);
    }
    let dims = dims?;
    axes.sort_by_key(|(kind, _)| THREAD_AXES.iter().position(|axis| axis == kind));
    // Each access is in loops over all axes, and the index determines the thread.
    let is_whole = |access: &Access| threads(&access.frames).len() == axes.len();
    let is_own = |(kind, extent): &(ForKind, i64)| {
        *extent == 1 || dims.iter().flatten().any(|(divided, _)| divided == kind)
    };
    (!axes.is_empty() && accesses.iter().all(is_whole) && axes.iter().all(is_own))
        .then_some(Parts { axes, dims })
}

/// Returns the axis that divides each dimension of an access, with the number of elements of a thread.
fn dims_of(access: &Access, threads: &[(ForKind, Ref<Var>, i64)]) -> Option<Vec<Option<(ForKind, i64)>>> {
    let mut analyzer = Analyzer::new();
    access.frames.iter().for_each(|frame| frame.enter(&mut analyzer));
    let vars: Vec<Ref<Var>> = threads.iter().map(|(_, var, _)| var.clone()).collect();
    let mut dims: Vec<Option<(ForKind, i64)>> = Vec::new();
    for index in access.indices.iter() {
        let (factors, rest) = analyzer.linear_parts(&index, &vars)?;
        let mut divided = threads.iter().zip(&factors).filter(|(_, factor)| **factor != 0);
        let Some(((kind, ..), factor)) = divided.next() else {
            dims.push(None);
            continue;
        };
        let bound = analyzer.const_bound(&rest);
        let is_twice = divided.next().is_some() || dims.iter().flatten().any(|(known, _)| known == kind);
        if is_twice || bound.min < 0 || bound.max >= *factor {
            return None;
        }
        dims.push(Some((*kind, *factor)));
    }
    Some(dims)
}

/// Returns the allocation of the divided buffer around a statement.
fn divided(buffer: &Ref<Buffer>, parts: &Parts, body: &Stmt) -> Result<Stmt> {
    let mut shape: Vec<Expr> = Vec::new();
    for (_, extent) in &parts.axes {
        shape.push(ops::int(*extent, anyfn::DType::INT32)?);
    }
    for (dim, old) in parts.dims.iter().zip(buffer.shape.iter()) {
        shape.push(match dim {
            Some((_, count)) => ops::int(*count, old.dtype)?,
            None => old,
        });
    }
    let new = Ref::new(Buffer {
        data: ops::var(&buffer.data.name, HANDLE),
        dtype: buffer.dtype,
        shape: shape.into_iter().collect(),
        strides: Array::new(),
        name: buffer.name.clone(),
        scope: buffer.scope.clone(),
        alignment: buffer.alignment,
    });
    let body = Relocate { old: buffer, new: &new, parts, open: Vec::new() }.stmt(body)?;
    Ok(make::allocate(new, body))
}

/// Mutator that replaces accesses to a buffer by accesses to the divided buffer.
struct Relocate<'a> {
    old: &'a Ref<Buffer>,
    new: &'a Ref<Buffer>,
    parts: &'a Parts,
    /// Variables of the enclosing loops over threads.
    open: Vec<(ForKind, Ref<Var>)>,
}

impl Relocate<'_> {
    fn of_axis(&self, axis: ForKind) -> Option<&Ref<Var>> {
        self.open.iter().find(|(kind, _)| *kind == axis).map(|(_, var)| var)
    }

    fn moved(&mut self, indices: &Array<Expr>) -> Result<Array<Expr>> {
        let mut new: Vec<Expr> = Vec::new();
        for (axis, _) in &self.parts.axes {
            if let Some(var) = self.of_axis(*axis) {
                new.push(ops::cast(var.clone().into_parent(), anyfn::DType::INT32)?);
            }
        }
        for (index, dim) in indices.iter().zip(&self.parts.dims) {
            let index = self.expr(&index)?;
            new.push(match dim.and_then(|(axis, count)| Some((self.of_axis(axis)?.clone(), count))) {
                Some((var, count)) => {
                    let before = ops::mul(var.into_parent(), ops::int(count, index.dtype)?)?;
                    Analyzer::new().simplify(&ops::sub(index, before)?)?
                }
                None => index,
            });
        }
        Ok(new.into_iter().collect())
    }
}

impl Mutator for Relocate<'_> {
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
            StmtKind::For(node) if node.kind.is_over_threads() => {
                self.open.push((node.kind, node.loop_var.clone()));
                let result = self.below_stmt(stmt);
                self.open.pop();
                result
            }
            StmtKind::BufferStore(node) if node.buffer.ptr_eq(self.old) => {
                make::store(self.new, self.expr(&node.value)?, self.moved(&node.indices)?)
            }
            _ => self.below_stmt(stmt),
        }
    }
}
