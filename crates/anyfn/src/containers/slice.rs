//! Slices, which select indices of a sequence by start, stop and step.

use core::iter::FusedIterator;

use crate::{Error, Result};

/// A selection of the indices of a sequence: every `step`-th index from `start` on, up to but not including `stop`.
///
/// As in Python, negative indices count from the end, indices beyond either end are clamped to that end, and a
/// negative step selects indices in descending order. The selected indices depend on the length of the sequence
/// at the time of use.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Slice;
///
/// // The elements 4, 2 and 0 of five, from the last one backwards.
/// let slice = Slice::new(-1, i64::MIN, -2)?;
/// assert_eq!(slice.indices(5).collect::<Vec<_>>(), [4, 2, 0]);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    start: i64,
    stop: i64,
    pub(super) step: i64,
}

impl Slice {
    /// Creates a slice from `start`, `stop` and `step`.
    ///
    /// # Errors
    /// Returns `ValueError` if `step` is zero.
    pub fn new(start: i64, stop: i64, step: i64) -> Result<Slice> {
        if step == 0 {
            return Err(Error::new("ValueError", "slice step cannot be zero"));
        }
        Ok(Slice { start, stop, step: step.max(-i64::MAX) })
    }

    /// Returns the selected indices in a sequence of `len` elements. Each of them is below `len`.
    pub fn indices(self, len: usize) -> SliceIndices {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let (lowest, highest) = if self.step < 0 { (-1, len - 1) } else { (0, len) };
        let cut = |at: i64| if at < 0 { (at + len).max(lowest) } else { at.min(highest) };
        let (start, stop) = (cut(self.start), cut(self.stop));
        let distance = if self.step < 0 { start - stop } else { stop - start };
        let count = if distance <= 0 { 0 } else { (distance - 1) / self.step.abs() + 1 };
        SliceIndices { next: start, step: self.step, left: count as usize }
    }
}

/// The indices that a [`Slice`] selects in a sequence of known length.
#[derive(Clone, Copy, Debug)]
pub struct SliceIndices {
    pub(super) next: i64,
    step: i64,
    left: usize,
}

impl SliceIndices {
    /// Returns the distance between neighbouring selected indices. The distance is positive even if
    /// the step is negative.
    pub(super) fn step(self) -> usize {
        usize::try_from(self.step.unsigned_abs()).unwrap_or(usize::MAX)
    }

    /// Returns the lowest selected index; `None` if the slice selects no index.
    pub(super) fn lowest(self) -> Option<usize> {
        let last = self.left.checked_sub(1)?;
        let lowest = if self.step < 0 { self.next + self.step * last as i64 } else { self.next };
        usize::try_from(lowest).ok()
    }
}

impl Iterator for SliceIndices {
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

impl ExactSizeIterator for SliceIndices {}
impl FusedIterator for SliceIndices {}
