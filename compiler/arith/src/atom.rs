//! Atoms: the subexpressions that a sum treats as unknowns, such as variables, quotients and products.

use anyfn::abi::kDLUInt;
use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, expr};

use crate::linear::{Id, Linear};
use crate::{Analyzer, Bound};

/// Key that, together with a data type, identifies an atom: the kind of the expression and its operands.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Variable, identified by the address of its node.
    Var(usize),
    /// Quotient of a sum and a constant divisor of at least 2, rounded down.
    FloorDiv(Linear, i64),
    /// Remainder of a sum modulo a constant of at least 2.
    FloorMod(Linear, i64),
    /// Binary operation that no other key covers.
    Binary(BinaryOp, Linear, Linear),
    /// Product of at least two atoms, given by their sorted identifiers.
    Product(Vec<Id>),
    /// Select expression: the address of its condition, and both values.
    Select(usize, Linear, Linear),
    /// Conversion of a value to the data type of the atom. Holds the value and its original data type.
    Cast(Linear, DType),
    /// Load from a buffer: the address of the buffer, and the indices with their data types.
    Load(usize, Vec<(Linear, DType)>),
    /// Sum that is treated as one atom, because it has too many terms.
    Sum(Linear),
    /// Expression of any other form, identified by the address of its node.
    Opaque(usize),
    /// Expression with side effects, identified by the address of its node. It may have a different value at
    /// each evaluation.
    Fresh(usize),
}

/// Atom: a subexpression that sums treat as an unknown, with its data type and cached properties.
pub(crate) struct Atom {
    pub(crate) key: Key,
    pub(crate) dtype: DType,
    /// Expression whose address the key contains, kept alive so that the address stays unique. `None` if the
    /// key contains no address of an expression.
    held: Option<Expr>,
    /// Buffer that the atom loads from, if its key is [`Key::Load`].
    pub(crate) buffer: Option<Ref<Buffer>>,
    /// Cached expression that computes the value of the atom.
    made: Option<Expr>,
    /// True if the value of the atom may depend on the content of memory, or on a variable declared
    /// by [`Analyzer::set_any`].
    pub(crate) is_data: bool,
    /// Cached constant bounds of the atom's value, with the epoch of the analyzer in which they were
    /// computed.
    bound: Option<(u32, Bound)>,
    /// Cached modular set of the atom's value: see [`Analyzer::modular`].
    pub(crate) modular: Option<(i64, i64)>,
    /// Cached flag, which is true if all variables in the atom have constant bounds. The flag is
    /// stored with the epoch of the analyzer in which it was computed.
    pub(crate) is_numeric: Option<(u32, bool)>,
}

impl Analyzer {
    pub(crate) fn atom(&self, id: Id) -> Option<&Atom> {
        self.atoms.get(id as usize)
    }

    pub(crate) fn atom_mut(&mut self, id: Id) -> Option<&mut Atom> {
        self.atoms.get_mut(id as usize)
    }

    pub(crate) fn key(&self, id: Id) -> Option<&Key> {
        self.atom(id).map(|atom| &atom.key)
    }

    /// Returns the identifier of the atom with a key and a data type. Creates the atom if it does
    /// not exist.
    pub(crate) fn intern(&mut self, key: Key, dtype: DType) -> Id {
        self.intern_with(key, dtype, None, None)
    }

    pub(crate) fn intern_with(
        &mut self,
        key: Key,
        dtype: DType,
        held: Option<Expr>,
        buffer: Option<Ref<Buffer>>,
    ) -> Id {
        if let Some(id) = self.places.get(&(key.clone(), dtype)) {
            return *id;
        }
        let is_data = match &key {
            Key::Var(_) => false,
            Key::Load(..) | Key::Opaque(_) | Key::Fresh(_) => true,
            Key::FloorDiv(x, _) | Key::FloorMod(x, _) | Key::Cast(x, _) | Key::Sum(x) => self.is_data(x),
            Key::Binary(_, a, b) | Key::Select(_, a, b) => self.is_data(a) || self.is_data(b),
            Key::Product(ids) => ids.iter().any(|id| self.atom(*id).is_some_and(|atom| atom.is_data)),
        };
        let id = Id::try_from(self.atoms.len()).unwrap_or(Id::MAX);
        let atom = Atom {
            key: key.clone(),
            dtype,
            held,
            buffer,
            made: None,
            is_data,
            bound: None,
            modular: None,
            is_numeric: None,
        };
        self.atoms.push(atom);
        self.places.insert((key, dtype), id);
        id
    }

