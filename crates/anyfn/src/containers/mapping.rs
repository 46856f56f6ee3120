//! Storage of Map and Dict: an object with a small layout (an array of pairs) or a dense layout (a hash
//! table).
//!
//! Up to four pairs are stored consecutively (the *small* layout, in the object's own memory or in a buffer), more
//! pairs in a hash table (the *dense* layout, see `table`). An object in the small layout becomes dense in place and
//! never returns to the small layout. Code in other languages reads both layouts and changes Dicts, so the memory of
//! the object is the only record of its state.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr;

use alloc::vec::Vec;

use anyfn_abi::{
    TVMFFIAny, TVMFFIDenseMapTail, TVMFFIMapCell, TVMFFIObject,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};

use super::memory::{self, Buffer};
use super::table::{self, NONE, NewTable, Slot, Table, View, any};
use crate::live::Ended;
use crate::{Any, AnyView, Error, ObjectRef, Result, hash, live, nesting, refcount};

/// Flag in the stored number of slots of a Map or Dict in the small layout.
const SMALL: u64 = 1 << 63;
const SMALL_MIN: usize = 2;
const SMALL_MAX: usize = 4;

/// Memory layout of a dense Map or Dict. In the small layout, the pairs begin at the offset of `tail`.
#[repr(C)]
struct MapObject {
    header: TVMFFIObject,
    cell: TVMFFIMapCell,
    tail: TVMFFIDenseMapTail,
}

/// A key and its value in the small layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Pair {
    key: TVMFFIAny,
    value: TVMFFIAny,
}

/// Offset of the first pair from the start of a Map or Dict object in the small layout, in bytes.
const PAIRS: usize = core::mem::offset_of!(MapObject, tail);

const _: () = assert!(PAIRS == 56 || size_of::<usize>() != 8);
// A small object must have room to become dense in place.
const _: () = assert!(size_of::<MapObject>() <= PAIRS + SMALL_MIN * size_of::<Pair>());

/// Creates an empty Map or Dict in the small layout, with room for `capacity` pairs. The capacity
/// is clamped to the range from 2 to 4 pairs.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn new_small(type_index: i32, capacity: usize) -> Result<ObjectRef> {
    let capacity = capacity.clamp(SMALL_MIN, SMALL_MAX);
    let object: *mut MapObject = memory::allocate_array(PAIRS, capacity, size_of::<Pair>())?.as_ptr().cast();
    // SAFETY: the address is within the allocation.
    let data = unsafe { &raw mut (*object).tail }.cast();
    let cell = TVMFFIMapCell { data, size: 0, slots: capacity as u64 | SMALL, data_deleter: None };
    // SAFETY: the memory is new and large enough.
    Ok(unsafe { finish(object, type_index, cell) })
}

/// Creates a Map or Dict in the dense layout from the table `new`.
fn new_dense(type_index: i32, new: NewTable) -> Result<ObjectRef> {
    let object: *mut MapObject = memory::allocate(size_of::<MapObject>())?.as_ptr().cast();
    let (cell, tail) = new.into_parts();
    // SAFETY: the address is within the allocation.
    let place = unsafe { &raw mut (*object).tail };
    // SAFETY: the memory is new and large enough.
    unsafe { place.write(tail) };
    // SAFETY: the memory is new and large enough.
    Ok(unsafe { finish(object, type_index, cell) })
}

/// Writes an object header and `cell` into the new memory at `object`, and returns a reference to the object.
///
/// # Safety
/// `object` must be new memory with room for everything that `cell` describes.
unsafe fn finish(object: *mut MapObject, type_index: i32, cell: TVMFFIMapCell) -> ObjectRef {
    let header =
        TVMFFIObject { combined_ref_count: refcount::UNIQUE, type_index, flags: 0, deleter: Some(delete) };
    // SAFETY: the caller guarantees the memory, in which the header comes first.
    unsafe { object.cast::<TVMFFIObject>().write(header) };
    // SAFETY: the caller guarantees the memory, in which the header comes first.
    let place = unsafe { &raw mut (*object).cell };
    // SAFETY: the caller guarantees the memory, in which the header comes first.
    unsafe { place.write(cell) };
    live::created(object, type_index);
    // SAFETY: the object is valid and has one reference, which the result takes over.
    match unsafe { ObjectRef::from_owned_or_null(object.cast()) } {
        Some(object) => object,
        None => unreachable!("an object is never at address zero"),
    }
}

