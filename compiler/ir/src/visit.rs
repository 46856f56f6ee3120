//! Visitors and mutators of IR nodes.
//!
//! A node of a type that is not defined in this crate is traversed by its reflected fields, so that passes see its
//! children.

use std::collections::{HashMap, HashSet};

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, IntoAny, Object, ObjectRef, Ref, Result, registry};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{
    Broadcast, BufferLoad, Call, Cast, CommReducer, Expr, IntImm, IterVar, Let, Not, PrimExpr, ProducerLoad,
    Ramp, Range, Reduce, Select, Var,
};
use crate::kind::{ExprKind, StmtKind};
use crate::stmt::{
    Allocate, AssertStmt, Block, BlockRealize, BufferStore, Evaluate, For, ForKind, IfThenElse, Launch,
    LetStmt, SeqStmt, Stmt, StmtNode,
};

pub use crate::stack::on_enough_stack;

/// Set of nodes that a walk has visited.
///
/// A node may be an operand of several nodes, so that the time for visiting each occurrence may double with each level:
/// see [`size`](crate::size). A walk that only searches for something visits each node once.
#[derive(Default)]
pub struct Seen(HashMap<usize, ObjectRef>);

impl Seen {
    /// Records a node. Returns true if the node was not recorded before. The node is kept alive so that its address
    /// stays unique.
    pub fn is_first(&mut self, node: &ObjectRef) -> bool {
        self.0.insert(node.as_handle().addr(), node.clone()).is_none()
    }
}

/// Visitor of IR nodes. By default, a method visits the children of the node. The methods for uses
/// of buffers and definitions of variables do nothing by default.
pub trait Visitor {
    /// Visits an expression.
    fn expr(&mut self, expr: &Expr) {
        self.below_expr(expr);
    }

    /// Visits a statement.
    fn stmt(&mut self, stmt: &Stmt) {
        self.below_stmt(stmt);
    }

    /// Visits a use of a buffer.
    fn buffer(&mut self, _buffer: &Ref<Buffer>) {}

    /// Visits the definition of a variable.
    fn define(&mut self, _var: &Ref<Var>) {}

    /// Visits the definition of a buffer: its data variable, shape and strides.
    fn define_buffer(&mut self, buffer: &Ref<Buffer>) {
        self.define(&buffer.data);
        buffer.shape.iter().chain(buffer.strides.iter()).for_each(|extent| self.expr(&extent));
    }

