//! Statements: nodes that have an effect.

use anyfn::{Any, Array, Map, Object, ObjectRef, Ref, String};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Expr, IterVar, Var};

/// Reference to a statement of any kind.
pub type Stmt = Ref<StmtNode>;

/// Base type of all statements.
#[derive(Object)]
#[object(key = "tir.Stmt", structural = "tree", child_slots = 30)]
pub struct StmtNode {}

/// Store to an element of a buffer.
#[derive(Object)]
#[object(key = "tir.BufferStore", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct BufferStore {
    pub(crate) base: StmtNode,
    /// Buffer that the store writes.
    pub buffer: Ref<Buffer>,
    /// Value that is stored.
    pub value: Expr,
    /// Index of the stored element in each dimension. The last index may be a vector.
    pub indices: Array<Expr>,
}

/// Loop over consecutive values of a loop variable.
#[derive(Object)]
#[object(key = "tir.For", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct For {
    pub(crate) base: StmtNode,
    /// Variable that holds the value of the current iteration.
    #[field(structural = "def")]
    pub loop_var: Ref<Var>,
    /// First value of the loop variable.
    pub min: Expr,
    /// Number of iterations.
    pub extent: Expr,
    /// Mode in which the iterations of the loop are executed.
    pub kind: ForKind,
    /// Body of the loop, which each iteration executes.
    pub body: Stmt,
    /// Annotations of the loop, for passes.
    #[field(default)]
    pub annotations: Map<String, Any>,
}

/// Launch of tasks that share the iterations of a parallel loop. Each task executes a contiguous range of iterations.
///
/// The pass `lower_parallel` replaces each parallel loop by a launch. The launch contains the captures of the
/// tasks and the number of tasks, which a code generator must express.
#[derive(Object)]
#[object(key = "tir.Launch", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Launch {
    pub(crate) base: StmtNode,
    /// Number of tasks, of data type `int32`. If it is 0, the runtime chooses the number.
    pub num_tasks: Expr,
    /// Variables and buffers that are defined outside the loop and used in its body. Each task receives them.
    /// See [`captures`](crate::visit::captures).
    pub captures: Array<ObjectRef>,
    /// Parallel loop whose iterations the tasks share.
    pub body: Ref<For>,
}

/// Sequence of statements.
#[derive(Object)]
#[object(key = "tir.SeqStmt", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct SeqStmt {
    pub(crate) base: StmtNode,
    /// Statements of the sequence, in the order of execution.
    pub seq: Array<Stmt>,
}

/// Conditional statement: runs one of two statements, depending on a condition.
#[derive(Object)]
#[object(key = "tir.IfThenElse", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct IfThenElse {
    pub(crate) base: StmtNode,
    /// Condition that decides which of the two statements runs.
    pub condition: Expr,
    /// Statement that runs if the condition holds.
    pub then_case: Stmt,
    /// Statement that runs if the condition does not hold.
    #[field(default)]
    pub else_case: Option<Stmt>,
}

/// Statement that binds a variable to a value within its body.
#[derive(Object)]
#[object(key = "tir.LetStmt", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct LetStmt {
    pub(crate) base: StmtNode,
    /// Variable that the statement binds.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// Value to which the variable is bound.
    pub value: Expr,
    /// Statement in which the variable is visible.
    pub body: Stmt,
}

/// Allocation of memory for the duration of a statement.
#[derive(Object)]
#[object(key = "tir.Allocate", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Allocate {
    pub(crate) base: StmtNode,
    /// Buffer whose memory is allocated.
    #[field(structural = "def")]
    pub buffer: Ref<Buffer>,
    /// Statement in which the buffer is visible.
    pub body: Stmt,
}

/// Evaluation of an expression for its effect.
#[derive(Object)]
#[object(key = "tir.Evaluate", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Evaluate {
    pub(crate) base: StmtNode,
    /// Expression that the statement evaluates for its effect.
    pub value: Expr,
}

/// Assertion, which ends the enclosing function with an error unless a condition holds.
#[derive(Object)]
#[object(key = "tir.AssertStmt", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct AssertStmt {
    pub(crate) base: StmtNode,
    /// Condition that must hold for the function to continue.
    pub condition: Expr,
    /// Kind of the error with which a failed assertion ends the function, such as `ValueError`.
    pub kind: String,
    /// Message of a failed assertion: strings, and integers that are printed between them.
    pub message: Array<Expr>,
}

