//! Quotients and remainders of sums, which are linear combinations of subexpressions.

use anyfn::DType;

use crate::Analyzer;
use crate::atom::Key;
use crate::linear::{Id, Linear, gcd};

impl Analyzer {
    /// Returns the quotient of a sum and a constant, rounded down. Returns `None` if the divisor is
    /// 0, if a number exceeds 64 bits, or if the dividend may overflow.
    pub(crate) fn floor_div(&mut self, sum: &Linear, divisor: i64, dtype: DType) -> Option<Linear> {
        match divisor {
            0 | i64::MIN => return None,
            1 => return Some(sum.clone()),
            _ if divisor < 0 => return self.floor_div(&sum.times(-1)?, -divisor, dtype),
            _ => {}
        }
        let key = (sum.clone(), divisor, false, dtype);
        if let Some(known) = self.divisions.get(&key) {
            return known.clone();
        }
        let quotient = self.floor_div_here(sum, divisor, dtype);
        self.divisions.insert(key, quotient.clone());
        quotient
    }

    fn floor_div_here(&mut self, sum: &Linear, divisor: i64, dtype: DType) -> Option<Linear> {
        // Terms that are multiples of the divisor are divided separately.
        let (whole, rest) = split(sum, divisor);
        let whole = Linear { terms: whole, base: sum.base.div_euclid(divisor) }.divided_terms(divisor);
        let rest = Linear { terms: rest, base: sum.base.rem_euclid(divisor) };
        if let Some(turn) = self.bound_of(&rest).floor_div(divisor).value() {
            return whole.plus_constant(turn);
        }
        if let Some((group, large, _)) = self.grouped(&rest, divisor) {
            let quotient = self.floor_div(&large, divisor / group, dtype)?;
            return whole.plus(&quotient, 1);
        }
        if let [(id, 1)] = rest.terms[..] {
            match self.key(id).cloned() {
                Some(Key::FloorDiv(x, inner)) => {
                    let (product, shift) = (inner.checked_mul(divisor)?, inner.checked_mul(rest.base)?);
                    let quotient = self.floor_div(&x.plus_constant(shift)?, product, dtype)?;
                    return whole.plus(&quotient, 1);
                }
                Some(Key::FloorMod(x, inner)) if rest.base == 0 && inner % divisor == 0 => {
                    let quotient = self.floor_div(&x, divisor, dtype)?;
                    let quotient = self.floor_mod(&quotient, inner / divisor, dtype)?;
                    return whole.plus(&quotient, 1);
                }
                _ => {}
            }
        }
        // The dividend must fit into the type: otherwise the machine divides a wrapped value.
        if !self.fits(&rest, dtype) {
            return None;
        }
        let id = self.intern(Key::FloorDiv(rest, divisor), dtype);
        whole.plus_atom(id, 1)
    }

    /// Returns the remainder of the division of a sum by a constant, with the sign of the divisor.
    /// Returns `None` under the same conditions as [`floor_div`](Self::floor_div).
    pub(crate) fn floor_mod(&mut self, sum: &Linear, divisor: i64, dtype: DType) -> Option<Linear> {
        match divisor {
            0 | i64::MIN => return None,
            1 => return Some(Linear::constant(0)),
            _ if divisor < 0 => return self.floor_mod(&sum.times(-1)?, -divisor, dtype)?.times(-1),
            _ => {}
        }
        let key = (sum.clone(), divisor, true, dtype);
        if let Some(known) = self.divisions.get(&key) {
            return known.clone();
        }
        let remainder = self.floor_mod_here(sum, divisor, dtype);
        self.divisions.insert(key, remainder.clone());
        remainder
    }

    fn floor_mod_here(&mut self, sum: &Linear, divisor: i64, dtype: DType) -> Option<Linear> {
        let mut rest = reduced(sum, divisor);
        // A term `factor * (x % inner)` is congruent to `factor * x` if the divisor divides `factor * inner`.
        for _ in 0..8 {
            let nested = rest.terms.iter().find_map(|(id, factor)| match self.key(*id) {
                Some(Key::FloorMod(x, inner)) if factor.checked_mul(*inner)? % divisor == 0 => {
                    Some((*id, x.clone()))
                }
                _ => None,
            });
            let Some((id, inner)) = nested else { break };
            rest = reduced(&rest.replace(id, &inner)?, divisor);
        }
        let bound = self.bound_of(&rest);
        if let Some(turn) = bound.floor_div(divisor).value() {
            return rest.plus_constant(turn.checked_mul(divisor)?.checked_neg()?);
        }
        if let Some((group, large, small)) = self.grouped(&rest, divisor) {
            let remainder = self.floor_mod(&large, divisor / group, dtype)?;
            return small.plus(&remainder, group);
        }
        if !self.fits(&rest, dtype) {
            return None;
        }
        let id = self.intern(Key::FloorMod(rest, divisor), dtype);
        Some(Linear::atom(id))
    }

