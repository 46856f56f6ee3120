//! Objects under construction, whose fields are set one by one.
//!
//! A Rust value cannot exist with only some of its fields. Until the last field is set, the object is therefore a plain
//! `ffi.Object`, which cannot be read as its Rust type. A record that lies directly in front of the header stores which
//! fields are set. Setting the last missing field changes the type of the object to its final type. From then on it is
//! like any other object, except that its memory begins earlier.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};

use anyfn_abi::{
    TVMFFIObject, kTVMFFIObject, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};

use super::{Define, content_offset};
use crate::live::Ended;
use crate::object::ObjectBox;
use crate::{Error, ObjectRef, Result, live, nesting, panics, refcount};

/// Record of the construction of an object: the number of fields that are not set yet, and the
/// final type index. The record is stored directly before the header of the object. Before the
/// record there is one byte for each field, which is 1 if the field is set.
#[repr(C)]
struct Note {
    /// Number of fields of the object that are not set yet.
    missing: u32,
    /// Type index that the object gets when its last field is set.
    type_index: i32,
}

/// Returns true if an object is still under construction. `type_index` must be the type index of an object with
/// reflected fields. Such an object has the type `ffi.Object` only while it is under construction.
#[inline(always)]
pub(super) const fn is_partial(type_index: i32) -> bool {
    type_index == kTVMFFIObject
}

/// Returns the address of the record before the header of an object under construction.
///
/// # Safety
/// `object` must have been created by [`create`].
unsafe fn note(object: *mut TVMFFIObject) -> *mut Note {
    // SAFETY: the object has the record in front of its header.
    unsafe { object.cast::<Note>().sub(1) }
}

/// Returns the address of the flag that records whether a field is set.
///
/// # Safety
/// `object` must have been created by [`create`] and have this field.
unsafe fn place(object: *mut TVMFFIObject, index: usize) -> *mut bool {
    // SAFETY: the caller guarantees an object of `create`.
    let note: *mut bool = unsafe { note(object) }.cast();
    // SAFETY: the record is preceded by one byte for each field.
    unsafe { note.sub(1 + index) }
}

/// Returns true if the field with the index `index` of an object under construction is set.
///
/// # Safety
/// `object` must be under construction and have this field.
pub(super) unsafe fn is_set(object: *mut TVMFFIObject, index: usize) -> bool {
    // SAFETY: the caller guarantees a partial object with this field.
    let place = unsafe { place(object, index) };
    // SAFETY: the caller guarantees a partial object with this field, whose flag was written when the object was
    // created.
    unsafe { *place }
}

/// Returns the type index that an object under construction gets when its last field is set.
///
/// # Safety
/// `object` must be under construction.
pub(super) unsafe fn final_type(object: *mut TVMFFIObject) -> i32 {
    // SAFETY: the caller guarantees a partial object.
    let note = unsafe { note(object) };
    // SAFETY: the record was written when the object was created.
    unsafe { (*note).type_index }
}

/// Records that a field of an object under construction has been set for the first time.
///
/// # Safety
/// - `object` must be under construction and have this field.
/// - The field must be set.
/// - No other code may have access to the object.
pub(super) unsafe fn mark(object: *mut TVMFFIObject, index: usize) {
    // SAFETY: the caller guarantees a partial object with this field.
    let place = unsafe { place(object, index) };
    // SAFETY: the caller guarantees a partial object with this field, and exclusive access to it.
    unsafe { *place = true };
    // SAFETY: the caller guarantees a partial object.
    let note = unsafe { note(object) };
    // SAFETY: the caller guarantees a partial object, and exclusive access to it.
    let missing = unsafe { &mut (*note).missing };
    *missing -= 1;
    if *missing == 0 {
        // SAFETY: the caller guarantees a partial object.
        let type_index = unsafe { (*note).type_index };
        // SAFETY: the object is complete, and no other code has access to it.
        unsafe { (*object).type_index = type_index };
    }
}