    /// Visits the children of an expression.
    fn below_expr(&mut self, expr: &Expr) {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Var(_) | ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) => {}
            ExprKind::Cast(node) => self.expr(&node.value),
            ExprKind::Binary(_, node) => {
                self.expr(&node.a);
                self.expr(&node.b);
            }
            ExprKind::Not(node) => self.expr(&node.a),
            ExprKind::Select(node) => {
                self.expr(&node.condition);
                self.expr(&node.true_value);
                self.expr(&node.false_value);
            }
            ExprKind::BufferLoad(node) => {
                self.buffer(&node.buffer);
                node.indices.iter().for_each(|index| self.expr(&index));
            }
            ExprKind::ProducerLoad(node) => node.indices.iter().for_each(|index| self.expr(&index)),
            ExprKind::Ramp(node) => {
                self.expr(&node.start);
                self.expr(&node.stride);
            }
            ExprKind::Broadcast(node) => self.expr(&node.value),
            ExprKind::Call(node) => node.args.iter().for_each(|arg| self.object(&arg)),
            ExprKind::Let(node) => {
                self.expr(&node.value);
                self.define(&node.var);
                self.expr(&node.body);
            }
            ExprKind::Reduce(node) => {
                node.combiner.identity.iter().for_each(|value| self.expr(&value));
                node.axis.iter().for_each(|axis| self.iter_var(&axis));
                node.source.iter().for_each(|value| self.expr(&value));
                self.expr(&node.condition);
            }
            ExprKind::Other => self.fields(expr.as_object()),
        });
    }

    /// Visits the children of a statement.
    fn below_stmt(&mut self, stmt: &Stmt) {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                self.expr(&node.value);
                node.indices.iter().for_each(|index| self.expr(&index));
                self.buffer(&node.buffer);
            }
            StmtKind::For(node) => {
                self.expr(&node.min);
                self.expr(&node.extent);
                self.define(&node.loop_var);
                self.stmt(&node.body);
            }
            StmtKind::Launch(node) => {
                self.expr(&node.num_tasks);
                node.captures.iter().for_each(|capture| self.object(&capture));
                self.stmt(&node.body.clone().into_parent());
            }
            StmtKind::SeqStmt(node) => node.seq.iter().for_each(|stmt| self.stmt(&stmt)),
            StmtKind::IfThenElse(node) => {
                self.expr(&node.condition);
                self.stmt(&node.then_case);
                if let Some(stmt) = &node.else_case {
                    self.stmt(stmt);
                }
            }
            StmtKind::LetStmt(node) => {
                self.expr(&node.value);
                self.define(&node.var);
                self.stmt(&node.body);
            }
            StmtKind::Allocate(node) => {
                self.define_buffer(&node.buffer);
                self.stmt(&node.body);
            }
            StmtKind::Evaluate(node) => self.expr(&node.value),
            StmtKind::AssertStmt(node) => {
                self.expr(&node.condition);
                node.message.iter().for_each(|part| self.expr(&part));
            }
            StmtKind::Block(node) => {
                node.iter_vars.iter().for_each(|axis| self.iter_var(&axis));
                node.reads.iter().chain(node.writes.iter()).for_each(|region| self.region(&region));
                node.alloc_buffers.iter().for_each(|buffer| self.define_buffer(&buffer));
                if let Some(init) = &node.init {
                    self.stmt(init);
                }
                self.stmt(&node.body);
            }
            StmtKind::BlockRealize(node) => {
                node.iter_values.iter().for_each(|value| self.expr(&value));
                self.expr(&node.predicate);
                self.stmt(&node.block.clone().into_parent());
            }
            StmtKind::Other => self.fields(stmt.as_object()),
        });
    }

    /// Visits an axis: its domain and its variable.
    fn iter_var(&mut self, axis: &Ref<IterVar>) {
        self.expr(&axis.dom.min);
        self.expr(&axis.dom.extent);
        self.define(&axis.var);
    }

    /// Visits a region of a buffer.
    fn region(&mut self, region: &Ref<BufferRegion>) {
        self.buffer(&region.buffer);
        for range in region.region.iter() {
            self.expr(&range.min);
            self.expr(&range.extent);
        }
    }

    /// Visits an object that may be an expression, statement, buffer, region or array of these. Ignores any other
    /// object.
    fn object(&mut self, object: &ObjectRef) {
        self.below_object(object);
    }

    /// Visits an expression, statement, buffer or region, or each element of an array. Ignores any other object.
    fn below_object(&mut self, object: &ObjectRef) {
        if let Ok(expr) = Expr::try_from_object(object.clone()) {
            self.expr(&expr);
        } else if let Ok(stmt) = Stmt::try_from_object(object.clone()) {
            self.stmt(&stmt);
        } else if let Ok(buffer) = Ref::<Buffer>::try_from_object(object.clone()) {
            self.buffer(&buffer);
        } else if let Ok(region) = Ref::<BufferRegion>::try_from_object(object.clone()) {
            self.region(&region);
        } else if let Ok(array) = Array::<Any>::try_from_object(object.clone()) {
            let items = array.as_slice().iter().filter_map(Any::as_object);
            on_enough_stack(|| items.for_each(|item| self.object(item)));
        }
    }

    /// Visits the objects in the reflected fields of an object.
    fn fields(&mut self, object: &ObjectRef) {
        for field in TypeInfo::of(object).fields() {
            if let Ok(value) = object.get_field(field.name())
                && let Some(inner) = value.as_object()
            {
                self.object(inner);
            }
        }
    }
}

