//! Objects that are being made: their fields are set one by one, by whoever constructs them.
//!
//! Rust has no value with some of its fields, so until the last field is set the object is a plain `ffi.Object`: nobody
//! can read it as its Rust type. In front of its header is a note of which fields are set. The setter of the last one
//! gives the object its type; from then on it is like any other, but that its memory begins earlier.

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

/// What lies right in front of the header; in front of it, a byte for each field.
#[repr(C)]
struct Note {
    /// Number of fields that are not set.
    missing: u32,
    /// The type that the object gets.
    type_index: i32,
}

/// Whether an object of this type index is still being made, if a field of a derived type is asked for.
#[inline(always)]
pub(super) const fn is_partial(type_index: i32) -> bool {
    type_index == kTVMFFIObject
}

/// # Safety
/// The object must be one of [`create`].
unsafe fn note(object: *mut TVMFFIObject) -> *mut Note {
    // SAFETY: the memory begins in front of the note.
    unsafe { object.cast::<Note>().sub(1) }
}

/// Where is noted whether a field is set.
///
/// # Safety
/// The object must be one of [`create`], and have this field.
unsafe fn place(object: *mut TVMFFIObject, index: usize) -> *mut bool {
    // SAFETY: the caller guarantees it.
    let note: *mut bool = unsafe { note(object) }.cast();
    // SAFETY: there is a byte for each field.
    unsafe { note.sub(1 + index) }
}

/// Whether a field of a partial object is set.
///
/// # Safety
/// The object must be partial, and have this field.
pub(super) unsafe fn is_set(object: *mut TVMFFIObject, index: usize) -> bool {
    // SAFETY: the caller guarantees it.
    let place = unsafe { place(object, index) };
    // SAFETY: the caller guarantees it; written when the object was made.
    unsafe { *place }
}

/// Notes that a field has been set for the first time.
///
/// # Safety
/// The object must be partial, and have this field, which must be set; nobody else may know the object.
pub(super) unsafe fn mark(object: *mut TVMFFIObject, index: usize) {
    // SAFETY: the caller guarantees it.
    let place = unsafe { place(object, index) };
    // SAFETY: the caller guarantees it.
    unsafe { *place = true };
    // SAFETY: the caller guarantees it.
    let note = unsafe { note(object) };
    // SAFETY: the caller guarantees it.
    let missing = unsafe { &mut (*note).missing };
    *missing -= 1;
    if *missing == 0 {
        // SAFETY: the caller guarantees it.
        let type_index = unsafe { (*note).type_index };
        // SAFETY: the object is complete, and nobody else knows it.
        unsafe { (*object).type_index = type_index };
    }
}

/// The memory of an object, and where in it the header is.
fn memory<T: Define>() -> (Layout, usize) {
    let object = Layout::new::<ObjectBox<T>>();
    let front = size_of::<Note>() + T::COUNT;
    let header = front.next_multiple_of(object.align());
    // Never fails: both parts are sizes of what there is.
    let whole = Layout::from_size_align(header + object.size(), object.align()).unwrap_or(object);
    (whole, header)
}

/// Makes an object of which no field is set.
pub(super) fn create<T: Define>() -> Result<ObjectRef> {
    let (layout, header) = memory::<T>();
    // SAFETY: the size is not zero.
    let start = unsafe { alloc::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(Error::new("MemoryError", "out of memory"));
    }
    // SAFETY: within the memory.
    let object: *mut TVMFFIObject = unsafe { start.add(header) }.cast();
    let is_complete = T::COUNT == 0;
    let content = TVMFFIObject {
        combined_ref_count: refcount::UNIQUE,
        type_index: if is_complete { T::type_index() } else { kTVMFFIObject },
        flags: 0,
        deleter: Some(delete::<T>),
    };
    // SAFETY: new memory; the front part has room for the note.
    unsafe { object.write(content) };
    // SAFETY: new memory; the front part has room for the note.
    let note = unsafe { note(object) };
    // SAFETY: new memory; the bytes in front of it are zero, which is `false`.
    unsafe { note.write(Note { missing: T::COUNT as u32, type_index: T::type_index() }) };
    // SAFETY: within the memory, where objects have their content.
    let content: *mut T = unsafe { object.byte_add(content_offset::<T>()) }.cast();
    // SAFETY: new memory; if this panics, it stays behind.
    unsafe { T::prepare(content) };
    live::created(object, T::type_index());
    // SAFETY: a valid object with one reference, which the result takes.
    unsafe { ObjectRef::from_owned_or_null(object.cast()) }
        .ok_or_else(|| Error::new("MemoryError", "out of memory"))
}

live::deleter!(fn delete<T: Define>(object: *mut c_void, flags: c_int) by release::<T>);

/// Releases the content, the memory, or both.
unsafe extern "C" fn release<T: Define>(object: *mut c_void, flags: c_int) -> Ended {
    let this: *mut TVMFFIObject = object.cast();
    if flags & STRONG != 0 && core::mem::needs_drop::<T>() {
        if !nesting::enter() {
            // SAFETY: the object is ours and unused; it is handed over whole, memory included if so flagged.
            unsafe { nesting::defer(object.cast(), flags) };
            return Ended::NONE;
        }
        // SAFETY: the content lies there in objects of `create`.
        let content: *mut T = unsafe { object.byte_add(content_offset::<T>()) }.cast();
        // SAFETY: the memory is still there.
        if is_partial(unsafe { (*this).type_index }) {
            // SAFETY: the object is partial, and asked for its own fields only.
            let is_set = |index| unsafe { is_set(this, index) };
            // SAFETY: no strong reference is left, so the fields are dropped here and only here.
            panics::swallow(|| unsafe { T::drop_partial(content, &is_set) });
        } else {
            // SAFETY: no strong reference is left, so the fields are dropped here and only here, and all fields are
            // set.
            panics::swallow(|| unsafe { content.drop_in_place() });
        }
        nesting::leave();
    }
    if flags & WEAK == 0 {
        return Ended::NONE;
    }
    let ended = live::ending(this, T::type_index());
    let (layout, header) = memory::<T>();
    // SAFETY: the memory begins this far in front of the header.
    let start: *mut u8 = unsafe { object.byte_sub(header) }.cast();
    // SAFETY: allocated by `create` with this very layout.
    unsafe { alloc::alloc::dealloc(start, layout) };
    ended
}
