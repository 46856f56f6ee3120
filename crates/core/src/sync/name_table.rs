//! A table that maps names to values and never frees them.
//!
//! A lookup takes no lock and writes nothing: the slots of an open-addressed table are pointers to entries, stored with
//! release ordering when an entry is complete. A full table is replaced by a larger one. The old table is kept, because
//! a reader may still use it; all old tables together are smaller than the current one. Entries are never removed, so a
//! value that was found stays valid and can be returned without a reference count.

use core::hash::Hasher;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::sys::Mutex;

/// Operations of an atomic pointer that several threads use. Loads have acquire ordering, stores have release
/// ordering.
pub(crate) trait PtrCell<T> {
    fn null() -> Self;
    fn load(&self) -> *mut T;
    fn store(&self, value: *mut T);
}

/// Selects the atomic pointers that a table uses: those of the standard library ([`Native`]) or, in tests,
/// those of `loom`.
pub(crate) trait Atomics: 'static {
    type Ptr<T: 'static>: PtrCell<T>;
}

/// Selects the atomic pointers of the standard library for a table.
pub(crate) struct Native;

impl Atomics for Native {
    type Ptr<T: 'static> = AtomicPtr<T>;
}

impl<T> PtrCell<T> for AtomicPtr<T> {
    fn null() -> Self {
        AtomicPtr::new(ptr::null_mut())
    }
    #[inline(always)]
    fn load(&self) -> *mut T {
        AtomicPtr::load(self, Ordering::Acquire)
    }
    fn store(&self, value: *mut T) {
        AtomicPtr::store(self, value, Ordering::Release);
    }
}

/// Name and value in a table. Entries form a linked list in insertion order.
pub(crate) struct Entry<V: 'static, A: Atomics = Native> {
    hash: u64,
    name: Box<[u8]>,
    pub(crate) value: V,
    /// Entry that was inserted directly after this one; NULL for the newest entry.
    next: A::Ptr<Entry<V, A>>,
}

impl<V, A: Atomics> Entry<V, A> {
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

/// Array of pointers to entries, in which a name is looked up by its hash. Its length is a power of two.
struct Slots<V: 'static, A: Atomics> {
    slots: Box<[A::Ptr<Entry<V, A>>]>,
    /// Smaller array of slots that this one has replaced. It is never freed, because readers may still use
    /// it.
    _previous: *mut Slots<V, A>,
}

/// Mutable state for insertions into a table. Each table has one writer, and only a thread with
/// exclusive access to this writer may insert entries.
pub(crate) struct Writer<V: 'static, A: Atomics = Native> {
    len: usize,
    last: *mut Entry<V, A>,
}

// SAFETY: the pointer refers to an entry that is never freed and that only atomic operations change.
unsafe impl<V: Sync, A: Atomics> Send for Writer<V, A> {}

impl<V, A: Atomics> Writer<V, A> {
    pub(crate) const fn new() -> Self {
        Writer { len: 0, last: ptr::null_mut() }
    }
}

/// Table without a lock. Inserting an entry requires exclusive access to the table's [`Writer`].
pub(crate) struct RawTable<V: 'static, A: Atomics = Native> {
    slots: A::Ptr<Slots<V, A>>,
    first: A::Ptr<Entry<V, A>>,
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

const FIRST_SIZE: usize = 64;

impl<V, A: Atomics> RawTable<V, A> {
    /// Returns the entry with the name `name`, if it exists.
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&'static Entry<V, A>> {
        self.find(name, hash(name))
    }

    #[inline]
    fn find(&self, name: &[u8], hash: u64) -> Option<&'static Entry<V, A>> {
        // SAFETY: the pointer is NULL or refers to slots that are never freed.
        let slots = &*unsafe { self.slots.load().as_ref() }?.slots;
        let mask = slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            // SAFETY: the pointer is NULL or refers to a complete entry that is never freed: it was stored with release
            // ordering. The loop ends because an empty slot always exists: `grow_if_full` keeps a quarter of them free.
            let entry = unsafe { slots[at].load().as_ref() }?;
            if entry.hash == hash && *entry.name == *name {
                return Some(entry);
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the entry with the name `name`. If it does not exist, inserts an entry with the value that `make`
    /// returns.
    ///
    /// `writer` must be the writer of this table.
    pub(crate) fn get_or_insert(
        &self,
        writer: &mut Writer<V, A>,
        name: &[u8],
        make: impl FnOnce() -> V,
    ) -> &'static Entry<V, A> {
        let hash = hash(name);
        if let Some(found) = self.find(name, hash) {
            return found;
        }
        self.grow_if_full(writer);
        let entry =
            Box::leak(Box::new(Entry { hash, name: name.into(), value: make(), next: PtrCell::null() }));
        let raw: *mut Entry<V, A> = entry;
        writer.len += 1;
        // SAFETY: the pointer is NULL or refers to the last entry, which is never freed.
        match unsafe { writer.last.as_ref() } {
            Some(last) => last.next.store(raw),
            None => self.first.store(raw),
        }
        writer.last = raw;
        // SAFETY: `grow_if_full` has stored slots that are never freed.
        if let Some(slots) = unsafe { self.slots.load().as_ref() } {
            put(&slots.slots, raw, hash);
        }
        // SAFETY: the entry was leaked above and is shared from now on.
        unsafe { &*raw }
    }

    fn grow_if_full(&self, writer: &Writer<V, A>) {
        let current = self.slots.load();
        // SAFETY: the pointer is NULL or refers to slots that are never freed.
        let size = unsafe { current.as_ref() }.map_or(0, |current| current.slots.len());
        if (writer.len + 1) * 4 <= size * 3 {
            return;
        }
        let size = (size * 2).max(FIRST_SIZE);
        let slots: Box<[A::Ptr<Entry<V, A>>]> = (0..size).map(|_| PtrCell::null()).collect::<Vec<_>>().into();
        let mut entry = self.first.load();
        // SAFETY: the pointer is NULL or refers to an entry that is never freed.
        while let Some(here) = unsafe { entry.as_ref() } {
            put(&slots, entry, here.hash);
            entry = here.next.load();
        }
        self.slots.store(Box::leak(Box::new(Slots { slots, _previous: current })));
    }

    /// Iterates over all entries in insertion order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Entry<V, A>> + use<V, A> {
        let mut at = self.first.load();
        core::iter::from_fn(move || {
            // SAFETY: the pointer is NULL or refers to an entry that is never freed.
            let entry: &'static Entry<V, A> = unsafe { at.as_ref() }?;
            at = entry.next.load();
            Some(entry)
        })
    }
}

