//! Splits loops of kind `vectorized` into loops over full vectors and a remainder.
//!
//! A condition on the variable of a loop becomes a bound of the loop. A loop of any extent becomes loops over
//! vectors and a loop over the remaining iterations. A loop that accumulates into one element becomes a loop
//! that accumulates into a vector of partial results, which are combined after the loop.

use std::collections::HashMap;

use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::analysis::{Update, conjuncts, is_shifted, uses_var};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Substitute, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::loops::changed;

/// Length in bytes of the vectors into which loops are split. A vector fills two or more registers, so that the
/// processor can overlap the operations on different registers.
const VECTOR_BYTES: i64 = 128;
/// Size in bytes of the vector of partial results in a vectorized reduction. The vector fills enough
/// registers to hide the latency of an addition.
const PARTIAL_BYTES: i64 = 256;
/// Size in bytes to which the vector of partial results is halved repeatedly at the end of a vectorized
/// reduction. The remaining lanes are then combined.
const LAST_BYTES: i64 = 64;

/// Splits loops of kind `vectorized` into loops over vectors with power-of-two lane counts.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn vector_loops(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    struct VectorLoops;
    impl Mutator for VectorLoops {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let stmt = self.below_stmt(stmt)?;
            let StmtKind::For(node) = StmtKind::of(&stmt) else { return Ok(stmt) };
            let (outer, node) = match node.kind {
                ForKind::Serial | ForKind::Vectorized => bounded(node)?,
                _ => return Ok(stmt),
            };
            let inner = match node.kind {
                ForKind::Vectorized => vectors(&node)?,
                _ => node.clone().into_parent(),
            };
            match outer {
                Some(condition) => make::if_then(condition, inner, None),
                None => Ok(inner),
            }
        }
    }
    changed(func, VectorLoops.stmt(&func.body)?)
}

/// Replaces conditions on a loop variable by a smaller extent of the loop. Returns the new loop,
/// and the conjunction of the conditions that do not depend on the loop variable. The caller must
/// check this conjunction outside of the loop.
fn bounded(node: &Ref<For>) -> Result<(Option<Expr>, Ref<For>)> {
    let same = || Ok((None, node.clone()));
    let StmtKind::IfThenElse(branch) = StmtKind::of(&node.body) else { return same() };
    if branch.else_case.is_some() {
        return same();
    }
    let mut outer: Option<Expr> = None;
    let mut inner: Option<Expr> = None;
    let mut extent = node.extent.clone();
    for condition in conjuncts(&branch.condition) {
        let and = |known: Option<Expr>, new: Expr| match known {
            Some(known) => ops::and(known, new).map(Some),
            None => Ok(Some(new)),
        };
        if !is_plain(&condition) {
            inner = and(inner, condition)?;
        } else if !uses_var(&condition, &node.loop_var) {
            outer = and(outer, condition)?;
        } else if let Some(limit) = limit(&condition, node)? {
            extent = ops::min(extent, limit)?;
        } else {
            inner = and(inner, condition)?;
        }
    }
    if outer.is_none() && extent.ptr_eq(&node.extent) {
        return same();
    }
    let body = match inner {
        Some(condition) => make::if_then(condition, branch.then_case.clone(), None)?,
        None => branch.then_case.clone(),
    };
    if !extent.ptr_eq(&node.extent) {
        extent = ops::max(extent, ops::int(0, node.loop_var.dtype)?)?;
    }
    Ok((outer, with(node, extent, node.kind, body)?))
}

/// Returns the number of iterations, from the first one on, for which a condition of the form
/// `x + v < y` holds, where `v` is the loop variable. The number may be negative or exceed the trip
/// count. Returns `None` for conditions of another form.
fn limit(condition: &Expr, node: &For) -> Result<Option<Expr>> {
    let ExprKind::Binary(BinaryOp::Lt, compare) = ExprKind::of(condition) else { return Ok(None) };
    if uses_var(&compare.b, &node.loop_var) || !is_shifted(&compare.a, &node.loop_var) {
        return Ok(None);
    }
    let first = replaced_expr(&compare.a, &node.loop_var, &node.min)?;
    ops::sub(compare.b.clone(), first).map(Some)
}

