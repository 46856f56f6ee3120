//! Counts the live objects that this copy of the crate has created.
//!
//! Each library that contains this crate counts its own objects, so that a loader can determine whether code of the
//! library is still needed. An atomic addition costs as much as the allocation that it counts. Therefore each of the
//! first threads that create or free objects has its own counter, which only this thread writes. A counter is not reused
//! after its thread has ended: reuse would need a destructor of the thread, and such a destructor keeps a library mapped.
//! Further threads share a few counters in turn, so that two of them seldom write the same cache line.
//!
//! An object is counted as freed by code outside the library, to which the deleter of the object jumps as its
//! last action: see [`deleter`]. Therefore, once the counters show no live object, no deleter of the library is
//! running.
//!
//! To find out who created an object, a *ledger* (a record of live objects) can be notified of each object: see
//! [`Ledger`]. Without a ledger, creating or freeing an object costs the load of a pointer that is NULL.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use alloc::vec::Vec;

/// Numbers of objects that one thread has created and freed. There are two numbers because an object may be created on
/// one thread and freed on another; see [`live_objects`]. Each counter has two cache lines of 64 bytes, because
/// processors prefetch lines in pairs, so that threads that write adjacent lines slow each other down.
#[repr(align(128))]
struct Count {
    made: AtomicUsize,
    freed: AtomicUsize,
}

impl Count {
    const fn new() -> Count {
        Count { made: AtomicUsize::new(0), freed: AtomicUsize::new(0) }
    }
}

/// A counter, as an address whose lowest bit is set if several threads write the counter.
#[derive(Clone, Copy)]
struct Tagged(*const Count);

impl Tagged {
    #[cfg(feature = "std")]
    const fn own(count: &'static Count) -> Tagged {
        Tagged(ptr::from_ref(count))
    }

    fn shared(count: &'static Count) -> Tagged {
        Tagged(ptr::from_ref(count).map_addr(|address| address | 1))
    }

    /// Counts an object that was created.
    #[inline]
    fn created(self) {
        let is_shared = self.0.addr() & 1 != 0;
        // SAFETY: apart from the lowest bit, this is the address of a static variable.
        let count = unsafe { &*self.0.map_addr(|address| address & !1) };
        if is_shared {
            count.made.fetch_add(1, Ordering::Release);
        } else {
            add_own(&count.made);
        }
    }

    /// Returns the counter of freed objects.
    #[inline(always)]
    fn freed(self) -> Ended {
        // The lowest bit remains.
        Ended(self.0.wrapping_byte_add(core::mem::offset_of!(Count, freed)).cast())
    }
}

#[cfg(feature = "std")]
mod imp {
    use core::cell::Cell;
    use core::ptr;
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::{Count, Tagged};

    /// Number of threads that have their own counters.
    const OWN: usize = 192;
    /// Number of counters that all further threads share.
    const SHARED: usize = 64;

    static COUNTS: [Count; OWN + SHARED] = [const { Count::new() }; OWN + SHARED];
    /// Number of threads that have tried to get their own counters; those above [`OWN`] got a shared one.
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    /// Number of threads that have got a shared counter. It may wrap around.
    static SHARING: AtomicUsize = AtomicUsize::new(0);

    std::thread_local! {
        // It has no destructor, so it exists as long as the thread.
        static MINE: Cell<Tagged> = const { Cell::new(Tagged(ptr::null())) };
    }

    /// Returns the counter of the calling thread.
    #[inline(always)]
    pub(super) fn mine() -> Tagged {
        let mine = MINE.get();
        if mine.0.is_null() { take() } else { mine }
    }

    #[cold]
    #[inline(never)]
    fn take() -> Tagged {
        let mine = if TAKEN.load(Ordering::Relaxed) < OWN
            && let Some(own) = COUNTS[..OWN].get(TAKEN.fetch_add(1, Ordering::Relaxed))
        {
            Tagged::own(own)
        } else {
            Tagged::shared(&COUNTS[OWN + SHARING.fetch_add(1, Ordering::Relaxed) % SHARED])
        };
        MINE.set(mine);
        mine
    }

