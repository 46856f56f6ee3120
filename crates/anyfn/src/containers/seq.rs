//! Storage of Array and List: the object header, a cell that describes the elements, and the elements.
//!
//! The elements of an Array follow its cell in the same allocation; those of a List are in a separate buffer. Code in
//! other languages reads both and changes Lists, so the cell is the only record of their state.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;

use alloc::vec::Vec;

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIObject, TVMFFISeqCell, kTVMFFIArray, kTVMFFIInt, kTVMFFIList,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
    kTVMFFIStaticObjectBegin,
};

use super::memory::{self, Buffer};
use super::slice::{Slice, SliceIndices};
use crate::live::Ended;
use crate::{Any, AnyView, Error, ObjectRef, Result, live, nesting, refcount};

/// Object header of an Array or List, and the cell that describes its elements. In an Array that this crate
/// creates, the elements follow in the same allocation.
#[repr(C)]
struct SeqObject {
    header: TVMFFIObject,
    cell: TVMFFISeqCell,
}

const _: () = assert!(size_of::<SeqObject>() == 56 || size_of::<usize>() != 8);

/// Creates an empty Array with room for `capacity` elements.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn new_array(capacity: usize) -> Result<ObjectRef> {
    let memory = memory::allocate_array(size_of::<SeqObject>(), capacity, size_of::<TVMFFIAny>())?;
    let object: *mut SeqObject = memory.as_ptr().cast();
    // SAFETY: the space for the elements begins after the struct, in the same allocation.
    let data = unsafe { object.add(1) }.cast();
    let cell = TVMFFISeqCell { data, size: 0, capacity: capacity as i64, data_deleter: None };
    // SAFETY: the memory is new and large enough.
    Ok(unsafe { finish(object, kTVMFFIArray, cell) })
}

/// Creates an empty List with room for `capacity` elements.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn new_list(capacity: usize) -> Result<ObjectRef> {
    let data = if capacity == 0 { Buffer::none() } else { Buffer::of_elements(capacity)? };
    let object: *mut SeqObject = memory::allocate(size_of::<SeqObject>())?.as_ptr().cast();
    let data = data.into_data();
    let cell = TVMFFISeqCell { data, size: 0, capacity: capacity as i64, data_deleter: Some(memory::FREE) };
    // SAFETY: the memory is new and large enough.
    Ok(unsafe { finish(object, kTVMFFIList, cell) })
}

impl Buffer {
    /// Creates a buffer without memory, whose address is NULL.
    fn none() -> Buffer {
        // SAFETY: NULL is neither used nor freed.
        unsafe { Buffer::from_raw(ptr::null_mut(), None) }
    }

    /// Allocates a buffer for `capacity` elements.
    fn of_elements(capacity: usize) -> Result<Buffer> {
        let data = memory::allocate_array(0, capacity, size_of::<TVMFFIAny>())?;
        // SAFETY: the buffer was just allocated, `FREE` matches the allocator, and the buffer is empty.
        Ok(unsafe { Buffer::from_raw(data.as_ptr(), Some(memory::FREE)) })
    }
}

/// Writes an object header and `cell` into the new memory at `object`, and returns a reference to the object.
///
/// # Safety
/// `object` must be new memory with room for a `SeqObject` and for the elements that `cell` describes.
unsafe fn finish(object: *mut SeqObject, type_index: i32, cell: TVMFFISeqCell) -> ObjectRef {
    let header =
        TVMFFIObject { combined_ref_count: refcount::UNIQUE, type_index, flags: 0, deleter: Some(delete) };
    // SAFETY: the caller guarantees the memory.
    unsafe { object.write(SeqObject { header, cell }) };
    live::created(object, type_index);
    // SAFETY: the object is valid and has one reference, which the result takes over.
    match unsafe { ObjectRef::from_owned_or_null(object.cast()) } {
        Some(object) => object,
        None => unreachable!("an object is never at address zero"),
    }
}

live::deleter!(fn delete(object: *mut c_void, flags: c_int) by release);

