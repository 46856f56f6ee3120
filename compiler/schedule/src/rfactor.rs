//! Schedule step `rfactor`, which splits a reduction into partial results.

use anyfn::{Array, Ref, Result, bail};
use anyfn_ir::analysis::{Update, conjuncts};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, IterKind, IterVar, Range, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{Block, For, Stmt};
use anyfn_ir::visit::{Mutator, on_enough_stack};
use anyfn_ir::{ExprKind, analysis, make, ops};

use crate::loops::{substitute_expr, with_body};
use crate::reduction;
use crate::tree::{self, BlockPath, address, find_block, find_loop, vars_of};

type Func = Ref<PrimFunc>;
type Pairs = Vec<(Ref<Var>, Expr)>;

/// Splits the reduction block `name` into two blocks. The new block, `{name}_rf`, gets new loops of
/// the same kinds and computes a partial result for each iteration of the loop of `var`. The block
/// `name` combines the partial results. Around the block `name`, only the loop of `var` and the
/// loops that belong to no reduction axis remain. Returns the function and the name of the new
/// block.
///
/// # Errors
/// Returns `ValueError` if the block is not a sum, product, minimum or maximum, if it has been decomposed, if the loop
/// does not belong to a reduction axis, or if a condition could exclude all values of a partial result.
pub(crate) fn rfactor(func: &Func, name: &str, var: &Ref<Var>) -> Result<(Func, String)> {
    let place = find_block(func, name)?;
    let node = find_loop(func, var)?;
    let refuse = |why: &str| -> Result<(Func, String)> {
        bail!(
            "ValueError",
            "loop `{}` cannot be factored out of the reduction of block `{name}`: {why}",
            var.name
        )
    };
    let block = place.block();
    let (Some(init), Some(step)) = (&block.init, reduction::step(block)) else {
        return refuse("the block is not a sum, product, minimum or maximum, or is already decomposed");
    };
    if !place.loops.iter().any(|outer| outer.ptr_eq(&node)) {
        return refuse("the loop does not enclose the block");
    }
    if !place.loops.windows(2).all(|pair| tree::only_loop(&pair[0]).is_some_and(|inner| inner.ptr_eq(&pair[1])))
        || !place.loops.last().is_some_and(|last| last.body.ptr_eq(&place.realize.clone().into_parent()))
    {
        return refuse("the loops around the block contain other statements");
    }
    if !is_int(&node.min, 0) {
        return refuse("the loop does not begin at 0");
    }
    let Some(first) = place.loops.first() else { return refuse("the block has no loops") };
    let loops = Loops::new(&place, &node)?;
    if loops.reducing.iter().all(|other| !other.ptr_eq(&node)) {
        return refuse("the loop does not belong to a reduction axis");
    }
    for condition in conjuncts(&place.realize.predicate) {
        let (spatial, reducing) = loops.uses(&condition);
        if reducing && (spatial || !loops.holds_at_first(&condition)?) {
            return refuse("a condition may exclude all values of a partial result");
        }
    }

    // The new block, in its own loops.
    let own = |old: &Ref<Var>| ops::var(&format!("{}_rf", old.name), old.dtype);
    let mut loop_vars: Pairs = Vec::new();
    let mut new_loops = Vec::new();
    for outer in &place.loops {
        let new = own(&outer.loop_var);
        loop_vars.push((outer.loop_var.clone(), new.clone().into_parent()));
        new_loops.push((new, outer));
    }
    let mut axes = Vec::new();
    let mut values = Vec::new();
    let mut axis_vars: Pairs = Vec::new();
    let mut shape = vec![node.extent.clone()];
    let taken = ops::var(&format!("v_{}", var.name), var.dtype);
    let dom = Ref::new(Range { min: node.min.clone(), extent: node.extent.clone() });
    axes.push(Ref::new(IterVar { dom: dom.clone(), var: taken.clone(), kind: IterKind::Spatial }));
    values.push(replaced(&var.clone().into_parent(), &loop_vars)?);
    let mut indices: Vec<Expr> = vec![taken.clone().into_parent()];
    for (axis, value) in block.iter_vars.iter().zip(place.realize.iter_values.iter()) {
        if axis.kind == IterKind::Spatial {
            if !is_int(&axis.dom.min, 0) {
                return refuse("an axis does not begin at 0");
            }
            let new = own(&axis.var);
            shape.push(axis.dom.extent.clone());
            indices.push(new.clone().into_parent());
            axis_vars.push((axis.var.clone(), new.clone().into_parent()));
            axes.push(Ref::new(IterVar { dom: axis.dom.clone(), var: new, kind: axis.kind }));
            values.push(replaced(&value, &loop_vars)?);
        }
    }
    // If the value of an axis uses the variables of the factored loop and of other loops, those loops become
    // axes.
    let mut loop_axes: Pairs = vec![(var.clone(), taken.into_parent())];
    for (axis, value) in block.iter_vars.iter().zip(place.realize.iter_values.iter()) {
        if axis.kind == IterKind::Spatial {
            continue;
        }
        if !vars_of(&value).contains(&address(var)) {
            let new = own(&axis.var);
            axis_vars.push((axis.var.clone(), new.clone().into_parent()));
            axes.push(Ref::new(IterVar { dom: axis.dom.clone(), var: new, kind: axis.kind }));
            values.push(replaced(&value, &loop_vars)?);
            continue;
        }
        for other in &place.loops {
            let other_var = &other.loop_var;
            let is_known = loop_axes.iter().any(|(known, _)| known.ptr_eq(other_var));
            if is_known || !vars_of(&value).contains(&address(other_var)) {
                continue;
            }
            let new = ops::var(&format!("v_{}", other_var.name), other_var.dtype);
            let dom = Ref::new(Range { min: other.min.clone(), extent: other.extent.clone() });
            loop_axes.push((other_var.clone(), new.clone().into_parent()));
            axes.push(Ref::new(IterVar { dom, var: new, kind: IterKind::Reduce }));
            values.push(replaced(&other_var.clone().into_parent(), &loop_vars)?);
        }
        axis_vars.push((axis.var.clone(), replaced(&value, &loop_axes)?));
    }
    let partial = make::buffer(
        &format!("{}_rf", step.store.buffer.name),
        shape.into_iter().collect(),
        step.store.buffer.dtype,
    );
    let indices: Array<Expr> = indices.into_iter().collect();
    let new_name = format!("{name}_rf");
    let stage = Stage { init, step: &step, target: &partial, indices };
    let value = replaced(&step.value, &axis_vars)?;
    let new_block = stage.block(&new_name, axes, value)?;
    let predicate = replaced(&place.realize.predicate, &loop_vars)?;
    let mut before = make::realize(values, predicate, new_block);
    for (new, outer) in new_loops.into_iter().rev() {
        before = make::for_of_kind(
            new,
            replaced(&outer.min, &loop_vars)?,
            replaced(&outer.extent, &loop_vars)?,
            outer.kind,
            before,
        );
    }

    // The original block combines the partial results.
    let mut axes: Vec<Ref<IterVar>> = Vec::new();
    let mut values = Vec::new();
    let combined = ops::var(&format!("v_{}", var.name), var.dtype);
    let mut at: Vec<Expr> = vec![combined.clone().into_parent()];
    for (axis, value) in block.iter_vars.iter().zip(place.realize.iter_values.iter()) {
        if axis.kind == IterKind::Spatial {
            at.push(axis.var.clone().into_parent());
            axes.push(axis);
            values.push(value);
        }
    }
    axes.push(Ref::new(IterVar { dom, var: combined, kind: IterKind::Reduce }));
    values.push(var.clone().into_parent());
    let stage = Stage { init, step: &step, target: &step.store.buffer, indices: step.store.indices.clone() };
    let new = stage.block(name, axes, ops::load(&partial, at.into_iter().collect())?)?;
    let block = make::annotated(&new, block.annotations.clone());
    let mut predicate = ops::bool(true);
    for condition in conjuncts(&place.realize.predicate) {
        if !loops.uses(&condition).1 {
            predicate = ops::and(predicate, condition)?;
        }
    }
    let mut after = make::realize(values, predicate, block);
    for outer in place.loops.iter().rev() {
        let is_kept = outer.ptr_eq(&node) || !loops.reducing.iter().any(|other| other.ptr_eq(outer));
        if is_kept {
            after = with_body(outer, after);
        }
    }
    let func = tree::replace(func, &first.clone().into_parent(), make::seq([before, after]))?;
    Ok((allocated(&func, &partial)?, new_name))
}

