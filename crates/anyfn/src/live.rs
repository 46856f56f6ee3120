//! Counts the objects that this copy of the crate has made and not freed yet.
//!
//! Each library that contains the crate counts its own objects, so a loader can tell whether code of the library is
//! still needed. An atomic addition costs as much as the allocation that it counts, so the first threads that make or
//! free objects have a count each, which only they write; threads beyond those share one. A count is never given back:
//! that would take a destructor of the thread, and such a destructor keeps a library loaded.

use core::sync::atomic::{AtomicIsize, Ordering};

use alloc::vec::Vec;

/// A count in a cache line of its own.
#[repr(align(64))]
struct Count(AtomicIsize);

static SHARED: Count = Count(AtomicIsize::new(0));

#[cfg(feature = "std")]
mod imp {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

    use super::{Count, SHARED};

    const COUNTS: usize = 64;

    static OWN: [Count; COUNTS] = [const { Count(AtomicIsize::new(0)) }; COUNTS];
    /// How many of the counts have a thread.
    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    std::thread_local! {
        // Without a destructor, so it is there as long as the thread.
        static MINE: Cell<Option<&'static AtomicIsize>> = const { Cell::new(None) };
    }

    #[inline(always)]
    pub(super) fn add(n: isize) {
        match MINE.get() {
            // No other thread writes it.
            Some(mine) => mine.store(mine.load(Ordering::Relaxed) + n, Ordering::Relaxed),
            None => add_without_own(n),
        }
    }

    #[inline(never)]
    fn add_without_own(n: isize) {
        if TAKEN.load(Ordering::Relaxed) < COUNTS
            && let Some(free) = OWN.get(TAKEN.fetch_add(1, Ordering::Relaxed))
        {
            MINE.set(Some(&free.0));
            return add(n);
        }
        SHARED.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn sum() -> isize {
        OWN.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    use core::sync::atomic::Ordering;

    pub(super) fn add(n: isize) {
        super::SHARED.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn sum() -> isize {
        0
    }
}

/// A count for each type, in debug builds: says what is left when something is.
#[cfg(debug_assertions)]
mod ledger {
    use core::sync::atomic::{AtomicIsize, Ordering};

    use alloc::vec::Vec;

    /// Types with larger indices share the last count.
    const TYPES: usize = 1024;

    static COUNTS: [AtomicIsize; TYPES] = [const { AtomicIsize::new(0) }; TYPES];

    pub(super) fn add(type_index: i32, n: isize) {
        let slot = usize::try_from(type_index).unwrap_or(TYPES).min(TYPES - 1);
        COUNTS[slot].fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn read() -> Vec<(&'static str, isize)> {
        let counts = COUNTS.iter().enumerate().map(|(index, count)| (index, count.load(Ordering::Relaxed)));
        let name = |index: usize| match i32::try_from(index) {
            Ok(index) if index as usize != TYPES - 1 => crate::type_key(index),
            _ => "<other types>",
        };
        counts.filter(|(_, count)| *count != 0).map(|(index, count)| (name(index), count)).collect()
    }
}

#[cfg(not(debug_assertions))]
mod ledger {
    use alloc::vec::Vec;

    #[inline(always)]
    pub(super) fn add(_type_index: i32, _n: isize) {}

    pub(super) fn read() -> Vec<(&'static str, isize)> {
        alloc::vec![("<all types>", super::live_objects())]
    }
}

#[inline(always)]
pub(crate) fn created(type_index: i32) {
    imp::add(1);
    ledger::add(type_index, 1);
}

#[inline(always)]
pub(crate) fn freed(type_index: i32) {
    imp::add(-1);
    ledger::add(type_index, -1);
}

/// Number of objects that this library has made and that are not freed yet.
///
/// Exact when no other thread makes or frees objects at the same time.
///
/// ```
/// # use anyfn_core as _;
/// let before = anyfn::live_objects();
/// let text = anyfn::String::from("longer than seven bytes");
/// assert_eq!(anyfn::live_objects(), before + 1);
/// drop(text);
/// assert_eq!(anyfn::live_objects(), before);
/// ```
pub fn live_objects() -> isize {
    imp::sum() + SHARED.0.load(Ordering::Relaxed)
}

/// As [`live_objects`], for each type that has objects: its key and their number. `DLTensor*` stands for the memory of
/// tensors.
///
/// Only debug builds count types; others give one entry, `<all types>`.
///
/// ```
/// # use anyfn_core as _;
/// let _text = anyfn::String::from("longer than seven bytes");
/// let counts = anyfn::live_objects_by_type();
/// assert!(counts.iter().any(|(key, count)| *count > 0 && ["ffi.String", "<all types>"].contains(key)));
/// ```
pub fn live_objects_by_type() -> Vec<(&'static str, isize)> {
    ledger::read()
}
