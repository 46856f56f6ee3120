//! Shared, mutable sequences.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, Range};

use alloc::vec::{self, Vec};

use super::Value;
use super::check::{read, wrong_element};
use super::lock::{Locked, lock};
use super::seq::{self, Seq};
use crate::{Any, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, hash};

/// A mutable sequence of values. All references to a List share its elements, across threads and languages.
///
/// Each operation is atomic. Iteration and comparison use a snapshot of the elements. The element type is checked
/// when an element is read, because code in another language may have added values of any type.
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

/// Guard that holds the lock of a List and gives access to its elements.
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
    /// Creates an empty List.
    #[must_use]
    pub fn new() -> List<T> {
        Self::with_capacity(0).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates an empty List with room for `capacity` elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn with_capacity(capacity: usize) -> Result<List<T>> {
        seq::new_list(capacity).map(Self::from_object_unchecked)
    }

    /// Wraps an object that is known to be a List.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> List<T> {
        debug_assert_eq!(object.type_index(), anyfn_abi::kTVMFFIList);
        List { object, items: PhantomData }
    }

    /// Creates a List from values, which are not checked against `T`.
    pub(super) fn from_values(values: impl ExactSizeIterator<Item = Any>) -> Result<List<T>> {
        let list = Self::with_capacity(values.len())?;
        // SAFETY: the object is new, and no other code can access it.
        let mut seq = unsafe { seq::seq_of(&list.object) };
        let room = seq.capacity();
        values.take(room).for_each(|value| seq.push(value));
        Ok(list)
    }

    /// Creates a List from the elements of an iterator.
    ///
    /// # Errors
    /// Returns an error if an element cannot be converted, and `MemoryError` if memory allocation fails.
    pub fn try_from_iter<I: IntoIterator<Item: IntoAny>>(iter: I) -> Result<List<T>> {
        Self::from_values(into_values(iter)?.into_iter())
    }

    /// Acquires the lock. While it is held, the caller must not release values or run foreign code. If the
    /// caller has values to release, the variable that holds them must be declared before the guard, so that
    /// it is dropped after the lock is released.
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_> {
        // SAFETY: `self` keeps the object alive, and the flags of a List are only used through this lock.
        let lock = unsafe { lock(self.object.header()) };
        // SAFETY: the object is a List, and the lock makes this use exclusive.
        Guard { seq: unsafe { seq::seq_of(&self.object) }, _lock: lock }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements that fit without reallocation.
    pub fn capacity(&self) -> usize {
        self.lock().capacity()
    }

    /// Returns a snapshot of the elements, without converting them.
    pub fn snapshot(&self) -> Vec<Any> {
        self.lock().items().to_vec()
    }

    /// Returns the elements as a slice without acquiring the lock.
    ///
    /// # Safety
    /// The List must not change while the result is alive.
    pub unsafe fn as_slice_unlocked(&self) -> &[Any] {
        // SAFETY: the object is a List, and the caller guarantees that it does not change.
        unsafe { seq::items_of(&self.object) }
    }

    /// Returns a snapshot of the elements like [`List::snapshot`], but reports a failed allocation as an error.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn try_snapshot(&self) -> Result<Vec<Any>> {
        seq::try_to_vec(self.lock().items())
    }

    /// Creates a List from values.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn from_vec(values: Vec<Any>) -> Result<List<T>> {
        Self::from_values(values.into_iter())
    }

    /// Returns the element at `index` without converting it.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element.
    #[inline]
    pub fn get_any(&self, index: usize) -> Result<Any> {
        let seq = self.lock();
        seq.items().get(index).cloned().ok_or_else(|| seq::out_of_bounds(index as i64, seq.len()))
    }

    /// Reserves room for a total of `capacity` elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
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

    /// Returns true if an element equals `value`.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `value`.
    pub fn contains(&self, value: impl IntoArg) -> Result<bool> {
        Ok(self.position(value)?.is_some())
    }

    /// Returns the index of the first element equal to `value`; `None` if no element is equal.
    ///
    /// # Errors
    /// Returns the error of [`IntoArg::into_arg`] for `value`.
    pub fn position(&self, value: impl IntoArg) -> Result<Option<usize>> {
        super::with_view(value, |view| {
            if hash::has_equal_hook(view) {
                // The hook is foreign code, so it runs on a snapshot, without the lock.
                seq::position(&self.snapshot(), view)
            } else {
                seq::position(self.lock().items(), view)
            }
        })
    }

    /// Removes the elements of a range.
    ///
    /// # Errors
    /// Returns `IndexError` if the range is not empty and not within the List.
    pub fn remove_range(&self, range: Range<usize>) -> Result<()> {
        self.replace_range(range, Vec::new())
    }

    /// Replaces the elements of a range with `values`.
    ///
    /// # Errors
    /// Returns `IndexError` if the range is not within the List, unless both the range and `values` are empty.
    /// Returns `MemoryError` if memory allocation fails. The List is unchanged in both cases.
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

    /// Converts the List into an object reference.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// Returns the List as a borrowed object reference.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<T: Value> List<T> {
    /// Returns the element at `index`.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element, and a conversion error, such as `TypeError`, if it is not a
    /// `T`.
    #[inline]
    pub fn get(&self, index: usize) -> Result<T> {
        let item = self.get_any(index)?;
        T::from_arg(item.view_ref()).map_err(|mismatch| wrong_element("List", index, mismatch))
    }

    /// Returns the first element.
    ///
    /// # Errors
    /// Returns the errors of [`List::get`].
    pub fn first(&self) -> Result<T> {
        self.get(0)
    }

    /// Returns the last element.
    ///
    /// # Errors
    /// Returns the errors of [`List::get`].
    pub fn last(&self) -> Result<T> {
        let last = self.lock().items().last().cloned();
        read(&last.ok_or_else(|| seq::out_of_bounds(-1, 0))?, "the last element of the List")
    }

    /// Appends an element.
    ///
    /// # Errors
    /// Returns an error if the element cannot be converted, and `MemoryError` if memory allocation fails.
    #[inline]
    pub fn push(&self, value: T) -> Result<()> {
        let value = value.into_any()?;
        let _old;
        let mut seq = self.lock();
        _old = seq.make_room(1)?;
        seq.push(value);
        Ok(())
    }

    /// Removes the last element and returns it; `None` if the List is empty.
    ///
    /// # Errors
    /// Returns a conversion error, such as `TypeError`, if the element is not a `T`. The element is removed in that
    /// case, too.
    #[inline]
    pub fn pop(&self) -> Result<Option<T>> {
        let removed = self.lock().pop();
        removed.map(|value| read(&value, "the last element of the List")).transpose()
    }

    /// Replaces the element at `index`.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element, and an error if `value` cannot be converted.
    pub fn set(&self, index: usize, value: T) -> Result<()> {
        let value = value.into_any()?;
        let _old;
        let mut seq = self.lock();
        let index = seq::check_index(index, seq.len())?;
        _old = seq.replace(index, value);
        Ok(())
    }

    /// Inserts an element at `index`, before the element that is currently there. If `index` is the length of
    /// the List, appends the element.
    ///
    /// # Errors
    /// Returns `IndexError` if `index` is beyond the end, and otherwise the errors of [`List::push`].
    pub fn insert(&self, index: usize, value: T) -> Result<()> {
        let value = value.into_any()?;
        let _old;
        let mut seq = self.lock();
        let index = seq::check_position(index, seq.len())?;
        _old = seq.make_room(1)?;
        seq.insert_one(index, value);
        Ok(())
    }

    /// Removes the element at `index` and returns it.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element, and a conversion error, such as `TypeError`, if it is not a
    /// `T`. The element is removed in the latter case, too.
    pub fn remove(&self, index: usize) -> Result<T> {
        let removed = {
            let mut seq = self.lock();
            let index = seq::check_index(index, seq.len())?;
            seq.remove(index)
        };
        T::from_arg(removed.view_ref()).map_err(|mismatch| wrong_element("List", index, mismatch))
    }

    /// Appends the elements of an iterator in one atomic operation.
    ///
    /// # Errors
    /// Returns the error of [`List::push`]; the List is unchanged in that case.
    pub fn extend(&self, values: impl IntoIterator<Item = T>) -> Result<()> {
        let mut values = into_values(values)?;
        let _old;
        let mut seq = self.lock();
        _old = seq.make_room(values.len())?;
        seq.append(&mut values);
        Ok(())
    }

    /// Returns an iterator over a snapshot of the elements.
    pub fn iter(&self) -> ListIter<T> {
        ListIter { items: self.snapshot().into_iter(), kind: PhantomData }
    }

    /// Returns a snapshot of the elements as a vector.
    ///
    /// # Errors
    /// Returns a conversion error, such as `TypeError`, if an element is not a `T`.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.iter().collect()
    }
}

