//! Shares memory between buffers that are not used at the same time.

use std::collections::HashMap;

use anyfn::{Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::{Mutator, Visitor};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::loops::changed;

/// Minimum size in bytes of a buffer that may share memory. Smaller buffers are on the stack or
/// become variables, and the C compiler reuses their memory.
const FEWEST_BYTES: i64 = 16 * 1024;

/// Assigns the same memory to buffers of the function that are not used at the same time. A buffer can reuse
/// the memory of an earlier buffer of the same data type and at least the same size and alignment. The last
/// statement that uses the earlier buffer must precede the first statement that uses the later one.
///
/// Buffers that share memory remain different nodes, with the same variable `data`. Only buffers with a known size of
/// 16 KiB or more are shared. Blocks must be lowered before this pass.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn share_buffers(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, Share.stmt(&func.body)?)
}

struct Share;

impl Mutator for Share {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        if !matches!(StmtKind::of(stmt), StmtKind::Allocate(_)) {
            return self.below_stmt(stmt);
        }
        let mut buffers = Vec::new();
        let mut inner = stmt.clone();
        while let StmtKind::Allocate(node) = StmtKind::of(&inner) {
            buffers.push(node.buffer.clone());
            let body = node.body.clone();
            inner = body;
        }
        let body = self.stmt(&inner)?;
        let replaced = sharers(&buffers, &body);
        if replaced.is_empty() && body.ptr_eq(&inner) {
            return Ok(stmt.clone());
        }
        let mut body = Swap(&replaced).stmt(&body)?;
        for buffer in buffers.into_iter().rev().filter(|buffer| !replaced.contains_key(&address(buffer))) {
            body = make::allocate(buffer, body);
        }
        Ok(body)
    }
}

/// Buffer whose memory may be reused, with its size and the index of the last statement that uses the memory.
struct Owner {
    buffer: Ref<Buffer>,
    bytes: i64,
    last: usize,
}

/// Finds the buffers that can reuse the memory of an earlier buffer. Returns a map from the address
/// of each such buffer to the buffer that replaces it.
fn sharers(buffers: &[Ref<Buffer>], body: &Stmt) -> HashMap<usize, Ref<Buffer>> {
    let mut replaced = HashMap::new();
    let StmtKind::SeqStmt(seq) = StmtKind::of(body) else { return replaced };
    let mut lives: Vec<(usize, usize, &Ref<Buffer>, i64)> = Vec::new();
    for buffer in buffers {
        let uses: Vec<usize> =
            seq.seq.iter().enumerate().filter(|(_, stmt)| uses(stmt, buffer)).map(|(place, _)| place).collect();
        let bytes = bytes(buffer).filter(|bytes| *bytes >= FEWEST_BYTES && &*buffer.scope == "global");
        if let (Some(first), Some(last), Some(bytes)) = (uses.first(), uses.last(), bytes) {
            lives.push((*first, *last, buffer, bytes));
        }
    }
    lives.sort_by_key(|(first, ..)| *first);
    let mut owners: Vec<Owner> = Vec::new();
    for (first, last, buffer, bytes) in lives {
        let free = owners
            .iter_mut()
            .filter(|owner| owner.last < first && owner.bytes >= bytes && owner.buffer.dtype == buffer.dtype)
            .filter(|owner| owner.buffer.alignment >= buffer.alignment)
            .min_by_key(|owner| owner.bytes);
        match free {
            Some(owner) => {
                owner.last = last;
                let node = Buffer {
                    data: owner.buffer.data.clone(),
                    dtype: buffer.dtype,
                    shape: buffer.shape.clone(),
                    strides: buffer.strides.clone(),
                    name: buffer.name.clone(),
                    scope: buffer.scope.clone(),
                    alignment: buffer.alignment,
                };
                replaced.insert(address(buffer), Ref::new(node));
            }
            None => owners.push(Owner { buffer: buffer.clone(), bytes, last }),
        }
    }
    replaced
}

/// Returns the size in bytes of a compact buffer of constant shape, or `None` for other buffers.
fn bytes(buffer: &Buffer) -> Option<i64> {
    if !buffer.strides.is_empty() {
        return None;
    }
    let size = i64::from(buffer.dtype.0.bits.div_ceil(8));
    buffer.shape.iter().try_fold(size, |bytes, extent| bytes.checked_mul(as_int(&extent)?))
}

/// Returns true if a statement uses the memory of a buffer in any way.
fn uses(stmt: &Stmt, buffer: &Ref<Buffer>) -> bool {
    struct Uses<'a>(&'a Ref<Var>, bool);
    impl Visitor for Uses<'_> {
        fn expr(&mut self, expr: &Expr) {
            self.1 |= matches!(ExprKind::of(expr), ExprKind::Var(var) if var.ptr_eq(self.0));
            self.below_expr(expr);
        }
        fn buffer(&mut self, buffer: &Ref<Buffer>) {
            self.1 |= buffer.data.ptr_eq(self.0);
        }
    }
    let mut visitor = Uses(&buffer.data, false);
    visitor.stmt(stmt);
    visitor.1
}

fn address(buffer: &Ref<Buffer>) -> usize {
    buffer.as_object().as_handle().addr()
}

/// Mutator that replaces buffers. The map contains the replacements, by the address of the replaced buffer.
struct Swap<'a>(&'a HashMap<usize, Ref<Buffer>>);

impl Mutator for Swap<'_> {
    fn buffer(&mut self, buffer: &Ref<Buffer>) -> Result<Ref<Buffer>> {
        Ok(self.0.get(&address(buffer)).unwrap_or(buffer).clone())
    }
}