/// Returns true if an expression consists only of variables, integers and operations on them, and
/// divides only by constants other than 0. Such an expression has no side effects and can be computed anywhere.
fn is_plain(expr: &Expr) -> bool {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Var(_) | ExprKind::IntImm(_) => true,
        ExprKind::Binary(op, node) => {
            let is_division =
                matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
            is_plain(&node.a) && is_plain(&node.b) && (!is_division || as_int(&node.b).is_some_and(|b| b != 0))
        }
        ExprKind::Cast(node) => is_plain(&node.value),
        ExprKind::Not(node) => is_plain(&node.a),
        _ => false,
    })
}

/// Splits a loop of kind `vectorized` into loops over vectors and a loop over the remaining iterations.
fn vectors(node: &Ref<For>) -> Result<Stmt> {
    if let Some(step) = step_of(node) {
        return partial_results(&step, node);
    }
    let size = element_bytes(&node.body);
    if defines(&node.body) || size == 0 {
        return Ok(node.clone().into_parent());
    }
    if let Some((first, second)) = choice(node, size)? {
        return Ok(make::seq(vec![vectors(&first)?, vectors(&second)?]));
    }
    let known = as_int(&node.extent);
    let mut lanes = VECTOR_BYTES / size;
    if known.is_some_and(|extent| extent > 1 && extent <= 2 * VECTOR_BYTES / size && extent & (extent - 1) == 0)
    {
        return Ok(node.clone().into_parent());
    }
    let mut parts = Parts::new(node, VectorBody(&node.body));
    while lanes >= 4 {
        parts.add(lanes, known)?;
        // For a known extent, halve the vector for the remainder. Otherwise, use one vector of a quarter of the size.
        lanes = if known.is_some() {
            lanes / 2
        } else if lanes * size == VECTOR_BYTES {
            lanes / 4
        } else {
            0
        };
    }
    parts.rest()
}

/// Splits a loop in two at the iteration where the condition of the `select` in its body stops
/// holding. The first loop stores the true value, and the second loop stores the false value.
/// Neither loop has a condition, so both can be vectorized. Returns `None` if the loop does not
/// have this form.
fn choice(node: &Ref<For>, size: i64) -> Result<Option<(Ref<For>, Ref<For>)>> {
    let StmtKind::BufferStore(store) = StmtKind::of(&node.body) else { return Ok(None) };
    let ExprKind::Select(select) = ExprKind::of(&store.value) else { return Ok(None) };
    if as_int(&node.extent).is_some_and(|extent| extent * size < LAST_BYTES)
        || !is_plain(&select.condition)
        || !is_plain(&node.min)
        || !is_plain(&node.extent)
    {
        return Ok(None);
    }
    let Some(limit) = limit(&select.condition, node)? else { return Ok(None) };
    let dtype = node.loop_var.dtype;
    let count = ops::max(ops::min(node.extent.clone(), limit)?, ops::int(0, dtype)?)?;
    let stored = |value: &Expr| make::store(&store.buffer, value.clone(), store.indices.clone());
    let first = with(node, count.clone(), node.kind, stored(&select.true_value)?)?;
    let var = ops::var(&format!("{}_other", node.loop_var.name), dtype);
    let at = ops::add(ops::add(node.min.clone(), count.clone())?, var.clone().into_parent())?;
    let body = replaced(&stored(&select.false_value)?, &node.loop_var, &at)?;
    let second =
        make::for_of_kind(var, ops::int(0, dtype)?, ops::sub(node.extent.clone(), count)?, node.kind, body);
    let second =
        second.cast().map_err(|_| anyfn::Error::new("InternalError", "the rebuilt loop is not a `tir.For`"))?;
    Ok(Some((first, second)))
}

/// Generator of the body of a loop over vectors. The method `at` returns the code for `lanes` iterations,
/// beginning with `first`.
trait Body {
    fn at(&self, node: &For, first: Expr, lanes: i64) -> Result<Stmt>;
}

