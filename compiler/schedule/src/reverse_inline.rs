//! Schedule step `reverse_compute_inline`, which inlines a block into the block that sets its input.

use anyfn::{Array, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::is_int;
use anyfn_ir::stmt::BufferStore;
use anyfn_ir::visit::Mutator;
use anyfn_ir::{ExprKind, StmtKind, make, ops};

use crate::annotate::is_partial;
use crate::blocks::clean;
use crate::loops::substitute_expr;
use crate::scope::{Leaf, Scope, covering_axes, own_nest, rebuilt, same};
use crate::tree::{self, is_told_by_axes};

type Func = Ref<PrimFunc>;
type Refuse<'a> = &'a dyn Fn(&str) -> anyfn::Error;

/// Inlines a block into the producer of its input. The producer then computes the elements of the
/// inlined block directly. Removes the loops of the inlined block and the buffer between the two
/// blocks.
///
/// # Errors
/// Returns `ValueError` if the block does more than compute one element from each element that another block sets, if
/// that other block is a reduction, or if a third block uses the buffer between them. Also returns it if, before the
/// block runs, its result is used or one of its other inputs is set too late for the other block.
pub(crate) fn reverse_compute_inline(func: &Func, name: &str) -> Result<Func> {
    let refuse = |why: &str| -> anyfn::Error {
        let text = format!("block `{name}` cannot be inlined into the block that computes its input: {why}");
        anyfn::Error::new("ValueError", &text)
    };
    let scope = Scope::of(func)?;
    let number = scope.find(name)?;
    let leaf = &scope.leaves[number];
    let store = only_store(leaf, &refuse)?;
    let (source, to) = source(&scope, number, &refuse)?;
    let (buffer, setter) = (source.buffer, &scope.leaves[source.number]);
    check_order(&scope, number, source.number, buffer, &store.buffer, &refuse)?;

    let set = only_store(setter, &|why| {
        refuse(&format!("block `{}`, which writes `{}`: {why}", setter.name(), buffer.name))
    })?;
    // The axes of the block are the indices of the element that the setter stores.
    let mut places: Vec<(Ref<Var>, Expr)> = Vec::new();
    for (axis, place) in to.iter().zip(set.indices.iter()) {
        places.push((axis.clone(), ops::cast(place, axis.dtype)?));
    }
    let pairs: Vec<(&Ref<Var>, Expr)> = places.iter().map(|(axis, place)| (axis, place.clone())).collect();
    let value = Replace { buffer, value: &set.value }.expr(&substitute_expr(&store.value, &pairs)?)?;
    let indices: Array<Expr> = store
        .indices
        .iter()
        .map(|index| substitute_expr(&index, &pairs))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    let block = rebuilt(setter.block(), None, make::store(&store.buffer, value, indices)?);
    let realize = &setter.place.realize;
    let new = make::realize(realize.iter_values.iter(), realize.predicate.clone(), block);

    let mut children = Vec::new();
    for child in &scope.children {
        let child = tree::replace_stmt(child, &realize.clone().into_parent(), new.clone())?;
        children.push(clean(&tree::replace_stmt(&child, &own_nest(&leaf.place), make::seq([]))?)?);
    }
    let memory = scope.root.block.alloc_buffers.iter().filter(|own| !own.ptr_eq(buffer));
    Ok(scope.with(func, children, memory))
}

/// Returns the store of a block that consists of a single store. Returns an error for any other
/// block, and for a block that is a reduction or computes only some elements of its result.
fn only_store<'a>(leaf: &'a Leaf, refuse: Refuse<'_>) -> Result<&'a BufferStore> {
    let block = leaf.block();
    if block.init.is_some() || block.iter_vars.iter().any(|axis| axis.kind != IterKind::Spatial) {
        return Err(refuse("it is a reduction"));
    }
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else {
        return Err(refuse("it does more than write one element"));
    };
    if !leaf.uses.passed.is_empty() {
        return Err(refuse("it passes a buffer to a function"));
    }
    if leaf.uses.reads(&store.buffer) {
        return Err(refuse(&format!("it updates the previous content of `{}`", store.buffer.name)));
    }
    if is_partial(block) {
        return Err(refuse("it computes only the elements that are needed at its location"));
    }
    if !is_told_by_axes(&leaf.place) {
        return Err(refuse("it has a condition that excludes elements"));
    }
    Ok(store)
}

/// Buffer that is removed by inlining, and the index in `Scope::leaves` of the block that sets it.
struct Source<'a> {
    buffer: &'a Ref<Buffer>,
    number: usize,
}