/// Creates a Map or Dict from pairs, in order. If a key occurs more than once, its last value is used. Hooks of the
/// keys may run.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn from_pairs(type_index: i32, pairs: Vec<(Any, Any)>) -> Result<ObjectRef> {
    let object = if pairs.len() <= SMALL_MAX {
        new_small(type_index, pairs.len())?
    } else {
        let (slots, fib_shift) = table::smallest_table_size(pairs.len());
        new_dense(type_index, NewTable::new(slots, fib_shift)?)?
    };
    // SAFETY: the object is new, and no other code can access it.
    let mut mapping = unsafe { mapping_of(&object) };
    for (key, value) in pairs {
        mapping.set(key, value)?;
    }
    Ok(object)
}

/// Creates a copy of a Map or Dict: an object of the same type, with the same keys and values.
///
/// # Safety
/// The requirements are those of [`layout_of`].
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) unsafe fn copy_of(object: &ObjectRef) -> Result<ObjectRef> {
    // SAFETY: the caller guarantees the same requirements.
    let layout = unsafe { layout_of(object) };
    // The bytes are copied, so each object among them needs one more reference. Taking it panics at the maximum
    // reference count, so it is done first, before the copy exists.
    let mut references = References { layout, taken: 0 };
    references.take();
    let copy = match layout {
        Layout::Small(pairs) => {
            let copy = new_small(object.type_index(), pairs.len())?;
            // SAFETY: the object is new, and no other code can access it.
            let mut mapping = unsafe { mapping_of(&copy) };
            pairs.iter().for_each(|pair| mapping.append(*pair));
            copy
        }
        Layout::Dense(view) => {
            let last = Iter { layout, next: view.first() }.last_slot();
            new_dense(object.type_index(), NewTable::copy_of(view, last)?)?
        }
    };
    // The copy owns the references now.
    core::mem::forget(references);
    Ok(copy)
}

/// Guard that holds one additional reference to each of the first `taken` keys and values of a
/// mapping, in order. Dropping the guard releases these references.
struct References<'a> {
    layout: Layout<'a>,
    taken: usize,
}

impl<'a> References<'a> {
    fn values(&self) -> impl Iterator<Item = &'a Any> + use<'a> {
        self.layout.iter().flat_map(|(key, value)| [key, value])
    }

    fn take(&mut self) {
        for value in self.values() {
            core::mem::forget(value.clone());
            self.taken += 1;
        }
    }
}

impl Drop for References<'_> {
    fn drop(&mut self) {
        for value in self.values().take(self.taken) {
            // SAFETY: `take` added a reference to this value and forgot the `Any` that owned it.
            drop(unsafe { ptr::read(value) });
        }
    }
}

live::deleter!(fn delete(object: *mut c_void, flags: c_int) by release);

/// Releases the pairs of a Map or Dict, its memory, or both, as `flags` specify.
unsafe extern "C" fn release(object: *mut c_void, flags: c_int) -> Ended {
    if flags & STRONG != 0 {
        if !nesting::enter() {
            // SAFETY: this crate created the object, which is unused. It is handed over, with its memory if `flags` says so.
            unsafe { nesting::defer(object.cast(), flags) };
            return Ended::NONE;
        }
        // SAFETY: no strong reference is left, so no other code uses the content.
        let mut mapping = unsafe { Mapping::from_header(object.cast()) };
        mapping.release();
        nesting::leave();
    }
    if flags & WEAK == 0 {
        return Ended::NONE;
    }
    // SAFETY: the memory has not been freed, and begins with the header.
    let ended = live::ending(object, unsafe { (*object.cast::<TVMFFIObject>()).type_index });
    // SAFETY: the object came from `memory`, and its content has been released.
    unsafe { memory::FREE(object) };
    ended
}

