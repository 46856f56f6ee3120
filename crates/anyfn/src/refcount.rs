//! The reference counting protocol, generic over the 64-bit atomic counter.
//!
//! One word holds both counts, strong in the low and weak in the high 32 bits. Thus the most common release, that of
//! the last strong reference to an object without weak references, is a single atomic operation. All strong references
//! together hold one weak reference. The protocol is generic over the counter so that the tests can run it with
//! `loom`'s counters.

use core::ffi::c_int;
use core::sync::atomic::{Ordering, fence};

use anyfn_abi::{
    kTVMFFIObjectDeleterFlagBitMaskBoth as BOTH, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};

use crate::atomic64::AtomicU64;

/// Combined count of an object with one strong reference and no weak reference, except the weak
/// reference that all strong references hold together.
pub(crate) const UNIQUE: u64 = 0x1_0000_0001;
const WEAK_ONE: u64 = 1 << 32;
const STRONG_MASK: u64 = 0xFFFF_FFFF;
// Larger than the number of references that the registry reserves (2^31), so that the registry fails first,
// with a specific error.
const STRONG_MAX: u64 = 3 << 30;

/// Atomic operations that the counting protocol performs on the 64-bit word with both reference
/// counts.
pub(crate) trait Counter {
    fn load(&self, order: Ordering) -> u64;
    fn fetch_add(&self, n: u64, order: Ordering) -> u64;
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64;
    fn compare_exchange_weak(&self, old: u64, new: u64) -> Result<u64, u64>;
    fn acquire_fence(&self) {
        fence(Ordering::Acquire);
    }
}

impl Counter for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    #[inline(always)]
    fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_add(self, n, order)
    }
    #[inline(always)]
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_sub(self, n, order)
    }
    #[inline(always)]
    fn compare_exchange_weak(&self, old: u64, new: u64) -> Result<u64, u64> {
        AtomicU64::compare_exchange_weak(self, old, new, Ordering::Acquire, Ordering::Relaxed)
    }
}

/// Adds a strong reference. The caller must already hold a strong reference.
///
/// # Panics
/// Panics at 3 * 2^30 references, before the count could overflow into the weak count. Only a loop that leaks
/// references can reach that number.
#[inline(always)]
pub(crate) fn inc_strong(count: &impl Counter) {
    if count.fetch_add(1, Ordering::Relaxed) & STRONG_MASK >= STRONG_MAX {
        too_many(count);
    }
}

#[cold]
#[inline(never)]
fn too_many(count: &impl Counter) -> ! {
    count.fetch_sub(1, Ordering::Relaxed);
    panic!("an object has too many references");
}

/// Releases a strong reference. If it was the last one, calls `delete` to destroy the content, and to free
/// the memory if no weak reference remains.
///
/// `delete` may free the counter, so the counter is not accessed after a call with the weak flag.
///
/// A sole reference is released without changing the counter, which saves the most expensive operation. No other thread can
/// change the counter then, because it would need a reference. The load makes visible what other threads did before they
/// released theirs.
#[inline(always)]
pub(crate) fn dec_strong(count: &impl Counter, delete: impl Fn(c_int)) {
    if count.load(Ordering::Acquire) == UNIQUE {
        delete(BOTH);
        return;
    }
    let old = count.fetch_sub(1, Ordering::Release);
    if old == UNIQUE {
        count.acquire_fence();
        delete(BOTH);
    } else if old & STRONG_MASK == 1 {
        count.acquire_fence();
        delete(STRONG);
        dec_weak(count, delete);
    }
}

/// Adds a weak reference. The caller must already hold a strong or a weak reference.
///
/// # Panics
/// Panics at 3 * 2^30 weak references, before the count could overflow.
#[inline(always)]
pub(crate) fn inc_weak(count: &impl Counter) {
    if count.fetch_add(WEAK_ONE, Ordering::Relaxed) >> 32 >= STRONG_MAX {
        too_many_weak(count);
    }
}

#[cold]
#[inline(never)]
fn too_many_weak(count: &impl Counter) -> ! {
    count.fetch_sub(WEAK_ONE, Ordering::Relaxed);
    panic!("an object has too many weak references");
}

/// Releases a weak reference. If no reference of either kind remains, calls `delete` to free the
/// memory.
#[inline(always)]
pub(crate) fn dec_weak(count: &impl Counter, delete: impl Fn(c_int)) {
    if count.fetch_sub(WEAK_ONE, Ordering::Release) >> 32 == 1 {
        count.acquire_fence();
        delete(WEAK);
    }
}