/// Mutator of nodes: rebuilds a graph from transformed nodes. Nodes that do not change keep their identity.
pub trait Mutator {
    /// Returns the transformed expression.
    ///
    /// # Errors
    /// Returns the error of the implementation.
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        self.below_expr(expr)
    }

    /// Returns the transformed statement.
    ///
    /// # Errors
    /// Returns the error of the implementation.
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        self.below_stmt(stmt)
    }

    /// Returns the transformed form of a buffer that is used or defined.
    ///
    /// # Errors
    /// Returns the error of the implementation.
    fn buffer(&mut self, buffer: &Ref<Buffer>) -> Result<Ref<Buffer>> {
        Ok(buffer.clone())
    }

    /// Returns the expression with transformed children.
    ///
    /// # Errors
    /// Returns the error of transforming a child.
    fn below_expr(&mut self, expr: &Expr) -> Result<Expr> {
        on_enough_stack(|| self.below_expr_here(expr))
    }

    /// Returns the statement with transformed children.
    ///
    /// # Errors
    /// Returns the error of transforming a child.
    fn below_stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| self.below_stmt_here(stmt))
    }

    #[doc(hidden)]
    fn below_expr_here(&mut self, expr: &Expr) -> Result<Expr> {
        let base = || PrimExpr { dtype: expr.dtype };
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(_) | ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) => {
                expr.clone()
            }
            ExprKind::Cast(node) => {
                let value = self.expr(&node.value)?;
                keep_or(expr, value.ptr_eq(&node.value), || {
                    Ref::new(Cast { base: base(), value }).into_parent()
                })
            }
            ExprKind::Binary(op, node) => {
                let (a, b) = (self.expr(&node.a)?, self.expr(&node.b)?);
                let is_same = a.ptr_eq(&node.a) && b.ptr_eq(&node.b);
                keep_or(expr, is_same, || op.node(expr.dtype, a, b))
            }
            ExprKind::Not(node) => {
                let a = self.expr(&node.a)?;
                keep_or(expr, a.ptr_eq(&node.a), || Ref::new(Not { base: base(), a }).into_parent())
            }
            ExprKind::Select(node) => {
                let condition = self.expr(&node.condition)?;
                let (true_value, false_value) = (self.expr(&node.true_value)?, self.expr(&node.false_value)?);
                let is_same = condition.ptr_eq(&node.condition)
                    && true_value.ptr_eq(&node.true_value)
                    && false_value.ptr_eq(&node.false_value);
                keep_or(expr, is_same, || {
                    Ref::new(Select { base: base(), condition, true_value, false_value }).into_parent()
                })
            }
            ExprKind::BufferLoad(node) => {
                let buffer = self.buffer(&node.buffer)?;
                let indices = self.exprs(&node.indices)?;
                let is_same = buffer.ptr_eq(&node.buffer) && same(&indices, &node.indices);
                keep_or(expr, is_same, || Ref::new(BufferLoad { base: base(), buffer, indices }).into_parent())
            }
            ExprKind::ProducerLoad(node) => {
                let indices = self.exprs(&node.indices)?;
                let producer = node.producer.clone();
                keep_or(expr, same(&indices, &node.indices), || {
                    Ref::new(ProducerLoad { base: base(), producer, indices }).into_parent()
                })
            }
            ExprKind::Ramp(node) => {
                let (start, stride) = (self.expr(&node.start)?, self.expr(&node.stride)?);
                let is_same = start.ptr_eq(&node.start) && stride.ptr_eq(&node.stride);
                let lanes = node.lanes;
                keep_or(expr, is_same, || Ref::new(Ramp { base: base(), start, stride, lanes }).into_parent())
            }
            ExprKind::Broadcast(node) => {
                let value = self.expr(&node.value)?;
                let is_same = value.ptr_eq(&node.value);
                let lanes = node.lanes;
                keep_or(expr, is_same, || Ref::new(Broadcast { base: base(), value, lanes }).into_parent())
            }
            ExprKind::Call(node) => {
                let args = each(&node.args, |arg| self.object(arg), ObjectRef::ptr_eq)?;
                let op = node.op.clone();
                keep_or(expr, same(&args, &node.args), || {
                    Ref::new(Call { base: base(), op, args }).into_parent()
                })
            }
            ExprKind::Let(node) => {
                let (value, body) = (self.expr(&node.value)?, self.expr(&node.body)?);
                let is_same = value.ptr_eq(&node.value) && body.ptr_eq(&node.body);
                let var = node.var.clone();
                keep_or(expr, is_same, || Ref::new(Let { base: base(), var, value, body }).into_parent())
            }
            ExprKind::Reduce(node) => {
                let combiner = self.combiner(&node.combiner)?;
                let axis = each(&node.axis, |axis| self.iter_var(axis), Ref::ptr_eq)?;
                let (source, condition) = (self.exprs(&node.source)?, self.expr(&node.condition)?);
                let is_same = combiner.ptr_eq(&node.combiner)
                    && same(&axis, &node.axis)
                    && same(&source, &node.source)
                    && condition.ptr_eq(&node.condition);
                let value_index = node.value_index;
                keep_or(expr, is_same, || {
                    Ref::new(Reduce { base: base(), combiner, axis, source, condition, value_index })
                        .into_parent()
                })
            }
            ExprKind::Other => rebuilt(self, expr.as_object())?
                .map_or_else(|| Ok(expr.clone()), |object| expect(object, "an expression"))?,
        })
    }

    #[doc(hidden)]
    fn below_stmt_here(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let base = StmtNode {};
        Ok(match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                let (value, indices) = (self.expr(&node.value)?, self.exprs(&node.indices)?);
                let buffer = self.buffer(&node.buffer)?;
                let is_same =
                    value.ptr_eq(&node.value) && same(&indices, &node.indices) && buffer.ptr_eq(&node.buffer);
                keep_or(stmt, is_same, || Ref::new(BufferStore { base, buffer, value, indices }).into_parent())
            }
            StmtKind::For(node) => {
                let (min, extent) = (self.expr(&node.min)?, self.expr(&node.extent)?);
                let body = self.stmt(&node.body)?;
                let is_same = min.ptr_eq(&node.min) && extent.ptr_eq(&node.extent) && body.ptr_eq(&node.body);
                let (loop_var, kind) = (node.loop_var.clone(), node.kind);
                let annotations = node.annotations.clone();
                keep_or(stmt, is_same, || {
                    Ref::new(For { base, loop_var, min, extent, kind, body, annotations }).into_parent()
                })
            }
            StmtKind::Launch(node) => {
                let num_tasks = self.expr(&node.num_tasks)?;
                let new = self.stmt(&node.body.clone().into_parent())?;
                let Ok(body) = new.clone().cast::<For>() else {
                    // If a pass replaces the loop by another statement, that statement replaces the launch, too.
                    return Ok(new);
                };
                // A launch of a loop that was not parallel before is invalid, and stays so for `verify` to find.
                if body.kind != ForKind::Parallel && node.body.kind == ForKind::Parallel {
                    return Ok(new);
                }
                let is_same = num_tasks.ptr_eq(&node.num_tasks) && body.ptr_eq(&node.body);
                keep_or(stmt, is_same, || {
                    let captures = captures(&body);
                    Ref::new(Launch { base, num_tasks, captures, body }).into_parent()
                })
            }
            StmtKind::SeqStmt(node) => {
                let seq = each(&node.seq, |stmt| self.stmt(stmt), Ref::ptr_eq)?;
                keep_or(stmt, same(&seq, &node.seq), || Ref::new(SeqStmt { base, seq }).into_parent())
            }
            StmtKind::IfThenElse(node) => {
                let condition = self.expr(&node.condition)?;
                let then_case = self.stmt(&node.then_case)?;
                let else_case = node.else_case.as_ref().map(|stmt| self.stmt(stmt)).transpose()?;
                let is_same = condition.ptr_eq(&node.condition)
                    && then_case.ptr_eq(&node.then_case)
                    && same_option(else_case.as_ref(), node.else_case.as_ref());
                keep_or(stmt, is_same, || {
                    Ref::new(IfThenElse { base, condition, then_case, else_case }).into_parent()
                })
            }
            StmtKind::LetStmt(node) => {
                let (value, body) = (self.expr(&node.value)?, self.stmt(&node.body)?);
                let is_same = value.ptr_eq(&node.value) && body.ptr_eq(&node.body);
                let var = node.var.clone();
                keep_or(stmt, is_same, || Ref::new(LetStmt { base, var, value, body }).into_parent())
            }
            StmtKind::Allocate(node) => {
                let (buffer, body) = (self.buffer(&node.buffer)?, self.stmt(&node.body)?);
                let is_same = buffer.ptr_eq(&node.buffer) && body.ptr_eq(&node.body);
                keep_or(stmt, is_same, || Ref::new(Allocate { base, buffer, body }).into_parent())
            }
            StmtKind::Evaluate(node) => {
                let value = self.expr(&node.value)?;
                keep_or(stmt, value.ptr_eq(&node.value), || Ref::new(Evaluate { base, value }).into_parent())
            }
            StmtKind::AssertStmt(node) => {
                let (condition, message) = (self.expr(&node.condition)?, self.exprs(&node.message)?);
                let is_same = condition.ptr_eq(&node.condition) && same(&message, &node.message);
                let kind = node.kind.clone();
                keep_or(stmt, is_same, || Ref::new(AssertStmt { base, condition, kind, message }).into_parent())
            }
            StmtKind::Block(node) => {
                let block = self.block(node)?;
                keep_or(stmt, block.ptr_eq(node), || block.into_parent())
            }
            StmtKind::BlockRealize(node) => {
                let iter_values = self.exprs(&node.iter_values)?;
                let predicate = self.expr(&node.predicate)?;
                let new = self.stmt(&node.block.clone().into_parent())?;
                let Ok(block) = new.clone().cast::<Block>() else {
                    // If a pass replaces the block by another statement, that statement replaces the realization, too.
                    return Ok(new);
                };
                let is_same = same(&iter_values, &node.iter_values)
                    && predicate.ptr_eq(&node.predicate)
                    && block.ptr_eq(&node.block);
                keep_or(stmt, is_same, || {
                    Ref::new(BlockRealize { base, iter_values, predicate, block }).into_parent()
                })
            }
            StmtKind::Other => rebuilt(self, stmt.as_object())?
                .map_or_else(|| Ok(stmt.clone()), |object| expect(object, "a statement"))?,
        })
    }

    /// Returns the block with transformed children.
    ///
    /// # Errors
    /// Returns the error of transforming a child.
    fn block(&mut self, node: &Ref<Block>) -> Result<Ref<Block>> {
        let iter_vars = each(&node.iter_vars, |axis| self.iter_var(axis), Ref::ptr_eq)?;
        let reads = each(&node.reads, |region| self.region(region), Ref::ptr_eq)?;
        let writes = each(&node.writes, |region| self.region(region), Ref::ptr_eq)?;
        let alloc_buffers = each(&node.alloc_buffers, |buffer| self.buffer(buffer), Ref::ptr_eq)?;
        let init = node.init.as_ref().map(|stmt| self.stmt(stmt)).transpose()?;
        let body = self.stmt(&node.body)?;
        let is_same = same(&iter_vars, &node.iter_vars)
            && same(&reads, &node.reads)
            && same(&writes, &node.writes)
            && same(&alloc_buffers, &node.alloc_buffers)
            && same_option(init.as_ref(), node.init.as_ref())
            && body.ptr_eq(&node.body);
        let (name, annotations) = (node.name.clone(), node.annotations.clone());
        Ok(keep_or(node, is_same, || {
            let base = StmtNode {};
            Ref::new(Block { base, iter_vars, reads, writes, name, alloc_buffers, init, body, annotations })
        }))
    }

    /// Transforms an array of expressions.
    ///
    /// # Errors
    /// Returns the error of transforming an expression.
    fn exprs(&mut self, exprs: &Array<Expr>) -> Result<Array<Expr>> {
        each(exprs, |expr| self.expr(expr), Ref::ptr_eq)
    }

    /// Transforms the domain of an axis. The variable of the axis is kept.
    ///
    /// # Errors
    /// Returns the error of transforming a bound of the domain.
    fn iter_var(&mut self, axis: &Ref<IterVar>) -> Result<Ref<IterVar>> {
        let dom = self.range(&axis.dom)?;
        let (var, kind) = (axis.var.clone(), axis.kind);
        Ok(keep_or(axis, dom.ptr_eq(&axis.dom), || Ref::new(IterVar { dom, var, kind })))
    }

    /// Transforms the bounds of a range.
    ///
    /// # Errors
    /// Returns the error of transforming a bound.
    fn range(&mut self, range: &Ref<Range>) -> Result<Ref<Range>> {
        let (min, extent) = (self.expr(&range.min)?, self.expr(&range.extent)?);
        let is_same = min.ptr_eq(&range.min) && extent.ptr_eq(&range.extent);
        Ok(keep_or(range, is_same, || Ref::new(Range { min, extent })))
    }

    /// Transforms the buffer and the ranges of a region.
    ///
    /// # Errors
    /// Returns the error of transforming the buffer or a range.
    fn region(&mut self, region: &Ref<BufferRegion>) -> Result<Ref<BufferRegion>> {
        let buffer = self.buffer(&region.buffer)?;
        let ranges = each(&region.region, |range| self.range(range), Ref::ptr_eq)?;
        let is_same = buffer.ptr_eq(&region.buffer) && same(&ranges, &region.region);
        Ok(keep_or(region, is_same, || Ref::new(BufferRegion { buffer, region: ranges })))
    }

    /// Transforms the expressions of a combiner. The variables of the combiner are kept.
    ///
    /// # Errors
    /// Returns the error of transforming an expression.
    fn combiner(&mut self, combiner: &Ref<CommReducer>) -> Result<Ref<CommReducer>> {
        let (result, identity) = (self.exprs(&combiner.result)?, self.exprs(&combiner.identity)?);
        let is_same = same(&result, &combiner.result) && same(&identity, &combiner.identity);
        let (lhs, rhs) = (combiner.lhs.clone(), combiner.rhs.clone());
        Ok(keep_or(combiner, is_same, || Ref::new(CommReducer { lhs, rhs, result, identity })))
    }

    /// Transforms an expression, statement, buffer, region or array of these. Returns any other object unchanged.
    ///
    /// # Errors
    /// Returns the error of transforming the object.
    fn object(&mut self, object: &ObjectRef) -> Result<ObjectRef> {
        if let Ok(expr) = Expr::try_from_object(object.clone()) {
            return Ok(self.expr(&expr)?.into_object());
        }
        if let Ok(stmt) = Stmt::try_from_object(object.clone()) {
            return Ok(self.stmt(&stmt)?.into_object());
        }
        if let Ok(buffer) = Ref::<Buffer>::try_from_object(object.clone()) {
            return Ok(self.buffer(&buffer)?.into_object());
        }
        if let Ok(region) = Ref::<BufferRegion>::try_from_object(object.clone()) {
            return Ok(self.region(&region)?.into_object());
        }
        if let Ok(array) = Array::<Any>::try_from_object(object.clone()) {
            let mut new = Vec::with_capacity(array.len());
            let mut is_same = true;
            for item in array.as_slice() {
                new.push(match item.as_object() {
                    Some(inner) => {
                        let changed = on_enough_stack(|| self.object(inner))?;
                        is_same &= changed.ptr_eq(inner);
                        Any::from(changed)
                    }
                    None => item.clone(),
                });
            }
            if !is_same {
                return Ok(Array::<Any>::try_from_iter(new)?.into_object());
            }
        }
        Ok(object.clone())
    }
}

