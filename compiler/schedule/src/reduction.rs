//! Reductions of one value by an operation whose operands may be combined in any order.

use anyfn_ir::analysis::Update;
use anyfn_ir::expr::{Expr, IterKind};
use anyfn_ir::stmt::{Block, BufferStore, For};
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind};

use crate::tree::{address, vars_of};

/// The step that a block carries out, if it is one of sum, product, minimum or maximum whose value does not read the buffer.
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

/// Whether the repetitions of a loop are steps of one reduction that may come in any order and grouping: it repeats one
/// decomposed block of which only axes that reduce depend on it.
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
