//! Replaces parallel loops by launches of tasks.

use anyfn::{Ref, Result};
use anyfn_ir::expr::Expr;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{StmtKind, make, ops};

/// Replaces each parallel loop by a [`Launch`](anyfn_ir::stmt::Launch) of tasks that share its iterations. The
/// runtime chooses the number of tasks. A loop that is already launched keeps the number of tasks of its
/// launch.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn lower_parallel(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    let body = LowerParallel.stmt(&func.body)?;
    Ok(PrimFunc::with_body(func.clone(), body))
}

struct LowerParallel;

impl Mutator for LowerParallel {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        Ok(expr.clone())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        match StmtKind::of(stmt) {
            StmtKind::For(node) if node.kind == ForKind::Parallel => {
                Ok(launched(ops::i32(0), self.below_stmt(stmt)?))
            }
            StmtKind::Launch(node) => {
                let old = node.body.clone().into_parent();
                let new = self.below_stmt(&old)?;
                Ok(if new.ptr_eq(&old) { stmt.clone() } else { launched(node.num_tasks.clone(), new) })
            }
            _ => self.below_stmt(stmt),
        }
    }
}

/// Returns a launch of the loop `stmt` with `num_tasks` tasks. Returns `stmt` unchanged if it is not a loop.
fn launched(num_tasks: Expr, stmt: Stmt) -> Stmt {
    match stmt.cast::<For>() {
        Ok(body) => make::launch(num_tasks, body),
        Err(stmt) => stmt,
    }
}
