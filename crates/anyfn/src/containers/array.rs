//! Immutable sequences.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use anyfn_abi::{TVMFFIAny, TVMFFIAnyValue};

use super::Value;
use super::check::{read, wrong_element};
use super::seq::{self, Seq};
use super::slice::{Slice, SliceIndices};
use crate::{Any, AnyView, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result};

/// Capacity, in elements, of a new Array whose creator specifies no capacity.
const DEFAULT_CAPACITY: usize = 4;

/// A sequence of values with copy-on-write semantics: clones share the elements until one clone is changed.
///
/// The element type is checked when a value comes in from another language, so an `Array<i64>` contains only ints
/// (and bools). [`Array`] without a type argument holds values of any type.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Array;
/// let mut primes: Array<i64> = [2, 3, 5].into_iter().collect();
/// let before = primes.clone();
/// primes.push(7)?;
/// assert_eq!(primes.get(3)?, 7);
/// assert_eq!(primes.iter().sum::<i64>(), 17);
/// assert_eq!(before.len(), 3);
/// assert_eq!(before.get(3).unwrap_err().message(), "Index 3 out of bounds 3");
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
pub struct Array<T = Any> {
    object: ObjectRef,
    items: PhantomData<fn() -> T>,
}

impl<T> Array<T> {
    /// Creates an empty Array.
    #[must_use]
    pub fn new() -> Array<T> {
        Self::with_capacity(DEFAULT_CAPACITY).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates an empty Array with room for `capacity` elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn with_capacity(capacity: usize) -> Result<Array<T>> {
        seq::new_array(capacity).map(Self::from_object_unchecked)
    }

    /// Wraps an object that is known to be an Array of `T`.
    #[inline]
    pub(super) fn from_object_unchecked(object: ObjectRef) -> Array<T> {
        debug_assert_eq!(object.type_index(), anyfn_abi::kTVMFFIArray);
        Array { object, items: PhantomData }
    }

    /// Creates an Array from values, which are not checked against `T`.
    pub(super) fn from_values(values: impl ExactSizeIterator<Item = Any>) -> Result<Array<T>> {
        let array = Self::with_capacity(values.len())?;
        // SAFETY: the object is new, and no other code can access it.
        let mut seq = unsafe { seq::seq_of(&array.object) };
        let room = seq.capacity();
        values.take(room).for_each(|value| seq.push(value));
        Ok(array)
    }

    /// Creates an Array from the elements of an iterator.
    ///
    /// # Errors
    /// Returns an error if an element cannot be converted, and `MemoryError` if memory allocation fails.
    pub fn try_from_iter<I: IntoIterator<Item: IntoAny>>(iter: I) -> Result<Array<T>> {
        let iter = iter.into_iter();
        let mut array = Self::with_capacity(iter.size_hint().0)?;
        for item in iter {
            array.push_any(item.into_any()?)?;
        }
        Ok(array)
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns true if there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements as a slice of values.
    #[inline]
    pub fn as_slice(&self) -> &[Any] {
        // SAFETY: an Array changes only through `&mut self`, and only while no other reference to it exists.
        unsafe { seq::items_of(&self.object) }
    }

    /// Returns a new Array with the elements that `slice` selects.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn slice(&self, slice: Slice) -> Result<Array<T>> {
        let items = self.as_slice();
        Self::from_indices(items, slice.indices(items.len()))
    }

    fn from_indices(items: &[Any], indices: SliceIndices) -> Result<Array<T>> {
        Self::from_values(indices.map(|at| items[at].clone()))
    }

    /// Returns the number of elements that fit without reallocation.
    pub fn capacity(&self) -> usize {
        // SAFETY: only the cell is read, and it changes only through `&mut self`.
        unsafe { seq::capacity_of(&self.object) }
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
        super::with_view(value, |view| seq::position(self.as_slice(), view))
    }

    /// Returns exclusive access to the elements, with room for `extra` more elements. If the Array
    /// is shared, first copies the elements. If it lacks room, first moves them to new memory.
    fn make_mut(&mut self, extra: usize) -> Result<Seq<'_>> {
        let (len, room) = (self.len(), self.capacity());
        let needed = len.saturating_add(extra);
        if !self.object.is_unique() || needed > room {
            let capacity = if needed > room { needed.max(room.saturating_mul(2)) } else { room };
            self.move_to(capacity)?;
        }
        // SAFETY: this is the only reference, and `self` is borrowed exclusively.
        Ok(unsafe { seq::seq_of(&self.object) })
    }

