//! The dense layout of Map and Dict: a hash table with collision chains, stored in blocks of sixteen slots.
//! The pairs are also linked in insertion order.
//!
//! The home slot of a key is its hash times a constant, shifted right. The pairs with the same home slot form a
//! chain: its head is in the home slot, and each further pair is at one of 125 fixed distances from the previous one,
//! which seven bits identify. If a home slot is occupied by the chain of another home slot, that part of the chain is
//! moved away. The ABI fixes all of this, because code in other languages searches and changes the same memory.
//!
//! The code in this module accesses slots by bounds-checked index, so a damaged table causes a panic (an error at the
//! boundary) and not an invalid memory access. It moves plain bytes; it does not hash, compare or release values
//! itself.

use core::mem::MaybeUninit;

use alloc::vec::Vec;

use anyfn_abi::{TVMFFIAny, TVMFFIDenseMapTail, TVMFFIMapBlock, TVMFFIMapCell, TVMFFIMapItem};

use super::memory::{self, Buffer};
use crate::{Any, Error, Result};

/// Slot index that represents the absence of a slot.
pub(super) const NONE: u64 = u64::MAX;

const EMPTY: u8 = 0xFF;
const PROTECTED: u8 = 0xFE;
const BODY: u8 = 0x80;
const JUMP: u8 = 0x7F;
const BLOCK: usize = 16;

/// Distances from one slot of a chain to the next, in slots. A slot stores an index into this array; the index
/// 0 marks the end of the chain. The distances at the indices 1 to 15 are 1 to 15; triangular numbers and
/// larger numbers follow.
static JUMPS: [u64; 126] = jumps();

const fn jumps() -> [u64; 126] {
    const LARGE: [u64; 43] = [
        8515,
        19110,
        42778,
        96141,
        216153,
        486591,
        1092981,
        2458653,
        5532801,
        12442566,
        27993903,
        62983476,
        141717030,
        318844378,
        717352503,
        1614057336,
        3631522476,
        8170957530,
        18384510628,
        41364789378,
        93070452520,
        209408356380,
        471168559170,
        1060128894105,
        2385289465695,
        5366898840628,
        12075518705635,
        27169915244790,
        61132312065111,
        137547689707000,
        309482283181501,
        696335127828753,
        1566753995631385,
        3525196511162271,
        7931691992677701,
        17846306936293605,
        40154190677507445,
        90346928918121501,
        203280589587557251,
        457381325854679626,
        1029107982097042876,
        2315492959180353330,
        5209859154120846435,
    ];
    let mut jumps = [0; 126];
    let mut i = 0;
    while i < jumps.len() {
        jumps[i] = match i {
            0..16 => i as u64,
            // The triangular numbers 21 (of 6), 28 (of 7), ... 2628 (of 72).
            16..83 => ((i - 10) * (i - 9) / 2) as u64,
            _ => LARGE[i - 83],
        };
        i += 1;
    }
    jumps
}

/// Content of an occupied slot: key, value, and the slots of the neighbours in insertion order.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) key: TVMFFIAny,
    pub(super) value: TVMFFIAny,
    prev: u64,
    next: u64,
}

/// A block of sixteen slots. A slot holds an item only if its `meta` byte is a link to the next slot or marks
/// the end of a chain.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Block {
    meta: [u8; BLOCK],
    items: [MaybeUninit<Item>; BLOCK],
}

const _: () = assert!(size_of::<Item>() == size_of::<TVMFFIMapItem>());
const _: () = assert!(size_of::<Block>() == size_of::<TVMFFIMapBlock>());

/// Returns the number of slots of a new table for `capacity` pairs, and the bit shift that converts a hash to
/// a home slot.
pub(super) fn table_size(capacity: usize) -> (u64, u32) {
    let bits = usize::BITS - capacity.leading_zeros();
    let (slots, shift) = (1u64 << bits, 64 - bits);
    if slots < 2 * capacity as u64 { (slots * 2, shift - 1) } else { (slots, shift) }
}

