//! The stages of a function: blocks of the outermost block, each in loops of its own.

use std::collections::HashMap;

use anyfn::{Array, Ref, Result};
use anyfn_ir::analysis::{is_shifted, is_var, uses_var};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BufferLoad, Expr, IterKind, IterVar, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::stmt::{Block, BlockRealize, For, ForKind, Stmt};
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind};
use anyfn_schedule::Schedule;

use crate::cost;

/// What an extent is taken for that is not known before the function runs.
const UNKNOWN: i64 = 256;

/// Repetitions of a loop with which sizes can be reckoned: more would take days.
const MOST: i64 = 1 << 40;

/// A block in loops of its own.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) name: String,
    /// The loops, the outermost first.
    pub(crate) loops: Vec<Ref<For>>,
    pub(crate) realize: Ref<BlockRealize>,
    /// For each loop, the axis whose value its variable is.
    axes: Vec<Ref<IterVar>>,
}

/// The stages whose loops are one nest of serial loops, each the one value of one axis: those that no one has scheduled.
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
    Ok(stmts.iter().filter_map(Stage::of).collect())
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

    /// Places of the loops of a kind.
    pub(crate) fn places(&self, kind: IterKind) -> Vec<usize> {
        (0..self.loops.len()).filter(|place| self.kind(*place) == kind).collect()
    }

    /// The extent of a loop, or what it is taken for.
    pub(crate) fn extent(&self, place: usize) -> i64 {
        self.known_extent(place).unwrap_or(UNKNOWN)
    }

    pub(crate) fn known_extent(&self, place: usize) -> Option<i64> {
        self.loops.get(place).and_then(|node| as_int(&node.extent))
    }

    /// Whether all loops count from 0, and no further than tiles can.
    pub(crate) fn can_be_tiled(&self) -> bool {
        self.loops.iter().all(|node| {
            is_int(&node.min, 0) && as_int(&node.extent).is_none_or(|extent| (0..=MOST).contains(&extent))
        })
    }

    /// How often loops repeat together.
    pub(crate) fn repetitions(&self, places: impl IntoIterator<Item = usize>) -> i64 {
        places.into_iter().fold(1, |product, place| product.saturating_mul(self.extent(place)))
    }

    /// Simple operations that it takes.
    pub(crate) fn work(&self) -> i64 {
        self.repetitions(0..self.loops.len()).saturating_mul(cost::of_stmt(&self.block().body).max(1))
    }

    /// The variable of the axis of a loop.
    pub(crate) fn axis(&self, place: usize) -> Option<&Ref<Var>> {
        self.axes.get(place).map(|axis| &axis.var)
    }

    /// The number, among those of the block, of the axis of a loop.
    pub(crate) fn axis_number(&self, place: usize) -> Option<usize> {
        let axis = self.axes.get(place)?;
        self.block().iter_vars.iter().position(|known| known.ptr_eq(axis))
    }

    /// The loop over whose axis an index goes, if it is just that.
    pub(crate) fn place_of(&self, index: &Expr) -> Option<usize> {
        self.axes.iter().position(|axis| is_var(index, &axis.var))
    }

    /// Whether the block is computed in all repetitions.
    pub(crate) fn has_no_condition(&self) -> bool {
        is_int(&self.realize.predicate, 1)
    }

    /// The places of a buffer's elements that the block reads.
    pub(crate) fn loads_of(&self, buffer: &Ref<Buffer>) -> Vec<Array<Expr>> {
        loads_of(&self.block().body, buffer)
    }

    /// How the elements that the block reads and writes lie next to each other along an axis.
    pub(crate) fn accesses(&self, place: usize) -> Vec<Access> {
        let Some(axis) = self.axes.get(place) else { return Vec::new() };
        let mut accesses = Accesses { var: &axis.var, found: Vec::new() };
        accesses.stmt(&self.block().body);
        accesses.found
    }
}

/// The places of a buffer's elements that a statement reads.
pub(crate) fn loads_of(stmt: &Stmt, buffer: &Ref<Buffer>) -> Vec<Array<Expr>> {
    let mut found = Vec::new();
    loads(stmt, |load| {
        if load.buffer.data.ptr_eq(&buffer.data) {
            found.push(load.indices.clone());
        }
    });
    found
}

/// Shows the elements that a statement reads.
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

/// What reads each buffer of a function's own, found in one walk: every stage asks for those that read what it sets.
pub(crate) struct Readers(HashMap<usize, Reads>);

/// What reads a buffer.
#[derive(Default)]
pub(crate) struct Reads {
    /// How often elements are read, by stages and others.
    pub(crate) count: usize,
    /// The stages that do, by number, each with the places of the elements.
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
        // Callers read what is theirs.
        for (_, buffer) in func.buffer_map.iter() {
            found.remove(&memory(&buffer));
        }
        Readers(found)
    }

    /// What reads a buffer; `None` if nothing does, or callers may.
    pub(crate) fn reads(&self, buffer: &Buffer) -> Option<&Reads> {
        self.0.get(&memory(buffer))
    }
}

/// The address by which memory is known.
fn memory(buffer: &Buffer) -> usize {
    buffer.data.as_object().as_handle().addr()
}

/// An element that is read or written, seen along an axis.
pub(crate) struct Access {
    pub(crate) is_write: bool,
    pub(crate) stride: Stride,
}

/// Where the next element along an axis is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stride {
    /// It is the same.
    Same,
    /// It is the neighbour.
    Next,
    /// Elsewhere.
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
        self.found.push(Access { is_write, stride });
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

/// Whether there are blocks or loops inside of a block, or calls that do more than to give a value.
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
