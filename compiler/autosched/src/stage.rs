//! Stages of a function. A stage is a block directly below the root block, with the loops around it that
//! contain no other block.

use std::collections::HashMap;

use anyfn::{Array, Ref, Result};
use anyfn_ir::analysis::{is_shifted, is_var, uses_var};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BufferLoad, Expr, IterKind, IterVar, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{Block, BlockRealize, For, ForKind, Stmt};
use anyfn_ir::target::Target;
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind};
use anyfn_schedule::Schedule;

use crate::cost;

/// Minimum cost, in simple operations, of a stage that is distributed over threads. Computing a cheaper stage
/// takes less time than starting the threads.
pub(crate) const PARALLEL_WORK: i64 = 1 << 16;

/// Trip count that is assumed for a loop whose trip count is not a constant.
const UNKNOWN: i64 = 256;

/// Maximum trip count of a loop that is tiled. The limit prevents overflow when tile sizes are computed. A
/// loop with more iterations would take days.
const MOST: i64 = 1 << 40;

/// Stage: a block, and the loops around it that contain no other block.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) name: String,
    /// Loops around the stage's block, outermost first.
    pub(crate) loops: Vec<Ref<For>>,
    pub(crate) realize: Ref<BlockRealize>,
    /// Axes over which the stage's loops run, one for each loop.
    axes: Vec<Ref<IterVar>>,
}

/// Returns the stages that are not scheduled yet. All their loops are serial, and each loop variable is the
/// value of one axis. Stages whose blocks the schedule has fixed are omitted.
pub(crate) fn stages(schedule: &Schedule) -> Result<Vec<Stage>> {
    let func = schedule.func()?;
    let StmtKind::BlockRealize(root) = StmtKind::of(&func.body) else { return Ok(Vec::new()) };
    if !root.iter_values.is_empty() {
        return Ok(Vec::new());
    }
    let stmts: Vec<Stmt> = match StmtKind::of(&root.block.body) {
        StmtKind::SeqStmt(node) => node.seq.iter().collect(),
        _ => vec![root.block.body.clone()],
    };
    Ok(stmts.iter().filter_map(Stage::of).filter(|stage| !schedule.is_fixed(&stage.name)).collect())
}

impl Stage {
    fn of(stmt: &Stmt) -> Option<Stage> {
        let mut loops = Vec::new();
        let mut inner = stmt.clone();
        loop {
            inner = match StmtKind::of(&inner) {
                StmtKind::For(node) if node.kind == ForKind::Serial => {
                    loops.push(node.clone());
                    node.body.clone()
                }
                StmtKind::BlockRealize(realize) => {
                    let realize = realize.clone();
                    let axis_of = |node: &Ref<For>| {
                        let mut axes = realize.block.iter_vars.iter().zip(realize.iter_values.iter());
                        axes.find(|(_, value)| is_var(value, &node.loop_var)).map(|(axis, _)| axis)
                    };
                    let axes: Vec<_> = loops.iter().filter_map(axis_of).collect();
                    let is_plain = axes.len() == loops.len()
                        && axes.len() == realize.block.iter_vars.len()
                        && !is_more(&realize.block);
                    let name = realize.block.name.to_string();
                    return is_plain.then_some(Stage { name, loops, realize, axes });
                }
                _ => return None,
            };
        }
    }

    pub(crate) fn block(&self) -> &Ref<Block> {
        &self.realize.block
    }

    pub(crate) fn kind(&self, place: usize) -> IterKind {
        self.axes.get(place).map_or(IterKind::Ordered, |axis| axis.kind)
    }

    pub(crate) fn is_reduction(&self) -> bool {
        (0..self.loops.len()).any(|place| self.kind(place) != IterKind::Spatial)
    }

    /// Returns the indices of the stage's loops over axes of the given kind.
    pub(crate) fn places(&self, kind: IterKind) -> Vec<usize> {
        (0..self.loops.len()).filter(|place| self.kind(*place) == kind).collect()
    }

