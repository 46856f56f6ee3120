//! A cell that holds one object. Any thread can read it without waiting while other threads replace the object.
//!
//! A reader must obtain the pointer *and* a reference, or the object could be freed between the two. So the cell holds
//! many references to its object in advance, the reserve. One 64-bit word contains the pointer and the number of
//! references that were handed out from the reserve, so a single `fetch_add` both reads the pointer and takes a
//! reference. The reader that finds half of the reserve used adds that many references to the object's count and
//! subtracts them from the number in the word. A writer swaps the whole word and releases the rest of the old object's
//! reserve.
//!
//! The reference count of an object in a slot is therefore larger than the number of its holders.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::ObjectRef;
use anyfn::abi::TVMFFIObject;
use anyfn::atomic64::AtomicU64;

/// Number of low bits of a slot's word that hold the pointer. On 64-bit targets, addresses in user space have
/// 47 or 48 bits.
const POINTER_BITS: u32 = if cfg!(target_pointer_width = "64") { 48 } else { 32 };
const POINTER_MASK: u64 = (1 << POINTER_BITS) - 1;
const ONE: u64 = 1 << POINTER_BITS;

/// Number of references that a slot takes in advance. Once half of them are handed out, the next reader
/// refills the reserve. The other half is used up only if 16384 further threads read the slot before the
/// refill.
const RESERVE: u64 = 0x8000;

/// Bits of an object's count that hold the strong references.
const STRONG_MASK: u64 = 0xFFFF_FFFF;

/// Limit on the number of strong references to an object, for slots and for clones of a reference. Threads
/// that add references at the same time may exceed the limit, but never by enough to overflow the 32 bits.
const STRONG_MAX: u64 = 3 << 30;

/// Atomic 64-bit integer with the operations that a slot needs. Implemented for `AtomicU64` and, in tests,
/// for the corresponding type of `loom`.
pub(crate) trait Word {
    fn load(&self) -> u64;
    fn fetch_add_acquire(&self, n: u64) -> u64;
    fn swap(&self, value: u64) -> u64;
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Relaxed)
    }
    #[inline(always)]
    fn fetch_add_acquire(&self, n: u64) -> u64 {
        AtomicU64::fetch_add(self, n, Ordering::Acquire)
    }
    fn swap(&self, value: u64) -> u64 {
        AtomicU64::swap(self, value, Ordering::AcqRel)
    }
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, old, new, Ordering::AcqRel, Ordering::Relaxed)
    }
}

/// Access to the reference count of an object by the object's address.
pub(crate) trait Counted {
    /// Adds `n` references to the count of the object at `address`. If the count has no room for them, it stays
    /// unchanged and the result is false.
    ///
    /// # Safety
    /// The caller must hold a reference to the object.
    #[must_use]
    unsafe fn add(address: u64, n: u64) -> bool;
    /// Subtracts `n` references from the count of the object at `address`.
    ///
    /// # Safety
    /// The caller must own these `n` references and at least one more, so that the count does not become zero.
    unsafe fn sub(address: u64, n: u64);
}

/// Implementation of a slot, generic over the atomic word and the counting of references.
pub(crate) struct RawSlot<W, C, const RESERVE: u64> {
    word: W,
    counted: PhantomData<fn() -> C>,
}

const fn address(word: u64) -> u64 {
    word & POINTER_MASK
}

const fn handed_out(word: u64) -> u64 {
    word >> POINTER_BITS
}

impl<W: Word, C: Counted, const RESERVE: u64> RawSlot<W, C, RESERVE> {
    const fn with(word: W) -> Self {
        RawSlot { word, counted: PhantomData }
    }

    /// Returns the address of the object in the slot, with one reference that passes to the caller. Returns 0 if the
    /// slot is empty.
    ///
    /// # Panics
    /// Panics if the reserve must be refilled and the object's count has no room for more references.
    #[inline]
    fn get(&self) -> u64 {
        let old = self.word.fetch_add_acquire(ONE);
        // An empty slot counts up, too; its count overflows at the upper end of the word and has no meaning.
        if handed_out(old) >= RESERVE / 2 && address(old) != 0 {
            self.top_up(address(old));
        }
        address(old)
    }