struct VectorBody<'a>(&'a Stmt);

impl Body for VectorBody<'_> {
    fn at(&self, node: &For, first: Expr, lanes: i64) -> Result<Stmt> {
        lane_loop(node, lanes, |lane| replaced(self.0, &node.loop_var, &ops::add(first.clone(), lane)?))
    }
}

/// Creates a vectorized loop over the lanes of a vector. The function `body` returns the body of the loop for
/// a given lane.
fn lane_loop(node: &For, lanes: i64, body: impl FnOnce(Expr) -> Result<Stmt>) -> Result<Stmt> {
    let dtype = node.loop_var.dtype;
    let lane = ops::var(&format!("{}_lane", node.loop_var.name), dtype);
    let body = body(lane.clone().into_parent())?;
    let (zero, count) = (ops::int(0, dtype)?, ops::int(lanes, dtype)?);
    Ok(make::for_of_kind(lane, zero, count, ForKind::Vectorized, body))
}

/// Builder of the loops that replace a split loop. The loops are added in order of execution.
struct Parts<'a, B> {
    node: &'a For,
    body: B,
    /// Number of iterations that the loops in `stmts` cover so far.
    done: Expr,
    stmts: Vec<Stmt>,
}

impl<'a, B: Body> Parts<'a, B> {
    fn new(node: &'a For, body: B) -> Parts<'a, B> {
        let done = ops::int(0, node.loop_var.dtype).unwrap_or_else(|_| ops::i32(0));
        Parts { node, body, done, stmts: Vec::new() }
    }

    fn left(&self) -> Result<Expr> {
        ops::sub(self.node.extent.clone(), self.done.clone())
    }

    /// Adds a loop over vectors of `lanes` lanes, which executes as many of the remaining iterations as
    /// possible. `known` is the trip count of the original loop, if it is constant.
    fn add(&mut self, lanes: i64, known: Option<i64>) -> Result<()> {
        let node = self.node;
        let dtype = node.loop_var.dtype;
        let width = ops::int(lanes, dtype)?;
        let count = match (known, as_int(&self.done)) {
            (Some(extent), Some(done)) => ops::int((extent - done) / lanes, dtype)?,
            _ => ops::floor_div(self.left()?, width.clone())?,
        };
        let first = ops::add(node.min.clone(), self.done.clone())?;
        match as_int(&count) {
            Some(0) => return Ok(()),
            Some(1) => self.stmts.push(self.body.at(node, first, lanes)?),
            _ => {
                let outer = ops::var(&format!("{}_vector", node.loop_var.name), dtype);
                let at = ops::add(first, ops::mul(outer.clone().into_parent(), width.clone())?)?;
                let body = self.body.at(node, at, lanes)?;
                self.stmts.push(make::for_loop(outer, ops::int(0, dtype)?, count.clone(), body));
            }
        }
        self.done = ops::add(self.done.clone(), ops::mul(count, width)?)?;
        Ok(())
    }

    /// Adds a scalar loop for the remaining iterations, and returns the sequence of all loops.
    fn rest(mut self) -> Result<Stmt> {
        let node = self.node;
        let left = self.left()?;
        if !is_int(&left, 0) {
            let dtype = node.loop_var.dtype;
            let var = ops::var(&format!("{}_rest", node.loop_var.name), dtype);
            let first = ops::add(node.min.clone(), self.done.clone())?;
            let at = ops::add(first, var.clone().into_parent())?;
            let body = replaced(&node.body, &node.loop_var, &at)?;
            self.stmts.push(make::for_loop(var, ops::int(0, dtype)?, left, body));
        }
        Ok(make::seq(self.stmts))
    }
}

/// Returns the update in the body of a loop that reduces values to one element, or `None` for other loops.
fn step_of(node: &For) -> Option<Update<'_>> {
    let is_one = |step: &Update<'_>| !step.store.indices.iter().any(|index| uses_var(&index, &node.loop_var));
    Update::of(&node.body).filter(is_one)
}

