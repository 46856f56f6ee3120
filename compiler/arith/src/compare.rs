//! Analysis of conditions: proves and refutes them, records the facts that they imply, and simplifies them.

use anyfn::Result;
use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::visit::on_enough_stack;

use crate::atom::Key;
use crate::linear::{Id, Linear, gcd};
use crate::{Analyzer, Undo};

impl Analyzer {
    /// Returns `Some(true)` if a condition is proved, `Some(false)` if it is refuted, and `None`
    /// otherwise.
    pub(crate) fn decide(&mut self, condition: &Expr) -> Option<bool> {
        if condition.dtype.lanes() != 1 || !condition.dtype.is_bool() {
            return None;
        }
        if let ExprKind::IntImm(node) = ExprKind::of(condition) {
            return Some(node.value != 0);
        }
        if self.has_effect(condition) {
            return None;
        }
        let is_made_of_others = match ExprKind::of(condition) {
            ExprKind::Not(_) => true,
            ExprKind::Binary(op, _) => op.is_logical(),
            _ => false,
        };
        if !is_made_of_others {
            return on_enough_stack(|| self.decide_here(condition));
        }
        let address = condition.as_object().as_handle().addr();
        if let Some((_, known)) = self.decided.get(&address) {
            return *known;
        }
        let found = on_enough_stack(|| self.decide_here(condition));
        self.decided.insert(address, (condition.clone(), found));
        found
    }

    fn decide_here(&mut self, condition: &Expr) -> Option<bool> {
        let known = match ExprKind::of(condition) {
            ExprKind::Not(node) => self.decide(&node.a).map(|holds| !holds),
            ExprKind::Binary(BinaryOp::And, node) => match (self.decide(&node.a), self.decide(&node.b)) {
                (Some(true), Some(true)) => Some(true),
                (Some(false), _) | (_, Some(false)) => Some(false),
                _ => None,
            },
            ExprKind::Binary(BinaryOp::Or, node) => match (self.decide(&node.a), self.decide(&node.b)) {
                (Some(false), Some(false)) => Some(false),
                (Some(true), _) | (_, Some(true)) => Some(true),
                _ => None,
            },
            ExprKind::Binary(op, node) if op.is_comparison() && is_index(&node.a) => {
                let (a, b) = (self.linear(&node.a), self.linear(&node.b));
                self.compare(op, &a, &b)
            }
            _ => None,
        };
        known.or_else(|| self.is_known(condition))
    }

    /// Returns the value that a condition is assumed to have, or `None` if no assumption about the
    /// condition is recorded. Only assumptions about Boolean variables and their negations are
    /// recorded.
    fn is_known(&self, condition: &Expr) -> Option<bool> {
        for truth in &self.truths {
            if truth.ptr_eq(condition) {
                return Some(true);
            }
            if let ExprKind::Not(node) = ExprKind::of(truth)
                && node.a.ptr_eq(condition)
            {
                return Some(false);
            }
        }
        None
    }

    fn compare(&mut self, op: BinaryOp, a: &Linear, b: &Linear) -> Option<bool> {
        let gap = b.minus(a)?;
        let gap = self.tidied(gap);
        let back = gap.times(-1)?;
        // Each comparison of `a` and `b` is expressed as a sum that is not negative.
        let at_most = |this: &mut Self| this.is_at_least_0(&gap);
        let less = |this: &mut Self| gap.plus_constant(-1).is_some_and(|sum| this.is_at_least_0(&sum));
        let at_least = |this: &mut Self| this.is_at_least_0(&back);
        let more = |this: &mut Self| back.plus_constant(-1).is_some_and(|sum| this.is_at_least_0(&sum));
        match op {
            BinaryOp::Le => first_of(at_most(self), || more(self)),
            BinaryOp::Lt => first_of(less(self), || at_least(self)),
            BinaryOp::Ge => first_of(at_least(self), || less(self)),
            BinaryOp::Gt => first_of(more(self), || at_most(self)),
            BinaryOp::Eq | BinaryOp::Ne => {
                let (step, rest) = self.modular_of(&gap);
                let differs = if step == 0 { rest != 0 } else { rest != 0 || less(self) || more(self) };
                let is_equal = !differs && at_most(self) && at_least(self);
                let known = if differs { Some(false) } else { is_equal.then_some(true) };
                known.map(|equal| equal == (op == BinaryOp::Eq))
            }
            _ => None,
        }
    }

