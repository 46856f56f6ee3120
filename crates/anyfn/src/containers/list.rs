//! Shared, mutable sequences.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, Range};

use alloc::vec::{self, Vec};

use super::Value;
use super::lock::{Locked, lock};
use super::seq::{self, Seq};
use crate::{Any, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, hash};

/// A mutable sequence of values that all holders share, from any thread and language.
///
/// Each operation is atomic; iteration and comparison see the elements of one moment. The element type is checked
/// when an element is read, since code of another language may have put in anything.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::List;
/// let list: List<i64> = List::try_from_iter([1, 2])?;
/// let same = list.clone();
/// list.push(3)?;
/// assert_eq!(same.to_vec()?, [1, 2, 3]);
/// assert_eq!(same.pop()?, Some(3));
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
pub struct List<T = Any> {
    object: ObjectRef,
    items: PhantomData<fn() -> T>,
}

/// The elements of a List under its lock.
pub(super) struct Guard<'a> {
    seq: Seq<'a>,
    _lock: Locked<'a>,
}

impl<'a> Deref for Guard<'a> {
    type Target = Seq<'a>;
    #[inline]
    fn deref(&self) -> &Seq<'a> {
        &self.seq
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.seq
    }
}

impl<T> List<T> {
    /// Makes an empty List.
    #[must_use]
    pub fn new() -> List<T> {
        Self::with_capacity(0).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes an empty List with room for `capacity` elements.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn with_capacity(capacity: usize) -> Result<List<T>> {
        seq::new_list(capacity).map(Self::from_object_unchecked)
    }

    /// Takes an object that is known to be a List.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> List<T> {
        debug_assert_eq!(object.type_index(), anyfn_abi::kTVMFFIList);
        List { object, items: PhantomData }
    }

    /// Makes a List of values; the elements are not checked against `T`.
    pub(super) fn from_values(values: impl ExactSizeIterator<Item = Any>) -> Result<List<T>> {
        let list = Self::with_capacity(values.len())?;
        // SAFETY: nobody else knows the new object.
        let mut seq = unsafe { seq::seq_of(&list.object) };
        let room = seq.capacity();
        values.take(room).for_each(|value| seq.push(value));
        Ok(list)
    }

    /// Makes a List of all that an iterator gives.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits; `MemoryError` when memory is short.
    pub fn try_from_iter<I: IntoIterator<Item: IntoAny>>(iter: I) -> Result<List<T>> {
        let values = iter.into_iter().map(IntoAny::into_any).collect::<Result<Vec<Any>>>()?;
        Self::from_values(values.into_iter())
    }

    /// Takes the lock. While it is held no value is released and no code of others runs; what is to be released is
    /// therefore declared before it.
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_> {
        // SAFETY: `self` keeps the object alive; all use of a List's flags is by this lock.
        let lock = unsafe { lock(self.object.header()) };
        // SAFETY: the object is a List, and the lock makes this use exclusive.
        Guard { seq: unsafe { seq::seq_of(&self.object) }, _lock: lock }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of elements that fit without moving.
    pub fn capacity(&self) -> usize {
        self.lock().capacity()
    }

    /// The elements of this moment, as values.
    pub fn snapshot(&self) -> Vec<Any> {
        self.lock().items().to_vec()
    }

    /// The elements, read without the lock.
    ///
    /// # Safety
    /// Nothing may change the List as long as the result lives.
    pub unsafe fn as_slice_unlocked(&self) -> &[Any] {
        // SAFETY: a List, and the caller guarantees that it does not change.
        unsafe { seq::items_of(&self.object) }
    }

    /// As [`List::snapshot`], of a List of any length.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn try_snapshot(&self) -> Result<Vec<Any>> {
        seq::try_to_vec(self.lock().items())
    }