/// Reduction block that is to be created: the initialisation, the update, and the element to which
/// both apply.
struct Stage<'a> {
    init: &'a Stmt,
    step: &'a Update<'a>,
    target: &'a Ref<Buffer>,
    indices: Array<Expr>,
}

impl Stage<'_> {
    fn block(&self, name: &str, axes: Vec<Ref<IterVar>>, value: Expr) -> Result<Ref<Block>> {
        let anyfn_ir::StmtKind::BufferStore(first) = anyfn_ir::StmtKind::of(self.init) else {
            bail!("ValueError", "block `{name}`: the initialisation of the reduction is more than one store");
        };
        let init = make::store(self.target, first.value.clone(), self.indices.clone())?;
        let so_far = ops::load(self.target, self.indices.clone())?;
        let body = make::store(self.target, ops::binary(self.step.op, so_far, value)?, self.indices.clone())?;
        let writes = analysis::writes(&body);
        let reads = analysis::reads(&body, &writes.iter().cloned().collect());
        Ok(make::block(name, axes, reads, writes, [], Some(init), body))
    }
}

fn replaced(expr: &Expr, pairs: &[(Ref<Var>, Expr)]) -> Result<Expr> {
    let pairs: Vec<(&Ref<Var>, Expr)> = pairs.iter().map(|(var, value)| (var, value.clone())).collect();
    substitute_expr(expr, &pairs)
}