/// Returns the size of the smallest table that holds `pairs` pairs, as [`table_size`] does. It is the size that the table reaches if
/// the pairs are added one by one, except that a block is used entirely.
pub(super) fn smallest_table_size(pairs: usize) -> (u64, u32) {
    let (mut slots, mut shift) = (BLOCK as u64, 64 - BLOCK.trailing_zeros());
    while exceeds_load(pairs as u64, slots) {
        (slots, shift) = (slots * 2, shift - 1);
    }
    (slots, shift)
}

/// Returns true if a table with this many slots holds fewer pairs: at most 99% of the slots are used.
fn exceeds_load(pairs: u64, slots: u64) -> bool {
    pairs as f64 > slots as f64 * 0.99
}

/// A new table that does not belong to an object yet.
pub(super) struct NewTable {
    cell: TVMFFIMapCell,
    tail: TVMFFIDenseMapTail,
}

impl NewTable {
    /// Creates an empty table with `slots` slots.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub(super) fn new(slots: u64, fib_shift: u32) -> Result<NewTable> {
        let count = usize::try_from(slots.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
        let data = memory::allocate_array(0, count, size_of::<Block>())?;
        for at in 0..count {
            // SAFETY: the address is within the allocation.
            let block = unsafe { data.as_ptr().cast::<Block>().add(at) };
            // SAFETY: the address is within the allocation; `meta` comes first, and the items stay uninitialised.
            unsafe { block.cast::<[u8; BLOCK]>().write([EMPTY; BLOCK]) };
        }
        let data_deleter = Some(memory::FREE);
        Ok(NewTable {
            cell: TVMFFIMapCell { data: data.as_ptr(), size: 0, slots, data_deleter },
            tail: TVMFFIDenseMapTail { fib_shift, padding: 0, iter_head: NONE, iter_tail: NONE },
        })
    }

    /// Creates a copy of a table, with the same number of slots and the same bytes in each slot.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub(super) fn copy_of(from: View<'_>, tail: u64) -> Result<NewTable> {
        let mut new = Self::new(from.slots, from.fib_shift)?;
        new.cell.size = from.size;
        new.tail.iter_head = from.head;
        new.tail.iter_tail = tail;
        new.table().blocks.copy_from_slice(from.blocks);
        Ok(new)
    }

    pub(super) fn table(&mut self) -> Table<'_> {
        // SAFETY: the cell describes the blocks that `new` created.
        unsafe { Table::from_parts(&mut self.cell, &mut self.tail) }
    }

    /// Returns the cell and the tail that describe the table. The object that stores them takes ownership of
    /// the table.
    pub(super) fn into_parts(self) -> (TVMFFIMapCell, TVMFFIDenseMapTail) {
        let this = core::mem::ManuallyDrop::new(self);
        let TVMFFIMapCell { data, size, slots, data_deleter } = this.cell;
        let TVMFFIDenseMapTail { fib_shift, padding, iter_head, iter_tail } = this.tail;
        (
            TVMFFIMapCell { data, size, slots, data_deleter },
            TVMFFIDenseMapTail { fib_shift, padding, iter_head, iter_tail },
        )
    }
}

impl Drop for NewTable {
    fn drop(&mut self) {
        // The pairs in it, if any, are copies; the originals remain valid elsewhere.
        // SAFETY: the blocks were created in `new` and have not been handed over.
        drop(unsafe { Buffer::from_raw(self.cell.data, self.cell.data_deleter) });
    }
}

/// Read-only view of a dense table.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    blocks: &'a [Block],
    slots: u64,
    fib_shift: u32,
    head: u64,
    size: u64,
}

/// Mutable view of a dense table.
pub(super) struct Table<'a> {
    blocks: &'a mut [Block],
    cell: &'a mut TVMFFIMapCell,
    tail: &'a mut TVMFFIDenseMapTail,
}

