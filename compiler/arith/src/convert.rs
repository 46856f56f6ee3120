//! Conversion of integer expressions to sums, which are linear combinations of subexpressions.

use anyfn::DType;
use anyfn::abi::kDLInt;
use anyfn_ir::ExprKind;
use anyfn_ir::expr::{BinaryOp, BufferLoad, Expr};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::visit::on_enough_stack;

use crate::atom::Key;
use crate::linear::{Id, Linear, MAX_TERMS};
use crate::{Analyzer, Bound};

/// Maximum number of terms of an expanded product of two sums. Larger products are not expanded.
const MAX_PRODUCTS: usize = 16;
/// Maximum number of factors of an atom that is a product. A product with more factors becomes an
/// atom with two operands instead. Without a limit, the number of factors would double whenever a
/// value is multiplied by itself.
const MAX_FACTORS: usize = 64;

impl Analyzer {
    /// Converts a scalar integer expression to a sum.
    pub(crate) fn linear(&mut self, expr: &Expr) -> Linear {
        match ExprKind::of(expr) {
            ExprKind::IntImm(node) if node.value >= 0 || node.dtype.0.code == kDLInt => {
                return Linear::constant(node.value);
            }
            ExprKind::Var(var) => {
                let id = self.var(var);
                return match self.domains.get(&id) {
                    // The variable has a single, constant value.
                    Some(domain) => domain.bound.value().map_or_else(|| Linear::atom(id), Linear::constant),
                    None => Linear::atom(id),
                };
            }
            _ => {}
        }
        let address = expr.as_object().as_handle().addr();
        if let Some((_, sum)) = self.sums.get(&address) {
            return sum.clone();
        }
        if self.has_effect(expr) {
            let key = Key::Fresh(self.atoms.len());
            return Linear::atom(self.intern_with(key, expr.dtype, Some(expr.clone()), None));
        }
        let mut sum = on_enough_stack(|| self.linear_here(expr));
        if sum.terms.len() > MAX_TERMS {
            sum = Linear::atom(self.intern(Key::Sum(sum), expr.dtype));
        }
        self.sums.insert(address, (expr.clone(), sum.clone()));
        sum
    }

    fn linear_here(&mut self, expr: &Expr) -> Linear {
        let dtype = expr.dtype;
        if !dtype.is_integer() || dtype.lanes() != 1 {
            return self.opaque(expr);
        }
        match ExprKind::of(expr) {
            ExprKind::Binary(op, node) if node.a.dtype == dtype && node.b.dtype == dtype => {
                let (a, b) = (self.linear(&node.a), self.linear(&node.b));
                self.binary(op, &a, &b, dtype)
            }
            ExprKind::Cast(node) if node.value.dtype.is_integer() && node.value.dtype.lanes() == 1 => {
                let from = node.value.dtype;
                let value = self.linear(&node.value);
                if value.is_constant() && self.fits(&value, dtype) {
                    return value;
                }
                Linear::atom(self.intern(Key::Cast(value, from), dtype))
            }
            ExprKind::Select(node) if node.condition.dtype.lanes() == 1 => {
                let (a, b) = (self.linear(&node.true_value), self.linear(&node.false_value));
                match self.decide(&node.condition) {
                    Some(true) => return a,
                    Some(false) => return b,
                    None if a == b => return a,
                    None => {}
                }
                let condition = self.simplify_here(&node.condition).unwrap_or_else(|_| node.condition.clone());
                let address = condition.as_object().as_handle().addr();
                let key = Key::Select(address, a, b);
                Linear::atom(self.intern_with(key, dtype, Some(condition), None))
            }
            ExprKind::BufferLoad(node) => self.load(node, dtype).unwrap_or_else(|| self.opaque(expr)),
            _ => self.opaque(expr),
        }
    }

    fn load(&mut self, node: &BufferLoad, dtype: DType) -> Option<Linear> {
        let mut indices = Vec::with_capacity(node.indices.len());
        for index in node.indices.iter() {
            if !index.dtype.is_integer() || index.dtype.lanes() != 1 {
                return None;
            }
            indices.push((self.linear(&index), index.dtype));
        }
        let key = Key::Load(node.buffer.as_object().as_handle().addr(), indices);
        Some(Linear::atom(self.intern_with(key, dtype, None, Some(node.buffer.clone()))))
    }

    fn opaque(&mut self, expr: &Expr) -> Linear {
        let held = self.simplify_below(expr).unwrap_or_else(|_| expr.clone());
        let address = held.as_object().as_handle().addr();
        Linear::atom(self.intern_with(Key::Opaque(address), expr.dtype, Some(held), None))
    }

    /// Returns a sum that equals `a op b`. If no rule applies, the whole operation becomes a single
    /// atom.
    pub(crate) fn binary(&mut self, op: BinaryOp, a: &Linear, b: &Linear, dtype: DType) -> Linear {
        let result = match op {
            BinaryOp::Add => a.plus(b, 1).map(|sum| self.tidied(sum)),
            BinaryOp::Sub => a.minus(b).map(|sum| self.tidied(sum)),
            BinaryOp::Mul => self.times(a, b, dtype).map(|sum| self.tidied(sum)),
            BinaryOp::FloorDiv if b.is_constant() => self.floor_div(a, b.base, dtype),
            BinaryOp::FloorMod if b.is_constant() => self.floor_mod(a, b.base, dtype),
            BinaryOp::FloorDiv => self.floor_div_symbolic(a, b, dtype),
            BinaryOp::FloorMod => self.floor_mod_symbolic(a, b, dtype),
            BinaryOp::Div | BinaryOp::Mod => self.truncated(op, a, b, dtype),
            BinaryOp::Min | BinaryOp::Max => self.extreme(op, a, b),
            _ => None,
        };
        match result {
            Some(sum) if self.fits(&sum, dtype) || !may_leave(op) => sum,
            _ => Linear::atom(self.intern(Key::Binary(op, a.clone(), b.clone()), dtype)),
        }
    }