    /// Returns the trip count of the stage's loop with index `place`. If the trip count is not a
    /// constant, returns an assumed one.
    pub(crate) fn extent(&self, place: usize) -> i64 {
        self.known_extent(place).unwrap_or(UNKNOWN)
    }

    pub(crate) fn known_extent(&self, place: usize) -> Option<i64> {
        self.loops.get(place).and_then(|node| as_int(&node.extent))
    }

    /// Returns true if all loops of the stage start at 0 and their trip counts do not exceed the maximum for
    /// tiling.
    pub(crate) fn can_be_tiled(&self) -> bool {
        self.loops.iter().all(|node| {
            is_int(&node.min, 0) && as_int(&node.extent).is_none_or(|extent| (0..=MOST).contains(&extent))
        })
    }

    /// Returns the product of the trip counts of the given loops.
    pub(crate) fn repetitions(&self, places: impl IntoIterator<Item = usize>) -> i64 {
        places.into_iter().fold(1, |product, place| product.saturating_mul(self.extent(place)))
    }

    /// Returns the total cost of the stage in simple operations.
    pub(crate) fn work(&self) -> i64 {
        self.repetitions(0..self.loops.len()).saturating_mul(cost::of_stmt(&self.block().body).max(1))
    }

    /// Returns true if the stage is costly enough to be distributed over threads and the target has several cores.
    pub(crate) fn is_large(&self, target: &Target) -> bool {
        target.num_cores > 1 && self.work() >= PARALLEL_WORK
    }

    /// Returns the variable of the axis over which the loop with index `place` runs.
    pub(crate) fn axis(&self, place: usize) -> Option<&Ref<Var>> {
        self.axes.get(place).map(|axis| &axis.var)
    }

    /// Returns the position, in the block's list of axes, of the axis over which the loop with
    /// index `place` runs.
    pub(crate) fn axis_number(&self, place: usize) -> Option<usize> {
        let axis = self.axes.get(place)?;
        self.block().iter_vars.iter().position(|known| known.ptr_eq(axis))
    }

    /// Returns the index of the loop over the axis whose variable is `index`. Returns `None` if `index` is
    /// not the variable of an axis.
    pub(crate) fn place_of(&self, index: &Expr) -> Option<usize> {
        self.axes.iter().position(|axis| is_var(index, &axis.var))
    }

    /// Returns true if the stage's block has no condition, so that it is executed in all iterations of its
    /// loops.
    pub(crate) fn has_no_condition(&self) -> bool {
        is_int(&self.realize.predicate, 1)
    }

    /// Returns the indices of each load from a buffer in the stage's block.
    pub(crate) fn loads_of(&self, buffer: &Ref<Buffer>) -> Vec<Array<Expr>> {
        loads_of(&self.block().body, buffer)
    }

    /// Returns all accesses of the stage's block, each with its stride along the loop with index `place`.
    pub(crate) fn accesses(&self, place: usize) -> Vec<Access> {
        let Some(axis) = self.axes.get(place) else { return Vec::new() };
        let mut accesses = Accesses { var: &axis.var, found: Vec::new() };
        accesses.stmt(&self.block().body);
        accesses.found
    }
}

/// Returns the indices of each load from a buffer in a statement.
pub(crate) fn loads_of(stmt: &Stmt, buffer: &Ref<Buffer>) -> Vec<Array<Expr>> {
    let mut found = Vec::new();
    loads(stmt, |load| {
        if load.buffer.data.ptr_eq(&buffer.data) {
            found.push(load.indices.clone());
        }
    });
    found
}

/// Calls `each` for each load from a buffer in a statement.
fn loads(stmt: &Stmt, each: impl FnMut(&BufferLoad)) {
    struct Loads<F>(F);
    impl<F: FnMut(&BufferLoad)> Visitor for Loads<F> {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::BufferLoad(node) = ExprKind::of(expr) {
                (self.0)(node);
            }
            self.below_expr(expr);
        }
    }
    Loads(each).stmt(stmt);
}

/// Reads of each buffer that the function allocates, by the address of the buffer's data variable.
/// The reads are collected in a single traversal of the function.
pub(crate) struct Readers(HashMap<usize, Reads>);

