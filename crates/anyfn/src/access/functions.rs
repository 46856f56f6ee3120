//! The access table of this process, which records the current accesses to tensor memory. It belongs to the
//! runtime, and all libraries share it.
//!
//! The runtime publishes the functions of the table as an attribute of the tensor type. Another implementation of the
//! stable ABI has no such attribute; each library then keeps its own table, which excludes conflicts between its own
//! accesses only.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn_abi::{kTVMFFIOpaquePtr, kTVMFFITensor};

use super::table::{Outcome, RANGES_MAX, Table};
use super::{Access, Wanted};
use crate::{Error, Result, types};

/// Attribute of the tensor type that holds the address of the runtime's [`Functions`].
const ATTRIBUTE: &str = "__anyfn_access__";

/// The C functions through which libraries use an access table.
#[doc(hidden)]
#[repr(C)]
#[derive(Debug)]
pub struct Functions {
    /// Size of this struct in bytes.
    size: usize,
    /// Function that begins accesses to `count` ranges. It waits for up to `milliseconds`, writes one ticket
    /// for each range, and returns one of the constants in the module `code`.
    ///
    /// If the calling thread itself has a conflicting access, the result is `OWN`, and the first ticket is twice the
    /// index of the requested range that conflicts, plus one if the access in progress writes.
    begin: unsafe extern "C" fn(*const Wanted, count: usize, milliseconds: u32, tickets: *mut u64) -> i32,
    /// Function that ends the access with the given ticket.
    end: unsafe extern "C" fn(ticket: u64),
    /// Function that marks a range as read-only. It returns the ticket of the mark, or 0 if memory allocation fails.
    protect: unsafe extern "C" fn(*const Wanted) -> u64,
    /// Function that removes the read-only mark with the given ticket.
    unprotect: unsafe extern "C" fn(ticket: u64),
    /// Function that returns 1 if any byte of the range is marked as read-only, and 0 otherwise.
    is_protected: unsafe extern "C" fn(*const Wanted) -> i32,
}

mod code {
    pub(super) const BEGUN: i32 = 0;
    pub(super) const OWN: i32 = 1;
    pub(super) const DEADLOCK: i32 = 2;
    pub(super) const TIMED_OUT: i32 = 3;
    pub(super) const OUT_OF_MEMORY: i32 = 4;
}

static TABLE: Table<imp::Lock> = Table(imp::Lock::new());

static OWN: Functions = Functions {
    size: size_of::<Functions>(),
    begin: begin_own,
    end: end_own,
    protect: protect_own,
    unprotect: unprotect_own,
    is_protected: is_protected_own,
};

/// Returns the name of the attribute through which libraries find the access table, and the C functions of
/// the table in this copy of the crate. The runtime calls this to publish its table.
#[doc(hidden)]
pub fn functions() -> (&'static str, &'static Functions) {
    (ATTRIBUTE, &OWN)
}

/// Begins accesses to `count` ranges in the access table of this library; see `Functions::begin`.
///
/// # Safety
/// `ranges` must point to `count` readable ranges, and `tickets` to `count` writable tickets.
unsafe extern "C" fn begin_own(
    ranges: *const Wanted,
    count: usize,
    milliseconds: u32,
    tickets: *mut u64,
) -> i32 {
    if count > RANGES_MAX {
        return code::OUT_OF_MEMORY;
    }
    // SAFETY: the caller guarantees `count` ranges.
    let ranges = unsafe { core::slice::from_raw_parts(ranges, count) };
    // SAFETY: the caller guarantees `count` tickets.
    let tickets = unsafe { core::slice::from_raw_parts_mut(tickets, count) };
    match TABLE.begin(imp::thread(), ranges, || imp::deadline(milliseconds), tickets) {
        Outcome::Begun => code::BEGUN,
        Outcome::Own { index, writes } => {
            if let Some(first) = tickets.first_mut() {
                *first = index as u64 * 2 + u64::from(writes);
            }
            code::OWN
        }
        Outcome::Deadlock => code::DEADLOCK,
        Outcome::TimedOut => code::TIMED_OUT,
        Outcome::OutOfMemory => code::OUT_OF_MEMORY,
    }
}

unsafe extern "C" fn end_own(ticket: u64) {
    TABLE.end(ticket);
}

/// Marks a range as read-only in the access table of this library; see `Functions::protect`.
///
/// # Safety
/// `range` must be readable.
unsafe extern "C" fn protect_own(range: *const Wanted) -> u64 {
    // SAFETY: the caller guarantees a readable range.
    TABLE.protect(imp::thread(), unsafe { *range })
}

unsafe extern "C" fn unprotect_own(ticket: u64) {
    TABLE.unprotect(ticket);
}

/// Returns 1 if any byte of the range is marked as read-only in the access table of this library,
/// and 0 otherwise.
///
/// # Safety
/// `range` must be readable.
unsafe extern "C" fn is_protected_own(range: *const Wanted) -> i32 {
    // SAFETY: the caller guarantees a readable range.
    i32::from(TABLE.is_protected(unsafe { &*range }))
}

