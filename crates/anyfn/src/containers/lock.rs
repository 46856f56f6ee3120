//! The lock of one List, Dict or Error: a bit in its header. An Error has two, see [`Bit`].
//!
//! It is held for a few memory operations only, never while code of others runs: values are hashed and compared by
//! hooks before it is taken, and what an operation removes is released after it is given back.

use core::hint;
use core::sync::atomic::{AtomicU32, Ordering};

use anyfn_abi::{OBJECT_FLAG_LOCKED, TVMFFIObject};

/// The lock, held until dropped.
pub(crate) struct Locked<'a>(&'a AtomicU32);

/// Takes the lock of an object.
///
/// # Safety
/// `header` must be live for `'a`, and all who change its flags must do so by this lock.
#[inline]
pub(crate) unsafe fn lock<'a>(header: *mut TVMFFIObject) -> Locked<'a> {
    // SAFETY: the caller guarantees a live header.
    let flags = unsafe { &raw mut (*header).flags };
    // SAFETY: the word is aligned, live, and used atomically only.
    let flags = unsafe { AtomicU32::from_ptr(flags) };
    if flags.fetch_or(OBJECT_FLAG_LOCKED, Ordering::Acquire) & OBJECT_FLAG_LOCKED != 0 {
        wait(flags, OBJECT_FLAG_LOCKED);
    }
    Locked(flags)
}

/// One of the locks of an Error, held until dropped. Who reads or changes a trace takes `OBJECT_FLAG_TRACE_LOCKED`, since
/// what changes the trace of another maker's error takes no lock; what changes the trace of an error of ours takes
/// `OBJECT_FLAG_LOCKED`, since others call it without the first one. Who takes both takes them in this order.
pub(crate) struct Bit<'a>(&'a AtomicU32, u32);

/// Takes a lock of an error.
///
/// # Safety
/// `header` must be that of an Error that is live for `'a`.
pub(crate) unsafe fn lock_bit<'a>(header: *mut TVMFFIObject, bit: u32) -> Bit<'a> {
    // SAFETY: the caller guarantees a live header.
    let flags = unsafe { &raw mut (*header).flags };
    // SAFETY: the word is aligned, live, and used atomically only.
    let flags = unsafe { AtomicU32::from_ptr(flags) };
    if flags.fetch_or(bit, Ordering::Acquire) & bit != 0 {
        wait(flags, bit);
    }
    Bit(flags, bit)
}

impl Drop for Bit<'_> {
    fn drop(&mut self) {
        // Others may change the other bit meanwhile.
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

/// Lets another thread run: the holder may be waiting for this processor.
#[cfg(unix)]
pub(crate) fn give_way() {
    unsafe extern "C" {
        safe fn sched_yield() -> core::ffi::c_int;
    }
    let _ = sched_yield();
}

/// Lets another thread run, as far as that is known here.
#[cfg(not(unix))]
pub(crate) fn give_way() {
    hint::spin_loop();
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // The holder is the only one that changes the word, but for waiters that set the bit again.
        let flags = self.0.load(Ordering::Relaxed);
        self.0.store(flags & !OBJECT_FLAG_LOCKED, Ordering::Release);
    }
}
