//! Shared, mutable mappings.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use alloc::collections::BTreeMap;
use alloc::vec::{self, Vec};

use anyfn_abi::kTVMFFIDict;

use super::Value;
use super::lock::{Locked, lock};
use super::mapping::{self, Added, Mapping};
use crate::{Any, AnyView, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, hash};

/// A mutable mapping of keys to values in insertion order that all holders share, from any thread and language.
///
/// Each operation is atomic; iteration and comparison see the pairs of one moment. Keys are equal as those of a
/// [`crate::Map`] are. Types are checked when a pair is read, since code of another language may have put in anything.
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

/// The pairs of a Dict under its lock.
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

/// What hooks have told about keys so far.
///
/// Hooks are code of others and must not run under the lock. An operation that meets a key for which one is needed
/// gives the lock back, asks the hook, and begins again, knowing more.
#[derive(Default)]
struct Told {
    /// Keys that were compared with the one that is looked for. Held, so that no other key gets their address.
    equal: Vec<(Any, bool)>,
    /// Hashes of keys, by the address of the key.
    hashes: BTreeMap<u64, (Any, u64)>,
}

/// A key that is looked for.
struct Probe<'a> {
    key: &'a AnyView<'a>,
    /// The hash, if a hook may have to compute it; else it is computed when needed.
    hash: Option<u64>,
    /// Whether keys of its type are compared by a hook.
    hooked: bool,
    told: Told,
}

/// Why an operation has to begin again: what it needs to be told.
enum Ask {
    /// Whether this key equals the one that is looked for.
    Equal(Any),
    /// The hashes of these keys.
    Hashes(Vec<Any>),
}

impl<'a> Probe<'a> {
    fn new(key: &'a AnyView<'a>) -> Probe<'a> {
        let is_object = key.as_object().is_some();
        Probe {
            key,
            hash: (is_object && hash::has_hash_hook(key)).then(|| hash::any_hash(key)),
            hooked: is_object && hash::has_equal_hook(key),
            told: Told::default(),
        }
    }

    /// The place of the key, or the key that a hook has to compare first.
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

    /// Whether a key equals the one that is looked for, as far as that is known.
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
        self.told.hashes.get(&key.view_ref().bits()).map(|(_, hash)| *hash)
    }

    /// Asks hooks. Not to be called under the lock.
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
                    self.told.hashes.insert(key.view_ref().bits(), (key, hash));
                }
            }
        }
    }
}

impl<K, V> Dict<K, V> {
    /// Makes an empty Dict.
    #[must_use]
    pub fn new() -> Dict<K, V> {
        let object = mapping::new_small(kTVMFFIDict, 0).unwrap_or_else(|error| panic!("{error}"));
        Self::from_object_unchecked(object)
    }

