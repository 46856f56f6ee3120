//! Limit on the stack space that nested hooks use. Also creates the callbacks through which a hook continues
//! the operation that called it.
//!
//! An operation itself does not recurse. However, a hook receives a callback that continues the operation
//! with the callback's argument, and the operation may then call a further hook.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::{Any, Args, Error, PackedFunc, Result};

/// Maximum stack space in bytes that the nested hooks of one thread may use together. Threads have at least
/// two megabytes of stack.
const STACK_MAX: usize = 768 << 10;

#[cfg(feature = "std")]
mod base {
    use core::cell::Cell;

    std::thread_local! {
        /// Stack address at which the outermost hook of this thread was called, or 0 while no hook runs.
        static BASE: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn get() -> usize {
        BASE.get()
    }

    pub(super) fn set(at: usize) {
        BASE.set(at);
    }
}

#[cfg(not(feature = "std"))]
mod base {
    //! Fallback for builds without thread-local storage, in which stack use cannot be measured.
    pub(super) fn get() -> usize {
        0
    }

    pub(super) fn set(_at: usize) {}
}

/// Guard that exists while a hook runs. The outermost guard of a thread records the address from which stack
/// use is measured.
pub(crate) struct Nested {
    outermost: bool,
}

impl Nested {
    /// Creates the guard for a hook that is about to run.
    ///
    /// # Errors
    /// Returns `RecursionError` if hooks are nested too deeply.
    pub(crate) fn enter() -> Result<Nested> {
        // A variable, because the address of a constant would be in static memory.
        let byte = 0u8;
        let here = core::hint::black_box(&raw const byte).addr();
        let base = base::get();
        if base == 0 {
            base::set(here);
            return Ok(Nested { outermost: true });
        }
        if base.abs_diff(here) > STACK_MAX {
            return Err(too_deep());
        }
        Ok(Nested { outermost: false })
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        if self.outermost {
            base::set(0);
        }
    }
}

#[cold]
fn too_deep() -> Error {
    Error::new(
        "RecursionError",
        "hooks of types (such as `__ffi_repr__` or `__s_equal__`) and callbacks that continue a visit \
         themselves are nested too deeply: each one calls the next. Without them, the depth is unlimited",
    )
}

/// State of an operation, borrowed by the callback that a hook receives. Each call of the callback takes the
/// state and puts it back afterwards. Once the hook has returned, the state is absent and calls of the
/// callback fail.
struct LentState<S>(AtomicPtr<S>);

impl<S> LentState<S> {
    fn put(&self, state: Box<S>) {
        self.0.store(Box::into_raw(state), Ordering::Release);
    }

    fn take(&self) -> Option<Box<S>> {
        let taken = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: created by `put`, and only one caller can take it out.
        (!taken.is_null()).then(|| unsafe { Box::from_raw(taken) })
    }
}

impl<S> Drop for LentState<S> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Calls `hook` with a packed function that runs `callback` on `state`. The function works only until `hook`
/// returns.
///
/// # Errors
/// Returns the error of the hook; `RecursionError` if hooks are nested too deeply; `RuntimeError` if another thread
/// still uses the callback when the hook returns.
pub(crate) fn lend<S: Default + Send + 'static>(
    state: &mut S,
    callback: impl Fn(&mut S, Args<'_>) -> Result<Any> + Send + Sync + 'static,
    hook: impl FnOnce(&PackedFunc) -> Result<Any>,
) -> Result<Any> {
    let _nested = Nested::enter()?;
    let loan = Arc::new(LentState(AtomicPtr::new(ptr::null_mut())));
    loan.put(Box::new(core::mem::take(state)));
    let shared = Arc::clone(&loan);
    let function = PackedFunc::new(move |args| {
        let Some(mut state) = shared.take() else {
            anyfn::bail!(
                "RuntimeError",
                "the callback that a hook received can only be called during the call of the hook, and by one \
                 thread at a time"
            );
        };
        let result = callback(&mut state, args);
        shared.put(state);
        result
    });
    let result = hook(&function);
    match loan.take() {
        Some(back) => *state = *back,
        None => anyfn::bail!("RuntimeError", "another thread still uses the callback that a hook received"),
    }
    result
}
