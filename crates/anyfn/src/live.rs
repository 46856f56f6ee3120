//! Counts the objects that this copy of the crate has made and not freed yet.
//!
//! Each library that contains the crate counts its own objects, so a loader can tell whether code of the library is
//! still needed. An atomic addition costs as much as the allocation that it counts, so the first threads that make or
//! free objects have a count each, which only they write; threads beyond those share one. A count is never given back:
//! that would take a destructor of the thread, and such a destructor keeps a library loaded.
//!
//! The end of an object is counted by code outside of the library, which its deleter jumps to as the last thing that it does:
//! see [`deleter`]. So who reads that nothing is alive knows that no deleter of the library runs any more.
//!
//! Who looks for the maker of an object has a *ledger* told of each object: see [`Ledger`]. Without one, making and freeing
//! an object costs the load of a pointer that is NULL.

use core::ffi::c_void;
use core::ptr;
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

    use super::Count;

    const COUNTS: usize = 64;

    static OWN: [Count; COUNTS] = [const { Count::new() }; COUNTS];
    /// How many of the counts have a thread.
    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    std::thread_local! {
        // Without a destructor, so it is there as long as the thread.
        static MINE: Cell<Option<&'static Count>> = const { Cell::new(None) };
    }

    /// The count of this thread, which no other one writes; `None` for the shared one.
    #[inline(always)]
    pub(super) fn mine() -> Option<&'static Count> {
        MINE.get().or_else(take)
    }

    #[inline(never)]
    fn take() -> Option<&'static Count> {
        if TAKEN.load(Ordering::Relaxed) < COUNTS
            && let Some(free) = OWN.get(TAKEN.fetch_add(1, Ordering::Relaxed))
        {
            MINE.set(Some(free));
        }
        MINE.get()
    }

    pub(super) fn sum(which: impl Fn(&'static Count) -> &'static AtomicUsize) -> usize {
        OWN.iter().fold(0, |sum, count| sum.wrapping_add(which(count).load(Ordering::Acquire)))
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    use core::sync::atomic::AtomicUsize;

    use super::Count;

    pub(super) fn mine() -> Option<&'static Count> {
        None
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
    match imp::mine() {
        Some(Count { made, .. }) => add_own(made),
        None => drop(SHARED.made.fetch_add(1, Ordering::Release)),
    }
    ledger::add(type_index, 1);
    if has_ledger() {
        tell_created(object.cast(), type_index);
    }
}

/// Adds one to what only this thread writes.
#[inline(always)]
fn add_own(count: &AtomicUsize) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// Where the end of an object is to be counted: the address of a count, odd if several threads write it, or NULL if no object
/// has ended.
#[doc(hidden)]
#[repr(transparent)]
#[must_use]
#[derive(Debug)]
pub struct Ended(*const AtomicUsize);

impl Ended {
    /// No object has.
    pub(crate) const NONE: Ended = Ended(ptr::null());

    /// Counts it now.
    #[inline(always)]
    pub(crate) fn count(self) {
        // SAFETY: made in this library, whose code runs; nobody else has it.
        unsafe { count_end(self) }
    }
}

/// The object at this address is about to be freed; its end is counted by the result.
#[inline(always)]
pub(crate) fn ending<T>(object: *const T, type_index: i32) -> Ended {
    ledger::add(type_index, -1);
    if has_ledger() {
        tell_freed(object.cast());
    }
    match imp::mine() {
        Some(Count { freed, .. }) => Ended(freed),
        None => Ended(ptr::from_ref(&SHARED.freed).map_addr(|address| address | 1)),
    }
}

/// Counts the end of an object of any library.
///
/// # Safety
/// `ended` must come from this thread's last [`ending`] in a library that contains this crate, be counted once, and the library
/// must be mapped.
#[doc(hidden)]
pub unsafe extern "C" fn count_end(ended: Ended) {
    let is_shared = ended.0.addr() & 1 != 0;
    // SAFETY: a static of the library, or NULL.
    let Some(count) = (unsafe { ended.0.map_addr(|address| address & !1).as_ref() }) else { return };
    if is_shared {
        count.fetch_add(1, Ordering::Release);
    } else {
        add_own(count);
    }
}

/// A [`count_end`] of anybody.
#[doc(hidden)]
pub type CountEnd = unsafe extern "C" fn(ended: Ended);

/// What deleters jump to: this library's own [`count_end`], or that of the process which has loaded it.
pub(crate) static COUNT_END: AtomicPtr<c_void> = AtomicPtr::new(count_end as *mut c_void);

/// Has deleters of this library count the ends of objects by code that stays when the library goes.
///
/// # Safety
/// `count` must do what [`count_end`] does, and stay callable as long as the process lives.
#[doc(hidden)]
pub unsafe fn use_count_end(count: CountEnd) {
    COUNT_END.store(count as *mut c_void, Ordering::Release);
}

/// Defines the deleter of an object: a function that calls `$release` with the same arguments, then jumps to [`COUNT_END`]
/// with its result. Once the end is counted, nothing of the library is on the stack any more, so it may be unmapped.
///
/// On processors for which there is no such code here, the deleter returns from there to itself; then a library must not be
/// unmapped while another thread releases the last of its objects.
macro_rules! deleter {
    ($vis:vis fn $name:ident $(<$T:ident: $bound:path>)? ($($arg:ident: $type:ty),*) by $release:path) => {
        /// The deleter: `release`, then the count of the object's end by code outside of the library.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        $vis unsafe extern "C" fn $name $(<$T: $bound>)? ($($arg: $type),*) {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {release}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "mov rdi, rax",
                "jmp qword ptr [rip + {count}]",
                ".cfi_endproc",
                release = sym $release,
                count = sym $crate::live::COUNT_END,
            )
        }

        /// The deleter: `release`, then the count of the object's end by code outside of the library.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        $vis unsafe extern "C" fn $name $(<$T: $bound>)? ($($arg: $type),*) {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-16]!",
                ".cfi_adjust_cfa_offset 16",
                ".cfi_rel_offset x29, 0",
                ".cfi_rel_offset x30, 8",
                "bl {release}",
                "ldp x29, x30, [sp], #16",
                ".cfi_adjust_cfa_offset -16",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "adrp x16, {count}",
                "ldr x16, [x16, :lo12:{count}]",
                "br x16",
                ".cfi_endproc",
                release = sym $release,
                count = sym $crate::live::COUNT_END,
            )
        }

        /// The deleter: `release`, then the count of the object's end.
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        $vis unsafe extern "C" fn $name $(<$T: $bound>)? ($($arg: $type),*) {
            // SAFETY: called with what this was called with.
            let ended = unsafe { $release($($arg),*) };
            ended.count();
        }
    };
}
pub(crate) use deleter;

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