    fn move_to(&mut self, capacity: usize) -> Result<()> {
        let to = seq::new_array(capacity)?;
        // SAFETY: the object is new, and no other code can access it.
        let mut seq = unsafe { seq::seq_of(&to) };
        if self.object.is_unique() {
            // SAFETY: this is the only reference, and `self` is borrowed exclusively.
            let mut old = unsafe { seq::seq_of(&self.object) };
            old.move_into(&mut seq);
        } else {
            self.as_slice().iter().for_each(|item| seq.push(item.clone()));
        }
        self.object = to;
        Ok(())
    }

    #[inline]
    fn push_any(&mut self, value: Any) -> Result<()> {
        let TVMFFIAny { type_index, small_str_len, value } = value.into_raw();
        if self.object.is_unique() {
            // SAFETY: this is the only reference, and `self` is borrowed exclusively.
            let mut seq = unsafe { seq::seq_of(&self.object) };
            // SAFETY: the fields are those of an owned value, which is used below only if the call does not take it.
            if unsafe { seq.push_fields_if_room(type_index, small_str_len, value) } {
                return Ok(());
            }
        }
        // SAFETY: the fields are those of an owned value, and nothing else uses it.
        unsafe { self.push_slow(type_index, small_str_len, value) }
    }

    /// Appends an element to an Array that is shared or full. The arguments are the fields of the element, so that it
    /// remains in registers; see [`Seq::push_fields_if_room`].
    ///
    /// # Safety
    /// The fields must be those of an owned value, which this function takes.
    #[cold]
    #[inline(never)]
    unsafe fn push_slow(&mut self, type_index: i32, small_str_len: u32, value: TVMFFIAnyValue) -> Result<()> {
        // SAFETY: the caller transfers the value.
        let value = unsafe { Any::from_raw(TVMFFIAny { type_index, small_str_len, value }) };
        self.make_mut(1)?.push(value);
        Ok(())
    }

    /// Reserves room for `extra` more elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn reserve(&mut self, extra: usize) -> Result<()> {
        self.make_mut(extra).map(drop)
    }

    /// Removes all elements after the first `len`.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        let old = self.len();
        if len < old {
            let removed = self.make_mut(0)?.drain(len..old);
            drop(removed);
        }
        Ok(())
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn clear(&mut self) -> Result<()> {
        if self.object.is_unique() {
            return self.truncate(0);
        }
        *self = Self::with_capacity(DEFAULT_CAPACITY)?;
        Ok(())
    }

    /// Reverses the order of the elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn reverse(&mut self) -> Result<()> {
        self.make_mut(0)?.reverse();
        Ok(())
    }

    /// Converts the Array into an object reference.
    #[inline]
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// Returns the Array as a borrowed object reference.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }
}

impl<T: FromArg> Array<T> {
    /// Returns the element at `index`.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element, and a conversion error if the element is no longer a `T`;
    /// see [`Array::iter`].
    #[inline]
    pub fn get(&self, index: usize) -> Result<T::Arg<'_>> {
        let items = self.as_slice();
        match items.get(index) {
            Some(item) => {
                T::from_arg(item.view_ref()).map_err(|mismatch| wrong_element("Array", index, mismatch))
            }
            None => Err(seq::out_of_bounds(index as i64, items.len())),
        }
    }

    /// Returns the first element.
    ///
    /// # Errors
    /// Returns the errors of [`Array::get`].
    pub fn first(&self) -> Result<T::Arg<'_>> {
        self.get(0)
    }

    /// Returns the last element.
    ///
    /// # Errors
    /// Returns the errors of [`Array::get`].
    pub fn last(&self) -> Result<T::Arg<'_>> {
        self.get(self.len().saturating_sub(1))
    }

    /// Returns an iterator over the elements.
    ///
    /// # Panics
    /// The iterator panics at an element that is a List or Dict and was changed so that it is no longer a `T`.
    /// [`Array::get`] returns an error for such an element.
    #[inline]
    pub fn iter(&self) -> ArrayIter<'_, T> {
        ArrayIter { items: self.as_slice().iter(), kind: PhantomData }
    }

    /// Casts an Array object to an Array of `T`.
    ///
    /// # Errors
    /// Returns the object if it is not an Array or if an element is not a `T`.
    pub fn try_from_object(object: ObjectRef) -> Result<Array<T>, ObjectRef> {
        if object.type_index() != anyfn_abi::kTVMFFIArray {
            return Err(object);
        }
        let array = Self::from_object_unchecked(object);
        match array.check() {
            Ok(()) => Ok(array),
            Err(_) => Err(array.object),
        }
    }

    /// Checks that each element is a `T`.
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        super::check::check_items::<Self, T>("Array", self.as_slice())
    }
}