/// Returns the variables and buffers that are defined outside a loop and used in its body, in the order of
/// their first use.
///
/// Buffers that share memory are listed once. A buffer is followed by the variables in its extents and
/// strides, if offsets are computed from these. If a whole buffer is an argument of a call, all its extents
/// count as used.
#[must_use]
pub fn captures(node: &For) -> Array<ObjectRef> {
    let mut free = Free::default();
    free.define(&node.loop_var);
    free.stmt(&node.body);
    let Free { defined, used, .. } = free;
    used.into_iter().filter(|(key, _)| !defined.contains(key)).map(|(_, object)| object).collect()
}

/// Returns the variable that identifies an element of [`Launch::captures`]: the element itself, or the variable `data` of
/// a buffer. Returns `None` for any other object.
#[must_use]
pub fn captured_var(capture: &ObjectRef) -> Option<Ref<Var>> {
    match Ref::<Buffer>::try_from_object(capture.clone()) {
        Ok(buffer) => Some(buffer.data.clone()),
        Err(object) => Ref::<Var>::try_from_object(object).ok(),
    }
}

/// Visitor that collects the variables and buffers that a statement uses or defines. Each node is visited
/// once.
#[derive(Default)]
struct Free {
    /// Addresses of the variables that the statement defines.
    defined: HashSet<usize>,
    /// Variables and buffers in the order of their first use. Each is paired with the address of the variable
    /// that identifies it.
    used: Vec<(usize, ObjectRef)>,
    /// Addresses that occur in `used`.
    known: HashSet<usize>,
    seen: Seen,
}

