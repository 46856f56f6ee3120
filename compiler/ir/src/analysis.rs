//! What statements read and write.

use anyfn::{Array, Ref};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Expr, Range};
use crate::kind::{ExprKind, StmtKind};
use crate::ops::DTypeExt;
use crate::stmt::Stmt;
use crate::visit::Visitor;
use crate::{make, ops};

/// The elements that a statement writes, each once.
#[must_use]
pub fn writes(stmt: &Stmt) -> Vec<Ref<BufferRegion>> {
    let mut writes = Writes(Vec::new());
    writes.stmt(stmt);
    writes.0
}

/// The elements that a statement reads, each once, but those of buffers that it writes.
#[must_use]
pub fn reads(stmt: &Stmt, writes: &Array<Ref<BufferRegion>>) -> Vec<Ref<BufferRegion>> {
    let mut reads =
        Reads { written: writes.iter().map(|region| region.buffer.clone()).collect(), found: Vec::new() };
    reads.stmt(stmt);
    reads.found
}

struct Writes(Vec<Ref<BufferRegion>>);

impl Visitor for Writes {
    fn expr(&mut self, _: &Expr) {}

    fn stmt(&mut self, stmt: &Stmt) {
        self.below_stmt(stmt);
        if let StmtKind::BufferStore(node) = StmtKind::of(stmt) {
            add(&mut self.0, &node.buffer, &node.indices);
        }
    }
}

struct Reads {
    written: Vec<Ref<Buffer>>,
    found: Vec<Ref<BufferRegion>>,
}

impl Visitor for Reads {
    fn expr(&mut self, expr: &Expr) {
        self.below_expr(expr);
        if let ExprKind::BufferLoad(node) = ExprKind::of(expr)
            && !self.written.iter().any(|buffer| buffer.ptr_eq(&node.buffer))
        {
            add(&mut self.found, &node.buffer, &node.indices);
        }
    }
}

fn add(regions: &mut Vec<Ref<BufferRegion>>, buffer: &Ref<Buffer>, indices: &Array<Expr>) {
    let is_known = regions.iter().any(|known| {
        known.buffer.ptr_eq(buffer)
            && known.region.iter().zip(indices.iter()).all(|(range, index)| make::is_equal(&range.min, &index))
    });
    if is_known {
        return;
    }
    let one = |index: Expr| {
        let extent = ops::int(1, index.dtype.element()).unwrap_or_else(|_| ops::i32(1));
        Ref::new(Range { min: index, extent })
    };
    regions.push(Ref::new(BufferRegion { buffer: buffer.clone(), region: indices.iter().map(one).collect() }));
}
