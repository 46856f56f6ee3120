//! Shared, mutable mappings.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use alloc::vec::{self, Vec};

use anyfn_abi::kTVMFFIDict;

use super::Value;
use super::check::read;
use super::lock::{Locked, lock};
use super::mapping::{self, Added, Mapping};
use crate::{Any, AnyView, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, hash};

/// A mutable mapping of keys to values in insertion order. All references to a Dict share its pairs, across
/// threads and languages.
///
/// Each operation is atomic. Iteration and comparison use a snapshot of the pairs. Keys are compared in the same way
/// as those of a [`crate::Map`]. Types are checked when a pair is read, because code in another language may have
/// inserted values of any type.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Dict;
/// let dict: Dict<String, i64> = Dict::new();
/// let same = dict.clone();
/// dict.insert("one".to_string(), 1)?;
/// assert_eq!(same.get("one")?, Some(1));
/// assert!(same.remove("one")?.is_some());
/// assert!(dict.is_empty());
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
pub struct Dict<K = Any, V = Any> {
    object: ObjectRef,
    pairs: PhantomData<fn() -> (K, V)>,
}

/// Name of a key of a Dict in error messages.
const KEY: &str = "a key of the Dict";
const VALUE: &str = "a value of the Dict";

/// Guard that holds the lock of a Dict and gives access to its pairs.
struct Guard<'a> {
    mapping: Mapping<'a>,
    _lock: Locked<'a>,
}

impl<'a> Deref for Guard<'a> {
    type Target = Mapping<'a>;
    #[inline]
    fn deref(&self) -> &Mapping<'a> {
        &self.mapping
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.mapping
    }
}

/// Results of the keys' hash and equality hooks, collected during one operation on a Dict.
///
/// Hooks are foreign code and must not run under the lock. An operation that needs the result of a hook releases the
/// lock, calls the hook, and starts again with the result.
#[derive(Default)]
struct HookResults {
    /// Results of comparing other keys with the key that is looked up. Each entry keeps its key alive, so
    /// that no new key can get the same address.
    equal: Vec<(Any, bool)>,
    /// Hashes that hooks have computed, each with its key and the address of the key. The entries
    /// are sorted by address and keep their keys alive.
    hashes: Vec<(u64, Any, u64)>,
}

/// State of a lookup: the key, and the hook results collected so far.
struct Probe<'a> {
    key: &'a AnyView<'a>,
    /// Hash of the key if the key's type has a hash hook; otherwise `None`, and the hash is
    /// computed when it is needed.
    hash: Option<u64>,
    /// True if the type of the key has an equality hook.
    hooked: bool,
    told: HookResults,
}

/// Request for the result of a hook. An operation on a Dict stops when it needs such a result, and starts again
/// once the hook has been called.
enum Ask {
    /// Request to compare this key with the key that is looked up.
    Equal(Any),
    /// Request to hash these keys.
    Hashes(Vec<Any>),
}

impl<'a> Probe<'a> {
    fn new(key: &'a AnyView<'a>) -> Probe<'a> {
        let is_object = key.as_object().is_some();
        Probe {
            key,
            hash: (is_object && hash::has_hash_hook(key)).then(|| hash::any_hash(key)),
            hooked: is_object && hash::has_equal_hook(key),
            told: HookResults::default(),
        }
    }

    /// Returns the slot of the key that is looked up; `None` if the key is absent. If a hook must
    /// be called first, returns a request for the result of the hook as `Err`.
    #[inline]
    fn find(&self, mapping: &Mapping<'_>) -> Result<Option<u64>, Ask> {
        let layout = mapping.layout();
        if !self.hooked {
            return Ok(layout.find(self.key, self.hash, |other| hash::any_equal(other.view_ref(), self.key)));
        }
        let mut unknown = None;
        let at = layout.find(self.key, self.hash, |other| match self.is_equal(other) {
            Some(equal) => equal,
            None => {
                unknown = Some(other.clone());
                true
            }
        });
        unknown.map_or(Ok(at), |key| Err(Ask::Equal(key)))
    }

    /// Returns true if `other` equals the key that is looked up, and `None` if a hook has to be called first.
    fn is_equal(&self, other: &Any) -> Option<bool> {
        if other.type_index() != self.key.type_index() {
            return Some(false);
        }
        let bits = other.view_ref().bits();
        if bits == self.key.bits() {
            return Some(true);
        }
        let told = self.told.equal.iter().find(|(key, _)| key.view_ref().bits() == bits);
        told.map(|(_, equal)| *equal)
    }

    fn hash_of(&self, key: &Any) -> Option<u64> {
        let hashes = &self.told.hashes;
        let index = hashes.binary_search_by_key(&key.view_ref().bits(), |(bits, ..)| *bits).ok()?;
        Some(hashes[index].2)
    }

    /// Calls hooks to obtain the requested results, and stores the results. Must not be called while the lock
    /// of the Dict is held.
    #[cold]
    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Equal(other) => {
                let equal = hash::any_equal(other.view_ref(), self.key);
                self.told.equal.push((other, equal));
            }
            Ask::Hashes(keys) => {
                for key in keys {
                    let hash = hash::any_hash(key.view_ref());
                    self.told.hashes.push((key.view_ref().bits(), key, hash));
                }
                self.told.hashes.sort_unstable_by_key(|(bits, ..)| *bits);
            }
        }
    }
}

