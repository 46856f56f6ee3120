//! Comparison and hashing by all fields, which define `==`, `<` and the hash of values.

mod compare;
mod hash;

use core::cmp::Ordering;

use anyfn::{Any, Result};

pub use compare::{recursive_compare, recursive_equal};
pub use hash::recursive_hash;

/// Returns true if two values are equal, field by field.
#[anyfn::register("ffi.RecursiveEq")]
fn eq(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_equal(&lhs, &rhs)
}

/// Returns true if the first of two values is less than the second.
#[anyfn::register("ffi.RecursiveLt")]
fn lt(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_lt)
}

/// Returns true if the first of two values is less than or equal to the second.
#[anyfn::register("ffi.RecursiveLe")]
fn le(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_le)
}

/// Returns true if the first of two values is greater than the second.
#[anyfn::register("ffi.RecursiveGt")]
fn gt(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_gt)
}

/// Returns true if the first of two values is greater than or equal to the second.
#[anyfn::register("ffi.RecursiveGe")]
fn ge(lhs: Any, rhs: Any) -> Result<bool> {
    recursive_compare(&lhs, &rhs).map(Ordering::is_ge)
}

/// Returns a hash of a value that is consistent with `ffi.RecursiveEq`.
#[anyfn::register("ffi.RecursiveHash")]
fn hash_global(value: Any) -> Result<i64> {
    recursive_hash(&value).map(|hash| hash as i64)
}
