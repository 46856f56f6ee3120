//! Ranges of expressions and accessed regions of buffers, while some variables vary and others are fixed.

use std::collections::{HashMap, HashSet};

use anyfn::{Array, DType, Ref};
use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, Expr, Range, Var};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::visit::{Visitor, on_enough_stack};

use crate::atom::{Key, stays};
use crate::linear::{Id, Linear};
use crate::{Analyzer, Bound};

/// Maximum number of atoms that are replaced by their limits in the search for a limit of a sum.
const MAX_STEPS: usize = 64;

/// Range of `extent` values that starts at `min`.
#[derive(Clone)]
pub struct Span {
    /// Smallest value of the range.
    pub min: Expr,
    /// Number of values in the range.
    pub extent: Expr,
}

/// Variables that vary in a query, while all other variables are fixed. Caches a flag for each atom, which is
/// true if the atom depends on one of the varying variables.
struct Over {
    vars: HashSet<Id>,
    known: HashMap<Id, bool>,
}

impl Analyzer {
    /// Returns lower and upper bounds of an integer expression. The variables `over` take all values of their
    /// domains, and all other variables are fixed. The bounds are expressions of the fixed variables, and may
    /// be wider than necessary. Returns `None` if no bounds are found.
    ///
    /// For a vector, the bounds cover all lanes.
    pub fn bounds(&mut self, expr: &Expr, over: &[Ref<Var>]) -> Option<(Expr, Expr)> {
        let dtype = expr.dtype.element();
        let mut over = self.over(over);
        let (low, high) = self.limits(expr, &mut over)?;
        Some((self.emit(&low, dtype).ok()?, self.emit(&high, dtype).ok()?))
    }

    /// Returns the region of a buffer that contains all accesses while the variables `over` vary and all
    /// other variables are fixed. The region consists of a span for each dimension. The extent of a span is a
    /// constant if the analyzer can prove its value. Returns `None` if the region is unknown or if there are
    /// no accesses.
    pub fn region(&mut self, accesses: &[Array<Expr>], over: &[Ref<Var>]) -> Option<Vec<Span>> {
        let parts: Vec<Vec<(Expr, Option<Expr>)>> =
            accesses.iter().map(|indices| indices.iter().map(|index| (index, None)).collect()).collect();
        self.hull(&parts, over)
    }

    /// Returns the region of a buffer that contains all accesses, as [`region`](Self::region) does. Each
    /// access is a range of indices in each dimension.
    pub fn region_of_ranges(&mut self, accesses: &[Array<Ref<Range>>], over: &[Ref<Var>]) -> Option<Vec<Span>> {
        let part = |range: Ref<Range>| (range.min.clone(), Some(range.extent.clone()));
        let parts: Vec<Vec<(Expr, Option<Expr>)>> =
            accesses.iter().map(|ranges| ranges.iter().map(part).collect()).collect();
        self.hull(&parts, over)
    }

    /// Decomposes an integer expression into a linear combination of the variables `vars` and an
    /// expression that does not depend on these variables. The factors are in the order of `vars`.
    /// Returns `None` if the expression does not have this form.
    pub fn linear_parts(&mut self, expr: &Expr, vars: &[Ref<Var>]) -> Option<(Vec<i64>, Expr)> {
        if !expr.dtype.is_integer() || expr.dtype.lanes() != 1 {
            return None;
        }
        let mut rest = self.linear(expr);
        let mut over = self.over(vars);
        let mut factors = Vec::with_capacity(vars.len());
        for var in vars {
            let id = self.var(var);
            let factor = rest.factor(id);
            factors.push(factor);
            rest = rest.plus_atom(id, factor.checked_neg()?)?;
        }
        if self.depends_sum(&rest, &mut over) {
            return None;
        }
        Some((factors, self.emit(&rest, expr.dtype).ok()?))
    }