impl Free {
    fn add(&mut self, var: &Ref<Var>, object: &ObjectRef) {
        let key = var.as_object().as_handle().addr();
        if self.known.insert(key) {
            self.used.push((key, object.clone()));
        }
    }

    /// Visits an argument of a call. The extents of a buffer argument are also visited, because the callee
    /// receives them.
    fn argument(&mut self, arg: &ObjectRef) {
        self.object(arg);
        if let Ok(buffer) = Ref::<Buffer>::try_from_object(arg.clone()) {
            buffer.shape.iter().for_each(|extent| self.expr(&extent));
        }
    }
}

impl Visitor for Free {
    fn expr(&mut self, expr: &Expr) {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Var(var) => self.add(var, var.as_object()),
            _ if !self.seen.is_first(expr.as_object()) => {}
            ExprKind::Call(node) => node.args.iter().for_each(|arg| self.argument(&arg)),
            _ => self.below_expr(expr),
        });
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if self.seen.is_first(stmt.as_object()) {
            self.below_stmt(stmt);
        }
    }

    fn define(&mut self, var: &Ref<Var>) {
        self.defined.insert(var.as_object().as_handle().addr());
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        self.add(&buffer.data, buffer.as_object());
        if buffer.strides.is_empty() {
            buffer.shape.iter().skip(1).for_each(|extent| self.expr(&extent));
        } else {
            buffer.strides.iter().for_each(|stride| self.expr(&stride));
        }
    }
}

