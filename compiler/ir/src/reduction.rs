//! Decomposition of reductions into an initialisation and an update.

use anyfn::{Any, Map, Object, Ref, Result, String};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Expr, IterKind, IterVar, Var};
use crate::kind::{ExprKind, StmtKind, as_int};
use crate::stmt::{Block, BlockRealize, For, Stmt};
use crate::visit::{Mutator, Substitute, Visitor, on_enough_stack};
use crate::{make, ops};

/// Decomposes a reduction into two statements: a block `<name>_init`, which initialises the results, and the block
/// without its initialisation.
///
/// `around` lists the enclosing loops, outermost first. The init block is to be placed in front of the loop at index
/// `depth` of this list. Copies of the loops over spatial axes from this index on, with new variables, enclose the init
/// block. The init block gets `annotations`. It runs even if the reduction is empty: conjuncts of the predicate that
/// depend only on reduction loops are dropped.
///
/// # Errors
/// Returns `TypeError` if the value of an axis does not have the data type of the axis, and `MemoryError` when memory
/// runs out.
pub fn take_apart(
    realize: &BlockRealize,
    init: &Stmt,
    around: &[Ref<For>],
    depth: usize,
    annotations: Map<String, Any>,
) -> Result<(Stmt, Stmt)> {
    let block = &realize.block;
    let (outside, loops) = around.split_at(depth.min(around.len()));
    let mut own_loops = Vec::new();
    let mut pairs: Vec<(Ref<Var>, Expr)> = Vec::new();
    for inner in loops {
        if uses(realize, &inner.loop_var, false) {
            let own = ops::var(&format!("{}_init", inner.loop_var.name), inner.loop_var.dtype);
            let (min, extent) = (replaced(&inner.min, &pairs)?, replaced(&inner.extent, &pairs)?);
            pairs.push((inner.loop_var.clone(), own.clone().into_parent()));
            own_loops.push((own, min, extent, inner.kind));
        } else {
            // The predicate may use the variable. The initialisation uses its first value.
            pairs.push((inner.loop_var.clone(), replaced(&inner.min, &pairs)?));
        }
    }
    let mut axes = Vec::new();
    let mut at = Vec::new();
    let mut renames: Vec<(Ref<Var>, Expr)> = Vec::new();
    for (axis, value) in block.iter_vars.iter().zip(realize.iter_values.iter()) {
        if axis.kind == IterKind::Spatial {
            let own = ops::var(&format!("{}_init", axis.var.name), axis.var.dtype);
            renames.push((axis.var.clone(), own.clone().into_parent()));
            axes.push(Ref::new(IterVar { dom: axis.dom.clone(), var: own, kind: IterKind::Spatial }));
            at.push(replaced(&value, &pairs)?);
        }
    }
    let mut rename = Substitute(|var: &Ref<Var>| find(&renames, var));
    let writes: Vec<Ref<BufferRegion>> =
        block.writes.iter().map(|region| rename.region(&region)).collect::<Result<_>>()?;
    let name = format!("{}_init", block.name);
    let first = make::block(&name, axes, [], writes, [], None, rename.stmt(init)?);
    let predicate = replaced(&of_results(realize, outside, loops)?, &pairs)?;
    let mut before = make::realize(at, predicate, make::annotated(&first, annotations));
    for (own, min, extent, kind) in own_loops.into_iter().rev() {
        before = make::for_of_kind(own, min, extent, kind, before);
    }
    let rest = make::block(
        &block.name,
        block.iter_vars.iter(),
        block.reads.iter(),
        block.writes.iter(),
        block.alloc_buffers.iter(),
        None,
        block.body.clone(),
    );
    let rest = make::annotated(&rest, block.annotations.clone());
    Ok((before, make::realize(realize.iter_values.iter(), realize.predicate.clone(), rest)))
}

