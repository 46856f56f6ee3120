//! Schedule step `transform_layout`, which changes the memory layout of a buffer.

use anyfn::{Any, Array, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BufferLoad, Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::stmt::{Block, BufferStore, ForKind, Stmt};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{ExprKind, StmtKind, make, ops, printer};

use crate::cache::fill;
use crate::index_map::IndexMap;
use crate::loops::substitute_expr;
use crate::scope::{Leaf, Scope, choose, covering_axes, own_loops, own_nest, rewrite_block};
use crate::tree;

type Func = Ref<PrimFunc>;

/// Returns the buffer that `wanted` designates among the buffers of a block. If `wanted` is an index, the
/// buffers that the block writes are counted first, then the buffers that it reads.
pub(crate) fn buffer_of(leaf: &Leaf, wanted: &Any) -> Result<Ref<Buffer>> {
    let block = leaf.block();
    let written = block.writes.iter().map(|region| region.buffer.clone());
    let read = block.reads.iter().map(|region| region.buffer.clone());
    choose(leaf.name(), "uses", written.chain(read), wanted)
}

/// Checks that a buffer is allocated by the function, compact, and accessed element by element.
pub(crate) fn check_own(scope: &Scope, buffer: &Ref<Buffer>, what: &str) -> Result<()> {
    if !scope.is_local(buffer) {
        bail!(
            "ValueError",
            "{what} of `{}` cannot be changed: the caller of the function owns the buffer; create a copy of \
             it with cache_read or cache_write",
            buffer.name
        );
    }
    if !buffer.strides.is_empty() {
        bail!("ValueError", "{what} of `{}` cannot be changed: the buffer has strides", buffer.name);
    }
    scope.check_replaceable(buffer)
}

/// Changes the memory layout of a buffer, and the indices of all accesses to it.
///
/// If `pad` is given, the block that sets the buffer gets loops over all locations of the new layout. It sets
/// each location that has no element of the old layout to the value `pad`.
///
/// # Errors
/// Returns `ValueError` if the function does not allocate the buffer or if the map is not one-to-one. With padding,
/// also returns it if the block that sets the buffer is a reduction, does more than set one element, shares a loop with
/// another block, or is already scheduled. Returns `TypeError` if an index of the map has another data type than the
/// buffer's indices, or if the padding is not a number.
pub(crate) fn transform_layout(
    func: &Func,
    name: &str,
    wanted: &Any,
    map: &IndexMap,
    pad: &Option<Expr>,
) -> Result<Func> {
    let scope = Scope::of(func)?;
    let leaf = &scope.leaves[scope.find(name)?];
    let buffer = buffer_of(leaf, wanted)?;
    check_own(&scope, &buffer, "the layout")?;
    let Ok(dtype) = buffer.shape.first().map(|extent| extent.dtype) else {
        bail!("ValueError", "the layout of `{}` cannot be changed: the buffer has no dimensions", buffer.name);
    };
    if let Some(var) = map.vars.iter().find(|var| var.dtype != dtype) {
        bail!(
            "TypeError",
            "index `{}` of the index map is {} but `{}` is indexed by {dtype}",
            var.name,
            var.dtype,
            buffer.name
        );
    }
    if let Some(pad) = pad
        && !matches!(ExprKind::of(pad), ExprKind::IntImm(_) | ExprKind::FloatImm(_))
    {
        bail!("TypeError", "padding must be a number, not `{}`", printer::brief(pad.as_object()));
    }
    let layout = map.layout(&buffer.shape)?;
    let new = Ref::new(Buffer {
        data: buffer.data.clone(),
        dtype: buffer.dtype,
        shape: layout.shape(&buffer.shape, dtype)?,
        strides: Array::new(),
        name: buffer.name.clone(),
        scope: buffer.scope.clone(),
        alignment: buffer.alignment,
    });
    let mut moved = Move { old: &buffer, new: &new, map };
    let mut children = Vec::new();
    let writer = match pad {
        Some(pad) => Some((pad, padded_writer(&scope, &buffer)?)),
        None => None,
    };
    for (number, child) in scope.children.iter().enumerate() {
        let mut child = child.clone();
        if let Some((pad, (writer, axes))) = &writer
            && writer.child == number
        {
            let filled = fill(writer.name(), &new, |indices| {
                let old = layout.inverse(buffer.shape.len(), indices, dtype)?;
                let mut value = set_value(writer, axes, &old)?;
                let mut is_element = ops::bool(true);
                for (place, (index, extent)) in old.iter().zip(buffer.shape.iter()).enumerate() {
                    if !layout.is_exact(place, &extent) {
                        is_element = ops::and(is_element, ops::less(index.clone(), extent)?)?;
                    }
                }
                if as_int(&is_element) != Some(1) {
                    value = ops::select(is_element, value, ops::cast((*pad).clone(), buffer.dtype)?)?;
                }
                Ok(value)
            })?;
            let filled = with_annotations(&filled, writer.block())?;
            child = tree::replace_stmt(&child, &own_nest(&writer.place), filled)?;
        }
        children.push(moved.stmt(&child)?);
    }
    let memory = scope.root.block.alloc_buffers.iter();
    let memory = memory.map(|own| if own.ptr_eq(&buffer) { new.clone() } else { own });
    Ok(scope.with(func, children, memory.collect::<Vec<_>>()))
}

/// Returns the block that sets the buffer to be padded and, for each dimension of the buffer, the
/// position of the block's axis that indexes this dimension. Returns an error if another block also
/// sets the buffer.
fn padded_writer<'a>(scope: &'a Scope, buffer: &Ref<Buffer>) -> Result<(&'a Leaf, Vec<usize>)> {
    let mut writers = scope.leaves.iter().filter(|leaf| leaf.uses.writes(buffer));
    let (Some(writer), None) = (writers.next(), writers.next()) else {
        bail!(
            "ValueError",
            "buffer `{}` cannot be padded: it is not written by exactly one block",
            buffer.name
        );
    };
    let refuse = |why: &str| -> Result<(&'a Leaf, Vec<usize>)> {
        bail!(
            "ValueError",
            "buffer `{}` cannot be padded: block `{}`, which writes it, {why}",
            buffer.name,
            writer.name()
        )
    };
    let block = writer.block();
    if block.init.is_some() || block.iter_vars.iter().any(|axis| axis.kind != IterKind::Spatial) {
        return refuse("is a reduction");
    }
    if !matches!(StmtKind::of(&block.body), StmtKind::BufferStore(_)) {
        return refuse("does more than write one element");
    }
    if crate::annotate::is_partial(block) {
        return refuse(
            "was moved by compute_at and computes only the elements needed there; pad the buffer before",
        );
    }
    let Some(axes) = covering_axes(writer, buffer).filter(|axes| axes.len() == block.iter_vars.len()) else {
        return refuse("does not index the buffer by distinct axes that cover all of it");
    };
    let own = own_loops(&writer.place);
    if own.len() != writer.place.loops.len() {
        return refuse("shares a loop with other blocks");
    }
    if own.iter().any(|node| node.kind != ForKind::Serial || !node.annotations.is_empty()) {
        return refuse("has loops that are already scheduled; pad the buffer before");
    }
    Ok((writer, axes))
}

