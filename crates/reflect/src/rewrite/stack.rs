//! Identification of the call stack on which a thread currently runs, such as the stack of a greenlet.
//!
//! A thread may have several stacks, of which one runs at a time (Python's greenlets). While a stack does not run, its
//! data may have been moved to another address. A frontend registers functions that distinguish the stacks.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::{OpaquePtr, Result, bail, register};

type Current = unsafe extern "C" fn() -> *mut c_void;
type Release = unsafe extern "C" fn(stack: *mut c_void);

/// Hook `release` that a frontend registered with `anyfn.set_stack_hooks`, or NULL. It is set once,
/// before `CURRENT`.
static RELEASE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CURRENT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets the functions that distinguish the stacks of a thread. `void* current()` returns NULL if
/// the thread runs on its initial stack, and otherwise an address that identifies the current
/// stack. No other stack has this address until it is passed to `void release(void* stack)`. A
/// frontend sets them once. They are called for each callback of a walk, so native walks are
/// delayed if these functions block.
///
/// # Errors
/// Raises `ValueError` if a function is NULL, `RuntimeError` if other functions have been set.
///
/// # Safety
/// Both must be functions of these types that may be called on any thread for the lifetime of the process.
#[register("anyfn.set_stack_hooks", unsafe)]
unsafe fn set_stack_hooks(current: OpaquePtr, release: OpaquePtr) -> Result<()> {
    for (place, hook) in [(&RELEASE, release.as_ptr()), (&CURRENT, current.as_ptr())] {
        if current.as_ptr().is_null() || hook.is_null() {
            bail!("ValueError", "expected two functions, got NULL");
        }
        // The same frontend may be initialised again.
        match place.compare_exchange(ptr::null_mut(), hook, Ordering::AcqRel, Ordering::Acquire) {
            Err(before) if before != hook => {
                bail!("RuntimeError", "the stack hooks have been set already, and cannot be replaced")
            }
            _ => {}
        }
    }
    Ok(())
}

/// Identity of the call stack on which this value was created. As long as the value exists, no other stack
/// gets the same identity.
pub(super) struct Stack {
    pub(super) thread: usize,
    /// Address with which a frontend identifies the stack, or NULL for the initial stack of the thread.
    pub(super) part: *mut c_void,
}

impl Stack {
    pub(super) fn current() -> Stack {
        let thread = anyfn::__private::thread_token();
        let current = CURRENT.load(Ordering::Acquire);
        if current.is_null() {
            return Stack { thread, part: ptr::null_mut() };
        }
        // SAFETY: only `set_stack_hooks` sets it, whose caller guarantees a function of this type.
        let current = unsafe { transmute::<*mut c_void, Current>(current) };
        // SAFETY: the code that set the hooks guarantees that any thread may call this.
        Stack { thread, part: unsafe { current() } }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.part.is_null() {
            return;
        }
        // SAFETY: `current` has returned an address, so both are set; the caller of the setter guarantees the type.
        let release = unsafe { transmute::<*mut c_void, Release>(RELEASE.load(Ordering::Acquire)) };
        // SAFETY: the result of `current` of the same pair, released once.
        unsafe { release(self.part) };
    }
}