/// Releases the elements of an Array or List, its memory, or both, as `flags` specify.
unsafe extern "C" fn release(object: *mut c_void, flags: c_int) -> Ended {
    if flags & STRONG != 0 {
        if !nesting::enter() {
            // SAFETY: this crate created the object, which is unused. It is handed over, with its memory if `flags` says so.
            unsafe { nesting::defer(object.cast(), flags) };
            return Ended::NONE;
        }
        let this: *mut SeqObject = object.cast();
        // SAFETY: no strong reference is left, so no other code uses the cell.
        let mut seq = Seq(unsafe { &mut (*this).cell });
        seq.release();
        nesting::leave();
    }
    if flags & WEAK == 0 {
        return Ended::NONE;
    }
    // SAFETY: the memory has not been freed, and begins with the header.
    let ended = live::ending(object, unsafe { (*object.cast::<TVMFFIObject>()).type_index });
    // SAFETY: the object came from `memory::allocate`, and its content has been released.
    unsafe { memory::FREE(object) };
    ended
}

/// Returns the elements of an Array or List.
///
/// # Safety
/// `object` must be an Array or List, and its elements must not change during the borrow.
#[inline]
pub(super) unsafe fn items_of(object: &ObjectRef) -> &[Any] {
    // SAFETY: an Array or List has its cell directly after the header.
    let cell: *const TVMFFISeqCell = unsafe { object.header().add(1) }.cast();
    // SAFETY: an Array or List has its cell directly after the header, and the reference keeps the object alive.
    let cell = unsafe { &*cell };
    if cell.size <= 0 {
        return &[];
    }
    // SAFETY: the cell has `size` elements at `data`, and `Any` is transparent over `TVMFFIAny`.
    unsafe { core::slice::from_raw_parts(cell.data.cast(), cell.size as usize) }
}

/// Returns the capacity of an Array or List, in elements.
///
/// # Safety
/// `object` must be an Array or List, and its cell must not change during the call.
#[inline]
pub(super) unsafe fn capacity_of(object: &ObjectRef) -> usize {
    // SAFETY: an Array or List has its cell directly after the header.
    let cell: *const TVMFFISeqCell = unsafe { object.header().add(1) }.cast();
    // SAFETY: an Array or List has its cell directly after the header, and the reference keeps the object alive.
    unsafe { (*cell).capacity.max(0) as usize }
}

/// Returns exclusive access to the elements of an Array or List.
///
/// # Safety
/// `object` must be an Array or List, and no other code may use its elements while the result is alive.
#[inline]
pub(super) unsafe fn seq_of(object: &ObjectRef) -> Seq<'_> {
    // SAFETY: an Array or List has its cell directly after the header.
    let cell: *mut TVMFFISeqCell = unsafe { object.header().add(1) }.cast();
    // SAFETY: an Array or List has its cell directly after the header, and the caller guarantees exclusive use.
    Seq(unsafe { &mut *cell })
}

/// Exclusive borrow of the elements of an Array or List.
///
/// No method releases a value or a buffer. Values and buffers that a method removes are returned to the caller.
pub(super) struct Seq<'a>(&'a mut TVMFFISeqCell);