    /// Returns the identifier of the atom for the variable `var`.
    pub(crate) fn var(&mut self, var: &Ref<Var>) -> Id {
        let key = Key::Var(var.as_object().as_handle().addr());
        self.intern_with(key, var.dtype, Some(var.clone().into_parent()), None)
    }

    /// Returns true if a sum contains an atom for which [`Atom::is_data`] is true.
    pub(crate) fn is_data(&self, sum: &Linear) -> bool {
        sum.terms.iter().any(|(id, _)| self.atom(*id).is_some_and(|atom| atom.is_data))
    }

    /// Returns constant bounds of a sum.
    pub(crate) fn bound_of(&mut self, sum: &Linear) -> Bound {
        let mut bound = self.interval(sum);
        if sum.terms.len() < 2 {
            return bound;
        }
        // Writing `c * (x // c)` as `x - x % c` may tighten the bound: a remainder varies less than its dividend.
        for place in 0..sum.terms.len() {
            if let Some(other) = self.with_remainder(sum, place)
                && other.terms.len() <= sum.terms.len()
            {
                bound = bound.intersect(self.interval(&other));
            }
        }
        bound
    }

    fn interval(&mut self, sum: &Linear) -> Bound {
        let mut bound = Bound::one(sum.base);
        for (id, factor) in &sum.terms {
            bound = bound.add(self.bound_of_atom(*id).scale(*factor));
        }
        bound
    }

    pub(crate) fn bound_of_atom(&mut self, id: Id) -> Bound {
        let Some(atom) = self.atom(id) else { return Bound::ANY };
        if let Some((epoch, bound)) = atom.bound
            && epoch == self.epoch
        {
            return bound;
        }
        let bound = on_enough_stack(|| self.bound_of_atom_here(id));
        let epoch = self.epoch;
        if let Some(atom) = self.atom_mut(id) {
            atom.bound = Some((epoch, bound));
        }
        bound
    }

    fn bound_of_atom_here(&mut self, id: Id) -> Bound {
        let Some((key, dtype)) = self.atom(id).map(|atom| (atom.key.clone(), atom.dtype)) else {
            return Bound::ANY;
        };
        let of_type = Bound::of_type(dtype);
        let bound = match key {
            Key::Var(_) => return self.domains.get(&id).map_or(of_type, |domain| domain.bound),
            Key::FloorDiv(x, divisor) => self.bound_of(&x).floor_div(divisor),
            Key::FloorMod(x, divisor) => {
                let bound = self.bound_of(&x);
                let turn = bound.floor_div(divisor);
                match turn.value().and_then(|turn| turn.checked_mul(divisor)?.checked_neg()) {
                    Some(back) => bound.add(Bound::one(back)),
                    None => Bound { min: 0, max: divisor - 1 },
                }
            }
            Key::Binary(op, a, b) => {
                let (a, b) = (self.bound_of(&a), self.bound_of(&b));
                let bound = bound_of_binary(op, a, b, dtype);
                // The least integer divided by -1 overflows.
                if matches!(op, BinaryOp::Div | BinaryOp::FloorDiv) && !bound.is_within(of_type) {
                    return of_type;
                }
                bound
            }
            // The product may exceed the range of the type: see `fits`.
            Key::Product(ids) => {
                return ids.iter().fold(Bound::one(1), |bound, id| bound.mul(self.bound_of_atom(*id)));
            }
            Key::Select(_, a, b) => self.bound_of(&a).union(self.bound_of(&b)),
            Key::Cast(x, from) => {
                let bound = self.bound_of(&x);
                if stays(bound, from, dtype) { bound } else { of_type }
            }
            Key::Sum(x) => self.bound_of(&x),
            Key::Opaque(_) => match self.atom(id).and_then(|atom| atom.held.as_ref()).map(ExprKind::of) {
                Some(ExprKind::Cast(node)) if node.value.dtype.is_bool() => Bound { min: 0, max: 1 },
                _ => of_type,
            },
            Key::Load(..) | Key::Fresh(_) => of_type,
        };
        bound.intersect(of_type)
    }

