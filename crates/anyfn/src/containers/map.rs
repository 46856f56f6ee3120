//! Immutable mappings.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use alloc::vec::Vec;

use anyfn_abi::kTVMFFIMap;

use super::mapping::{self, Layout, Mapping};
use crate::{Any, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, hash};

/// A mapping of keys to values in insertion order, with copy-on-write semantics: clones share the pairs until one
/// clone is changed.
///
/// Two keys are equal if they have the same type and the same bits, if they are strings or bytes with equal content, or
/// if the equality hook of their type reports that they are equal. So `1`, `1.0` and `true` are three different keys.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Map;
/// let mut map: Map<&str, i64> = [("one", 1), ("two", 2)].into_iter().collect();
/// assert_eq!(map.get("two")?, Some(2));
/// map.insert("three", 3)?;
/// let keys: Vec<&str> = map.iter().map(|(key, _)| key).collect();
/// assert_eq!(keys, ["one", "two", "three"]);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
pub struct Map<K = Any, V = Any> {
    object: ObjectRef,
    pairs: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Map<K, V> {
    /// Creates an empty Map.
    #[must_use]
    pub fn new() -> Map<K, V> {
        let object = mapping::new_small(kTVMFFIMap, 0).unwrap_or_else(|error| panic!("{error}"));
        Self::from_object_unchecked(object)
    }

    /// Wraps an object that is known to be a Map of `K` and `V`.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> Map<K, V> {
        debug_assert_eq!(object.type_index(), kTVMFFIMap);
        Map { object, pairs: PhantomData }
    }

    /// Creates a Map from pairs, which are not checked against `K` and `V`.
    pub(super) fn from_values(pairs: Vec<(Any, Any)>) -> Result<Map<K, V>> {
        mapping::from_pairs(kTVMFFIMap, pairs).map(Self::from_object_unchecked)
    }

    /// Creates a Map from the pairs of an iterator. If a key occurs more than once, its last value is used.
    ///
    /// # Errors
    /// Returns an error if a key or value cannot be converted, and `MemoryError` if memory allocation fails.
    pub fn try_from_iter<A: IntoAny, B: IntoAny>(iter: impl IntoIterator<Item = (A, B)>) -> Result<Map<K, V>> {
        Self::from_values(super::into_pairs(iter)?)
    }