/// Returns true if an axis of the block has a value that uses `var`. Only reduction and ordered axes are
/// considered if `reduces` is true, and only spatial axes otherwise.
#[must_use]
pub fn uses(realize: &BlockRealize, var: &Ref<Var>, reduces: bool) -> bool {
    realize.block.iter_vars.iter().zip(realize.iter_values.iter()).any(|(axis, value)| {
        (axis.kind != IterKind::Spatial) == reduces && vars_of(&value).contains(&address(var))
    })
}

/// Returns true if a block has an initialisation that might never run, because the domain of the reduction may be
/// empty.
///
/// An extent is known to be positive only if it is a constant.
#[must_use]
pub fn may_be_empty(realize: &BlockRealize, loops: &[Ref<For>]) -> bool {
    let is_known = |extent: &Expr| as_int(extent).is_some_and(|extent| extent > 0);
    let axes = &realize.block.iter_vars;
    realize.block.init.is_some()
        && (axes.iter().any(|axis| axis.kind == IterKind::Reduce && !is_known(&axis.dom.extent))
            || loops.iter().any(|node| uses(realize, &node.loop_var, true) && !is_known(&node.extent)))
}

/// Decomposes each reduction whose domain may be empty, so that its results are always initialised.
///
/// A reduction stays as it is if its decomposition might not be valid: if a statement other than a loop or a sequence
/// lies between its loops, if another statement in the loop uses its results, or if its block has ordered axes or
/// allocates buffers.
///
/// # Errors
/// Returns the error of [`take_apart`].
pub fn with_empty_apart(stmt: &Stmt) -> Result<Stmt> {
    Apart { around: Vec::new() }.stmt(stmt)
}

/// Mutator that decomposes reductions whose domain may be empty. It keeps a list of the enclosing loops, each
/// with the statements to be inserted in front of the loop.
struct Apart {
    around: Vec<(Ref<For>, Vec<Stmt>)>,
}

impl Mutator for Apart {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        match StmtKind::of(stmt) {
            // The initialisation stays in the thread that reduces.
            StmtKind::For(node) if !node.kind.is_bound() => {
                self.around.push((node.clone(), Vec::new()));
                let new = self.below_stmt(stmt);
                let before = self.around.pop().map_or(Vec::new(), |(_, before)| before);
                let new = new?;
                Ok(if before.is_empty() { new } else { make::seq(before.into_iter().chain([new])) })
            }
            StmtKind::SeqStmt(_) => {
                let new = self.below_stmt(stmt)?;
                match StmtKind::of(&new) {
                    StmtKind::SeqStmt(node) if !new.ptr_eq(stmt) => Ok(make::seq(node.seq.iter())),
                    _ => Ok(new),
                }
            }
            StmtKind::BlockRealize(_) => {
                let new = self.alone(stmt)?;
                match StmtKind::of(&new) {
                    StmtKind::BlockRealize(realize) => self.realize(stmt, &new, realize),
                    _ => Ok(new),
                }
            }
            StmtKind::BufferStore(_) | StmtKind::Evaluate(_) | StmtKind::AssertStmt(_) => Ok(stmt.clone()),
            _ => self.alone(stmt),
        }
    }
}

impl Apart {
    /// Transforms the children of a statement. The initialisations of reductions inside the
    /// statement stay inside the statement.
    fn alone(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let around = std::mem::take(&mut self.around);
        let new = self.below_stmt(stmt);
        self.around = around;
        new
    }

    fn realize(&mut self, old: &Stmt, new: &Stmt, realize: &BlockRealize) -> Result<Stmt> {
        let block = &realize.block;
        let loops: Vec<Ref<For>> = self.around.iter().map(|(node, _)| node.clone()).collect();
        let is_ordered = block.iter_vars.iter().any(|axis| axis.kind == IterKind::Ordered);
        let (Some(init), Some(depth)) =
            (&block.init, loops.iter().position(|node| uses(realize, &node.loop_var, true)))
        else {
            return Ok(new.clone());
        };
        if is_ordered
            || !block.alloc_buffers.is_empty()
            || !may_be_empty(realize, &loops)
            || !is_only_user(&loops[depth].body, old, block)
        {
            return Ok(new.clone());
        }
        let (before, rest) = take_apart(realize, init, &loops, depth, Map::new())?;
        self.around[depth].1.push(before);
        Ok(rest)
    }
}