impl<T: Value> Array<T> {
    /// Appends an element.
    ///
    /// # Errors
    /// Returns an error if the element cannot be converted, and `MemoryError` if memory allocation fails.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<()> {
        self.push_any(value.into_any()?)
    }

    /// Removes the last element and returns it; `None` if the Array is empty.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails, and a conversion error if the element is no longer a `T`.
    pub fn pop(&mut self) -> Result<Option<T>> {
        let removed = self.make_mut(0)?.pop();
        removed.map(|value| read(&value, "the last element of the Array")).transpose()
    }

    /// Replaces the element at `index`.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element, and otherwise the errors of [`Array::push`].
    pub fn set(&mut self, index: usize, value: T) -> Result<()> {
        let (index, value) = (seq::check_index(index, self.len())?, value.into_any()?);
        let old = self.make_mut(0)?.replace(index, value);
        drop(old);
        Ok(())
    }

    /// Inserts an element at `index`, before the element that is currently there. If `index` is the length of
    /// the Array, appends the element.
    ///
    /// # Errors
    /// Returns `IndexError` if `index` is beyond the end, and otherwise the errors of [`Array::push`].
    pub fn insert(&mut self, index: usize, value: T) -> Result<()> {
        let (index, value) = (seq::check_position(index, self.len())?, value.into_any()?);
        self.make_mut(1)?.insert_one(index, value);
        Ok(())
    }

    /// Removes the element at `index` and returns it.
    ///
    /// # Errors
    /// Returns `IndexError` if there is no such element, `MemoryError` if memory allocation fails, and a conversion
    /// error if the element is no longer a `T`.
    pub fn remove(&mut self, index: usize) -> Result<T> {
        let index = seq::check_index(index, self.len())?;
        let removed = self.make_mut(0)?.remove(index);
        T::from_arg(removed.view_ref()).map_err(|mismatch| wrong_element("Array", index, mismatch))
    }

    /// Appends the elements of an iterator.
    ///
    /// # Errors
    /// Returns the error of [`Array::push`]; the elements before the one that failed have been added.
    pub fn extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<()> {
        let values = values.into_iter();
        self.reserve(values.size_hint().0)?;
        values.into_iter().try_for_each(|value| self.push(value))
    }

    /// Returns the elements as a vector.
    ///
    /// # Errors
    /// Returns the errors of [`Array::get`].
    pub fn to_vec(&self) -> Result<alloc::vec::Vec<T>> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }
}

impl<T> Clone for Array<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self::from_object_unchecked(self.object.clone())
    }
}