    fn hull(&mut self, accesses: &[Vec<(Expr, Option<Expr>)>], over: &[Ref<Var>]) -> Option<Vec<Span>> {
        let mut over = self.over(over);
        let first = accesses.first()?;
        let mut spans = Vec::with_capacity(first.len());
        for (dimension, (index, _)) in first.iter().enumerate() {
            let dtype = index.dtype.element();
            let mut all: Option<(Linear, Linear)> = None;
            for access in accesses {
                let (index, extent) = access.get(dimension)?;
                let (low, mut high) = self.limits(index, &mut over)?;
                if let Some(extent) = extent {
                    let (_, extent) = self.limits(extent, &mut over)?;
                    high = high.plus(&extent, 1)?.plus_constant(-1)?;
                }
                all = Some(match all {
                    None => (low, high),
                    Some((lowest, highest)) => (
                        self.binary(BinaryOp::Min, &lowest, &low, dtype),
                        self.binary(BinaryOp::Max, &highest, &high, dtype),
                    ),
                });
            }
            let (low, high) = all?;
            let extent = high.minus(&low)?.plus_constant(1)?;
            let extent = self.tidied(extent);
            let (min, extent) = (self.emit(&low, dtype).ok()?, self.emit(&extent, dtype).ok()?);
            spans.push(Span { min, extent });
        }
        Some(spans)
    }

    /// Returns constant bounds that cover all lanes of a vector.
    pub(crate) fn bound_of_lanes(&mut self, expr: &Expr) -> Bound {
        let mut over = Over { vars: HashSet::new(), known: HashMap::new() };
        match self.limits(expr, &mut over) {
            Some((low, high)) => Bound { min: self.bound_of(&low).min, max: self.bound_of(&high).max },
            None => Bound::ANY,
        }
    }

    fn over(&mut self, vars: &[Ref<Var>]) -> Over {
        let vars = vars.iter().map(|var| self.var(var)).collect();
        Over { vars, known: HashMap::new() }
    }

    /// Returns the lower and the upper limit of an expression while the variables `over` vary.
    fn limits(&mut self, expr: &Expr, over: &mut Over) -> Option<(Linear, Linear)> {
        if !expr.dtype.is_integer() {
            return None;
        }
        match ExprKind::of(expr) {
            ExprKind::Ramp(node) => {
                let (low, high) = self.limits(&node.start, over)?;
                let (least, most) = self.limits(&node.stride, over)?;
                let last = i64::from(node.lanes) - 1;
                let zero = Linear::constant(0);
                let dtype = node.start.dtype;
                let down = self.binary(BinaryOp::Min, &zero, &least.times(last)?, dtype);
                let up = self.binary(BinaryOp::Max, &zero, &most.times(last)?, dtype);
                Some((low.plus(&down, 1)?, high.plus(&up, 1)?))
            }
            ExprKind::Broadcast(node) => self.limits(&node.value, over),
            _ if expr.dtype.lanes() != 1 => None,
            _ => {
                let (sum, dtype) = (self.linear(expr), expr.dtype);
                Some((self.limit_of(&sum, over, false, dtype)?, self.limit_of(&sum, over, true, dtype)?))
            }
        }
    }

    /// Returns the upper limit of a sum if `upper` is true, or else its lower limit. The limit is a sum of fixed
    /// variables.
    fn limit_of(&mut self, sum: &Linear, over: &mut Over, upper: bool, dtype: DType) -> Option<Linear> {
        let mut sum = sum.clone();
        for _ in 0..MAX_STEPS {
            // Innermost variables come first: their limits depend on the outer ones.
            let found = sum.terms.iter().rev().copied().find(|(id, _)| self.depends(*id, over));
            let Some((id, factor)) = found else { return Some(self.tidied(sum)) };
            let limit = on_enough_stack(|| self.limit_of_atom(id, over, upper == (factor > 0), dtype))?;
            sum = sum.replace(id, &limit)?;
        }
        None
    }

