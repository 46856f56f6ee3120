//! Loop-invariant code motion.

use anyfn::{Ref, Result};
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::{For, Stmt};
use anyfn_ir::visit::{Mutator, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::loops::changed;

/// Moves loop-invariant conditions and costly values out of loops.
///
/// A condition whose variables are all defined outside of a loop moves out of the loop. An integer quotient
/// or remainder by a positive constant, a floating-point quotient, or a call of a mathematical function is
/// assigned to a variable in front of the loop. This requires that the loop is known to run at least twice,
/// always computes the value, and does not write the memory that the value reads.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn hoist(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, Hoist.stmt(&func.body)?)
}

struct Hoist;

impl Mutator for Hoist {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = self.below_stmt(stmt)?;
        let StmtKind::For(node) = StmtKind::of(&stmt) else { return Ok(stmt) };
        if node.kind.is_concurrent() {
            return Ok(with_body(node, quotients(&node.body)?));
        }
        if let StmtKind::IfThenElse(branch) = StmtKind::of(&node.body)
            && is_plain(&branch.condition)
            && !contains(&branch.condition, &node.loop_var)
        {
            let around = |body: &Stmt| in_front(with_body(node, body.clone()));
            let else_case = branch.else_case.as_ref().map(around).transpose()?;
            return make::if_then(branch.condition.clone(), around(&branch.then_case)?, else_case);
        }
        in_front(stmt)
    }
}

/// Moves the costly invariant values of a loop to variables that are defined before the loop.
fn in_front(stmt: Stmt) -> Result<Stmt> {
    let StmtKind::For(node) = StmtKind::of(&stmt) else { return Ok(stmt) };
    // Nothing may be computed for a loop that does not run. The tasks of a parallel loop should receive few values. Around
    // loops over threads, no memory may be read, since all threads would read it.
    if node.kind.is_concurrent()
        || has_bound(&node.body)
        || as_int(&node.extent).is_none_or(|extent| extent < 2)
    {
        return Ok(stmt);
    }
    let new = values(node)?;
    Ok(new.unwrap_or(stmt))
}

/// Returns true if a statement contains a loop that is bound to a thread axis.
pub(crate) fn has_bound(stmt: &Stmt) -> bool {
    struct Find(bool);
    impl Visitor for Find {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            self.0 |= matches!(StmtKind::of(stmt), StmtKind::For(node) if node.kind.is_bound());
            if !self.0 {
                self.below_stmt(stmt);
            }
        }
    }
    let mut find = Find(false);
    find.stmt(stmt);
    find.0
}

/// Moves integer quotients and remainders to variables at the beginning of the body of a parallel
/// loop, if their values do not change within the body. In a loop that results from fusion, such
/// expressions compute the indices of the original loops.
fn quotients(body: &Stmt) -> Result<Stmt> {
    let mut changes = Changes::default();
    changes.stmt(body);
    if changes.calls {
        return Ok(body.clone());
    }
    let mut lift = Lift { changes: &changes, found: Vec::new(), only_quotients: true };
    let mut stmt = lift.stmt(body)?;
    for (var, value) in lift.found.into_iter().rev() {
        stmt = make::let_stmt(var, value, stmt)?;
    }
    Ok(stmt)
}

/// Returns the loop preceded by the definitions of variables for its costly invariant values, or `None` if it
/// has no such values.
fn values(node: &Ref<For>) -> Result<Option<Stmt>> {
    let mut changes = Changes { vars: vec![node.loop_var.clone()], written: Vec::new(), calls: false };
    changes.stmt(&node.body);
    if changes.calls {
        return Ok(None);
    }
    let mut lift = Lift { changes: &changes, found: Vec::new(), only_quotients: false };
    let body = lift.stmt(&node.body)?;
    let found = lift.found;
    if found.is_empty() {
        return Ok(None);
    }
    let mut stmt = with_body(node, body);
    for (var, value) in found.into_iter().rev() {
        stmt = make::let_stmt(var, value, stmt)?;
    }
    Ok(Some(stmt))
}

fn with_body(node: &Ref<For>, body: Stmt) -> Stmt {
    make::for_like(node, node.kind, body, node.annotations.clone())
}

/// Changes that a statement makes: the variables that it defines, and the data variables of the buffers that
/// it writes.
#[derive(Default)]
struct Changes {
    vars: Vec<Ref<Var>>,
    written: Vec<Ref<Var>>,
    /// True if the statement makes a call that may write to any memory.
    calls: bool,
}

impl Visitor for Changes {
    fn define(&mut self, var: &Ref<Var>) {
        self.vars.push(var.clone());
    }

