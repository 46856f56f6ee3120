//! Remaining space on the stack of a thread.
//!
//! Python counts calls, not bytes. Its count can come too late if native code runs between calls of Python functions,
//! if the limit was raised, or if the thread has a small stack. Each call from native code into Python therefore
//! checks how near the end of the stack is, which costs one comparison.

use std::cell::Cell;

thread_local! {
    /// Lowest stack address at which a call is accepted without a further check. The value is the highest
    /// possible address until the bounds of the stack are known.
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Message of the error that is raised when the stack is nearly used up.
pub(crate) const SHORT: &str = "the stack of this thread is nearly used up: a recursion through native code is too \
                                deep, or the thread needs a larger stack (`threading.stack_size`)";

/// Returns true if so little of the stack is left that no Python function should be called.
#[inline(always)]
pub(crate) fn is_short() -> bool {
    let here = 0u8;
    let here = std::hint::black_box(&raw const here).addr();
    here < LIMIT.get() && look(here)
}

#[cold]
#[inline(never)]
fn look(here: usize) -> bool {
    let Some((low, size)) = bounds() else {
        LIMIT.set(0);
        return false;
    };
    // Space that Python and the code that it calls need before the next check.
    let reserve = (size / 8).clamp(64 << 10, 256 << 10);
    LIMIT.set(low + reserve);
    // Outside these bounds, the thread runs on a stack that a library has allocated for its own tasks, whose end is unknown.
    here >= low && here < low + reserve
}

/// Returns the lowest address and the size of this thread's stack.
#[cfg(target_os = "linux")]
fn bounds() -> Option<(usize, usize)> {
    use std::mem::MaybeUninit;
    use std::ptr;

    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the function may always be called.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: this is the current thread, and there is room for its attributes.
    if unsafe { libc::pthread_getattr_np(this, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut low, mut size) = (ptr::null_mut(), 0);
    // SAFETY: the attributes were filled above, and there is room for the results.
    let code = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) };
    // SAFETY: the attributes were filled above and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (code == 0 && size > 0).then_some((low.addr(), size))
}

/// Returns `None`, because the bounds of the stack are unknown on this platform.
#[cfg(not(target_os = "linux"))]
fn bounds() -> Option<(usize, usize)> {
    None
}
