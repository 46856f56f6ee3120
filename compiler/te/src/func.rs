//! Creation of primitive functions from tensors.

use std::collections::{HashMap, HashSet};

use anyfn::{Array, Map, ObjectRef, Ref, Result, bail};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{Expr, IterVar, ProducerLoad, Reduce, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{ExprKind, is_int};
use anyfn_ir::ops::{self, HANDLE};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::{Mutator, Substitute, Visitor, on_enough_stack};
use anyfn_ir::{analysis, make, printer, share};

use crate::tensor::{ComputeOp, ExternOp, Operation, PlaceholderOp, Tensor};

/// Creates a function that computes tensors. `args` become the parameters of the function: placeholders, computed
/// tensors, and variables for numbers.
///
/// Each computed tensor becomes a block in loops over its axes. Intermediate tensors are allocated by the function.
///
/// # Errors
/// Returns `TypeError` if an argument is neither tensor nor variable. Returns `ValueError` if a tensor is repeated, if a
/// placeholder or a variable of the extents is missing from the arguments, or if no argument is a computed tensor.
pub fn create_prim_func(args: &[ObjectRef], name: &str) -> Result<Ref<PrimFunc>> {
    let mut builder = Builder::default();
    let mut params: Vec<Ref<Var>> = Vec::new();
    let mut buffer_map: Vec<(Ref<Var>, Ref<Buffer>)> = Vec::new();
    let mut outputs = Vec::new();
    for arg in args {
        let tensor = match Ref::<Tensor>::try_from_object(arg.clone()) {
            Ok(tensor) => tensor,
            Err(object) => match Ref::<Var>::try_from_object(object) {
                Ok(var) => {
                    params.push(var);
                    continue;
                }
                Err(object) => bail!(
                    "TypeError",
                    "expected tensors and variables as arguments of the function, got `{}`",
                    object.type_key()
                ),
            },
        };
        let buffer = buffer_of(&tensor);
        if builder.buffers.insert(key(&tensor), buffer.clone()).is_some() {
            bail!("ValueError", "tensor `{}` occurs twice among the arguments", tensor.name());
        }
        let param = ops::var(&format!("{}_handle", tensor.name()), HANDLE);
        params.push(param.clone());
        buffer_map.push((param, buffer));
        if !tensor.op.is::<PlaceholderOp>() {
            outputs.push(tensor);
        }
    }
    if outputs.is_empty() {
        bail!("ValueError", "function `{name}` computes nothing: none of its arguments is a computed tensor");
    }
    check_extents(&params, &buffer_map)?;
    for op in in_order(&outputs)? {
        builder.operation(&op)?;
    }
    let body = make::seq(builder.stmts);
    let root = make::block("root", [], [], [], builder.allocated, None, body);
    let body = make::realize([], ops::bool(true), root);
    let attrs = [("global_symbol", name)].into_iter();
    Ok(Ref::new(PrimFunc {
        params: params.into_iter().collect(),
        buffer_map: Map::try_from_iter(buffer_map)?,
        body,
        attrs: Map::try_from_iter(attrs)?,
    }))
}

/// Checks that the variables in the extents of buffer arguments can be determined when the function
/// is called. Each variable must itself be an argument, or be the whole extent of a dimension of a
/// buffer argument.
fn check_extents(params: &[Ref<Var>], buffers: &[(Ref<Var>, Ref<Buffer>)]) -> Result<()> {
    struct Vars(Vec<Ref<Var>>);
    impl Visitor for Vars {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::Var(_) = ExprKind::of(expr) {
                self.0.extend(expr.clone().cast());
            }
            self.below_expr(expr);
        }
    }
    let extents = buffers.iter().flat_map(|(_, buffer)| buffer.shape.iter());
    let mut known: Vec<Ref<Var>> = extents.filter_map(|extent| extent.cast().ok()).collect();
    known.extend(params.iter().cloned());
    for (_, buffer) in buffers {
        for (place, extent) in buffer.shape.iter().enumerate() {
            let mut vars = Vars(Vec::new());
            vars.expr(&extent);
            if let Some(var) = vars.0.iter().find(|var| !known.iter().any(|known| known.ptr_eq(var))) {
                bail!(
                    "ValueError",
                    "extent {place} of `{}` is `{}`, but the value of `{}` is unknown: add it to the arguments",
                    buffer.name,
                    printer::brief(extent.as_object()),
                    var.name
                );
            }
        }
    }
    Ok(())
}