impl<T> Default for Array<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Compares the elements in order. Elements are compared in the same way as Map keys.
impl<T, U> PartialEq<Array<U>> for Array<T> {
    fn eq(&self, other: &Array<U>) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Creates an Array from an iterator. Panics if an element cannot be converted or memory allocation fails; see
/// [`Array::try_from_iter`].
impl<T: IntoAny> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Self::try_from_iter(iter).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Appends the elements of an iterator. Panics if an element cannot be converted or memory allocation fails;
/// see [`Array::extend`].
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Array;
/// let (even, odd): (Array<i64>, Array<i64>) = (1..=5).partition(|n| n % 2 == 0);
/// assert_eq!((even.to_vec()?, odd.to_vec()?), (vec![2, 4], vec![1, 3, 5]));
/// # Ok::<(), anyfn::Error>(())
/// ```
impl<T: IntoAny> Extend<T> for Array<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values
            .into_iter()
            .try_for_each(|value| self.push_any(value.into_any()?))
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

impl<T> AsRef<[Any]> for Array<T> {
    fn as_ref(&self) -> &[Any] {
        self.as_slice()
    }
}

/// Creates an Array from a Rust array. Panics if an element cannot be converted or memory allocation fails; see
/// [`Array::try_from_iter`].
impl<T: IntoAny, const N: usize> From<[T; N]> for Array<T> {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

/// Creates an Array from a vector. Panics if an element cannot be converted or memory allocation fails; see
/// [`Array::try_from_iter`].
impl<T: IntoAny> From<alloc::vec::Vec<T>> for Array<T> {
    fn from(values: alloc::vec::Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

/// Creates an Array from a slice. Panics if an element cannot be converted or memory allocation fails; see
/// [`Array::try_from_iter`].
impl<T: IntoAny + Clone> From<&[T]> for Array<T> {
    fn from(values: &[T]) -> Self {
        values.iter().cloned().collect()
    }
}

/// Builder that appends elements to a new Array. It need not check whether the Array is shared,
/// because the builder holds the only reference.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, ArrayBuilder};
///
/// let mut builder = ArrayBuilder::with_capacity(2)?;
/// builder.push_int(1)?;
/// builder.push(Any::new("two")?)?;
/// let array = builder.finish();
/// assert_eq!(array.len(), 2);
/// # Ok::<(), anyfn::Error>(())
/// ```
pub struct ArrayBuilder {
    array: Array,
}

impl ArrayBuilder {
    /// Creates a builder with room for `capacity` elements.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn with_capacity(capacity: usize) -> Result<ArrayBuilder> {
        Array::with_capacity(capacity).map(|array| ArrayBuilder { array })
    }

    /// Appends an element.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    #[inline(always)]
    pub fn push(&mut self, value: Any) -> Result<()> {
        // SAFETY: the object is new, and no other code can access it.
        let mut seq = unsafe { seq::seq_of(&self.array.object) };
        match seq.push_if_room(value) {
            None => Ok(()),
            Some(value) => self.grow(value),
        }
    }

    /// Appends an int.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    #[inline(always)]
    pub fn push_int(&mut self, value: i64) -> Result<()> {
        // SAFETY: the object is new, and no other code can access it.
        let mut seq = unsafe { seq::seq_of(&self.array.object) };
        if seq.push_int_if_room(value) { Ok(()) } else { self.grow(Any::new(value)?) }
    }

    /// Appends ints from `next` until it returns `None`, `max` ints have been appended, or the reserved memory is full. Returns
    /// the number of ints that were appended.
    #[doc(hidden)]
    #[inline(always)]
    pub fn push_ints(&mut self, max: usize, next: impl FnMut() -> Option<i64>) -> usize {
        // SAFETY: the object is new, and no other code can access it.
        let mut seq = unsafe { seq::seq_of(&self.array.object) };
        seq.push_ints_if_room(max, next)
    }

    #[cold]
    fn grow(&mut self, value: Any) -> Result<()> {
        self.array.push_any(value)
    }

    /// Returns the finished Array.
    pub fn finish(self) -> Array {
        self.array
    }
}

/// An iterator over the elements of an [`Array`].
pub struct ArrayIter<'a, T = Any> {
    items: core::slice::Iter<'a, Any>,
    kind: PhantomData<fn() -> T>,
}

impl<'a, T: FromArg> ArrayIter<'a, T> {
    #[inline]
    fn read(item: &'a Any) -> T::Arg<'a> {
        let view: &'a AnyView<'_> = item.view_ref();
        T::from_arg(view).unwrap_or_else(|mismatch| {
            panic!("an element of an Array no longer has its checked type: {mismatch}")
        })
    }
}

impl<'a, T: FromArg> Iterator for ArrayIter<'a, T> {
    type Item = T::Arg<'a>;
    #[inline]
    fn next(&mut self) -> Option<T::Arg<'a>> {
        self.items.next().map(Self::read)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<T: FromArg> DoubleEndedIterator for ArrayIter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back().map(Self::read)
    }
}

impl<T: FromArg> ExactSizeIterator for ArrayIter<'_, T> {}
impl<T: FromArg> FusedIterator for ArrayIter<'_, T> {}

impl<'a, T: FromArg> IntoIterator for &'a Array<T> {
    type Item = T::Arg<'a>;
    type IntoIter = ArrayIter<'a, T>;
    fn into_iter(self) -> ArrayIter<'a, T> {
        self.iter()
    }
}
