//! Finds and replaces loops and blocks of a function.

use std::collections::HashSet;

use anyfn::{Object, Ref, Result, bail};
use anyfn_ir::analysis::conjuncts;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{Block, BlockRealize, For, Stmt};
use anyfn_ir::visit::{Mutator, Visitor};
use anyfn_ir::{ExprKind, StmtKind, make, ops};

/// Returns the address of a node, which serves as the identity of the node.
pub(crate) fn address<T: Object>(node: &Ref<T>) -> usize {
    node.as_object().as_handle().addr()
}

/// Block and the loops around it.
pub struct BlockPath {
    /// Loops between the block and the enclosing block, outermost first.
    pub loops: Vec<Ref<For>>,
    /// Realization of the block, which contains the values of its axes.
    pub realize: Ref<BlockRealize>,
}

impl BlockPath {
    /// Returns the block itself, without the values of its axes.
    #[must_use]
    pub fn block(&self) -> &Ref<Block> {
        &self.realize.block
    }
}

/// Returns all blocks of a statement in execution order, each with the loops between the block and
/// its enclosing block.
pub(crate) fn blocks(stmt: &Stmt) -> Vec<BlockPath> {
    struct Blocks {
        loops: Vec<Ref<For>>,
        found: Vec<BlockPath>,
    }
    impl Visitor for Blocks {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            match StmtKind::of(stmt) {
                StmtKind::For(node) => {
                    self.loops.push(node.clone());
                    self.below_stmt(stmt);
                    self.loops.pop();
                }
                StmtKind::BlockRealize(node) => {
                    self.found.push(BlockPath { loops: self.loops.clone(), realize: node.clone() });
                    let outer = std::mem::take(&mut self.loops);
                    self.below_stmt(stmt);
                    self.loops = outer;
                }
                _ => self.below_stmt(stmt),
            }
        }
    }
    let mut blocks = Blocks { loops: Vec::new(), found: Vec::new() };
    blocks.stmt(stmt);
    blocks.found
}

/// Returns the block called `name`, and the loops around it.
pub(crate) fn find_block(func: &PrimFunc, name: &str) -> Result<BlockPath> {
    let mut known = Vec::new();
    for place in blocks(&func.body) {
        if &*place.block().name == name {
            return Ok(place);
        }
        known.push(place.block().name.to_string());
    }
    bail!("ValueError", "unknown block `{name}`; known blocks are {}", known.join(", "))
}

/// Returns the variables of the loops around the block `name`, outermost first, together with the unchanged
/// function.
///
/// # Errors
/// Returns `ValueError` if no block has that name.
pub(crate) fn loops_around(func: &Ref<PrimFunc>, name: &str) -> Result<(Ref<PrimFunc>, Vec<Ref<Var>>)> {
    let place = find_block(func, name)?;
    Ok((func.clone(), place.loops.iter().map(|node| node.loop_var.clone()).collect()))
}

/// Returns the loop whose variable is `var`.
pub(crate) fn find_loop(func: &PrimFunc, var: &Ref<Var>) -> Result<Ref<For>> {
    struct Find<'a>(&'a Ref<Var>, Option<Ref<For>>);
    impl Visitor for Find<'_> {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::For(node) = StmtKind::of(stmt)
                && node.loop_var.ptr_eq(self.0)
            {
                self.1 = Some(node.clone());
            }
            if self.1.is_none() {
                self.below_stmt(stmt);
            }
        }
    }
    let mut find = Find(var, None);
    find.stmt(&func.body);
    match find.1 {
        Some(node) => Ok(node),
        None => bail!("ValueError", "loop `{}` no longer exists: it was split, fused or removed", var.name),
    }
}

/// Returns the function with the statement `old` replaced by `new`.
pub(crate) fn replace(func: &Ref<PrimFunc>, old: &Stmt, new: Stmt) -> Result<Ref<PrimFunc>> {
    Ok(with_body(func, replace_stmt(&func.body, old, new)?))
}

/// Returns a copy of the statement `stmt` in which the statement `old` is replaced by `new`.
pub(crate) fn replace_stmt(stmt: &Stmt, old: &Stmt, new: Stmt) -> Result<Stmt> {
    struct Replace<'a> {
        old: &'a Stmt,
        new: Option<Stmt>,
    }
    impl Mutator for Replace<'_> {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            if stmt.ptr_eq(self.old)
                && let Some(new) = self.new.take()
            {
                return Ok(new);
            }
            // After the replacement, the rest is left unchanged.
            if self.new.is_none() { Ok(stmt.clone()) } else { self.below_stmt(stmt) }
        }
    }
    Replace { old, new: Some(new) }.stmt(stmt)
}

pub(crate) fn with_body(func: &Ref<PrimFunc>, body: Stmt) -> Ref<PrimFunc> {
    Ref::new(PrimFunc {
        params: func.params.clone(),
        buffer_map: func.buffer_map.clone(),
        body,
        attrs: func.attrs.clone(),
    })
}

/// Returns the addresses of the variables that an expression uses.
pub(crate) fn vars_of(expr: &Expr) -> HashSet<usize> {
    struct Vars(HashSet<usize>);
    impl Visitor for Vars {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::Var(var) = ExprKind::of(expr) {
                self.0.insert(address(var));
            }
            self.below_expr(expr);
        }
    }
    let mut vars = Vars(HashSet::new());
    vars.expr(expr);
    vars.0
}

/// Adds a condition to the predicate of each outermost block in a statement. Blocks inside these blocks are
/// left unchanged.
pub(crate) fn guard(stmt: &Stmt, condition: &Expr) -> Result<Stmt> {
    struct Guard<'a>(&'a Expr);
    impl Mutator for Guard<'_> {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let StmtKind::BlockRealize(node) = StmtKind::of(stmt) else { return self.below_stmt(stmt) };
            let predicate = ops::and(node.predicate.clone(), self.0.clone())?;
            Ok(make::realize(node.iter_values.iter(), predicate, node.block.clone()))
        }
    }
    Guard(condition).stmt(stmt)
}

/// Returns true if the predicate of a block only states that the axes of the block are within their
/// domains.
pub(crate) fn is_told_by_axes(place: &BlockPath) -> bool {
    let axes: Vec<_> = place.block().iter_vars.iter().zip(place.realize.iter_values.iter()).collect();
    conjuncts(&place.realize.predicate).iter().all(|condition| {
        axes.iter().any(|(axis, value)| {
            let end = ops::add(axis.dom.min.clone(), axis.dom.extent.clone());
            match ExprKind::of(condition) {
                ExprKind::Binary(BinaryOp::Lt, node) => {
                    make::is_equal(&node.a, value) && end.is_ok_and(|end| make::is_equal(&node.b, &end))
                }
                ExprKind::Binary(BinaryOp::Ge, node) => {
                    make::is_equal(&node.a, value) && make::is_equal(&node.b, &axis.dom.min)
                }
                _ => false,
            }
        })
    })
}

/// Returns the inner loop if the body of a loop is another loop, and `None` otherwise.
pub(crate) fn only_loop(node: &For) -> Option<Ref<For>> {
    match StmtKind::of(&node.body) {
        StmtKind::For(inner) => Some(inner.clone()),
        _ => None,
    }
}
