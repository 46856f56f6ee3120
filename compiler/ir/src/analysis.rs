//! Analyses of statements and expressions: the regions they access, the variables they use, and the conjuncts
//! of conditions.

use std::collections::HashSet;

use anyfn::{Array, Ref};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Expr, Range, Var};
use crate::kind::{ExprKind, StmtKind, is_int};
use crate::ops::DTypeExt;
use crate::stmt::{BufferStore, Stmt};
use crate::visit::{Visitor, on_enough_stack};
use crate::{make, ops, packed};

/// Returns the regions that a statement writes, without duplicates.
#[must_use]
pub fn writes(stmt: &Stmt) -> Vec<Ref<BufferRegion>> {
    let mut writes = Writes(Vec::new(), HashSet::new());
    writes.stmt(stmt);
    writes.0
}

/// Returns the regions that a statement reads, without duplicates. Omits the regions of buffers that occur in
/// `writes`.
#[must_use]
pub fn reads(stmt: &Stmt, writes: &Array<Ref<BufferRegion>>) -> Vec<Ref<BufferRegion>> {
    let written = writes.iter().map(|region| region.buffer.clone()).collect();
    let mut reads = Reads { written, found: Vec::new(), seen: HashSet::new() };
    reads.stmt(stmt);
    reads.found
}

/// Visitor that collects the regions that a statement writes. The set holds the addresses of the expressions
/// visited so far.
struct Writes(Vec<Ref<BufferRegion>>, HashSet<usize>);

impl Visitor for Writes {
    fn expr(&mut self, expr: &Expr) {
        if !self.1.insert(expr.as_object().as_handle().addr()) {
            return;
        }
        if let ExprKind::Call(call) = ExprKind::of(expr) {
            packed::buffers(call, true)
                .into_iter()
                .for_each(|(buffer, part)| add_part(&mut self.0, &buffer, part));
        }
        self.below_expr(expr);
    }

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
    /// Addresses of the expressions visited so far. A shared expression is visited once.
    seen: HashSet<usize>,
}

impl Visitor for Reads {
    fn expr(&mut self, expr: &Expr) {
        if !self.seen.insert(expr.as_object().as_handle().addr()) {
            return;
        }
        self.below_expr(expr);
        if let ExprKind::BufferLoad(node) = ExprKind::of(expr)
            && !self.written.iter().any(|buffer| buffer.ptr_eq(&node.buffer))
        {
            add(&mut self.found, &node.buffer, &node.indices);
        }
        if let ExprKind::Call(call) = ExprKind::of(expr) {
            for (buffer, part) in packed::buffers(call, false) {
                if !self.written.iter().any(|known| known.ptr_eq(&buffer)) {
                    add_part(&mut self.found, &buffer, part);
                }
            }
        }
    }
}

/// Returns the data variables of the buffers that a statement writes. Each variable is represented
/// by the address of its node. A buffer that is passed to a packed function or C function is
/// assumed to be written, unless the argument is marked as read-only.
#[must_use]
pub fn written(stmt: &Stmt) -> HashSet<usize> {
    /// Visitor that collects the data variables of written buffers. The first set contains the addresses of
    /// these variables, the second set those of the expressions visited so far.
    struct Written(HashSet<usize>, HashSet<usize>);
    impl Written {
        fn add(&mut self, buffer: &Buffer) {
            self.0.insert(buffer.data.as_object().as_handle().addr());
        }
    }
    impl Visitor for Written {
        fn expr(&mut self, expr: &Expr) {
            if !self.1.insert(expr.as_object().as_handle().addr()) {
                return;
            }
            if let ExprKind::Call(call) = ExprKind::of(expr) {
                packed::buffers(call, true).iter().for_each(|(buffer, _)| self.add(buffer));
            }
            self.below_expr(expr);
        }

        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::BufferStore(node) = StmtKind::of(stmt) {
                self.add(&node.buffer);
            }
            self.below_stmt(stmt);
        }
    }
    let mut written = Written(HashSet::new(), HashSet::new());
    written.stmt(stmt);
    written.0
}

