//! Builds statements, buffers and blocks.

use anyfn::{Any, Array, DType, Map, Ref, Result, String, bail, registry};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Expr, IterVar, Range, Var};
use crate::ops;
use crate::stmt::{
    Allocate, AssertStmt, Block, BlockRealize, BufferStore, Evaluate, For, ForKind, IfThenElse, Launch,
    LetStmt, SeqStmt, Stmt, StmtNode,
};
use crate::visit;

/// Creates a compact buffer of scope `global`, with a new variable for the address of its memory.
#[must_use]
pub fn buffer(name: &str, shape: Array<Expr>, dtype: DType) -> Ref<Buffer> {
    buffer_in("global", name, shape, dtype)
}

/// Creates a compact buffer of the given memory scope, with a new variable for the address of its memory.
#[must_use]
pub fn buffer_in(scope: &str, name: &str, shape: Array<Expr>, dtype: DType) -> Ref<Buffer> {
    Ref::new(Buffer {
        data: ops::var(&format!("{name}_data"), ops::HANDLE),
        dtype,
        shape,
        strides: Array::new(),
        name: name.into(),
        scope: scope.into(),
        alignment: 64,
    })
}

/// Creates a store to an element of a buffer.
///
/// # Errors
/// Returns `TypeError` if the data type of the value differs from that of the element, or the error of [`ops::load`].
pub fn store(buffer: &Ref<Buffer>, value: Expr, indices: Array<Expr>) -> Result<Stmt> {
    let lanes = ops::check_indices(&buffer.name, buffer.shape.len(), &indices)?;
    let dtype = ops::DTypeExt::with_lanes(&buffer.dtype, lanes);
    if value.dtype != dtype {
        bail!("TypeError", "an element of `{}` is {dtype} but the value is {}", buffer.name, value.dtype);
    }
    Ok(Ref::new(BufferStore { base: StmtNode {}, buffer: buffer.clone(), value, indices }).into_parent())
}

/// Creates a sequence of statements. Nested sequences are flattened.
#[must_use]
pub fn seq(stmts: impl IntoIterator<Item = Stmt>) -> Stmt {
    let mut flat: Vec<Stmt> = Vec::new();
    for stmt in stmts {
        match stmt.cast_ref::<SeqStmt>() {
            Some(inner) => flat.extend(inner.seq.iter()),
            None => flat.push(stmt),
        }
    }
    match flat.pop() {
        Some(only) if flat.is_empty() => only,
        last => {
            flat.extend(last);
            Ref::new(SeqStmt { base: StmtNode {}, seq: flat.into_iter().collect() }).into_parent()
        }
    }
}

/// Creates a serial loop, in which `loop_var` takes `extent` consecutive values that start at `min`.
#[must_use]
pub fn for_loop(loop_var: Ref<Var>, min: Expr, extent: Expr, body: Stmt) -> Stmt {
    let (base, kind, annotations) = (StmtNode {}, ForKind::Serial, Map::new());
    Ref::new(For { base, loop_var, min, extent, kind, body, annotations }).into_parent()
}

/// Creates a loop of the given kind, without annotations.
#[must_use]
pub fn for_of_kind(loop_var: Ref<Var>, min: Expr, extent: Expr, kind: ForKind, body: Stmt) -> Stmt {
    let (base, annotations) = (StmtNode {}, Map::new());
    Ref::new(For { base, loop_var, min, extent, kind, body, annotations }).into_parent()
}

/// Returns a copy of the loop `node` with the given kind, body and annotations. The loop variable and its
/// range are kept.
#[must_use]
pub fn for_like(node: &For, kind: ForKind, body: Stmt, annotations: Map<String, Any>) -> Stmt {
    let (base, loop_var, min, extent) =
        (StmtNode {}, node.loop_var.clone(), node.min.clone(), node.extent.clone());
    Ref::new(For { base, loop_var, min, extent, kind, body, annotations }).into_parent()
}

/// Returns a copy of the loop `like` with the given first value, trip count and body.
#[must_use]
pub fn for_with(like: &For, min: Expr, extent: Expr, body: Stmt) -> Stmt {
    let (loop_var, kind, annotations) = (like.loop_var.clone(), like.kind, like.annotations.clone());
    Ref::new(For { base: StmtNode {}, loop_var, min, extent, kind, body, annotations }).into_parent()
}

/// Creates a launch of a parallel loop. If `num_tasks` is 0, the runtime chooses the number of tasks.
#[must_use]
pub fn launch(num_tasks: Expr, body: Ref<For>) -> Stmt {
    let captures = visit::captures(&body);
    Ref::new(Launch { base: StmtNode {}, num_tasks, captures, body }).into_parent()
}