/// Block: the smallest unit that a schedule moves. It describes a computation for each value of its axes, independent of
/// the enclosing loops.
#[derive(Object)]
#[object(key = "tir.Block", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct Block {
    pub(crate) base: StmtNode,
    /// Axes of the block.
    #[field(structural = "def")]
    pub iter_vars: Array<Ref<IterVar>>,
    /// Regions that the block reads, for given values of its axes.
    pub reads: Array<Ref<BufferRegion>>,
    /// Regions that the block writes, for given values of its axes.
    pub writes: Array<Ref<BufferRegion>>,
    /// Name by which schedules find the block.
    #[field(structural = "ignore")]
    pub name: String,
    /// Buffers whose memory exists while the block runs.
    #[field(structural = "def")]
    pub alloc_buffers: Array<Ref<Buffer>>,
    /// Initialisation, run before the first iteration over the reduction axes. It runs even if there are no iterations.
    pub init: Option<Stmt>,
    /// Body of the block.
    pub body: Stmt,
    /// Annotations of the block, for passes.
    #[field(default)]
    pub annotations: Map<String, Any>,
}

/// Realization of a block: the block, with the values of its axes and the condition under which it
/// runs.
#[derive(Object)]
#[object(key = "tir.BlockRealize", parent = StmtNode, structural = "tree", final)]
#[repr(C)]
pub struct BlockRealize {
    pub(crate) base: StmtNode,
    /// Value of each axis of the block.
    pub iter_values: Array<Expr>,
    /// Condition under which the block runs.
    pub predicate: Expr,
    /// Block that runs with these values of its axes.
    pub block: Ref<Block>,
}

crate::text_enum! {
    /// Mode in which the iterations of a loop are executed.
    ForKind {
        /// Iterations run one after the other.
        Serial = "serial",
        /// Iterations are distributed over several threads.
        Parallel = "parallel",
        /// Iterations become the lanes of vector instructions.
        Vectorized = "vectorized",
        /// The loop is unrolled: its body is repeated for each iteration.
        Unrolled = "unrolled",
        /// Iteration `i` is executed by the block of threads with index `i` in the first dimension of the
        /// grid.
        BlockIdxX = "blockIdx.x",
        /// Iteration `i` is executed by the block of threads with index `i` in the second dimension of the
        /// grid.
        BlockIdxY = "blockIdx.y",
        /// Iteration `i` is executed by the block of threads with index `i` in the third dimension of the
        /// grid.
        BlockIdxZ = "blockIdx.z",
        /// Iteration `i` is executed by the thread with index `i` in the first dimension of its block.
        ThreadIdxX = "threadIdx.x",
        /// Iteration `i` is executed by the thread with index `i` in the second dimension of its block.
        ThreadIdxY = "threadIdx.y",
        /// Iteration `i` is executed by the thread with index `i` in the third dimension of its block.
        ThreadIdxZ = "threadIdx.z",
    }
}

impl ForKind {
    /// Kinds of loops that are bound to a thread axis of a device. The string of each kind is the name of its
    /// axis.
    ///
    /// The threads of a block synchronise after each outermost loop over them, so that later loops see the values that it has
    /// stored. They also synchronise between consecutive loops over threads inside of it.
    pub const BOUND: [ForKind; 6] = [
        ForKind::BlockIdxX,
        ForKind::BlockIdxY,
        ForKind::BlockIdxZ,
        ForKind::ThreadIdxX,
        ForKind::ThreadIdxY,
        ForKind::ThreadIdxZ,
    ];

    /// Returns true for a loop that is bound to a thread axis.
    #[must_use]
    pub fn is_bound(self) -> bool {
        ForKind::BOUND.contains(&self)
    }

    /// Returns true for a loop whose iterations several threads may execute at the same time.
    #[must_use]
    pub fn is_concurrent(self) -> bool {
        self == ForKind::Parallel || self.is_bound()
    }

    /// Returns true for a loop over blocks of threads.
    #[must_use]
    pub fn is_over_blocks(self) -> bool {
        matches!(self, ForKind::BlockIdxX | ForKind::BlockIdxY | ForKind::BlockIdxZ)
    }

    /// Returns true for a loop over the threads of a block.
    #[must_use]
    pub fn is_over_threads(self) -> bool {
        self.is_bound() && !self.is_over_blocks()
    }
}
