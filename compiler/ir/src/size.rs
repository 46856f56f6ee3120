//! Limits on the number of nodes of functions, statements and expressions. A shared node counts once for each
//! occurrence.
//!
//! A node may be an operand of several nodes. A walk that searches for something visits each node once. Other walks
//! must visit each occurrence of a node, because the conditions that hold there or the code generated for it differ
//! between occurrences. The number of occurrences doubles with each level of `x = x + x`, so that 60 levels have 2^60
//! occurrences. The functions of this module guard such walks. They count the occurrences in time linear in the number
//! of distinct nodes, and return an error if the number is too large.

use std::collections::HashMap;

use anyfn::{Array, ObjectRef, Ref, Result, bail};

use crate::buffer::Buffer;
use crate::expr::Expr;
use crate::func::PrimFunc;
use crate::kind::{ExprKind, StmtKind};
use crate::stmt::Stmt;
use crate::visit::Visitor;

/// Maximum number of nodes of a function, statement or expression. A shared node counts once for each
/// occurrence.
pub const MOST_NODES: u64 = 1 << 22;

/// Checks that a function has at most [`MOST_NODES`] statements and expressions. A shared node counts once
/// for each occurrence.
///
/// # Errors
/// Returns `ValueError` above [`MOST_NODES`].
pub fn check_func(func: &PrimFunc) -> Result<()> {
    let mut count = Count::default();
    for (_, buffer) in func.buffer_map.iter() {
        count.define_buffer(&buffer);
    }
    count.stmt(&func.body);
    let name = func.attrs.get("global_symbol")?.and_then(|name| name.get::<String>().ok());
    count.check(&name.map_or_else(|| "the function".to_owned(), |name| format!("function `{name}`")))
}

/// Checks that a function has at most [`MOST_NODES`] statements. A shared statement counts once for each
/// occurrence; expressions are not counted.
///
/// # Errors
/// Returns `ValueError` above [`MOST_NODES`].
pub fn check_statements(func: &PrimFunc) -> Result<()> {
    let mut count = Count { statements_only: true, ..Count::default() };
    count.stmt(&func.body);
    count.check("the function")
}

/// Checks that a statement has at most [`MOST_NODES`] nodes. A shared node counts once for each occurrence.
/// `what` names the statement in the error message.
///
/// # Errors
/// Returns `ValueError` above [`MOST_NODES`].
pub fn check_stmt(stmt: &Stmt, what: &str) -> Result<()> {
    let mut count = Count::default();
    count.stmt(stmt);
    count.check(what)
}

/// Checks that an expression has at most [`MOST_NODES`] nodes. A shared node counts once for each occurrence.
/// `what` names the expression in the error message.
///
/// # Errors
/// Returns `ValueError` above [`MOST_NODES`].
pub fn check_expr(expr: &Expr, what: &str) -> Result<()> {
    let mut count = Count::default();
    count.expr(expr);
    count.check(what)
}

/// Checks that an expression does not contain itself. Such a cycle can arise if a node type of another library has
/// mutable fields. The size of the expression is not checked.
///
/// # Errors
/// Returns `ValueError` if the expression contains itself.
pub fn check_acyclic(expr: &Expr, what: &str) -> Result<()> {
    let mut count = Count::default();
    count.expr(expr);
    count.check_acyclic(what)
}

/// Counter of nodes. Each node is visited once, and its size is added at each occurrence.
#[derive(Default)]
struct Count {
    /// Sizes of nodes by address, or `None` while a node is being visited. The nodes are kept alive so that
    /// their addresses stay unique.
    known: HashMap<usize, (ObjectRef, Option<u64>)>,
    /// Number of nodes counted so far below the node being visited.
    size: u64,
    statements_only: bool,
    is_cyclic: bool,
}

impl Count {
    fn check_acyclic(&self, what: &str) -> Result<()> {
        if self.is_cyclic {
            bail!("ValueError", "{what} contains itself");
        }
        Ok(())
    }

    fn check(&self, what: &str) -> Result<()> {
        self.check_acyclic(what)?;
        if self.size > MOST_NODES {
            bail!(
                "ValueError",
                "{what} has more than {MOST_NODES} nodes, with shared nodes counted at each use; compute \
                 shared values once, into a variable or a tensor"
            );
        }
        Ok(())
    }

    /// Adds the size of a node to the count. `below` visits the children of the node.
    fn node(&mut self, object: &ObjectRef, below: impl FnOnce(&mut Self)) {
        let key = object.as_handle().addr();
        if let Some((_, size)) = self.known.get(&key) {
            self.is_cyclic |= size.is_none();
            self.size = self.size.saturating_add(size.unwrap_or(0));
            return;
        }
        self.known.insert(key, (object.clone(), None));
        let outer = std::mem::replace(&mut self.size, 1);
        below(self);
        self.known.insert(key, (object.clone(), Some(self.size)));
        self.size = outer.saturating_add(self.size);
    }
}

impl Visitor for Count {
    fn expr(&mut self, expr: &Expr) {
        match ExprKind::of(expr) {
            _ if self.statements_only => {}
            ExprKind::Var(_) | ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) => {
                self.size = self.size.saturating_add(1);
            }
            _ => self.node(expr.as_object(), |this| this.below_expr(expr)),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.node(stmt.as_object(), |this| {
            this.below_stmt(stmt);
            let annotations = match StmtKind::of(stmt) {
                StmtKind::For(node) => &node.annotations,
                StmtKind::Block(node) => &node.annotations,
                _ => return,
            };
            annotations
                .iter_any()
                .filter_map(|(_, value)| value.as_object())
                .for_each(|object| this.object(object));
        });
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        self.node(buffer.as_object(), |this| {
            buffer.shape.iter().chain(buffer.strides.iter()).for_each(|extent| this.expr(&extent));
        });
    }

    fn object(&mut self, object: &ObjectRef) {
        if Array::<anyfn::Any>::try_from_object(object.clone()).is_ok() {
            self.node(object, |this| this.below_object(object));
        } else {
            self.below_object(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use anyfn::{DType, Result};

    use super::*;
    use crate::ops;

    fn doubled(levels: u32) -> Result<Expr> {
        let mut made: Expr = ops::var("v", DType::INT32).into_parent();
        for _ in 0..levels {
            made = ops::add(made.clone(), made)?;
        }
        Ok(made)
    }

    #[test]
    fn nodes_count_in_each_place() -> Result<()> {
        for levels in [0, 1, 10, 20] {
            let mut count = Count::default();
            count.expr(&doubled(levels)?);
            assert_eq!(count.size, (2 << levels) - 1);
        }
        Ok(())
    }

    #[test]
    fn what_is_too_large_is_refused() -> Result<()> {
        check_expr(&doubled(21)?, "it")?;
        for levels in [22, 60, 70] {
            let error = check_expr(&doubled(levels)?, "it").expect_err("this is too large");
            assert_eq!(error.kind(), "ValueError");
            assert!(error.message().starts_with("it has more than 4194304 nodes"), "{}", error.message());
        }
        Ok(())
    }
}