    #[inline]
    fn layout(&self) -> Layout<'_> {
        // SAFETY: a Map changes only through `&mut self`, and only while no other reference to it exists.
        unsafe { mapping::layout_of(&self.object) }
    }

    /// Returns the number of pairs.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: a Map changes only through `&mut self`, and only while no other reference to it exists.
        unsafe { mapping::len_of(&self.object) }
    }

    /// Returns true if there are no pairs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a key without converting it; `None` if the key is absent.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`.
    #[inline]
    pub fn get_any(&self, key: impl IntoArg) -> Result<Option<&Any>> {
        super::with_view(key, |key| {
            let layout = self.layout();
            let at = layout.find(key, None, |other| hash::any_equal(other.view_ref(), key))?;
            Some(layout.pair(at).1)
        })
    }

    /// Returns true if the Map contains the key.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`.
    pub fn contains_key(&self, key: impl IntoArg) -> Result<bool> {
        Ok(self.get_any(key)?.is_some())
    }

    /// Returns an iterator over the pairs in insertion order, without converting them.
    pub fn iter_any(&self) -> impl Iterator<Item = (&Any, &Any)> + Clone {
        self.layout().iter()
    }

    /// Returns the pair at `place` and advances `place` to the next pair; `None` at the end.
    ///
    /// This is for loops that cannot borrow the Map. Each call must refer to the same, unchanged Map; otherwise
    /// it is unspecified which pairs are returned.
    #[inline]
    pub fn next_pair(&self, place: &mut MapCursor) -> Option<(&Any, &Any)> {
        // SAFETY: a Map changes only through `&mut self`, and only while no other reference to it exists.
        unsafe { next_pair(&self.object, place) }
    }

    /// Creates a Map from pairs. If a key occurs more than once, its last value is used.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn from_vec(pairs: Vec<(Any, Any)>) -> Result<Map<K, V>> {
        Self::from_values(pairs)
    }

    /// Returns exclusive access to the pairs. Copies the pairs first if the Map is shared.
    fn make_mut(&mut self) -> Result<Mapping<'_>> {
        if !self.object.is_unique() {
            // SAFETY: a Map with several references does not change.
            self.object = unsafe { mapping::copy_of(&self.object) }?;
        }
        // SAFETY: this is the only reference, and `self` is borrowed exclusively.
        Ok(unsafe { mapping::mapping_of(&self.object) })
    }

    /// Removes the pair of a key. Returns true if the key was present.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`, and `MemoryError` if memory allocation fails.
    pub fn remove(&mut self, key: impl IntoArg) -> Result<bool> {
        let at = super::with_view(key, |key| {
            self.layout().find(key, None, |other| hash::any_equal(other.view_ref(), key))
        })?;
        let Some(at) = at else { return Ok(false) };
        // A copy has its pairs in the same slots.
        let removed = self.make_mut()?.remove(at);
        drop(removed);
        Ok(true)
    }

    /// Removes all pairs.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn clear(&mut self) -> Result<()> {
        self.object = mapping::new_small(kTVMFFIMap, 0)?;
        Ok(())
    }

    /// Converts the Map into an object reference.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// Returns the Map as a borrowed object reference.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<K: FromArg, V: FromArg> Map<K, V> {
    /// Returns the value of a key; `None` if the key is absent.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `key`, and a conversion error if the value is no longer a `V`;
    /// see [`Map::iter`].
    #[inline]
    pub fn get(&self, key: impl IntoArg) -> Result<Option<V::Arg<'_>>> {
        match self.get_any(key)? {
            Some(value) => V::from_arg(value.view_ref())
                .map(Some)
                .map_err(|mismatch| mismatch.into_error("a value of the Map")),
            None => Ok(None),
        }
    }

    /// Returns the value of a key, or an error if the key is absent.
    ///
    /// # Errors
    /// Returns `KeyError` if the key is absent, and otherwise the errors of [`Map::get`].
    pub fn at(&self, key: impl IntoArg) -> Result<V::Arg<'_>> {
        self.get(key)?.ok_or_else(mapping::missing_key)
    }

    /// Returns an iterator over the pairs in insertion order.
    ///
    /// # Panics
    /// The iterator panics at a key or value that is a List or Dict and was changed so that it no longer has the type
    /// `K` or `V`. [`Map::get`] returns an error for such a value.
    #[inline]
    pub fn iter(&self) -> MapIter<'_, K, V> {
        MapIter { pairs: self.layout().iter(), left: self.len(), kind: PhantomData }
    }

    /// Returns an iterator over the keys in insertion order.
    pub fn keys(&self) -> impl Iterator<Item = K::Arg<'_>> {
        self.layout().iter().map(|(key, _)| read::<K>(key))
    }

    /// Returns an iterator over the values in insertion order of their keys.
    pub fn values(&self) -> impl Iterator<Item = V::Arg<'_>> {
        self.layout().iter().map(|(_, value)| read::<V>(value))
    }

    /// Casts a Map object to a Map of `K` and `V`.
    ///
    /// # Errors
    /// Returns the object if it is not a Map or if a pair does not have the types `K` and `V`.
    pub fn try_from_object(object: ObjectRef) -> Result<Map<K, V>, ObjectRef> {
        if object.type_index() != kTVMFFIMap {
            return Err(object);
        }
        let map = Self::from_object_unchecked(object);
        match map.check() {
            Ok(()) => Ok(map),
            Err(_) => Err(map.object),
        }
    }

    /// Checks that each pair has the types `K` and `V`.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        super::check::check_pairs::<Self, K, V>("Map", self.layout().iter())
    }
}

impl<K: IntoAny, V: IntoAny> Map<K, V> {
    /// Sets the value of a key. An existing key keeps its position in the order.
    ///
    /// # Errors
    /// Returns an error if the key or value cannot be converted, and `MemoryError` if memory allocation fails.
    pub fn insert(&mut self, key: K, value: V) -> Result<()> {
        let (key, value) = (key.into_any()?, value.into_any()?);
        self.make_mut()?.set(key, value)
    }

    /// Inserts the pairs of an iterator.
    ///
    /// # Errors
    /// Returns the error of [`Map::insert`]; the pairs before the one that failed have been inserted.
    pub fn extend(&mut self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }
}