    /// Records the facts that follow if the condition is assumed to have the value `holds`.
    pub(crate) fn assume_here(&mut self, condition: &Expr, holds: bool) {
        let address = condition.as_object().as_handle().addr();
        if self.has_effect(condition) || condition.dtype.lanes() != 1 || !self.assumed.insert((address, holds))
        {
            return;
        }
        on_enough_stack(|| match ExprKind::of(condition) {
            ExprKind::Not(node) => self.assume_here(&node.a, !holds),
            ExprKind::Binary(BinaryOp::And, node) if holds => {
                self.assume_here(&node.a, true);
                self.assume_here(&node.b, true);
            }
            ExprKind::Binary(BinaryOp::Or, node) if !holds => {
                self.assume_here(&node.a, false);
                self.assume_here(&node.b, false);
            }
            ExprKind::Binary(op, node) if op.is_comparison() && is_index(&node.a) => {
                let (a, b) = (self.linear(&node.a), self.linear(&node.b));
                let op = if holds { op } else { opposite(op) };
                let (Some(up), Some(down)) = (b.minus(&a), a.minus(&b)) else { return };
                match op {
                    BinaryOp::Le => self.fact(Some(up)),
                    BinaryOp::Lt => self.fact(up.plus_constant(-1)),
                    BinaryOp::Ge => self.fact(Some(down)),
                    BinaryOp::Gt => self.fact(down.plus_constant(-1)),
                    BinaryOp::Eq => {
                        self.fact(Some(up));
                        self.fact(Some(down));
                    }
                    _ => {}
                }
            }
            ExprKind::Var(_) => {
                let truth = if holds { Ok(condition.clone()) } else { ops::not(condition.clone()) };
                if let Ok(truth) = truth {
                    self.truths.push(truth);
                    self.undo.push(Undo::Truth);
                }
            }
            _ => {}
        });
    }

    /// Records that a sum is not negative. Does nothing if `sum` is `None`, or if the sum depends on memory.
    pub(crate) fn fact(&mut self, sum: Option<Linear>) {
        // Memory may change before the next query, so facts about its content are not recorded.
        let Some(sum) = sum.filter(|sum| !sum.is_constant() && !self.is_data(sum)) else { return };
        if let [(id, factor)] = sum.terms[..]
            && matches!(self.key(id), Some(Key::Var(_)))
        {
            self.narrow(id, factor, sum.base);
        }
        // If a product is positive and none of its factors is negative, all of them are positive.
        if let [(id, 1..)] = sum.terms[..]
            && sum.base < 0
            && let Some(Key::Product(ids)) = self.key(id).cloned()
            && ids.iter().all(|id| self.bound_of_atom(*id).min >= 0)
        {
            for id in ids {
                self.fact(Linear::atom(id).plus_constant(-1));
            }
        }
        self.facts.push(sum);
        self.undo.push(Undo::Fact);
    }

    /// Narrows the bound of a variable, given that `factor * var + base` is not negative.
    fn narrow(&mut self, id: Id, factor: i64, base: i64) {
        let own = Linear::atom(id);
        let bound = self.bound_of_atom(id);
        let other = if factor > 0 {
            crate::Bound { min: base.div_euclid(factor).saturating_neg(), max: bound.max }
        } else {
            let Some(size) = factor.checked_neg() else { return };
            crate::Bound { min: bound.min, max: base.div_euclid(size) }
        };
        let old = self.domains.get(&id).cloned();
        let (min, max) = old.map_or((own.clone(), own), |domain| (domain.min, domain.max));
        self.set_domain(id, crate::Domain { min, max, bound: bound.intersect(other) });
    }

