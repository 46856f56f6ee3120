//! Services that a board provides to the runtime, as C functions: `anyfn/board.h` declares and describes the same ones. Memory comes
//! from `malloc` and `free` of the board's C library.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_void};
use core::panic::PanicInfo;

use alloc::format;

unsafe extern "C" {
    /// Returns the number of cycles of the processor's clock since some time in the past. Never decreases.
    pub safe fn anyfn_board_cycles() -> u64;

    /// Returns the number of cycles per second, which is not 0.
    pub safe fn anyfn_board_hz() -> u32;

    /// Disables interrupts. Returns the previous state for [`anyfn_board_leave`]. Calls may nest.
    pub safe fn anyfn_board_enter() -> u32;

    /// Restores the state that [`anyfn_board_enter`] has returned.
    pub safe fn anyfn_board_leave(state: u32);

    /// Prints text for the developer, such as the reason for the end of the program. May do nothing.
    pub fn anyfn_board_log(text: *const c_char, size: usize);

    /// Ends the program after an error that it cannot survive, for example by a reset.
    pub safe fn anyfn_board_stop() -> !;

    fn malloc(size: usize) -> *mut c_void;
    fn memalign(alignment: usize, size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn realloc(memory: *mut c_void, size: usize) -> *mut c_void;
}

/// Prints text for the developer.
pub fn log(text: &str) {
    // SAFETY: the text is valid for the call.
    unsafe { anyfn_board_log(text.as_ptr().cast(), text.len()) };
}

/// Takes the raised error and prints its kind and message.
#[unsafe(no_mangle)]
pub extern "C" fn anyfn_board_print_error() {
    let error = anyfn::Error::take_raised();
    for text in [error.kind(), ": ", error.message(), "\n"] {
        log(text);
    }
}

/// Allocator over the C library of the board.
struct BoardAllocator;

/// Alignment in bytes of all memory from `malloc`.
const ALIGNMENT: usize = 8;

// SAFETY: the functions of the C library fulfil the contract for their alignment, which is checked.
unsafe impl GlobalAlloc for BoardAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = if layout.align() <= ALIGNMENT {
            // SAFETY: `malloc` takes any size.
            unsafe { malloc(layout.size()) }
        } else {
            // SAFETY: the alignment is a power of two.
            unsafe { memalign(layout.align(), layout.size()) }
        };
        memory.cast()
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
static ALLOCATOR: BoardAllocator = BoardAllocator;

/// Critical sections of the board, for the crates that need some.
struct Interrupts;

critical_section::set_impl!(Interrupts);

// SAFETY: the board's functions disable interrupts and restore their state, and there is one processor.
unsafe impl critical_section::Impl for Interrupts {
    unsafe fn acquire() -> u32 {
        anyfn_board_enter()
    }

    unsafe fn release(state: u32) {
        anyfn_board_leave(state);
    }
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    log(&format!("{info}\n"));
    anyfn_board_stop()
}