/// Reads of one buffer.
#[derive(Default)]
pub(crate) struct Reads {
    /// Number of reads of the buffer in the whole function, by stages and by other statements.
    pub(crate) count: usize,
    /// Stages that read the buffer, by index. Each is paired with the buffer indices of all its
    /// reads.
    pub(crate) stages: Vec<(usize, Vec<Array<Expr>>)>,
}

impl Readers {
    pub(crate) fn of(func: &PrimFunc, stages: &[Stage]) -> Readers {
        let mut found: HashMap<usize, Reads> = HashMap::new();
        loads(&func.body, |load| found.entry(memory(&load.buffer)).or_default().count += 1);
        for (number, stage) in stages.iter().enumerate() {
            loads(&stage.block().body, |load| {
                let stages = &mut found.entry(memory(&load.buffer)).or_default().stages;
                match stages.last_mut() {
                    Some((last, places)) if *last == number => places.push(load.indices.clone()),
                    _ => stages.push((number, vec![load.indices.clone()])),
                }
            });
        }
        // Buffers of the caller are omitted, because the caller reads them.
        for (_, buffer) in func.buffer_map.iter() {
            found.remove(&memory(&buffer));
        }
        Readers(found)
    }

    /// Returns the reads of a buffer, or `None` if the buffer is never read or belongs to the function's
    /// caller.
    pub(crate) fn reads(&self, buffer: &Buffer) -> Option<&Reads> {
        self.0.get(&memory(buffer))
    }
}

/// Returns the address of a buffer's data variable, which identifies the memory of the buffer.
fn memory(buffer: &Buffer) -> usize {
    buffer.data.as_object().as_handle().addr()
}

/// Access that reads or writes a buffer, with its stride along an axis.
pub(crate) struct Access {
    pub(crate) is_write: bool,
    pub(crate) stride: Stride,
    pub(crate) buffer: Ref<Buffer>,
}

/// Distance in memory between the elements that are accessed for two consecutive values of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stride {
    /// Distance of 0: the same element is accessed again.
    Same,
    /// Distance of one element: the next element in memory is accessed.
    Next,
    /// Any other distance, including an unknown one.
    Far,
}

struct Accesses<'a> {
    var: &'a Ref<Var>,
    found: Vec<Access>,
}

impl Accesses<'_> {
    fn add(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>, is_write: bool) {
        let last = indices.len().saturating_sub(1);
        let mut stride = Stride::Same;
        for (place, index) in indices.iter().enumerate() {
            if uses_var(&index, self.var) {
                let is_next = place == last && buffer.strides.is_empty() && is_shifted(&index, self.var);
                stride = if is_next && stride == Stride::Same { Stride::Next } else { Stride::Far };
            }
        }
        self.found.push(Access { is_write, stride, buffer: buffer.clone() });
    }
}

impl Visitor for Accesses<'_> {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::BufferLoad(node) = ExprKind::of(expr) {
            self.add(&node.buffer, &node.indices, false);
        }
        self.below_expr(expr);
    }
    fn stmt(&mut self, stmt: &Stmt) {
        if let StmtKind::BufferStore(node) = StmtKind::of(stmt) {
            self.add(&node.buffer, &node.indices, true);
        }
        self.below_stmt(stmt);
    }
}

/// Returns true if a block contains anything except simple statements, such as other blocks, loops,
/// or calls of packed or C functions.
fn is_more(block: &Block) -> bool {
    struct Blocks(bool);
    impl Visitor for Blocks {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= match ExprKind::of(expr) {
                ExprKind::Call(node) => node.op.starts_with("call_"),
                ExprKind::Other => true,
                _ => false,
            };
            self.below_expr(expr);
        }
        fn stmt(&mut self, stmt: &Stmt) {
            self.0 |= matches!(
                StmtKind::of(stmt),
                StmtKind::BlockRealize(_) | StmtKind::For(_) | StmtKind::Evaluate(_) | StmtKind::Other
            );
            self.below_stmt(stmt);
        }
    }
    let mut blocks = Blocks(false);
    blocks.stmt(&block.body);
    blocks.0
}
