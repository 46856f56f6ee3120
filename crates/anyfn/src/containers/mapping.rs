//! What Map and Dict have in common: an object of one of two layouts.
//!
//! Up to four pairs lie in a row (the *small* layout, in the object's own memory or in a buffer), more in a hash table
//! (the *dense* layout, see `table`). A small object becomes dense in place and never small again. Code of other
//! languages reads both, and changes Dicts, so nothing is kept but what the object's memory says.

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

/// Marks the small layout in the number of slots.
const SMALL: u64 = 1 << 63;
const SMALL_MIN: usize = 2;
const SMALL_MAX: usize = 4;

/// A Map or Dict of dense layout; in a small one the pairs begin where `tail` is.
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

/// Where the pairs of a small object begin.
const PAIRS: usize = core::mem::offset_of!(MapObject, tail);

const _: () = assert!(PAIRS == 56 || size_of::<usize>() != 8);
// A small object must have room to become dense in place.
const _: () = assert!(size_of::<MapObject>() <= PAIRS + SMALL_MIN * size_of::<Pair>());

/// Makes an empty object of small layout with room for `capacity` pairs, two at least.
///
/// # Errors
/// `MemoryError` when memory is short.
pub(super) fn new_small(type_index: i32, capacity: usize) -> Result<ObjectRef> {
    let capacity = capacity.clamp(SMALL_MIN, SMALL_MAX);
    let object: *mut MapObject = memory::allocate_array(PAIRS, capacity, size_of::<Pair>())?.as_ptr().cast();
    // SAFETY: within the allocation.
    let data = unsafe { &raw mut (*object).tail }.cast();
    let cell = TVMFFIMapCell { data, size: 0, slots: capacity as u64 | SMALL, data_deleter: None };
    // SAFETY: fresh memory, large enough.
    Ok(unsafe { finish(object, type_index, cell) })
}

/// Makes an object of dense layout.
fn new_dense(type_index: i32, new: NewTable) -> Result<ObjectRef> {
    let object: *mut MapObject = memory::allocate(size_of::<MapObject>())?.as_ptr().cast();
    let (cell, tail) = new.into_parts();
    // SAFETY: within the allocation.
    let place = unsafe { &raw mut (*object).tail };
    // SAFETY: fresh memory, large enough.
    unsafe { place.write(tail) };
    // SAFETY: fresh memory, large enough.
    Ok(unsafe { finish(object, type_index, cell) })
}

/// # Safety
/// `object` must be fresh memory for what `cell` says.
unsafe fn finish(object: *mut MapObject, type_index: i32, cell: TVMFFIMapCell) -> ObjectRef {
    let header =
        TVMFFIObject { combined_ref_count: refcount::UNIQUE, type_index, flags: 0, deleter: Some(delete) };
    // SAFETY: the caller guarantees the memory; the header comes first.
    unsafe { object.cast::<TVMFFIObject>().write(header) };
    // SAFETY: the caller guarantees the memory; the header comes first.
    let place = unsafe { &raw mut (*object).cell };
    // SAFETY: the caller guarantees the memory; the header comes first.
    unsafe { place.write(cell) };
    live::created(object, type_index);
    // SAFETY: a valid object with one reference, which the result takes.
    match unsafe { ObjectRef::from_owned_or_null(object.cast()) } {
        Some(object) => object,
        None => unreachable!("an object is never at address zero"),
    }
}

/// Makes an object of pairs, in order; the last value of a key counts. Hooks of keys may run.
///
/// # Errors
/// `MemoryError` when memory is short.
pub(super) fn from_pairs(type_index: i32, pairs: Vec<(Any, Any)>) -> Result<ObjectRef> {
    let object = if pairs.len() < SMALL_MAX {
        new_small(type_index, pairs.len())?
    } else {
        let (slots, fib_shift) = table::table_size(pairs.len());
        new_dense(type_index, NewTable::new(slots, fib_shift)?)?
    };
    // SAFETY: nobody else knows the new object.
    let mut mapping = unsafe { mapping_of(&object) };
    for (key, value) in pairs {
        mapping.set(key, value)?;
    }
    Ok(object)
}