    /// Takes an object that is known to be a Dict.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> Dict<K, V> {
        debug_assert_eq!(object.type_index(), kTVMFFIDict);
        Dict { object, pairs: PhantomData }
    }

    /// Makes a Dict of pairs; they are not checked against `K` and `V`.
    pub(super) fn from_values(pairs: Vec<(Any, Any)>) -> Result<Dict<K, V>> {
        mapping::from_pairs(kTVMFFIDict, pairs).map(Self::from_object_unchecked)
    }

    /// Makes a Dict of all pairs that an iterator gives; the last value of a key counts.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits; `MemoryError` when memory is short.
    pub fn try_from_iter<A: IntoAny, B: IntoAny>(iter: impl IntoIterator<Item = (A, B)>) -> Result<Dict<K, V>> {
        Self::from_values(super::into_pairs(iter)?)
    }

    /// Takes the lock. While it is held no value is released and no code of others runs; what is to be released is
    /// therefore declared before it.
    #[inline]
    fn lock(&self) -> Guard<'_> {
        // SAFETY: `self` keeps the object alive; all use of a Dict's flags is by this lock.
        let lock = unsafe { lock(self.object.header()) };
        // SAFETY: the object is a Dict, and the lock makes this use exclusive.
        Guard { mapping: unsafe { mapping::mapping_of(&self.object) }, _lock: lock }
    }

    /// Number of pairs.
    #[inline]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pairs of this moment, as values.
    pub fn snapshot(&self) -> Vec<(Any, Any)> {
        let mapping = self.lock();
        let mut pairs = Vec::with_capacity(mapping.len());
        pairs.extend(mapping.layout().iter().map(|(key, value)| (key.clone(), value.clone())));
        pairs
    }

    /// The value of a key, as a value.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits.
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

    /// Whether there is a pair with this key.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits.
    pub fn contains_key(&self, key: impl IntoArg) -> Result<bool> {
        Ok(self.get_any(key)?.is_some())
    }

    /// Sets the value of a key; gives the old one.
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

    /// Removes the pair of a key; gives its value.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits.
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

    /// The value of a key, which is set to `value` first if it is not there.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
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

    /// Removes the newest pair, if there is one.
    pub fn pop_last(&self) -> Option<(Any, Any)> {
        let mut mapping = self.lock();
        let at = mapping.last()?;
        Some(mapping.remove(at))
    }

    /// The pairs, read without the lock.
    ///
    /// # Safety
    /// Nothing may change the Dict as long as the result lives.
    pub unsafe fn iter_unlocked(&self) -> impl Iterator<Item = (&Any, &Any)> {
        // SAFETY: a Dict, and the caller guarantees that it does not change.
        unsafe { mapping::layout_of(&self.object) }.iter()
    }

    /// As [`Dict::snapshot`], of a Dict of any size.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn try_snapshot(&self) -> Result<Vec<(Any, Any)>> {
        let mut pairs = Vec::new();
        let mapping = self.lock();
        pairs
            .try_reserve_exact(mapping.len())
            .map_err(|_| crate::Error::new("MemoryError", "no memory for a copy of the Dict"))?;
        pairs.extend(mapping.layout().iter().map(|(key, value)| (key.clone(), value.clone())));
        Ok(pairs)
    }

    /// Makes a Dict of pairs; the last value of a key counts.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn from_vec(pairs: Vec<(Any, Any)>) -> Result<Dict<K, V>> {
        Self::from_values(pairs)
    }

    /// Removes all pairs.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn clear(&self) -> Result<()> {
        let removed = self.lock().take_all()?;
        drop(removed);
        Ok(())
    }

    /// The Dict as an object.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// The Dict as an object, borrowed.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<K: FromArg, V: FromArg> Dict<K, V> {
    /// A Dict object as a Dict of `K` and `V`.
    ///
    /// # Errors
    /// The object itself, if it is none or a pair does not fit.
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

    /// Checks that each pair fits at this moment.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        if K::ALL && V::ALL {
            return Ok(());
        }
        let pairs = self.snapshot();
        super::convert::check_pairs::<Self, K, V>("Dict", pairs.iter().map(|(key, value)| (key, value)))
    }
}

impl<K: Value, V: Value> Dict<K, V> {
    /// The value of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// `TypeError` if it is not a `V`; `OverflowError` for an integer key beyond 64 signed bits.
    #[inline]
    pub fn get(&self, key: impl IntoArg) -> Result<Option<V>> {
        self.get_any(key)?.map(|value| value.get::<V>()).transpose()
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// `KeyError` if there is no such key; else as [`Dict::get`].
    pub fn at(&self, key: impl IntoArg) -> Result<V> {
        self.get(key)?.ok_or_else(mapping::missing_key)
    }

    /// Sets the value of a key and gives the old one. A key that is there keeps its place in the order.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits; `MemoryError` when memory is short.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Result<Option<Any>> {
        self.set_any(key.into_any()?, value.into_any()?)
    }

    /// Sets all pairs that an iterator gives, one after the other.
    ///
    /// # Errors
    /// As [`Dict::insert`]; the pairs before the one that failed are set.
    pub fn extend(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value).map(drop))
    }

    /// The pairs of this moment, in insertion order.
    pub fn iter(&self) -> DictIter<K, V> {
        DictIter { pairs: self.snapshot().into_iter(), kind: PhantomData }
    }

    /// The keys of this moment, in insertion order.
    ///
    /// # Errors
    /// `TypeError` if one is not a `K`.
    pub fn keys(&self) -> Result<Vec<K>> {
        self.snapshot().iter().map(|(key, _)| key.get::<K>()).collect()
    }

    /// The values of this moment, in insertion order of their keys.
    ///
    /// # Errors
    /// `TypeError` if one is not a `V`.
    pub fn values(&self) -> Result<Vec<V>> {
        self.snapshot().iter().map(|(_, value)| value.get::<V>()).collect()
    }
}

impl<K, V> Clone for Dict<K, V> {
    /// Another reference to the same Dict.
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

/// Dicts are equal if they have equal values for the same keys, in whichever order, each Dict's at one moment.
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

/// Panics for an integer beyond 64 signed bits and when memory is short; see [`Dict::try_from_iter`].
impl<K: IntoAny, V: IntoAny> FromIterator<(K, V)> for Dict<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The pairs that a [`Dict`] had at one moment. A pair that does not fit gives a `TypeError`.
pub struct DictIter<K = Any, V = Any> {
    pairs: vec::IntoIter<(Any, Any)>,
    kind: PhantomData<fn() -> (K, V)>,
}

impl<K: Value, V: Value> Iterator for DictIter<K, V> {
    type Item = Result<(K, V)>;
    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.pairs.next()?;
        Some(key.get::<K>().and_then(|key| Ok((key, value.get::<V>()?))))
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
