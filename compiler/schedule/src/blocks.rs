//! Steps that transform blocks: taken apart, or put into those that use them.

use std::collections::HashMap;

use anyfn::{Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, IterKind, IterVar, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{Block, SeqStmt, Stmt};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{ExprKind, StmtKind, make, ops};

use crate::loops::{substitute, substitute_expr};
use crate::tree::{self, address, find_block, find_loop, vars_of};

type Func = Ref<PrimFunc>;

/// Takes what comes before a reduction out of its block, into a block of its own in front of a loop: `name_init`.
///
/// # Errors
/// `ValueError` if the block has nothing that comes before, the loop is not around it, or loops that reduce are outside of it.
pub(crate) fn decompose_reduction(func: &Func, name: &str, var: &Ref<Var>) -> Result<(Func, String)> {
    let place = find_block(func, name)?;
    let block = place.block().clone();
    let Some(init) = &block.init else {
        bail!("ValueError", "block `{name}` has no init: it is no reduction, or decomposed already");
    };
    let node = find_loop(func, var)?;
    let Some(depth) = place.loops.iter().position(|outer| outer.ptr_eq(&node)) else {
        bail!("ValueError", "loop `{}` is not around block `{name}`", var.name);
    };
    let uses = |var: &Ref<Var>, kind: IterKind| {
        block.iter_vars.iter().zip(place.realize.iter_values.iter()).find(|(axis, value)| {
            (axis.kind == IterKind::Spatial) == (kind == IterKind::Spatial)
                && vars_of(value).contains(&address(var))
        })
    };
    for outer in &place.loops[..depth] {
        if let Some((axis, _)) = uses(&outer.loop_var, IterKind::Reduce) {
            bail!(
                "ValueError",
                "block `{name}` cannot be decomposed at loop `{}`: loop `{}` outside of it is one of axis `{}`, which reduces",
                var.name,
                outer.loop_var.name,
                axis.var.name
            );
        }
    }
    // Loops over axes that do not reduce, once more, with variables of their own.
    let mut own_loops = Vec::new();
    let mut values: Vec<(Ref<Var>, Expr)> = Vec::new();
    for inner in &place.loops[depth..] {
        if uses(&inner.loop_var, IterKind::Spatial).is_some() {
            let own = ops::var(&format!("{}_init", inner.loop_var.name), inner.loop_var.dtype);
            values.push((inner.loop_var.clone(), own.clone().into_parent()));
            own_loops.push((own, inner.clone()));
        } else {
            // A condition may use it; at its first value it holds for what is initialised.
            values.push((inner.loop_var.clone(), inner.min.clone()));
        }
    }
    let pairs: Vec<(&Ref<Var>, Expr)> = values.iter().map(|(var, value)| (var, value.clone())).collect();
    let mut axes = Vec::new();
    let mut at = Vec::new();
    let mut renamed: Vec<(Ref<Var>, Expr)> = Vec::new();
    for (axis, value) in block.iter_vars.iter().zip(place.realize.iter_values.iter()) {
        if axis.kind != IterKind::Spatial {
            continue;
        }
        let own = ops::var(&format!("{}_init", axis.var.name), axis.var.dtype);
        renamed.push((axis.var.clone(), own.clone().into_parent()));
        axes.push(Ref::new(IterVar { dom: axis.dom.clone(), var: own, kind: IterKind::Spatial }));
        at.push(substitute_expr(&value, &pairs)?);
    }
    let renames: Vec<(&Ref<Var>, Expr)> = renamed.iter().map(|(var, value)| (var, value.clone())).collect();
    let writes: Vec<_> =
        block.writes.iter().map(|region| Rename(&renames).region(&region)).collect::<Result<_>>()?;
    let init_name = format!("{name}_init");
    let init_block = make::block(&init_name, axes, [], writes, [], None, substitute(init, &renames)?);
    let predicate = substitute_expr(&place.realize.predicate, &pairs)?;
    let mut before = make::realize(at, predicate, init_block);
    for (own, inner) in own_loops.into_iter().rev() {
        before = make::for_loop(own, inner.min.clone(), inner.extent.clone(), before);
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
    let rest = make::realize(place.realize.iter_values.iter(), place.realize.predicate.clone(), rest);
    let func = tree::replace(func, &place.realize.clone().into_parent(), rest)?;
    let node = find_loop(&func, var)?.into_parent();
    let both = make::seq([before, node.clone()]);
    Ok((flatten(&tree::replace(&func, &node, both)?)?, init_name))
}

/// Replaces variables in regions.
struct Rename<'a>(&'a [(&'a Ref<Var>, Expr)]);

impl Mutator for Rename<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        substitute_expr(expr, self.0)
    }
}

/// Puts a block into the blocks that read what it computes; its memory and loops go away.
///
/// # Errors
/// `ValueError` if the block does not compute each element by itself, or its result is one of the function's.
pub(crate) fn compute_inline(func: &Func, name: &str) -> Result<Func> {
    let place = find_block(func, name)?;
    let block = place.block();
    let refuse = |why: &str| -> Result<Func> { bail!("ValueError", "block `{name}` cannot be inlined: {why}") };
    if block.init.is_some() || block.iter_vars.iter().any(|axis| axis.kind != IterKind::Spatial) {
        return refuse("it is a reduction");
    }
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else {
        return refuse("it does more than to set an element");
    };
    let indices: Vec<Ref<Var>> = store.indices.iter().filter_map(|index| index.cast::<Var>().ok()).collect();
    let is_own = |var: &Ref<Var>| block.iter_vars.iter().any(|axis| axis.var.ptr_eq(var));
    let distinct: std::collections::HashSet<usize> = indices.iter().map(address).collect();
    if indices.len() != store.indices.len() || distinct.len() != indices.len() || !indices.iter().all(is_own) {
        return refuse("the place of an element is not just the values of its axes");
    }
    if indices.len() != block.iter_vars.len() {
        return refuse("an axis does not tell the place of an element");
    }
    if func.buffer_map.iter().any(|(_, buffer)| buffer.data.ptr_eq(&store.buffer.data)) {
        return refuse("what it computes is a result of the function");
    }
    let mut inline = Inline {
        buffer: &store.buffer,
        indices: &indices,
        value: &store.value,
        own: &place.realize.clone().into_parent(),
    };
    let body = inline.stmt(&func.body)?;
    Ok(tree::with_body(func, clean(&body)?))
}

struct Inline<'a> {
    buffer: &'a Ref<Buffer>,
    indices: &'a [Ref<Var>],
    value: &'a Expr,
    own: &'a Stmt,
}

impl Mutator for Inline<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let expr = self.below_expr(expr)?;
        match ExprKind::of(&expr) {
            ExprKind::BufferLoad(node) if node.buffer.ptr_eq(self.buffer) => {
                let pairs: Vec<(&Ref<Var>, Expr)> = self.indices.iter().zip(node.indices.iter()).collect();
                substitute_expr(self.value, &pairs)
            }
            _ => Ok(expr),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        if stmt.ptr_eq(self.own) { Ok(make::seq([])) } else { self.below_stmt(stmt) }
    }

    fn block(&mut self, node: &Ref<Block>) -> Result<Ref<Block>> {
        let init = node.init.as_ref().map(|stmt| self.stmt(stmt)).transpose()?;
        let body = self.stmt(&node.body)?;
        let is_read = node.reads.iter().any(|region| region.buffer.ptr_eq(self.buffer));
        let reads =
            if is_read { anyfn_ir::analysis::reads(&body, &node.writes) } else { node.reads.iter().collect() };
        let alloc_buffers = node.alloc_buffers.iter().filter(|buffer| !buffer.ptr_eq(self.buffer));
        Ok(make::block(&node.name, node.iter_vars.iter(), reads, node.writes.iter(), alloc_buffers, init, body))
    }
}