impl Seq<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.size.max(0) as usize
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity.max(0) as usize
    }

    #[inline]
    pub(super) fn items(&self) -> &[Any] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: the cell has `size` elements at `data`, and `Any` is transparent over `TVMFFIAny`.
        unsafe { core::slice::from_raw_parts(self.0.data.cast(), self.len()) }
    }

    /// Returns all slots up to the capacity. The elements are in the first slots.
    #[inline]
    fn slots(&mut self) -> &mut [MaybeUninit<TVMFFIAny>] {
        if self.capacity() == 0 {
            return &mut [];
        }
        // SAFETY: the cell has room for `capacity` elements at `data`.
        unsafe { core::slice::from_raw_parts_mut(self.0.data.cast(), self.capacity()) }
    }

    /// Moves the element out of a slot.
    ///
    /// # Safety
    /// The slot must hold an element. Immediately afterwards, the caller must overwrite the slot or move it beyond
    /// the size.
    #[inline]
    unsafe fn take(&mut self, at: usize) -> Any {
        // SAFETY: the caller guarantees that the slot holds an element.
        let raw = unsafe { self.slots()[at].assume_init() };
        // SAFETY: an element is an owned value, and the caller discards the content of the slot.
        unsafe { Any::from_raw(raw) }
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.0.size = len as i64;
    }

    /// Appends an element. The sequence must have spare capacity.
    #[inline]
    pub(super) fn push(&mut self, value: Any) {
        let len = self.len();
        self.slots()[len].write(value.into_raw());
        self.set_len(len + 1);
    }

    /// Appends an element if there is room, and otherwise returns it.
    #[inline(always)]
    pub(super) fn push_if_room(&mut self, value: Any) -> Option<Any> {
        let TVMFFIAny { type_index, small_str_len, value } = value.into_raw();
        // SAFETY: the fields are those of an owned value, which is returned only if the call does not take it.
        if unsafe { self.push_fields_if_room(type_index, small_str_len, value) } {
            return None;
        }
        // SAFETY: the value is owned, and the call has not taken it.
        Some(unsafe { Any::from_raw(TVMFFIAny { type_index, small_str_len, value }) })
    }

    /// Appends an int if there is room; returns false otherwise.
    #[inline(always)]
    pub(super) fn push_int_if_room(&mut self, value: i64) -> bool {
        // SAFETY: these are the fields of an int, which owns nothing.
        unsafe { self.push_fields_if_room(kTVMFFIInt, 0, TVMFFIAnyValue { v_int64: value }) }
    }

    /// Appends the element that consists of the given fields, if there is room; returns false otherwise.
    ///
    /// The slot is written from registers, because copying a value that was just built in memory would stall until both
    /// halves have been stored.
    ///
    /// # Safety
    /// The fields must be those of an owned value. If the result is true, the sequence owns it.
    #[inline(always)]
    pub(super) unsafe fn push_fields_if_room(
        &mut self,
        type_index: i32,
        small_str_len: u32,
        value: TVMFFIAnyValue,
    ) -> bool {
        let len = self.0.size;
        if len >= self.0.capacity {
            return false;
        }
        // SAFETY: the cell has room for `capacity` elements at `data`.
        let slot = unsafe { self.0.data.cast::<TVMFFIAny>().add(len as usize) };
        // SAFETY: the cell has room for `capacity` elements at `data`, and the slot is empty.
        unsafe { slot.write(TVMFFIAny { type_index, small_str_len, value }) };
        self.0.size = len + 1;
        true
    }

    /// Appends ints from `next` until it returns `None`, `max` ints have been appended, or there is no more room. `next` must not
    /// use the sequence.
    #[inline(always)]
    pub(super) fn push_ints_if_room(&mut self, max: usize, mut next: impl FnMut() -> Option<i64>) -> usize {
        let len = self.len();
        let max = max.min(self.capacity().saturating_sub(len));
        let mut count = 0;
        for slot in &mut self.slots()[len..len + max] {
            let Some(value) = next() else { break };
            slot.write(TVMFFIAny::from_bits(kTVMFFIInt, value as u64));
            count += 1;
        }
        self.set_len(len + count);
        count
    }

    /// Removes the last element and returns it.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Any> {
        let last = self.len().checked_sub(1)?;
        self.set_len(last);
        // SAFETY: the slot held the last element and is beyond the size now.
        Some(unsafe { self.take(last) })
    }

    /// Replaces the element at index `at`, which must be within bounds, and returns the old element.
    pub(super) fn replace(&mut self, at: usize, value: Any) -> Any {
        // SAFETY: the caller has checked that `at` is below the size, and the slot is overwritten directly below.
        let old = unsafe { self.take(at) };
        self.slots()[at].write(value.into_raw());
        old
    }

    /// Inserts elements before the element at index `at`. The sequence must have spare capacity for them.
    pub(super) fn insert(&mut self, at: usize, values: &mut Vec<Any>) {
        let (len, count) = (self.len(), values.len());
        let slots = self.slots();
        slots.copy_within(at..len, at + count);
        for (slot, value) in slots[at..].iter_mut().zip(values.drain(..)) {
            slot.write(value.into_raw());
        }
        self.set_len(len + count);
    }

    /// Moves all elements out of `values` to the end. The sequence must have spare capacity for them.
    pub(super) fn append(&mut self, values: &mut Vec<Any>) {
        let (len, count) = (self.len(), values.len());
        // SAFETY: `Any` is transparent over `TVMFFIAny`, and the vector has `count` elements.
        let source =
            unsafe { core::slice::from_raw_parts(values.as_ptr().cast::<MaybeUninit<TVMFFIAny>>(), count) };
        self.slots()[len..len + count].copy_from_slice(source);
        // SAFETY: no element is left in the vector: the sequence owns them once its size includes them.
        unsafe { values.set_len(0) };
        self.set_len(len + count);
    }

    /// Inserts an element before the element at index `at`. The sequence must have spare capacity.
    pub(super) fn insert_one(&mut self, at: usize, value: Any) {
        let len = self.len();
        let slots = self.slots();
        slots.copy_within(at..len, at + 1);
        slots[at].write(value.into_raw());
        self.set_len(len + 1);
    }

    /// Removes the element at index `at`, which must be within bounds, and returns it.
    pub(super) fn remove(&mut self, at: usize) -> Any {
        // SAFETY: the caller has checked that `at` is below the size, and the slot is overwritten or discarded below.
        let old = unsafe { self.take(at) };
        let len = self.len();
        self.slots().copy_within(at + 1..len, at);
        self.set_len(len - 1);
        old
    }

    /// Removes the elements of `range`, which must be within bounds, and returns them.
    pub(super) fn drain(&mut self, range: Range<usize>) -> Vec<Any> {
        let mut removed = Vec::with_capacity(range.len());
        for at in range.clone() {
            // SAFETY: `at` is below the size, and the slot is overwritten or discarded below.
            removed.push(unsafe { self.take(at) });
        }
        let len = self.len();
        self.slots().copy_within(range.end..len, range.start);
        self.set_len(len - range.len());
        removed
    }

    /// Removes the elements at the indices `indices` and returns them.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the sequence is unchanged in that case.
    pub(super) fn remove_indices(&mut self, indices: SliceIndices) -> Result<Vec<Any>> {
        let mut removed = Vec::new();
        removed.try_reserve_exact(indices.len()).map_err(|_| too_long())?;
        let Some(first) = indices.lowest() else { return Ok(removed) };
        let (len, step) = (self.len(), indices.step());
        let mut to = first;
        for at in first..len {
            if (at - first).is_multiple_of(step) && removed.len() < indices.len() {
                // SAFETY: `at` is below the size, and the slot is overwritten or discarded below.
                removed.push(unsafe { self.take(at) });
            } else {
                self.slots().copy_within(at..at + 1, to);
                to += 1;
            }
        }
        self.set_len(to);
        Ok(removed)
    }

    pub(super) fn reverse(&mut self) {
        let len = self.len();
        self.slots()[..len].reverse();
    }

    /// Ensures that a List has room for `extra` more elements. If the List must grow, its capacity at least
    /// doubles, and the old buffer is returned for the caller to free.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the List is unchanged in that case.
    #[inline]
    pub(super) fn make_room(&mut self, extra: usize) -> Result<Option<Buffer>> {
        let needed = self.len().checked_add(extra).ok_or_else(too_long)?;
        if needed <= self.capacity() {
            return Ok(None);
        }
        self.move_to(needed.max(self.capacity().saturating_mul(2))).map(Some)
    }

    /// Ensures that a List has room for a total of `capacity` elements. If the List must grow, the old buffer
    /// is returned for the caller to free.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails; the List is unchanged in that case.
    pub(super) fn reserve(&mut self, capacity: usize) -> Result<Option<Buffer>> {
        if capacity <= self.capacity() { Ok(None) } else { self.move_to(capacity).map(Some) }
    }

    fn move_to(&mut self, capacity: usize) -> Result<Buffer> {
        let len = self.len();
        let data = Buffer::of_elements(capacity)?.into_data();
        let old = (self.0.data, self.0.data_deleter);
        if len > 0 {
            // SAFETY: both buffers have room for the elements, and they do not overlap because one of them is new.
            unsafe { ptr::copy_nonoverlapping(old.0.cast::<TVMFFIAny>(), data.cast(), len) };
        }
        self.0.data = data;
        self.0.capacity = capacity as i64;
        self.0.data_deleter = Some(memory::FREE);
        // SAFETY: the elements have been moved out, and the cell no longer points to the buffer.
        Ok(unsafe { Buffer::from_raw(old.0, old.1) })
    }

    /// Moves all elements to the end of the sequence `to`, which must have spare capacity for them.
    pub(super) fn move_into(&mut self, to: &mut Seq<'_>) {
        let (len, at) = (self.len(), to.len());
        to.slots()[at..at + len].copy_from_slice(&self.slots()[..len]);
        to.set_len(at + len);
        self.set_len(0);
    }

    /// Removes all elements of a List together with their buffer.
    pub(super) fn take_all(&mut self) -> Taken {
        let len = self.len();
        let (data, deleter) = (self.0.data, self.0.data_deleter);
        self.0.data = ptr::null_mut();
        self.0.size = 0;
        self.0.capacity = 0;
        self.0.data_deleter = Some(memory::FREE);
        // SAFETY: `Taken` moves the elements out before it drops the buffer.
        Taken { data: data.cast(), len, _buffer: unsafe { Buffer::from_raw(data, deleter) } }
    }

    /// Releases all elements, last to first, and the buffer. The object must not be used afterwards.
    fn release(&mut self) {
        let len = self.len();
        self.set_len(0);
        let slots = self.slots();
        let filled = slots.len().min(len);
        for slot in slots[..filled].iter().rev() {
            // SAFETY: the first `len` slots hold an element.
            let raw = unsafe { slot.assume_init_ref() };
            if raw.type_index < kTVMFFIStaticObjectBegin {
                continue;
            }
            // SAFETY: an element is an owned value, which no other code uses any longer.
            drop(unsafe { Any::from_raw(*raw) });
        }
        // SAFETY: the buffer is empty, and an Array has no deleter.
        drop(unsafe { Buffer::from_raw(self.0.data, self.0.data_deleter) });
        self.0.data = ptr::null_mut();
    }
}