/// Makes a copy of an object that does not change meanwhile.
///
/// # Safety
/// As [`layout_of`].
///
/// # Errors
/// `MemoryError` when memory is short.
pub(super) unsafe fn copy_of(object: &ObjectRef) -> Result<ObjectRef> {
    // SAFETY: the caller guarantees the same.
    let layout = unsafe { layout_of(object) };
    // The bytes are copied; each object among them gets one reference more. That panics at the limit of references, so it
    // comes first, while there is no copy.
    let mut references = References { layout, taken: 0 };
    references.take();
    let copy = match layout {
        Layout::Small(pairs) => {
            let copy = new_small(object.type_index(), pairs.len())?;
            // SAFETY: nobody else knows the new object.
            let mut mapping = unsafe { mapping_of(&copy) };
            pairs.iter().for_each(|pair| mapping.append(*pair));
            copy
        }
        Layout::Dense(view) => {
            let last = Iter { layout, next: view.first() }.last_slot();
            new_dense(object.type_index(), NewTable::copy_of(view, last)?)?
        }
    };
    // The copy has them now.
    core::mem::forget(references);
    Ok(copy)
}

/// One reference more to the first `taken` keys and values of a mapping, in order. Dropped, it gives them back.
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
            // SAFETY: `take` has counted one reference for it, and gave nobody the value that owns it.
            drop(unsafe { ptr::read(value) });
        }
    }
}

live::deleter!(fn delete(object: *mut c_void, flags: c_int) by release);

/// Releases the pairs, the memory, or both.
unsafe extern "C" fn release(object: *mut c_void, flags: c_int) -> Ended {
    if flags & STRONG != 0 {
        if !nesting::enter() {
            // SAFETY: the object is ours and unused; it is handed over whole, memory included if so flagged.
            unsafe { nesting::defer(object.cast(), flags) };
            return Ended::NONE;
        }
        // SAFETY: no strong reference is left, so nothing else uses the content.
        let mut mapping = unsafe { Mapping::from_header(object.cast()) };
        mapping.release();
        nesting::leave();
    }
    if flags & WEAK == 0 {
        return Ended::NONE;
    }
    // SAFETY: the memory is still there, and begins with the header.
    let ended = live::ending(object, unsafe { (*object.cast::<TVMFFIObject>()).type_index });
    // SAFETY: the object came from `memory`; its content is gone.
    unsafe { memory::FREE(object) };
    ended
}

/// The pairs of a Map or Dict, to be read.
#[derive(Clone, Copy)]
pub(super) enum Layout<'a> {
    /// In a row.
    Small(&'a [Pair]),
    /// In a hash table.
    Dense(View<'a>),
}

/// The pairs of an object.
///
/// # Safety
/// `object` must be a Map or Dict, and it must not change for the time of the borrow.
#[inline]
pub(super) unsafe fn layout_of(object: &ObjectRef) -> Layout<'_> {
    // SAFETY: the caller guarantees the same.
    unsafe { layout_at(object.header().cast()) }
}

/// # Safety
/// As [`layout_of`].
#[inline]
unsafe fn layout_at<'a>(object: *const MapObject) -> Layout<'a> {
    // SAFETY: such an object has the cell right behind the header.
    let cell = unsafe { &(*object).cell };
    if cell.slots & SMALL != 0 {
        if cell.size == 0 {
            return Layout::Small(&[]);
        }
        // SAFETY: the cell has `size` pairs at `data`.
        return Layout::Small(unsafe { core::slice::from_raw_parts(cell.data.cast(), cell.size as usize) });
    }
    // SAFETY: a dense object has the tail behind the cell.
    let tail = unsafe { &(*object).tail };
    // SAFETY: the caller guarantees that the object does not change.
    Layout::Dense(unsafe { View::from_parts(cell, tail) })
}

/// Number of pairs.
///
/// # Safety
/// As [`layout_of`].
#[inline]
pub(super) unsafe fn len_of(object: &ObjectRef) -> usize {
    let object: *const MapObject = object.header().cast();
    // SAFETY: such an object has the cell right behind the header.
    unsafe { (*object).cell.size as usize }
}

impl<'a> Layout<'a> {
    /// The place of the key for which `equal` is true. The hash is that of the key, if it is known already.
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

    /// The key and value of a place.
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

    /// Whether there is a pair at a place.
    #[inline]
    pub(super) fn holds(self, at: u64) -> bool {
        match self {
            Layout::Small(pairs) => at < pairs.len() as u64,
            Layout::Dense(view) => view.holds(at),
        }
    }

    /// The place of the oldest pair; [`NONE`] or one that holds nothing if there is none.
    #[inline]
    pub(super) fn first(self) -> u64 {
        match self {
            Layout::Small(_) => 0,
            Layout::Dense(view) => view.first(),
        }
    }

    /// The place behind one that holds a pair; [`NONE`] or one that holds nothing if it was the newest.
    #[inline]
    pub(super) fn next(self, at: u64) -> u64 {
        match self {
            Layout::Small(_) => at + 1,
            Layout::Dense(view) => view.next(at),
        }
    }

