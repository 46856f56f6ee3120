//! Waiting for other threads without keeping from them what they may need: the lock of the host's language.
//!
//! A task may call a function of Python on a worker. If the thread that waits for the task held the interpreter's lock,
//! both would wait for ever.

use core::ffi::c_void;
use std::sync::OnceLock;

use anyfn::{OpaquePtr, Result, bail, register};

type Unlock = unsafe extern "C" fn() -> *mut c_void;
type Lock = unsafe extern "C" fn(state: *mut c_void);

/// A frontend's functions. They are set together and never change, so whoever has called one can call the other.
struct Hooks {
    unlock: Unlock,
    lock: Lock,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the functions that a thread calls before and after it waits: `void* unlock()` gives the host's lock back if this thread
/// holds it, else NULL; `void lock(void* state)` takes it again. A frontend sets them once.
///
/// # Errors
/// `ValueError` if a function is NULL, `RuntimeError` if other functions have been set.
///
/// # Safety
/// Both must be functions of these types, which may be called on any thread as long as the process lives.
#[register("anyfn.set_wait_hooks", unsafe)]
unsafe fn set_wait_hooks(unlock: OpaquePtr, lock: OpaquePtr) -> Result<()> {
    let (unlock, lock) = (unlock.as_ptr(), lock.as_ptr());
    if unlock.is_null() || lock.is_null() {
        bail!("ValueError", "expected two functions, got NULL");
    }
    // SAFETY: the caller guarantees a function of this type, which is not NULL.
    let unlock = unsafe { core::mem::transmute::<*mut c_void, Unlock>(unlock) };
    // SAFETY: the caller guarantees a function of this type, which is not NULL.
    let lock = unsafe { core::mem::transmute::<*mut c_void, Lock>(lock) };
    let set = HOOKS.get_or_init(|| Hooks { unlock, lock });
    // The same frontend may be set up again.
    if set.unlock as usize != unlock as usize || set.lock as usize != lock as usize {
        bail!("RuntimeError", "the wait hooks have been set already, and cannot be replaced");
    }
    Ok(())
}

/// Runs `body`, which waits for other threads.
pub(super) fn waiting<T>(body: impl FnOnce() -> T) -> T {
    let Some(hooks) = HOOKS.get() else { return body() };
    // SAFETY: whoever set the hooks guarantees that any thread may call this.
    let state = unsafe { (hooks.unlock)() };
    let result = body();
    if !state.is_null() {
        // SAFETY: what `unlock` of the same pair gave, on the same thread.
        unsafe { (hooks.lock)(state) };
    }
    result
}
