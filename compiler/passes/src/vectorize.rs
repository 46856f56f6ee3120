//! Replaces vectorized loops by statements on vectors.

use std::collections::HashMap;

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_arith::Analyzer;
use anyfn_ir::analysis::uses_var;
use anyfn_ir::expr::{BinaryOp, BufferLoad, Call, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Visitor};
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::loops::changed;

/// Maximum length in bytes of a generated vector. Code generators split vectors that exceed the vector length of the
/// target.
const LONGEST: i64 = 512;

/// Replaces vectorized loops by statements on vectors.
///
/// A loop that cannot be expressed by statements on vectors remains a loop, which the C compiler may
/// vectorize.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn vectorize(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    changed(func, Vectorize { analyzer: Analyzer::new() }.stmt(&func.body)?)
}

struct Vectorize {
    /// Analyzer that knows the enclosing loops and conditions.
    analyzer: Analyzer,
}

impl Mutator for Vectorize {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let mark = self.analyzer.mark();
        let result = match StmtKind::of(stmt) {
            StmtKind::For(node) if node.kind == ForKind::Vectorized => {
                Ok(self.vectors(node)?.unwrap_or_else(|| as_loop(stmt, node)))
            }
            StmtKind::For(node) => {
                self.analyzer.bind(&node.loop_var, &node.min, &node.extent);
                self.below_stmt(stmt)
            }
            StmtKind::IfThenElse(node) if node.else_case.is_none() => {
                self.analyzer.assume(&node.condition);
                self.below_stmt(stmt)
            }
            _ => self.below_stmt(stmt),
        };
        self.analyzer.restore(mark);
        result
    }
}

impl Vectorize {
    /// Returns the vector statements that replace a loop, or `None` if the loop cannot be vectorized.
    fn vectors(&mut self, node: &For) -> Result<Option<Stmt>> {
        let bytes = longest_type(&node.body).max(1);
        match as_int(&node.extent).and_then(|extent| u16::try_from(extent).ok()) {
            Some(lanes) if (2..=LONGEST / bytes).contains(&lanes.into()) => {
                self.widened(node, node.min.clone(), lanes)
            }
            _ => Ok(None),
        }
    }

    /// Returns the body of a loop as statements on vectors, for `lanes` consecutive values of the loop
    /// variable that begin with `start`. Returns `None` if the body cannot be expressed by such statements.
    fn widened(&mut self, node: &For, start: Expr, lanes: u16) -> Result<Option<Stmt>> {
        let ramp = ops::ramp(start, ops::int(1, node.loop_var.dtype)?, lanes)?;
        let vars = HashMap::from([(address(&node.loop_var), ramp)]);
        Widen { vars, lanes, analyzer: &mut self.analyzer, is_guarded: false }.stmt(&node.body)
    }
}

/// Returns the loop that remains if a loop cannot be vectorized. The result is a serial loop if the
/// iterations write the same element, and the unchanged loop otherwise.
fn as_loop(stmt: &Stmt, node: &For) -> Stmt {
    struct Same<'a>(&'a Ref<Var>, bool);
    impl Visitor for Same<'_> {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::BufferStore(store) = StmtKind::of(stmt) {
                self.1 |= !store.indices.iter().any(|index| uses_var(&index, self.0));
            }
            self.below_stmt(stmt);
        }
    }
    let mut same = Same(&node.loop_var, false);
    same.stmt(&node.body);
    if same.1 {
        make::for_loop(node.loop_var.clone(), node.min.clone(), node.extent.clone(), node.body.clone())
    } else {
        stmt.clone()
    }
}

/// Returns the size in bytes of the largest data type of the values that a statement computes. Booleans and indices are
/// ignored.
fn longest_type(stmt: &Stmt) -> i64 {
    struct Longest(i64);
    impl Visitor for Longest {
        fn expr(&mut self, expr: &Expr) {
            if !expr.dtype.is_bool() {
                self.0 = self.0.max(i64::from(expr.dtype.0.bits.div_ceil(8)));
            }
            if !matches!(ExprKind::of(expr), ExprKind::BufferLoad(_)) {
                self.below_expr(expr);
            }
        }
        fn stmt(&mut self, stmt: &Stmt) {
            match StmtKind::of(stmt) {
                StmtKind::BufferStore(node) => self.expr(&node.value),
                _ => self.below_stmt(stmt),
            }
        }
    }
    let mut longest = Longest(0);
    longest.stmt(stmt);
    longest.0
}

fn address(var: &Ref<Var>) -> usize {
    var.as_object().as_handle().addr()
}

struct Widen<'a> {
    /// Vectors that replace variables, by the address of the variable.
    vars: HashMap<usize, Expr>,
    lanes: u16,
    analyzer: &'a mut Analyzer,
    /// True while generating a value that only some lanes use. In the lanes that do not use the
    /// value, its loads may be out of bounds.
    is_guarded: bool,
}