/// Rewrites a reduction loop so that it updates a vector of partial results, and combines the
/// partial results after the loop. If the loop has too few iterations or its operation has no
/// identity element, the loop becomes serial instead.
fn partial_results(step: &Update<'_>, node: &Ref<For>) -> Result<Stmt> {
    let known = as_int(&node.extent);
    let size = element_bytes(&node.body).max(1);
    let dtype = step.store.buffer.dtype;
    let mut lanes = PARTIAL_BYTES / size;
    while known.is_some_and(|extent| extent < 2 * lanes) && lanes * size > LAST_BYTES {
        lanes /= 2;
    }
    let Some(identity) = identity(step.op, dtype)? else { return serial(node) };
    if lanes < 4 || known.is_some_and(|extent| extent < lanes) {
        return serial(node);
    }
    let last = (LAST_BYTES / size).min(lanes);
    let index_type = node.loop_var.dtype;
    let count =
        |lanes: i64| -> Result<Array<Expr>> { Ok([ops::int(lanes, index_type)?].into_iter().collect()) };
    let partial = local(&format!("{}_partial", step.store.buffer.name), count(lanes)?, dtype);
    let sums = local(&format!("{}_lanes", step.store.buffer.name), count(last)?, dtype);
    let element = |index: Expr| -> Array<Expr> { [index].into_iter().collect() };
    let mut stmts = vec![lane_loop(node, lanes, |lane| make::store(&partial, identity, element(lane)))?];
    let body = PartialBody { step, partial: &partial };
    let mut parts = Parts::new(node, body);
    parts.add(lanes, known)?;
    let done = parts.done.clone();
    stmts.append(&mut parts.stmts);
    // Combine the two halves of the vector repeatedly, in registers, until `last` partial results remain.
    let mut width = lanes / 2;
    let fold = |buffer: &Ref<Buffer>, width: i64| {
        lane_loop(node, width, |lane| {
            let other = ops::add(lane.clone(), ops::int(width, index_type)?)?;
            let (a, b) = (ops::load(buffer, element(lane.clone()))?, ops::load(buffer, element(other))?);
            make::store(buffer, ops::binary(step.op, a, b)?, element(lane))
        })
    };
    while width >= last {
        stmts.push(fold(&partial, width)?);
        width /= 2;
    }
    stmts.push(lane_loop(node, last, |lane| {
        make::store(&sums, ops::load(&partial, element(lane.clone()))?, element(lane))
    })?);
    let mut width = last / 2;
    while width >= 2 {
        stmts.push(fold(&sums, width)?);
        width /= 2;
    }
    let so_far = ops::load(&step.store.buffer, step.store.indices.clone())?;
    let mut total = so_far;
    for place in 0..last.min(2) {
        let one = ops::load(&sums, element(ops::int(place, index_type)?))?;
        total = ops::binary(step.op, total, one)?;
    }
    stmts.push(make::store(&step.store.buffer, total, step.store.indices.clone())?);
    let mut rest = Parts::new(node, VectorBody(&node.body));
    rest.done = done;
    stmts.push(rest.rest()?);
    Ok(make::allocate(partial, make::allocate(sums, make::seq(stmts))))
}

struct PartialBody<'a> {
    step: &'a Update<'a>,
    partial: &'a Ref<Buffer>,
}

impl Body for PartialBody<'_> {
    fn at(&self, node: &For, first: Expr, lanes: i64) -> Result<Stmt> {
        lane_loop(node, lanes, |lane| {
            let indices: Array<Expr> = [lane.clone()].into_iter().collect();
            let value = replaced_expr(&self.step.value, &node.loop_var, &ops::add(first, lane)?)?;
            let so_far = ops::load(self.partial, indices.clone())?;
            make::store(self.partial, ops::binary(self.step.op, so_far, value)?, indices)
        })
    }
}

