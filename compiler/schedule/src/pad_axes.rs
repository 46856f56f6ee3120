//! Schedule step `pad_axes`, which rounds up the extents of a block's axes.

use anyfn::{Array, ObjectRef, Ref, Result, bail};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, IterKind, IterVar, PrimExpr, Range, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::{Block, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make, ops, printer};

use crate::annotate::is_partial;
use crate::layout::check_own;
use crate::loops::substitute_expr;
use crate::scope::{Leaf, Scope, Swap, covering_axes, own_loops, own_nest, rewrite_block};
use crate::tree;

type Func = Ref<PrimFunc>;

/// Rounds the extents of a block's axes up to multiples of the given numbers. The block then computes
/// additional elements that are never read, and the buffers that it writes grow accordingly. If the block
/// would read beyond a buffer for such an element, or read an element that may be unset, it reads a nearby
/// element instead.
///
/// # Errors
/// Returns `ValueError` if a reduction axis would grow, if the loops of the block are already split or scheduled, or if
/// an element that the block would read is not proven to exist. Also returns it if the function does not allocate the
/// buffer that the block sets, or if another block sets that buffer, too.
pub(crate) fn pad_axes(func: &Func, name: &str, multiples: &[Option<i64>]) -> Result<Func> {
    let scope = Scope::of(func)?;
    let leaf = &scope.leaves[scope.find(name)?];
    let block = leaf.block();
    let refuse = |why: &str| -> Result<Func> {
        bail!("ValueError", "the axes of block `{name}` cannot be padded: {why}")
    };
    if multiples.len() > block.iter_vars.len() {
        return refuse(&format!("it has {} axes but got {} numbers", block.iter_vars.len(), multiples.len()));
    }
    let mut doms = Vec::new();
    for (place, axis) in block.iter_vars.iter().enumerate() {
        let multiple = multiples.get(place).copied().flatten().unwrap_or(1);
        if multiple < 1 || multiple > i64::from(i32::MAX) {
            return refuse(&format!("expected a multiple between 1 and 2147483647, got {multiple}"));
        }
        let extent = rounded_up(&axis.dom.extent, multiple)?;
        if crate::scope::same(&extent, &axis.dom.extent) {
            doms.push(None);
            continue;
        }
        if axis.kind != IterKind::Spatial {
            return refuse(&format!("axis `{}` is not spatial", axis.var.name));
        }
        doms.push(Some(extent));
    }
    if doms.iter().all(Option::is_none) {
        return Ok(func.clone());
    }
    if is_partial(block) {
        return refuse(
            "it was moved by compute_at and computes only the elements needed there; pad its axes before",
        );
    }
    if let Some(what) = trap_of(leaf) {
        return refuse(&format!("it {what}, which is not allowed for padding elements"));
    }
    let mut buffers: Vec<(Ref<Buffer>, Ref<Buffer>)> = Vec::new();
    for (buffer, _) in &leaf.uses.stores {
        if buffers.iter().any(|(known, _)| known.ptr_eq(buffer)) {
            continue;
        }
        check_own(&scope, buffer, "the shape")?;
        if let Some(other) = scope
            .leaves
            .iter()
            .find(|other| !other.place.realize.ptr_eq(&leaf.place.realize) && other.uses.writes(buffer))
        {
            return refuse(&format!("block `{}` also writes `{}`", other.name(), buffer.name));
        }
        let Some(axes) = covering_axes(leaf, buffer) else {
            return refuse(&format!(
                "its indices into `{}` are not distinct axes that cover the whole buffer",
                buffer.name
            ));
        };
        if block.init.is_none() && leaf.uses.reads(buffer) {
            return refuse(&format!("it updates the previous content of `{}`", buffer.name));
        }
        let shape: Array<Expr> = axes
            .iter()
            .zip(buffer.shape.iter())
            .map(|(axis, extent)| doms[*axis].clone().unwrap_or(extent))
            .collect();
        let new = Ref::new(Buffer {
            data: buffer.data.clone(),
            dtype: buffer.dtype,
            shape,
            strides: Array::new(),
            name: buffer.name.clone(),
            scope: buffer.scope.clone(),
            alignment: buffer.alignment,
        });
        buffers.push((buffer.clone(), new));
    }
    let bound = |extent_of: &dyn Fn(usize, &IterVar) -> Expr| {
        let mut analyzer = Analyzer::new();
        for (place, axis) in block.iter_vars.iter().enumerate() {
            analyzer.bind(&axis.var, &axis.dom.min, &extent_of(place, &axis));
        }
        analyzer
    };
    let mut near = Near {
        block,
        scope: &scope,
        nearest: nearest(block, &doms)?,
        own: buffers.iter().map(|(own, _)| own).collect(),
        padded: bound(&|place, axis| doms[place].clone().unwrap_or_else(|| axis.dom.extent.clone())),
        exact: bound(&|_, axis| axis.dom.extent.clone()),
    };
    let near = rewrite_block(&mut near, block)?;
    let Some(nest) = padded_nest(leaf, &near, &doms)? else {
        return refuse(
            "its loops are already split, fused or scheduled, or contain other blocks; pad its axes before",
        );
    };
    let mut children = scope.children.clone();
    children[leaf.child] = tree::replace_stmt(&children[leaf.child], &own_nest(&leaf.place), nest)?;
    let mut memory: Vec<Ref<Buffer>> = scope.root.block.alloc_buffers.iter().collect();
    for (old, new) in &buffers {
        for child in &mut children {
            *child = Swap { old, new }.stmt(child)?;
        }
        for own in &mut memory {
            if own.ptr_eq(old) {
                *own = new.clone();
            }
        }
    }
    Ok(scope.with(func, children, memory))
}

