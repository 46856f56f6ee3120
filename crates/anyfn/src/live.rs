//! Counts the objects that this copy of the crate has made and not freed yet.
//!
//! Each library that contains the crate counts its own objects, so a loader can tell whether code of the library is
//! still needed. An atomic addition costs as much as the allocation that it counts, so the first threads that make or
//! free objects have a count each, which only they write; threads beyond those share one. A count is never given back:
//! that would take a destructor of the thread, and such a destructor keeps a library loaded.
//!
//! Who looks for the maker of an object has a *ledger* told of each object: see [`Ledger`]. Without one, making and freeing
//! an object costs the load of a pointer that is NULL.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use alloc::vec::Vec;

/// What threads have made and freed, in a cache line of its own. Apart from each other, so that objects that are made on
/// one thread and freed on another never hide one that is alive: see [`live_objects`].
#[repr(align(64))]
struct Count {
    made: AtomicUsize,
    freed: AtomicUsize,
}

impl Count {
    const fn new() -> Count {
        Count { made: AtomicUsize::new(0), freed: AtomicUsize::new(0) }
    }
}

static SHARED: Count = Count::new();

#[cfg(feature = "std")]
mod imp {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::{Count, SHARED};

    const COUNTS: usize = 64;

    static OWN: [Count; COUNTS] = [const { Count::new() }; COUNTS];
    /// How many of the counts have a thread.
    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    std::thread_local! {
        // Without a destructor, so it is there as long as the thread.
        static MINE: Cell<Option<&'static Count>> = const { Cell::new(None) };
    }

    #[inline(always)]
    pub(super) fn add(which: impl Fn(&'static Count) -> &'static AtomicUsize) {
        match MINE.get() {
            // No other thread writes it.
            Some(mine) => {
                which(mine).store(which(mine).load(Ordering::Relaxed).wrapping_add(1), Ordering::Release)
            }
            None => add_without_own(which),
        }
    }

    #[inline(never)]
    fn add_without_own(which: impl Fn(&'static Count) -> &'static AtomicUsize) {
        if TAKEN.load(Ordering::Relaxed) < COUNTS
            && let Some(free) = OWN.get(TAKEN.fetch_add(1, Ordering::Relaxed))
        {
            MINE.set(Some(free));
            return add(which);
        }
        which(&SHARED).fetch_add(1, Ordering::Release);
    }

    pub(super) fn sum(which: impl Fn(&'static Count) -> &'static AtomicUsize) -> usize {
        OWN.iter().fold(0, |sum, count| sum.wrapping_add(which(count).load(Ordering::Acquire)))
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::{Count, SHARED};

    pub(super) fn add(which: impl Fn(&'static Count) -> &'static AtomicUsize) {
        which(&SHARED).fetch_add(1, Ordering::Release);
    }

    pub(super) fn sum(_which: impl Fn(&'static Count) -> &'static AtomicUsize) -> usize {
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

/// What is told of each object that a library makes and frees, when somebody looks for the makers of objects.
///
/// Its functions are called by safe code, so to make one of any functions is unsafe:
///
/// ```compile_fail,E0451
/// # use anyfn_core as _;
/// unsafe extern "C" fn created(object: *const std::ffi::c_void, _: i32, _: *const std::ffi::c_void) {
///     // SAFETY: there is none.
///     unsafe { object.cast_mut().cast::<u64>().write(0) }
/// }
/// unsafe extern "C" fn freed(_: *const std::ffi::c_void) {}
/// static LEDGER: anyfn::Ledger = anyfn::Ledger { size: size_of::<anyfn::Ledger>(), created, freed };
/// anyfn::use_ledger(&LEDGER);
/// ```
#[doc(hidden)]
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    /// Size of this struct.
    pub(crate) size: usize,
    /// Called with the object, its type and an address in the library that has made it.
    pub(crate) created: unsafe extern "C" fn(object: *const c_void, type_index: i32, library: *const c_void),
    /// Called before the object's memory is given back.
    pub(crate) freed: unsafe extern "C" fn(object: *const c_void),
}

impl Ledger {
    /// A ledger of these functions.
    ///
    /// # Safety
    /// Both must be callable from any thread and with any address, which they do not follow; neither may unwind.
    #[doc(hidden)]
    pub const unsafe fn new(
        created: unsafe extern "C" fn(object: *const c_void, type_index: i32, library: *const c_void),
        freed: unsafe extern "C" fn(object: *const c_void),
    ) -> Ledger {
        Ledger { size: size_of::<Ledger>(), created, freed }
    }
}

static LEDGER: AtomicPtr<Ledger> = AtomicPtr::new(core::ptr::null_mut());

/// Has a ledger told of the objects that this library makes from now on.
#[doc(hidden)]
pub fn use_ledger(ledger: &'static Ledger) {
    if ledger.size >= size_of::<Ledger>() {
        LEDGER.store(core::ptr::from_ref(ledger).cast_mut(), Ordering::Release);
    }
}

/// Whether a ledger is told.
#[doc(hidden)]
#[inline]
pub fn has_ledger() -> bool {
    !LEDGER.load(Ordering::Relaxed).is_null()
}

#[cold]
#[inline(never)]
fn tell_created(object: *const c_void, type_index: i32) {
    // SAFETY: NULL, or a ledger that lives as long as the process.
    if let Some(ledger) = unsafe { LEDGER.load(Ordering::Acquire).as_ref() } {
        // SAFETY: `Ledger::new` asks for a function that may be called at any time, which does not follow the addresses.
        unsafe { (ledger.created)(object, type_index, (&raw const LEDGER).cast()) };
    }
}

#[cold]
#[inline(never)]
fn tell_freed(object: *const c_void) {
    // SAFETY: NULL, or a ledger that lives as long as the process.
    if let Some(ledger) = unsafe { LEDGER.load(Ordering::Acquire).as_ref() } {
        // SAFETY: `Ledger::new` asks for a function that may be called at any time, which does not follow the address.
        unsafe { (ledger.freed)(object) };
    }
}

/// An object was made at this address.
#[inline(always)]
pub(crate) fn created<T>(object: *const T, type_index: i32) {
    imp::add(|count| &count.made);
    ledger::add(type_index, 1);
    if has_ledger() {
        tell_created(object.cast(), type_index);
    }
}

/// The object at this address is about to be freed.
#[inline(always)]
pub(crate) fn freed<T>(object: *const T, type_index: i32) {
    imp::add(|count| &count.freed);
    ledger::add(type_index, -1);
    if has_ledger() {
        tell_freed(object.cast());
    }
}

/// Number of objects that this library has made and that are not freed yet.
///
/// Exact when no other thread makes or frees objects at the same time. Else it may count objects that are freed
/// meanwhile, but none that is alive all the time is missing.
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
    // First all that is freed: whoever has freed an object had seen it made, so what is read next has that, too.
    let freed = imp::sum(|count| &count.freed).wrapping_add(SHARED.freed.load(Ordering::Acquire));
    let made = imp::sum(|count| &count.made).wrapping_add(SHARED.made.load(Ordering::Acquire));
    made.wrapping_sub(freed) as isize
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
