//! Simplification of expressions, conditions and loops.

use std::collections::{HashMap, HashSet};

use anyfn::{Ref, Result};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::{For, IfThenElse, LetStmt, Stmt};
use anyfn_ir::visit::{Mutator, Substitute, Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::loops::changed;

/// Simplifies a function without changing its results.
///
/// Removes conditions that always hold, loops that run once or never, branches that are never taken, and assertions
/// that cannot fail. Expressions are simplified by [`Analyzer::simplify`], using the domains of the enclosing loops and
/// the enclosing conditions.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn simplify(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    let mut analyzer = Analyzer::new();
    assume_values(&mut analyzer, func)?;
    assume_shapes(&mut analyzer, func)?;
    changed(func, Simplify { analyzer }.stmt(&func.body)?)
}

/// Declares to the analyzer which integer parameters can have any value of their data types, so
/// that arithmetic on them may overflow. Parameters that are used in an index or extent are
/// excluded, because index arithmetic is assumed not to overflow.
fn assume_values(analyzer: &mut Analyzer, func: &PrimFunc) -> Result<()> {
    /// Visitor that collects the variables that occur in indices and extents.
    #[derive(Default)]
    struct IndexParams {
        vars: HashSet<usize>,
        in_place: bool,
    }
    impl IndexParams {
        fn place(&mut self, expr: &Expr) {
            let outer = std::mem::replace(&mut self.in_place, true);
            self.expr(expr);
            self.in_place = outer;
        }
    }
    impl Visitor for IndexParams {
        fn expr(&mut self, expr: &Expr) {
            match ExprKind::of(expr) {
                ExprKind::Var(var) if self.in_place => drop(self.vars.insert(address(var))),
                ExprKind::BufferLoad(node) => node.indices.iter().for_each(|index| self.place(&index)),
                _ => self.below_expr(expr),
            }
        }
        fn stmt(&mut self, stmt: &Stmt) {
            match StmtKind::of(stmt) {
                StmtKind::BufferStore(node) => node.indices.iter().for_each(|index| self.place(&index)),
                StmtKind::For(node) => [&node.min, &node.extent].into_iter().for_each(|expr| self.place(expr)),
                _ => {}
            }
            self.below_stmt(stmt);
        }
        fn define_buffer(&mut self, buffer: &Ref<Buffer>) {
            buffer.shape.iter().chain(buffer.strides.iter()).for_each(|extent| self.place(&extent));
        }
    }
    let mut places = IndexParams::default();
    for (_, buffer) in func.buffer_map.iter() {
        places.define_buffer(&buffer);
    }
    places.stmt(&func.body);
    for param in func.params.iter() {
        if func.buffer_map.get(&param)?.is_none()
            && param.dtype.is_integer()
            && !places.vars.contains(&address(&param))
        {
            analyzer.set_any(&param);
        }
    }
    Ok(())
}

/// Declares to the analyzer that no buffer parameter has a negative extent, because arguments are checked
/// before the function runs.
pub(crate) fn assume_shapes(analyzer: &mut Analyzer, func: &PrimFunc) -> Result<()> {
    for (_, buffer) in func.buffer_map.iter() {
        for extent in buffer.shape.iter() {
            if as_int(&extent).is_none() && extent.dtype.is_integer() && extent.dtype.lanes() == 1 {
                let zero = ops::int(0, extent.dtype)?;
                analyzer.assume(&ops::less(ops::sub(zero, ops::int(1, extent.dtype)?)?, extent)?);
            }
        }
    }
    Ok(())
}

fn address(var: &Ref<Var>) -> usize {
    var.as_object().as_handle().addr()
}

/// Returns true if a statement does nothing.
pub(crate) fn is_nothing(stmt: &Stmt) -> bool {
    matches!(StmtKind::of(stmt), StmtKind::SeqStmt(node) if node.seq.is_empty())
}

/// Returns true if a statement contains a block with an `init`. The `init` is executed even if loops around the block
/// have no iterations.
fn has_init(stmt: &Stmt) -> bool {
    struct Init(bool);
    impl Visitor for Init {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            self.0 |= matches!(StmtKind::of(stmt), StmtKind::Block(block) if block.init.is_some());
            self.below_stmt(stmt);
        }
    }
    let mut init = Init(false);
    init.stmt(stmt);
    init.0
}

struct Simplify {
    analyzer: Analyzer,
}

impl Mutator for Simplify {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        self.analyzer.simplify(expr)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        on_enough_stack(|| match StmtKind::of(stmt) {
            StmtKind::For(node) => self.for_loop(stmt, node),
            StmtKind::IfThenElse(node) => self.branches(stmt, node),
            StmtKind::LetStmt(node) => self.let_stmt(stmt, node),
            StmtKind::SeqStmt(node) => {
                let mut seq = Vec::with_capacity(node.seq.len());
                let mut is_same = true;
                for old in node.seq.iter() {
                    let new = self.stmt(&old)?;
                    is_same &= new.ptr_eq(&old);
                    seq.push(new);
                }
                Ok(if is_same { stmt.clone() } else { make::seq(seq) })
            }
            StmtKind::Allocate(node) => {
                let body = self.stmt(&node.body)?;
                Ok(match is_nothing(&body) {
                    true => body,
                    _ if body.ptr_eq(&node.body) => stmt.clone(),
                    _ => make::allocate(node.buffer.clone(), body),
                })
            }
            StmtKind::AssertStmt(node) if self.analyzer.can_prove(&node.condition) => Ok(make::seq([])),
            StmtKind::Block(_) => self.block(stmt),
            _ => self.below_stmt(stmt),
        })
    }
}