/// Elements that were removed from a List. Dropping the value releases the elements and their buffer.
pub(super) struct Taken {
    data: *mut Any,
    len: usize,
    _buffer: Buffer,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.len > 0 {
            let items = ptr::slice_from_raw_parts_mut(self.data, self.len);
            // SAFETY: the elements were taken out of the List and are released only here.
            unsafe { items.drop_in_place() };
        }
    }
}

#[cold]
fn too_long() -> Error {
    Error::new("MemoryError", "the size of the container exceeds the address space")
}

#[cold]
pub(super) fn out_of_bounds(index: i64, len: usize) -> Error {
    crate::error!("IndexError", "Index {index} out of bounds {len}")
}

/// Checks that `index` is less than `len`, and returns it.
///
/// # Errors
/// Returns `IndexError` if there is no such element.
#[inline]
pub(super) fn check_index(index: usize, len: usize) -> Result<usize> {
    if index < len { Ok(index) } else { Err(out_of_bounds(index as i64, len)) }
}

/// Checks that `index` is at most `len`, so that an element can be inserted there, and returns it.
///
/// # Errors
/// Returns `IndexError` if `index` is beyond the end.
pub(super) fn check_position(index: usize, len: usize) -> Result<usize> {
    if index <= len { Ok(index) } else { Err(position_out_of_bounds(index as i64, len)) }
}

