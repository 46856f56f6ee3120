//! Buffers that Java and native code share: one for each Java thread, used as a stack of frames.
//!
//! A frame has a place for the result, and then one for each argument; strings follow. The buffer begins with a header. While native
//! code runs for a thread, that thread's buffer is known here, so that a callback can place its arguments into it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyfn::abi::TVMFFIAny;

use crate::place::Room;

/// Header of a buffer. The class `org.anyfn.Stack` writes and reads the same fields.
#[repr(C)]
pub(crate) struct Stack {
    /// Offset of the first free byte.
    pub(crate) top: i32,
    /// Size of the buffer in bytes.
    pub(crate) capacity: i32,
    /// Address of the buffer.
    address: i64,
    /// Place of the result of a call that has no frame: Java reads it before other code runs on the thread.
    pub(crate) result: TVMFFIAny,
}

/// Number of class loaders that have used this library so far. The buffers of a class loader are freed when it is unloaded.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static CURRENT: Cell<(*mut Stack, u32)> = const { Cell::new((ptr::null_mut(), 0)) };
}

/// Begins the use of this library by another class loader: threads forget the buffers of the one before.
pub(crate) fn forget_all() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Returns the number of the class loader that uses this library.
#[inline]
fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Runs a function while `stack` is the buffer of this thread.
#[inline]
pub(crate) fn with<T>(stack: *mut Stack, run: impl FnOnce() -> T) -> T {
    CURRENT.with(|current| {
        let before = current.replace((stack, generation()));
        let result = run();
        current.set(before);
        result
    })
}

/// Returns the buffer of this thread, or NULL.
pub(crate) fn current() -> *mut Stack {
    let (stack, of) = CURRENT.try_with(Cell::get).unwrap_or((ptr::null_mut(), 0));
    if of == generation() { stack } else { ptr::null_mut() }
}

/// Sets the buffer of this thread, which remains until the thread ends or the class loader is unloaded.
pub(crate) fn keep(stack: *mut Stack) {
    let _ = CURRENT.try_with(|current| current.set((stack, generation())));
}

/// Returns the buffer at an address that Java passes.
pub(crate) fn at(address: i64) -> *mut Stack {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Returns the free part of the buffer of this thread.
pub(crate) fn room(stack: *mut Stack) -> Room {
    // SAFETY: the buffer belongs to this thread.
    let header = unsafe { &*stack };
    let top = header.top as usize;
    Room { next: stack.cast::<u8>().wrapping_add(top), size: header.capacity as usize - top }
}

/// Returns the place at an address that Java passes.
pub(crate) fn place(address: i64) -> *mut TVMFFIAny {
    ptr::with_exposed_provenance_mut(address as usize)
}