/// The statement without loops that repeat nothing.
fn clean(stmt: &Stmt) -> Result<Stmt> {
    struct Clean;
    impl Mutator for Clean {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let stmt = self.below_stmt(stmt)?;
            let is_empty =
                |stmt: &Stmt| matches!(StmtKind::of(stmt), StmtKind::SeqStmt(node) if node.seq.is_empty());
            Ok(match StmtKind::of(&stmt) {
                StmtKind::For(node) if is_empty(&node.body) => make::seq([]),
                StmtKind::SeqStmt(node) => make::seq(node.seq.iter()),
                _ => stmt,
            })
        }
    }
    Clean.stmt(stmt)
}

/// The function with sequences inside of sequences joined.
fn flatten(func: &Func) -> Result<Func> {
    struct Flatten;
    impl Mutator for Flatten {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let stmt = self.below_stmt(stmt)?;
            Ok(match stmt.cast_ref::<SeqStmt>() {
                Some(node) if node.seq.iter().any(|inner| inner.is::<SeqStmt>()) => make::seq(node.seq.iter()),
                _ => stmt,
            })
        }
    }
    let body = Flatten.stmt(&func.body)?;
    Ok(tree::with_body(func, body))
}

/// Names of blocks that are there more than once.
pub(crate) fn repeated_names(func: &Func) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for place in tree::blocks(&func.body) {
        *counts.entry(place.block().name.to_string()).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
}