    fn expr(&mut self, expr: &Expr) {
        match ExprKind::of(expr) {
            ExprKind::Call(node) => self.calls |= !ops::MATH.contains(&&*node.op),
            ExprKind::Other => self.calls = true,
            _ => {}
        }
        self.below_expr(expr);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => self.written.push(node.buffer.data.clone()),
            StmtKind::Allocate(node) => self.written.push(node.buffer.data.clone()),
            StmtKind::Other | StmtKind::Block(_) | StmtKind::BlockRealize(_) => self.calls = true,
            _ => {}
        }
        self.below_stmt(stmt);
    }
}

impl Changes {
    /// Returns true if the recorded changes do not affect the value of an expression.
    fn leaves(&self, expr: &Expr) -> bool {
        struct Same<'a>(&'a Changes, bool);
        impl Visitor for Same<'_> {
            fn expr(&mut self, expr: &Expr) {
                match ExprKind::of(expr) {
                    ExprKind::Var(var) => self.1 &= !self.0.vars.iter().any(|own| own.ptr_eq(var)),
                    ExprKind::BufferLoad(node) => {
                        self.1 &= !self.0.written.iter().any(|data| data.ptr_eq(&node.buffer.data));
                    }
                    ExprKind::Let(_) | ExprKind::Reduce(_) | ExprKind::ProducerLoad(_) => self.1 = false,
                    _ => {}
                }
                self.below_expr(expr);
            }
        }
        let mut same = Same(self, true);
        same.expr(expr);
        same.1
    }
}

/// Mutator that replaces costly invariant values by variables. It visits only statements that are always
/// executed.
struct Lift<'a> {
    changes: &'a Changes,
    found: Vec<(Ref<Var>, Expr)>,
    /// True if only integer quotients and remainders are replaced, not other costly values.
    only_quotients: bool,
}

impl Mutator for Lift<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(_) | StmtKind::SeqStmt(_) | StmtKind::LetStmt(_) | StmtKind::Allocate(_) => {
                self.below_stmt(stmt)
            }
            StmtKind::For(node)
                if as_int(&node.extent).is_some_and(|extent| extent > 0) && !node.kind.is_bound() =>
            {
                self.below_stmt(stmt)
            }
            // These statements may not be executed, or only by other threads.
            _ => Ok(stmt.clone()),
        }
    }

    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let is_costly = match ExprKind::of(expr) {
            ExprKind::Call(node) if !self.only_quotients => ops::MATH.contains(&&*node.op),
            ExprKind::Binary(BinaryOp::Div, _) if expr.dtype.is_float() => !self.only_quotients,
            ExprKind::Binary(BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod, node) => {
                as_int(&node.b).is_some_and(|divisor| divisor > 0)
            }
            _ => false,
        };
        if is_costly && expr.dtype.lanes() == 1 && self.changes.leaves(expr) {
            if let Some((var, _)) = self.found.iter().find(|(_, known)| make::is_equal(known, expr)) {
                return Ok(var.clone().into_parent());
            }
            let var = ops::var("once", expr.dtype);
            self.found.push((var.clone(), expr.clone()));
            return Ok(var.into_parent());
        }
        match ExprKind::of(expr) {
            // Only one of the two values is computed, and the second operand of a logical operation is
            // computed only if the first one does not decide the result.
            ExprKind::Select(_) => Ok(expr.clone()),
            ExprKind::Binary(BinaryOp::And | BinaryOp::Or, _) => Ok(expr.clone()),
            _ => self.below_expr(expr),
        }
    }
}

fn contains(expr: &Expr, var: &Ref<Var>) -> bool {
    let mut found = false;
    struct Find<'a>(&'a Ref<Var>, &'a mut bool);
    impl Visitor for Find<'_> {
        fn expr(&mut self, expr: &Expr) {
            *self.1 |= matches!(ExprKind::of(expr), ExprKind::Var(var) if var.ptr_eq(self.0));
            self.below_expr(expr);
        }
    }
    Find(var, &mut found).expr(expr);
    found
}

/// Returns true if a condition consists only of variables, integers and operations that cannot fail.
fn is_plain(expr: &Expr) -> bool {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Var(_) | ExprKind::IntImm(_) => true,
        ExprKind::Binary(op, node) => {
            let divides = matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
            is_plain(&node.a) && is_plain(&node.b) && (!divides || as_int(&node.b).is_some_and(|b| b != 0))
        }
        ExprKind::Not(node) => is_plain(&node.a),
        _ => false,
    })
}