/// Returns a clone of `old` if `is_same` is true, or else the result of `new`.
fn keep_or<T: Clone>(old: &T, is_same: bool, new: impl FnOnce() -> T) -> T {
    if is_same { old.clone() } else { new() }
}

/// Returns true if both arrays are the same object.
fn same<T>(a: &Array<T>, b: &Array<T>) -> bool {
    a.as_object().ptr_eq(b.as_object())
}

fn same_option<T: Object>(a: Option<&Ref<T>>, b: Option<&Ref<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.ptr_eq(b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Transforms each element of an array. Returns `array` itself if no element changes.
fn each<T>(
    array: &Array<T>,
    mut change: impl FnMut(&T) -> Result<T>,
    same: impl Fn(&T, &T) -> bool,
) -> Result<Array<T>>
where
    T: IntoAny + for<'a> anyfn::FromArg<Arg<'a> = T>,
{
    let mut new: Vec<T> = Vec::new();
    for (place, item) in array.iter().enumerate() {
        let changed = change(&item)?;
        if new.is_empty() && same(&changed, &item) {
            continue;
        }
        if new.is_empty() {
            new.reserve_exact(array.len());
            new.extend(array.iter().take(place));
        }
        new.push(changed);
    }
    if new.is_empty() { Ok(array.clone()) } else { Array::try_from_iter(new) }
}

/// Rebuilds an object whose type is not defined in this crate, with transformed fields. Returns
/// `None` if no field changes.
fn rebuilt<M: Mutator + ?Sized>(mutator: &mut M, object: &ObjectRef) -> Result<Option<ObjectRef>> {
    let info = TypeInfo::of(object);
    let mut args = vec![Any::new(info.key())?];
    let mut is_same = true;
    for field in info.fields() {
        let value = object.get_field(field.name())?;
        let new = match value.as_object() {
            Some(inner) => {
                let changed = mutator.object(inner)?;
                is_same &= changed.ptr_eq(inner);
                Any::from(changed)
            }
            None => value,
        };
        args.extend([Any::new(field.name())?, new]);
    }
    if is_same {
        return Ok(None);
    }
    let views: Vec<_> = args.iter().map(Any::as_view).collect();
    registry::get("ffi.MakeObjectFromPackedArgs")?.call_views(&views)?.get::<ObjectRef>().map(Some)
}

fn expect<T: Object>(object: ObjectRef, what: &str) -> Result<Ref<T>> {
    Ref::try_from_object(object)
        .map_err(|object| anyfn::Error::new("TypeError", &format!("`{}` is not {what}", object.type_key())))
}

/// Mutator that substitutes expressions for variables. The wrapped function returns the replacement
/// of a variable, or `None` to keep the variable. Shared subexpressions stay shared.
pub struct Substitute<F>(pub F);

impl<F: FnMut(&Ref<Var>) -> Option<Expr>> Mutator for Substitute<F> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let mut change = |expr: Expr| match ExprKind::of(&expr) {
            ExprKind::Var(var) => Ok((self.0)(var).unwrap_or(expr)),
            _ => Ok(expr),
        };
        Once { change: &mut change, done: HashMap::new() }.expr(expr)
    }
}

