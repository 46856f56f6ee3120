//! List operations on slices, and on indices that count from the end.

use alloc::vec::Vec;

use super::slice::Slice;
use super::{List, seq};
use crate::{Any, Result};

/// Converts an index that may be negative to an index from the start of a sequence of `len` elements. A
/// negative index counts from the end. Returns `None` if the index is out of bounds.
#[inline]
fn place(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// Returns true if two values have the same type and the same bits.
fn is_same(a: &Any, b: &Any) -> bool {
    let (a, b) = (a.view_ref(), b.view_ref());
    a.type_index() == b.type_index() && a.bits() == b.bits()
}

/// List operations with indices that count from the end if they are negative. Each operation is atomic.
impl List {
    /// Returns the element at `index`, if it exists. A negative index counts from the end.
    #[inline]
    pub fn at(&self, index: i64) -> Option<Any> {
        let seq = self.lock();
        seq.items().get(place(index, seq.len())?).cloned()
    }

    /// Replaces the element at `index`. A negative index counts from the end. Returns false if the
    /// index is out of bounds.
    pub fn set_at(&self, index: i64, value: Any) -> bool {
        // Declared first: the old element, or an unused `value`, is released after the lock.
        let _old;
        let value = value;
        let mut seq = self.lock();
        let Some(index) = place(index, seq.len()) else { return false };
        _old = seq.replace(index, value);
        true
    }

    /// Inserts an element before the element at `index`. A negative index counts from the end, and an index
    /// beyond either end is clamped to that end.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
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

    /// Removes the element at `index` and returns it, if it exists. A negative index counts from the end.
    pub fn remove_at(&self, index: i64) -> Option<Any> {
        let mut seq = self.lock();
        let index = place(index, seq.len())?;
        Some(seq.remove(index))
    }

    /// Removes the element `item`, which the caller found at index `at`, even if its index has changed since
    /// then. Returns false if the List no longer contains the element.
    pub fn remove_same(&self, at: usize, item: &Any) -> bool {
        let _removed;
        let mut seq = self.lock();
        let here = seq.items().get(at).is_some_and(|other| is_same(other, item));
        let at = if here { Some(at) } else { seq.items().iter().position(|other| is_same(other, item)) };
        let Some(at) = at else { return false };
        _removed = seq.remove(at);
        true
    }

    /// Returns the elements that `slice` selects.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn slice(&self, slice: Slice) -> Result<Vec<Any>> {
        let seq = self.lock();
        seq::items_at(seq.items(), slice)
    }

    /// Replaces the elements that `slice` selects. If the step is not 1, the number of `values` must equal the
    /// number of selected elements.
    ///
    /// # Errors
    /// Returns `ValueError` if the step is not 1 and the numbers of elements differ. Returns `MemoryError` if memory
    /// allocation fails. The List is unchanged in both cases.
    pub fn set_slice(&self, slice: Slice, mut values: Vec<Any>) -> Result<()> {
        let (_removed, _old);
        let mut seq = self.lock();
        let mut indices = slice.indices(seq.len());
        if slice.step != 1 {
            if values.len() != indices.len() {
                let (given, wanted) = (values.len(), indices.len());
                // Release the lock before the message is formatted and before `values` is dropped.
                drop(seq);
                return Err(crate::error!(
                    "ValueError",
                    "attempt to assign sequence of size {given} to extended slice of size {wanted}"
                ));
            }
            for value in &mut values {
                if let Some(at) = indices.next() {
                    *value = seq.replace(at, core::mem::take(value));
                }
            }
            drop(seq);
            return Ok(());
        }
        let start = indices.next as usize;
        _old = seq.make_room(values.len().saturating_sub(indices.len()))?;
        _removed = seq.drain(start..start + indices.len());
        seq.insert(start, &mut values);
        Ok(())
    }

    /// Removes the elements that `slice` selects.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the List is unchanged in that case.
    pub fn remove_slice(&self, slice: Slice) -> Result<()> {
        let _removed;
        let mut seq = self.lock();
        let indices = slice.indices(seq.len());
        _removed = seq.remove_indices(indices)?;
        Ok(())
    }

    /// Replaces all elements with `new` and returns true if the current elements are identical to
    /// those of `seen`. Otherwise returns false and leaves the List unchanged.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the List is unchanged in that case.
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