impl<K, V> Clone for Map<K, V> {
    #[inline]
    fn clone(&self) -> Self {
        Self::from_object_unchecked(self.object.clone())
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Compares the pairs. Maps are equal if they have the same keys with equal values, in any order.
impl<K, V, K2, V2> PartialEq<Map<K2, V2>> for Map<K, V> {
    fn eq(&self, other: &Map<K2, V2>) -> bool {
        self.object.ptr_eq(&other.object)
            || self.len() == other.len()
                && self
                    .iter_any()
                    .all(|(key, value)| matches!(other.get_any(key), Ok(Some(found)) if found == value))
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter_any()).finish()
    }
}

/// Creates a Map from an iterator. Panics if a key or value cannot be converted or memory allocation fails; see
/// [`Map::try_from_iter`].
impl<K: IntoAny, V: IntoAny> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Inserts the pairs of an iterator. Panics if a key or value cannot be converted or memory allocation fails;
/// see [`Map::extend`].
impl<K: IntoAny, V: IntoAny> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        Map::<K, V>::extend(self, pairs).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Creates a Map from an array of pairs. Panics if a key or value cannot be converted or memory allocation
/// fails; see [`Map::try_from_iter`].
impl<K: IntoAny, V: IntoAny, const N: usize> From<[(K, V); N]> for Map<K, V> {
    fn from(pairs: [(K, V); N]) -> Self {
        pairs.into_iter().collect()
    }
}

#[inline]
fn read<T: FromArg>(value: &Any) -> T::Arg<'_> {
    T::from_arg(value.view_ref())
        .unwrap_or_else(|mismatch| panic!("an element of a Map no longer has its checked type: {mismatch}"))
}

/// Position of an iteration over a [`Map`]; the default is the beginning. See [`Map::next_pair`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MapCursor(Option<u64>);

/// Returns the pair of a Map or Dict at `place` and advances `place`, in the same way as
/// [`Map::next_pair`].
///
/// # Safety
/// `object` must be a Map or Dict that does not change while the result is alive.
pub(crate) unsafe fn next_pair<'a>(object: &'a ObjectRef, place: &mut MapCursor) -> Option<(&'a Any, &'a Any)> {
    // SAFETY: the caller guarantees a Map or Dict that does not change.
    let layout = unsafe { mapping::layout_of(object) };
    let at = place.0.unwrap_or_else(|| layout.first());
    if !layout.holds(at) {
        return None;
    }
    place.0 = Some(layout.next(at));
    Some(layout.pair(at))
}

/// Replaces the value of the pair that [`next_pair`] returns for `place`. Returns the old value;
/// `None` at the end.
///
/// # Safety
/// `object` must be a Map or Dict, and no other code may use its content during the call.
pub(crate) unsafe fn replace_value(object: &ObjectRef, place: MapCursor, value: Any) -> Option<Any> {
    // SAFETY: the caller guarantees a Map or Dict and exclusive use of its content.
    let mut mapping = unsafe { mapping::mapping_of(object) };
    let layout = mapping.layout();
    let at = place.0.unwrap_or_else(|| layout.first());
    if !layout.holds(at) {
        return None;
    }
    Some(mapping.replace(at, value))
}

/// An iterator over the pairs of a [`Map`].
pub struct MapIter<'a, K = Any, V = Any> {
    pairs: mapping::Iter<'a>,
    left: usize,
    kind: PhantomData<fn() -> (K, V)>,
}

impl<'a, K: FromArg, V: FromArg> Iterator for MapIter<'a, K, V> {
    type Item = (K::Arg<'a>, V::Arg<'a>);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.pairs.next()?;
        self.left = self.left.saturating_sub(1);
        Some((read::<K>(key), read::<V>(value)))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: FromArg, V: FromArg> FusedIterator for MapIter<'_, K, V> {}

impl<'a, K: FromArg, V: FromArg> IntoIterator for &'a Map<K, V> {
    type Item = (K::Arg<'a>, V::Arg<'a>);
    type IntoIter = MapIter<'a, K, V>;
    fn into_iter(self) -> MapIter<'a, K, V> {
        self.iter()
    }
}
