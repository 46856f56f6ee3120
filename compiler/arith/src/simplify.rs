//! Simplification of expressions.

use anyfn::Result;
use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::visit::{Mutator, on_enough_stack};

use crate::Analyzer;

/// Names of functions that are known to have no side effects.
const PURE: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "fma",
    "fmod",
    "hypot",
    "log",
    "log10",
    "log1p",
    "log2",
    "nearbyint",
    "pow",
    "rint",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
];

impl Analyzer {
    pub(crate) fn simplify_here(&mut self, expr: &Expr) -> Result<Expr> {
        if let ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) = ExprKind::of(expr) {
            return Ok(expr.clone());
        }
        let address = expr.as_object().as_handle().addr();
        if let Some((_, simple)) = self.simplified.get(&address) {
            return Ok(simple.clone());
        }
        let simple = on_enough_stack(|| self.simplify_anew(expr))?;
        self.simplified.insert(address, (expr.clone(), simple.clone()));
        Ok(simple)
    }

    fn simplify_anew(&mut self, expr: &Expr) -> Result<Expr> {
        let dtype = expr.dtype;
        if dtype.lanes() != 1 {
            return self.simplify_below(expr);
        }
        if dtype.is_bool() {
            return self.simplify_condition(expr);
        }
        if !dtype.is_integer() || self.has_effect(expr) {
            return self.simplify_below(expr);
        }
        let sum = self.linear(expr);
        match self.emit(&sum, dtype) {
            Ok(new) if cost(&new) <= cost(expr) => Ok(if is_same(&new, expr) { expr.clone() } else { new }),
            _ => self.simplify_below(expr),
        }
    }

    /// Simplifies the operands of an expression.
    pub(crate) fn simplify_below(&mut self, expr: &Expr) -> Result<Expr> {
        struct Below<'a>(&'a mut Analyzer);
        impl Mutator for Below<'_> {
            fn expr(&mut self, expr: &Expr) -> Result<Expr> {
                self.0.simplify_here(expr)
            }
        }
        match ExprKind::of(expr) {
            ExprKind::Binary(op, node) => {
                let (a, b) = (self.simplify_here(&node.a)?, self.simplify_here(&node.b)?);
                if a.ptr_eq(&node.a) && b.ptr_eq(&node.b) {
                    return Ok(expr.clone());
                }
                // A division whose divisor simplifies to 0 is kept, since it may never be evaluated.
                Ok(ops::binary(op, a, b).unwrap_or_else(|_| expr.clone()))
            }
            ExprKind::Select(node) => {
                let condition = self.simplify_here(&node.condition)?;
                if let ExprKind::IntImm(known) = ExprKind::of(&condition) {
                    return self.simplify_here(if known.value == 0 {
                        &node.false_value
                    } else {
                        &node.true_value
                    });
                }
                Below(self).below_expr(expr)
            }
            ExprKind::Cast(node) => {
                let value = self.simplify_here(&node.value)?;
                if value.ptr_eq(&node.value) { Ok(expr.clone()) } else { ops::cast(value, expr.dtype) }
            }
            _ => Below(self).below_expr(expr),
        }
    }

    /// Returns true if evaluating an expression may have side effects, because the expression calls
    /// a function that is not known to be pure. Reductions and nodes of foreign types are assumed
    /// to have side effects.
    pub fn has_effect(&mut self, expr: &Expr) -> bool {
        match ExprKind::of(expr) {
            ExprKind::Var(_) | ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) => {
                return false;
            }
            _ => {}
        }
        let address = expr.as_object().as_handle().addr();
        if let Some((_, known)) = self.effects.get(&address) {
            return *known;
        }
        let found = on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Cast(node) => self.has_effect(&node.value),
            ExprKind::Binary(_, node) => self.has_effect(&node.a) || self.has_effect(&node.b),
            ExprKind::Not(node) => self.has_effect(&node.a),
            ExprKind::Select(node) => {
                [&node.condition, &node.true_value, &node.false_value].iter().any(|part| self.has_effect(part))
            }
            ExprKind::BufferLoad(node) => node.indices.iter().any(|index| self.has_effect(&index)),
            ExprKind::ProducerLoad(node) => node.indices.iter().any(|index| self.has_effect(&index)),
            ExprKind::Ramp(node) => self.has_effect(&node.start) || self.has_effect(&node.stride),
            ExprKind::Broadcast(node) => self.has_effect(&node.value),
            ExprKind::Let(node) => self.has_effect(&node.value) || self.has_effect(&node.body),
            ExprKind::Call(node) => {
                !PURE.contains(&&*node.op)
                    || node
                        .args
                        .iter()
                        .any(|arg| Expr::try_from_object(arg).is_ok_and(|arg| self.has_effect(&arg)))
            }
            _ => true,
        });
        self.effects.insert(address, (expr.clone(), found));
        found
    }
}