/// Read-only view of the pairs of a Map or Dict.
#[derive(Clone, Copy)]
pub(super) enum Layout<'a> {
    /// Pairs of the small layout, stored consecutively.
    Small(&'a [Pair]),
    /// Pairs of the dense layout, stored in a hash table.
    Dense(View<'a>),
}

/// Returns a read-only view of the pairs of a Map or Dict.
///
/// # Safety
/// `object` must be a Map or Dict that does not change during the borrow.
#[inline]
pub(super) unsafe fn layout_of(object: &ObjectRef) -> Layout<'_> {
    // SAFETY: the caller guarantees the same requirements.
    unsafe { layout_at(object.header().cast()) }
}

/// Returns a read-only view of the pairs of the Map or Dict at the address `object`.
///
/// # Safety
/// The requirements are those of [`layout_of`].
#[inline]
unsafe fn layout_at<'a>(object: *const MapObject) -> Layout<'a> {
    // SAFETY: a Map or Dict has its cell directly after the header.
    let cell = unsafe { &(*object).cell };
    if cell.slots & SMALL != 0 {
        if cell.size == 0 {
            return Layout::Small(&[]);
        }
        // SAFETY: the cell has `size` pairs at `data`.
        return Layout::Small(unsafe { core::slice::from_raw_parts(cell.data.cast(), cell.size as usize) });
    }
    // SAFETY: a dense object has the tail after the cell.
    let tail = unsafe { &(*object).tail };
    // SAFETY: the caller guarantees that the object does not change.
    Layout::Dense(unsafe { View::from_parts(cell, tail) })
}

/// Returns the number of pairs in a Map or Dict.
///
/// # Safety
/// The requirements are those of [`layout_of`].
#[inline]
pub(super) unsafe fn len_of(object: &ObjectRef) -> usize {
    let object: *const MapObject = object.header().cast();
    // SAFETY: a Map or Dict has its cell directly after the header.
    unsafe { (*object).cell.size as usize }
}

impl<'a> Layout<'a> {
    /// Returns the slot of the key for which `equal` returns true; `None` if there is no such key.
    /// In the small layout, the slot is the index of the pair. `hash` is the hash of the key, if it
    /// is already known.
    #[inline]
    pub(super) fn find(
        self,
        key: &AnyView<'_>,
        hash: Option<u64>,
        mut equal: impl FnMut(&'a Any) -> bool,
    ) -> Option<u64> {
        match self {
            Layout::Small(pairs) => pairs.iter().position(|pair| equal(any(&pair.key))).map(|at| at as u64),
            Layout::Dense(view) => view.find(hash.unwrap_or_else(|| hash::any_hash(key)), equal),
        }
    }

    /// Returns the key and value in a slot.
    #[inline]
    pub(super) fn pair(self, at: u64) -> (&'a Any, &'a Any) {
        match self {
            Layout::Small(pairs) => {
                let pair = &pairs[at as usize];
                (any(&pair.key), any(&pair.value))
            }
            Layout::Dense(view) => {
                let item = view.item(at);
                (any(&item.key), any(&item.value))
            }
        }
    }

    /// Returns true if a slot holds a pair.
    #[inline]
    pub(super) fn holds(self, at: u64) -> bool {
        match self {
            Layout::Small(pairs) => at < pairs.len() as u64,
            Layout::Dense(view) => view.holds(at),
        }
    }

    /// Returns the slot of the oldest pair. If there are no pairs, returns [`NONE`] or a slot that holds no pair.
    #[inline]
    pub(super) fn first(self) -> u64 {
        match self {
            Layout::Small(_) => 0,
            Layout::Dense(view) => view.first(),
        }
    }

    /// Returns the slot of the next newer pair after the pair in slot `at`. After the newest pair, returns [`NONE`] or
    /// a slot that holds no pair.
    #[inline]
    pub(super) fn next(self, at: u64) -> u64 {
        match self {
            Layout::Small(_) => at + 1,
            Layout::Dense(view) => view.next(at),
        }
    }

    /// Returns an iterator over the pairs in insertion order.
    #[inline]
    pub(super) fn iter(self) -> Iter<'a> {
        let next = match self {
            Layout::Small(_) => 0,
            Layout::Dense(view) => view.first(),
        };
        Iter { layout: self, next }
    }
}

