//! Loops that are written out or become instructions on vectors.

use anyfn::{Array, Ref, Result};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{ExprKind, StmtKind, make};

/// Bytes of the largest vector that is made; code generators split what is larger than the machine's.
const LARGEST_VECTOR: u32 = 512;

/// The function with unrolled loops written out.
///
/// # Errors
/// `MemoryError` when memory is short.
pub fn unroll(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    struct Unroll;
    impl Mutator for Unroll {
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let stmt = self.below_stmt(stmt)?;
            let StmtKind::For(node) = StmtKind::of(&stmt) else { return Ok(stmt) };
            let (ForKind::Unrolled, Some(extent)) = (node.kind, as_int(&node.extent)) else { return Ok(stmt) };
            let mut bodies = Vec::new();
            for number in 0..extent {
                let value = ops::add(node.min.clone(), ops::int(number, node.min.dtype)?)?;
                bodies.push(simplified(&node.body, &node.loop_var, &value)?);
            }
            Ok(make::seq(bodies))
        }
    }
    changed(func, Unroll.stmt(&func.body)?)
}

/// The function with vectorized loops as statements on vectors. A loop that has no such form stays one, for the compiler of
/// the code to vectorize.
///
/// # Errors
/// `MemoryError` when memory is short.
pub fn vectorize(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    struct Vectorize;
    impl Mutator for Vectorize {
        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            if let StmtKind::For(node) = StmtKind::of(stmt)
                && node.kind == ForKind::Vectorized
            {
                return Ok(vectors(node)?.unwrap_or_else(|| stmt.clone()));
            }
            self.below_stmt(stmt)
        }
    }
    changed(func, Vectorize.stmt(&func.body)?)
}

fn changed(func: &Ref<PrimFunc>, body: Stmt) -> Result<Ref<PrimFunc>> {
    if body.ptr_eq(&func.body) {
        return Ok(func.clone());
    }
    let (params, buffer_map, attrs) = (func.params.clone(), func.buffer_map.clone(), func.attrs.clone());
    Ok(Ref::new(PrimFunc { params, buffer_map, body, attrs }))
}

/// The statement with a variable replaced, and what becomes constant folded.
fn simplified(stmt: &Stmt, var: &Ref<Var>, value: &Expr) -> Result<Stmt> {
    struct Fold<'a>(&'a Ref<Var>, &'a Expr);
    impl Mutator for Fold<'_> {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            match ExprKind::of(expr) {
                ExprKind::Var(var) => Ok(if var.ptr_eq(self.0) { self.1.clone() } else { expr.clone() }),
                ExprKind::Binary(op, node) => {
                    let (a, b) = (self.expr(&node.a)?, self.expr(&node.b)?);
                    if a.ptr_eq(&node.a) && b.ptr_eq(&node.b) {
                        Ok(expr.clone())
                    } else {
                        ops::binary(op, a, b)
                    }
                }
                _ => self.below_expr(expr),
            }
        }
    }
    Fold(var, value).stmt(stmt)
}

/// The body of a loop on vectors; `None` if it has no such form.
fn vectors(node: &For) -> Result<Option<Stmt>> {
    let lanes = as_int(&node.extent).and_then(|extent| u16::try_from(extent).ok());
    let Some(lanes) = lanes.filter(|lanes| lanes.is_power_of_two() && *lanes > 1) else { return Ok(None) };
    let ramp = ops::ramp(node.min.clone(), ops::int(1, node.loop_var.dtype)?, lanes)?;
    let mut widen = Widen { var: &node.loop_var, ramp, lanes };
    widen.stmt(&node.body)
}

struct Widen<'a> {
    var: &'a Ref<Var>,
    ramp: Expr,
    lanes: u16,
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
                // One element for all lanes is no statement on vectors.
                if indices.last()?.dtype.lanes() != self.lanes {
                    return Ok(None);
                }
                let value = if value.dtype.lanes() == 1 { ops::splat(value, self.lanes)? } else { value };
                Some(make::store(&node.buffer, value, indices)?)
            }
            _ => None,
        })
    }

    fn indices(&mut self, indices: &Array<Expr>) -> Result<Option<Array<Expr>>> {
        let mut new = Vec::new();
        for index in indices.iter() {
            let Some(index) = self.expr(&index)? else { return Ok(None) };
            new.push(index);
        }
        // Rows of vectors that lie next to each other, not vectors across rows.
        let last = new.len().saturating_sub(1);
        if new.iter().take(last).any(|index| index.dtype.lanes() != 1) {
            return Ok(None);
        }
        let fits = new.last().is_none_or(|index| match ExprKind::of(index) {
            ExprKind::Ramp(node) => as_int(&node.stride) == Some(1),
            _ => index.dtype.lanes() == 1,
        });
        Ok(fits.then(|| new.into_iter().collect()))
    }

    fn expr(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        let bytes = u32::from(expr.dtype.0.bits).div_ceil(8) * u32::from(self.lanes);
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(var) if var.ptr_eq(self.var) => Some(self.ramp.clone()),
            ExprKind::Var(_) | ExprKind::IntImm(_) | ExprKind::FloatImm(_) => Some(expr.clone()),
            ExprKind::Binary(op, node) => {
                let (Some(a), Some(b)) = (self.expr(&node.a)?, self.expr(&node.b)?) else { return Ok(None) };
                let is_vector = a.dtype.lanes() != 1 || b.dtype.lanes() != 1;
                let is_supported =
                    !op.is_comparison() && !op.is_logical() && op.precedence() != 0 || is_min_max(op);
                if is_vector && !is_supported {
                    return Ok(None);
                }
                Some(ops::binary(op, a, b)?)
            }
            ExprKind::Cast(node) => match self.expr(&node.value)? {
                Some(value) => {
                    let dtype = expr.dtype.with_lanes(value.dtype.lanes());
                    Some(ops::cast(value, dtype)?)
                }
                None => None,
            },
            ExprKind::BufferLoad(node) => match self.indices(&node.indices)? {
                Some(indices) if bytes <= LARGEST_VECTOR => Some(ops::load(&node.buffer, indices)?),
                _ => None,
            },
            _ => None,
        })
    }
}

fn is_min_max(op: anyfn_ir::expr::BinaryOp) -> bool {
    use anyfn_ir::expr::BinaryOp;
    matches!(op, BinaryOp::Min | BinaryOp::Max)
}
