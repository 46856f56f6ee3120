//! Immutable mappings.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use alloc::vec::Vec;

use anyfn_abi::kTVMFFIMap;

use super::mapping::{self, Layout, Mapping};
use crate::{Any, Error, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, hash};

/// A mapping of keys to values in insertion order: shared without a copy, copied when changed while shared.
///
/// Keys are equal if they are of the same type with the same bits, or strings or bytes of equal content, or equal by
/// their type's own hook: 1, 1.0 and true are three keys.
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
    /// Makes an empty Map.
    #[must_use]
    pub fn new() -> Map<K, V> {
        let object = mapping::new_small(kTVMFFIMap, 0).unwrap_or_else(|error| panic!("{error}"));
        Self::from_object_unchecked(object)
    }

    /// Takes an object that is known to be a Map of such pairs.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> Map<K, V> {
        debug_assert_eq!(object.type_index(), kTVMFFIMap);
        Map { object, pairs: PhantomData }
    }

    /// Makes a Map of pairs; they are not checked against `K` and `V`.
    pub(super) fn from_values(pairs: Vec<(Any, Any)>) -> Result<Map<K, V>> {
        mapping::from_pairs(kTVMFFIMap, pairs).map(Self::from_object_unchecked)
    }

    /// Makes a Map of all pairs that an iterator gives; the last value of a key counts.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits; `MemoryError` when memory is short.
    pub fn try_from_iter<A: IntoAny, B: IntoAny>(iter: impl IntoIterator<Item = (A, B)>) -> Result<Map<K, V>> {
        Self::from_values(super::into_pairs(iter)?)
    }

    #[inline]
    fn layout(&self) -> Layout<'_> {
        // SAFETY: a Map changes only by `&mut self`, and only if nobody else holds it.
        unsafe { mapping::layout_of(&self.object) }
    }

    /// Number of pairs.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: a Map changes only by `&mut self`, and only if nobody else holds it.
        unsafe { mapping::len_of(&self.object) }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, as a value.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits.
    #[inline]
    pub fn get_any(&self, key: impl IntoArg) -> Result<Option<&Any>> {
        super::with_view(key, |key| {
            let layout = self.layout();
            let at = layout.find(key, None, |other| hash::any_equal(other.view_ref(), key))?;
            Some(layout.pair(at).1)
        })
    }

    /// Whether there is a pair with this key.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits.
    pub fn contains_key(&self, key: impl IntoArg) -> Result<bool> {
        Ok(self.get_any(key)?.is_some())
    }

    /// The pairs in insertion order, as values.
    pub fn iter_any(&self) -> impl Iterator<Item = (&Any, &Any)> + Clone {
        self.layout().iter()
    }

    /// The pair at a place, which moves on to the next one; `None` at the end. For loops that cannot borrow the Map: it
    /// must be the same, unchanged Map each time, else which pairs come is not said.
    #[inline]
    pub fn next_pair(&self, place: &mut MapPlace) -> Option<(&Any, &Any)> {
        // SAFETY: a Map changes only by `&mut self`, and only if nobody else holds it.
        unsafe { next_pair(&self.object, place) }
    }

    /// Makes a Map of pairs; the last value of a key counts.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn from_vec(pairs: Vec<(Any, Any)>) -> Result<Map<K, V>> {
        Self::from_values(pairs)
    }

    /// The pairs, to be changed: in place if nobody else holds them.
    fn make_mut(&mut self) -> Result<Mapping<'_>> {
        if !self.object.is_unique() {
            // SAFETY: a Map that others hold does not change.
            self.object = unsafe { mapping::copy_of(&self.object) }?;
        }
        // SAFETY: this is the only reference, and `self` is borrowed exclusively.
        Ok(unsafe { mapping::mapping_of(&self.object) })
    }

    /// Removes the pair of a key; whether there was one.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits; `MemoryError` when memory is short.
    pub fn remove(&mut self, key: impl IntoArg) -> Result<bool> {
        let at = super::with_view(key, |key| {
            self.layout().find(key, None, |other| hash::any_equal(other.view_ref(), key))
        })?;
        let Some(at) = at else { return Ok(false) };
        // A copy has its pairs at the same places.
        let removed = self.make_mut()?.remove(at);
        drop(removed);
        Ok(true)
    }

    /// Removes all pairs.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn clear(&mut self) -> Result<()> {
        self.object = mapping::new_small(kTVMFFIMap, 0)?;
        Ok(())
    }

    /// The Map as an object.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// The Map as an object, borrowed.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<K: FromArg, V: FromArg> Map<K, V> {
    /// The value of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// `OverflowError` for an integer key beyond 64 signed bits.
    #[inline]
    pub fn get(&self, key: impl IntoArg) -> Result<Option<V::Arg<'_>>> {
        match self.get_any(key)? {
            Some(value) => V::from_arg(value.view_ref()).map(Some).map_err(Error::from),
            None => Ok(None),
        }
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// `KeyError` if there is no such key.
    pub fn at(&self, key: impl IntoArg) -> Result<V::Arg<'_>> {
        self.get(key)?.ok_or_else(mapping::missing_key)
    }

    /// The pairs in insertion order.
    ///
    /// # Panics
    /// The iterator does if a key or value that is itself a List or Dict was changed so that it does not fit any
    /// more; [`Map::get`] gives an error then.
    #[inline]
    pub fn iter(&self) -> MapIter<'_, K, V> {
        MapIter { pairs: self.layout().iter(), left: self.len(), kind: PhantomData }
    }

    /// The keys in insertion order.
    pub fn keys(&self) -> impl Iterator<Item = K::Arg<'_>> {
        self.layout().iter().map(|(key, _)| read::<K>(key))
    }

    /// The values in insertion order of their keys.
    pub fn values(&self) -> impl Iterator<Item = V::Arg<'_>> {
        self.layout().iter().map(|(_, value)| read::<V>(value))
    }

    /// A Map object as a Map of `K` and `V`.
    ///
    /// # Errors
    /// The object itself, if it is none or a pair does not fit.
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

    /// Checks that each pair fits.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        super::convert::check_pairs::<Self, K, V>("Map", self.layout().iter())
    }
}