static FUNCTIONS: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn shared() -> &'static Functions {
    // SAFETY: the pointer is NULL, or refers to functions that live as long as the process (those of the runtime) or
    // as this library (its own).
    match unsafe { FUNCTIONS.load(Ordering::Acquire).as_ref() } {
        Some(functions) => functions,
        None => find(),
    }
}

#[cold]
fn find() -> &'static Functions {
    let found = types::attribute(ATTRIBUTE, kTVMFFITensor).filter(|value| value.type_index == kTVMFFIOpaquePtr);
    // SAFETY: an opaque pointer has its value in `v_ptr`.
    let found = found.map(|value| unsafe { value.value.v_ptr }.cast::<Functions>());
    // SAFETY: the runtime sets the attribute before other code can, to functions that live as long as the runtime.
    let found = found.and_then(|found| unsafe { found.as_ref() });
    let functions = found.filter(|found| found.size >= size_of::<Functions>()).unwrap_or(&OWN);
    FUNCTIONS.store(ptr::from_ref(functions).cast_mut(), Ordering::Release);
    functions
}

/// Interval in milliseconds after which a waiting thread interrupts the wait to check for signals.
const SLICE_MS: u32 = 100;

/// Returns the maximum time in milliseconds that the first request of an access with this time limit waits.
fn first_slice(limit_ms: Option<u32>) -> u32 {
    limit_ms.map_or(SLICE_MS, |limit| limit.min(SLICE_MS))
}

#[inline]
pub(super) fn begin<const N: usize>(wanted: [Wanted; N], limit_ms: Option<u32>) -> Result<[Access; N]> {
    const { assert!(N <= RANGES_MAX) };
    let mut tickets = [0; N];
    // SAFETY: both arrays have `N` entries.
    let outcome = unsafe { (shared().begin)(wanted.as_ptr(), N, first_slice(limit_ms), tickets.as_mut_ptr()) };
    if outcome != code::BEGUN {
        again(outcome, &wanted, limit_ms, &mut tickets)?;
    }
    Ok(tickets.map(|ticket| Access { ticket, _thread: PhantomData }))
}

/// Repeats a request for the ranges `wanted` until the accesses begin, and checks for signals
/// before each attempt. `outcome` is the result of the first request. Returns an error if the time
/// limit has passed, the check for signals fails or the accesses cannot begin.
#[cold]
fn again(mut outcome: i32, wanted: &[Wanted], limit_ms: Option<u32>, tickets: &mut [u64]) -> Result<()> {
    let mut waited = first_slice(limit_ms);
    while outcome == code::TIMED_OUT {
        if limit_ms.is_some_and(|limit| waited >= limit) {
            crate::bail!(
                "RuntimeError",
                "cannot access the elements of a tensor: another thread has used them for more than {waited} ms"
            );
        }
        crate::check_signals()?;
        // SAFETY: both slices have the same number of entries.
        outcome = unsafe { (shared().begin)(wanted.as_ptr(), wanted.len(), SLICE_MS, tickets.as_mut_ptr()) };
        waited = waited.saturating_add(SLICE_MS);
    }
    match outcome {
        code::BEGUN => Ok(()),
        code::OWN => Err(own_conflict(wanted, tickets.first().copied().unwrap_or(0))),
        code::DEADLOCK => crate::bail!(
            "RuntimeError",
            "cannot access the elements of a tensor: the thread that uses them waits for elements that this \
             thread uses; request all elements in one access"
        ),
        _ => crate::bail!("MemoryError", "cannot access the elements of a tensor: out of memory"),
    }
}

fn own_conflict(wanted: &[Wanted], report: u64) -> Error {
    let verb = |writes: bool| if writes { "write" } else { "read" };
    let wanted = wanted.get((report / 2) as usize).copied().unwrap_or(Wanted::NOTHING);
    let held = if report % 2 == 1 { "TensorWrite" } else { "TensorRead" };
    crate::error!(
        "RuntimeError",
        "cannot {} the {} bytes of a tensor at {:#x}: this thread holds a {held} of the same memory",
        verb(wanted.write != 0),
        wanted.end - wanted.start,
        wanted.start
    )
}

pub(super) fn protect(range: Wanted) -> Result<u64> {
    // SAFETY: the range is readable.
    match unsafe { (shared().protect)(&range) } {
        0 => crate::bail!("MemoryError", "cannot mark memory as read-only: out of memory"),
        ticket => Ok(ticket),
    }
}

pub(super) fn unprotect(ticket: u64) {
    // SAFETY: the ticket comes from `protect`, and the table ignores unknown tickets.
    unsafe { (shared().unprotect)(ticket) };
}

pub(super) fn is_protected(range: Wanted) -> bool {
    // SAFETY: the range is readable.
    unsafe { (shared().is_protected)(&range) != 0 }
}

