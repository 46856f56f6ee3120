//! Objects with bytes behind their header, in one allocation: long strings, long bytes, shapes.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr;

use alloc::alloc::{alloc, dealloc, handle_alloc_error};

use anyfn_abi::{TVMFFIByteArray, TVMFFIObject, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK};

use crate::live::Ended;
use crate::{ObjectRef, live, refcount};

/// Header and byte array; the bytes follow, ended by a NUL that is not counted.
#[repr(C)]
pub(crate) struct BytesObject {
    header: TVMFFIObject,
    content: TVMFFIByteArray,
}

const INLINE: usize = size_of::<BytesObject>();

impl BytesObject {
    fn layout(len: usize) -> Option<Layout> {
        let size = INLINE.checked_add(len)?.checked_add(1)?;
        Layout::from_size_align(size, align_of::<BytesObject>()).ok()
    }

    /// Makes an object with a copy of `bytes`, or `None` when memory is short.
    #[inline]
    pub(crate) fn try_allocate(bytes: &[u8], type_index: i32) -> Option<ObjectRef> {
        let layout = Self::layout(bytes.len())?;
        // SAFETY: the layout is not empty.
        let this: *mut BytesObject = unsafe { alloc(layout) }.cast();
        if this.is_null() {
            return None;
        }
        // SAFETY: the allocation has `bytes.len() + 1` bytes behind the struct.
        let data: *mut u8 = unsafe { this.add(1) }.cast();
        let head = BytesObject {
            header: TVMFFIObject {
                combined_ref_count: refcount::UNIQUE,
                type_index,
                flags: 0,
                deleter: Some(Self::delete),
            },
            content: TVMFFIByteArray { data: data.cast(), size: bytes.len() },
        };
        // SAFETY: fresh memory, large and aligned enough for the struct.
        unsafe { this.write(head) };
        // SAFETY: fresh memory behind the struct, as long as `bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
        // SAFETY: the last byte of the allocation.
        let end = unsafe { data.add(bytes.len()) };
        // SAFETY: the last byte of the allocation.
        unsafe { end.write(0) };
        live::created(this, type_index);
        // SAFETY: a valid object with one reference, which the result takes.
        unsafe { ObjectRef::from_owned_or_null(this.cast()) }
    }

    /// Makes an object with a copy of `bytes`.
    #[inline]
    pub(crate) fn allocate(bytes: &[u8], type_index: i32) -> ObjectRef {
        match Self::try_allocate(bytes, type_index) {
            Some(object) => object,
            None => handle_alloc_error(Self::layout(bytes.len()).unwrap_or(Layout::new::<BytesObject>())),
        }
    }

    live::deleter!(fn delete(object: *mut c_void, flags: c_int) by Self::release);

    unsafe extern "C" fn release(object: *mut c_void, flags: c_int) -> Ended {
        if flags & WEAK == 0 {
            return Ended::NONE;
        }
        let this: *mut BytesObject = object.cast();
        // SAFETY: the object is ours and its memory is released by this call only.
        let len = unsafe { (*this).content.size };
        let Some(layout) = Self::layout(len) else { return Ended::NONE };
        // SAFETY: the memory is still there.
        let ended = live::ending(this, unsafe { (*this).header.type_index });
        // SAFETY: allocated with this very layout.
        unsafe { dealloc(this.cast(), layout) };
        ended
    }
}

/// The bytes of a String or Bytes object of any maker.
///
/// # Safety
/// `object` must be such an object and stay alive for `'a`.
#[inline]
pub(crate) unsafe fn content_of<'a>(object: *const TVMFFIObject) -> &'a [u8] {
    // SAFETY: these objects have a byte array right behind the header.
    let array: *const TVMFFIByteArray = unsafe { object.add(1) }.cast();
    // SAFETY: these objects have a byte array right behind the header.
    let array = unsafe { &*array };
    // SAFETY: the object owns the bytes and never changes them.
    unsafe { array.as_slice() }
}
