//! Linear combinations of atoms, called sums. An atom is a subexpression that a sum treats as an unknown.

/// Identifier of an atom (a subexpression that a sum treats as an unknown): its index in the list of all
/// atoms of the analyzer.
pub(crate) type Id = u32;

/// Maximum number of terms of a sum. A longer sum becomes a single atom, so that the analysis takes time
/// linear in the length of the sum.
pub(crate) const MAX_TERMS: usize = 64;

/// Sum of a constant and of atoms, each multiplied by a constant factor. The terms are sorted by [`Id`], and
/// no factor is 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Linear {
    pub(crate) terms: Vec<(Id, i64)>,
    pub(crate) base: i64,
}

impl Linear {
    pub(crate) fn constant(base: i64) -> Linear {
        Linear { terms: Vec::new(), base }
    }

    pub(crate) fn atom(id: Id) -> Linear {
        Linear { terms: vec![(id, 1)], base: 0 }
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the atom if the sum consists of a single atom, with the factor 1 and without a constant.
    pub(crate) fn as_atom(&self) -> Option<Id> {
        match self.terms[..] {
            [(id, 1)] if self.base == 0 => Some(id),
            _ => None,
        }
    }

    pub(crate) fn factor(&self, id: Id) -> i64 {
        self.terms.binary_search_by_key(&id, |term| term.0).map_or(0, |place| self.terms[place].1)
    }

    /// Returns `self + factor * other`, or `None` if a number exceeds 64 bits.
    pub(crate) fn plus(&self, other: &Linear, factor: i64) -> Option<Linear> {
        let base = self.base.checked_add(other.base.checked_mul(factor)?)?;
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (id, value) = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(a), Some(b)) if a.0 == b.0 => {
                    let sum = (a.0, a.1.checked_add(b.1.checked_mul(factor)?)?);
                    left.next();
                    right.next();
                    sum
                }
                (Some(a), Some(b)) if a.0 < b.0 => {
                    let term = **a;
                    left.next();
                    term
                }
                (Some(a), None) => {
                    let term = **a;
                    left.next();
                    term
                }
                (_, Some(b)) => {
                    let term = (b.0, b.1.checked_mul(factor)?);
                    right.next();
                    term
                }
            };
            if value != 0 {
                terms.push((id, value));
            }
        }
        Some(Linear { terms, base })
    }

    pub(crate) fn plus_constant(&self, value: i64) -> Option<Linear> {
        Some(Linear { terms: self.terms.clone(), base: self.base.checked_add(value)? })
    }

    pub(crate) fn plus_atom(&self, id: Id, factor: i64) -> Option<Linear> {
        self.plus(&Linear::atom(id), factor)
    }

    pub(crate) fn times(&self, factor: i64) -> Option<Linear> {
        Linear::constant(0).plus(self, factor)
    }

    /// Returns `self - other`, or `None` if a number exceeds 64 bits.
    pub(crate) fn minus(&self, other: &Linear) -> Option<Linear> {
        self.plus(other, -1)
    }

    /// Returns the sum with the atom `id` replaced by the sum `by`, or `None` if a number exceeds 64 bits.
    pub(crate) fn replace(&self, id: Id, by: &Linear) -> Option<Linear> {
        match self.factor(id) {
            0 => Some(self.clone()),
            factor => self.plus_atom(id, factor.checked_neg()?)?.plus(by, factor),
        }
    }

    /// Divides a sum by `divisor`, which must divide the constant and all factors.
    pub(crate) fn divided(&self, divisor: i64) -> Linear {
        let terms = self.terms.iter().map(|(id, factor)| (*id, factor / divisor)).collect();
        Linear { terms, base: self.base / divisor }
    }
}

/// Returns the greatest common divisor of two numbers. If one of them is 0, returns the absolute value of the
/// other.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