impl Widen<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Option<Stmt>> {
        Ok(match StmtKind::of(stmt) {
            StmtKind::SeqStmt(node) => {
                let mut seq = Vec::new();
                for stmt in node.seq.iter() {
                    let Some(stmt) = self.stmt(&stmt)? else { return Ok(None) };
                    seq.push(stmt);
                }
                Some(make::seq(seq))
            }
            StmtKind::BufferStore(node) => {
                let (Some(value), Some(indices)) = (self.expr(&node.value)?, self.indices(&node.indices)?)
                else {
                    return Ok(None);
                };
                // A store of all lanes to one element has no vector form, nor does a store to elements that are
                // not contiguous.
                if !indices.last().is_ok_and(|index| self.is_contiguous(&index)) || is_far(&value) {
                    return Ok(None);
                }
                let value = self.splat(value)?;
                Some(make::store(&node.buffer, value, indices)?)
            }
            StmtKind::LetStmt(node) => {
                let Some(value) = self.expr(&node.value)? else { return Ok(None) };
                let var = if value.dtype == node.var.dtype {
                    node.var.clone()
                } else {
                    let var = ops::var(&node.var.name, value.dtype);
                    self.vars.insert(address(&node.var), var.clone().into_parent());
                    var
                };
                match self.stmt(&node.body)? {
                    Some(body) => Some(make::let_stmt(var, value, body)?),
                    None => None,
                }
            }
            // The trip count is the same in all lanes.
            StmtKind::For(node) if matches!(node.kind, ForKind::Serial | ForKind::Unrolled) => {
                let (Some(min), Some(extent)) = (self.one(&node.min)?, self.one(&node.extent)?) else {
                    return Ok(None);
                };
                let mark = self.analyzer.mark();
                self.analyzer.bind(&node.loop_var, &min, &extent);
                let body = self.stmt(&node.body)?;
                self.analyzer.restore(mark);
                body.map(|body| make::for_of_kind(node.loop_var.clone(), min, extent, node.kind, body))
            }
            StmtKind::IfThenElse(node) => {
                let Some(condition) = self.one(&node.condition)? else { return Ok(None) };
                let mark = self.analyzer.mark();
                self.analyzer.assume(&condition);
                let then_case = self.stmt(&node.then_case)?;
                self.analyzer.restore(mark);
                let else_case = match &node.else_case {
                    Some(stmt) => match self.stmt(stmt)? {
                        None => return Ok(None),
                        some => some,
                    },
                    None => None,
                };
                match then_case {
                    Some(then_case) => Some(make::if_then(condition, then_case, else_case)?),
                    None => None,
                }
            }
            _ => None,
        })
    }

    /// Returns the transformed expression if it has the same value in all lanes, and `None`
    /// otherwise.
    fn one(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        Ok(self.expr(expr)?.filter(|expr| expr.dtype.lanes() == 1))
    }

    fn is_contiguous(&self, index: &Expr) -> bool {
        match ExprKind::of(index) {
            ExprKind::Ramp(node) => as_int(&node.stride) == Some(1),
            _ => false,
        }
    }

    /// Returns a vector with `lanes` lanes: the value itself, or a broadcast of a scalar.
    fn splat(&self, value: Expr) -> Result<Expr> {
        if value.dtype.lanes() == 1 { ops::splat(value, self.lanes) } else { Ok(value) }
    }

    fn indices(&mut self, indices: &Array<Expr>) -> Result<Option<Array<Expr>>> {
        let mut new = Vec::new();
        for index in indices.iter() {
            let Some(index) = self.expr(&index)? else { return Ok(None) };
            new.push(index);
        }
        // All lanes must be in the last dimension.
        let last = new.len().saturating_sub(1);
        if new.iter().take(last).any(|index| index.dtype.lanes() != 1) {
            return Ok(None);
        }
        let fits = new.last().is_none_or(|index| match ExprKind::of(index) {
            ExprKind::Ramp(node) => as_int(&node.stride).is_some(),
            _ => index.dtype.lanes() == 1,
        });
        Ok(fits.then(|| new.into_iter().collect()))
    }

    fn load(&mut self, node: &BufferLoad) -> Result<Option<Expr>> {
        let Some(indices) = self.indices(&node.indices)? else { return Ok(None) };
        let load = ops::load(&node.buffer, indices.clone())?;
        if !self.is_guarded {
            return Ok(Some(load));
        }
        // The element must be in bounds even in lanes that do not use it.
        for (index, extent) in indices.iter().zip(node.buffer.shape.iter()) {
            let (first, last) = match ExprKind::of(&index) {
                ExprKind::Ramp(ramp) => {
                    let length =
                        ops::mul(ramp.stride.clone(), ops::int(i64::from(ramp.lanes) - 1, ramp.stride.dtype)?)?;
                    (ramp.start.clone(), ops::add(ramp.start.clone(), length)?)
                }
                _ => (index.clone(), index.clone()),
            };
            for end in [first, last] {
                let zero = ops::int(0, end.dtype)?;
                let is_inside = ops::and(
                    ops::binary(BinaryOp::Ge, end.clone(), zero)?,
                    ops::binary(BinaryOp::Lt, end, extent.clone())?,
                )?;
                if !self.analyzer.can_prove(&is_inside) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(load))
    }

    fn expr(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        anyfn_ir::visit::on_enough_stack(|| self.expr_here(expr))
    }

    fn expr_here(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(var) => Some(self.vars.get(&address(var)).unwrap_or(expr).clone()),
            ExprKind::IntImm(_) | ExprKind::FloatImm(_) => Some(expr.clone()),
            ExprKind::Binary(op, node) => {
                let a = self.expr(&node.a)?;
                // The second operand of a logical operation is not evaluated in lanes that the first one
                // decides, so its loads may be out of bounds there.
                let outer = self.is_guarded;
                self.is_guarded |= op.is_logical();
                let b = self.expr(&node.b)?;
                self.is_guarded = outer;
                let (Some(mut a), Some(mut b)) = (a, b) else { return Ok(None) };
                let is_vector = a.dtype.lanes() != 1 || b.dtype.lanes() != 1;
                let is_division =
                    matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod);
                // No processor has an instruction for integer division of vectors.
                if is_vector && is_division && !a.dtype.is_float() {
                    return Ok(None);
                }
                if a.ptr_eq(&node.a) && b.ptr_eq(&node.b) {
                    return Ok(Some(expr.clone()));
                }
                if a.dtype.lanes() != b.dtype.lanes() {
                    (a, b) = (self.splat(a)?, self.splat(b)?);
                }
                Some(ops::rebuilt(op, a, b)?)
            }
            ExprKind::Not(node) => match self.expr(&node.a)? {
                Some(a) => Some(ops::not(a)?),
                None => None,
            },
            ExprKind::Cast(node) => match self.expr(&node.value)? {
                Some(value) => {
                    let dtype = expr.dtype.with_lanes(value.dtype.lanes());
                    Some(ops::cast(value, dtype)?)
                }
                None => None,
            },
            ExprKind::Select(node) => {
                let Some(condition) = self.expr(&node.condition)? else { return Ok(None) };
                let is_guarded = self.is_guarded || condition.dtype.lanes() != 1;
                let outer = std::mem::replace(&mut self.is_guarded, is_guarded);
                let (a, b) = (self.expr(&node.true_value)?, self.expr(&node.false_value)?);
                self.is_guarded = outer;
                let (Some(mut a), Some(mut b)) = (a, b) else { return Ok(None) };
                if condition.dtype.lanes() != 1 || a.dtype.lanes() != b.dtype.lanes() {
                    (a, b) = (self.splat(a)?, self.splat(b)?);
                }
                Some(ops::select(condition, a, b)?)
            }
            ExprKind::BufferLoad(node) => self.load(node)?,
            ExprKind::Call(node) => self.call(expr, node)?,
            _ => None,
        })
    }

    fn call(&mut self, expr: &Expr, node: &Call) -> Result<Option<Expr>> {
        if !ops::MATH.contains(&&*node.op) {
            return Ok(None);
        }
        let mut args = Vec::new();
        for arg in node.args.iter() {
            let Ok(arg) = Expr::try_from_object(arg) else {
                bail!("TypeError", "the arguments of `{}` must be numbers", node.op);
            };
            let Some(arg) = self.expr(&arg)? else { return Ok(None) };
            args.push(arg);
        }
        if args.iter().all(|arg| arg.dtype.lanes() == 1) {
            return Ok(Some(ops::call(expr.dtype, &node.op, args.into_iter().map(Ref::into_object))));
        }
        let mut wide = Vec::new();
        for arg in args {
            wide.push(self.splat(arg)?.into_object());
        }
        Ok(Some(ops::call(DType::with_lanes(&expr.dtype, self.lanes), &node.op, wide)))
    }
}

/// Returns true if a value is a load of elements that are not contiguous in memory. For a copy of such
/// elements, C compilers generate better code from a scalar loop than from a vector statement.
fn is_far(value: &Expr) -> bool {
    match ExprKind::of(value) {
        ExprKind::BufferLoad(node) => node.indices.last().is_ok_and(
            |index| matches!(ExprKind::of(&index), ExprKind::Ramp(ramp) if as_int(&ramp.stride) != Some(1)),
        ),
        _ => false,
    }
}
