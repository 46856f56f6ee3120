//! Recognises reductions whose updates may be reordered and regrouped, such as sums and maxima.

use anyfn_ir::analysis::Update;
use anyfn_ir::expr::{Expr, IterKind};
use anyfn_ir::stmt::{Block, BufferStore, For};
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind};

use crate::tree::{address, vars_of};

/// Returns the update that a block performs, such as `sum = sum + value`. Returns `None` unless the operation is a sum,
/// product, minimum or maximum and `value` does not read the updated buffer.
pub(crate) fn step(block: &Block) -> Option<Update<'_>> {
    let step = Update::of(&block.body)?;
    let mut uses = Uses { block: step.store, found: false };
    uses.expr(&step.value);
    (!uses.found).then_some(step)
}

struct Uses<'a> {
    block: &'a BufferStore,
    found: bool,
}

impl Visitor for Uses<'_> {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::BufferLoad(load) = ExprKind::of(expr) {
            self.found |= load.buffer.data.ptr_eq(&self.block.buffer.data);
        }
        self.below_expr(expr);
    }
}

/// Returns true if the iterations of a loop may be reordered and regrouped because all of them
/// update the same reduction. The body of the loop must be a block without `init`, and the loop
/// variable must occur only in the values of reduction axes.
pub(crate) fn is_reassociable(node: &For) -> bool {
    let StmtKind::BlockRealize(realize) = StmtKind::of(&node.body) else { return false };
    let block = &realize.block;
    let var = address(&node.loop_var);
    let mut uses = block
        .iter_vars
        .iter()
        .zip(realize.iter_values.iter())
        .filter(|(_, value)| vars_of(value).contains(&var))
        .map(|(axis, _)| axis.kind)
        .peekable();
    uses.peek().is_some()
        && uses.all(|kind| kind == IterKind::Reduce)
        && block.init.is_none()
        && block.alloc_buffers.is_empty()
        && step(block).is_some()
}