/// Identity of a tensor: the address of its operation and its index among the results of the operation.
type Key = (usize, i32);

fn key(tensor: &Tensor) -> Key {
    (tensor.op.as_object().as_handle().addr(), tensor.value_index)
}

fn buffer_of(tensor: &Tensor) -> Ref<Buffer> {
    let name = if tensor.value_index == 0 {
        tensor.name().to_owned()
    } else {
        format!("{}_{}", tensor.name(), tensor.value_index)
    };
    make::buffer(&name, tensor.shape.clone(), tensor.dtype)
}

/// Returns the operations that compute `outputs`, directly or indirectly. Each operation follows
/// those whose results it reads.
fn in_order(outputs: &[Ref<Tensor>]) -> Result<Vec<Ref<Operation>>> {
    #[derive(PartialEq)]
    enum Visit {
        Entered,
        Done,
    }
    let mut states: HashMap<usize, Visit> = HashMap::new();
    let mut order = Vec::new();
    let mut stack: Vec<Ref<Operation>> = outputs.iter().rev().map(|tensor| tensor.op.clone()).collect();
    while let Some(op) = stack.pop() {
        let key = op.as_object().as_handle().addr();
        match states.get(&key) {
            Some(Visit::Done) => continue,
            Some(Visit::Entered) => {
                states.insert(key, Visit::Done);
                order.push(op);
                continue;
            }
            None => {
                states.insert(key, Visit::Entered);
            }
        }
        let inputs = inputs_of(&op);
        stack.push(op);
        for input in inputs.into_iter().rev() {
            if !states.contains_key(&input.op.as_object().as_handle().addr()) {
                stack.push(input.op.clone());
            }
        }
    }
    Ok(order)
}

/// Returns the tensors that an operation reads.
fn inputs_of(op: &Ref<Operation>) -> Vec<Ref<Tensor>> {
    #[derive(Default)]
    struct Inputs(Vec<Ref<Tensor>>, HashSet<usize>);
    impl Visitor for Inputs {
        fn expr(&mut self, expr: &Expr) {
            // Shared subexpressions are visited once.
            if !self.1.insert(expr.as_object().as_handle().addr()) {
                return;
            }
            if let ExprKind::ProducerLoad(node) = ExprKind::of(expr)
                && let Ok(tensor) = node.producer.clone().cast()
            {
                self.0.push(tensor);
            }
            self.below_expr(expr);
        }
    }
    if let Some(op) = op.cast_ref::<ComputeOp>() {
        let mut inputs = Inputs::default();
        op.body.iter().for_each(|value| inputs.expr(&value));
        inputs.0
    } else if let Some(op) = op.cast_ref::<ExternOp>() {
        op.inputs.iter().collect()
    } else {
        Vec::new()
    }
}

/// Builder of a primitive function from tensor operations.
#[derive(Default)]
struct Builder {
    buffers: HashMap<Key, Ref<Buffer>>,
    allocated: Vec<Ref<Buffer>>,
    stmts: Vec<Stmt>,
    /// Names of the blocks created so far.
    block_names: HashSet<String>,
}

impl Builder {
    fn operation(&mut self, op: &Ref<Operation>) -> Result<()> {
        if op.is::<PlaceholderOp>() {
            if !self.buffers.contains_key(&(op.as_object().as_handle().addr(), 0)) {
                bail!("ValueError", "placeholder `{}` is used but is not among the arguments", op.name);
            }
            Ok(())
        } else if let Some(node) = op.cast_ref::<ComputeOp>() {
            let stmt = self.compute(op, node)?;
            self.stmts.push(stmt);
            Ok(())
        } else if let Some(node) = op.cast_ref::<ExternOp>() {
            let stmt = self.extern_op(op, node)?;
            self.stmts.push(stmt);
            Ok(())
        } else {
            bail!(
                "TypeError",
                "cannot create loops for operation `{}` of type `{}`",
                op.name,
                op.as_object().type_key()
            )
        }
    }

    /// Returns a unique name for a block: `own`, the name of the operation that the block computes,
    /// with a numeric suffix if that name is already taken.
    fn block_name(&mut self, own: &str) -> String {
        let mut name = own.to_owned();
        let mut number = 0;
        while name == "root" || !self.block_names.insert(name.clone()) {
            number += 1;
            name = format!("{own}_{number}");
        }
        name
    }