/// Returns the value that a block stores in the element at `indices`. For each index, `axes` contains the
/// position of the block's axis that is used as this index.
fn set_value(leaf: &Leaf, axes: &[usize], indices: &[Expr]) -> Result<Expr> {
    let block = leaf.block();
    let Some(store) = block.body.cast_ref::<BufferStore>() else {
        bail!("InternalError", "block `{}` writes no element", leaf.name());
    };
    let vars: Vec<Ref<Var>> = block.iter_vars.iter().map(|axis| axis.var.clone()).collect();
    let values: Vec<(&Ref<Var>, Expr)> =
        axes.iter().zip(indices).map(|(axis, index)| (&vars[*axis], index.clone())).collect();
    substitute_expr(&store.value, &values)
}

/// Replaces the annotations of the blocks in a statement by the annotations of `block`.
fn with_annotations(stmt: &Stmt, block: &Block) -> Result<Stmt> {
    struct Annotate<'a>(&'a Block);
    impl Mutator for Annotate<'_> {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn block(&mut self, node: &Ref<Block>) -> Result<Ref<Block>> {
            Ok(make::annotated(node, self.0.annotations.clone()))
        }
    }
    if block.annotations.is_empty() { Ok(stmt.clone()) } else { Annotate(block).stmt(stmt) }
}

/// Mutator that replaces accesses to the buffer `old` by accesses to `new`, at the indices that `map`
/// returns.
struct Move<'a> {
    old: &'a Ref<Buffer>,
    new: &'a Ref<Buffer>,
    map: &'a IndexMap,
}

impl Mutator for Move<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let expr = self.below_expr(expr)?;
        match ExprKind::of(&expr) {
            ExprKind::BufferLoad(node) if node.buffer.ptr_eq(self.old) => {
                let node: &BufferLoad = node;
                ops::load(self.new, self.map.apply(&node.indices)?)
            }
            _ => Ok(expr),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = self.below_stmt(stmt)?;
        match StmtKind::of(&stmt) {
            StmtKind::BufferStore(node) if node.buffer.ptr_eq(self.old) => {
                make::store(self.new, node.value.clone(), self.map.apply(&node.indices)?)
            }
            _ => Ok(stmt),
        }
    }

    fn block(&mut self, node: &Ref<Block>) -> Result<Ref<Block>> {
        rewrite_block(self, node)
    }
}