    /// Refills the reserve of the object at `held`: adds half of the reserve to the object's count,
    /// and subtracts it from the number of references that the slot has handed out. Undoes the
    /// addition if another thread has refilled the reserve or replaced the object.
    #[cold]
    fn top_up(&self, held: u64) {
        // SAFETY: the caller has just received a reference to it.
        if !unsafe { C::add(held, RESERVE / 2) } {
            self.refuse(held);
        }
        let mut now = self.word.load();
        // The same object may have been stored again in the meantime; the sums are correct in that case, too.
        while address(now) == held && handed_out(now) >= RESERVE / 2 {
            // Release ordering: a writer that sees the lower count also sees the references added above.
            match self.word.compare_exchange(now, now - ONE * (RESERVE / 2)) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
        // SAFETY: the references were added above, and the caller's own reference is one more.
        unsafe { C::sub(held, RESERVE / 2) };
    }

    /// Undoes [`RawSlot::get`] by returning the reference to the slot, and panics. Called if the
    /// reserve cannot be refilled, because a slot must not hand out more references than it has
    /// reserved.
    #[cold]
    fn refuse(&self, held: u64) -> ! {
        let mut now = self.word.load();
        while address(now) == held && handed_out(now) > 0 {
            match self.word.compare_exchange(now, now - ONE) {
                Ok(_) => panic!("an object has too many references"),
                Err(other) => now = other,
            }
        }
        // The slot holds another object now, and has settled the references to this one that it handed out.
        // SAFETY: this is the reference that was handed out. It is not the last one: the count is at its limit.
        unsafe { C::sub(held, 1) };
        panic!("an object has too many references");
    }

    /// Stores the object at the address `new`, or makes the slot empty if `new` is 0. Returns the
    /// address of the previous object, with one reference that passes to the caller, or 0 if the
    /// slot was empty.
    ///
    /// # Panics
    /// Panics if the count of `new` has no room for the reserve. The slot is then unchanged.
    ///
    /// # Safety
    /// Unless `new` is 0, the caller must own a reference to the object, which passes to the slot.
    unsafe fn swap(&self, new: u64) -> u64 {
        if new != 0 {
            // SAFETY: the caller holds a reference.
            assert!(unsafe { C::add(new, RESERVE - 1) }, "an object has too many references");
        }
        let old = self.word.swap(new);
        if address(old) != 0 {
            // SAFETY: the slot held the reserve less the references that it handed out. At least one is left (see
            // `RESERVE`), which passes to the caller.
            unsafe { C::sub(address(old), RESERVE - handed_out(old) - 1) };
        }
        address(old)
    }
}

/// Implementation of [`Counted`] for objects, whose header contains the count.
enum Objects {}

impl Objects {
    /// Returns the reference count of the object at an address.
    ///
    /// # Safety
    /// `address` must be that of an object that stays alive for `'a`.
    unsafe fn count<'a>(address: u64) -> &'a AtomicU64 {
        let object: *mut TVMFFIObject = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller guarantees the object.
        let count = unsafe { &raw mut (*object).combined_ref_count };
        // SAFETY: the caller guarantees the object; its count is changed by atomic operations only.
        unsafe { AtomicU64::from_ptr(count) }
    }
}

impl Counted for Objects {
    unsafe fn add(address: u64, n: u64) -> bool {
        // SAFETY: the caller holds a reference, which keeps the object alive.
        let count = unsafe { Objects::count(address) };
        let fits = count.fetch_add(n, Ordering::Relaxed) & STRONG_MASK < STRONG_MAX;
        if !fits {
            count.fetch_sub(n, Ordering::Relaxed);
        }
        fits
    }
    unsafe fn sub(address: u64, n: u64) {
        // SAFETY: the caller holds one more reference, which keeps the object alive.
        unsafe { Objects::count(address) }.fetch_sub(n, Ordering::Release);
    }
}

/// Cell that holds one object or is empty; see the module documentation.
pub(crate) struct Slot {
    raw: RawSlot<AtomicU64, Objects, RESERVE>,
    /// Address of the slot's object, for leak checkers only. They cannot recognise the address in `raw`,
    /// because the word there also contains a count.
    plain: AtomicPtr<c_void>,
}

impl Slot {
    /// Creates an empty slot.
    pub(crate) const fn new() -> Self {
        Slot { raw: RawSlot::with(AtomicU64::new(0)), plain: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns a new reference to the object in the slot, or `None` if the slot is empty. Never waits.
    #[inline]
    pub(crate) fn get(&self) -> Option<ObjectRef> {
        let address = self.raw.get();
        // SAFETY: the address is 0, or that of an object to which the slot has handed out a reference.
        unsafe { ObjectRef::from_owned_or_null(ptr::with_exposed_provenance_mut(address as usize)) }
    }

    /// Returns true if the slot holds an object at this moment.
    pub(crate) fn is_set(&self) -> bool {
        address(Word::load(&self.raw.word)) != 0
    }

    /// Returns true if the slot holds the given object at this moment. Takes no reference.
    pub(crate) fn holds(&self, object: &ObjectRef) -> bool {
        address(Word::load(&self.raw.word)) == object.as_handle().addr() as u64
    }

    /// Stores an object, or makes the slot empty. Returns the previous object.
    pub(crate) fn swap(&self, new: Option<ObjectRef>) -> Option<ObjectRef> {
        let new = new.map_or(ptr::null_mut(), ObjectRef::into_handle);
        let word = new.expose_provenance() as u64;
        assert!(
            address(word) == word,
            "the address {word:#x} of an object exceeds the addresses that a slot can hold"
        );
        // SAFETY: `new` comes with a reference, which passes to the slot.
        let old = unsafe { self.raw.swap(word) };
        self.plain.store(new, Ordering::Relaxed);
        // SAFETY: the address is 0, or that of an object whose reference passes to the result.
        unsafe { ObjectRef::from_owned_or_null(ptr::with_exposed_provenance_mut(old as usize)) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.swap(None);
    }
}

/// Tests that explore all interleavings of threads that read and replace the object in a slot;
/// `./x test` runs the tests with `--cfg loom`.
#[cfg(all(test, loom))]
mod orders {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as LoomU64;
    use std::vec::Vec;

    impl Word for LoomU64 {
        fn load(&self) -> u64 {
            LoomU64::load(self, Ordering::Relaxed)
        }
        fn fetch_add_acquire(&self, n: u64) -> u64 {
            LoomU64::fetch_add(self, n, Ordering::Acquire)
        }
        fn swap(&self, value: u64) -> u64 {
            LoomU64::swap(self, value, Ordering::AcqRel)
        }
        fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
            LoomU64::compare_exchange(self, old, new, Ordering::AcqRel, Ordering::Relaxed)
        }
    }

    /// A reference-counted test object. It must not be used after its count has reached zero.
    struct Thing {
        count: LoomU64,
        content: loom::cell::UnsafeCell<u32>,
    }

    impl Thing {
        fn new() -> Arc<Thing> {
            Arc::new(Thing { count: LoomU64::new(1), content: loom::cell::UnsafeCell::new(7) })
        }
        fn address(&self) -> u64 {
            let thing: *const Thing = self;
            thing.expose_provenance() as u64
        }
        fn read(address: u64) {
            let thing: *const Thing = ptr::with_exposed_provenance(address as usize);
            // SAFETY: the test keeps every `Thing` in an `Arc` until all threads are joined.
            let thing = unsafe { &*thing };
            // SAFETY: the reader holds a reference, so nothing writes; loom checks that.
            thing.content.with(|content| assert_eq!(unsafe { *content }, 7, "read after release"));
        }
        fn release(address: u64) {
            let thing: *const Thing = ptr::with_exposed_provenance(address as usize);
            // SAFETY: see `read`.
            let thing = unsafe { &*thing };
            if thing.count.fetch_sub(1, Ordering::Release) == 1 {
                loom::sync::atomic::fence(Ordering::Acquire);
                // SAFETY: the last reference has been released, so nothing reads; loom checks that.
                thing.content.with_mut(|content| unsafe { *content = 0 });
            }
        }
    }

    impl Counted for Thing {
        unsafe fn add(address: u64, n: u64) -> bool {
            let thing: *const Thing = ptr::with_exposed_provenance(address as usize);
            // SAFETY: see `read`.
            let old = unsafe { &*thing }.count.fetch_add(n, Ordering::Relaxed);
            assert_ne!(old, 0, "counted up after the last release");
            true
        }
        unsafe fn sub(address: u64, n: u64) {
            let thing: *const Thing = ptr::with_exposed_provenance(address as usize);
            // SAFETY: see `read`.
            let old = unsafe { &*thing }.count.fetch_sub(n, Ordering::Release);
            assert!(old > n, "gave back more than it had");
        }
    }

    type TestSlot = RawSlot<LoomU64, Thing, 8>;

    #[test]
    fn readers_race_with_a_writer() {
        // Exploring all interleavings takes minutes; three preemptions at bad moments are enough to find faults.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (first, second) = (Thing::new(), Thing::new());
            let slot = Arc::new(TestSlot::with(LoomU64::new(0)));
            // SAFETY: a new `Thing` has one reference, which the slot gets.
            assert_eq!(unsafe { slot.swap(first.address()) }, 0);
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let slot = slot.clone();
                    loom::thread::spawn(move || {
                        let got = slot.get();
                        Thing::read(got);
                        Thing::release(got);
                    })
                })
                .collect();
            // SAFETY: a new `Thing` has one reference, which the slot gets.
            let old = unsafe { slot.swap(second.address()) };
            assert_eq!(old, first.address());
            Thing::release(old);
            for reader in readers {
                reader.join().unwrap();
            }
            assert_eq!(first.count.load(Ordering::Relaxed), 0);
            // SAFETY: no object is stored.
            let last = unsafe { slot.swap(0) };
            assert_eq!(last, second.address());
            assert_eq!(second.count.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn the_reserve_is_topped_up_in_time() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let thing = Thing::new();
            let slot = Arc::new(TestSlot::with(LoomU64::new(0)));
            // SAFETY: a new `Thing` has one reference, which the slot gets.
            unsafe { slot.swap(thing.address()) };
            // Three are handed out: the reader after the next one has to top up, and both may try at once.
            let mut held: Vec<u64> = (0..3).map(|_| slot.get()).collect();
            let other = slot.clone();
            let reader = loom::thread::spawn(move || {
                for _ in 0..2 {
                    let got = other.get();
                    if got != 0 {
                        Thing::read(got);
                        Thing::release(got);
                    }
                }
            });
            held.extend((0..2).map(|_| slot.get()));
            // SAFETY: no object is stored.
            held.push(unsafe { slot.swap(0) });
            for address in held {
                Thing::read(address);
                Thing::release(address);
            }
            reader.join().unwrap();
            assert_eq!(thing.count.load(Ordering::Relaxed), 0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn holds_and_replaces_objects() {
        let slot = Slot::new();
        assert!(slot.get().is_none() && !slot.is_set());
        let object = anyfn::Shape::from(&[1i64][..]).into_object();
        assert!(slot.swap(Some(object.clone())).is_none());
        for _ in 0..100_000 {
            assert!(slot.get().is_some_and(|got| got.ptr_eq(&object)));
        }
        let old = slot.swap(None).unwrap();
        assert!(old.ptr_eq(&object));
        drop(old);
        assert_eq!(object.use_count(), 1);
        assert!(object.is_unique());
    }

    #[test]
    fn references_do_not_pass_the_limit() {
        let object = anyfn::Shape::from(&[1i64][..]).into_object();
        let slot = Slot::new();
        slot.swap(Some(object.clone()));
        let address = object.as_handle().expose_provenance() as u64;
        // Simulates this many leaked references.
        let leaked = STRONG_MAX - RESERVE / 2;
        // SAFETY: the object is alive.
        unsafe { Objects::count(address) }.fetch_add(leaked, Ordering::Relaxed);
        let mut held = Vec::new();
        let refused = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            for _ in 0..2 * RESERVE {
                held.push(slot.get());
            }
        }));
        assert!(refused.is_err(), "{} references were handed out", held.len());
        // Repeated attempts hand out nothing more and count nothing.
        let before = object.use_count();
        for _ in 0..20 {
            assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| slot.get())).is_err());
        }
        assert_eq!(object.use_count(), before);
        drop(held);
        // SAFETY: the object is alive, and nothing holds these references.
        unsafe { Objects::count(address) }.fetch_sub(leaked, Ordering::Relaxed);
        assert!(slot.get().is_some(), "there is room again");
        drop(slot.swap(None));
        assert!(object.is_unique());
    }

    #[test]
    fn threads_read_while_one_replaces() {
        static SLOT: Slot = Slot::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200_000 {
                        if let Some(object) = SLOT.get() {
                            assert_eq!(anyfn::Shape::try_from_object(object).unwrap().len(), 2);
                        }
                    }
                });
            }
            scope.spawn(|| {
                for i in 0..20_000i64 {
                    SLOT.swap(Some(anyfn::Shape::from(&[i, i][..]).into_object()));
                }
            });
        });
        assert!(SLOT.swap(None).unwrap().is_unique());
    }
}