/// Adds a region of `buffer`, which is an argument of a call, to `regions` unless `regions` already
/// contains an equal region. The region is `part`, or the whole buffer if `part` is `None`.
fn add_part(regions: &mut Vec<Ref<BufferRegion>>, buffer: &Ref<Buffer>, part: Option<Ref<BufferRegion>>) {
    let part = part.unwrap_or_else(|| make::whole(buffer));
    let is_known = regions.iter().any(|known| {
        known.buffer.ptr_eq(buffer)
            && known
                .region
                .iter()
                .zip(part.region.iter())
                .all(|(a, b)| make::is_equal(&a.min, &b.min) && make::is_equal(&a.extent, &b.extent))
    });
    if !is_known {
        regions.push(part);
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

/// Returns true if an expression is the variable `var`.
#[must_use]
pub fn is_var(expr: &Expr, var: &Ref<Var>) -> bool {
    matches!(ExprKind::of(expr), ExprKind::Var(node) if node.ptr_eq(var))
}

/// Returns true if an expression contains the variable `var`.
#[must_use]
pub fn uses_var(expr: &Expr, var: &Ref<Var>) -> bool {
    struct Uses<'a>(&'a Ref<Var>, bool);
    impl Visitor for Uses<'_> {
        fn expr(&mut self, expr: &Expr) {
            self.1 |= is_var(expr, self.0);
            if !self.1 {
                self.below_expr(expr);
            }
        }
    }
    let mut uses = Uses(var, false);
    uses.expr(expr);
    uses.1
}

/// Returns true if an expression is `var` itself, or `var` plus or minus terms that do not contain `var`.
#[must_use]
pub fn is_shifted(expr: &Expr, var: &Ref<Var>) -> bool {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Var(node) => node.ptr_eq(var),
        ExprKind::Binary(BinaryOp::Add, node) => {
            (is_shifted(&node.a, var) && !uses_var(&node.b, var))
                || (is_shifted(&node.b, var) && !uses_var(&node.a, var))
        }
        ExprKind::Binary(BinaryOp::Sub, node) => is_shifted(&node.a, var) && !uses_var(&node.b, var),
        _ => false,
    })
}

/// Returns the conjuncts of a condition: the operands of its nested `and` operations. The constant `true` has no
/// conjuncts.
#[must_use]
pub fn conjuncts(condition: &Expr) -> Vec<Expr> {
    on_enough_stack(|| match ExprKind::of(condition) {
        ExprKind::Binary(BinaryOp::And, node) => [conjuncts(&node.a), conjuncts(&node.b)].concat(),
        _ if is_int(condition, 1) => Vec::new(),
        _ => vec![condition.clone()],
    })
}

/// Statement that updates a reduction, such as `C[i] = C[i] + x`. It combines the current value of an element
/// with another value, and the values may be combined in any order.
#[derive(Clone)]
pub struct Update<'a> {
    /// Statement that stores the updated element.
    pub store: &'a BufferStore,
    /// Combining operation: sum, product, minimum or maximum.
    pub op: BinaryOp,
    /// Value that the element is combined with, such as `x` in `C[i] + x`. It may read other elements of the buffer.
    pub value: Expr,
}

impl<'a> Update<'a> {
    /// Returns the update that a statement performs, or `None` if it is not an update.
    #[must_use]
    pub fn of(stmt: &'a Stmt) -> Option<Update<'a>> {
        let StmtKind::BufferStore(store) = StmtKind::of(stmt) else { return None };
        let ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max), node) =
            ExprKind::of(&store.value)
        else {
            return None;
        };
        let is_own = |expr: &Expr| match ExprKind::of(expr) {
            ExprKind::BufferLoad(load) => {
                load.buffer.ptr_eq(&store.buffer)
                    && load.indices.iter().zip(store.indices.iter()).all(|(a, b)| make::is_equal(&a, &b))
            }
            _ => false,
        };
        let value = match (is_own(&node.a), is_own(&node.b)) {
            (true, false) => node.b.clone(),
            (false, true) => node.a.clone(),
            _ => return None,
        };
        Some(Update { store, op, value })
    }
}