/// An iterator over the pairs of a Map or Dict in insertion order.
#[derive(Clone)]
pub(super) struct Iter<'a> {
    layout: Layout<'a>,
    next: u64,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Any, &'a Any);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.layout {
            Layout::Small(pairs) => {
                let pair = pairs.get(self.next as usize)?;
                self.next += 1;
                Some((any(&pair.key), any(&pair.value)))
            }
            Layout::Dense(view) => {
                if self.next == NONE {
                    return None;
                }
                let item = view.item(self.next);
                self.next = view.next(self.next);
                Some((any(&item.key), any(&item.value)))
            }
        }
    }
}

impl Iter<'_> {
    /// Returns the slot of the newest pair of a mapping in the dense layout; [`NONE`] in the small layout.
    fn last_slot(self) -> u64 {
        let Layout::Dense(view) = self.layout else { return NONE };
        let mut at = self.next;
        while at != NONE && view.next(at) != NONE {
            at = view.next(at);
        }
        at
    }
}

/// Exclusive borrow of the pairs of a Map or Dict.
///
/// Only [`Mapping::set`] and [`Mapping::release`] release values. The other methods return the values that they remove
/// to the caller.
pub(super) struct Mapping<'a> {
    object: *mut MapObject,
    borrow: PhantomData<&'a mut MapObject>,
}

/// Pairs that were removed from a Map or Dict, and the buffer that held them if the caller must
/// free it.
pub(super) type Taken = (Vec<(Any, Any)>, Option<Buffer>);

/// The result of [`Mapping::add`].
pub(super) enum Added {
    /// The pair was added. The previous buffer of the mapping, if any, must be freed.
    Done(Option<Buffer>),
    /// The pair was not added: the table must grow, and the caller must first call hooks to hash these keys.
    NeedsHashes(Vec<Any>),
}

/// Function that returns the hash of a key if a hook has computed it, and `None` otherwise.
pub(super) type HashOf<'a> = dyn Fn(&Any) -> Option<u64> + 'a;

/// Returns exclusive access to the pairs of a Map or Dict.
///
/// # Safety
/// `object` must be a Map or Dict, and no other code may use its content while the result is alive.
#[inline]
pub(super) unsafe fn mapping_of(object: &ObjectRef) -> Mapping<'_> {
    // SAFETY: the caller guarantees the same requirements.
    unsafe { Mapping::from_header(object.header()) }
}

