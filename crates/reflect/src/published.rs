//! Values that any thread can read without waiting, and that are never freed once they are published.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Atomic pointer with the operations that [`Published`] needs. Implemented for `AtomicPtr` and, in tests, for the
/// corresponding type of `loom`.
pub(crate) trait Pointer<T> {
    /// Returns the pointer, so that what was written before it was stored is visible.
    fn load(&self) -> *mut T;
    /// Stores `new` if the pointer is `old`. Otherwise returns the pointer as an error, so that what was written before it
    /// was stored is visible.
    fn compare_exchange(&self, old: *mut T, new: *mut T) -> Result<*mut T, *mut T>;
}

impl<T> Pointer<T> for AtomicPtr<T> {
    #[inline(always)]
    fn load(&self) -> *mut T {
        AtomicPtr::load(self, Ordering::Acquire)
    }
    fn compare_exchange(&self, old: *mut T, new: *mut T) -> Result<*mut T, *mut T> {
        AtomicPtr::compare_exchange(self, old, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Cell that is empty at first, and then refers to the value that was published last.
pub(crate) struct Published<T: 'static, P = AtomicPtr<T>> {
    pointer: P,
    value: PhantomData<&'static T>,
}

impl<T> Published<T> {
    pub(crate) const fn new() -> Self {
        Published { pointer: AtomicPtr::new(ptr::null_mut()), value: PhantomData }
    }
}

impl<T: Sync, P: Pointer<T>> Published<T, P> {
    /// Returns the value that was published last, or `None` if no value was published yet.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is NULL, or refers to a value that `replace` has leaked and that never changes.
        unsafe { self.pointer.load().cast_const().as_ref() }
    }

    /// Publishes `new` if the cell still refers to `old`, the result of [`get`](Self::get). If another thread was faster,
    /// `new` is dropped. Returns the value to which the cell refers now, which may be older than `new`.
    ///
    /// # Panics
    /// Panics if `old` is a value of another cell and this one is empty.
    pub(crate) fn replace(&self, old: Option<&'static T>, new: Box<T>) -> &'static T {
        let new = Box::into_raw(new);
        let old = old.map_or(ptr::null_mut(), |old| ptr::from_ref(old).cast_mut());
        match self.pointer.compare_exchange(old, new) {
            // SAFETY: the value was leaked above. From here on it is only read.
            Ok(_) => unsafe { &*new },
            Err(faster) => {
                // SAFETY: the value was leaked above, and no other code has its address.
                drop(unsafe { Box::from_raw(new) });
                assert!(!faster.is_null(), "the cell is empty, and `old` is not one of its values");
                // SAFETY: the cell did not refer to `old` any more, so `replace` has leaked the value in another thread.
                // A cell never becomes empty again.
                unsafe { &*faster }
            }
        }
    }
}

/// Number of cells in the first part of a [`PublishedVec`]. A power of two.
const FIRST: u32 = 256;
/// Number of parts that together have a cell for each 31-bit number.
const PARTS: usize = 24;

/// A growing array of [`Published`] cells. Each part has twice as many cells as the one before it, and is allocated when
/// one of its cells is first used, so no cell ever moves.
pub(crate) struct PublishedVec<T: 'static> {
    parts: [Published<Vec<Published<T>>>; PARTS],
}

impl<T: Sync> PublishedVec<T> {
    pub(crate) const fn new() -> Self {
        PublishedVec { parts: [const { Published::new() }; PARTS] }
    }

    /// Returns the cell with the index `index`; `None` if the index is negative. Allocates memory in proportion to the index,
    /// so an index from outside must be checked first.
    pub(crate) fn cell(&self, index: i32) -> Option<&'static Published<T>> {
        let number = u32::try_from(index).ok()? + FIRST;
        let part = number.ilog2() - FIRST.ilog2();
        let len = FIRST << part;
        let place = &self.parts[part as usize];
        let cells = match place.get() {
            Some(cells) => cells,
            None => place.replace(None, Box::new((0..len).map(|_| Published::new()).collect())),
        };
        cells.get((number - len) as usize)
    }
}

/// Tests that explore all interleavings of threads; `./x test` runs them with `--cfg loom`.
#[cfg(all(test, loom))]
mod orders {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicPtr as LoomPtr;

    impl<T> Pointer<T> for LoomPtr<T> {
        fn load(&self) -> *mut T {
            LoomPtr::load(self, Ordering::Acquire)
        }
        fn compare_exchange(&self, old: *mut T, new: *mut T) -> Result<*mut T, *mut T> {
            LoomPtr::compare_exchange(self, old, new, Ordering::AcqRel, Ordering::Acquire)
        }
    }

    /// A value whose content `loom` checks for accesses that are not ordered.
    struct Checked(loom::cell::UnsafeCell<u32>);

    // SAFETY: the content is written before the value is published, which `loom` checks.
    unsafe impl Sync for Checked {}

    impl Checked {
        fn new(content: u32) -> Box<Checked> {
            let value = Box::new(Checked(loom::cell::UnsafeCell::new(0)));
            // SAFETY: no other thread has the value yet; loom checks that.
            value.0.with_mut(|place| unsafe { *place = content });
            value
        }
        fn read(&self) -> u32 {
            // SAFETY: nothing writes once the value is published; loom checks that.
            self.0.with(|place| unsafe { *place })
        }
    }

    #[test]
    fn all_threads_get_published_values() {
        loom::model(|| {
            let empty = LoomPtr::new(ptr::null_mut());
            let cell = Arc::new(Published::<Checked, _> { pointer: empty, value: PhantomData });
            let threads = [1, 2].map(|number| {
                let cell = cell.clone();
                loom::thread::spawn(move || {
                    let old = cell.get();
                    let now = cell.replace(old, Checked::new(number)).read();
                    // The thread's own value, or that of the faster one.
                    assert!(now == number || old.is_none_or(|old| old.read() != now));
                    now
                })
            });
            let seen = cell.get().map(Checked::read);
            assert!(seen.is_none_or(|seen| seen == 1 || seen == 2));
            let results = threads.map(|thread| thread.join().unwrap());
            let last = cell.get().map(Checked::read);
            assert!(last.is_some_and(|last| results.contains(&last)));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number, and the value that it has replaced. Leak checkers find both through the cell.
    struct Version(u32, #[expect(dead_code, reason = "keeps the address")] Option<&'static Version>);

    #[test]
    fn keeps_the_value_that_was_published_first() {
        static CELL: Published<Version> = Published::new();
        let number = || CELL.get().map(|version| version.0);
        assert_eq!(number(), None);
        let one = CELL.replace(None, Box::new(Version(1, None)));
        assert_eq!((one.0, number()), (1, Some(1)));
        assert_eq!(CELL.replace(None, Box::new(Version(2, None))).0, 1, "the cell was not empty");
        assert_eq!(CELL.replace(Some(one), Box::new(Version(3, Some(one)))).0, 3);
        assert_eq!(number(), Some(3));
    }

    #[test]
    fn cells_of_all_indices_are_different() {
        static CELLS: PublishedVec<i32> = PublishedVec::new();
        assert!(CELLS.cell(-1).is_none());
        let indices = [0, 1, 255, 256, 257, 767, 768, 5000, 40_000];
        for index in indices {
            assert_eq!(*CELLS.cell(index).unwrap().replace(None, Box::new(index)), index);
        }
        for index in indices {
            assert_eq!(CELLS.cell(index).unwrap().get(), Some(&index));
        }
        assert!(CELLS.cell(2).unwrap().get().is_none());
    }
}