    /// Returns true if a sum can be computed in a data type: the sum does not overflow, or may be assumed not to
    /// overflow.
    pub(crate) fn fits(&mut self, sum: &Linear, dtype: DType) -> bool {
        let bound = self.bound_of(sum);
        if bound.is_finite() && bound.is_within(Bound::of_type(dtype)) {
            return true;
        }
        let is_assumed = dtype.0.code == kDLInt && dtype.0.bits >= 32;
        // If all variables have constant bounds, an apparent overflow is a real one.
        is_assumed && !sum.is_constant() && !self.is_data(sum) && !self.is_numeric(sum)
    }

    /// Returns true if all variables in a sum have constant bounds.
    fn is_numeric(&mut self, sum: &Linear) -> bool {
        sum.terms.iter().all(|(id, _)| self.is_numeric_atom(*id))
    }

    fn is_numeric_atom(&mut self, id: Id) -> bool {
        if let Some((epoch, known)) = self.atom(id).and_then(|atom| atom.is_numeric)
            && epoch == self.epoch
        {
            return known;
        }
        let found = match self.key(id) {
            Some(Key::Var(_)) => {
                self.domains.get(&id).is_some_and(|domain| domain.min.is_constant() && domain.max.is_constant())
            }
            _ => on_enough_stack(|| self.below(id).iter().all(|sum| self.is_numeric(sum))),
        };
        let epoch = self.epoch;
        if let Some(atom) = self.atom_mut(id) {
            atom.is_numeric = Some((epoch, found));
        }
        found
    }

    /// Returns the product of two sums. Returns `None` if the product has too many terms or
    /// factors, or if a number exceeds 64 bits.
    pub(crate) fn times(&mut self, a: &Linear, b: &Linear, dtype: DType) -> Option<Linear> {
        if a.is_constant() {
            return b.times(a.base);
        }
        if b.is_constant() {
            return a.times(b.base);
        }
        if (a.terms.len() + 1) * (b.terms.len() + 1) > MAX_PRODUCTS {
            return None;
        }
        let mut sum = a.times(b.base)?.plus(b, a.base)?;
        sum.base = a.base.checked_mul(b.base)?;
        for (left, x) in &a.terms {
            for (right, y) in &b.terms {
                let mut ids = self.product_of(*left);
                ids.extend(self.product_of(*right));
                if ids.len() > MAX_FACTORS {
                    return None;
                }
                let product = self.product(ids, dtype);
                sum = sum.plus(&product, x.checked_mul(*y)?)?;
            }
        }
        Some(sum)
    }

    fn product_of(&self, id: Id) -> Vec<Id> {
        match self.key(id) {
            Some(Key::Product(ids)) => ids.clone(),
            _ => vec![id],
        }
    }

    /// Returns the quotient of two sums, rounded towards zero, or the remainder of this division,
    /// depending on `op`. Returns `None` if no rule applies, for example because the signs of the
    /// operands are unknown.
    fn truncated(&mut self, op: BinaryOp, a: &Linear, b: &Linear, dtype: DType) -> Option<Linear> {
        let (above, below) = (self.is_at_least_0(a), self.bound_of(a).max <= 0);
        let floor = |this: &mut Self, x: &Linear, divisor: i64| match op {
            BinaryOp::Div => this.floor_div(x, divisor, dtype),
            _ => this.floor_mod(x, divisor, dtype),
        };
        if !b.is_constant() {
            if !above || self.bound_of(b).min <= 0 {
                return None;
            }
            return match op {
                BinaryOp::Div => self.floor_div_symbolic(a, b, dtype),
                _ => self.floor_mod_symbolic(a, b, dtype),
            };
        }
        let divisor = b.base.checked_abs().filter(|divisor| *divisor != 0)?;
        // The remainder has the sign of the dividend. The sign of the quotient also depends on that of the divisor.
        let sign = if op == BinaryOp::Div && b.base < 0 { -1 } else { 1 };
        if above {
            return floor(self, a, divisor)?.times(sign);
        }
        if below {
            return floor(self, &a.times(-1)?, divisor)?.times(-sign);
        }
        let is_whole = a.base % divisor == 0 && a.terms.iter().all(|term| term.1 % divisor == 0);
        match op {
            BinaryOp::Div if is_whole => a.divided(divisor).times(sign),
            _ if is_whole => Some(Linear::constant(0)),
            _ => None,
        }
    }

    /// Returns the minimum or maximum of two sums, depending on `op`. Returns `None` if it is not known which sum is
    /// smaller.
    fn extreme(&mut self, op: BinaryOp, a: &Linear, b: &Linear) -> Option<Linear> {
        let (smaller, larger) = if self.is_at_least_0(&b.minus(a)?) {
            (a, b)
        } else if self.is_at_least_0(&a.minus(b)?) {
            (b, a)
        } else {
            return None;
        };
        Some(if op == BinaryOp::Min { smaller.clone() } else { larger.clone() })
    }
}

/// Returns true if the result of an operation on two values of a data type may be outside the range of this
/// type.
fn may_leave(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv)
}