/// Mutator that replaces expressions. The wrapped function is called for each expression, after the
/// operands of the expression have been transformed. It returns the replacement, or `None` to keep
/// the expression. A shared subexpression is rewritten once.
pub struct Rewrite<F>(pub F);

impl<F: FnMut(&Expr) -> Result<Option<Expr>>> Mutator for Rewrite<F> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let mut change = |expr: Expr| Ok((self.0)(&expr)?.unwrap_or(expr));
        Once { change: &mut change, done: HashMap::new() }.expr(expr)
    }
}

/// Mutator that transforms all subexpressions in post-order. A shared subexpression is transformed once.
struct Once<'a> {
    change: &'a mut dyn FnMut(Expr) -> Result<Expr>,
    /// Cached results for expressions that may be shared, by the address of the original expression. The
    /// originals are kept alive so that their addresses stay unique.
    done: HashMap<usize, (Expr, Expr)>,
}

impl Mutator for Once<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let is_shared = expr.as_object().use_count() > 1 && !expr.is::<Var>() && !expr.is::<IntImm>();
        let address = expr.as_object().as_handle().addr();
        if is_shared && let Some((_, new)) = self.done.get(&address) {
            return Ok(new.clone());
        }
        let below = self.below_expr(expr)?;
        let new = (self.change)(below)?;
        if is_shared {
            self.done.insert(address, (expr.clone(), new.clone()));
        }
        Ok(new)
    }
}
