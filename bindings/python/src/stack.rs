//! How much of the thread's stack is left.
//!
//! Python counts calls, not bytes: where native code stands between calls of Python functions, or the limit was raised,
//! or the thread has a small stack, its count can come too late. So each call from native code into Python looks how
//! near the end of the stack is, which takes a comparison.

use std::cell::Cell;

thread_local! {
    /// Calls below this address are refused, or looked at more closely; the highest address before it is known.
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Text of the error when the stack is short.
pub(crate) const SHORT: &str = "the stack of this thread is nearly used up: a recursion through native code is too \
                                deep, or the thread needs a larger stack (`threading.stack_size`)";

/// Whether so little of the stack is left that no Python function should be called.
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
    // What Python and the code that it calls need before the next look.
    let reserve = (size / 8).clamp(64 << 10, 256 << 10);
    LIMIT.set(low + reserve);
    // Elsewhere: on a stack that a library has made for a task of its own, whose end is not known.
    here >= low && here < low + reserve
}

/// Lowest address and size of this thread's stack.
#[cfg(target_os = "linux")]
fn bounds() -> Option<(usize, usize)> {
    use std::mem::MaybeUninit;
    use std::ptr;

    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: always allowed.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: this thread, and room for its attributes.
    if unsafe { libc::pthread_getattr_np(this, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut low, mut size) = (ptr::null_mut(), 0);
    // SAFETY: attributes that were filled above, and room for the results.
    let code = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) };
    // SAFETY: filled above, and not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (code == 0 && size > 0).then_some((low.addr(), size))
}

/// Not known here.
#[cfg(not(target_os = "linux"))]
fn bounds() -> Option<(usize, usize)> {
    None
}
