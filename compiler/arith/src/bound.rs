//! Constant bounds of integers.

use anyfn::DType;
use anyfn::abi::{kDLBool, kDLInt, kDLUInt};

/// Range of the integers from `min` to `max`, inclusive. [`NEG_INF`](Self::NEG_INF) and
/// [`POS_INF`](Self::POS_INF) represent infinite limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Smallest number in the range.
    pub min: i64,
    /// Largest number in the range.
    pub max: i64,
}

impl Bound {
    /// Value of `min` in a range without a lower limit.
    pub const NEG_INF: i64 = i64::MIN;
    /// Value of `max` in a range without an upper limit.
    pub const POS_INF: i64 = i64::MAX;
    /// Range of all numbers.
    pub const ANY: Bound = Bound { min: Self::NEG_INF, max: Self::POS_INF };

    /// Returns the number in the range if the range contains exactly one, and `None` otherwise.
    #[must_use]
    pub fn value(self) -> Option<i64> {
        (self.min == self.max && self.is_finite()).then_some(self.min)
    }

    /// Returns true if both limits are finite.
    #[must_use]
    pub fn is_finite(self) -> bool {
        self.min != Self::NEG_INF && self.max != Self::POS_INF
    }

    /// Returns true if the range `other` contains this range.
    #[must_use]
    pub fn is_within(self, other: Bound) -> bool {
        self.min >= other.min && self.max <= other.max
    }

    /// Returns the intersection of two ranges. Returns `self` if the intersection is empty, which only happens in
    /// unreachable code.
    #[must_use]
    pub fn intersect(self, other: Bound) -> Bound {
        let both = Bound { min: self.min.max(other.min), max: self.max.min(other.max) };
        if both.min <= both.max { both } else { self }
    }

    /// Returns the smallest range that contains both ranges.
    #[must_use]
    pub fn union(self, other: Bound) -> Bound {
        Bound { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// Returns the range of the values of an integer type. The limits of 64-bit types are treated as
    /// infinite.
    pub(crate) fn of_type(dtype: DType) -> Bound {
        let bits = u32::from(dtype.0.bits);
        match dtype.0.code {
            kDLBool => Bound { min: 0, max: 1 },
            kDLInt if bits < 64 => Bound { min: -(1 << (bits - 1)), max: (1 << (bits - 1)) - 1 },
            kDLUInt if bits < 64 => Bound { min: 0, max: (1 << bits) - 1 },
            kDLUInt => Bound { min: 0, max: Self::POS_INF },
            _ => Bound::ANY,
        }
    }

    pub(crate) const fn one(value: i64) -> Bound {
        Bound { min: value, max: value }
    }

    pub(crate) fn add(self, other: Bound) -> Bound {
        let limit = |a: i64, b: i64, infinite: i64| {
            if a == infinite || b == infinite { infinite } else { a.checked_add(b).unwrap_or(infinite) }
        };
        Bound { min: limit(self.min, other.min, Self::NEG_INF), max: limit(self.max, other.max, Self::POS_INF) }
    }

    pub(crate) fn mul(self, other: Bound) -> Bound {
        let corners = [
            product(self.min, other.min),
            product(self.min, other.max),
            product(self.max, other.min),
            product(self.max, other.max),
        ];
        Bound {
            min: corners.iter().copied().min().unwrap_or(Self::NEG_INF),
            max: corners.iter().copied().max().unwrap_or(Self::POS_INF),
        }
    }

    pub(crate) fn scale(self, factor: i64) -> Bound {
        self.mul(Bound::one(factor))
    }

    /// Returns the range of the quotients of this range's numbers and `divisor`, rounded down.
    /// `divisor` must be positive.
    pub(crate) fn floor_div(self, divisor: i64) -> Bound {
        let limit = |value: i64| {
            if value == Self::NEG_INF || value == Self::POS_INF { value } else { value.div_euclid(divisor) }
        };
        Bound { min: limit(self.min), max: limit(self.max) }
    }

    /// Returns the range of the quotients of this range's numbers and `divisor`, rounded towards
    /// zero. `divisor` must be positive.
    pub(crate) fn trunc_div(self, divisor: i64) -> Bound {
        let limit =
            |value: i64| if value == Self::NEG_INF || value == Self::POS_INF { value } else { value / divisor };
        Bound { min: limit(self.min), max: limit(self.max) }
    }

    pub(crate) fn min(self, other: Bound) -> Bound {
        Bound { min: self.min.min(other.min), max: self.max.min(other.max) }
    }

    pub(crate) fn max(self, other: Bound) -> Bound {
        Bound { min: self.min.max(other.min), max: self.max.max(other.max) }
    }
}

/// Multiplies two limits, which may be infinite. The product is infinite if it exceeds 64 bits.
fn product(a: i64, b: i64) -> i64 {
    if a == 0 || b == 0 {
        return 0;
    }
    let infinite = if (a < 0) == (b < 0) { Bound::POS_INF } else { Bound::NEG_INF };
    let is_infinite = |value: i64| value == Bound::NEG_INF || value == Bound::POS_INF;
    if is_infinite(a) || is_infinite(b) { infinite } else { a.checked_mul(b).unwrap_or(infinite) }
}
