//! Slices: some places of a sequence, by start, stop and step.

use core::iter::FusedIterator;

use alloc::vec::Vec;

use super::List;
use super::seq;
use crate::{Any, Error, Result};

/// Some places of a sequence: every `step`-th one from `start` on, before `stop`.
///
/// Negative places count from the end, and places beyond an end are cut off; a negative step goes backwards. These are
/// Python's rules; what the ends are depends on how long the sequence is at that moment.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    start: i64,
    stop: i64,
    step: i64,
}

impl Slice {
    /// # Errors
    /// `ValueError` for a step of zero.
    pub fn new(start: i64, stop: i64, step: i64) -> Result<Slice> {
        if step == 0 {
            return Err(Error::new("ValueError", "slice step cannot be zero"));
        }
        Ok(Slice { start, stop, step: step.max(-i64::MAX) })
    }

    /// The places in a sequence of `len` elements: each is below `len`.
    pub fn places(self, len: usize) -> Places {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let (lowest, highest) = if self.step < 0 { (-1, len - 1) } else { (0, len) };
        let cut = |at: i64| if at < 0 { (at + len).max(lowest) } else { at.min(highest) };
        let (start, stop) = (cut(self.start), cut(self.stop));
        let distance = if self.step < 0 { start - stop } else { stop - start };
        let count = if distance <= 0 { 0 } else { (distance - 1) / self.step.abs() + 1 };
        Places { next: start, step: self.step, left: count as usize }
    }
}

/// The places of a [`Slice`] in a sequence of known length.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    next: i64,
    step: i64,
    left: usize,
}

impl Places {
    /// Distance between neighbours.
    pub(super) fn step(self) -> usize {
        usize::try_from(self.step.unsigned_abs()).unwrap_or(usize::MAX)
    }

    /// The lowest one.
    pub(super) fn lowest(self) -> Option<usize> {
        let last = self.left.checked_sub(1)?;
        let lowest = if self.step < 0 { self.next + self.step * last as i64 } else { self.next };
        usize::try_from(lowest).ok()
    }
}

impl Iterator for Places {
    type Item = usize;
    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.next;
        self.next = at.wrapping_add(self.step);
        Some(at as usize)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Places {}
impl FusedIterator for Places {}

/// The place of an index that counts from the end if it is negative.
#[inline]
fn place(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// Whether two values are the same bytes.
fn is_same(a: &Any, b: &Any) -> bool {
    let (a, b) = (a.view_ref(), b.view_ref());
    a.type_index() == b.type_index() && a.bits() == b.bits()
}

/// Operations by places that count from the end if they are negative. Each is atomic.
impl List {
    /// The element at an index, if there is one.
    #[inline]
    pub fn at(&self, index: i64) -> Option<Any> {
        let seq = self.lock();
        seq.items().get(place(index, seq.len())?).cloned()
    }

    /// Puts another element at an index; `false` if there is none.
    pub fn set_at(&self, index: i64, value: Any) -> bool {
        // Released after the lock is given back, as is `value` if it stays unused.
        let _old;
        let value = value;
        let mut seq = self.lock();
        let Some(index) = place(index, seq.len()) else { return false };
        _old = seq.replace(index, value);
        true
    }

    /// Puts an element in front of the one at an index; an index beyond an end means that end.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn insert_at(&self, index: i64, value: Any) -> Result<()> {
        let value = value;
        let _old;
        let mut seq = self.lock();
        let len = seq.len();
        let index = if index < 0 { index.saturating_add_unsigned(len as u64).max(0) } else { index };
        _old = seq.make_room(1)?;
        seq.insert_one(usize::try_from(index).unwrap_or(len).min(len), value);
        Ok(())
    }

    /// Removes the element at an index, if there is one.
    pub fn remove_at(&self, index: i64) -> Option<Any> {
        let mut seq = self.lock();
        let index = place(index, seq.len())?;
        Some(seq.remove(index))
    }

    /// Removes an element that is or was at a place, wherever it is now; `false` if it is not there any more.
    pub fn remove_same(&self, at: usize, item: &Any) -> bool {
        let _removed;
        let mut seq = self.lock();
        let here = seq.items().get(at).is_some_and(|other| is_same(other, item));
        let at = if here { Some(at) } else { seq.items().iter().position(|other| is_same(other, item)) };
        let Some(at) = at else { return false };
        _removed = seq.remove(at);
        true
    }

    /// The elements at the places of a slice.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn slice(&self, slice: Slice) -> Result<Vec<Any>> {
        let seq = self.lock();
        seq::items_at(seq.items(), slice)
    }

    /// Puts elements in place of those of a slice. With a step other than 1 there must be as many.
    ///
    /// # Errors
    /// `ValueError` if there are not; `MemoryError` when memory is short. Nothing has changed then.
    pub fn set_slice(&self, slice: Slice, mut values: Vec<Any>) -> Result<()> {
        let (_removed, _old);
        let mut seq = self.lock();
        let mut places = slice.places(seq.len());
        if slice.step != 1 {
            if values.len() != places.len() {
                let (given, wanted) = (values.len(), places.len());
                // The lock goes before the message is made, and before `values`.
                drop(seq);
                return Err(crate::error!(
                    "ValueError",
                    "attempt to assign sequence of size {given} to extended slice of size {wanted}"
                ));
            }
            for value in &mut values {
                if let Some(at) = places.next() {
                    *value = seq.replace(at, core::mem::take(value));
                }
            }
            drop(seq);
            return Ok(());
        }
        let start = places.next as usize;
        _old = seq.make_room(values.len().saturating_sub(places.len()))?;
        _removed = seq.drain(start..start + places.len());
        seq.insert(start, &mut values);
        Ok(())
    }

    /// Removes the elements at the places of a slice.
    ///
    /// # Errors
    /// `MemoryError` when memory is short; nothing has changed then.
    pub fn remove_slice(&self, slice: Slice) -> Result<()> {
        let _removed;
        let mut seq = self.lock();
        let places = slice.places(seq.len());
        _removed = seq.remove_places(places)?;
        Ok(())
    }

    /// Puts `new` in place of all elements, provided that they are still those of `seen`.
    ///
    /// # Errors
    /// `MemoryError` when memory is short. Nothing has changed then, nor when the result is `false`.
    pub fn replace_all(&self, seen: &[Any], mut new: Vec<Any>) -> Result<bool> {
        let (_removed, _old);
        let mut seq = self.lock();
        if seq.len() != seen.len() || !seq.items().iter().zip(seen).all(|(a, b)| is_same(a, b)) {
            drop(seq);
            return Ok(false);
        }
        _old = seq.make_room(new.len().saturating_sub(seen.len()))?;
        _removed = seq.drain(0..seen.len());
        seq.insert(0, &mut new);
        Ok(true)
    }
}