impl Simplify {
    fn for_loop(&mut self, stmt: &Stmt, node: &For) -> Result<Stmt> {
        let (min, extent) = (self.expr(&node.min)?, self.expr(&node.extent)?);
        match as_int(&extent) {
            // The `init` of a reduction is executed even if the reduction is empty.
            Some(..=0) if has_init(&node.body) => return Ok(stmt.clone()),
            Some(..=0) => return Ok(make::seq([])),
            // A loop that is bound to a thread axis specifies which thread executes its only iteration.
            Some(1) if min.dtype == node.loop_var.dtype && !node.kind.is_bound() => {
                // This iteration also removes loops with one iteration that are directly inside the loop.
                let address = |var: &Ref<Var>| var.as_object().as_handle().addr();
                let mut values = HashMap::from([(address(&node.loop_var), min)]);
                let mut body = &node.body;
                while let StmtKind::For(inner) = StmtKind::of(body)
                    && is_int(&inner.extent, 1)
                    && as_int(&inner.min).is_some()
                    && inner.min.dtype == inner.loop_var.dtype
                    && !inner.kind.is_bound()
                {
                    values.insert(address(&inner.loop_var), inner.min.clone());
                    body = &inner.body;
                }
                let value = |var: &Ref<Var>| values.get(&address(var)).cloned();
                return self.stmt(&Substitute(value).stmt(body)?);
            }
            _ => {}
        }
        let mark = self.analyzer.mark();
        self.analyzer.bind(&node.loop_var, &min, &extent);
        let body = self.stmt(&node.body);
        self.analyzer.restore(mark);
        let body = body?;
        if is_nothing(&body) {
            return Ok(body);
        }
        if min.ptr_eq(&node.min) && extent.ptr_eq(&node.extent) && body.ptr_eq(&node.body) {
            return Ok(stmt.clone());
        }
        Ok(make::for_with(node, min, extent, body))
    }

    fn branches(&mut self, stmt: &Stmt, node: &IfThenElse) -> Result<Stmt> {
        let condition = self.expr(&node.condition)?;
        match (as_int(&condition), &node.else_case) {
            (Some(0), None) => return Ok(make::seq([])),
            (Some(0), Some(else_case)) => return self.stmt(else_case),
            (Some(_), _) => return self.stmt(&node.then_case),
            (None, _) => {}
        }
        let mark = self.analyzer.mark();
        self.analyzer.assume(&condition);
        let then_case = self.stmt(&node.then_case);
        self.analyzer.restore(mark);
        let then_case = then_case?;
        let else_case = match &node.else_case {
            None => None,
            Some(old) => {
                self.analyzer.assume_not(&condition);
                let new = self.stmt(old);
                self.analyzer.restore(mark);
                Some(new?).filter(|new| !is_nothing(new))
            }
        };
        match (is_nothing(&then_case), &else_case) {
            (true, None) if !self.analyzer.has_effect(&condition) => return Ok(then_case),
            (true, Some(else_case)) => return make::if_then(ops::not(condition)?, else_case.clone(), None),
            _ => {}
        }
        let is_same = condition.ptr_eq(&node.condition)
            && then_case.ptr_eq(&node.then_case)
            && match (&else_case, &node.else_case) {
                (Some(new), Some(old)) => new.ptr_eq(old),
                (new, old) => new.is_none() && old.is_none(),
            };
        if is_same { Ok(stmt.clone()) } else { make::if_then(condition, then_case, else_case) }
    }

    fn let_stmt(&mut self, stmt: &Stmt, node: &LetStmt) -> Result<Stmt> {
        let value = self.expr(&node.value)?;
        if as_int(&value).is_some() || value.is::<Var>() {
            return self.stmt(&substituted(&node.body, &node.var, &value)?);
        }
        let mark = self.analyzer.mark();
        self.analyzer.bind_value(&node.var, &value);
        let body = self.stmt(&node.body);
        self.analyzer.restore(mark);
        let body = body?;
        if is_nothing(&body) && !self.analyzer.has_effect(&value) {
            return Ok(body);
        }
        if value.ptr_eq(&node.value) && body.ptr_eq(&node.body) {
            return Ok(stmt.clone());
        }
        make::let_stmt(node.var.clone(), value, body)
    }

    /// Simplifies a block, using only the domains of its axes, because the meaning of a block does not depend
    /// on the enclosing loops.
    fn block(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let StmtKind::Block(node) = StmtKind::of(stmt) else { return Ok(stmt.clone()) };
        let mark = self.analyzer.mark();
        for axis in node.iter_vars.iter() {
            self.analyzer.bind(&axis.var, &axis.dom.min, &axis.dom.extent);
        }
        let result = self.below_stmt(stmt);
        self.analyzer.restore(mark);
        result
    }
}

/// Returns the statement with the variable `var` replaced by `value`.
pub(crate) fn substituted(stmt: &Stmt, var: &Ref<Var>, value: &Expr) -> Result<Stmt> {
    Substitute(|other: &Ref<Var>| other.ptr_eq(var).then(|| value.clone())).stmt(stmt)
}
