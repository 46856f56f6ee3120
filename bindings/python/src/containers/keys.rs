//! Lookup of keys in Maps and Dicts.
//!
//! The ABI defines when two keys are the same: their type and bits are equal, or they are strings or bytes with equal
//! content. So `1`, `1.0` and `True` are three keys, and a str never equals bytes. Objects are the same key only if
//! they are the same object. A tuple or another Python object would thus never be found again as a key, since each is
//! converted to a new native object. If such a key is not found by identity, it is therefore compared with the keys of
//! its type one by one, with Python's equality.

use anyfn::abi::{kTVMFFIBytes, kTVMFFIFunction, kTVMFFIStaticObjectBegin, kTVMFFIStr};
use anyfn::{Any, Dict, Map};

use super::base::{DICT, MAP, Ref, borrow_if, lift_item, native, raw};
use crate::at::At;
use crate::loops::reserved;
use crate::owned::lower_key;
use crate::py::{self, Obj, Own, Res};
use crate::{gil, python_function};

/// A borrowed Map or Dict, in which keys are looked up.
pub(super) enum Mapping<'a> {
    /// An immutable mapping.
    Map(Ref<'a, Map>),
    /// A mutable mapping.
    Dict(Ref<'a, Dict>),
}

impl Mapping<'_> {
    /// Looks up a key by the rules of the ABI and returns its value.
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

    /// Returns the number of pairs in the mapping.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Mapping::Map(map) => map.len(),
            Mapping::Dict(dict) => dict.len(),
        }
    }

    /// Returns a snapshot of the pairs in the mapping.
    pub(super) fn pairs(&self) -> Res<Vec<(Any, Any)>> {
        match self {
            Mapping::Map(map) => {
                let mut pairs = reserved(map.len())?;
                pairs.extend(map.iter_any().map(|(key, value)| (key.clone(), value.clone())));
                Ok(pairs)
            }
            Mapping::Dict(dict) => native(dict.try_snapshot()),
        }
    }

    /// Returns the value that is stored under a Python key. If the rules of the ABI find no equal
    /// key and the native key is an object, the Python key is compared with the stored keys of the
    /// same type by Python's equality.
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

    /// Returns the native key for a Python key: the equal key if the mapping contains one, and
    /// otherwise the converted Python key.
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

    /// Returns the key in the mapping that equals the native key `lowered`, or `lowered` itself if
    /// the mapping contains no equal key. [`Mapping::key_for`] does the same for a key that is
    /// still a Python object.
    pub(super) fn key_like(&self, lowered: Any) -> Res<Any> {
        if is_object(&lowered) && self.get(&lowered)?.is_none() {
            let key = python_key(&lowered)?;
            if let Some(same) = self.same_key(&lowered, key.obj())? {
                return Ok(same);
            }
        }
        Ok(lowered)
    }

    /// Returns the key of this mapping that equals `key` by Python's rules, if one exists.
    /// `lowered` is the native form of `key`. Only keys of the same native type as `lowered` are
    /// considered.
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

/// Returns the native mapping of an object, or `None` if the object is neither a Map nor a Dict.
pub(super) fn native_mapping(object: Obj<'_>) -> Option<Mapping<'_>> {
    match borrow_if(object, &MAP) {
        Some(map) => Some(Mapping::Map(map)),
        None => borrow_if(object, &DICT).map(Mapping::Dict),
    }
}

/// Returns the native mapping of an instance of Map or Dict.
pub(super) fn mapping_of(object: Obj<'_>) -> Res<Mapping<'_>> {
    match native_mapping(object) {
        Some(mapping) => Ok(mapping),
        None => py::raise(py::exceptions::type_error(), "expected a Map or Dict"),
    }
}

/// Runs an operation that may call the hooks of a key's type, such as a hook for hashing. Hooks are native
/// code, so they run within a [`gil::Use`], which marks a use of native objects.
#[cold]
#[inline(never)]
pub(super) fn hooked<T>(operation: impl FnOnce() -> T) -> T {
    gil::counted(operation)
}

/// Runs an operation on `key`, through [`hooked`] if the operation may call hooks of the key's type.
#[inline]
pub(super) fn with_hooks<T>(key: &Any, operation: impl FnOnce() -> T) -> T {
    if is_object(key) { hooked(operation) } else { operation() }
}

/// Returns the Python object of a native key. For a function that was made from a Python callable,
/// this is the callable.
fn python_key(key: &Any) -> Res<Own> {
    if raw(key).type_index != kTVMFFIFunction {
        return lift_item(key);
    }
    // SAFETY: a function is an object, which has its value in `v_obj`.
    let handle = unsafe { raw(key).value.v_obj };
    python_function::python_callable(handle).map_or_else(|| lift_item(key), |callable| Ok(callable.to_own()))
}

/// Returns true if a key is an object that the ABI compares by identity. Strings and bytes are
/// compared by content.
#[inline]
fn is_object(key: &Any) -> bool {
    let index = raw(key).type_index;
    index >= kTVMFFIStaticObjectBegin && !matches!(index, kTVMFFIStr | kTVMFFIBytes)
}
