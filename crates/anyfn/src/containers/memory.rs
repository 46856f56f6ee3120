//! Memory allocation for containers.
//!
//! The memory comes from the C allocator, because code in other languages also allocates and frees buffers.
//! That code may replace the buffer of a List: it frees the old buffer with the deleter in the cell, and may
//! leave this deleter in the cell for the new buffer. Both buffers must therefore come from the same allocator.

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::{Error, Result};

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(data: *mut c_void);
}

/// Function that frees the buffer of a container. The container stores the address of this function.
pub(super) type Deleter = unsafe extern "C" fn(data: *mut c_void);

/// Frees memory from [`allocate`], and does nothing for NULL. It is a function of libc, so it outlives this library.
pub(super) const FREE: Deleter = free;

/// Allocates `size` bytes, aligned for any element.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn allocate(size: usize) -> Result<NonNull<c_void>> {
    // SAFETY: `malloc` accepts any size. Zero is avoided because `malloc` may return NULL for it.
    NonNull::new(unsafe { malloc(size.max(1)) }).ok_or_else(|| out_of_memory(size))
}

/// Allocates memory for `head` bytes followed by `count` elements of `each` bytes.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails or the size exceeds `isize::MAX`.
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
        return Error::new("MemoryError", "the size of the container exceeds the address space");
    }
    crate::error!("MemoryError", "cannot allocate {size} bytes for a container")
}

/// A buffer that no container refers to any longer. Dropping the value frees the buffer with its deleter.
#[must_use]
pub(super) struct Buffer {
    data: *mut c_void,
    deleter: Option<Deleter>,
}

impl Buffer {
    /// Takes ownership of the buffer of a container.
    ///
    /// # Safety
    /// - `deleter` must be the deleter of `data`.
    /// - The content of the buffer must have been moved out.
    /// - No code may use the buffer any longer.
    pub(super) unsafe fn from_raw(data: *mut c_void, deleter: Option<Deleter>) -> Buffer {
        Buffer { data, deleter }
    }

    /// Returns the address of the buffer without freeing it. The caller must free it.
    pub(super) fn into_data(self) -> *mut c_void {
        core::mem::ManuallyDrop::new(self).data
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (false, Some(deleter)) = (self.data.is_null(), self.deleter) {
            // SAFETY: `from_raw` requires that `deleter` belongs to `data` and that the buffer is no longer used.
            unsafe { deleter(self.data) };
        }
    }
}
