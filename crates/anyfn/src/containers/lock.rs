//! The lock of a List, Dict or Error: a bit in the object's header. An Error has two locks, see [`Bit`].
//!
//! A lock is held only for a few memory operations and never while foreign code runs: hooks hash and compare values
//! before it is taken, and removed values are released after it is released.

use core::hint;
use core::sync::atomic::{AtomicU32, Ordering};

use anyfn_abi::{OBJECT_FLAG_LOCKED, TVMFFIObject};

/// Guard of an object's lock. Dropping the guard releases the lock.
pub(crate) struct Locked<'a>(&'a AtomicU32);

/// Acquires the lock of an object.
///
/// # Safety
/// `header` must point to an object that is live for `'a`. No code may change its flags other than through this lock.
#[inline]
pub(crate) unsafe fn lock<'a>(header: *mut TVMFFIObject) -> Locked<'a> {
    // SAFETY: the caller guarantees a live header.
    let flags = unsafe { &raw mut (*header).flags };
    // SAFETY: the word is aligned, live, and only used atomically.
    let flags = unsafe { AtomicU32::from_ptr(flags) };
    if flags.fetch_or(OBJECT_FLAG_LOCKED, Ordering::Acquire) & OBJECT_FLAG_LOCKED != 0 {
        wait(flags, OBJECT_FLAG_LOCKED);
    }
    Locked(flags)
}

/// Guard of one of the two locks of an Error. Dropping the guard releases the lock.
///
/// The `update_backtrace` function of an error that other code created takes no lock. Code that reads or
/// changes a backtrace therefore takes `OBJECT_FLAG_TRACE_LOCKED`. Other code calls the `update_backtrace`
/// function of an error that this crate created without that lock. The function therefore takes
/// `OBJECT_FLAG_LOCKED` itself. Code that needs both locks takes them in this order.
pub(crate) struct Bit<'a>(&'a AtomicU32, u32);

/// Acquires one of the two locks of an Error; `bit` selects the lock.
///
/// # Safety
/// `header` must be the header of an Error that is live for `'a`.
pub(crate) unsafe fn lock_bit<'a>(header: *mut TVMFFIObject, bit: u32) -> Bit<'a> {
    // SAFETY: the caller guarantees a live header.
    let flags = unsafe { &raw mut (*header).flags };
    // SAFETY: the word is aligned, live, and only used atomically.
    let flags = unsafe { AtomicU32::from_ptr(flags) };
    if flags.fetch_or(bit, Ordering::Acquire) & bit != 0 {
        wait(flags, bit);
    }
    Bit(flags, bit)
}

impl Drop for Bit<'_> {
    fn drop(&mut self) {
        // Other threads may change the other bit at the same time.
        self.0.fetch_and(!self.1, Ordering::Release);
    }
}

#[cold]
fn wait(flags: &AtomicU32, bit: u32) {
    let mut round = 0u32;
    loop {
        if flags.load(Ordering::Relaxed) & bit == 0 && flags.fetch_or(bit, Ordering::Acquire) & bit == 0 {
            return;
        }
        round += 1;
        if round < 64 {
            hint::spin_loop();
        } else {
            give_way();
        }
    }
}

/// Yields the processor to another thread, because the holder of the lock may be waiting for the processor.
#[cfg(unix)]
pub(crate) fn give_way() {
    unsafe extern "C" {
        safe fn sched_yield() -> core::ffi::c_int;
    }
    let _ = sched_yield();
}

/// Spins briefly, because this platform has no known way to yield to another thread.
#[cfg(not(unix))]
pub(crate) fn give_way() {
    hint::spin_loop();
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Only the holder changes the word, except that waiters set the bit again, which is already set.
        let flags = self.0.load(Ordering::Relaxed);
        self.0.store(flags & !OBJECT_FLAG_LOCKED, Ordering::Release);
    }
}