impl<K, V> Dict<K, V> {
    /// Creates an empty Dict.
    #[must_use]
    pub fn new() -> Dict<K, V> {
        let object = mapping::new_small(kTVMFFIDict, 0).unwrap_or_else(|error| panic!("{error}"));
        Self::from_object_unchecked(object)
    }

    /// Wraps an object that is known to be a Dict.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> Dict<K, V> {
        debug_assert_eq!(object.type_index(), kTVMFFIDict);
        Dict { object, pairs: PhantomData }
    }

    /// Creates a Dict from pairs, which are not checked against `K` and `V`.
    pub(super) fn from_values(pairs: Vec<(Any, Any)>) -> Result<Dict<K, V>> {
        mapping::from_pairs(kTVMFFIDict, pairs).map(Self::from_object_unchecked)
    }

    /// Creates a Dict from the pairs of an iterator. If a key occurs more than once, its last value is used.
    ///
    /// # Errors
    /// Returns an error if a key or value cannot be converted, and `MemoryError` if memory allocation fails.
    pub fn try_from_iter<A: IntoAny, B: IntoAny>(iter: impl IntoIterator<Item = (A, B)>) -> Result<Dict<K, V>> {
        Self::from_values(super::into_pairs(iter)?)
    }

    /// Acquires the lock. While it is held, the caller must not release values or run foreign code. If the
    /// caller has values to release, the variable that holds them must be declared before the guard, so that
    /// it is dropped after the lock is released.
    #[inline]
    fn lock(&self) -> Guard<'_> {
        // SAFETY: `self` keeps the object alive, and the flags of a Dict are only used through this lock.
        let lock = unsafe { lock(self.object.header()) };
        // SAFETY: the object is a Dict, and the lock makes this use exclusive.
        Guard { mapping: unsafe { mapping::mapping_of(&self.object) }, _lock: lock }
    }

    /// Returns the number of pairs.
    #[inline]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if there are no pairs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot of the pairs in insertion order, without converting them.
    pub fn snapshot(&self) -> Vec<(Any, Any)> {
        let mapping = self.lock();
        let mut pairs = Vec::with_capacity(mapping.len());
        pairs.extend(mapping.layout().iter().map(|(key, value)| (key.clone(), value.clone())));
        pairs
    }

    /// Returns the value of a key without converting it; `None` if the key is absent.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`.
    #[inline]
    pub fn get_any(&self, key: impl IntoArg) -> Result<Option<Any>> {
        super::with_view(key, |key| {
            let mut probe = Probe::new(key);
            loop {
                let ask = {
                    let mapping = self.lock();
                    match probe.find(&mapping) {
                        Ok(at) => return at.map(|at| mapping.layout().pair(at).1.clone()),
                        Err(ask) => ask,
                    }
                };
                probe.ask(ask);
            }
        })
    }

    /// Returns true if the Dict contains the key.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`.
    pub fn contains_key(&self, key: impl IntoArg) -> Result<bool> {
        Ok(self.get_any(key)?.is_some())
    }

    /// Sets the value of a key and returns the old value; `None` if the key was absent.
    fn set_any(&self, key: Any, value: Any) -> Result<Option<Any>> {
        let held = key.clone();
        let view = held.as_view();
        let mut probe = Probe::new(&view);
        let mut pair = Some((key, value));
        loop {
            let (_key, _old);
            let ask = {
                let mut mapping = self.lock();
                match probe.find(&mapping) {
                    Ok(Some(at)) => match pair.take() {
                        Some((key, value)) => {
                            _key = key;
                            return Ok(Some(mapping.replace(at, value)));
                        }
                        None => return Ok(None),
                    },
                    Ok(None) => match mapping.add(&mut pair, probe.hash, Some(&|key| probe.hash_of(key)))? {
                        Added::Done(old) => {
                            _old = old;
                            return Ok(None);
                        }
                        Added::NeedsHashes(keys) => Ask::Hashes(keys),
                    },
                    Err(ask) => ask,
                }
            };
            probe.ask(ask);
        }
    }

    /// Removes a key and returns its value; `None` if the key is absent.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`.
    pub fn remove(&self, key: impl IntoArg) -> Result<Option<Any>> {
        super::with_view(key, |key| {
            let mut probe = Probe::new(key);
            loop {
                let removed;
                let ask = {
                    let mut mapping = self.lock();
                    match probe.find(&mapping) {
                        Ok(None) => return None,
                        Ok(Some(at)) => {
                            removed = mapping.remove(at);
                            drop(mapping);
                            return Some(removed.1);
                        }
                        Err(ask) => ask,
                    }
                };
                probe.ask(ask);
            }
        })
    }

    /// Returns the value of `key`. If the key is absent, first inserts it with `value`.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn get_or_set(&self, key: Any, value: Any) -> Result<Any> {
        let held = key.clone();
        let view = held.as_view();
        let mut probe = Probe::new(&view);
        let mut pair = Some((key, value));
        loop {
            let _old;
            let ask = {
                let mut mapping = self.lock();
                match probe.find(&mapping) {
                    Ok(Some(at)) => return Ok(mapping.layout().pair(at).1.clone()),
                    Ok(None) => {
                        let value = pair.as_ref().map(|pair| pair.1.clone()).unwrap_or_default();
                        match mapping.add(&mut pair, probe.hash, Some(&|key| probe.hash_of(key)))? {
                            Added::Done(old) => {
                                _old = old;
                                return Ok(value);
                            }
                            Added::NeedsHashes(keys) => Ask::Hashes(keys),
                        }
                    }
                    Err(ask) => ask,
                }
            };
            probe.ask(ask);
        }
    }

    /// Removes the newest pair, if any, and returns it.
    pub fn pop_last(&self) -> Option<(Any, Any)> {
        let mut mapping = self.lock();
        let at = mapping.last()?;
        Some(mapping.remove(at))
    }

    /// Returns an iterator over the pairs that does not acquire the lock.
    ///
    /// # Safety
    /// The Dict must not change while the result is alive.
    pub unsafe fn iter_unlocked(&self) -> impl Iterator<Item = (&Any, &Any)> {
        // SAFETY: the object is a Dict, and the caller guarantees that it does not change.
        unsafe { mapping::layout_of(&self.object) }.iter()
    }

    /// Returns a snapshot of the pairs like [`Dict::snapshot`], but reports a failed allocation as an error.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn try_snapshot(&self) -> Result<Vec<(Any, Any)>> {
        let mut pairs = Vec::new();
        let mapping = self.lock();
        pairs
            .try_reserve_exact(mapping.len())
            .map_err(|_| crate::Error::new("MemoryError", "cannot copy the Dict: out of memory"))?;
        pairs.extend(mapping.layout().iter().map(|(key, value)| (key.clone(), value.clone())));
        Ok(pairs)
    }

    /// Creates a Dict from pairs. If a key occurs more than once, its last value is used.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn from_vec(pairs: Vec<(Any, Any)>) -> Result<Dict<K, V>> {
        Self::from_values(pairs)
    }

    /// Removes all pairs.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn clear(&self) -> Result<()> {
        let removed = self.lock().take_all()?;
        drop(removed);
        Ok(())
    }

    /// Converts the Dict into an object reference.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// Returns the Dict as a borrowed object reference.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<K: FromArg, V: FromArg> Dict<K, V> {
    /// Casts a Dict object to a Dict of `K` and `V`.
    ///
    /// # Errors
    /// Returns the object if it is not a Dict or if a pair does not have the types `K` and `V`.
    pub fn try_from_object(object: ObjectRef) -> Result<Dict<K, V>, ObjectRef> {
        if object.type_index() != kTVMFFIDict {
            return Err(object);
        }
        let dict = Self::from_object_unchecked(object);
        match dict.check() {
            Ok(()) => Ok(dict),
            Err(_) => Err(dict.object),
        }
    }

    /// Checks that each current pair has the types `K` and `V`.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        if K::ALL && V::ALL {
            return Ok(());
        }
        let pairs = self.snapshot();
        super::check::check_pairs::<Self, K, V>("Dict", pairs.iter().map(|(key, value)| (key, value)))
    }
}

