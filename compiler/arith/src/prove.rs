//! Proofs that two sums are equal, or that a sum is not negative. A sum is a linear combination of
//! subexpressions.

use anyfn_ir::expr::BinaryOp;
use anyfn_ir::visit::on_enough_stack;

use crate::Analyzer;
use crate::atom::{Key, stays};
use crate::linear::{Id, Linear, gcd};

/// Maximum number of steps of a proof.
const BUDGET: u32 = 64;
/// Maximum depth of nested proofs.
const MAX_NESTING: u32 = 3;

impl Analyzer {
    /// Returns true if a sum is proved not to be negative.
    pub(crate) fn is_at_least_0(&mut self, sum: &Linear) -> bool {
        let bound = self.bound_of(sum);
        if bound.min >= 0 || bound.max < 0 {
            return bound.min >= 0;
        }
        if self.nesting >= MAX_NESTING {
            return false;
        }
        self.nesting += 1;
        let outer = std::mem::replace(&mut self.budget, BUDGET);
        let result = self.prove(sum);
        self.budget = outer;
        self.nesting -= 1;
        result
    }

    /// Returns true if two sums are proved to be equal, that is, if their difference is proved to
    /// be zero.
    pub(crate) fn is_zero(&mut self, a: &Linear, b: &Linear) -> bool {
        let Some(gap) = a.minus(b) else { return false };
        let gap = self.tidied(gap);
        if gap.is_constant() {
            return gap.base == 0;
        }
        let Some(back) = gap.times(-1) else { return false };
        self.is_at_least_0(&gap) && self.is_at_least_0(&back)
    }

