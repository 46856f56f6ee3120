//! Steps that add copies of buffers: `cache_read` and `cache_write`.

use anyfn::{Any, Array, Ref, Result, bail};
use anyfn_ir::buffer::{Buffer, SCOPES};
use anyfn_ir::expr::{Expr, IterKind, IterVar, Range};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops;
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::Mutator;
use anyfn_ir::{analysis, make};

use crate::scope::{Scope, Swap, choose, covering_axes};
use crate::tree;

type Func = Ref<PrimFunc>;

/// Creates a compact buffer with the shape and data type of `buffer`. The caller must add the buffer to the
/// allocations of the function.
fn like(buffer: &Buffer, name: &str, scope: &str) -> Ref<Buffer> {
    Ref::new(Buffer {
        data: ops::var(&format!("{name}_data"), ops::HANDLE),
        dtype: buffer.dtype,
        shape: buffer.shape.clone(),
        strides: Array::new(),
        name: name.into(),
        scope: scope.into(),
        alignment: 64,
    })
}

/// Creates a block called `name` in new loops. The block sets each element of `target` to the value that the
/// function `value` returns for the indices of the element.
pub(crate) fn fill(
    name: &str,
    target: &Ref<Buffer>,
    value: impl FnOnce(&Array<Expr>) -> Result<Expr>,
) -> Result<Stmt> {
    let mut axes = Vec::new();
    let mut loops = Vec::new();
    for (place, extent) in target.shape.iter().enumerate() {
        let zero = ops::int(0, extent.dtype)?;
        let dom = Ref::new(Range { min: zero, extent: extent.clone() });
        let var = ops::var(&format!("v_ax{place}"), extent.dtype);
        axes.push(Ref::new(IterVar { dom, var, kind: IterKind::Spatial }));
        loops.push((ops::var(&format!("ax{place}"), extent.dtype), extent));
    }
    let indices: Array<Expr> = axes.iter().map(|axis| axis.var.clone().into_parent()).collect();
    let body = make::store(target, value(&indices)?, indices)?;
    let writes = analysis::writes(&body);
    let reads = analysis::reads(&body, &writes.iter().cloned().collect());
    let block = make::block(name, axes, reads, writes, [], None, body);
    let values = loops.iter().map(|(var, _)| var.clone().into_parent());
    let mut stmt = make::realize(values, ops::bool(true), block);
    for (var, extent) in loops.into_iter().rev() {
        stmt = make::for_loop(var, ops::int(0, extent.dtype)?, extent, stmt);
    }
    Ok(stmt)
}

fn check_scope(scope: &str) -> Result<()> {
    if !SCOPES.contains(&scope) {
        bail!("ValueError", "unknown memory scope `{scope}`; known scopes are {}", SCOPES.join(", "));
    }
    Ok(())
}