/// Stores an entry in the first free slot at or after the slot that its hash selects. At least one slot must
/// be free.
fn put<V, A: Atomics>(slots: &[A::Ptr<Entry<V, A>>], entry: *mut Entry<V, A>, hash: u64) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while !slots[at].load().is_null() {
        at = (at + 1) & mask;
    }
    slots[at].store(entry);
}

/// A table that maps names to values and never frees them; see the module documentation.
pub(crate) struct NameTable<V: 'static> {
    raw: RawTable<V>,
    writer: Mutex<Writer<V>>,
}

// SAFETY: entries are shared among all threads and created on any thread, hence `V: Send + Sync`; the pointers between
// them are atomic.
unsafe impl<V: Send + Sync> Sync for NameTable<V> {}

impl<V> NameTable<V> {
    pub(crate) const fn new() -> Self {
        let raw = RawTable { slots: AtomicPtr::new(ptr::null_mut()), first: AtomicPtr::new(ptr::null_mut()) };
        NameTable { raw, writer: Mutex::new(Writer::new()) }
    }

    /// Returns the value with the name `name`, if it exists. Takes no lock.
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&'static V> {
        self.raw.get(name).map(|entry| &entry.value)
    }

    /// Returns the value with the name `name`. If it does not exist, inserts the value that `make` returns.
    pub(crate) fn get_or_insert(&self, name: &[u8], make: impl FnOnce() -> V) -> &'static V {
        if let Some(found) = self.get(name) {
            return found;
        }
        &self.raw.get_or_insert(&mut self.writer.lock(), name, make).value
    }

    /// Iterates over all names and values in insertion order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static [u8], &'static V)> + use<V> {
        self.raw.iter().map(|entry| (entry.name(), &entry.value))
    }
}

/// Tests that explore all interleavings of threads that insert and look up entries; `./x test` runs
/// the tests with `--cfg loom`.
#[cfg(all(test, loom))]
mod orders {
    use super::*;

    struct Loom;
    impl Atomics for Loom {
        type Ptr<T: 'static> = loom::sync::atomic::AtomicPtr<T>;
    }
    impl<T> PtrCell<T> for loom::sync::atomic::AtomicPtr<T> {
        fn null() -> Self {
            loom::sync::atomic::AtomicPtr::new(ptr::null_mut())
        }
        fn load(&self) -> *mut T {
            loom::sync::atomic::AtomicPtr::load(self, Ordering::Acquire)
        }
        fn store(&self, value: *mut T) {
            loom::sync::atomic::AtomicPtr::store(self, value, Ordering::Release);
        }
    }

    #[test]
    fn readers_see_complete_entries_or_none() {
        loom::model(|| {
            // Leaked like the real tables, but kept where leak checkers find it.
            static KEPT: Mutex<Vec<&'static RawTable<u64, Loom>>> = Mutex::new(Vec::new());
            let table: &'static RawTable<u64, Loom> =
                Box::leak(Box::new(RawTable { slots: PtrCell::null(), first: PtrCell::null() }));
            KEPT.lock().push(table);
            let writer = loom::thread::spawn(move || {
                let mut writer = Writer::new();
                table.get_or_insert(&mut writer, b"a", || 1);
                table.get_or_insert(&mut writer, b"b", || 2);
            });
            if let Some(found) = table.get(b"b") {
                assert_eq!((found.value, found.name()), (2, &b"b"[..]));
                assert_eq!(table.get(b"a").map(|entry| entry.value), Some(1));
            }
            writer.join().unwrap();
            assert_eq!(table.get(b"a").map(|entry| entry.value), Some(1));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn grows_and_keeps_every_entry_in_order() {
        static TABLE: NameTable<u64> = NameTable::new();
        assert!(TABLE.get(b"x").is_none());
        for i in 0..10_000u64 {
            assert_eq!(*TABLE.get_or_insert(format!("name.{i}").as_bytes(), || i), i);
        }
        assert_eq!(*TABLE.get_or_insert(b"name.7", || 99), 7);
        for i in 0..10_000u64 {
            assert_eq!(TABLE.get(format!("name.{i}").as_bytes()), Some(&i));
        }
        assert!(TABLE.get(b"name.10000").is_none());
        assert!(TABLE.iter().map(|(_, value)| *value).eq(0..10_000));
    }

    #[test]
    fn threads_insert_and_read_at_once() {
        static TABLE: NameTable<AtomicU64> = NameTable::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..2_000 {
                        let name = format!("{i}");
                        TABLE
                            .get_or_insert(name.as_bytes(), || AtomicU64::new(0))
                            .fetch_add(1, Ordering::Relaxed);
                        assert!(TABLE.get(name.as_bytes()).is_some());
                    }
                });
            }
        });
        assert_eq!(TABLE.iter().count(), 2_000);
        assert!(TABLE.iter().all(|(_, count)| count.load(Ordering::Relaxed) == 4));
    }
}