    fn limit_of_atom(&mut self, id: Id, over: &mut Over, upper: bool, dtype: DType) -> Option<Linear> {
        let numeric = |this: &mut Self| {
            let bound = this.bound_of_atom(id);
            let limit = if upper { bound.max } else { bound.min };
            (limit != Bound::POS_INF && limit != Bound::NEG_INF).then(|| Linear::constant(limit))
        };
        let own = self.atom(id)?.dtype;
        match self.key(id)?.clone() {
            Key::Var(_) => match self.domains.get(&id) {
                Some(domain) => {
                    let limit = if upper { &domain.max } else { &domain.min };
                    // An assumption may have made the constant bound tighter.
                    if limit.is_constant() || limit.factor(id) != 0 {
                        numeric(self)
                    } else {
                        Some(limit.clone())
                    }
                }
                None => numeric(self),
            },
            Key::FloorDiv(x, divisor) => {
                let limit = self.limit_of(&x, over, upper, own)?;
                self.floor_div(&limit, divisor, own)
            }
            Key::FloorMod(x, divisor) => {
                if let (Some(low), Some(high)) =
                    (self.limit_of(&x, over, false, own), self.limit_of(&x, over, true, own))
                    && let (Some(first), Some(last)) =
                        (self.floor_div(&low, divisor, own), self.floor_div(&high, divisor, own))
                    && self.is_zero(&first, &last)
                {
                    return if upper { high } else { low }.plus(&first, divisor.checked_neg()?);
                }
                numeric(self)
            }
            Key::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
                let (a, b) = (self.limit_of(&a, over, upper, own)?, self.limit_of(&b, over, upper, own)?);
                Some(self.binary(op, &a, &b, own))
            }
            Key::Select(_, a, b) => {
                let (a, b) = (self.limit_of(&a, over, upper, own)?, self.limit_of(&b, over, upper, own)?);
                Some(self.binary(if upper { BinaryOp::Max } else { BinaryOp::Min }, &a, &b, own))
            }
            Key::Binary(op @ (BinaryOp::FloorDiv | BinaryOp::FloorMod), a, b)
                if !self.depends_sum(&b, over) && self.bound_of(&b).min > 0 =>
            {
                match op {
                    BinaryOp::FloorDiv => {
                        let limit = self.limit_of(&a, over, upper, own)?;
                        self.floor_div_symbolic(&limit, &b, own)
                    }
                    _ if upper => b.plus_constant(-1),
                    _ => Some(Linear::constant(0)),
                }
            }
            Key::Product(ids) => {
                let (inner, outer): (Vec<Id>, Vec<Id>) = ids.iter().partition(|id| self.depends(**id, over));
                let [inner] = inner[..] else { return numeric(self) };
                let outer = self.product(outer, own);
                let bound = self.bound_of(&outer);
                let upper = match (bound.min >= 0, bound.max <= 0) {
                    (true, _) => upper,
                    (_, true) => !upper,
                    _ => return numeric(self),
                };
                let limit = self.limit_of(&Linear::atom(inner), over, upper, own)?;
                self.times(&limit, &outer, own)
            }
            Key::Cast(x, from) if stays(self.bound_of(&x), from, own) => {
                let limit = self.limit_of(&x, over, upper, from)?;
                if limit.is_constant() {
                    return Some(limit);
                }
                Some(Linear::atom(self.intern(Key::Cast(limit, from), own)))
            }
            Key::Sum(x) => self.limit_of(&x, over, upper, dtype),
            _ => numeric(self),
        }
    }

    fn depends_sum(&self, sum: &Linear, over: &mut Over) -> bool {
        sum.terms.iter().any(|(id, _)| self.depends(*id, over))
    }

    /// Returns true if the value of an atom may depend on a variable that varies, or on the content
    /// of memory.
    fn depends(&self, id: Id, over: &mut Over) -> bool {
        if let Some(known) = over.known.get(&id) {
            return *known;
        }
        let found = match self.key(id) {
            Some(Key::Var(_)) => over.vars.contains(&id),
            // The content of memory may change meanwhile.
            Some(Key::Fresh(_) | Key::Load(..)) | None => true,
            Some(Key::Opaque(_)) => self.held(id).is_none_or(|held| self.mentions(held, over)),
            Some(Key::Select(..)) if self.held(id).is_none_or(|held| self.mentions(held, over)) => true,
            Some(_) => on_enough_stack(|| self.below(id).iter().any(|sum| self.depends_sum(sum, over))),
        };
        over.known.insert(id, found);
        found
    }

    /// Returns true if an expression contains a variable that varies, a memory access, a call or a
    /// node of a foreign type.
    fn mentions(&self, expr: &Expr, over: &Over) -> bool {
        struct Find<'a>(&'a Analyzer, &'a Over, bool, HashSet<usize>);
        impl Visitor for Find<'_> {
            fn expr(&mut self, expr: &Expr) {
                match ExprKind::of(expr) {
                    ExprKind::Var(var) => {
                        let key = Key::Var(var.as_object().as_handle().addr());
                        let id = self.0.places.get(&(key, var.dtype));
                        self.2 |= id.is_some_and(|id| self.1.vars.contains(id));
                    }
                    ExprKind::BufferLoad(_) | ExprKind::Call(_) | ExprKind::Other => self.2 = true,
                    _ => {}
                }
                // Shared subexpressions are visited once.
                if !self.2 && self.3.insert(expr.as_object().as_handle().addr()) {
                    self.below_expr(expr);
                }
            }
        }
        let mut find = Find(self, over, false, HashSet::new());
        find.expr(expr);
        find.2
    }
}