/// Returns the buffer that is removed by inlining, and the axes that index it. The block to be inlined must
/// compute one element from each element of that buffer.
fn source<'a>(scope: &'a Scope, number: usize, refuse: Refuse<'_>) -> Result<(Source<'a>, Vec<Ref<Var>>)> {
    let leaf = &scope.leaves[number];
    let block = leaf.block();
    let mut found = None;
    let mut why = "it reads no buffer that another block computes for it alone".to_owned();
    for (buffer, indices) in &leaf.uses.loads {
        if !scope.is_local(buffer) {
            continue;
        }
        let axes: Vec<Ref<Var>> = indices.iter().filter_map(|index| index.cast::<Var>().ok()).collect();
        let is_all = axes.len() == indices.len()
            && axes.len() == block.iter_vars.len()
            && block.iter_vars.iter().all(|axis| axes.iter().any(|var| var.ptr_eq(&axis.var)));
        let is_only = leaf
            .uses
            .loads
            .iter()
            .filter(|(other, _)| other.data.ptr_eq(&buffer.data))
            .all(|(_, other)| other.iter().zip(indices.iter()).all(|(a, b)| make::is_equal(&a, &b)));
        if !is_all || !is_only {
            why = format!("it reads `{}` at indices that are not its axes", buffer.name);
            continue;
        }
        let covers = axes.iter().zip(buffer.shape.iter()).all(|(var, extent)| {
            block
                .iter_vars
                .iter()
                .any(|axis| axis.var.ptr_eq(var) && is_int(&axis.dom.min, 0) && same(&axis.dom.extent, &extent))
        });
        if !covers {
            why = format!("it reads only a part of `{}`", buffer.name);
            continue;
        }
        let mut users = scope.leaves.iter().enumerate().filter(|(other, leaf)| {
            *other != number && leaf.uses.buffers().any(|used| used.data.ptr_eq(&buffer.data))
        });
        match (users.next(), users.next()) {
            (Some((other, setter)), None) if other < number && covering_axes(setter, buffer).is_some() => {
                // Choose the buffer that is set last. The other buffers are already set at that point.
                if found.as_ref().is_none_or(|(known, _): &(Source<'_>, _)| known.number < other) {
                    found = Some((Source { buffer, number: other }, axes));
                }
            }
            (Some((_, setter)), None) => {
                why = format!(
                    "block `{}` does not write each element of `{}` before it",
                    setter.name(),
                    buffer.name
                );
            }
            (Some((_, first)), Some((_, second))) => {
                why = format!("blocks `{}` and `{}` also use `{}`", first.name(), second.name(), buffer.name);
            }
            (None, _) => {}
        }
    }
    found.ok_or_else(|| refuse(&why))
}

/// Checks that the block with the index `number` can run as early as the block with the index
/// `setter`. No block between the two may set another input of the block `number` or use its
/// result.
fn check_order(
    scope: &Scope,
    number: usize,
    setter: usize,
    source: &Ref<Buffer>,
    result: &Ref<Buffer>,
    refuse: Refuse<'_>,
) -> Result<()> {
    let (leaf, first) = (&scope.leaves[number], &scope.leaves[setter]);
    let others = scope.leaves.iter().enumerate().filter(|(place, _)| *place != number);
    for other in others.map(|(_, other)| other) {
        for (buffer, _) in leaf.uses.loads.iter().filter(|(buffer, _)| !buffer.ptr_eq(source)) {
            let is_between = other.child >= first.child && other.child <= leaf.child;
            if other.uses.writes(buffer) && is_between {
                return Err(refuse(&format!(
                    "it reads `{}`, which block `{}` writes, and that block does not come before block `{}`",
                    buffer.name,
                    other.name(),
                    first.name()
                )));
            }
        }
        let is_between = other.child >= first.child && other.child <= leaf.child;
        if is_between && other.uses.buffers().any(|used| used.data.ptr_eq(&result.data)) {
            let (result, user) = (&result.name, other.name());
            return Err(refuse(&format!("`{result}`, which it writes, is already used by block `{user}`")));
        }
    }
    Ok(())
}

/// Mutator that replaces reads of a buffer by a value.
struct Replace<'a> {
    buffer: &'a Ref<Buffer>,
    value: &'a Expr,
}

impl Mutator for Replace<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        match ExprKind::of(expr) {
            ExprKind::BufferLoad(node) if node.buffer.ptr_eq(self.buffer) => Ok(self.value.clone()),
            _ => self.below_expr(expr),
        }
    }
}