/// Returns `new`, unless it is more expensive than `old` or has the same structure. Both
/// expressions must have the same value.
pub(crate) fn cheaper(old: &Expr, new: Expr) -> Expr {
    if cost(&new) > cost(old) || is_same(&new, old) { old.clone() } else { new }
}

/// Maximum estimated cost of an expression. A more expensive expression is assigned this cost.
const LARGE: u32 = 4096;

/// Estimates the cost of evaluating an expression.
fn cost(expr: &Expr) -> u32 {
    let mut left = LARGE;
    spend(expr, &mut left);
    LARGE - left
}

fn spend(expr: &Expr, left: &mut u32) {
    if *left == 0 {
        return;
    }
    on_enough_stack(|| {
        let mut take = |price: u32, parts: &[&Expr]| {
            *left = left.saturating_sub(price);
            parts.iter().for_each(|part| spend(part, left));
        };
        match ExprKind::of(expr) {
            ExprKind::Binary(op, node) => {
                let price = match op {
                    BinaryOp::Add | BinaryOp::Sub => 2,
                    BinaryOp::Mul => 3,
                    BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod => 10,
                    _ => 2,
                };
                take(price, &[&node.a, &node.b]);
            }
            ExprKind::Cast(node) => take(1, &[&node.value]),
            ExprKind::Not(node) => take(1, &[&node.a]),
            ExprKind::Select(node) => take(2, &[&node.condition, &node.true_value, &node.false_value]),
            ExprKind::BufferLoad(node) => {
                take(4, &[]);
                node.indices.iter().for_each(|index| spend(&index, left));
            }
            ExprKind::Var(_) => take(1, &[]),
            ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_) => {}
            _ => take(8, &[]),
        }
    });
}

/// Returns true if two expressions have the same structure. May return false for rare kinds of nodes and for large
/// expressions.
fn is_same(a: &Expr, b: &Expr) -> bool {
    is_same_within(a, b, &mut (1 << 17))
}

fn is_same_within(a: &Expr, b: &Expr, left: &mut u32) -> bool {
    if a.ptr_eq(b) {
        return true;
    }
    *left = left.saturating_sub(1);
    if *left == 0 || a.dtype != b.dtype {
        return false;
    }
    let mut is_same = |a: &Expr, b: &Expr| is_same_within(a, b, left);
    on_enough_stack(|| match (ExprKind::of(a), ExprKind::of(b)) {
        (ExprKind::IntImm(x), ExprKind::IntImm(y)) => x.value == y.value,
        (ExprKind::Binary(op, x), ExprKind::Binary(other, y)) => {
            op == other && is_same(&x.a, &y.a) && is_same(&x.b, &y.b)
        }
        (ExprKind::Cast(x), ExprKind::Cast(y)) => is_same(&x.value, &y.value),
        (ExprKind::Not(x), ExprKind::Not(y)) => is_same(&x.a, &y.a),
        (ExprKind::Select(x), ExprKind::Select(y)) => {
            is_same(&x.condition, &y.condition)
                && is_same(&x.true_value, &y.true_value)
                && is_same(&x.false_value, &y.false_value)
        }
        (ExprKind::BufferLoad(x), ExprKind::BufferLoad(y)) => {
            x.buffer.ptr_eq(&y.buffer) && x.indices.iter().zip(y.indices.iter()).all(|(x, y)| is_same(&x, &y))
        }
        _ => false,
    })
}
