//! Accesses to a buffer in a statement, and the statements that enclose each access.

use anyfn::{Array, Ref, Result};
use anyfn_arith::Analyzer;
use anyfn_ir::analysis::uses_var;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Substitute, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, ops};

/// Step on the path from a statement to an access inside it.
#[derive(Clone)]
pub(crate) enum PathStep {
    /// Step from a sequence to one of its statements. Contains the sequence and the index of the statement.
    Seq(Stmt, usize),
    /// Step from a loop to its body.
    Loop(Ref<For>),
    /// Step from a conditional statement to one of its branches. Contains the condition, and the value that it
    /// has in the branch.
    Branch(Expr, bool),
    /// Step from a let statement to its body. Contains the variable and its value.
    Let(Ref<Var>, Expr),
}

impl PathStep {
    /// Returns true if both values represent the same step from the same statement.
    pub(crate) fn is_same(&self, other: &PathStep) -> bool {
        match (self, other) {
            (PathStep::Seq(a, x), PathStep::Seq(b, y)) => a.ptr_eq(b) && x == y,
            (PathStep::Loop(a), PathStep::Loop(b)) => a.ptr_eq(b),
            (PathStep::Branch(a, x), PathStep::Branch(b, y)) => a.ptr_eq(b) && x == y,
            (PathStep::Let(a, _), PathStep::Let(b, _)) => a.ptr_eq(b),
            _ => false,
        }
    }

    /// Adds to `analyzer` the facts that hold inside the loop, branch or let statement that this
    /// step enters, such as the range of a loop variable.
    pub(crate) fn enter(&self, analyzer: &mut Analyzer) {
        match self {
            PathStep::Seq(..) => {}
            PathStep::Loop(node) => analyzer.bind(&node.loop_var, &node.min, &node.extent),
            PathStep::Branch(condition, true) => analyzer.assume(condition),
            PathStep::Branch(condition, false) => analyzer.assume_not(condition),
            PathStep::Let(var, value) => analyzer.bind_value(var, value),
        }
    }
}

/// Mutator with an analyzer that knows the enclosing loops, conditions and variables of each statement.
pub(crate) trait Informed: Mutator {
    /// Returns the analyzer, which holds the facts known at the current statement.
    fn analyzer(&mut self) -> &mut Analyzer;

    /// Transforms the statement to which the path step `frame` leads. During the transformation, the analyzer
    /// also knows the facts that hold after this step.
    fn inside(&mut self, frame: &PathStep, stmt: &Stmt) -> Result<Stmt> {
        let mark = self.analyzer().mark();
        frame.enter(self.analyzer());
        let result = self.stmt(stmt);
        self.analyzer().restore(mark);
        result
    }
}

/// Read or write of a buffer.
pub(crate) struct Access {
    pub(crate) is_write: bool,
    pub(crate) indices: Array<Expr>,
    /// Path to this access from the statement that [`accesses`] searched.
    pub(crate) frames: Vec<PathStep>,
}

/// Returns all reads and writes of a buffer in a statement. Returns `None` if the buffer is also used in
/// another way, for example as an argument of a call, so that some accesses are unknown.
pub(crate) fn accesses(buffer: &Ref<Buffer>, stmt: &Stmt) -> Option<Vec<Access>> {
    let mut search = Search { buffer, frames: Vec::new(), found: Vec::new(), escapes: false };
    search.stmt(stmt);
    (!search.escapes).then_some(search.found)
}

struct Search<'a> {
    buffer: &'a Ref<Buffer>,
    frames: Vec<PathStep>,
    found: Vec<Access>,
    escapes: bool,
}

impl Search<'_> {
    fn found(&mut self, is_write: bool, buffer: &Ref<Buffer>, indices: &Array<Expr>) {
        if buffer.ptr_eq(self.buffer) {
            let frames = self.frames.clone();
            self.found.push(Access { is_write, indices: indices.clone(), frames });
        } else if buffer.data.ptr_eq(&self.buffer.data) {
            self.escapes = true;
        }
    }

    fn inside(&mut self, frame: PathStep, stmt: &Stmt) {
        self.frames.push(frame);
        self.stmt(stmt);
        self.frames.pop();
    }
}

