//! Replaces blocks by loops, conditions and allocations.

use std::collections::HashMap;

use anyfn::{Ref, Result};
use anyfn_ir::expr::{Expr, IterKind, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::is_int;
use anyfn_ir::ops;
use anyfn_ir::stmt::{BlockRealize, Stmt};
use anyfn_ir::visit::{Mutator, Substitute};
use anyfn_ir::{StmtKind, make, reduction};

/// Replaces the blocks of a function by loops, conditions and allocations.
///
/// The axes of a block are replaced by their values, and the buffers of a block become
/// [`Allocate`](anyfn_ir::stmt::Allocate) statements. The `init` of a block becomes a statement that runs
/// when all reduction axes have their first value. If the reduction loops may have no iterations, it is moved
/// in front of them instead.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn lower_blocks(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    let body = LowerBlocks.stmt(&reduction::with_empty_apart(&func.body)?)?;
    if body.ptr_eq(&func.body) {
        return Ok(func.clone());
    }
    Ok(Ref::new(PrimFunc {
        params: func.params.clone(),
        buffer_map: func.buffer_map.clone(),
        body,
        attrs: func.attrs.clone(),
    }))
}

struct LowerBlocks;

impl Mutator for LowerBlocks {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        match StmtKind::of(stmt) {
            StmtKind::BlockRealize(node) => self.realize(node),
            _ => self.below_stmt(stmt),
        }
    }
}

impl LowerBlocks {
    fn realize(&mut self, node: &BlockRealize) -> Result<Stmt> {
        let block = &node.block;
        let values: HashMap<usize, Expr> = block
            .iter_vars
            .iter()
            .zip(node.iter_values.iter())
            .map(|(axis, value)| (axis.var.as_object().as_handle().addr(), value))
            .collect();
        let mut body = self.stmt(&block.body)?;
        if let Some(init) = &block.init {
            let mut first = ops::bool(true);
            for (axis, value) in block.iter_vars.iter().zip(node.iter_values.iter()) {
                if axis.kind == IterKind::Reduce {
                    first = ops::and(first, ops::equal(value, axis.dom.min.clone())?)?;
                }
            }
            let init = self.stmt(init)?;
            let init = if is_int(&first, 1) { init } else { make::if_then(first, init, None)? };
            body = make::seq([init, body]);
        }
        let find = |var: &Ref<Var>| values.get(&var.as_object().as_handle().addr()).cloned();
        body = Substitute(find).stmt(&body)?;
        if !is_int(&node.predicate, 1) {
            body = make::if_then(node.predicate.clone(), body, None)?;
        }
        for buffer in block.alloc_buffers.iter().collect::<Vec<_>>().into_iter().rev() {
            body = make::allocate(buffer, body);
        }
        Ok(body)
    }
}