/// Creates a conditional statement.
///
/// # Errors
/// Returns `TypeError` if the condition is not a Boolean.
pub fn if_then(condition: Expr, then_case: Stmt, else_case: Option<Stmt>) -> Result<Stmt> {
    if condition.dtype != DType::BOOL {
        bail!("TypeError", "a condition must be bool but is {}", condition.dtype);
    }
    Ok(Ref::new(IfThenElse { base: StmtNode {}, condition, then_case, else_case }).into_parent())
}

/// Creates a statement that binds a variable to a value within its body.
///
/// # Errors
/// Returns `TypeError` if the data types of the variable and the value differ.
pub fn let_stmt(var: Ref<Var>, value: Expr, body: Stmt) -> Result<Stmt> {
    if var.dtype != value.dtype {
        bail!("TypeError", "variable `{}` is {} but its value is {}", var.name, var.dtype, value.dtype);
    }
    Ok(Ref::new(LetStmt { base: StmtNode {}, var, value, body }).into_parent())
}

/// Creates an assertion. Unless the condition holds, the assertion ends the enclosing function with
/// an error of the kind `kind`. The message consists of strings and integers.
///
/// # Errors
/// Returns `TypeError` if the condition is not a Boolean.
pub fn assert_that(condition: Expr, kind: &str, message: impl IntoIterator<Item = Expr>) -> Result<Stmt> {
    if condition.dtype != DType::BOOL {
        bail!("TypeError", "a condition must be bool but is {}", condition.dtype);
    }
    let message = message.into_iter().collect();
    Ok(Ref::new(AssertStmt { base: StmtNode {}, condition, kind: kind.into(), message }).into_parent())
}

/// Creates a statement that allocates the memory of `buffer` while `body` runs.
#[must_use]
pub fn allocate(buffer: Ref<Buffer>, body: Stmt) -> Stmt {
    Ref::new(Allocate { base: StmtNode {}, buffer, body }).into_parent()
}

/// Creates a statement that evaluates an expression for its effect.
#[must_use]
pub fn evaluate(value: Expr) -> Stmt {
    Ref::new(Evaluate { base: StmtNode {}, value }).into_parent()
}

/// Creates a block without annotations.
#[must_use]
pub fn block(
    name: &str,
    iter_vars: impl IntoIterator<Item = Ref<IterVar>>,
    reads: impl IntoIterator<Item = Ref<BufferRegion>>,
    writes: impl IntoIterator<Item = Ref<BufferRegion>>,
    alloc_buffers: impl IntoIterator<Item = Ref<Buffer>>,
    init: Option<Stmt>,
    body: Stmt,
) -> Ref<Block> {
    Ref::new(Block {
        base: StmtNode {},
        iter_vars: iter_vars.into_iter().collect(),
        reads: reads.into_iter().collect(),
        writes: writes.into_iter().collect(),
        name: name.into(),
        alloc_buffers: alloc_buffers.into_iter().collect(),
        init,
        body,
        annotations: Map::new(),
    })
}

/// Returns a copy of a block with `annotations` in place of the block's annotations.
#[must_use]
pub fn annotated(block: &Block, annotations: Map<String, Any>) -> Ref<Block> {
    Ref::new(Block {
        base: StmtNode {},
        iter_vars: block.iter_vars.clone(),
        reads: block.reads.clone(),
        writes: block.writes.clone(),
        name: block.name.clone(),
        alloc_buffers: block.alloc_buffers.clone(),
        init: block.init.clone(),
        body: block.body.clone(),
        annotations,
    })
}

/// Creates a realization of a block from the values of the block's axes and the condition under
/// which the block runs.
#[must_use]
pub fn realize(iter_values: impl IntoIterator<Item = Expr>, predicate: Expr, block: Ref<Block>) -> Stmt {
    let iter_values = iter_values.into_iter().collect();
    Ref::new(BlockRealize { base: StmtNode {}, iter_values, predicate, block }).into_parent()
}

/// Returns the region that covers a whole buffer.
#[must_use]
pub fn whole(buffer: &Ref<Buffer>) -> Ref<BufferRegion> {
    let zero = |extent: &Expr| ops::int(0, extent.dtype).unwrap_or_else(|_| ops::i32(0));
    let ranges = buffer.shape.iter().map(|extent| Ref::new(Range { min: zero(&extent), extent }));
    Ref::new(BufferRegion { buffer: buffer.clone(), region: ranges.collect() })
}

/// Returns true if two expressions are structurally equal.
#[must_use]
pub fn is_equal(a: &Expr, b: &Expr) -> bool {
    a.ptr_eq(b)
        || registry::get("ffi.StructuralEqual")
            .and_then(|equal| {
                equal.call((a.as_object().clone(), b.as_object().clone(), false, false))?.get::<bool>()
            })
            .unwrap_or(false)
}