impl<T: FromArg> List<T> {
    /// Casts a List object to a List of `T`.
    ///
    /// # Errors
    /// Returns the object if it is not a List or if an element is not a `T`.
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

    /// Checks that each current element is a `T`.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        if T::ALL { Ok(()) } else { super::check::check_items::<Self, T>("List", &self.snapshot()) }
    }
}

/// Converts the items of an iterator to values.
fn into_values<I: IntoIterator<Item: IntoAny>>(items: I) -> Result<Vec<Any>> {
    let items = items.into_iter();
    let mut values = Vec::new();
    // The number of items is only a hint. If there is no memory for it, the vector grows as the items come.
    let _ = values.try_reserve_exact(items.size_hint().0);
    for item in items {
        values.push(item.into_any()?);
    }
    Ok(values)
}

impl<T> Clone for List<T> {
    /// Returns another reference to the same List.
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

/// Compares snapshots of the two Lists. They are equal if they have equal elements in the same order.
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

/// Creates a List from an iterator. Panics if an element cannot be converted or memory allocation fails; see
/// [`List::try_from_iter`].
impl<T: IntoAny> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Appends the elements of an iterator. Panics if an element cannot be converted or memory allocation fails;
/// see [`List::extend`].
impl<T: Value> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        List::<T>::extend(self, values).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Creates a List from a Rust array. Panics if an element cannot be converted or memory allocation fails; see
/// [`List::try_from_iter`].
impl<T: IntoAny, const N: usize> From<[T; N]> for List<T> {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

/// Creates a List from a vector. Panics if an element cannot be converted or memory allocation fails; see
/// [`List::try_from_iter`].
impl<T: IntoAny> From<Vec<T>> for List<T> {
    fn from(values: Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

/// Creates a List from a slice. Panics if an element cannot be converted or memory allocation fails; see
/// [`List::try_from_iter`].
impl<T: IntoAny + Clone> From<&[T]> for List<T> {
    fn from(values: &[T]) -> Self {
        values.iter().cloned().collect()
    }
}

/// An iterator over a snapshot of the elements of a [`List`]. It yields an error for an element that is not a `T`.
pub struct ListIter<T = Any> {
    items: vec::IntoIter<Any>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Value> Iterator for ListIter<T> {
    type Item = Result<T>;
    fn next(&mut self) -> Option<Result<T>> {
        self.items.next().map(|item| read(&item, "an element of the List"))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<T: Value> DoubleEndedIterator for ListIter<T> {
    fn next_back(&mut self) -> Option<Result<T>> {
        self.items.next_back().map(|item| read(&item, "an element of the List"))
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
