//! Builds nodes exactly as requested: checks operands, but does not fold constants or flatten sequences.
//!
//! [`ops`] and [`make`](crate::make) build simplified nodes, whereas a parser needs the nodes that the source
//! contains.

use anyfn::{Any, Array, DType, Map, ObjectRef, Ref, Result, String, bail};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{BinaryOp, Broadcast, Cast, Expr, IterVar, Not, PrimExpr, Select, Var};
use crate::ops::{self, DTypeExt};
use crate::stmt::{AssertStmt, Block, For, ForKind, Launch, SeqStmt, Stmt, StmtNode};

/// Creates a binary operation. The data types of the operands are unified. Division by a constant 0 is accepted, since it
/// may never be evaluated.
///
/// # Errors
/// Returns `TypeError` if the operation does not accept the data types.
pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Result<Expr> {
    let (dtype, a, b) = ops::checked(op, a, b)?;
    Ok(op.node(dtype, a, b))
}

/// Creates the logical negation of a Boolean.
///
/// # Errors
/// Returns `TypeError` if the operand is not a Boolean.
pub fn not(a: Expr) -> Result<Expr> {
    let dtype = a.dtype;
    if !dtype.is_bool() {
        bail!("TypeError", "`not` does not take {dtype}");
    }
    Ok(Ref::new(Not { base: PrimExpr { dtype }, a }).into_parent())
}

/// Creates a choice between two values.
///
/// # Errors
/// Returns the error of [`ops::select`].
pub fn select(condition: Expr, true_value: Expr, false_value: Expr) -> Result<Expr> {
    ops::select(condition.clone(), true_value.clone(), false_value.clone())?;
    let (true_value, false_value) = ops::unify(true_value, false_value)?;
    let base = PrimExpr { dtype: true_value.dtype };
    Ok(Ref::new(Select { base, condition, true_value, false_value }).into_parent())
}

/// Creates a conversion of a value to another data type.
///
/// # Errors
/// Returns the error of [`ops::cast`], or `TypeError` if the number of lanes differs.
pub fn cast(value: Expr, dtype: DType) -> Result<Expr> {
    if value.dtype.lanes() != dtype.lanes() {
        bail!("TypeError", "a value of {} cannot be converted to {dtype}", value.dtype);
    }
    ops::cast(value.clone(), dtype)?;
    Ok(Ref::new(Cast { base: PrimExpr { dtype }, value }).into_parent())
}

/// Creates a vector that repeats one value.
///
/// # Errors
/// Returns the error of [`ops::splat`], or `ValueError` for fewer than two lanes.
pub fn broadcast(value: Expr, lanes: u16) -> Result<Expr> {
    if lanes < 2 {
        bail!("ValueError", "a vector needs at least 2 lanes but got {lanes}");
    }
    ops::splat(value.clone(), lanes)?;
    let dtype = value.dtype.with_lanes(lanes);
    Ok(Ref::new(Broadcast { base: PrimExpr { dtype }, value, lanes: lanes.into() }).into_parent())
}

/// Creates a sequence of statements, without flattening nested sequences.
#[must_use]
pub fn seq(stmts: Vec<Stmt>) -> Stmt {
    Ref::new(SeqStmt { base: StmtNode {}, seq: stmts.into_iter().collect() }).into_parent()
}

/// Creates a loop of any kind.
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

/// Creates a launch of a loop with the given captures.
#[must_use]
pub fn launch(num_tasks: Expr, captures: Vec<ObjectRef>, body: Ref<For>) -> Stmt {
    let captures = captures.into_iter().collect();
    Ref::new(Launch { base: StmtNode {}, num_tasks, captures, body }).into_parent()
}

/// Creates an assertion, which ends the enclosing function with an error unless the condition
/// holds.
///
/// # Errors
/// Returns `TypeError` if the condition is not a Boolean.
pub fn assert_stmt(condition: Expr, kind: &str, message: Array<Expr>) -> Result<Stmt> {
    if condition.dtype != DType::BOOL {
        bail!("TypeError", "a condition must be bool but is {}", condition.dtype);
    }
    Ok(Ref::new(AssertStmt { base: StmtNode {}, condition, kind: kind.into(), message }).into_parent())
}

/// Parts of a block except its name and body.
#[derive(Default)]
pub struct BlockParts {
    /// Axes of the block.
    pub iter_vars: Vec<Ref<IterVar>>,
    /// Regions that the block reads.
    pub reads: Vec<Ref<BufferRegion>>,
    /// Regions that the block writes.
    pub writes: Vec<Ref<BufferRegion>>,
    /// Buffers whose memory exists while the block runs.
    pub alloc_buffers: Vec<Ref<Buffer>>,
    /// Initialisation, run before the first iteration over the reduction axes.
    pub init: Option<Stmt>,
    /// Annotations of the block, for passes.
    pub annotations: Map<String, Any>,
}

/// Creates a block from its parts.
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
