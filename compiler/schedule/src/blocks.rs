//! Steps that decompose or inline blocks.

use std::collections::HashMap;

use anyfn::{Map, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{Block, SeqStmt, Stmt};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{ExprKind, StmtKind, make, reduction};

use crate::annotate::{PARTIAL, is_partial, marked};
use crate::loops::substitute_expr;
use crate::scope::Uses;
use crate::tree::{self, address, find_block, find_loop, vars_of};

type Func = Ref<PrimFunc>;

/// Moves the initialisation of the reduction block `name` into a new block, `{name}_init`, in front of the loop of
/// `var`. Returns the function and the name of the new block.
///
/// # Errors
/// Returns `ValueError` if the block has no initialisation, if the loop is not around it, if a loop of a reduction axis
/// is around that loop, or if another block in the loop uses the result.
pub(crate) fn decompose_reduction(func: &Func, name: &str, var: &Ref<Var>) -> Result<(Func, String)> {
    let place = find_block(func, name)?;
    let block = place.block().clone();
    let Some(init) = &block.init else {
        bail!(
            "ValueError",
            "block `{name}` has no init statement: it is not a reduction, or is already decomposed"
        );
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
                "block `{name}` cannot be decomposed at loop `{}`: outer loop `{}` belongs to reduction \
                 axis `{}`",
                var.name,
                outer.loop_var.name,
                axis.var.name
            );
        }
    }
    // In a loop with other blocks, an iteration may compute elements that another iteration has already
    // computed.
    for other in tree::blocks(&node.body) {
        let uses = |buffer: &Ref<Buffer>| {
            let regions = other.block().reads.iter().chain(other.block().writes.iter());
            !other.realize.ptr_eq(&place.realize)
                && regions.into_iter().any(|region| region.buffer.data.ptr_eq(&buffer.data))
        };
        if let Some(region) = block.writes.iter().find(|region| uses(&region.buffer)) {
            bail!(
                "ValueError",
                "block `{name}` cannot be decomposed at loop `{}`: block `{}` in that loop also uses `{}`; \
                 choose a loop that contains no other block",
                var.name,
                other.block().name,
                region.buffer.name
            );
        }
    }
    let annotations = if is_partial(&block) { marked(&Map::new(), PARTIAL)? } else { Map::new() };
    let (before, rest) = reduction::take_apart(&place.realize, init, &place.loops, depth, annotations)?;
    let func = tree::replace(func, &place.realize.clone().into_parent(), rest)?;
    let node = find_loop(&func, var)?.into_parent();
    let both = make::seq([before, node.clone()]);
    Ok((flatten(&tree::replace(&func, &node, both)?)?, format!("{name}_init")))
}

/// Inlines a block into the blocks that read its result. Removes the buffer that held the result,
/// and loops that no longer contain a statement.
///
/// # Errors
/// Returns `ValueError` if the block does not compute each element independently, or if its result is a result of the
/// function.
pub(crate) fn compute_inline(func: &Func, name: &str) -> Result<Func> {
    let place = find_block(func, name)?;
    let block = place.block();
    let refuse = |why: &str| -> Result<Func> { bail!("ValueError", "block `{name}` cannot be inlined: {why}") };
    if block.init.is_some() || block.iter_vars.iter().any(|axis| axis.kind != IterKind::Spatial) {
        return refuse("it is a reduction");
    }
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else {
        return refuse("it does more than write one element");
    };
    let indices: Vec<Ref<Var>> = store.indices.iter().filter_map(|index| index.cast::<Var>().ok()).collect();
    let is_own = |var: &Ref<Var>| block.iter_vars.iter().any(|axis| axis.var.ptr_eq(var));
    let distinct: std::collections::HashSet<usize> = indices.iter().map(address).collect();
    if indices.len() != store.indices.len() || distinct.len() != indices.len() || !indices.iter().all(is_own) {
        return refuse("the indices of its result are not distinct axes");
    }
    if indices.len() != block.iter_vars.len() {
        return refuse("one of its axes does not index its result");
    }
    if func.buffer_map.iter().any(|(_, buffer)| buffer.data.ptr_eq(&store.buffer.data)) {
        return refuse("it computes a result of the function");
    }
    let mine = Uses::of(block);
    for other in tree::blocks(&func.body) {
        // Blocks that contain other blocks are skipped, because the inner blocks are checked.
        if other.realize.ptr_eq(&place.realize) || !tree::blocks(&other.block().body).is_empty() {
            continue;
        }
        let (other, uses) = (other.block(), Uses::of(other.block()));
        if uses.writes(&store.buffer) {
            return refuse(&format!(
                "block `{}` writes `{}`, or passes it to a function",
                other.name, store.buffer.name
            ));
        }
        let read = mine.loads.iter().find(|(buffer, _)| uses.writes(buffer));
        if let (true, Some((buffer, _))) = (is_partial(other), read) {
            return refuse(&format!(
                "it reads `{}`, of which block `{}` computes only the elements that are needed at its location",
                buffer.name, other.name
            ));
        }
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
        let new = make::block(
            &node.name,
            node.iter_vars.iter(),
            reads,
            node.writes.iter(),
            alloc_buffers,
            init,
            body,
        );
        Ok(make::annotated(&new, node.annotations.clone()))
    }
}

/// Removes from a statement all loops whose bodies are empty.
pub(crate) fn clean(stmt: &Stmt) -> Result<Stmt> {
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

/// Flattens nested sequences of statements in a function.
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

/// Returns each block name that belongs to more than one block of a function.
pub(crate) fn repeated_names(func: &Func) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for place in tree::blocks(&func.body) {
        *counts.entry(place.block().name.to_string()).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
}