    /// The pairs in order.
    #[inline]
    pub(super) fn iter(self) -> Iter<'a> {
        let next = match self {
            Layout::Small(_) => 0,
            Layout::Dense(view) => view.first(),
        };
        Iter { layout: self, next }
    }
}

/// The pairs of a Map or Dict in order.
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
    /// The slot of the newest pair of a dense object.
    fn last_slot(self) -> u64 {
        let Layout::Dense(view) = self.layout else { return NONE };
        let mut at = self.next;
        while at != NONE && view.next(at) != NONE {
            at = view.next(at);
        }
        at
    }
}

/// The pairs of a Map or Dict, exclusively borrowed.
///
/// Methods release nothing but by [`Mapping::set`]: what is removed is given to the caller.
pub(super) struct Mapping<'a> {
    object: *mut MapObject,
    borrow: PhantomData<&'a mut MapObject>,
}

/// The pairs that a Dict had, and the buffer that they were in.
pub(super) type Taken = (Vec<(Any, Any)>, Option<Buffer>);

/// What has to be known before a pair can be added.
pub(super) enum Added {
    /// It was added; the buffer, if any, is to be freed.
    Done(Option<Buffer>),
    /// The hashes of these keys, which hooks compute, are needed first.
    NeedsHashes(Vec<Any>),
}

/// The hash of an existing key that a hook computes, if it is known.
pub(super) type HashOf<'a> = dyn Fn(&Any) -> Option<u64> + 'a;

/// The pairs of an object, to be changed.
///
/// # Safety
/// `object` must be a Map or Dict, and nothing else may use its content while the result lives.
#[inline]
pub(super) unsafe fn mapping_of(object: &ObjectRef) -> Mapping<'_> {
    // SAFETY: the caller guarantees the same.
    unsafe { Mapping::from_header(object.header()) }
}

