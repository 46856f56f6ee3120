//! Positions of the barriers between the loops over the threads of a block.

use std::collections::HashSet;
use std::ptr;

use anyfn::{Result, bail};
use anyfn_ir::expr::Expr;
use anyfn_ir::kind::as_int;
use anyfn_ir::stmt::{For, ForKind, SeqStmt, Stmt};
use anyfn_ir::visit::{Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, printer};

use crate::family::address;

/// Barriers that are needed between the loops over the threads of a block.
///
/// If several loops over threads follow each other, or a serial loop repeats one, a thread may read what
/// another thread has written in an earlier loop or iteration. Therefore, a barrier precedes each statement of a sequence that
/// contains a loop over threads, if an earlier statement of the sequence contains one, and a barrier ends each iteration of a
/// serial loop around a loop over threads.
#[derive(Default)]
pub(crate) struct Barriers {
    /// Statements that follow a barrier. Each is identified by the address of the sequence that contains it,
    /// and by its index in that sequence.
    before: HashSet<(usize, usize)>,
    /// Addresses of the loops whose iterations end with a barrier.
    ends: HashSet<usize>,
}

impl Barriers {
    /// Finds the barriers inside of the outermost loops over threads. A language in which each of these loops is followed by
    /// a barrier needs no others.
    ///
    /// # Errors
    /// Returns the errors of [`Barriers::of_kernel`].
    pub(crate) fn inside(body: &Stmt) -> Result<Barriers> {
        Barriers::find(body, 0, &[])
    }

    /// Finds all barriers of a kernel. `extents` contains the number of threads along each thread axis. A loop with fewer
    /// iterations than its axis has threads is executed by some of the threads.
    ///
    /// # Errors
    /// Returns `ValueError` if only some of the threads of a block would reach a barrier, because a condition or a loop
    /// around it depends on the index of a thread.
    pub(crate) fn of_kernel(body: &Stmt, extents: &[(ForKind, i64)]) -> Result<Barriers> {
        Barriers::find(body, 1, extents)
    }

    fn find(body: &Stmt, num_open: usize, extents: &[(ForKind, i64)]) -> Result<Barriers> {
        let (found, varying, divergent) = (Barriers::default(), HashSet::new(), Vec::new());
        let mut search = Search { found, num_open, extents, varying, divergent };
        search.stmt(body)?;
        Ok(search.found)
    }

    /// Returns true if a barrier precedes the statement at `index` in the sequence `seq`.
    pub(crate) fn is_before(&self, seq: &SeqStmt, index: usize) -> bool {
        self.before.contains(&(ptr::from_ref(seq).addr(), index))
    }

    /// Returns true if a barrier ends each iteration of a loop.
    pub(crate) fn is_at_end_of(&self, node: &For) -> bool {
        self.ends.contains(&ptr::from_ref(node).addr())
    }
}

struct Search<'a> {
    found: Barriers,
    /// Number of enclosing loops over threads. One more if barriers are also needed outside of them.
    num_open: usize,
    /// Number of threads along each thread axis, if loops may have fewer iterations.
    extents: &'a [(ForKind, i64)],
    /// Addresses of the variables whose values differ between the threads of a block.
    varying: HashSet<usize>,
    /// Enclosing conditions and serial loops whose execution depends on the index of a thread. Each is
    /// described for messages and paired with the expression that depends on the index.
    divergent: Vec<(String, Expr)>,
}

impl Search<'_> {
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
                let threads =
                    self.extents.iter().find(|(axis, _)| *axis == node.kind).map(|(_, extent)| *extent);
                let is_partial = threads.is_some() && threads != as_int(&node.extent);
                let what = || (format!("loop `{}`", node.loop_var.name), node.loop_var.clone().into_parent());
                self.num_open += 1;
                let result = self.within(is_partial.then(what), |this| this.stmt(&node.body));
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
        inner: impl FnOnce(&mut Self) -> Result<bool>,
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

/// Returns the thread axes to which loops in a statement are bound, in the order of their first loops.
pub(crate) fn thread_axes(stmt: &Stmt) -> Vec<ForKind> {
    struct Axes(Vec<ForKind>);
    impl Visitor for Axes {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::For(node) = StmtKind::of(stmt)
                && node.kind.is_bound()
                && !self.0.contains(&node.kind)
            {
                self.0.push(node.kind);
            }
            self.below_stmt(stmt);
        }
    }
    let mut axes = Axes(Vec::new());
    axes.stmt(stmt);
    axes.0
}