impl Visitor for Search<'_> {
    fn expr(&mut self, expr: &Expr) {
        on_enough_stack(|| {
            match ExprKind::of(expr) {
                ExprKind::BufferLoad(node) => {
                    self.found(false, &node.buffer, &node.indices);
                    node.indices.iter().for_each(|index| self.expr(&index));
                }
                ExprKind::Var(var) => self.escapes |= var.ptr_eq(&self.buffer.data),
                // These may be evaluated several times or elsewhere, so an access in them has no definite
                // path.
                ExprKind::Let(_) | ExprKind::Reduce(_) => {
                    let before = self.found.len();
                    self.below_expr(expr);
                    self.escapes |= self.found.len() != before;
                }
                _ => self.below_expr(expr),
            }
        })
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        self.escapes |= buffer.ptr_eq(self.buffer) || buffer.data.ptr_eq(&self.buffer.data);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                self.expr(&node.value);
                node.indices.iter().for_each(|index| self.expr(&index));
                self.found(true, &node.buffer, &node.indices);
            }
            StmtKind::For(node) => {
                self.expr(&node.min);
                self.expr(&node.extent);
                self.inside(PathStep::Loop(node.clone()), &node.body);
            }
            StmtKind::SeqStmt(node) => {
                for (place, inner) in node.seq.iter().enumerate() {
                    self.inside(PathStep::Seq(stmt.clone(), place), &inner);
                }
            }
            StmtKind::IfThenElse(node) => {
                self.expr(&node.condition);
                self.inside(PathStep::Branch(node.condition.clone(), true), &node.then_case);
                if let Some(else_case) = &node.else_case {
                    self.inside(PathStep::Branch(node.condition.clone(), false), else_case);
                }
            }
            StmtKind::LetStmt(node) => {
                self.expr(&node.value);
                self.inside(PathStep::Let(node.var.clone(), node.value.clone()), &node.body);
            }
            StmtKind::Block(_) | StmtKind::BlockRealize(_) | StmtKind::Other => {
                let before = self.found.len();
                self.below_stmt(stmt);
                self.escapes |= self.found.len() != before;
            }
            _ => self.below_stmt(stmt),
        });
    }
}

/// Returns true if a statement uses a buffer or its memory in any way.
pub(crate) fn uses(buffer: &Ref<Buffer>, stmt: &Stmt) -> bool {
    accesses(buffer, stmt).is_none_or(|found| !found.is_empty())
}

/// Returns true if an expression uses a buffer or its memory in any way.
pub(crate) fn uses_in(buffer: &Ref<Buffer>, expr: &Expr) -> bool {
    let mut search = Search { buffer, frames: Vec::new(), found: Vec::new(), escapes: false };
    search.expr(expr);
    search.escapes || !search.found.is_empty()
}