    /// Decomposes a sum into `group * large + small` with `0 <= small < group`, where `group` is greater than
    /// 1 and divides `divisor`. Returns `None` if no such decomposition is found.
    fn grouped(&mut self, sum: &Linear, divisor: i64) -> Option<(i64, Linear, Linear)> {
        let mut tried = 1;
        for place in 0..sum.terms.len() {
            let group = gcd(sum.terms.get(place)?.1, divisor);
            if group == 1 || group == tried || group == divisor {
                continue;
            }
            tried = group;
            let (large, small) = split(sum, group);
            let small = Linear { terms: small, base: sum.base.rem_euclid(group) };
            let large = Linear { terms: large, base: sum.base.div_euclid(group) }.divided_terms(group);
            if let Some(turn) = self.bound_of(&small).floor_div(group).value() {
                let back = turn.checked_mul(group)?.checked_neg()?;
                return Some((group, large.plus_constant(turn)?, small.plus_constant(back)?));
            }
        }
        None
    }

    /// Replaces a quotient in a sum: the term `c * (x // c)` at index `place` becomes `x - x % c`. Returns `None` if
    /// this term is not such a quotient.
    pub(crate) fn with_remainder(&mut self, sum: &Linear, place: usize) -> Option<Linear> {
        let (id, factor) = *sum.terms.get(place)?;
        let Some(Key::FloorDiv(x, divisor)) = self.key(id) else { return None };
        if factor % divisor != 0 {
            return None;
        }
        let (x, divisor, dtype) = (x.clone(), *divisor, self.atom(id)?.dtype);
        let times = factor / divisor;
        let remainder = self.floor_mod(&x, divisor, dtype)?;
        sum.plus_atom(id, factor.checked_neg()?)?.plus(&x, times)?.plus(&remainder, times.checked_neg()?)
    }