/// Mutator for reads that would be out of bounds because axes were padded. It redirects each of
/// these reads to the nearest element of the buffer.
struct Near<'a> {
    block: &'a Ref<Block>,
    scope: &'a Scope,
    /// Padded axes of the block, each with an expression that limits the value of the axis to the last value
    /// before padding.
    nearest: Vec<(Ref<Var>, Expr)>,
    /// Buffers that the padded block writes, which are enlarged together with the axes of the
    /// block.
    own: Vec<&'a Ref<Buffer>>,
    /// Analyzer that knows the padded domains of the block's axes; `exact` knows the original domains.
    padded: Analyzer,
    exact: Analyzer,
}

impl Near<'_> {
    fn index(&mut self, buffer: &Buffer, index: Expr, extent: &Expr) -> Result<Expr> {
        let axes: Vec<Ref<Var>> = self.block.iter_vars.iter().map(|axis| axis.var.clone()).collect();
        if is_within(&mut self.padded, &index, extent, &axes)? {
            return Ok(index);
        }
        if !is_within(&mut self.exact, &index, extent, &axes)? {
            bail!(
                "ValueError",
                "the axes of block `{}` cannot be padded: it would read `{}` at index `{}`, which is not \
                 proven to be below {}; pad the input first (cache_read, transform_layout with pad)",
                self.block.name,
                buffer.name,
                printer::brief(index.as_object()),
                printer::brief(extent.as_object())
            );
        }
        let number = |value: i64| ops::int(value, index.dtype);
        let near = ops::binary(BinaryOp::Min, index.clone(), ops::sub(extent.clone(), number(1)?)?)?;
        if is_within(&mut self.padded, &near, extent, &axes)? {
            return Ok(near);
        }
        ops::binary(BinaryOp::Max, near, number(0)?)
    }
}

impl Mutator for Near<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        on_enough_stack(|| {
            let ExprKind::BufferLoad(node) = ExprKind::of(expr) else { return self.below_expr(expr) };
            if self.own.iter().any(|own| own.ptr_eq(&node.buffer)) {
                return self.below_expr(expr);
            }
            let is_filled = self.scope.is_filled(&node.buffer);
            let mut indices = Vec::new();
            for (index, extent) in node.indices.iter().zip(node.buffer.shape.iter()) {
                let near = match is_filled {
                    true => self.index(&node.buffer, index, &extent)?,
                    // The redirected read uses an element that the block reads in any case.
                    false => {
                        let nearest = self.nearest.iter().map(|(axis, value)| (axis, value.clone()));
                        substitute_expr(&index, &nearest.collect::<Vec<_>>())?
                    }
                };
                indices.push(self.expr(&near)?);
            }
            if indices.iter().zip(node.indices.iter()).all(|(new, old)| new.ptr_eq(&old)) {
                return Ok(expr.clone());
            }
            ops::load(&node.buffer, indices.into_iter().collect())
        })
    }
}

/// Returns the axes of `block` that are padded, each with an expression that limits the value of the axis to
/// the last value before padding. `doms` contains the new extents of these axes, and `None` for all others.
fn nearest(block: &Block, doms: &[Option<Expr>]) -> Result<Vec<(Ref<Var>, Expr)>> {
    let longer = block.iter_vars.iter().zip(doms).filter(|(_, dom)| dom.is_some());
    let last = |axis: &IterVar| {
        let end = ops::add(axis.dom.min.clone(), axis.dom.extent.clone())?;
        let last = ops::sub(end, ops::int(1, axis.var.dtype)?)?;
        ops::binary(BinaryOp::Min, axis.var.clone().into_parent(), last)
    };
    longer.map(|(axis, _)| Ok((axis.var.clone(), last(&axis)?))).collect()
}