/// Returns true if each read is proven to follow a write of the same element within one execution
/// of a loop body, so that no value is carried from one iteration to the next. `outer` is the path
/// to the statement in which `accesses` were found. `depth` is the length of the path from that
/// statement to the loop body.
pub(crate) fn is_written_first(accesses: &[Access], outer: &[PathStep], depth: usize) -> Result<bool> {
    for read in accesses.iter().filter(|access| !access.is_write) {
        let mut analyzer = Analyzer::new();
        outer.iter().chain(&read.frames).for_each(|frame| frame.enter(&mut analyzer));
        let mut is_written = false;
        for write in accesses.iter().filter(|access| access.is_write) {
            if comes_first(&mut analyzer, write, read, depth)? {
                is_written = true;
                break;
            }
        }
        if !is_written {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if it is proven that, in each execution of a loop body, `write` precedes `read` and
/// sets the element that is read. In both paths, the first `depth` steps lead to the loop body.
fn comes_first(analyzer: &mut Analyzer, write: &Access, read: &Access, depth: usize) -> Result<bool> {
    let parting = write.frames.iter().zip(&read.frames).position(|(a, b)| !a.is_same(b));
    let Some(parting) = parting.filter(|parting| *parting >= depth) else { return Ok(false) };
    match (&write.frames[parting], &read.frames[parting]) {
        (PathStep::Seq(a, x), PathStep::Seq(b, y)) if a.ptr_eq(b) && x < y => {}
        _ => return Ok(false),
    }
    let (shared, own) = (&write.frames[depth..parting], &write.frames[parting..]);
    // First try the same iteration of the loops around both. Then try the first iteration of the loops that occur only
    // in conditions, such as the one that initialises a reduction.
    if instance(analyzer, write, read, shared, own, &[])? {
        return Ok(true);
    }
    let conditions = |var: &Ref<Var>| {
        shared.iter().chain(own).any(|frame| matches!(frame, PathStep::Branch(test, _) if uses_var(test, var)))
    };
    let is_first = |node: &Ref<For>| {
        let in_order = matches!(node.kind, ForKind::Serial | ForKind::Unrolled);
        in_order
            && conditions(&node.loop_var)
            && !write.indices.iter().any(|index| uses_var(&index, &node.loop_var))
    };
    let first: Vec<Ref<For>> = shared
        .iter()
        .filter_map(|frame| match frame {
            PathStep::Loop(node) if is_first(node) => Some(node.clone()),
            _ => None,
        })
        .collect();
    Ok(!first.is_empty() && instance(analyzer, write, read, shared, own, &first)?)
}

/// Returns true if some execution of `write` provably sets the element that `read` reads.
///
/// `shared` lists the loops around both accesses. Both are assumed to run in the same iteration of each, except for the loops
/// that are also in `first`, where the write runs in the first iteration. `own` is the path to the write below `shared`.
fn instance(
    analyzer: &mut Analyzer,
    write: &Access,
    read: &Access,
    shared: &[PathStep],
    own: &[PathStep],
    first: &[Ref<For>],
) -> Result<bool> {
    // Values of the variables at the write.
    let mut values: Vec<(Ref<Var>, Expr)> = Vec::new();
    let mut loops: Vec<Ref<For>> = Vec::new();
    for frame in shared {
        match frame {
            PathStep::Loop(node) if first.iter().any(|other| other.ptr_eq(node)) => {
                values.push((node.loop_var.clone(), with(&values, &node.min)?));
            }
            PathStep::Let(var, value) => values.push((var.clone(), with(&values, value)?)),
            _ => {}
        }
    }
    for frame in own {
        match frame {
            PathStep::Loop(node) => loops.push(node.clone()),
            // The value may depend on the loops that are solved for below, so it cannot be substituted yet.
            PathStep::Let(..) => return Ok(false),
            _ => {}
        }
    }
    let vars: Vec<Ref<Var>> = loops.iter().map(|node| node.loop_var.clone()).collect();
    let mut solved: Vec<Option<Expr>> = vec![None; loops.len()];
    for (to, from) in write.indices.iter().zip(read.indices.iter()) {
        let to = with(&values, &to)?;
        if to.dtype != from.dtype {
            return Ok(false);
        }
        let Some((factors, rest)) = analyzer.linear_parts(&to, &vars) else { return Ok(false) };
        let mut left = ops::sub(from, rest)?;
        let mut places: Vec<usize> = (0..vars.len()).filter(|place| factors[*place] != 0).collect();
        places.sort_by_key(|place| std::cmp::Reverse(factors[*place]));
        for place in &places {
            let (factor, node) = (factors[*place], &loops[*place]);
            if factor < 0 || solved[*place].is_some() || node.loop_var.dtype != left.dtype {
                return Ok(false);
            }
            let min = with(&values, &node.min)?;
            left = ops::sub(left, ops::mul(min, ops::int(factor, node.loop_var.dtype)?)?)?;
        }
        for place in places {
            let (factor, node) = (ops::int(factors[place], left.dtype)?, &loops[place]);
            let digit = analyzer.simplify(&ops::floor_div(left.clone(), factor.clone())?)?;
            left = ops::floor_mod(left, factor)?;
            let inside = ops::and(ops::less(ops::int(-1, digit.dtype)?, digit.clone())?, {
                ops::less(digit.clone(), with(&values, &node.extent)?)?
            })?;
            if vars.iter().any(|var| uses_var(&inside, var)) || !analyzer.can_prove(&inside) {
                return Ok(false);
            }
            solved[place] = Some(ops::add(digit, with(&values, &node.min)?)?);
        }
        let is_met = ops::equal(left.clone(), ops::int(0, left.dtype)?)?;
        if !analyzer.can_prove(&is_met) {
            return Ok(false);
        }
    }
    for (node, solved) in loops.iter().zip(solved) {
        let value = match solved {
            Some(value) => value,
            // Any iteration suffices, provided that there is one.
            None => {
                let extent = with(&values, &node.extent)?;
                if !analyzer.can_prove(&ops::less(ops::int(0, extent.dtype)?, extent)?) {
                    return Ok(false);
                }
                with(&values, &node.min)?
            }
        };
        values.push((node.loop_var.clone(), value));
    }
    for frame in shared.iter().chain(own) {
        if let PathStep::Branch(condition, holds) = frame {
            let condition = with(&values, condition)?;
            let is_sure = if *holds { analyzer.can_prove(&condition) } else { analyzer.can_refute(&condition) };
            if !is_sure {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns an expression with each variable in `values` replaced by its value.
fn with(values: &[(Ref<Var>, Expr)], expr: &Expr) -> Result<Expr> {
    if values.is_empty() {
        return Ok(expr.clone());
    }
    let find =
        |var: &Ref<Var>| values.iter().find(|(known, _)| known.ptr_eq(var)).map(|(_, value)| value.clone());
    Substitute(find).expr(expr)
}