    fn prove(&mut self, sum: &Linear) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        let bound = self.bound_of(sum);
        if bound.min >= 0 || bound.max < 0 {
            return bound.min >= 0;
        }
        for next in self.smaller(sum) {
            if self.prove(&next) {
                return true;
            }
        }
        if let Some((first, second)) = self.cases(sum)
            && self.prove(&first)
            && self.prove(&second)
        {
            return true;
        }
        for place in 0..self.facts.len() {
            if let Some(rest) = self.facts.get(place).and_then(|fact| without_fact(sum, fact))
                && self.prove(&rest)
            {
                return true;
            }
        }
        false
    }

    /// Returns lower bounds of `sum` or of a positive multiple of `sum`. Each bound replaces one atom by the minimum
    /// or maximum of its value. If one of the bounds is not negative, `sum` is not negative either.
    fn smaller(&mut self, sum: &Linear) -> Vec<Linear> {
        let mut found = Vec::new();
        // Innermost variables come first: their limits depend on the outer ones.
        for (id, factor) in sum.terms.iter().rev() {
            let is_positive = *factor > 0;
            match self.key(*id).cloned() {
                Some(Key::Var(_)) => {
                    let limit = self.limit(*id, is_positive);
                    found.extend(limit.and_then(|limit| sum.replace(*id, &limit)));
                }
                Some(Key::Product(ids)) => found.extend(self.smaller_product(sum, *id, *factor, &ids)),
                // `c * (x // d)` lies between `c * (x - d + 1) / d` and `c * x / d`.
                Some(Key::FloorDiv(x, divisor)) => {
                    let shift = if is_positive { divisor - 1 } else { 0 };
                    found.extend((|| {
                        let rest = sum.plus_atom(*id, factor.checked_neg()?)?.times(divisor)?;
                        rest.plus(&x.plus_constant(-shift)?, *factor)
                    })());
                }
                // It suffices to prove the sum with one of the operands.
                Some(Key::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b))
                    if (op == BinaryOp::Max) == is_positive =>
                {
                    found.extend(sum.replace(*id, &a));
                    found.extend(sum.replace(*id, &b));
                }
                Some(Key::Cast(x, from)) => {
                    // The conversion preserves the value.
                    if let Some(dtype) = self.atom(*id).map(|atom| atom.dtype)
                        && stays(self.bound_of(&x), from, dtype)
                    {
                        found.extend(sum.replace(*id, &x));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the lower limit of a variable if `below` is true, or else its upper limit. Returns
    /// `None` if the limit is a constant or is not known.
    fn limit(&self, id: Id, below: bool) -> Option<Linear> {
        let domain = self.domains.get(&id)?;
        let limit = if below { &domain.min } else { &domain.max };
        (!limit.is_constant() && limit.factor(id) == 0).then(|| limit.clone())
    }

    fn smaller_product(&mut self, sum: &Linear, id: Id, factor: i64, ids: &[Id]) -> Option<Linear> {
        let dtype = self.atom(id)?.dtype;
        for (place, var) in ids.iter().enumerate().rev() {
            let Some(domain) = self.domains.get(var) else { continue };
            let limits = [domain.min.clone(), domain.max.clone()];
            let mut others = ids.to_vec();
            others.remove(place);
            let others = self.product(others, dtype);
            let bound = self.bound_of(&others);
            let limit = match (bound.min >= 0, bound.max <= 0) {
                (true, _) => &limits[usize::from(factor < 0)],
                (_, true) => &limits[usize::from(factor > 0)],
                _ => continue,
            };
            if limit.factor(*var) != 0 {
                continue;
            }
            let product = self.times(limit, &others, dtype)?;
            return sum.replace(id, &product);
        }
        None
    }

    /// Splits a proof at a term that is a `min`, `max` or select expression. Returns two sums: if neither of
    /// them is negative, `sum` is not negative either. Returns `None` if no term can be split.
    fn cases(&mut self, sum: &Linear) -> Option<(Linear, Linear)> {
        sum.terms.iter().find_map(|(id, factor)| match self.key(*id)? {
            Key::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b)
                if (*op == BinaryOp::Min) == (*factor > 0) =>
            {
                Some((sum.replace(*id, a)?, sum.replace(*id, b)?))
            }
            Key::Select(_, a, b) => Some((sum.replace(*id, a)?, sum.replace(*id, b)?)),
            _ => None,
        })
    }

    /// Returns the modular set of a sum: see [`Analyzer::modular`].
    pub(crate) fn modular_of(&mut self, sum: &Linear) -> (i64, i64) {
        let mut all = (0_i64, sum.base);
        for (id, factor) in &sum.terms {
            let (step, rest) = self.modular_of_atom(*id);
            let scaled = step.checked_mul(*factor).zip(rest.checked_mul(*factor));
            let Some((step, rest)) = scaled else { return (1, 0) };
            let Some(base) = all.1.checked_add(rest) else { return (1, 0) };
            all = normal(gcd(all.0, step), base);
        }
        normal(all.0, all.1)
    }

    fn modular_of_atom(&mut self, id: Id) -> (i64, i64) {
        if let Some(known) = self.atom(id).and_then(|atom| atom.modular) {
            return known;
        }
        let found = on_enough_stack(|| self.modular_of_atom_here(id));
        if let Some(atom) = self.atom_mut(id) {
            atom.modular = Some(found);
        }
        found
    }

    fn modular_of_atom_here(&mut self, id: Id) -> (i64, i64) {
        match self.key(id).cloned() {
            Some(Key::FloorDiv(x, divisor)) => {
                let (step, rest) = self.modular_of(&x);
                if step % divisor == 0 { normal(step / divisor, rest.div_euclid(divisor)) } else { (1, 0) }
            }
            Some(Key::FloorMod(x, divisor)) => {
                let (step, rest) = self.modular_of(&x);
                normal(gcd(step, divisor), rest)
            }
            Some(Key::Product(ids)) => {
                let mut all = (0_i64, 1_i64);
                for id in ids {
                    let (step, rest) = self.modular_of_atom(id);
                    let parts = [all.0.checked_mul(step), all.0.checked_mul(rest), step.checked_mul(all.1)];
                    let [Some(x), Some(y), Some(z)] = parts else { return (1, 0) };
                    let Some(base) = i64::checked_mul(all.1, rest) else { return (1, 0) };
                    all = normal(gcd(gcd(x, y), z), base);
                }
                all
            }
            Some(Key::Binary(BinaryOp::Min | BinaryOp::Max, a, b) | Key::Select(_, a, b)) => {
                let ((x, first), (y, second)) = (self.modular_of(&a), self.modular_of(&b));
                match first.checked_sub(second) {
                    Some(gap) => normal(gcd(gcd(x, y), gap), first),
                    None => (1, 0),
                }
            }
            _ => (1, 0),
        }
    }
}

/// Normalises a modular set: returns `step`, and `rest` reduced modulo `step`. If `step` is 0,
/// leaves `rest` unchanged.
fn normal(step: i64, rest: i64) -> (i64, i64) {
    if step == 0 { (0, rest) } else { (step, rest.rem_euclid(step)) }
}

/// Returns `a * sum - b * fact`, where `a` and `b` are positive and chosen so that a term cancels. Returns
/// `None` if no choice cancels a term, or if a number exceeds 64 bits.
fn without_fact(sum: &Linear, fact: &Linear) -> Option<Linear> {
    for (id, step) in &fact.terms {
        let factor = sum.factor(*id);
        if factor == 0 || (factor > 0) != (*step > 0) {
            continue;
        }
        let common = gcd(factor, *step);
        let (times, less) = ((step / common).checked_abs()?, (factor / common).checked_abs()?);
        return sum.times(times)?.plus(fact, less.checked_neg()?);
    }
    None
}