/// Returns true if `index` is proven to be within a dimension of size `extent` for all values of `axes`.
fn is_within(analyzer: &mut Analyzer, index: &Expr, extent: &Expr, axes: &[Ref<Var>]) -> Result<bool> {
    let zero = ops::int(0, index.dtype)?;
    let mut limits = vec![(index.clone(), index.clone())];
    // The bounds over all values of the axes may be simpler.
    limits.extend(analyzer.bounds(index, axes));
    for (low, high) in limits {
        let not_below = ops::binary(BinaryOp::Ge, low, zero.clone())?;
        if analyzer.can_prove(&not_below) && analyzer.can_prove(&ops::less(high, extent.clone())?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rounds `extent` up to a multiple of `multiple`.
fn rounded_up(extent: &Expr, multiple: i64) -> Result<Expr> {
    let number = |value: i64| ops::int(value, extent.dtype);
    match as_int(extent) {
        Some(extent) => {
            let rest = extent.rem_euclid(multiple);
            number(if rest == 0 { extent } else { extent.saturating_add(multiple - rest) })
        }
        None if multiple == 1 => Ok(extent.clone()),
        None => {
            let tiles = ops::floor_div(ops::add(extent.clone(), number(multiple - 1)?)?, number(multiple)?)?;
            ops::mul(tiles, number(multiple)?)
        }
    }
}

/// Returns `block` in new loops, with the axis extents `doms`. Returns `None` if the current loops
/// of the block are not plain loops over its axes.
fn padded_nest(leaf: &Leaf, block: &Ref<Block>, doms: &[Option<Expr>]) -> Result<Option<Stmt>> {
    let own = own_loops(&leaf.place);
    if !is_int(&leaf.place.realize.predicate, 1) || own.len() != leaf.place.loops.len() {
        return Ok(None);
    }
    let mut axes = Vec::new();
    let mut extents: Vec<Option<Expr>> = vec![None; own.len()];
    for ((axis, value), dom) in block.iter_vars.iter().zip(leaf.place.realize.iter_values.iter()).zip(doms) {
        let Some(extent) = dom else {
            axes.push(axis);
            continue;
        };
        let is_own = |var: &Ref<Var>| own.iter().position(|node| node.loop_var.ptr_eq(var));
        let Some(place) = value.cast_ref::<Var>().and_then(is_own) else { return Ok(None) };
        let node = &own[place];
        if !is_int(&node.min, 0) || !crate::scope::same(&node.extent, &axis.dom.extent) {
            return Ok(None);
        }
        extents[place] = Some(extent.clone());
        let dom = Ref::new(Range { min: axis.dom.min.clone(), extent: extent.clone() });
        axes.push(Ref::new(IterVar { dom, var: axis.var.clone(), kind: axis.kind }));
    }
    let (reads, writes) = (block.reads.iter(), block.writes.iter());
    let new = make::block(
        &block.name,
        axes,
        reads,
        writes,
        block.alloc_buffers.iter(),
        block.init.clone(),
        block.body.clone(),
    );
    let new: Ref<Block> = make::annotated(&new, block.annotations.clone());
    let mut stmt = make::realize(leaf.place.realize.iter_values.iter(), ops::bool(true), new);
    for (node, extent) in own.iter().zip(extents).rev() {
        if node.kind != ForKind::Serial || !node.annotations.is_empty() {
            return Ok(None);
        }
        let extent = extent.unwrap_or_else(|| node.extent.clone());
        stmt = make::for_loop(node.loop_var.clone(), node.min.clone(), extent, stmt);
    }
    Ok(Some(stmt))
}

/// Returns a description of an operation of a block that must not be executed for padding, such as an integer
/// division by a value that may be 0, or a call. Returns `None` if the block has no such operation.
fn trap_of(leaf: &Leaf) -> Option<&'static str> {
    struct Find(Option<&'static str>);
    impl Visitor for Find {
        fn expr(&mut self, expr: &Expr) {
            match ExprKind::of(expr) {
                ExprKind::Binary(op, node) if expr.dtype.is_integer() => {
                    let divides =
                        matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
                    if divides && as_int(&node.b).is_none_or(|number| number == 0) {
                        self.0 = Some("divides integers");
                    }
                }
                ExprKind::Call(node) => {
                    let is_value =
                        |arg: ObjectRef| Ref::<PrimExpr>::try_from_object(arg).is_ok_and(|arg| is_number(&arg));
                    if node.op.starts_with("call") || !node.args.iter().all(is_value) {
                        self.0 = Some("calls a function");
                    }
                }
                ExprKind::Other => self.0 = Some("contains a node of unknown type"),
                _ => {}
            }
            self.below_expr(expr);
        }
        fn stmt(&mut self, stmt: &Stmt) {
            if matches!(StmtKind::of(stmt), StmtKind::Other) {
                self.0 = Some("contains a node of unknown type");
            }
            self.below_stmt(stmt);
        }
    }
    if leaf.uses.effect.is_some() || !leaf.uses.passed.is_empty() {
        return leaf.uses.effect.or(Some("passes a buffer to a function"));
    }
    let mut find = Find(None);
    find.stmt(&leaf.block().body);
    if let Some(init) = &leaf.block().init {
        find.stmt(init);
    }
    find.0
}

fn is_number(expr: &Expr) -> bool {
    expr.dtype.is_integer() || expr.dtype.is_float() || expr.dtype.is_bool()
}