/// Returns the memory layout of an object that is constructed field by field, and the offset of the object
/// header in this memory.
fn memory<T: Define>() -> (Layout, usize) {
    let object = Layout::new::<ObjectBox<T>>();
    let front = size_of::<Note>() + T::COUNT;
    let header = front.next_multiple_of(object.align());
    // Never fails: both parts are sizes of existing layouts.
    let whole = Layout::from_size_align(header + object.size(), object.align()).unwrap_or(object);
    (whole, header)
}

/// Creates an object under construction with none of its reflected fields set.
pub(super) fn create<T: Define>() -> Result<ObjectRef> {
    let (layout, header) = memory::<T>();
    // SAFETY: the size is not zero.
    let start = unsafe { alloc::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(Error::new("MemoryError", "out of memory"));
    }
    // SAFETY: the header is within the memory.
    let object: *mut TVMFFIObject = unsafe { start.add(header) }.cast();
    let is_complete = T::COUNT == 0;
    let content = TVMFFIObject {
        combined_ref_count: refcount::UNIQUE,
        type_index: if is_complete { T::type_index() } else { kTVMFFIObject },
        flags: 0,
        deleter: Some(delete::<T>),
    };
    // SAFETY: the memory is new, and the part in front has room for the record.
    unsafe { object.write(content) };
    // SAFETY: the memory is new, and the part in front has room for the record.
    let note = unsafe { note(object) };
    // SAFETY: the memory is new. The bytes in front of the record are zero, which is `false`.
    unsafe { note.write(Note { missing: T::COUNT as u32, type_index: T::type_index() }) };
    // SAFETY: the address is within the memory, at the offset of the content of objects.
    let content: *mut T = unsafe { object.byte_add(content_offset::<T>()) }.cast();
    // SAFETY: the memory is new. If this panics, the memory leaks.
    unsafe { T::prepare(content) };
    live::created(object, T::type_index());
    // SAFETY: the object is valid and has one reference, which the result takes over.
    unsafe { ObjectRef::from_owned_or_null(object.cast()) }
        .ok_or_else(|| Error::new("MemoryError", "out of memory"))
}

live::deleter!(fn delete<T: Define>(object: *mut c_void, flags: c_int) by release::<T>);

/// Releases the content of an object, its memory, or both, as `flags` specify.
unsafe extern "C" fn release<T: Define>(object: *mut c_void, flags: c_int) -> Ended {
    let this: *mut TVMFFIObject = object.cast();
    if flags & STRONG != 0 && core::mem::needs_drop::<T>() {
        if !nesting::enter() {
            // SAFETY: this crate created the object, which is unused. It is handed over, with its memory if `flags` says so.
            unsafe { nesting::defer(object.cast(), flags) };
            return Ended::NONE;
        }
        // SAFETY: objects of `create` have their content at this offset.
        let content: *mut T = unsafe { object.byte_add(content_offset::<T>()) }.cast();
        // SAFETY: the memory has not been freed.
        if is_partial(unsafe { (*this).type_index }) {
            // SAFETY: the object is partial, and only its own fields are queried.
            let is_set = |index| unsafe { is_set(this, index) };
            // SAFETY: no strong reference is left, so the fields are dropped only here.
            panics::swallow(|| unsafe { T::drop_partial(content, &is_set) });
        } else {
            // SAFETY: no strong reference is left, so the fields are dropped only here, and all fields are set.
            panics::swallow(|| unsafe { content.drop_in_place() });
        }
        nesting::leave();
    }
    if flags & WEAK == 0 {
        return Ended::NONE;
    }
    let ended = live::ending(this, T::type_index());
    let (layout, header) = memory::<T>();
    // SAFETY: the memory begins at this distance in front of the header.
    let start: *mut u8 = unsafe { object.byte_sub(header) }.cast();
    // SAFETY: `create` allocated the memory with the same layout.
    unsafe { alloc::alloc::dealloc(start, layout) };
    ended
}