impl<K: IntoAny, V: IntoAny> Map<K, V> {
    /// Sets the value of a key. A key that is there keeps its place in the order.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits; `MemoryError` when memory is short.
    pub fn insert(&mut self, key: K, value: V) -> Result<()> {
        let (key, value) = (key.into_any()?, value.into_any()?);
        self.make_mut()?.set(key, value)
    }

    /// Sets all pairs that an iterator gives.
    ///
    /// # Errors
    /// As [`Map::insert`]; the pairs before the one that failed are set.
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

/// Maps are equal if they have equal values for the same keys, in whichever order.
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

/// Panics for an integer beyond 64 signed bits and when memory is short; see [`Map::try_from_iter`].
impl<K: IntoAny, V: IntoAny> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

#[inline]
fn read<T: FromArg>(value: &Any) -> T::Arg<'_> {
    T::from_arg(value.view_ref())
        .unwrap_or_else(|mismatch| panic!("an element of a Map has changed: {mismatch}"))
}

/// Where a loop over a [`Map`] stands; the default is its beginning. See [`Map::next_pair`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MapPlace(Option<u64>);

/// As [`Map::next_pair`], of a Map or Dict.
///
/// # Safety
/// `object` must be a Map or Dict, which does not change as long as the result lives.
pub(crate) unsafe fn next_pair<'a>(object: &'a ObjectRef, place: &mut MapPlace) -> Option<(&'a Any, &'a Any)> {
    // SAFETY: the caller guarantees it.
    let layout = unsafe { mapping::layout_of(object) };
    let at = place.0.unwrap_or_else(|| layout.first());
    if !layout.holds(at) {
        return None;
    }
    place.0 = Some(layout.next(at));
    Some(layout.pair(at))
}

/// Puts another value into the pair that [`next_pair`] gives for a place; gives the old one.
///
/// # Safety
/// `object` must be a Map or Dict, and nothing else may use its content meanwhile.
pub(crate) unsafe fn replace_value(object: &ObjectRef, place: MapPlace, value: Any) -> Option<Any> {
    // SAFETY: the caller guarantees it.
    let mut mapping = unsafe { mapping::mapping_of(object) };
    let layout = mapping.layout();
    let at = place.0.unwrap_or_else(|| layout.first());
    if !layout.holds(at) {
        return None;
    }
    Some(mapping.replace(at, value))
}

/// The pairs of a [`Map`].
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