/// The result of [`Table::find_or_add`].
pub(super) enum Slot {
    /// The key exists, in this slot.
    Found(u64),
    /// The key was added in this slot, with None as its value.
    Added(u64),
    /// The key was not added, because the table has no suitable free slot and must grow first.
    Full,
}

/// An item that was moved to another slot, with the previous `meta` byte of its old slot.
#[derive(Clone, Copy, Default)]
struct Move {
    from: u64,
    to: u64,
    meta: u8,
}

/// Moves made by one attempt to free a slot, recorded so that they can be undone. Most attempts need few
/// moves; only keys chosen to collide need many.
#[derive(Default)]
struct Moves {
    first: [Move; 8],
    count: usize,
    more: Vec<Move>,
}

impl Moves {
    /// Records a move. Returns false if memory allocation fails.
    fn push(&mut self, step: Move) -> bool {
        if let Some(slot) = self.first.get_mut(self.count) {
            *slot = step;
        } else if self.more.try_reserve(1).is_ok() {
            self.more.push(step);
        } else {
            return false;
        }
        self.count += 1;
        true
    }

    fn latest_first(&self) -> impl Iterator<Item = &Move> {
        let inline = &self.first[..self.count.min(self.first.len())];
        self.more.iter().rev().chain(inline.iter().rev())
    }
}

fn block_count(slots: u64) -> usize {
    usize::try_from(slots.div_ceil(BLOCK as u64)).unwrap_or(0)
}

impl<'a> View<'a> {
    /// Returns a read-only view of the dense table that `cell` and `tail` describe.
    ///
    /// # Safety
    /// The cell and tail must belong to a dense table that does not change for `'a`.
    #[inline]
    pub(super) unsafe fn from_parts(cell: &TVMFFIMapCell, tail: &TVMFFIDenseMapTail) -> View<'a> {
        let count = block_count(cell.slots);
        let blocks: &[Block] = if count == 0 || cell.data.is_null() {
            &[]
        } else {
            // SAFETY: the caller guarantees that the cell describes the blocks.
            unsafe { core::slice::from_raw_parts(cell.data.cast(), count) }
        };
        View { blocks, slots: cell.slots, fib_shift: tail.fib_shift, head: tail.iter_head, size: cell.size }
    }

    #[inline]
    fn meta(self, at: u64) -> u8 {
        self.blocks[at as usize / BLOCK].meta[at as usize % BLOCK]
    }

    #[inline]
    pub(super) fn item(self, at: u64) -> &'a Item {
        debug_assert!(self.meta(at) < PROTECTED);
        // SAFETY: links and chains lead only to slots that hold an item.
        unsafe { self.blocks[at as usize / BLOCK].items[at as usize % BLOCK].assume_init_ref() }
    }

    /// Returns true if a slot holds an item.
    #[inline]
    pub(super) fn holds(self, at: u64) -> bool {
        let block = usize::try_from(at).ok().and_then(|at| self.blocks.get(at / BLOCK));
        at < self.slots && block.is_some_and(|block| block.meta[at as usize % BLOCK] < PROTECTED)
    }

    #[inline]
    fn home(self, hash: u64) -> u64 {
        hash.wrapping_mul(11_400_714_819_323_198_485) >> (self.fib_shift & 63)
    }

    #[inline]
    fn jump(self, from: u64, index: u8) -> u64 {
        from.wrapping_add(JUMPS[index as usize]) & (self.slots - 1)
    }

    /// Returns the slot that follows slot `at` in its chain; `None` at the end of the chain.
    #[inline]
    fn next_in_chain(self, at: u64) -> Option<u64> {
        match self.meta(at) & JUMP {
            0 => None,
            index => Some(self.jump(at, index)),
        }
    }

    /// Searches the chain of the home slot of `hash`. Returns the slot of the first key for which `equal` returns true.
    #[inline]
    pub(super) fn find(self, hash: u64, mut equal: impl FnMut(&'a Any) -> bool) -> Option<u64> {
        if self.size == 0 || self.blocks.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        if self.meta(at) & BODY != 0 {
            return None;
        }
        loop {
            if equal(any(&self.item(at).key)) {
                return Some(at);
            }
            at = self.next_in_chain(at)?;
        }
    }

    /// Returns the slot of the oldest pair; [`NONE`] if there is no pair.
    #[inline]
    pub(super) fn first(self) -> u64 {
        if self.size == 0 { NONE } else { self.head }
    }

    /// Returns the slot of the next newer pair after the pair in slot `at`; [`NONE`] after the newest pair.
    #[inline]
    pub(super) fn next(self, at: u64) -> u64 {
        self.item(at).next
    }

    /// Returns the first empty slot that is reached from slot `from` by a distance in `JUMPS`, and the index of
    /// this distance.
    fn next_empty(self, from: u64) -> Option<(u64, u8)> {
        (1..JUMPS.len() as u8)
            .map(|index| (self.jump(from, index), index))
            .find(|(at, _)| self.meta(*at) == EMPTY)
    }

    /// Returns the slot before `at` in its chain. It tries all distances in `JUMPS`, so that no key has to be hashed.
    fn previous_in_chain(self, at: u64) -> u64 {
        for index in 1..JUMPS.len() as u8 {
            let before = at.wrapping_sub(JUMPS[index as usize]) & (self.slots - 1);
            let meta = self.meta(before);
            if meta < PROTECTED && meta & JUMP == index {
                return before;
            }
        }
        panic!("a map is damaged: slot {at} is in no chain")
    }
}

