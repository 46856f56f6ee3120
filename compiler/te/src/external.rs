//! Tensors that are computed by a statement or by an external function.

use anyfn::{Array, DType, Map, ObjectRef, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Expr;
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::{Mutator, on_enough_stack};
use anyfn_ir::{ExprKind, make, ops, packed, size};

use crate::tensor::{ExternOp, Operation, Tensor, check_shape};

/// Creates tensors that a statement computes from other tensors. `body` receives the buffers of the
/// inputs and the buffers of the results, and returns the statement. Functions that the statement
/// calls receive the input buffers as read-only arguments.
///
/// # Errors
/// Returns the error of `body`, `TypeError` if an extent is not an integer, and `ValueError` if there are no results or
/// if an extent is negative or exceeds `int64`.
pub fn external(
    results: Vec<(Array<Expr>, DType)>,
    inputs: &[Ref<Tensor>],
    name: &str,
    body: impl FnOnce(&[Ref<Buffer>], &[Ref<Buffer>]) -> Result<Stmt>,
) -> Result<Vec<Ref<Tensor>>> {
    if results.is_empty() {
        bail!("ValueError", "`{name}` computes nothing: expected the shape of at least one result");
    }
    for (shape, _) in &results {
        check_shape(name, shape)?;
    }
    let stands_for = |tensor: &Ref<Tensor>| make::buffer(tensor.name(), tensor.shape.clone(), tensor.dtype);
    let input_buffers: Vec<Ref<Buffer>> = inputs.iter().map(stands_for).collect();
    let output_buffers: Vec<Ref<Buffer>> = results
        .iter()
        .enumerate()
        .map(|(place, (shape, dtype))| {
            let name = if results.len() == 1 { name.to_owned() } else { format!("{name}_{place}") };
            make::buffer(&name, shape.clone(), *dtype)
        })
        .collect();
    let body = body(&input_buffers, &output_buffers)?;
    size::check_stmt(&body, &format!("the body of `{name}`"))?;
    let body = ReadOnly(&input_buffers).stmt(&body)?;
    let op = Ref::new(ExternOp {
        base: Operation { name: name.into(), attrs: Map::new() },
        inputs: inputs.iter().cloned().collect(),
        input_buffers: input_buffers.into_iter().collect(),
        output_buffers: output_buffers.into_iter().collect(),
        body,
    })
    .into_parent();
    let tensors = (0..).zip(results);
    Ok(tensors.map(|(place, (shape, dtype))| Tensor::make(op.clone(), place, shape, dtype)).collect())
}

/// Mutator that marks the given buffers as read-only in the arguments of calls.
struct ReadOnly<'a>(&'a [Ref<Buffer>]);

impl Mutator for ReadOnly<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        on_enough_stack(|| {
            let ExprKind::Call(call) = ExprKind::of(expr) else { return self.below_expr(expr) };
            if !packed::has_effect(call) {
                return self.below_expr(expr);
            }
            let mut args: Vec<ObjectRef> = Vec::new();
            for arg in call.args.iter() {
                let is_input = |buffer: &Ref<Buffer>| self.0.iter().any(|input| input.ptr_eq(buffer));
                args.push(match packed::Arg::of(&arg)? {
                    packed::Arg::Buffer { buffer, is_read_only: false, .. } if is_input(&buffer) => {
                        packed::read_only(arg)?.into_object()
                    }
                    packed::Arg::Value(value) => self.expr(&value)?.into_object(),
                    packed::Arg::Buffer { .. } => arg,
                });
            }
            Ok(ops::call(expr.dtype, &call.op, args))
        })
    }
}