/// Adds a block that copies a buffer, and makes the block `name` read the copy. The new block precedes the
/// outermost loop around the block `name`. Returns the function and the name of the new block, which is also
/// the name of the copy.
///
/// # Errors
/// Returns `ValueError` if the block does not read the buffer or passes it to a call, if the block or another block in
/// the same outermost loop writes it, or if no block is proven to set all elements of a buffer that the function
/// allocates.
pub(crate) fn cache_read(func: &Func, name: &str, wanted: &Any, memory: &str) -> Result<(Func, String)> {
    check_scope(memory)?;
    let scope = Scope::of(func)?;
    let leaf = &scope.leaves[scope.find(name)?];
    let buffer = choose(name, "reads", leaf.block().reads.iter().map(|region| region.buffer.clone()), wanted)?;
    if leaf.uses.passes(&buffer) {
        bail!(
            "ValueError",
            "block `{name}` cannot read a copy of `{}`: it passes the buffer to a function, which may \
             require the original",
            buffer.name
        );
    }
    if leaf.uses.writes(&buffer) {
        bail!(
            "ValueError",
            "block `{name}` cannot read a copy of `{}`: it also writes the buffer",
            buffer.name
        );
    }
    for other in scope.leaves.iter().filter(|other| other.child == leaf.child) {
        if other.uses.writes(&buffer) {
            bail!(
                "ValueError",
                "block `{name}` cannot read a copy of `{}`: block `{}` in the same loop nest writes the buffer",
                buffer.name,
                other.name()
            );
        }
    }
    // A copy reads all elements, including padding that a layout has added and that is uninitialised.
    let is_set = scope.leaves.iter().any(|writer| covering_axes(writer, &buffer).is_some());
    if scope.is_local(&buffer) && !is_set {
        bail!(
            "ValueError",
            "block `{name}` cannot read a copy of `{}`: no block is proven to write each of its elements; \
             make the copy before its layout is transformed, or transform it with pad",
            buffer.name
        );
    }
    let cache_name = scope.free_name(func, &format!("{}_{memory}", buffer.name));
    let cache = like(&buffer, &cache_name, memory);
    let copy = fill(&cache_name, &cache, |indices| ops::load(&buffer, indices.clone()))?;
    let old = leaf.place.realize.clone().into_parent();
    let new = Swap { old: &buffer, new: &cache }.stmt(&old)?;
    let mut children = scope.children.clone();
    children[leaf.child] = tree::replace_stmt(&children[leaf.child], &old, new)?;
    children.insert(leaf.child, copy);
    let memory = scope.root.block.alloc_buffers.iter().chain([cache]);
    Ok((scope.with(func, children, memory), cache_name))
}

/// Makes the block `name` write to a new buffer, and adds a block that copies the new buffer to the original
/// one. The new block follows the outermost loop around the block `name`. Returns the function and the name
/// of the new block, which is also the name of the new buffer.
///
/// # Errors
/// Returns `ValueError` if the block does not set the whole buffer, or if a block of another loop nest writes it.
pub(crate) fn cache_write(func: &Func, name: &str, wanted: &Any, memory: &str) -> Result<(Func, String)> {
    check_scope(memory)?;
    let scope = Scope::of(func)?;
    let leaf = &scope.leaves[scope.find(name)?];
    let buffer =
        choose(name, "writes", leaf.block().writes.iter().map(|region| region.buffer.clone()), wanted)?;
    scope.check_replaceable(&buffer)?;
    let refuse = |why: &str| -> Result<(Func, String)> {
        bail!("ValueError", "block `{name}` cannot write a copy of `{}`: {why}", buffer.name)
    };
    if crate::annotate::is_partial(leaf.block()) {
        return refuse(
            "it was moved by compute_at and computes only the elements needed there; make the copy before",
        );
    }
    for other in scope.leaves.iter().filter(|other| other.uses.writes(&buffer)) {
        if other.child != leaf.child {
            return refuse(&format!("block `{}` also writes it", other.name()));
        }
    }
    // The first block that writes the buffer must set all of it, without reading its previous content.
    let first = scope.leaves.iter().find(|other| other.child == leaf.child && other.uses.writes(&buffer));
    let sets_all = first.is_some_and(|first| {
        covering_axes(first, &buffer).is_some() && (first.block().init.is_some() || !first.uses.reads(&buffer))
    });
    let is_read_before = scope
        .leaves
        .iter()
        .filter(|other| other.child == leaf.child)
        .take_while(|other| !other.uses.writes(&buffer))
        .any(|other| other.uses.reads(&buffer));
    if !sets_all || is_read_before {
        return refuse("the block does not write each element of the buffer");
    }
    let cache_name = scope.free_name(func, &format!("{}_{memory}", buffer.name));
    let cache = like(&buffer, &cache_name, memory);
    let copy = fill(&cache_name, &buffer, |indices| ops::load(&cache, indices.clone()))?;
    let mut children = scope.children.clone();
    children[leaf.child] = Swap { old: &buffer, new: &cache }.stmt(&children[leaf.child])?;
    children.insert(leaf.child + 1, copy);
    let memory = scope.root.block.alloc_buffers.iter().chain([cache]);
    Ok((scope.with(func, children, memory), cache_name))
}