#[inline]
pub(super) fn end(ticket: u64) {
    if ticket != 0 {
        // SAFETY: each ticket ends once, and the table ignores unknown tickets.
        unsafe { (shared().end)(ticket) };
    }
}

/// Acquires the lock of the access table before a fork, so that no other thread is changing the table while
/// the process is copied. Each call must be followed by a call of [`after_fork`] on the same thread, in both
/// processes.
#[doc(hidden)]
pub fn before_fork() {
    imp::before_fork();
}

/// Releases the lock of the access table after a fork. In the child, only the accesses of the thread that
/// forked remain.
#[doc(hidden)]
pub fn after_fork(in_child: bool) {
    imp::after_fork(in_child);
}

#[cfg(feature = "std")]
mod imp {
    use core::cell::UnsafeCell;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use super::super::table::{AccessTable, Monitor};
    use super::TABLE;

    pub(super) struct Lock {
        state: Mutex<AccessTable>,
        changed: Condvar,
    }

    impl Lock {
        pub(super) const fn new() -> Lock {
            Lock { state: Mutex::new(AccessTable::new()), changed: Condvar::new() }
        }
    }

    impl Monitor for Lock {
        type Guard<'a> = MutexGuard<'a, AccessTable>;
        type Deadline = Instant;

        #[inline]
        fn lock(&self) -> MutexGuard<'_, AccessTable> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn wait<'a>(
            &'a self,
            guard: MutexGuard<'a, AccessTable>,
            deadline: Instant,
        ) -> (MutexGuard<'a, AccessTable>, bool) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (guard, true);
            }
            let (guard, result) =
                self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
            (guard, result.timed_out())
        }

        fn notify_all(&self) {
            self.changed.notify_all();
        }
    }

    /// Storage that keeps the guard of the access table's lock from before a fork until after it.
    struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, AccessTable>>>);

    // SAFETY: used only by the thread that holds the table's lock.
    unsafe impl Sync for ForkGuard {}

    static KEPT: ForkGuard = ForkGuard(UnsafeCell::new(None));

    pub(super) fn before_fork() {
        let guard = TABLE.0.lock();
        // SAFETY: the lock is held, and no other reference to the content exists.
        unsafe { *KEPT.0.get() = Some(guard) };
    }

    pub(super) fn after_fork(in_child: bool) {
        // SAFETY: the thread still holds the lock that `before_fork` acquired, and no other reference to the content
        // exists.
        let kept = unsafe { &mut *KEPT.0.get() };
        if let Some(mut guard) = kept.take()
            && in_child
        {
            guard.keep_only(thread());
        }
    }

    pub(super) fn deadline(milliseconds: u32) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds.into())
    }

    /// Returns a number that identifies the calling thread among the running threads.
    #[inline]
    pub(super) fn thread() -> usize {
        std::thread_local! {
            static MARK: u8 = const { 0 };
        }
        MARK.with(|mark| core::ptr::from_ref(mark).addr())
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    use core::cell::UnsafeCell;
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic::{AtomicBool, Ordering};

    use super::super::table::{AccessTable, Monitor};

    /// A spin lock, for builds without `std`. Such builds treat all callers as one thread, so every conflict
    /// is with the calling thread itself, and no access waits.
    pub(super) struct Lock {
        taken: AtomicBool,
        state: UnsafeCell<AccessTable>,
    }

    // SAFETY: only the holder of the lock uses the state.
    unsafe impl Sync for Lock {}

    pub(super) struct Guard<'a>(&'a Lock);

    impl Lock {
        pub(super) const fn new() -> Lock {
            Lock { taken: AtomicBool::new(false), state: UnsafeCell::new(AccessTable::new()) }
        }
    }

    impl Deref for Guard<'_> {
        type Target = AccessTable;
        fn deref(&self) -> &AccessTable {
            // SAFETY: the guard is the only holder of the lock.
            unsafe { &*self.0.state.get() }
        }
    }

    impl DerefMut for Guard<'_> {
        fn deref_mut(&mut self) -> &mut AccessTable {
            // SAFETY: the guard is the only holder of the lock, and it is borrowed exclusively.
            unsafe { &mut *self.0.state.get() }
        }
    }

    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.taken.store(false, Ordering::Release);
        }
    }

    impl Monitor for Lock {
        type Guard<'a> = Guard<'a>;
        type Deadline = ();

        fn lock(&self) -> Guard<'_> {
            while self.taken.swap(true, Ordering::Acquire) {
                core::hint::spin_loop();
            }
            Guard(self)
        }

        fn wait<'a>(&'a self, guard: Guard<'a>, _deadline: ()) -> (Guard<'a>, bool) {
            drop(guard);
            core::hint::spin_loop();
            (self.lock(), false)
        }

        fn notify_all(&self) {}
    }

    pub(super) fn before_fork() {}

    pub(super) fn after_fork(_in_child: bool) {}

    pub(super) fn deadline(_milliseconds: u32) {}

    pub(super) fn thread() -> usize {
        1
    }
}