    /// Simplifies a condition.
    pub(crate) fn simplify_condition(&mut self, condition: &Expr) -> Result<Expr> {
        if let Some(holds) = self.decide(condition) {
            return Ok(ops::bool(holds));
        }
        match ExprKind::of(condition) {
            ExprKind::Not(node) => {
                let a = self.simplify_here(&node.a)?;
                if a.ptr_eq(&node.a) { Ok(condition.clone()) } else { ops::not(a) }
            }
            ExprKind::Binary(op, node) if op.is_logical() => {
                let (a, b) = (self.simplify_here(&node.a)?, self.simplify_here(&node.b)?);
                if a.ptr_eq(&node.a) && b.ptr_eq(&node.b) {
                    Ok(condition.clone())
                } else {
                    ops::binary(op, a, b)
                }
            }
            ExprKind::Binary(op, node)
                if op.is_comparison() && is_index(&node.a) && !self.has_effect(condition) =>
            {
                let (a, b) = (self.linear(&node.a), self.linear(&node.b));
                let moved = a.minus(&b).map(|gap| self.tidied(gap)).and_then(|gap| sides(op, &gap));
                let dtype = node.a.dtype;
                if let Some((left, right)) = moved
                    && self.fits(&left, dtype)
                    && self.fits(&right, dtype)
                    && let (Ok(left), Ok(right)) = (self.emit(&left, dtype), self.emit(&right, dtype))
                {
                    let new = ops::binary(op, left, right)?;
                    return Ok(crate::simplify::cheaper(condition, new));
                }
                self.simplify_below(condition)
            }
            _ => self.simplify_below(condition),
        }
    }
}

/// Rewrites a comparison of the sum `gap` with 0 as a comparison of two sums: for example,
/// `a - b < 0` becomes `a < b`. Terms with negative factors move to the right-hand side. Returns
/// `None` if no such comparison is found.
fn sides(op: BinaryOp, gap: &Linear) -> Option<(Linear, Linear)> {
    let common = gap.terms.iter().fold(0, |common, term| gcd(common, term.1));
    let mut gap = gap.clone();
    if common > 1 {
        gap.terms.iter_mut().for_each(|term| term.1 /= common);
        gap.base = match op {
            // `common * x + base < 0` holds if `x < -base / common`, rounded up. The other comparisons are similar.
            BinaryOp::Lt | BinaryOp::Ge => gap.base.div_euclid(common),
            BinaryOp::Le | BinaryOp::Gt => -(gap.base.checked_neg()?.div_euclid(common)),
            _ if gap.base % common == 0 => gap.base / common,
            _ => return None,
        };
    }
    let (mut left, mut right) = (Linear::constant(0), Linear::constant(0));
    for (id, factor) in gap.terms {
        if factor > 0 {
            left.terms.push((id, factor));
        } else {
            right.terms.push((id, factor.checked_neg()?));
        }
    }
    // The constant goes to the right-hand side, unless the left-hand side would have no terms.
    if left.is_constant() {
        left.base = gap.base;
    } else {
        right.base = gap.base.checked_neg()?;
    }
    Some((left, right))
}

fn first_of(holds: bool, fails: impl FnOnce() -> bool) -> Option<bool> {
    if holds { Some(true) } else { fails().then_some(false) }
}

fn is_index(expr: &Expr) -> bool {
    expr.dtype.is_integer() && expr.dtype.lanes() == 1
}

fn opposite(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Ge,
        BinaryOp::Le => BinaryOp::Gt,
        BinaryOp::Gt => BinaryOp::Le,
        BinaryOp::Ge => BinaryOp::Lt,
        BinaryOp::Eq => BinaryOp::Ne,
        BinaryOp::Ne => BinaryOp::Eq,
        other => other,
    }
}
