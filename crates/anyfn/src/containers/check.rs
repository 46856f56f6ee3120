//! Type checks of the elements of containers.

use alloc::format;
use alloc::string::ToString;

use super::Value;
use crate::{Any, Error, FromArg, Mismatch, Result, Schema};

/// Checks that each element is a `T`. `C` is the expected type of the container, and messages refer
/// to the container as `name`.
pub(super) fn check_items<C: FromArg, T: FromArg>(name: &str, items: &[Any]) -> Result<(), Mismatch> {
    if T::ALL {
        return Ok(());
    }
    for (index, item) in items.iter().enumerate() {
        if let Err(mismatch) = T::from_arg(item.view_ref()) {
            return Err(in_sequence(C::schema, name, index, mismatch));
        }
    }
    Ok(())
}

/// Converts the [`Mismatch`] of the element at `index` into a [`Mismatch`] of the whole sequence,
/// whose expected type is `schema`.
#[cold]
pub(super) fn in_sequence(schema: fn() -> Schema, name: &str, index: usize, mismatch: Mismatch) -> Mismatch {
    let got = format!("{name} whose element {index} is {}", mismatch.got());
    mismatch.inside(&format!("[{index}]"), schema().to_string(), got)
}

/// Checks that each pair has the types `K` and `V`. `C` is the expected type of the container, and
/// messages refer to the container as `name`.
pub(super) fn check_pairs<'a, C: FromArg, K: FromArg, V: FromArg>(
    name: &str,
    pairs: impl Iterator<Item = (&'a Any, &'a Any)>,
) -> Result<(), Mismatch> {
    if K::ALL && V::ALL {
        return Ok(());
    }
    for (key, value) in pairs {
        if let Err(mismatch) = K::from_arg(key.view_ref()) {
            return Err(of_key(C::schema, name, mismatch));
        }
        if let Err(mismatch) = V::from_arg(value.view_ref()) {
            return Err(of_value(C::schema, name, key, mismatch));
        }
    }
    Ok(())
}

/// Returns the error for a sequence whose element at `index` does not have the element type.
/// Messages refer to the sequence as `name`.
#[cold]
pub(super) fn wrong_element(name: &str, index: usize, mismatch: Mismatch) -> Error {
    mismatch.into_error(&format!("element {index} of the {name}"))
}

/// Converts a value that comes from a container to `T`. If this fails, the message begins with
/// `subject`, such as `a key of the Dict`.
#[inline]
pub(super) fn read<T: Value>(value: &Any, subject: &str) -> Result<T> {
    T::from_arg(value.view_ref()).map_err(|mismatch| mismatch.into_error(subject))
}

/// Converts the [`Mismatch`] of a key into a [`Mismatch`] of the whole mapping, whose expected type
/// is `schema`.
#[cold]
pub(super) fn of_key(schema: fn() -> Schema, name: &str, mismatch: Mismatch) -> Mismatch {
    let got = format!("{name} with a key that is {}", mismatch.got());
    mismatch.inside(".key", schema().to_string(), got)
}

/// Converts the [`Mismatch`] of the value of `key` into a [`Mismatch`] of the whole mapping, whose
/// expected type is `schema`.
#[cold]
pub(super) fn of_value(schema: fn() -> Schema, name: &str, key: &Any, mismatch: Mismatch) -> Mismatch {
    let got = format!("{name} with a value that is {}", mismatch.got());
    mismatch.inside(&format!("[{key:?}]"), schema().to_string(), got)
}