    /// Returns the buffer that holds a result of an operation. The created function allocates the buffer
    /// unless it is an argument.
    fn result(
        &mut self,
        op: &Ref<Operation>,
        place: i32,
        shape: &Array<Expr>,
        dtype: anyfn::DType,
    ) -> Ref<Buffer> {
        let key = (op.as_object().as_handle().addr(), place);
        if let Some(buffer) = self.buffers.get(&key) {
            return buffer.clone();
        }
        let name = if place == 0 { op.name.to_string() } else { format!("{}_{place}", op.name) };
        let buffer = make::buffer(&name, shape.clone(), dtype);
        self.buffers.insert(key, buffer.clone());
        self.allocated.push(buffer.clone());
        buffer
    }

    fn compute(&mut self, op: &Ref<Operation>, node: &ComputeOp) -> Result<Stmt> {
        let shape: Array<Expr> = node.axis.iter().map(|axis| axis.dom.extent.clone()).collect();
        let results: Vec<Ref<Buffer>> = (0..)
            .zip(node.body.iter())
            .map(|(place, value)| self.result(op, place, &shape, value.dtype))
            .collect();
        let first = node.body.first()?;
        let reduce = first.cast::<Reduce>().ok();
        // The block has its own axes. Their values are the variables of the enclosing loops.
        let mut axes: Vec<Ref<IterVar>> = node.axis.iter().collect();
        if let Some(reduce) = &reduce {
            axes.extend(reduce.axis.iter());
        }
        let mut loops = Vec::new();
        let mut own = Vec::new();
        let mut new_vars: HashMap<usize, Expr> = HashMap::new();
        for axis in &axes {
            let loop_var = ops::var(&axis.var.name, axis.var.dtype);
            let var = ops::var(&format!("v_{}", axis.var.name), axis.var.dtype);
            new_vars.insert(axis.var.as_object().as_handle().addr(), var.clone().into_parent());
            own.push(Ref::new(IterVar { dom: axis.dom.clone(), var, kind: axis.kind }));
            loops.push((loop_var, axis.dom.clone()));
        }
        let mut lower = Lower { buffers: &self.buffers, vars: &new_vars, done: HashMap::new() };
        let indices: Array<Expr> =
            own.iter().take(node.axis.len()).map(|axis| axis.var.clone().into_parent()).collect();
        let (init, body) = match &reduce {
            None => {
                let mut stores = Vec::new();
                for (buffer, value) in results.iter().zip(node.body.iter()) {
                    stores.push(make::store(buffer, lower.expr(&value)?, indices.clone())?);
                }
                (None, make::seq(stores))
            }
            Some(reduce) => {
                let (init, body) = reduction(reduce, &results, &indices, &mut lower)?;
                (Some(init), body)
            }
        };
        let body = share::name_shared(&body)?;
        let writes = analysis::writes(&body);
        let reads = analysis::reads(&body, &writes.iter().cloned().collect());
        let block = make::block(&self.block_name(&op.name), own, reads, writes, [], init, body);
        let values = loops.iter().map(|(var, _)| var.clone().into_parent());
        let mut stmt = make::realize(values, ops::bool(true), block);
        for (var, dom) in loops.into_iter().rev() {
            stmt = make::for_loop(var, dom.min.clone(), dom.extent.clone(), stmt);
        }
        Ok(stmt)
    }

    fn extern_op(&mut self, op: &Ref<Operation>, node: &ExternOp) -> Result<Stmt> {
        let mut replaced: HashMap<usize, Ref<Buffer>> = HashMap::new();
        for (tensor, stands) in node.inputs.iter().zip(node.input_buffers.iter()) {
            if let Some(buffer) = self.buffers.get(&key(&tensor)) {
                replaced.insert(stands.as_object().as_handle().addr(), buffer.clone());
            }
        }
        for (place, stands) in (0..).zip(node.output_buffers.iter()) {
            let buffer = self.result(op, place, &stands.shape, stands.dtype);
            replaced.insert(stands.as_object().as_handle().addr(), buffer);
        }
        let mut swap = SwapBuffers(&replaced);
        let body = swap.stmt(&node.body)?;
        let all = |buffers: &Array<Ref<Buffer>>| -> Vec<Ref<BufferRegion>> {
            let known = buffers.iter().filter_map(|b| replaced.get(&b.as_object().as_handle().addr()));
            known.map(make::whole).collect()
        };
        let (reads, writes) = (all(&node.input_buffers), all(&node.output_buffers));
        let block = make::block(&self.block_name(&op.name), [], reads, writes, [], None, body);
        Ok(make::realize([], ops::bool(true), block))
    }
}