impl Mapping<'_> {
    /// Returns exclusive access to the pairs of the Map or Dict with the given header.
    ///
    /// # Safety
    /// The requirements are those of [`mapping_of`].
    #[inline]
    unsafe fn from_header<'a>(header: *mut TVMFFIObject) -> Mapping<'a> {
        Mapping { object: header.cast(), borrow: PhantomData }
    }

    #[inline]
    pub(super) fn layout(&self) -> Layout<'_> {
        // SAFETY: `mapping_of` guarantees the object, and `self` is borrowed.
        unsafe { layout_at(self.object) }
    }

    #[inline]
    fn cell(&mut self) -> &mut TVMFFIMapCell {
        // SAFETY: `mapping_of` guarantees the object and exclusive use.
        unsafe { &mut (*self.object).cell }
    }

    #[inline]
    fn is_small(&mut self) -> bool {
        self.cell().slots & SMALL != 0
    }

    /// Returns the table of the mapping, which must be in the dense layout.
    #[inline]
    fn table(&mut self) -> Table<'_> {
        debug_assert!(!self.is_small());
        // No reference to the whole object is created, because other threads change its reference counts.
        // SAFETY: `mapping_of` guarantees the object and exclusive use of its content.
        let cell = unsafe { &mut (*self.object).cell };
        // SAFETY: `mapping_of` guarantees the object and exclusive use of its content, and a dense object has the
        // tail.
        let tail = unsafe { &mut (*self.object).tail };
        // SAFETY: the object is dense, so cell and tail describe a table.
        unsafe { Table::from_parts(cell, tail) }
    }

    /// Returns the pair at index `at` of the mapping, which must be in the small layout.
    fn pair_mut(&mut self, at: usize) -> &mut Pair {
        let cell = self.cell();
        assert!(at < cell.size as usize);
        // SAFETY: the index is within the pairs.
        let pair = unsafe { cell.data.cast::<Pair>().add(at) };
        // SAFETY: the index is within the pairs, and `self` is borrowed exclusively.
        unsafe { &mut *pair }
    }

    /// Returns the number of pairs.
    #[inline]
    pub(super) fn len(&self) -> usize {
        // SAFETY: `mapping_of` guarantees the object.
        unsafe { (*self.object).cell.size as usize }
    }

    /// Replaces the value in a slot and returns the old value.
    #[inline]
    pub(super) fn replace(&mut self, at: u64, value: Any) -> Any {
        let raw = value.into_raw();
        let old = if self.is_small() {
            core::mem::replace(&mut self.pair_mut(at as usize).value, raw)
        } else {
            core::mem::replace(&mut self.table().item_mut(at).value, raw)
        };
        // SAFETY: the slot held an owned value, which has moved out.
        unsafe { Any::from_raw(old) }
    }

    /// Adds a pair, whose key must be absent from the mapping. If the pair is added, `pair` is `None`
    /// afterwards.
    ///
    /// `hash` is the hash of the new key, if it is known. `hash_of` returns the hashes that hooks have computed for
    /// keys of the mapping. Without `hash_of`, the hooks are called when a hash is needed.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the mapping is unchanged in that case.
    pub(super) fn add(
        &mut self,
        pair: &mut Option<(Any, Any)>,
        hash: Option<u64>,
        hash_of: Option<&HashOf<'_>>,
    ) -> Result<Added> {
        let Some((key, value)) = pair.take() else { return Ok(Added::Done(None)) };
        // While the values are plain bytes, an early return puts them back.
        let raw = Pair { key: key.into_raw(), value: value.into_raw() };
        let added = self.add_raw(raw, hash, hash_of);
        if !matches!(added, Ok(Added::Done(_))) {
            // SAFETY: the bytes were an owned key above and have not been used.
            let key = unsafe { Any::from_raw(raw.key) };
            // SAFETY: the bytes were an owned value above and have not been used.
            let value = unsafe { Any::from_raw(raw.value) };
            *pair = Some((key, value));
        }
        added
    }

    fn add_raw(&mut self, pair: Pair, hash: Option<u64>, hash_of: Option<&HashOf<'_>>) -> Result<Added> {
        let (size, slots) = (self.cell().size, self.cell().slots);
        let (slots, fib_shift) = if slots & SMALL != 0 {
            let room = slots & !SMALL;
            if size < room {
                self.append(pair);
                return Ok(Added::Done(None));
            }
            if room < SMALL_MAX as u64 {
                let old = self.widen()?;
                self.append(pair);
                return Ok(Added::Done(old));
            }
            table::table_size(SMALL_MAX)
        } else {
            let hash = hash.unwrap_or_else(|| hash::any_hash(any(&pair.key).view_ref()));
            let mut table = self.table();
            if let Slot::Added(at) | Slot::Found(at) = table.find_or_add(&pair.key, hash, |_| false) {
                table.item_mut(at).value = pair.value;
                return Ok(Added::Done(None));
            }
            table::larger(slots, table.fib_shift())?
        };
        self.grow(pair, hash, hash_of, slots, fib_shift)
    }

    /// Moves the pairs of the mapping to a new table and adds `pair` to the table. If a hook must
    /// first hash some keys, returns these keys and changes nothing.
    #[cold]
    fn grow(
        &mut self,
        pair: Pair,
        hash: Option<u64>,
        hash_of: Option<&HashOf<'_>>,
        slots: u64,
        fib_shift: u32,
    ) -> Result<Added> {
        let layout = self.layout();
        if let Some(hash_of) = hash_of {
            let unknown: Vec<Any> = layout
                .iter()
                .map(|(key, _)| key)
                .filter(|key| hash::has_hash_hook(key.view_ref()) && hash_of(key).is_none())
                .cloned()
                .collect();
            if !unknown.is_empty() {
                return Ok(Added::NeedsHashes(unknown));
            }
        }
        let known = |key: &Any| {
            if key.view_ref().bits() == any(&pair.key).view_ref().bits()
                && key.type_index() == pair.key.type_index
            {
                return hash;
            }
            hash_of.and_then(|hash_of| hash_of(key))
        };
        let new = table::rebuild(
            slots,
            fib_shift,
            || layout.iter().map(|(key, value)| (raw_of(key), raw_of(value))).chain([(&pair.key, &pair.value)]),
            |key| known(key).unwrap_or_else(|| hash::any_hash(key.view_ref())),
        )?;
        Ok(Added::Done(Some(self.switch_to(new))))
    }

    /// Switches the object to the dense layout with the table `new`, which already contains the pairs. Returns the old
    /// buffer.
    fn switch_to(&mut self, new: NewTable) -> Buffer {
        let (cell, tail) = new.into_parts();
        let old = core::mem::replace(self.cell(), cell);
        // SAFETY: every object has room for the tail.
        let place = unsafe { &raw mut (*self.object).tail };
        // SAFETY: every object has room for the tail, and the old bytes (pairs or a tail) have been moved.
        unsafe { place.write(tail) };
        // SAFETY: the object no longer uses the buffer, and pairs in the object's own memory have no deleter.
        unsafe { Buffer::from_raw(old.data, old.data_deleter) }
    }

    /// Appends a pair to a mapping in the small layout, which must have spare capacity.
    fn append(&mut self, pair: Pair) {
        let cell = self.cell();
        // SAFETY: there is room for one more pair.
        let at = unsafe { cell.data.cast::<Pair>().add(cell.size as usize) };
        // SAFETY: there is room for one more pair.
        unsafe { at.write(pair) };
        cell.size += 1;
    }

    /// Moves the pairs of a mapping in the small layout to a buffer with room for four pairs. Returns the old buffer.
    fn widen(&mut self) -> Result<Option<Buffer>> {
        let data = memory::allocate_array(0, SMALL_MAX, size_of::<Pair>())?.as_ptr();
        let cell = self.cell();
        // SAFETY: both have room for the pairs, and they do not overlap because one of them is new.
        unsafe { ptr::copy_nonoverlapping(cell.data.cast::<Pair>(), data.cast(), cell.size as usize) };
        let old = (cell.data, cell.data_deleter);
        cell.data = data;
        cell.data_deleter = Some(memory::FREE);
        cell.slots = SMALL_MAX as u64 | SMALL;
        // SAFETY: the pairs have been moved, and pairs in the object's own memory have no deleter.
        Ok(Some(unsafe { Buffer::from_raw(old.0, old.1) }))
    }

    /// Sets the value of a key. This may call hooks and release the old value, so no other
    /// reference to the object may exist and no lock may be held.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the mapping is unchanged in that case.
    pub(super) fn set(&mut self, key: Any, value: Any) -> Result<()> {
        let view = key.as_view();
        let hash = if self.is_small() { None } else { Some(hash::any_hash(&view)) };
        match self.layout().find(&view, hash, |other| hash::any_equal(other.view_ref(), &view)) {
            Some(at) => drop(self.replace(at, value)),
            None => drop(self.add(&mut Some((key, value)), hash, None)?),
        }
        Ok(())
    }

    /// Returns the slot of the newest pair.
    pub(super) fn last(&mut self) -> Option<u64> {
        if self.is_small() {
            return self.cell().size.checked_sub(1);
        }
        // SAFETY: `mapping_of` guarantees the object, and it is dense.
        let last = unsafe { (*self.object).tail.iter_tail };
        self.layout().holds(last).then_some(last)
    }

    /// Removes the pair in a slot and returns it.
    pub(super) fn remove(&mut self, at: u64) -> (Any, Any) {
        let (key, value) = if self.is_small() {
            let pair = *self.pair_mut(at as usize);
            let cell = self.cell();
            let behind = cell.size as usize - at as usize - 1;
            // SAFETY: `pair_mut` has checked that the index is within the pairs.
            let to = unsafe { cell.data.cast::<Pair>().add(at as usize) };
            // SAFETY: the address is that of the next pair, or the end of the pairs.
            let from = unsafe { to.add(1) };
            // SAFETY: both ranges are within the pairs.
            unsafe { ptr::copy(from, to, behind) };
            cell.size -= 1;
            (pair.key, pair.value)
        } else {
            let item = self.table().remove(at);
            (item.key, item.value)
        };
        // SAFETY: the pair was owned by the object and has moved out.
        let key = unsafe { Any::from_raw(key) };
        // SAFETY: the same holds for the value.
        let value = unsafe { Any::from_raw(value) };
        (key, value)
    }

    /// Removes all pairs and returns them. In the dense layout, also returns the old table.
    ///
    /// # Errors
    /// Returns `MemoryError` if an empty table cannot be allocated; the mapping is unchanged in that case.
    pub(super) fn take_all(&mut self) -> Result<Taken> {
        if self.is_small() {
            let pairs = self.take_pairs();
            self.cell().size = 0;
            return Ok((pairs, None));
        }
        let (slots, fib_shift) = table::table_size(SMALL_MAX);
        let new = NewTable::new(slots, fib_shift)?;
        let pairs = self.take_pairs();
        Ok((pairs, Some(self.switch_to(new))))
    }

    /// Moves all pairs out of the mapping. The caller must then set the number of pairs to zero or replace the table.
    fn take_pairs(&mut self) -> Vec<(Any, Any)> {
        let mut pairs = Vec::with_capacity(self.len());
        for (key, value) in self.layout().iter() {
            // SAFETY: the pair moves out of the object, which forgets it.
            let key = unsafe { Any::from_raw(*raw_of(key)) };
            // SAFETY: the same holds for the value.
            let value = unsafe { Any::from_raw(*raw_of(value)) };
            pairs.push((key, value));
        }
        pairs
    }

    /// Releases all pairs and the buffer. The object must not be used afterwards.
    fn release(&mut self) {
        for (key, value) in self.layout().iter() {
            // SAFETY: the pair moves out of the object, which is no longer used.
            drop(unsafe { Any::from_raw(*raw_of(key)) });
            // SAFETY: the same holds for the value.
            drop(unsafe { Any::from_raw(*raw_of(value)) });
        }
        let cell = self.cell();
        cell.size = 0;
        // SAFETY: the buffer is empty, and pairs in the object's own memory have no deleter.
        drop(unsafe { Buffer::from_raw(cell.data, cell.data_deleter) });
        cell.data = ptr::null_mut();
    }
}

#[inline]
fn raw_of(value: &Any) -> &TVMFFIAny {
    value.view_ref().as_raw()
}

#[cold]
pub(super) fn missing_key() -> Error {
    Error::new("KeyError", "key is not in Map")
}
