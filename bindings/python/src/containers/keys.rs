//! Keys: how they are found.
//!
//! The ABI says when two keys are the same: type and bits are equal, or they are strings or bytes of equal content. So
//! `1`, `1.0` and `True` are three keys, and str and bytes never meet. Objects are the same key if they are the same
//! object, which would make a tuple or another Python object a key that is never found again, since each is lowered to
//! a new native object. So where such a key is not found by identity, the keys of its type are compared in Python's way,
//! one after the other.

use anyfn::abi::{kTVMFFIBytes, kTVMFFIFunction, kTVMFFIStaticObjectBegin, kTVMFFIStr};
use anyfn::{Any, Dict, Map};
use pyo3_ffi as ffi;

use super::{Memo, Ref, lift_item, lower, native, raw};
use crate::lower::{At, lower_owned};
use crate::py::{self, Obj, Own, Res};
use crate::{callback, gil};

/// A Map or Dict.
pub(super) enum Mapping<'a> {
    /// An immutable one.
    Map(Ref<'a, Map>),
    /// A mutable one.
    Dict(Ref<'a, Dict>),
}

impl Mapping<'_> {
    /// The value of a key, by the ABI's rule.
    #[inline(always)]
    pub(super) fn get(&self, key: &Any) -> Res<Option<Any>> {
        with_hooks(key, || self.get_plain(key))
    }

    #[inline(always)]
    fn get_plain(&self, key: &Any) -> Res<Option<Any>> {
        match self {
            Mapping::Map(map) => native(map.get_any(key)).map(|found| found.cloned()),
            Mapping::Dict(dict) => native(dict.get_any(key)),
        }
    }

    /// Number of pairs.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Mapping::Map(map) => map.len(),
            Mapping::Dict(dict) => dict.len(),
        }
    }

    /// The pairs of this moment.
    pub(super) fn pairs(&self) -> Res<Vec<(Any, Any)>> {
        match self {
            Mapping::Map(map) => {
                let mut pairs = super::reserved(map.len())?;
                pairs.extend(map.iter_any().map(|(key, value)| (key.clone(), value.clone())));
                Ok(pairs)
            }
            Mapping::Dict(dict) => native(dict.try_snapshot()),
        }
    }

    /// The value of a Python object as a key.
    #[inline]
    pub(super) fn find(&self, key: Obj<'_>) -> Res<Option<Any>> {
        let lowered = lower_key(key, &At::Value)?;
        match self.get(&lowered)? {
            None if is_object(&lowered) => match self.same_key(&lowered, key)? {
                Some(same) => self.get(&same),
                None => Ok(None),
            },
            found => Ok(found),
        }
    }

    /// The key under which the pair of a Python object is or would be.
    pub(super) fn key_for(&self, key: Obj<'_>) -> Res<Any> {
        let lowered = lower_key(key, &At::Value)?;
        if is_object(&lowered)
            && self.get(&lowered)?.is_none()
            && let Some(same) = self.same_key(&lowered, key)?
        {
            return Ok(same);
        }
        Ok(lowered)
    }

    /// As [`Mapping::key_for`], for a key that is lowered already.
    pub(super) fn key_like(&self, lowered: Any) -> Res<Any> {
        if is_object(&lowered) && self.get(&lowered)?.is_none() {
            let key = python_key(&lowered)?;
            if let Some(same) = self.same_key(&lowered, key.obj())? {
                return Ok(same);
            }
        }
        Ok(lowered)
    }

    /// An object among the keys that is equal in Python's way.
    #[cold]
    fn same_key(&self, lowered: &Any, key: Obj<'_>) -> Res<Option<Any>> {
        for (candidate, _) in self.pairs()? {
            if raw(&candidate).type_index == raw(lowered).type_index
                && py::equal(python_key(&candidate)?.obj(), key)?
            {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }
}

/// Runs an operation for which a key's type may call hooks, which are native code.
#[cold]
#[inline(never)]
pub(super) fn hooked<T>(operation: impl FnOnce() -> T) -> T {
    gil::counted(operation)
}

/// Runs an operation on a key, hooks included.
#[inline]
pub(super) fn with_hooks<T>(key: &Any, operation: impl FnOnce() -> T) -> T {
    if is_object(key) { hooked(operation) } else { operation() }
}

/// A key as the Python object that it was made of.
fn python_key(key: &Any) -> Res<Own> {
    if raw(key).type_index != kTVMFFIFunction {
        return lift_item(key);
    }
    // SAFETY: a function is an object, which has its value in `v_obj`.
    let handle = unsafe { raw(key).value.v_obj };
    callback::python_callable(handle).map_or_else(|| lift_item(key), |callable| Ok(callable.to_own()))
}

/// Whether a key is found by its identity.
#[inline]
fn is_object(key: &Any) -> bool {
    let index = raw(key).type_index;
    index >= kTVMFFIStaticObjectBegin && !matches!(index, kTVMFFIStr | kTVMFFIBytes)
}

/// Lowers a key, which Python must be able to hash.
#[inline(always)]
pub(super) fn lower_key(key: Obj<'_>, at: &At<'_>) -> Res<Any> {
    if let Some(key) = lower::exact_int(key) {
        return Ok(key);
    }
    lower_other(key, at)
}

#[inline(never)]
fn lower_other(key: Obj<'_>, at: &At<'_>) -> Res<Any> {
    let held = key.to_own();
    if key.type_ptr() != &raw mut ffi::PyUnicode_Type {
        py::hash(key)?;
    }
    let fresh = Memo::new();
    lower_owned(held.obj(), &At::Key { of: at, memo: at.memo().unwrap_or(&fresh) })
}
