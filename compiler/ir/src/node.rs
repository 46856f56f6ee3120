//! Makes nodes exactly as they are said: operands are checked, but nothing is folded or joined.
//!
//! [`ops`] and [`make`](crate::make) make what is best; a reader of texts needs what is written.

use anyfn::{Any, Array, DType, Map, Ref, Result, String, bail};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Broadcast, Cast, Expr, IterVar, Not, PrimExpr, Select, Var};
use crate::ops::{self, DTypeExt};
use crate::stmt::{AssertStmt, Block, For, ForKind, SeqStmt, Stmt, StmtNode};

/// An operation on two values, whose data types are unified. A division by a constant 0 is one: it may never be computed.
///
/// # Errors
/// `TypeError` if the data types do not fit.
pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Result<Expr> {
    let (dtype, a, b) = ops::checked(op, a, b)?;
    Ok(op.node(dtype, a, b))
}

/// The opposite of a truth value.
///
/// # Errors
/// As [`ops::not`].
pub fn not(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    if !dtype.is_bool() {
        bail!("TypeError", "`not` does not take {dtype}");
    }
    Ok(Ref::new(Not { base: PrimExpr { dtype }, a }).into_parent())
}

/// One of two values.
///
/// # Errors
/// As [`ops::select`].
pub fn select(condition: Expr, true_value: Expr, false_value: Expr) -> Result<Expr> {
    ops::select(condition.clone(), true_value.clone(), false_value.clone())?;
    let (true_value, false_value) = ops::unify(true_value, false_value)?;
    let base = PrimExpr { dtype: true_value.dtype };
    Ok(Ref::new(Select { base, condition, true_value, false_value }).into_parent())
}

/// A value as one of another data type.
///
/// # Errors
/// As [`ops::cast`]; `TypeError` for another number of lanes.
pub fn cast(value: Expr, dtype: DType) -> Result<Expr> {
    if value.dtype.lanes() != dtype.lanes() {
        bail!("TypeError", "a value of {} cannot be converted to {dtype}", value.dtype);
    }
    ops::cast(value.clone(), dtype)?;
    Ok(Ref::new(Cast { base: PrimExpr { dtype }, value }).into_parent())
}

/// A vector of one value.
///
/// # Errors
/// As [`ops::splat`]; `ValueError` for less than two lanes.
pub fn broadcast(value: Expr, lanes: u16) -> Result<Expr> {
    if lanes < 2 {
        bail!("ValueError", "a vector needs at least 2 lanes but got {lanes}");
    }
    ops::splat(value.clone(), lanes)?;
    let dtype = value.dtype.with_lanes(lanes);
    Ok(Ref::new(Broadcast { base: PrimExpr { dtype }, value, lanes: lanes.into() }).into_parent())
}

/// Statements one after the other.
#[must_use]
pub fn seq(stmts: Vec<Stmt>) -> Stmt {
    Ref::new(SeqStmt { base: StmtNode {}, seq: stmts.into_iter().collect() }).into_parent()
}

/// A loop.
#[must_use]
pub fn for_loop(
    loop_var: Ref<Var>,
    min: Expr,
    extent: Expr,
    kind: ForKind,
    body: Stmt,
    annotations: Map<String, Any>,
) -> Stmt {
    Ref::new(For { base: StmtNode {}, loop_var, min, extent, kind, body, annotations }).into_parent()
}

/// A statement that ends the function with an error unless a condition holds.
///
/// # Errors
/// `TypeError` if the condition is no truth value.
pub fn assert_stmt(condition: Expr, kind: &str, message: Array<Expr>) -> Result<Stmt> {
    if condition.dtype != DType::BOOL {
        bail!("TypeError", "a condition must be bool but is {}", condition.dtype);
    }
    Ok(Ref::new(AssertStmt { base: StmtNode {}, condition, kind: kind.into(), message }).into_parent())
}

/// What a block consists of.
#[derive(Default)]
pub struct BlockParts {
    /// The axes.
    pub iter_vars: Vec<Ref<IterVar>>,
    /// What it reads.
    pub reads: Vec<Ref<BufferRegion>>,
    /// What it writes.
    pub writes: Vec<Ref<BufferRegion>>,
    /// Memory that exists while the block runs.
    pub alloc_buffers: Vec<Ref<Buffer>>,
    /// What comes before the first iteration over the axes that reduce.
    pub init: Option<Stmt>,
    /// Remarks for passes.
    pub annotations: Map<String, Any>,
}

/// A block.
#[must_use]
pub fn block(name: &str, parts: BlockParts, body: Stmt) -> Ref<Block> {
    Ref::new(Block {
        base: StmtNode {},
        iter_vars: parts.iter_vars.into_iter().collect(),
        reads: parts.reads.into_iter().collect(),
        writes: parts.writes.into_iter().collect(),
        name: name.into(),
        alloc_buffers: parts.alloc_buffers.into_iter().collect(),
        init: parts.init,
        body,
        annotations: parts.annotations,
    })
}