    /// Makes a List of values.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn from_vec(values: Vec<Any>) -> Result<List<T>> {
        Self::from_values(values.into_iter())
    }

    /// The element at `index`, as a value.
    ///
    /// # Errors
    /// `IndexError` if there is none.
    #[inline]
    pub fn get_any(&self, index: usize) -> Result<Any> {
        let seq = self.lock();
        seq.items().get(index).cloned().ok_or_else(|| seq::out_of_bounds(index as i64, seq.len()))
    }

    /// Makes room for `capacity` elements in all.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn reserve(&self, capacity: usize) -> Result<()> {
        let _old;
        let mut seq = self.lock();
        _old = seq.reserve(capacity)?;
        Ok(())
    }

    /// Removes all elements.
    pub fn clear(&self) {
        let removed = self.lock().take_all();
        drop(removed);
    }

    /// Reverses the order of the elements.
    pub fn reverse(&self) {
        self.lock().reverse();
    }

    /// Whether there is an element equal to `value`.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits.
    pub fn contains(&self, value: impl IntoArg) -> Result<bool> {
        Ok(self.position(value)?.is_some())
    }

    /// Index of the first element equal to `value`.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits.
    pub fn position(&self, value: impl IntoArg) -> Result<Option<usize>> {
        super::with_view(value, |view| {
            if hash::has_equal_hook(view) {
                // The hook is code of others: it runs on a copy, without the lock.
                seq::position(&self.snapshot(), view)
            } else {
                seq::position(self.lock().items(), view)
            }
        })
    }

    /// Removes the elements of a range.
    ///
    /// # Errors
    /// `IndexError` if the range is not within the List.
    pub fn remove_range(&self, range: Range<usize>) -> Result<()> {
        self.replace_range(range, Vec::new())
    }

    /// Puts values in place of a range of elements.
    ///
    /// # Errors
    /// `IndexError` if the range is not within the List; `MemoryError` when memory is short. Nothing has changed then.
    pub fn replace_range(&self, range: Range<usize>, mut values: Vec<Any>) -> Result<()> {
        let (_removed, _old);
        let mut seq = self.lock();
        let len = seq.len();
        if range.start == range.end {
            if values.is_empty() {
                return Ok(());
            }
            seq::check_position(range.start, len)?;
        } else if range.start > range.end || range.end > len {
            return Err(seq::range_out_of_bounds(range.start as i64, range.end as i64, len));
        }
        _old = seq.make_room(values.len().saturating_sub(range.len()))?;
        _removed = seq.drain(range.clone());
        seq.insert(range.start, &mut values);
        Ok(())
    }

    /// The List as an object.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// The List as an object, borrowed.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<T: Value> List<T> {
    /// The element at `index`.
    ///
    /// # Errors
    /// `IndexError` if there is none; `TypeError` if it is not a `T`.
    #[inline]
    pub fn get(&self, index: usize) -> Result<T> {
        self.get_any(index)?.get::<T>()
    }

    /// The first element.
    ///
    /// # Errors
    /// As [`List::get`].
    pub fn first(&self) -> Result<T> {
        self.get(0)
    }

    /// The last element.
    ///
    /// # Errors
    /// As [`List::get`].
    pub fn last(&self) -> Result<T> {
        let last = self.lock().items().last().cloned();
        last.ok_or_else(|| seq::out_of_bounds(-1, 0))?.get::<T>()
    }

    /// Adds an element.
    ///
    /// # Errors
    /// `OverflowError` for an integer beyond 64 signed bits; `MemoryError` when memory is short.
    #[inline]
    pub fn push(&self, value: T) -> Result<()> {
        let value = value.into_any()?;
        let _old;
        let mut seq = self.lock();
        _old = seq.make_room(1)?;
        seq.push(value);
        Ok(())
    }

    /// Removes the last element; `None` if there is none.
    ///
    /// # Errors
    /// `TypeError` if it is not a `T`; it is removed nevertheless.
    #[inline]
    pub fn pop(&self) -> Result<Option<T>> {
        let removed = self.lock().pop();
        removed.map(|value| value.get::<T>()).transpose()
    }

    /// Puts another element at `index`.
    ///
    /// # Errors
    /// `IndexError` if there is none; else as [`List::push`].
    pub fn set(&self, index: usize, value: T) -> Result<()> {
        let value = value.into_any()?;
        let _old;
        let mut seq = self.lock();
        let index = seq::check_index(index, seq.len())?;
        _old = seq.replace(index, value);
        Ok(())
    }

    /// Puts an element in front of the one at `index`, or at the end.
    ///
    /// # Errors
    /// `IndexError` if `index` is beyond the end; else as [`List::push`].
    pub fn insert(&self, index: usize, value: T) -> Result<()> {
        let value = value.into_any()?;
        let _old;
        let mut seq = self.lock();
        let index = seq::check_position(index, seq.len())?;
        _old = seq.make_room(1)?;
        seq.insert_one(index, value);
        Ok(())
    }

    /// Removes the element at `index`.
    ///
    /// # Errors
    /// `IndexError` if there is none; `TypeError` if it is not a `T`; it is removed nevertheless.
    pub fn remove(&self, index: usize) -> Result<T> {
        let removed = {
            let mut seq = self.lock();
            let index = seq::check_index(index, seq.len())?;
            seq.remove(index)
        };
        removed.get::<T>()
    }

    /// Adds all that an iterator gives, at once.
    ///
    /// # Errors
    /// As [`List::push`]; nothing has been added then.
    pub fn extend(&self, values: impl IntoIterator<Item = T>) -> Result<()> {
        let mut values = values.into_iter().map(IntoAny::into_any).collect::<Result<Vec<Any>>>()?;
        let _old;
        let mut seq = self.lock();
        _old = seq.make_room(values.len())?;
        let end = seq.len();
        seq.insert(end, &mut values);
        Ok(())
    }

    /// The elements of this moment.
    pub fn iter(&self) -> ListIter<T> {
        ListIter { items: self.snapshot().into_iter(), kind: PhantomData }
    }

    /// The elements of this moment as a vector.
    ///
    /// # Errors
    /// `TypeError` if one is not a `T`.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.iter().collect()
    }
}