    /// Combines quotients and remainders of the same value in a sum, as long as this reduces the
    /// number of terms.
    pub(crate) fn tidied(&mut self, mut sum: Linear) -> Linear {
        'again: loop {
            if sum.terms.len() < 2 {
                return sum;
            }
            for place in 0..sum.terms.len() {
                let other = self
                    .with_remainder(&sum, place)
                    .or_else(|| self.joined(&sum, place))
                    .or_else(|| self.joined_symbolic(&sum, place));
                if let Some(other) = other
                    && other.terms.len() < sum.terms.len()
                {
                    sum = other;
                    continue 'again;
                }
            }
            return sum;
        }
    }

    /// Rewrites `c * ((x // c) % m) + x % c` in a sum to `x % (c * m)`. Returns `None` unless the
    /// term at index `place` is the first of these two terms.
    fn joined(&mut self, sum: &Linear, place: usize) -> Option<Linear> {
        let (id, factor) = *sum.terms.get(place)?;
        let Some(Key::FloorMod(quotient, turns)) = self.key(id) else { return None };
        let Some(Key::FloorDiv(x, divisor)) = self.key(quotient.as_atom()?) else { return None };
        if factor % divisor != 0 {
            return None;
        }
        let (x, divisor, turns, dtype) = (x.clone(), *divisor, *turns, self.atom(id)?.dtype);
        let times = factor / divisor;
        let (all, low) =
            (self.floor_mod(&x, divisor.checked_mul(turns)?, dtype)?, self.floor_mod(&x, divisor, dtype)?);
        sum.plus_atom(id, factor.checked_neg()?)?.plus(&all, times)?.plus(&low, times.checked_neg()?)
    }

    /// Rewrites `(x // n) * n + x % n` in a sum to `x`, for a positive divisor `n` that is an atom
    /// or a product of atoms. Returns `None` unless the term at index `place` is the first of these
    /// two terms.
    fn joined_symbolic(&mut self, sum: &Linear, place: usize) -> Option<Linear> {
        use anyfn_ir::expr::BinaryOp;
        let (id, factor) = *sum.terms.get(place)?;
        let Some(Key::Product(ids)) = self.key(id) else { return None };
        let ids = ids.clone();
        for quotient in &ids {
            let Some(Key::Binary(BinaryOp::FloorDiv, x, n)) = self.key(*quotient) else { continue };
            let (x, n) = (x.clone(), n.clone());
            let mut others = ids.clone();
            others.remove(others.iter().position(|other| other == quotient)?);
            let divisor = match self.factors(&n) {
                Some(divisor) => divisor,
                None => continue,
            };
            if others != divisor || !self.is_positive(&n) {
                continue;
            }
            let dtype = self.atom(*quotient)?.dtype;
            let rest = self.floor_mod_symbolic(&x, &n, dtype)?;
            return sum
                .plus_atom(id, factor.checked_neg()?)?
                .plus(&x, factor)?
                .plus(&rest, factor.checked_neg()?);
        }
        None
    }

    /// Returns the atoms whose product equals a sum, or `None` if the sum is not a product of atoms.
    fn factors(&self, sum: &Linear) -> Option<Vec<Id>> {
        let id = sum.as_atom()?;
        Some(match self.key(id)? {
            Key::Product(ids) => ids.clone(),
            _ => vec![id],
        })
    }

    /// Decomposes `sum` into `divisor * whole + rest`, for a divisor that is a product of atoms. Returns
    /// `whole` and `rest`, or `None` if `divisor` is not such a product or if a number exceeds 64 bits.
    fn split_symbolic(&mut self, sum: &Linear, divisor: &Linear, dtype: DType) -> Option<(Linear, Linear)> {
        let factors = self.factors(divisor)?;
        let (mut whole, mut rest) = (Linear::constant(0), Linear::constant(sum.base));
        for (id, factor) in &sum.terms {
            let mut ids = match self.key(*id)? {
                Key::Product(ids) => ids.clone(),
                _ => vec![*id],
            };
            let is_multiple = factors
                .iter()
                .all(|wanted| ids.iter().position(|id| id == wanted).map(|place| ids.remove(place)).is_some());
            if is_multiple {
                let product = self.product(ids, dtype);
                whole = whole.plus(&product, *factor)?;
            } else {
                rest = rest.plus_atom(*id, *factor)?;
            }
        }
        Some((whole, rest))
    }

    /// Returns the product of the given atoms as a sum.
    pub(crate) fn product(&mut self, mut ids: Vec<Id>, dtype: DType) -> Linear {
        ids.sort_unstable();
        match ids[..] {
            [] => Linear::constant(1),
            [id] => Linear::atom(id),
            _ => Linear::atom(self.intern(Key::Product(ids), dtype)),
        }
    }

    /// Returns the quotient of two sums, rounded down. The divisor need not be a constant. Returns `None` if
    /// the dividend may overflow, or if a number exceeds 64 bits.
    pub(crate) fn floor_div_symbolic(
        &mut self,
        sum: &Linear,
        divisor: &Linear,
        dtype: DType,
    ) -> Option<Linear> {
        use anyfn_ir::expr::BinaryOp;
        let is_positive = self.is_positive(divisor);
        let parts = if is_positive { self.split_symbolic(sum, divisor, dtype) } else { None };
        let (whole, rest) = parts.unwrap_or_else(|| (Linear::constant(0), sum.clone()));
        if rest == Linear::constant(0) && is_positive || self.is_below(&rest, divisor) {
            return Some(whole);
        }
        if !self.fits(&rest, dtype) {
            return None;
        }
        let id = self.intern(Key::Binary(BinaryOp::FloorDiv, rest, divisor.clone()), dtype);
        whole.plus_atom(id, 1)
    }

    /// Returns the remainder of the division of two sums, with the sign of the divisor. Returns `None` under
    /// the same conditions as [`floor_div_symbolic`](Self::floor_div_symbolic).
    pub(crate) fn floor_mod_symbolic(
        &mut self,
        sum: &Linear,
        divisor: &Linear,
        dtype: DType,
    ) -> Option<Linear> {
        use anyfn_ir::expr::BinaryOp;
        let is_positive = self.is_positive(divisor);
        let parts = if is_positive { self.split_symbolic(sum, divisor, dtype) } else { None };
        let rest = parts.map_or_else(|| sum.clone(), |(_, rest)| rest);
        if rest == Linear::constant(0) && is_positive || self.is_below(&rest, divisor) {
            return Some(rest);
        }
        if !self.fits(&rest, dtype) {
            return None;
        }
        let id = self.intern(Key::Binary(BinaryOp::FloorMod, rest, divisor.clone()), dtype);
        Some(Linear::atom(id))
    }

    fn is_positive(&mut self, sum: &Linear) -> bool {
        sum.plus_constant(-1).is_some_and(|less| self.is_at_least_0(&less))
    }

    /// Returns true if `0 <= sum < limit` is proved.
    fn is_below(&mut self, sum: &Linear, limit: &Linear) -> bool {
        let gap = limit.minus(sum).and_then(|gap| gap.plus_constant(-1));
        self.is_at_least_0(sum) && gap.is_some_and(|gap| self.is_at_least_0(&gap))
    }
}

impl Linear {
    /// Divides the factor of each term by `divisor`, which must divide all factors. The constant is
    /// left unchanged.
    fn divided_terms(mut self, divisor: i64) -> Linear {
        self.terms.iter_mut().for_each(|term| term.1 /= divisor);
        self
    }
}

type Terms = Vec<(Id, i64)>;

/// Partitions the terms of a sum into terms whose factors are multiples of `divisor`, and the remaining
/// terms.
fn split(sum: &Linear, divisor: i64) -> (Terms, Terms) {
    sum.terms.iter().partition(|(_, factor)| factor % divisor == 0)
}

/// Returns a sum with the same remainder modulo `divisor`, whose factors and constant are reduced
/// modulo `divisor`.
fn reduced(sum: &Linear, divisor: i64) -> Linear {
    let terms = sum.terms.iter().map(|(id, factor)| (*id, factor % divisor));
    Linear { terms: terms.filter(|term| term.1 != 0).collect(), base: sum.base.rem_euclid(divisor) }
}