impl<K: Value, V: Value> Dict<K, V> {
    /// Returns the value of a key; `None` if the key is absent.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`, and a conversion error, such as `TypeError`, if the
    /// value is not a `V`.
    #[inline]
    pub fn get(&self, key: impl IntoArg) -> Result<Option<V>> {
        self.get_any(key)?.map(|value| read(&value, VALUE)).transpose()
    }

    /// Returns the value of a key, or an error if the key is absent.
    ///
    /// # Errors
    /// Returns `KeyError` if the key is absent, and otherwise the errors of [`Dict::get`].
    pub fn at(&self, key: impl IntoArg) -> Result<V> {
        self.get(key)?.ok_or_else(mapping::missing_key)
    }

    /// Sets the value of a key and returns the old value; `None` if the key was absent. An existing
    /// key keeps its position in the order.
    ///
    /// # Errors
    /// Returns an error if the key or value cannot be converted, and `MemoryError` if memory allocation fails.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Result<Option<Any>> {
        self.set_any(key.into_any()?, value.into_any()?)
    }

    /// Inserts the pairs of an iterator one by one, not in one atomic operation.
    ///
    /// # Errors
    /// Returns the error of [`Dict::insert`]; the pairs before the one that failed have been inserted.
    pub fn extend(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value).map(drop))
    }

    /// Returns an iterator over a snapshot of the pairs, in insertion order.
    pub fn iter(&self) -> DictIter<K, V> {
        DictIter { pairs: self.snapshot().into_iter(), kind: PhantomData }
    }

    /// Returns a snapshot of the keys, in insertion order.
    ///
    /// # Errors
    /// Returns a conversion error, such as `TypeError`, if a key is not a `K`.
    pub fn keys(&self) -> Result<Vec<K>> {
        self.snapshot().iter().map(|(key, _)| read(key, KEY)).collect()
    }

    /// Returns a snapshot of the values, in insertion order of their keys.
    ///
    /// # Errors
    /// Returns a conversion error, such as `TypeError`, if a value is not a `V`.
    pub fn values(&self) -> Result<Vec<V>> {
        self.snapshot().iter().map(|(_, value)| read(value, VALUE)).collect()
    }
}