/// Loops around a reduction block. Also lists those that belong to the reduction axes of the block.
struct Loops<'a> {
    all: &'a [Ref<For>],
    /// Loops whose variables occur in the value of a reduction axis.
    reducing: Vec<Ref<For>>,
    /// Loop that is factored: each of its iterations computes a partial result.
    taken: &'a Ref<For>,
}

impl<'a> Loops<'a> {
    fn new(place: &'a BlockPath, taken: &'a Ref<For>) -> Result<Loops<'a>> {
        let mut reducing = Vec::new();
        for node in &place.loops {
            let uses = |kind: IterKind| {
                let mut axes = place.block().iter_vars.iter().zip(place.realize.iter_values.iter());
                axes.any(|(axis, value)| {
                    axis.kind == kind && vars_of(&value).contains(&address(&node.loop_var))
                })
            };
            if uses(IterKind::Ordered) || (uses(IterKind::Reduce) && uses(IterKind::Spatial)) {
                bail!(
                    "ValueError",
                    "loop `{}` belongs to an ordered axis, or to both a reduction axis and a spatial axis",
                    node.loop_var.name
                );
            }
            if uses(IterKind::Reduce) {
                reducing.push(node.clone());
            }
        }
        Ok(Loops { all: &place.loops, reducing, taken })
    }

    /// Returns two flags. The first flag is true if an expression uses the variable of a loop that belongs to
    /// no reduction axis. The second flag is true if the expression uses the variable of a loop that belongs
    /// to a reduction axis.
    fn uses(&self, expr: &Expr) -> (bool, bool) {
        let vars = vars_of(expr);
        let is_used = |node: &&Ref<For>| vars.contains(&address(&node.loop_var));
        let is_reducing = |node: &&Ref<For>| self.reducing.iter().any(|other| other.ptr_eq(node));
        let spatial = self.all.iter().filter(is_used).any(|node| !is_reducing(&node));
        (spatial, self.reducing.iter().any(|node| is_used(&node)))
    }

    /// Returns true if a condition holds in all iterations of the factored loop while the variables of the
    /// other reduction loops have their first values.
    fn holds_at_first(&self, condition: &Expr) -> Result<bool> {
        let first = |var: &Ref<Var>| {
            let node = self.reducing.iter().find(|node| node.loop_var.ptr_eq(var))?;
            if node.ptr_eq(self.taken) { None } else { Some(node.min.clone()) }
        };
        let condition = Fold(first).expr(condition)?;
        let ExprKind::Binary(BinaryOp::Lt, node) = ExprKind::of(&condition) else {
            return Ok(is_int(&condition, 1));
        };
        // A left operand made of sums and products of variables and non-negative numbers grows with the
        // variable, so it suffices to check the last iteration.
        let last = as_int(&self.taken.extent).and_then(|extent| extent.checked_sub(1));
        let last = last.and_then(|last| ops::int(last, self.taken.loop_var.dtype).ok());
        let (Some(last), true) = (last, grows(&node.a)) else { return Ok(false) };
        let at_last = |var: &Ref<Var>| var.ptr_eq(&self.taken.loop_var).then(|| last.clone());
        Ok(is_int(&Fold(at_last).expr(&condition)?, 1))
    }
}

/// Returns true if an expression consists of sums and products of variables and non-negative integers.
fn grows(expr: &Expr) -> bool {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Var(_) => true,
        ExprKind::IntImm(node) => node.value >= 0,
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Mul, node) => grows(&node.a) && grows(&node.b),
        _ => false,
    })
}

/// Mutator that replaces variables by values and folds constants.
struct Fold<F>(F);

impl<F: FnMut(&Ref<Var>) -> Option<Expr>> Mutator for Fold<F> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Var(var) => Ok((self.0)(var).unwrap_or_else(|| expr.clone())),
            ExprKind::Binary(op, node) => ops::rebuilt(op, self.expr(&node.a)?, self.expr(&node.b)?),
            _ => self.below_expr(expr),
        })
    }
}

/// Returns the function with `buffer` added to the buffers that its outermost block allocates.
fn allocated(func: &Func, buffer: &Ref<Buffer>) -> Result<Func> {
    struct Allocated<'a>(Option<&'a Ref<Buffer>>);
    impl Mutator for Allocated<'_> {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn block(&mut self, node: &Ref<Block>) -> Result<Ref<Block>> {
            let Some(buffer) = self.0.take() else { return Ok(node.clone()) };
            let buffers = node.alloc_buffers.iter().chain([buffer.clone()]);
            let new = make::block(
                &node.name,
                node.iter_vars.iter(),
                node.reads.iter(),
                node.writes.iter(),
                buffers,
                node.init.clone(),
                node.body.clone(),
            );
            Ok(make::annotated(&new, node.annotations.clone()))
        }
    }
    Ok(tree::with_body(func, Allocated(Some(buffer)).stmt(&func.body)?))
}