/// Returns a reference to the owned key or value in a slot.
#[inline]
pub(super) fn any(raw: &TVMFFIAny) -> &Any {
    // SAFETY: the slots hold owned values, and `Any` is transparent over `TVMFFIAny`.
    unsafe { &*core::ptr::from_ref(raw).cast() }
}

impl Table<'_> {
    /// Returns a mutable view of the dense table that `cell` and `tail` describe.
    ///
    /// # Safety
    /// The cell and tail must belong to a dense table that no other code uses for the lifetime of the result.
    pub(super) unsafe fn from_parts<'a>(
        cell: &'a mut TVMFFIMapCell,
        tail: &'a mut TVMFFIDenseMapTail,
    ) -> Table<'a> {
        let count = block_count(cell.slots);
        let blocks: &mut [Block] = if count == 0 || cell.data.is_null() {
            &mut []
        } else {
            // SAFETY: the caller guarantees that the cell describes the blocks and that the use is exclusive.
            unsafe { core::slice::from_raw_parts_mut(cell.data.cast(), count) }
        };
        Table { blocks, cell, tail }
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View {
            blocks: self.blocks,
            slots: self.cell.slots,
            fib_shift: self.tail.fib_shift,
            head: self.tail.iter_head,
            size: self.cell.size,
        }
    }

    #[inline]
    fn set_meta(&mut self, at: u64, meta: u8) {
        self.blocks[at as usize / BLOCK].meta[at as usize % BLOCK] = meta;
    }

    #[inline]
    fn set_jump(&mut self, at: u64, index: u8) {
        let meta = self.view().meta(at) & BODY | index;
        self.set_meta(at, meta);
    }

    #[inline]
    pub(super) fn item_mut(&mut self, at: u64) -> &mut Item {
        debug_assert!(self.view().meta(at) < PROTECTED);
        // SAFETY: links and chains lead only to slots that hold an item.
        unsafe { self.blocks[at as usize / BLOCK].items[at as usize % BLOCK].assume_init_mut() }
    }

    #[inline]
    fn put(&mut self, at: u64, meta: u8, item: Item) {
        self.set_meta(at, meta);
        self.blocks[at as usize / BLOCK].items[at as usize % BLOCK].write(item);
    }

    pub(super) fn fib_shift(&self) -> u32 {
        self.tail.fib_shift
    }

    /// Returns true if adding a pair would exceed the maximum load of the table (99% of the slots).
    fn is_full(&self) -> bool {
        exceeds_load(self.cell.size + 1, self.cell.slots)
    }

    /// Finds the key for which `equal` returns true, or adds `key` to the table as the newest key.
    ///
    /// If the result is [`Slot::Added`], the table owns the key.
    pub(super) fn find_or_add(
        &mut self,
        key: &TVMFFIAny,
        hash: u64,
        mut equal: impl FnMut(&Any) -> bool,
    ) -> Slot {
        if self.blocks.is_empty() {
            return Slot::Full;
        }
        let view = self.view();
        let home = view.home(hash);
        let meta = view.meta(home);
        let item = Item { key: *key, value: TVMFFIAny::NONE, prev: NONE, next: NONE };
        if meta == EMPTY {
            self.put(home, 0, item);
            return self.added(home);
        }
        if meta & BODY != 0 {
            if self.is_full() || !self.free_home(home) {
                return Slot::Full;
            }
            self.put(home, 0, item);
            return self.added(home);
        }
        let mut tail = home;
        loop {
            if equal(any(&view.item(tail).key)) {
                return Slot::Found(tail);
            }
            match view.next_in_chain(tail) {
                Some(next) => tail = next,
                None => break,
            }
        }
        if self.is_full() {
            return Slot::Full;
        }
        let Some((at, index)) = view.next_empty(tail) else { return Slot::Full };
        self.put(at, BODY, item);
        self.set_jump(tail, index);
        self.added(at)
    }

    /// Links the item in slot `at` as the newest pair and increments the number of pairs.
    fn added(&mut self, at: u64) -> Slot {
        let last = self.tail.iter_tail;
        self.item_mut(at).prev = last;
        match last {
            NONE => self.tail.iter_head = at,
            last => self.item_mut(last).next = at,
        }
        self.tail.iter_tail = at;
        self.cell.size += 1;
        Slot::Added(at)
    }

    /// Frees the slot `home`, which is occupied by an item in the chain of another home slot. Moves
    /// this item and the later items of its chain to other slots. On success, marks the slot as
    /// reserved. If there is no room or memory allocation fails, leaves the table unchanged and
    /// returns false.
    fn free_home(&mut self, home: u64) -> bool {
        let before = self.view().previous_in_chain(home);
        let link = self.view().meta(before);
        let mut moves = Moves::default();
        let (mut read, mut write) = (home, before);
        loop {
            let view = self.view();
            let (meta, next) = (view.meta(read), view.next_in_chain(read));
            let place =
                view.next_empty(write).filter(|(place, _)| moves.push(Move { from: read, to: *place, meta }));
            let Some((place, index)) = place else {
                self.undo(&moves, before, link);
                return false;
            };
            self.move_item(read, place);
            self.set_meta(read, if read == home { PROTECTED } else { EMPTY });
            self.set_jump(write, index);
            write = place;
            match next {
                Some(next) => read = next,
                None => return true,
            }
        }
    }

    /// Reverts the moves of [`Table::free_home`], the last one first.
    fn undo(&mut self, moves: &Moves, before: u64, link: u8) {
        for step in moves.latest_first() {
            self.move_item(step.to, step.from);
            self.set_meta(step.to, EMPTY);
            self.set_meta(step.from, step.meta);
        }
        self.set_meta(before, link);
    }

    /// Moves an item to an empty slot, which becomes the end of a chain. The item keeps its position in the insertion
    /// order.
    fn move_item(&mut self, from: u64, to: u64) {
        let item = *self.view().item(from);
        self.put(to, BODY, item);
        self.relink(item, to);
    }

    /// Updates the links of the neighbours in insertion order (the next older and the next newer item) after an
    /// item has moved to slot `at`.
    fn relink(&mut self, item: Item, at: u64) {
        match item.prev {
            NONE => self.tail.iter_head = at,
            prev => self.item_mut(prev).next = at,
        }
        match item.next {
            NONE => self.tail.iter_tail = at,
            next => self.item_mut(next).prev = at,
        }
    }

    /// Unlinks an item from the linked list of the insertion order.
    fn unlink(&mut self, item: Item) {
        match item.prev {
            NONE => self.tail.iter_head = item.next,
            prev => self.item_mut(prev).next = item.next,
        }
        match item.next {
            NONE => self.tail.iter_tail = item.prev,
            next => self.item_mut(next).prev = item.prev,
        }
    }

    /// Removes the pair in a slot and returns it to the caller, who then owns the key and the
    /// value.
    pub(super) fn remove(&mut self, at: u64) -> Item {
        let view = self.view();
        let removed = *view.item(at);
        if view.next_in_chain(at).is_none() {
            if view.meta(at) & BODY != 0 {
                let before = view.previous_in_chain(at);
                self.set_jump(before, 0);
            }
            self.unlink(removed);
            self.set_meta(at, EMPTY);
        } else {
            let (mut before, mut last) = (at, at);
            while let Some(next) = view.next_in_chain(last) {
                (before, last) = (last, next);
            }
            self.unlink(removed);
            // Read only now, because `unlink` may have changed the links of this item.
            let item = *self.view().item(last);
            *self.item_mut(at) = item;
            self.relink(item, at);
            self.set_meta(last, EMPTY);
            self.set_jump(before, 0);
        }
        self.cell.size -= 1;
        removed
    }
}