/// Returns true if no statement in `stmt`, except for `own`, uses a buffer that `block` writes. `own` is the statement
/// that contains the block.
fn is_only_user(stmt: &Stmt, own: &Stmt, block: &Block) -> bool {
    struct Users<'a> {
        own: &'a Stmt,
        written: Vec<usize>,
        found: bool,
    }
    impl Visitor for Users<'_> {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::Var(var) = ExprKind::of(expr) {
                self.found |= self.written.contains(&address(var));
            }
            self.below_expr(expr);
        }
        fn stmt(&mut self, stmt: &Stmt) {
            if !stmt.ptr_eq(self.own) {
                self.below_stmt(stmt);
            }
        }
        fn buffer(&mut self, buffer: &Ref<Buffer>) {
            self.found |= self.written.contains(&address(&buffer.data));
        }
    }
    let written = block.writes.iter().map(|region| address(&region.buffer.data)).collect();
    let mut users = Users { own, written, found: false };
    users.stmt(stmt);
    !users.found
}

/// Returns the predicate of a block without the conjuncts that depend only on reduction loops.
fn of_results(realize: &BlockRealize, outside: &[Ref<For>], loops: &[Ref<For>]) -> Result<Expr> {
    let is_about = |part: &Expr, reduces: bool| {
        let vars = vars_of(part);
        let is_its = |node: &&Ref<For>| {
            uses(realize, &node.loop_var, reduces) && (!reduces || !uses(realize, &node.loop_var, false))
        };
        loops.iter().filter(is_its).any(|node| vars.contains(&address(&node.loop_var)))
    };
    // Outer loops belong to spatial axes or to other blocks.
    let is_outside = |part: &Expr| {
        let vars = vars_of(part);
        outside.iter().any(|node| vars.contains(&address(&node.loop_var)))
    };
    let mut parts = Vec::new();
    conjuncts(&realize.predicate, &mut parts);
    let mut all = ops::bool(true);
    for part in parts {
        if !is_about(&part, true) || is_about(&part, false) || is_outside(&part) {
            all = ops::and(all, part)?;
        }
    }
    Ok(all)
}

fn conjuncts(condition: &Expr, parts: &mut Vec<Expr>) {
    on_enough_stack(|| match ExprKind::of(condition) {
        ExprKind::Binary(BinaryOp::And, node) => {
            conjuncts(&node.a, parts);
            conjuncts(&node.b, parts);
        }
        _ => parts.push(condition.clone()),
    })
}

fn find(pairs: &[(Ref<Var>, Expr)], var: &Ref<Var>) -> Option<Expr> {
    pairs.iter().find(|(known, _)| known.ptr_eq(var)).map(|(_, value)| value.clone())
}

fn replaced(expr: &Expr, pairs: &[(Ref<Var>, Expr)]) -> Result<Expr> {
    Substitute(|var: &Ref<Var>| find(pairs, var)).expr(expr)
}

fn address<T: Object>(node: &Ref<T>) -> usize {
    node.as_object().as_handle().addr()
}

/// Returns the addresses of the variables that an expression uses.
fn vars_of(expr: &Expr) -> Vec<usize> {
    struct Vars(Vec<usize>);
    impl Visitor for Vars {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::Var(var) = ExprKind::of(expr) {
                self.0.push(address(var));
            }
            self.below_expr(expr);
        }
    }
    let mut vars = Vars(Vec::new());
    vars.expr(expr);
    vars.0
}