/// Creates a buffer with the scope `local`, which only one task accesses.
fn local(name: &str, shape: Array<Expr>, dtype: DType) -> Ref<Buffer> {
    let plain = make::buffer(name, shape, dtype);
    Ref::new(Buffer {
        data: plain.data.clone(),
        dtype,
        shape: plain.shape.clone(),
        strides: plain.strides.clone(),
        name: plain.name.clone(),
        scope: "local".into(),
        alignment: plain.alignment,
    })
}

/// Returns the identity element of a reduction operation, or `None` if the operation does not have one for
/// `dtype`.
fn identity(op: BinaryOp, dtype: DType) -> Result<Option<Expr>> {
    if !dtype.is_float() && !dtype.is_integer() {
        return Ok(None);
    }
    Ok(Some(match op {
        BinaryOp::Add => ops::number(0, dtype)?,
        BinaryOp::Mul => ops::number(1, dtype)?,
        BinaryOp::Min => ops::limit(dtype, true)?,
        BinaryOp::Max => ops::limit(dtype, false)?,
        _ => return Ok(None),
    }))
}

fn serial(node: &Ref<For>) -> Result<Stmt> {
    Ok(with(node, node.extent.clone(), ForKind::Serial, node.body.clone())?.into_parent())
}

fn with(node: &For, extent: Expr, kind: ForKind, body: Stmt) -> Result<Ref<For>> {
    let new = make::for_of_kind(node.loop_var.clone(), node.min.clone(), extent, kind, body);
    new.cast().map_err(|_| anyfn::Error::new("InternalError", "the rebuilt loop is not a `tir.For`"))
}

/// Copies a statement and replaces the variable `var` by `value`. The copy defines new variables instead of
/// those that the statement defines.
fn replaced(stmt: &Stmt, var: &Ref<Var>, value: &Expr) -> Result<Stmt> {
    let mut copy = Copy { vars: HashMap::new() };
    copy.vars.insert(address(var), value.clone());
    copy.stmt(stmt)
}

struct Copy {
    /// Values that replace variables, by the address of the variable.
    vars: HashMap<usize, Expr>,
}

impl Mutator for Copy {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Substitute(|var: &Ref<Var>| self.vars.get(&address(var)).cloned()).expr(expr)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let StmtKind::LetStmt(node) = StmtKind::of(stmt) else { return self.below_stmt(stmt) };
        let value = self.expr(&node.value)?;
        let var = ops::var(&node.var.name, node.var.dtype);
        self.vars.insert(address(&node.var), var.clone().into_parent());
        make::let_stmt(var, value, self.stmt(&node.body)?)
    }
}

fn address(var: &Ref<Var>) -> usize {
    var.as_object().as_handle().addr()
}

fn replaced_expr(expr: &Expr, var: &Ref<Var>, value: &Expr) -> Result<Expr> {
    Substitute(|other: &Ref<Var>| other.ptr_eq(var).then(|| value.clone())).expr(expr)
}

/// Returns the size in bytes of the largest element that a statement stores.
fn element_bytes(stmt: &Stmt) -> i64 {
    struct Largest(i64);
    impl Visitor for Largest {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::BufferStore(node) = StmtKind::of(stmt) {
                self.0 = self.0.max(i64::from(node.buffer.dtype.0.bits.div_ceil(8)));
            }
            self.below_stmt(stmt);
        }
    }
    let mut largest = Largest(0);
    largest.stmt(stmt);
    largest.0
}

/// Returns true if a statement contains a construct that must not be duplicated because it defines something,
/// such as a loop or an allocation.
fn defines(stmt: &Stmt) -> bool {
    struct Defines(bool);
    impl Visitor for Defines {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= matches!(ExprKind::of(expr), ExprKind::Let(_) | ExprKind::Reduce(_) | ExprKind::Other);
            self.below_expr(expr);
        }
        fn stmt(&mut self, stmt: &Stmt) {
            match StmtKind::of(stmt) {
                StmtKind::For(_) | StmtKind::Allocate(_) | StmtKind::Block(_) | StmtKind::Other => {
                    self.0 = true
                }
                _ => self.below_stmt(stmt),
            }
        }
    }
    let mut defines = Defines(false);
    defines.stmt(stmt);
    defines.0
}