/// Returns the two statements of a reduction: the initialisation and the update.
fn reduction(
    reduce: &Reduce,
    results: &[Ref<Buffer>],
    indices: &Array<Expr>,
    lower: &mut Lower<'_>,
) -> Result<(Stmt, Stmt)> {
    let combiner = &reduce.combiner;
    let mut init = Vec::new();
    let mut values: HashMap<usize, Expr> = HashMap::new();
    for (place, buffer) in results.iter().enumerate() {
        init.push(make::store(buffer, combiner.identity.get(place)?, indices.clone())?);
        let so_far = ops::load(buffer, indices.clone())?;
        values.insert(combiner.lhs.get(place)?.as_object().as_handle().addr(), so_far);
        let next = lower.expr(&reduce.source.get(place)?)?;
        let next = if is_int(&reduce.condition, 1) {
            next
        } else {
            ops::select(lower.expr(&reduce.condition)?, next, combiner.identity.get(place)?)?
        };
        values.insert(combiner.rhs.get(place)?.as_object().as_handle().addr(), next);
    }
    let mut combine = Substitute(|var: &Ref<Var>| values.get(&var.as_object().as_handle().addr()).cloned());
    let combined: Vec<Expr> =
        combiner.result.iter().map(|result| combine.expr(&result)).collect::<Result<_>>()?;
    if let ([buffer], [value]) = (results, &combined[..]) {
        return Ok((make::seq(init), make::store(buffer, value.clone(), indices.clone())?));
    }
    // All values are computed before the first one is stored.
    let vars: Vec<Ref<Var>> = combined
        .iter()
        .zip(results)
        .map(|(value, buffer)| ops::var(&format!("new_{}", buffer.name), value.dtype))
        .collect();
    let mut stores = Vec::new();
    for (buffer, var) in results.iter().zip(&vars) {
        stores.push(make::store(buffer, var.clone().into_parent(), indices.clone())?);
    }
    let mut body = make::seq(stores);
    for (var, value) in vars.into_iter().zip(combined).rev() {
        body = make::let_stmt(var, value, body)?;
    }
    Ok((make::seq(init), body))
}

/// Mutator that replaces loads from tensors by loads from buffers, and each axis of an operation by the
/// expression that holds the value of the axis in the created block.
struct Lower<'a> {
    buffers: &'a HashMap<Key, Ref<Buffer>>,
    vars: &'a HashMap<usize, Expr>,
    /// Transformed expressions, by the address of the original expression. A shared subexpression is
    /// transformed once and stays shared.
    done: HashMap<usize, Expr>,
}

impl Mutator for Lower<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        on_enough_stack(|| {
            let address = expr.as_object().as_handle().addr();
            if let Some(new) = self.done.get(&address) {
                return Ok(new.clone());
            }
            let new = match ExprKind::of(expr) {
                ExprKind::Var(var) => {
                    self.vars.get(&var.as_object().as_handle().addr()).unwrap_or(expr).clone()
                }
                ExprKind::ProducerLoad(node) => {
                    let indices = self.exprs(&node.indices)?;
                    ops::load(&self.buffer_of(node)?, indices)?
                }
                _ => self.below_expr(expr)?,
            };
            self.done.insert(address, new.clone());
            Ok(new)
        })
    }
}

impl Lower<'_> {
    fn buffer_of(&self, node: &ProducerLoad) -> Result<Ref<Buffer>> {
        let tensor = node.producer.cast_ref::<Tensor>();
        match tensor.and_then(|tensor| self.buffers.get(&key(tensor))) {
            Some(buffer) => Ok(buffer.clone()),
            None => bail!("ValueError", "a tensor is used before it is computed"),
        }
    }
}

struct SwapBuffers<'a>(&'a HashMap<usize, Ref<Buffer>>);

impl Mutator for SwapBuffers<'_> {
    fn buffer(&mut self, buffer: &Ref<Buffer>) -> Result<Ref<Buffer>> {
        Ok(self.0.get(&buffer.as_object().as_handle().addr()).unwrap_or(buffer).clone())
    }
}