    /// Converts a sum to an expression.
    ///
    /// # Errors
    /// Returns `ValueError` if a number does not fit into the data type.
    pub(crate) fn emit(&mut self, sum: &Linear, dtype: DType) -> Result<Expr> {
        let mut value: Option<Expr> = None;
        let is_negative = |term: &&(Id, i64)| term.1 < 0;
        let mut terms = sum.terms.clone();
        // Large factors come first, as in hand-written index expressions.
        let is_product = |id: Id| matches!(self.key(id), Some(Key::Product(_)));
        terms.sort_by_key(|(id, factor)| (!is_product(*id), std::cmp::Reverse(factor.unsigned_abs())));
        for (id, factor) in terms.iter().filter(|term| !is_negative(term)) {
            let term = self.emit_term(*id, *factor, dtype)?;
            value = Some(match value {
                None => term,
                Some(value) => ops::add(value, term)?,
            });
        }
        let mut base = sum.base;
        for (id, factor) in terms.iter().filter(is_negative) {
            value = Some(match (value, factor.checked_neg()) {
                (Some(value), Some(factor)) => ops::sub(value, self.emit_term(*id, factor, dtype)?)?,
                (None, Some(factor)) if base > 0 || *id == terms[0].0 && factor == 1 => {
                    let first = ops::int(std::mem::take(&mut base), dtype)?;
                    ops::sub(first, self.emit_term(*id, factor, dtype)?)?
                }
                (value, _) => {
                    let term = self.emit_term(*id, *factor, dtype)?;
                    match value {
                        None => term,
                        Some(value) => ops::add(value, term)?,
                    }
                }
            });
        }
        match (value, base) {
            (None, base) => ops::int(base, dtype),
            (Some(value), 0) => Ok(value),
            (Some(value), base) => match base.checked_neg() {
                Some(back) if base < 0 => ops::sub(value, ops::int(back, dtype)?),
                _ => ops::add(value, ops::int(base, dtype)?),
            },
        }
    }

    fn emit_term(&mut self, id: Id, factor: i64, dtype: DType) -> Result<Expr> {
        let atom = ops::cast(self.emit_atom(id)?, dtype)?;
        if factor == 1 { Ok(atom) } else { ops::mul(atom, ops::int(factor, dtype)?) }
    }

    fn emit_atom(&mut self, id: Id) -> Result<Expr> {
        if let Some(made) = self.atom(id).and_then(|atom| atom.made.clone()) {
            return Ok(made);
        }
        let made = on_enough_stack(|| self.emit_atom_here(id))?;
        if let Some(atom) = self.atom_mut(id) {
            atom.made = Some(made.clone());
        }
        Ok(made)
    }

    fn emit_atom_here(&mut self, id: Id) -> Result<Expr> {
        let lost = || anyfn::Error::new("InternalError", "unknown atom in the analyzer");
        let atom = self.atom(id).ok_or_else(lost)?;
        let (key, dtype, held) = (atom.key.clone(), atom.dtype, atom.held.clone());
        match key {
            Key::Var(_) | Key::Opaque(_) | Key::Fresh(_) => held.ok_or_else(lost),
            Key::FloorDiv(x, divisor) => ops::floor_div(self.emit(&x, dtype)?, ops::int(divisor, dtype)?),
            Key::FloorMod(x, divisor) => ops::floor_mod(self.emit(&x, dtype)?, ops::int(divisor, dtype)?),
            Key::Binary(op, a, b) => ops::binary(op, self.emit(&a, dtype)?, self.emit(&b, dtype)?),
            Key::Product(ids) => {
                let mut product: Option<Expr> = None;
                for id in ids {
                    let factor = ops::cast(self.emit_atom(id)?, dtype)?;
                    product = Some(match product {
                        None => factor,
                        Some(product) => ops::mul(product, factor)?,
                    });
                }
                product.ok_or_else(lost)
            }
            Key::Select(_, a, b) => {
                let (a, b) = (self.emit(&a, dtype)?, self.emit(&b, dtype)?);
                ops::select(held.ok_or_else(lost)?, a, b)
            }
            Key::Cast(x, from) => ops::cast(self.emit(&x, from)?, dtype),
            Key::Sum(x) => self.emit(&x, dtype),
            Key::Load(_, indices) => {
                let buffer = atom.buffer.clone().ok_or_else(lost)?;
                let mut places: Vec<Expr> = Vec::with_capacity(indices.len());
                for (index, dtype) in &indices {
                    places.push(self.emit(index, *dtype)?);
                }
                ops::load(&buffer, places.into_iter().collect::<Array<expr::Expr>>())
            }
        }
    }