impl<T: FromArg> List<T> {
    /// A List object as a List of `T`.
    ///
    /// # Errors
    /// The object itself, if it is none or an element is not a `T`.
    pub fn try_from_object(object: ObjectRef) -> Result<List<T>, ObjectRef> {
        if object.type_index() != anyfn_abi::kTVMFFIList {
            return Err(object);
        }
        let list = Self::from_object_unchecked(object);
        match list.check() {
            Ok(()) => Ok(list),
            Err(_) => Err(list.object),
        }
    }

    /// Checks that each element is a `T` at this moment.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        if T::ALL { Ok(()) } else { super::convert::check_items::<Self, T>("List", &self.snapshot()) }
    }
}

impl<T> Clone for List<T> {
    /// Another reference to the same List.
    #[inline]
    fn clone(&self) -> Self {
        Self::from_object_unchecked(self.object.clone())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Lists are equal if their elements are, in order, each List's at one moment.
impl<T, U> PartialEq<List<U>> for List<T> {
    fn eq(&self, other: &List<U>) -> bool {
        self.object.ptr_eq(&other.object) || self.snapshot() == other.snapshot()
    }
}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.snapshot()).finish()
    }
}

/// Panics for an integer beyond 64 signed bits and when memory is short; see [`List::try_from_iter`].
impl<T: IntoAny> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<T: IntoAny> From<Vec<T>> for List<T> {
    fn from(values: Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

/// The elements that a [`List`] had at one moment. An element that is not a `T` gives a `TypeError`.
pub struct ListIter<T = Any> {
    items: vec::IntoIter<Any>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Value> Iterator for ListIter<T> {
    type Item = Result<T>;
    fn next(&mut self) -> Option<Result<T>> {
        self.items.next().map(|item| item.get::<T>())
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<T: Value> DoubleEndedIterator for ListIter<T> {
    fn next_back(&mut self) -> Option<Result<T>> {
        self.items.next_back().map(|item| item.get::<T>())
    }
}

impl<T: Value> ExactSizeIterator for ListIter<T> {}
impl<T: Value> FusedIterator for ListIter<T> {}

impl<T: Value> IntoIterator for &List<T> {
    type Item = Result<T>;
    type IntoIter = ListIter<T>;
    fn into_iter(self) -> ListIter<T> {
        self.iter()
    }
}
