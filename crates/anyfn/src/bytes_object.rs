//! Objects whose bytes follow the header in the same allocation: long strings and long bytes.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr;

use alloc::alloc::{alloc, dealloc, handle_alloc_error};

use anyfn_abi::{TVMFFIByteArray, TVMFFIObject, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK};

use crate::live::Ended;
use crate::{ObjectRef, live, refcount};

/// Header of a String or Bytes object, followed by the address and the length of its bytes. The
/// bytes come next in memory, and then a NUL byte that the length does not include.
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

    /// Creates a String or Bytes object with a copy of `bytes`; returns `None` if memory allocation fails.
    #[inline]
    pub(crate) fn try_allocate(bytes: &[u8], type_index: i32) -> Option<ObjectRef> {
        let layout = Self::layout(bytes.len())?;
        // SAFETY: the layout is not empty.
        let this: *mut BytesObject = unsafe { alloc(layout) }.cast();
        if this.is_null() {
            return None;
        }
        // SAFETY: the allocation has `bytes.len() + 1` bytes after the struct.
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
        // SAFETY: the memory is newly allocated, and large and aligned enough for the struct.
        unsafe { this.write(head) };
        // SAFETY: the memory after the struct is newly allocated and has at least `bytes.len()` bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
        // SAFETY: this is the address of the last byte of the allocation.
        let end = unsafe { data.add(bytes.len()) };
        // SAFETY: this is the address of the last byte of the allocation.
        unsafe { end.write(0) };
        live::created(this, type_index);
        // SAFETY: the object is valid and has one reference, which moves to the result.
        unsafe { ObjectRef::from_owned_or_null(this.cast()) }
    }

    /// Creates a String or Bytes object with a copy of `bytes`; calls `handle_alloc_error` if
    /// memory allocation fails.
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
        // SAFETY: `allocate` created the object, and its memory is freed only by this call.
        let len = unsafe { (*this).content.size };
        let size = INLINE + len + 1;
        // SAFETY: `allocate` has created the layout of this size, and content never changes.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align_of::<BytesObject>()) };
        // SAFETY: the memory has not been freed yet.
        let ended = live::ending(this, unsafe { (*this).header.type_index });
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(this.cast(), layout) };
        ended
    }
}

/// Returns the bytes of a String or Bytes object, whichever library created it.
///
/// # Safety
/// `object` must be a String or Bytes object and stay alive for `'a`.
#[inline]
pub(crate) unsafe fn content_of<'a>(object: *const TVMFFIObject) -> &'a [u8] {
    // SAFETY: in these objects a byte array directly follows the header.
    let array: *const TVMFFIByteArray = unsafe { object.add(1) }.cast();
    // SAFETY: in these objects a byte array directly follows the header.
    let array = unsafe { &*array };
    // SAFETY: the object owns the bytes and never changes them.
    unsafe { array.as_slice() }
}
