//! Memory allocation for containers.
//!
//! The memory comes from the C allocator, because code in other languages also allocates and frees buffers.
//! That code may replace the buffer of a List: it frees the old buffer with the deleter in the cell, and may
//! leave this deleter in the cell for the new buffer. Both buffers must therefore come from the same allocator.
//!
//! A WebAssembly module without a C library contains all code that uses its memory; there, the memory comes from Rust's
//! allocator.

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::{Error, Result};

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
unsafe extern "C" {
    safe fn malloc(size: usize) -> *mut c_void;
    fn free(data: *mut c_void);
}
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use rust_memory::{free, malloc};

/// Implementations of `malloc` and `free` with Rust's allocator. To free memory, Rust's allocator
/// requires the size of the memory, which `malloc` stores in front of it.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod rust_memory {
    use alloc::alloc::{Layout, alloc, dealloc};
    use core::ffi::c_void;
    use core::ptr;

    /// Number of bytes in front of the memory of an allocation, which hold its size; also the
    /// alignment of the memory in bytes.
    const HEAD: usize = 16;

    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size.checked_add(HEAD)?, HEAD).ok()
    }

    pub(super) fn malloc(size: usize) -> *mut c_void {
        let Some(layout) = layout(size) else { return ptr::null_mut() };
        // SAFETY: the size is not zero.
        let head = unsafe { alloc(layout) };
        if head.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the memory is new, aligned, and has room for a number.
        unsafe { head.cast::<usize>().write(size) };
        head.wrapping_add(HEAD).cast()
    }

    /// Frees memory from [`malloc`], and does nothing for NULL.
    ///
    /// # Safety
    /// `data` must be NULL or come from [`malloc`], and not have been freed.
    pub(super) unsafe extern "C" fn free(data: *mut c_void) {
        if data.is_null() {
            return;
        }
        let head = data.cast::<u8>().wrapping_sub(HEAD);
        // SAFETY: `malloc` has written the size there.
        let size = unsafe { head.cast::<usize>().read() };
        if let Some(layout) = layout(size) {
            // SAFETY: `malloc` has allocated the memory with this layout.
            unsafe { dealloc(head, layout) };
        }
    }
}

/// Function that frees the buffer of a container. The container stores the address of this function.
pub(super) type Deleter = unsafe extern "C" fn(data: *mut c_void);

/// Function that frees memory from [`allocate`] and does nothing for NULL. On targets with a C
/// library, it is the `free` of the C library, which remains mapped when this library is unmapped.
pub(super) const FREE: Deleter = free;

/// Allocates `size` bytes, aligned for any element.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub(super) fn allocate(size: usize) -> Result<NonNull<c_void>> {
    // Zero is avoided because `malloc` may return NULL for it.
    NonNull::new(malloc(size.max(1))).ok_or_else(|| out_of_memory(size))
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