    /// Returns the operands of an atom as sums. Returns no operands for a variable or an opaque
    /// expression.
    pub(crate) fn below(&self, id: Id) -> Vec<Linear> {
        match self.key(id) {
            Some(Key::FloorDiv(x, _) | Key::FloorMod(x, _) | Key::Cast(x, _) | Key::Sum(x)) => vec![x.clone()],
            Some(Key::Binary(_, a, b) | Key::Select(_, a, b)) => vec![a.clone(), b.clone()],
            Some(Key::Product(ids)) => ids.iter().map(|id| Linear::atom(*id)).collect(),
            Some(Key::Load(_, indices)) => indices.iter().map(|(index, _)| index.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the expression whose address the key of an atom contains, or `None` if the key
    /// contains no such address.
    pub(crate) fn held(&self, id: Id) -> Option<&Expr> {
        self.atom(id)?.held.as_ref()
    }
}

/// Returns true if converting from the type `from` to the type `to` preserves every value within `bound`.
/// Returns false for unbounded `uint64` values, unless both types are the same.
pub(crate) fn stays(bound: Bound, from: DType, to: DType) -> bool {
    let is_endless = bound.max == Bound::POS_INF && from.0.code == kDLUInt && from.0.bits == 64;
    bound.is_within(Bound::of_type(to)) && (from == to || !is_endless)
}

/// Returns constant bounds of the result of a [`Key::Binary`] operation, given bounds of its operands.
fn bound_of_binary(op: BinaryOp, a: Bound, b: Bound, dtype: DType) -> Bound {
    match op {
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Div => match b.value() {
            Some(divisor) if divisor > 0 => a.trunc_div(divisor),
            // The magnitude of the quotient is at most that of the dividend.
            _ => {
                let furthest = if a.is_finite() { a.max.max(a.min.saturating_neg()) } else { Bound::POS_INF };
                let signs = (a.min >= 0 || a.max <= 0) && (b.min > 0 || b.max < 0);
                let is_negative = signs && (a.min >= 0) != (b.min > 0);
                match (signs, is_negative) {
                    _ if furthest == Bound::POS_INF && !signs => Bound::ANY,
                    (true, true) => Bound { min: furthest.saturating_neg(), max: 0 },
                    (true, false) => Bound { min: 0, max: furthest },
                    (false, _) => Bound { min: -furthest, max: furthest },
                }
            }
        },
        BinaryOp::FloorDiv if b.min > 0 => {
            // The magnitude of the quotient decreases as the divisor grows, so the smallest and largest divisors give the
            // bound.
            let ends = [
                a.floor_div(b.min),
                if b.max == Bound::POS_INF {
                    Bound { min: if a.min < 0 { -1 } else { 0 }, max: if a.max < 0 { -1 } else { 0 } }
                } else {
                    a.floor_div(b.max)
                },
            ];
            ends[0].union(ends[1])
        }
        BinaryOp::FloorMod if b.min > 0 => {
            let below = if b.max == Bound::POS_INF { Bound::POS_INF } else { b.max - 1 };
            if a.min >= 0 { Bound { min: 0, max: below.min(a.max) } } else { Bound { min: 0, max: below } }
        }
        // The result is not negative, and not larger than an operand that is not negative.
        BinaryOp::BitAnd if a.min >= 0 || b.min >= 0 => {
            let most = |bound: Bound| if bound.min >= 0 { bound.max } else { Bound::POS_INF };
            Bound { min: 0, max: most(a).min(most(b)) }
        }
        BinaryOp::BitOr | BinaryOp::BitXor if a.min >= 0 && b.min >= 0 && a.is_finite() && b.is_finite() => {
            let bits = 64 - (a.max | b.max).leading_zeros();
            let min = if op == BinaryOp::BitOr { a.min.max(b.min) } else { 0 };
            Bound { min, max: if bits > 62 { Bound::POS_INF } else { (1 << bits) - 1 } }
        }
        BinaryOp::ShiftRight => match b.value() {
            Some(by) if by <= 62 && (0..i64::from(dtype.0.bits)).contains(&by) => a.floor_div(1 << by),
            _ => Bound { min: a.min.min(0), max: a.max.max(0) },
        },
        BinaryOp::Mod => {
            let size = if b.is_finite() { b.max.max(b.min.saturating_neg()) - 1 } else { Bound::POS_INF };
            let min = if a.min >= 0 {
                0
            } else if size == Bound::POS_INF {
                a.min
            } else {
                (-size).max(a.min)
            };
            let max = if a.max <= 0 { 0 } else { size.min(a.max) };
            Bound { min, max }
        }
        _ => Bound::ANY,
    }
}