impl Mapping<'_> {
    /// # Safety
    /// As [`mapping_of`].
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

    /// The table of a dense object.
    #[inline]
    fn table(&mut self) -> Table<'_> {
        debug_assert!(!self.is_small());
        // Not of the object as a whole, whose counts other threads change.
        // SAFETY: `mapping_of` guarantees the object and exclusive use of its content.
        let cell = unsafe { &mut (*self.object).cell };
        // SAFETY: `mapping_of` guarantees the object and exclusive use of its content; a dense object has the tail.
        let tail = unsafe { &mut (*self.object).tail };
        // SAFETY: the object is dense, so cell and tail describe a table.
        unsafe { Table::from_parts(cell, tail) }
    }

    /// The pair at a place of a small object.
    fn pair_mut(&mut self, at: usize) -> &mut Pair {
        let cell = self.cell();
        assert!(at < cell.size as usize);
        // SAFETY: the place is within the pairs.
        let pair = unsafe { cell.data.cast::<Pair>().add(at) };
        // SAFETY: the place is within the pairs; `self` is borrowed exclusively.
        unsafe { &mut *pair }
    }

    /// Number of pairs.
    #[inline]
    pub(super) fn len(&self) -> usize {
        // SAFETY: `mapping_of` guarantees the object.
        unsafe { (*self.object).cell.size as usize }
    }

    /// Puts another value at a place; gives the old one.
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

    /// Adds a pair whose key is not there. The key and value move out of their options when it succeeds.
    ///
    /// `hash_of` gives the hash of an existing key that a hook computes, if it is known; with `None` hooks are run.
    ///
    /// # Errors
    /// `MemoryError` when memory is short; nothing has changed then.
    pub(super) fn add(
        &mut self,
        pair: &mut Option<(Any, Any)>,
        hash: Option<u64>,
        hash_of: Option<&HashOf<'_>>,
    ) -> Result<Added> {
        let Some((key, value)) = pair.take() else { return Ok(Added::Done(None)) };
        // While the values are bytes, an early return puts them back.
        let raw = Pair { key: key.into_raw(), value: value.into_raw() };
        let added = self.add_raw(raw, hash, hash_of);
        if !matches!(added, Ok(Added::Done(_))) {
            // SAFETY: the bytes were an owned key above and were not used.
            let key = unsafe { Any::from_raw(raw.key) };
            // SAFETY: likewise the value.
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

    /// Moves all pairs and one more to a new table.
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

    /// Makes the object dense, with a table that has its pairs already; gives the old buffer.
    fn switch_to(&mut self, new: NewTable) -> Buffer {
        let (cell, tail) = new.into_parts();
        let old = core::mem::replace(self.cell(), cell);
        // SAFETY: every object has room for the tail.
        let place = unsafe { &raw mut (*self.object).tail };
        // SAFETY: every object has room for the tail; the old bytes, pairs or a tail, have moved.
        unsafe { place.write(tail) };
        // SAFETY: the object does not use it any more; pairs in its own memory have no deleter.
        unsafe { Buffer::from_raw(old.data, old.data_deleter) }
    }

    /// Adds a pair to a small object with room.
    fn append(&mut self, pair: Pair) {
        let cell = self.cell();
        // SAFETY: there is room for one pair more.
        let at = unsafe { cell.data.cast::<Pair>().add(cell.size as usize) };
        // SAFETY: there is room for one pair more.
        unsafe { at.write(pair) };
        cell.size += 1;
    }

    /// Moves the pairs of a small object to a buffer with room for four.
    fn widen(&mut self) -> Result<Option<Buffer>> {
        let data = memory::allocate_array(0, SMALL_MAX, size_of::<Pair>())?.as_ptr();
        let cell = self.cell();
        // SAFETY: both have room for the pairs, and one of them is new.
        unsafe { ptr::copy_nonoverlapping(cell.data.cast::<Pair>(), data.cast(), cell.size as usize) };
        let old = (cell.data, cell.data_deleter);
        cell.data = data;
        cell.data_deleter = Some(memory::FREE);
        cell.slots = SMALL_MAX as u64 | SMALL;
        // SAFETY: the pairs have moved; those in the object's own memory have no deleter.
        Ok(Some(unsafe { Buffer::from_raw(old.0, old.1) }))
    }

    /// Sets the value of a key, for an object that is not shared: hooks run, and what is replaced is released.
    ///
    /// # Errors
    /// `MemoryError` when memory is short; nothing has changed then.
    pub(super) fn set(&mut self, key: Any, value: Any) -> Result<()> {
        let view = key.as_view();
        let hash = if self.is_small() { None } else { Some(hash::any_hash(&view)) };
        match self.layout().find(&view, hash, |other| hash::any_equal(other.view_ref(), &view)) {
            Some(at) => drop(self.replace(at, value)),
            None => drop(self.add(&mut Some((key, value)), hash, None)?),
        }
        Ok(())
    }

    /// The place of the newest pair.
    pub(super) fn last(&mut self) -> Option<u64> {
        if self.is_small() {
            return self.cell().size.checked_sub(1);
        }
        // SAFETY: `mapping_of` guarantees the object, and it is dense.
        let last = unsafe { (*self.object).tail.iter_tail };
        self.layout().holds(last).then_some(last)
    }

    /// Removes the pair at a place.
    pub(super) fn remove(&mut self, at: u64) -> (Any, Any) {
        let (key, value) = if self.is_small() {
            let pair = *self.pair_mut(at as usize);
            let cell = self.cell();
            let behind = cell.size as usize - at as usize - 1;
            // SAFETY: `pair_mut` has checked that the place is within the pairs.
            let to = unsafe { cell.data.cast::<Pair>().add(at as usize) };
            // SAFETY: the places behind it, up to the last one.
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
        // SAFETY: likewise.
        let value = unsafe { Any::from_raw(value) };
        (key, value)
    }

    /// Takes all pairs away, and the buffer of a table.
    ///
    /// # Errors
    /// `MemoryError` when memory for an empty table is short; nothing has changed then.
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

    /// All pairs; the object must forget them then.
    fn take_pairs(&mut self) -> Vec<(Any, Any)> {
        let mut pairs = Vec::with_capacity(self.len());
        for (key, value) in self.layout().iter() {
            // SAFETY: the pair moves out of the object, which forgets it.
            let key = unsafe { Any::from_raw(*raw_of(key)) };
            // SAFETY: likewise.
            let value = unsafe { Any::from_raw(*raw_of(value)) };
            pairs.push((key, value));
        }
        pairs
    }

    /// Releases all pairs and the buffer, for an object that nobody uses any more.
    fn release(&mut self) {
        for (key, value) in self.layout().iter() {
            // SAFETY: the pair moves out of the object, which is not used any more.
            drop(unsafe { Any::from_raw(*raw_of(key)) });
            // SAFETY: likewise.
            drop(unsafe { Any::from_raw(*raw_of(value)) });
        }
        let cell = self.cell();
        cell.size = 0;
        // SAFETY: nothing is left in it; pairs in the object's own memory have no deleter.
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
