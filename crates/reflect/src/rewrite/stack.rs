//! Which stack runs.
//!
//! A thread may have several stacks, of which one runs at a time (Python's greenlets): what lies on the others is not where its
//! address says. A frontend tells them apart.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::{OpaquePtr, Result, bail, register};

type Current = unsafe extern "C" fn() -> *mut c_void;
type Release = unsafe extern "C" fn(stack: *mut c_void);

/// A frontend's functions, or NULL. They never change; `CURRENT` is set last.
static RELEASE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CURRENT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets the functions that tell the stacks of a thread apart: `void* current()` gives NULL if the thread runs on the stack that
/// it began with, else an address that no other stack has before it is given to `void release(void* stack)`. A frontend sets
/// them once. They are called for each callback of a walk; what they wait for, native walks wait for, too.
///
/// # Errors
/// `ValueError` if a function is NULL, `RuntimeError` if other functions have been set.
///
/// # Safety
/// Both must be functions of these types, which may be called on any thread as long as the process lives.
#[register("anyfn.set_stack_hooks", unsafe)]
unsafe fn set_stack_hooks(current: OpaquePtr, release: OpaquePtr) -> Result<()> {
    for (place, hook) in [(&RELEASE, release.as_ptr()), (&CURRENT, current.as_ptr())] {
        if current.as_ptr().is_null() || hook.is_null() {
            bail!("ValueError", "expected two functions, got NULL");
        }
        // The same frontend may be set up again.
        match place.compare_exchange(ptr::null_mut(), hook, Ordering::AcqRel, Ordering::Acquire) {
            Err(before) if before != hook => {
                bail!("RuntimeError", "the stack hooks have been set already, and cannot be replaced")
            }
            _ => {}
        }
    }
    Ok(())
}

/// The stack that ran when it was made. No other one is equal to it as long as it exists.
pub(super) struct Stack {
    pub(super) thread: usize,
    /// A frontend's address for it, or NULL.
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
        // SAFETY: whoever set the hooks guarantees that any thread may call this.
        Stack { thread, part: unsafe { current() } }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.part.is_null() {
            return;
        }
        // SAFETY: `current` has given an address, so both are set; the type is as the setter's caller guarantees.
        let release = unsafe { transmute::<*mut c_void, Release>(RELEASE.load(Ordering::Acquire)) };
        // SAFETY: what `current` of the same pair gave, once.
        unsafe { release(self.part) };
    }
}
