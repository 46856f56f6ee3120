//! Comparison and hash by all fields: what `==`, `<` and a hash of values mean.

mod compare;
mod hash;

use core::cmp::Ordering;

use anyfn::{Any, Result};

pub use compare::{recursive_compare, recursive_equal};
pub use hash::recursive_hash;

/// Whether two values are equal, field by field.
#[anyfn::register("ffi.RecursiveEq")]
fn eq(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_equal(&lhs, &rhs)
}

/// Whether the first of two values comes before the second.
#[anyfn::register("ffi.RecursiveLt")]
fn lt(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_lt)
}

/// Whether the first of two values comes before the second or is equal to it.
#[anyfn::register("ffi.RecursiveLe")]
fn le(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_le)
}

/// Whether the first of two values comes after the second.
#[anyfn::register("ffi.RecursiveGt")]
fn gt(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_gt)
}

/// Whether the first of two values comes after the second or is equal to it.
#[anyfn::register("ffi.RecursiveGe")]
fn ge(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_ge)
}

/// Hash that goes with `ffi.RecursiveEq`.
#[anyfn::register("ffi.RecursiveHash")]
fn hash_global(value: Any) -> Result<i64> {
    recursive_hash(&value).map(|hash| hash as i64)
}
