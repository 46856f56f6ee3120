//! Memory from the C library, and the end of the program after a panic.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_int, c_void};
use core::panic::PanicInfo;

use alloc::format;

unsafe extern "C" {
    safe fn malloc(size: usize) -> *mut c_void;
    fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn free(memory: *mut c_void);
    fn realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn write(file: c_int, bytes: *const c_void, size: usize) -> isize;
    safe fn abort() -> !;
}

/// Allocator over the C library.
struct Allocator;

/// Alignment in bytes of all memory from `malloc`.
const ALIGNMENT: usize = 16;

// SAFETY: the functions of the C library fulfil the contract for their alignment, which is checked.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return malloc(layout.size()).cast();
        }
        let mut memory = core::ptr::null_mut();
        // SAFETY: the pointer is writable, and the alignment is a power of two that is larger than that of a pointer.
        match unsafe { posix_memalign(&raw mut memory, layout.align(), layout.size()) } {
            0 => memory.cast(),
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the caller passes memory of this allocator.
        unsafe { free(memory.cast()) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            // SAFETY: the caller passes memory of this allocator.
            return unsafe { realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller passes a size that is valid for the alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks are at least this long, and the new one is distinct.
            unsafe { core::ptr::copy_nonoverlapping(memory, new, layout.size().min(size)) };
            // SAFETY: the caller passes memory of this allocator, which is not used any more.
            unsafe { self.dealloc(memory, layout) };
        }
        new
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let text = format!("{info}\n");
    // SAFETY: the bytes are valid for the call.
    let _ = unsafe { write(2, text.as_ptr().cast(), text.len()) };
    abort()
}

/// Name to which the precompiled libraries of Rust refer, and which code without unwinding never calls. They also refer to
/// `_Unwind_Resume`, which is not defined here, because a C library has a working one.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