impl<K, V> Clone for Dict<K, V> {
    /// Returns another reference to the same Dict.
    #[inline]
    fn clone(&self) -> Self {
        Self::from_object_unchecked(self.object.clone())
    }
}

impl<K, V> Default for Dict<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Compares snapshots of two Dicts. They are equal if they have the same keys with equal values, in
/// any order.
impl<K, V, K2, V2> PartialEq<Dict<K2, V2>> for Dict<K, V> {
    fn eq(&self, other: &Dict<K2, V2>) -> bool {
        if self.object.ptr_eq(&other.object) {
            return true;
        }
        let maps = (
            crate::Map::<Any, Any>::from_values(self.snapshot()),
            crate::Map::<Any, Any>::from_values(other.snapshot()),
        );
        matches!(maps, (Ok(left), Ok(right)) if left == right)
    }
}

impl<K, V> fmt::Debug for Dict<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.snapshot()).finish()
    }
}

/// Creates a Dict from an iterator. Panics if a key or value cannot be converted or memory allocation fails;
/// see [`Dict::try_from_iter`].
impl<K: IntoAny, V: IntoAny> FromIterator<(K, V)> for Dict<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Inserts the pairs of an iterator. Panics if a key or value cannot be converted or memory allocation fails;
/// see [`Dict::extend`].
impl<K: Value, V: Value> Extend<(K, V)> for Dict<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        Dict::<K, V>::extend(self, pairs).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Creates a Dict from an array of pairs. Panics if a key or value cannot be converted or memory allocation
/// fails; see [`Dict::try_from_iter`].
impl<K: IntoAny, V: IntoAny, const N: usize> From<[(K, V); N]> for Dict<K, V> {
    fn from(pairs: [(K, V); N]) -> Self {
        pairs.into_iter().collect()
    }
}

/// An iterator over a snapshot of the pairs of a [`Dict`]. It yields an error for a pair that does not have the types
/// `K` and `V`.
pub struct DictIter<K = Any, V = Any> {
    pairs: vec::IntoIter<(Any, Any)>,
    kind: PhantomData<fn() -> (K, V)>,
}

impl<K: Value, V: Value> Iterator for DictIter<K, V> {
    type Item = Result<(K, V)>;
    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.pairs.next()?;
        Some(read(&key, KEY).and_then(|key| Ok((key, read(&value, VALUE)?))))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pairs.size_hint()
    }
}

impl<K: Value, V: Value> ExactSizeIterator for DictIter<K, V> {}
impl<K: Value, V: Value> FusedIterator for DictIter<K, V> {}

impl<K: Value, V: Value> IntoIterator for &Dict<K, V> {
    type Item = Result<(K, V)>;
    type IntoIter = DictIter<K, V>;
    fn into_iter(self) -> DictIter<K, V> {
        self.iter()
    }
}