    /// Returns the sum of one of the numbers of all counters that threads have.
    pub(super) fn sum(which: impl Fn(&'static Count) -> &'static AtomicUsize) -> usize {
        let taken = TAKEN.load(Ordering::Relaxed);
        let used = if taken < OWN { taken } else { COUNTS.len() };
        COUNTS[..used].iter().fold(0, |sum, count| sum.wrapping_add(which(count).load(Ordering::Acquire)))
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::{Count, Tagged};

    static SHARED: Count = Count::new();

    pub(super) fn mine() -> Tagged {
        Tagged::shared(&SHARED)
    }

    pub(super) fn sum(which: impl Fn(&'static Count) -> &'static AtomicUsize) -> usize {
        which(&SHARED).load(Ordering::Acquire)
    }
}

/// Counters of live objects by type, in debug builds only.
#[cfg(debug_assertions)]
mod ledger {
    use core::sync::atomic::{AtomicIsize, Ordering};

    use alloc::vec::Vec;

    /// Number of counters, one for each type index. All types with an index of `TYPES - 1` or more share the
    /// last counter.
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

/// Pair of functions that a library calls for each object that it creates or frees, in order to
/// record which code created each live object.
///
/// Safe code calls its functions. Therefore creating a ledger from arbitrary functions is unsafe:
///
/// ```compile_fail,E0451
/// # use anyfn_core as _;
/// unsafe extern "C" fn created(object: *const std::ffi::c_void, _: i32, _: *const std::ffi::c_void) {
///     // SAFETY: this is deliberately unsound.
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
    /// Size of this struct in bytes.
    pub(crate) size: usize,
    /// Function that is called after an object is created. Arguments: the object, its type index, an address in the
    /// library that created it.
    pub(crate) created: unsafe extern "C" fn(object: *const c_void, type_index: i32, library: *const c_void),
    /// Function that is called before the memory of an object is freed. Argument: the object.
    pub(crate) freed: unsafe extern "C" fn(object: *const c_void),
}

impl Ledger {
    /// Creates a ledger from its two functions.
    ///
    /// # Safety
    /// Both functions must be callable from any thread and with any address, which they must not dereference. Neither
    /// function may unwind.
    #[doc(hidden)]
    pub const unsafe fn new(
        created: unsafe extern "C" fn(object: *const c_void, type_index: i32, library: *const c_void),
        freed: unsafe extern "C" fn(object: *const c_void),
    ) -> Ledger {
        Ledger { size: size_of::<Ledger>(), created, freed }
    }
}

static LEDGER: AtomicPtr<Ledger> = AtomicPtr::new(core::ptr::null_mut());

/// Installs a ledger, whose functions this library calls for each object that it creates or frees from now
/// on.
#[doc(hidden)]
pub fn use_ledger(ledger: &'static Ledger) {
    if ledger.size >= size_of::<Ledger>() {
        LEDGER.store(core::ptr::from_ref(ledger).cast_mut(), Ordering::Release);
    }
}

/// Returns true if a ledger is installed.
#[doc(hidden)]
#[inline]
pub fn has_ledger() -> bool {
    !LEDGER.load(Ordering::Relaxed).is_null()
}

#[cold]
#[inline(never)]
fn tell_created(object: *const c_void, type_index: i32) {
    // SAFETY: the pointer is NULL or refers to a ledger that lives as long as the process.
    if let Some(ledger) = unsafe { LEDGER.load(Ordering::Acquire).as_ref() } {
        // SAFETY: `Ledger::new` requires a function that may be called at any time and does not dereference the
        // addresses.
        unsafe { (ledger.created)(object, type_index, (&raw const LEDGER).cast()) };
    }
}

#[cold]
#[inline(never)]
fn tell_freed(object: *const c_void) {
    // SAFETY: the pointer is NULL or refers to a ledger that lives as long as the process.
    if let Some(ledger) = unsafe { LEDGER.load(Ordering::Acquire).as_ref() } {
        // SAFETY: `Ledger::new` requires a function that may be called at any time and does not dereference the
        // address.
        unsafe { (ledger.freed)(object) };
    }
}

/// Counts the new object at this address as a live object of this library.
#[inline(always)]
pub(crate) fn created<T>(object: *const T, type_index: i32) {
    imp::mine().created();
    ledger::add(type_index, 1);
    if has_ledger() {
        tell_created(object.cast(), type_index);
    }
}

/// Adds one to a counter that only the calling thread writes.
#[inline(always)]
fn add_own(count: &AtomicUsize) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// Address of the counter to increment for a freed object; NULL if no object was freed. The lowest bit is set
/// if several threads write the counter.
#[doc(hidden)]
#[repr(transparent)]
#[must_use]
#[derive(Debug)]
pub struct Ended(*const AtomicUsize);

impl Ended {
    /// Result of a deleter that has not freed the memory, so that no object is counted as freed.
    pub(crate) const NONE: Ended = Ended(ptr::null());

    /// Increments the counter, if there is one, by calling this library's [`count_end`] directly.
    #[inline(always)]
    pub(crate) fn count(self) {
        // SAFETY: the value was created in this library, whose code is running, and there is no other copy of it.
        unsafe { count_end(self) }
    }
}

/// Notifies the ledger that the object at this address is about to be freed. Returns the counter that the
/// caller must increment afterwards.
#[inline(always)]
pub(crate) fn ending<T>(object: *const T, type_index: i32) -> Ended {
    ledger::add(type_index, -1);
    if has_ledger() {
        tell_freed(object.cast());
    }
    imp::mine().freed()
}

/// Increments the counter of freed objects to which `ended` points, if any. The counter may belong to another
/// library.
///
/// # Safety
/// `ended` must come from this thread's last call of [`ending`] in a library that contains this crate. It must be
/// counted only once, and the library must be mapped.
#[doc(hidden)]
pub unsafe extern "C" fn count_end(ended: Ended) {
    let is_shared = ended.0.addr() & 1 != 0;
    // SAFETY: the pointer refers to a static variable of the library, or is NULL.
    let Some(count) = (unsafe { ended.0.map_addr(|address| address & !1).as_ref() }) else { return };
    if is_shared {
        count.fetch_add(1, Ordering::Release);
    } else {
        add_own(count);
    }
}

/// Type of a [`count_end`] function, of this or another library.
#[doc(hidden)]
pub type CountEnd = unsafe extern "C" fn(ended: Ended);

/// Function to which a deleter jumps as its last step, to count the object as freed. Initially, it
/// is the [`count_end`] of this library. When the library is loaded, the loader replaces it with a
/// function that remains mapped after the library is unmapped.
pub(crate) static COUNT_END: AtomicPtr<c_void> = AtomicPtr::new(count_end as *mut c_void);

/// Sets the function that counts the objects freed by deleters of this library. The function must stay mapped
/// when this library is unmapped.
///
/// # Safety
/// `count` must do the same as [`count_end`] and stay callable for the lifetime of the process.
#[doc(hidden)]
pub unsafe fn use_count_end(count: CountEnd) {
    COUNT_END.store(count as *mut c_void, Ordering::Release);
}

/// Defines the deleter of an object: a function that calls `$release` with the same arguments and then jumps to
/// [`COUNT_END`] with the result.
///
/// Once the object is counted as freed, the stack contains no frame of the library any more, so the library may
/// be unmapped. On processors for which this macro has no assembly code, the deleter returns through its own
/// frame. A library must then not be unmapped while another thread releases the last of its objects.
macro_rules! deleter {
    ($vis:vis fn $name:ident $(<$T:ident: $bound:path>)? ($($arg:ident: $type:ty),*) by $release:path) => {
        /// Deleter that calls `release` and then jumps to code outside the library, which counts the object as
        /// freed.
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

        /// Deleter that calls `release` and then jumps to code outside the library, which counts the object as
        /// freed.
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

        /// Deleter that calls `release` and then counts the object as freed.
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        $vis unsafe extern "C" fn $name $(<$T: $bound>)? ($($arg: $type),*) {
            // SAFETY: `release` receives the arguments of this call unchanged.
            let ended = unsafe { $release($($arg),*) };
            ended.count();
        }
    };
}
pub(crate) use deleter;

/// Returns the number of live objects that this library has created.
///
/// The result is exact if no other thread creates or frees objects at the same time. Otherwise it may include objects
/// that are freed during the call, but it always includes every object that is alive throughout the call.
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
    // The freed objects are read first: a thread that freed an object had seen it created, so the next sum includes it, and the
    // counter of the thread that created it is among those that are summed.
    let freed = imp::sum(|count| &count.freed);
    let made = imp::sum(|count| &count.made);
    made.wrapping_sub(freed) as isize
}

/// Returns the type key and the number of live objects for each type with live objects. The entry with the key
/// `DLTensor*` counts the memory blocks of tensors.
///
/// Only debug builds count types; other builds return a single entry, `<all types>`.
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
