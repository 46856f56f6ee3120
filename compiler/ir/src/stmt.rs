//! Statements: what a function does.

use anyfn::{Any, Array, Map, Object, Ref, String};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Expr, IterVar, Var};

/// A statement of any kind.
pub type Stmt = Ref<StmtNode>;

/// What all statements have.
#[derive(Object)]
#[object(key = "tir.Stmt", structural = "tree", child_slots = 30)]
pub struct StmtNode {}

/// Sets an element of a buffer.
#[derive(Object)]
#[object(key = "tir.BufferStore", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct BufferStore {
    pub(crate) base: StmtNode,
    /// The buffer.
    pub buffer: Ref<Buffer>,
    /// The new value.
    pub value: Expr,
    /// The place, an index for each dimension; the last one may be a vector.
    pub indices: Array<Expr>,
}

/// Repeats a statement with a variable that counts.
#[derive(Object)]
#[object(key = "tir.For", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct For {
    pub(crate) base: StmtNode,
    /// The variable.
    #[field(structural = "def")]
    pub loop_var: Ref<Var>,
    /// Its first value.
    pub min: Expr,
    /// How often.
    pub extent: Expr,
    /// How the repetitions are carried out.
    pub kind: ForKind,
    /// What is repeated.
    pub body: Stmt,
    /// Remarks for passes.
    #[field(default)]
    pub annotations: Map<String, Any>,
}

/// Statements one after the other.
#[derive(Object)]
#[object(key = "tir.SeqStmt", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct SeqStmt {
    pub(crate) base: StmtNode,
    /// The statements.
    pub seq: Array<Stmt>,
}

/// One of two statements.
#[derive(Object)]
#[object(key = "tir.IfThenElse", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct IfThenElse {
    pub(crate) base: StmtNode,
    /// Which one it is.
    pub condition: Expr,
    /// The statement if it holds.
    pub then_case: Stmt,
    /// The statement if not.
    #[field(default)]
    pub else_case: Option<Stmt>,
}

/// A variable that stands for a value in a statement.
#[derive(Object)]
#[object(key = "tir.LetStmt", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct LetStmt {
    pub(crate) base: StmtNode,
    /// The variable.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// What it stands for.
    pub value: Expr,
    /// Where it is used.
    pub body: Stmt,
}

/// Memory that exists while a statement runs.
#[derive(Object)]
#[object(key = "tir.Allocate", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Allocate {
    pub(crate) base: StmtNode,
    /// What it holds.
    #[field(structural = "def")]
    pub buffer: Ref<Buffer>,
    /// Where it is used.
    pub body: Stmt,
}

/// Computes an expression for what it does.
#[derive(Object)]
#[object(key = "tir.Evaluate", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Evaluate {
    pub(crate) base: StmtNode,
    /// The expression.
    pub value: Expr,
}

/// Ends the function with an error unless a condition holds.
#[derive(Object)]
#[object(key = "tir.AssertStmt", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct AssertStmt {
    pub(crate) base: StmtNode,
    /// What must hold.
    pub condition: Expr,
    /// Kind of the error.
    pub kind: String,
    /// Its message: texts, and ints that are printed between them.
    pub message: Array<Expr>,
}

/// A piece of a computation that schedules move as a whole: what it computes for each value of its own axes, whatever loops
/// are around it.
#[derive(Object)]
#[object(key = "tir.Block", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Block {
    pub(crate) base: StmtNode,
    /// The axes.
    #[field(structural = "def")]
    pub iter_vars: Array<Ref<IterVar>>,
    /// What it reads, for one value of the axes.
    pub reads: Array<Ref<BufferRegion>>,
    /// What it writes.
    pub writes: Array<Ref<BufferRegion>>,
    /// Name, by which schedules find it.
    #[field(structural = "ignore")]
    pub name: String,
    /// Memory that exists while the block runs.
    #[field(structural = "def")]
    pub alloc_buffers: Array<Ref<Buffer>>,
    /// What comes before the first iteration over the axes that reduce, also if there is none.
    pub init: Option<Stmt>,
    /// What is computed.
    pub body: Stmt,
    /// Remarks for passes.
    #[field(default)]
    pub annotations: Map<String, Any>,
}

/// A block at its place: which values its axes have there.
#[derive(Object)]
#[object(key = "tir.BlockRealize", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct BlockRealize {
    pub(crate) base: StmtNode,
    /// A value for each axis.
    pub iter_values: Array<Expr>,
    /// Where the block is computed; elsewhere it is passed over.
    pub predicate: Expr,
    /// The block.
    pub block: Ref<Block>,
}

crate::text_enum! {
    /// How the repetitions of a loop are carried out.
    ForKind {
        /// One after the other.
        Serial = "serial",
        /// By several threads.
        Parallel = "parallel",
        /// By one instruction on vectors.
        Vectorized = "vectorized",
        /// Written out.
        Unrolled = "unrolled",
    }
}