/// Creates a table of `slots` slots (or a larger one, if necessary) with the pairs of another table, in their order.
///
/// The pairs are copied as bytes: they belong to the new table if it is used, and otherwise still to the old one.
/// Each call of `pairs` must return an iterator that starts at the first pair.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn rebuild<'p, I: Iterator<Item = (&'p TVMFFIAny, &'p TVMFFIAny)>>(
    mut slots: u64,
    mut fib_shift: u32,
    pairs: impl Fn() -> I,
    mut hash_of: impl FnMut(&Any) -> u64,
) -> Result<NewTable> {
    'grow: loop {
        let mut new = NewTable::new(slots, fib_shift)?;
        for (key, value) in pairs() {
            let mut table = new.table();
            match table.find_or_add(key, hash_of(any(key)), |_| false) {
                Slot::Added(at) | Slot::Found(at) => table.item_mut(at).value = *value,
                Slot::Full => {
                    (slots, fib_shift) = larger(slots, fib_shift)?;
                    continue 'grow;
                }
            }
        }
        return Ok(new);
    }
}

/// Returns the number of slots and the shift of the next larger table, given those of the current table.
///
/// # Errors
/// Returns `MemoryError` if no table can be that large.
pub(super) fn larger(slots: u64, fib_shift: u32) -> Result<(u64, u32)> {
    if slots == 0 {
        return Ok(table_size(4));
    }
    if slots >= 1 << 40 {
        return Err(Error::new("MemoryError", "the size of the container exceeds the address space"));
    }
    Ok((slots * 2, fib_shift - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_as_the_abi_lists_them() {
        assert_eq!(JUMPS[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 21, 28]);
        assert_eq!(JUMPS[79..84], [2415, 2485, 2556, 2628, 8515]);
        assert_eq!(JUMPS[125], 5_209_859_154_120_846_435);
    }

    #[test]
    fn tables_have_room_for_twice_their_pairs() {
        assert_eq!(table_size(4), (8, 61));
        assert_eq!(table_size(5), (16, 60));
        assert_eq!(table_size(8), (16, 60));
        assert_eq!(table_size(0), (1, 64));
    }

    #[test]
    fn the_smallest_table_is_filled_to_99_percent() {
        assert_eq!(smallest_table_size(5), (16, 60));
        assert_eq!(smallest_table_size(15), (16, 60));
        assert_eq!(smallest_table_size(16), (32, 59));
        assert_eq!(smallest_table_size(1013), (1024, 54));
        assert_eq!(smallest_table_size(1014), (2048, 53));
    }
}
