//! Memory of containers.
//!
//! It is libc's: header-inline code of other languages replaces a List's buffer and frees the old one by the deleter
//! in its cell, or frees by that deleter what it allocated itself, so both sides must share one allocator.

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::{Error, Result};

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(data: *mut c_void);
}

/// What a cell holds to have its buffer freed.
pub(super) type Deleter = unsafe extern "C" fn(data: *mut c_void);

/// Frees what [`allocate`] gave; does nothing for NULL. It is libc's own, so it outlives this library.
pub(super) const FREE: Deleter = free;

/// Memory of `size` bytes, aligned for any element.
///
/// # Errors
/// `MemoryError` when memory is short.
pub(super) fn allocate(size: usize) -> Result<NonNull<c_void>> {
    // SAFETY: `malloc` takes any size; zero is avoided because it may give NULL.
    NonNull::new(unsafe { malloc(size.max(1)) }).ok_or_else(|| out_of_memory(size))
}

/// Memory for `count` things of `each` bytes behind `head` bytes.
///
/// # Errors
/// `MemoryError` when memory is short or the size is beyond what a pointer can reach.
pub(super) fn allocate_array(head: usize, count: usize, each: usize) -> Result<NonNull<c_void>> {
    let size = count
        .checked_mul(each)
        .and_then(|size| size.checked_add(head))
        .filter(|size| *size <= isize::MAX as usize);
    match size {
        Some(size) => allocate(size),
        None => Err(out_of_memory(usize::MAX)),
    }
}

#[cold]
fn out_of_memory(size: usize) -> Error {
    if size == usize::MAX {
        return Error::new("MemoryError", "a container of this size cannot exist");
    }
    crate::error!("MemoryError", "cannot allocate {size} bytes for a container")
}

/// A buffer that nothing points to any more; dropping it frees it by its own deleter.
#[must_use]
pub(super) struct Buffer {
    data: *mut c_void,
    deleter: Option<Deleter>,
}

impl Buffer {
    /// Takes a buffer out of a cell.
    ///
    /// # Safety
    /// `deleter` must be the one for `data`, what lies in the buffer must have been moved out, and nothing may use it
    /// any more.
    pub(super) unsafe fn from_raw(data: *mut c_void, deleter: Option<Deleter>) -> Buffer {
        Buffer { data, deleter }
    }

    /// The address of the buffer, which stays; the caller frees it.
    pub(super) fn into_data(self) -> *mut c_void {
        core::mem::ManuallyDrop::new(self).data
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (false, Some(deleter)) = (self.data.is_null(), self.deleter) {
            // SAFETY: `from_raw` says that the two belong together and that nothing uses the buffer.
            unsafe { deleter(self.data) };
        }
    }
}