#[cold]
pub(super) fn position_out_of_bounds(index: i64, len: usize) -> Error {
    crate::error!("IndexError", "Index {index} out of bounds [0, {len}]")
}

#[cold]
pub(super) fn range_out_of_bounds(start: i64, end: i64, len: usize) -> Error {
    crate::error!("IndexError", "Erase range [{start}, {end}) out of bounds {len}")
}

/// Returns a vector with copies of `items`.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn try_to_vec(items: &[Any]) -> Result<Vec<Any>> {
    let mut copies = Vec::new();
    copies.try_reserve_exact(items.len()).map_err(|_| too_long())?;
    copies.extend(items.iter().cloned());
    Ok(copies)
}

/// Returns copies of the elements that `slice` selects.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn items_at(items: &[Any], slice: Slice) -> Result<Vec<Any>> {
    let indices = slice.indices(items.len());
    let mut copies = Vec::new();
    copies.try_reserve_exact(indices.len()).map_err(|_| too_long())?;
    copies.extend(indices.map(|at| items[at].clone()));
    Ok(copies)
}

/// Returns the index of the first element equal to `value`.
pub(super) fn position(items: &[Any], value: &AnyView<'_>) -> Option<usize> {
    items.iter().position(|item| crate::hash::any_equal(item.view_ref(), value))
}
