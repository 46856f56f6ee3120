//! Positions of the barriers between the loops over the threads of a block.

use std::collections::HashSet;
use std::ptr;

use anyfn::{Result, bail};
use anyfn_ir::expr::Expr;
use anyfn_ir::stmt::{For, SeqStmt, Stmt};
use anyfn_ir::visit::{Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, printer};

use crate::family::address;

/// Barriers that are needed inside the outermost loops over the threads of a block.
///
/// If a loop over threads contains several others in sequence, or one that a serial loop repeats, a thread may read what
/// another thread has written in an earlier loop or iteration. Therefore, a barrier precedes each statement of a sequence that
/// contains a loop over threads, if an earlier statement of the sequence contains one, and a barrier ends each iteration of a
/// serial loop around a loop over threads.
#[derive(Default)]
pub(super) struct Barriers {
    /// Statements that follow a barrier. Each is identified by the address of the sequence that contains it,
    /// and by its index in that sequence.
    before: HashSet<(usize, usize)>,
    /// Addresses of the loops whose iterations end with a barrier.
    ends: HashSet<usize>,
}

impl Barriers {
    /// Finds the barriers of a function.
    ///
    /// # Errors
    /// Returns `ValueError` if only some of the threads of a block would reach a barrier, because a condition or a loop
    /// around it depends on the index of a thread.
    pub(super) fn of(body: &Stmt) -> Result<Barriers> {
        let mut search =
            Search { found: Barriers::default(), num_open: 0, varying: HashSet::new(), divergent: Vec::new() };
        search.stmt(body)?;
        Ok(search.found)
    }

    /// Returns true if a barrier precedes the statement at `index` in the sequence `seq`.
    pub(super) fn is_before(&self, seq: &SeqStmt, index: usize) -> bool {
        self.before.contains(&(ptr::from_ref(seq).addr(), index))
    }

    /// Returns true if a barrier ends each iteration of a loop.
    pub(super) fn is_at_end_of(&self, node: &For) -> bool {
        self.ends.contains(&ptr::from_ref(node).addr())
    }
}

struct Search {
    found: Barriers,
    /// Number of enclosing loops over threads.
    num_open: usize,
    /// Addresses of the variables whose values differ between the threads of a block.
    varying: HashSet<usize>,
    /// Enclosing conditions and serial loops whose execution depends on the index of a thread. Each is
    /// described for messages and paired with the expression that depends on the index.
    divergent: Vec<(String, Expr)>,
}

impl Search {
    /// Finds the barriers that are needed in a statement. Returns true if the statement contains a
    /// loop over threads.
    fn stmt(&mut self, stmt: &Stmt) -> Result<bool> {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::SeqStmt(node) => {
                let mut has_threads = false;
                for (index, inner) in node.seq.iter().enumerate() {
                    let is_next = self.stmt(&inner)?;
                    if has_threads && is_next && self.num_open > 0 {
                        self.check()?;
                        self.found.before.insert((ptr::from_ref::<SeqStmt>(node).addr(), index));
                    }
                    has_threads |= is_next;
                }
                Ok(has_threads)
            }
            StmtKind::For(node) if node.kind.is_over_threads() => {
                self.varying.insert(address(&node.loop_var));
                self.num_open += 1;
                let result = self.stmt(&node.body);
                self.num_open -= 1;
                result.map(|_| true)
            }
            StmtKind::For(node) => {
                let varying = [&node.min, &node.extent].into_iter().find(|limit| self.varies(limit));
                if varying.is_some() {
                    self.varying.insert(address(&node.loop_var));
                }
                let what = varying.map(|limit| (format!("loop `{}`", node.loop_var.name), limit.clone()));
                self.within(what, |this| {
                    let has_threads = this.stmt(&node.body)?;
                    if has_threads && this.num_open > 0 {
                        this.check()?;
                        this.found.ends.insert(ptr::from_ref::<For>(node).addr());
                    }
                    Ok(has_threads)
                })
            }
            StmtKind::IfThenElse(node) => {
                let is_divergent = self.varies(&node.condition);
                let what = is_divergent.then(|| ("the condition".to_owned(), node.condition.clone()));
                self.within(what, |this| {
                    let in_then = this.stmt(&node.then_case)?;
                    let in_else = node.else_case.as_ref().map_or(Ok(false), |other| this.stmt(other))?;
                    Ok(in_then || in_else)
                })
            }
            StmtKind::LetStmt(node) => {
                if self.varies(&node.value) {
                    self.varying.insert(address(&node.var));
                }
                self.stmt(&node.body)
            }
            StmtKind::Allocate(node) => self.stmt(&node.body),
            _ => Ok(false),
        })
    }

    /// Runs `inner` on the body of a statement. If the execution of the statement depends on the
    /// index of a thread, `what` contains a description of the statement for messages, and the
    /// expression that depends on the index.
    fn within(
        &mut self,
        what: Option<(String, Expr)>,
        inner: impl FnOnce(&mut Search) -> Result<bool>,
    ) -> Result<bool> {
        let outer = self.divergent.len();
        self.divergent.extend(what);
        let result = inner(self);
        self.divergent.truncate(outer);
        result
    }

    /// Checks that all threads of a block reach a barrier at the current statement.
    fn check(&self) -> Result<()> {
        let Some((what, expr)) = self.divergent.last() else { return Ok(()) };
        bail!(
            "ValueError",
            "cannot place a barrier inside of {what}: `{}` depends on the index of a thread, so only some threads of the \
             block would reach the barrier; move {what} into the inner loops over threads",
            printer::brief(expr.as_object())
        )
    }

    /// Returns true if the value of an expression may differ between the threads of a block. Only variables
    /// are examined, because expressions outside of the innermost loops over threads do not read memory.
    fn varies(&self, expr: &Expr) -> bool {
        struct Uses<'a> {
            varying: &'a HashSet<usize>,
            found: bool,
        }
        impl Visitor for Uses<'_> {
            fn expr(&mut self, expr: &Expr) {
                if let ExprKind::Var(var) = ExprKind::of(expr) {
                    self.found |= self.varying.contains(&address(var));
                }
                if !self.found {
                    self.below_expr(expr);
                }
            }
        }
        let mut uses = Uses { varying: &self.varying, found: false };
        uses.expr(expr);
        uses.found
    }
}