/// Adds a strong reference to an object. The caller must hold a weak reference to the object. If
/// the content has been destroyed, adds no reference and returns false.
///
/// # Panics
/// Panics at 3 * 2^30 strong references, like [`inc_strong`].
#[inline]
pub(crate) fn try_promote(count: &impl Counter) -> bool {
    let mut seen = count.load(Ordering::Relaxed);
    while seen & STRONG_MASK != 0 {
        assert!(seen & STRONG_MASK < STRONG_MAX, "an object has too many references");
        match count.compare_exchange_weak(seen, seen + 1) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panics(body: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(body).is_err()
    }

    #[test]
    fn counts_stop_before_they_wrap() {
        let weak = STRONG_MAX << 32 | 1;
        let count = AtomicU64::new(weak);
        assert!(panics(|| inc_weak(&count)));
        assert_eq!(count.into_inner(), weak);
        let strong = WEAK_ONE | STRONG_MAX;
        let count = AtomicU64::new(strong);
        assert!(panics(|| {
            try_promote(&count);
        }));
        assert_eq!(count.into_inner(), strong);
    }

    #[test]
    fn references_do_not_overflow() {
        let count = AtomicU64::new(UNIQUE - 1 + STRONG_MAX);
        let refused = std::panic::catch_unwind(|| inc_strong(&count));
        assert!(refused.is_err());
        assert_eq!(count.load(Ordering::Relaxed), UNIQUE - 1 + STRONG_MAX);
    }
}

/// Tests that explore all interleavings of threads that add and release references; `./x test` runs
/// the tests with `--cfg loom`.
#[cfg(all(test, loom))]
mod orders {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64 as LoomU64, AtomicUsize};

    impl Counter for LoomU64 {
        fn load(&self, order: Ordering) -> u64 {
            LoomU64::load(self, order)
        }
        fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
            LoomU64::fetch_add(self, n, order)
        }
        fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
            LoomU64::fetch_sub(self, n, order)
        }
        fn compare_exchange_weak(&self, old: u64, new: u64) -> Result<u64, u64> {
            LoomU64::compare_exchange_weak(self, old, new, Ordering::Acquire, Ordering::Relaxed)
        }
        fn acquire_fence(&self) {
            loom::sync::atomic::fence(Ordering::Acquire);
        }
    }

    /// A reference-counted value that counts how often its content is destroyed and its memory
    /// freed. `loom` checks the accesses to the content for data races.
    struct Thing {
        count: LoomU64,
        content: loom::cell::UnsafeCell<u32>,
        dropped: AtomicUsize,
        freed: AtomicUsize,
    }

    impl Thing {
        fn new() -> Arc<Thing> {
            Arc::new(Thing {
                count: LoomU64::new(UNIQUE),
                content: loom::cell::UnsafeCell::new(7),
                dropped: AtomicUsize::new(0),
                freed: AtomicUsize::new(0),
            })
        }
        fn read(&self) {
            // SAFETY: the caller holds a strong reference, so no release writes the content at this time.
            self.content.with(|p| assert_eq!(unsafe { *p }, 7));
        }
        fn delete(&self, flags: c_int) {
            if flags & STRONG != 0 {
                // SAFETY: no strong reference is left, so no other code reads the content any more.
                self.content.with_mut(|p| unsafe { *p = 0 });
                assert_eq!(self.dropped.fetch_add(1, Ordering::Relaxed), 0, "dropped twice");
            }
            if flags & WEAK != 0 {
                assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "freed twice");
            }
        }
        fn check_end(&self) {
            assert_eq!(self.dropped.load(Ordering::Relaxed), 1);
            assert_eq!(self.freed.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn strong_references_of_two_threads_release_once() {
        loom::model(|| {
            let thing = Thing::new();
            inc_strong(&thing.count);
            let other = thing.clone();
            let thread = loom::thread::spawn(move || {
                other.read();
                dec_strong(&other.count, |flags| other.delete(flags));
            });
            thing.read();
            dec_strong(&thing.count, |flags| thing.delete(flags));
            thread.join().unwrap();
            thing.check_end();
        });
    }

    #[test]
    fn weak_promotion_races_with_the_last_release() {
        loom::model(|| {
            let thing = Thing::new();
            inc_weak(&thing.count);
            let other = thing.clone();
            let thread = loom::thread::spawn(move || {
                if try_promote(&other.count) {
                    other.read();
                    dec_strong(&other.count, |flags| other.delete(flags));
                }
                dec_weak(&other.count, |flags| other.delete(flags));
            });
            dec_strong(&thing.count, |flags| thing.delete(flags));
            thread.join().unwrap();
            thing.check_end();
        });
    }
}
