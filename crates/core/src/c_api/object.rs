//! Exported functions for objects of any type, and for the allocator of their memory.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;

use anyfn::abi::{
    ABI_VERSION, TVMFFICustomAllocator, TVMFFIObjectAllocHeader, TVMFFIObjectHandle, TVMFFIVersion,
};
use anyfn::{__private::trampoline, ObjectRef};

use super::out;
use crate::opaque;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIGetVersion(out_version: *mut TVMFFIVersion) {
    // SAFETY: the ABI requires NULL or a writable location.
    if let Some(version) = unsafe { out_version.as_mut() } {
        *version = ABI_VERSION;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIObjectIncRef(obj: TVMFFIObjectHandle) -> c_int {
    // SAFETY: the ABI requires NULL or a valid handle.
    let _kept = ManuallyDrop::new(unsafe { ObjectRef::from_borrowed_or_null(obj) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIObjectDecRef(obj: TVMFFIObjectHandle) -> c_int {
    // SAFETY: the ABI requires NULL or a valid handle, of which the caller gives up a reference. No panic leaves the
    // deleter of a Rust object.
    drop(unsafe { ObjectRef::from_owned_or_null(obj) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIObjectCreateOpaque(
    handle: *mut c_void,
    type_index: i32,
    deleter: Option<unsafe extern "C" fn(handle: *mut c_void)>,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out("TVMFFIObjectCreateOpaque", "out", result) }?;
        result.write(opaque::create(handle, type_index, deleter)?.into_handle());
        Ok(())
    })
}

/// Description of an allocator of objects. All threads may read it.
struct Allocator(TVMFFICustomAllocator);

// SAFETY: the struct is never changed and its function may be called from any thread.
unsafe impl Sync for Allocator {}

static BUILT_IN: Allocator =
    Allocator(TVMFFICustomAllocator { allocate: Some(allocate), context: ptr::null_mut() });
/// Custom allocator of objects that was set most recently; NULL means the built-in allocator.
static CURRENT: AtomicPtr<TVMFFICustomAllocator> = AtomicPtr::new(ptr::null_mut());

/// Data that the built-in allocator stores directly before each object, for freeing the object's
/// memory. The last field of the struct is the allocation header, which the ABI requires directly
/// before the object's own header.
#[repr(C)]
struct Before {
    base: *mut u8,
    layout: Layout,
    header: TVMFFIObjectAllocHeader,
}

unsafe extern "C" fn allocate(
    size: usize,
    alignment: usize,
    _type_index: i32,
    _context: *mut c_void,
) -> *mut c_void {
    let alignment = alignment.max(align_of::<Before>());
    let Some(offset) = size_of::<Before>().checked_next_multiple_of(alignment) else { return ptr::null_mut() };
    let Some(total) = offset.checked_add(size) else { return ptr::null_mut() };
    let Ok(layout) = Layout::from_size_align(total, alignment) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty.
    let base = unsafe { alloc(layout) };
    if base.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the body begins inside the block.
    let body = unsafe { base.add(offset) };
    // SAFETY: `offset` leaves room for the struct before the body, and the body is aligned for it.
    let before = unsafe { body.cast::<Before>().sub(1) };
    let header = TVMFFIObjectAllocHeader { delete_space: Some(delete_space) };
    // SAFETY: `offset` leaves room for the struct before the body, and the body is aligned for it.
    unsafe { before.write(Before { base, layout, header }) };
    body.cast()
}

unsafe extern "C" fn delete_space(body: *mut c_void) {
    // SAFETY: `allocate` created the body, with the struct before it.
    let before = unsafe { body.cast::<Before>().sub(1) };
    // SAFETY: `allocate` created the body, with the struct before it.
    let Before { base, layout, .. } = unsafe { before.read() };
    // SAFETY: `allocate` created the body, with the struct before it; the block is freed once.
    unsafe { dealloc(base, layout) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIGetCustomAllocator() -> *mut TVMFFICustomAllocator {
    let current = CURRENT.load(Ordering::Acquire);
    if current.is_null() { (&raw const BUILT_IN.0).cast_mut() } else { current }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFISetCustomAllocator(allocator: *mut TVMFFICustomAllocator) -> c_int {
    CURRENT.store(allocator, Ordering::Release);
    0
}
