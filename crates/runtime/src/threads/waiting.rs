//! Waiting for other threads without holding the interpreter lock of the host language, which those threads
//! may need.
//!
//! A task may call a Python function on a worker. If the thread that waits for the task held the interpreter's lock,
//! both threads would deadlock.

use core::ffi::c_void;
use std::sync::OnceLock;

use anyfn::{OpaquePtr, Result, bail, register};

type Unlock = unsafe extern "C" fn() -> *mut c_void;
type Lock = unsafe extern "C" fn(state: *mut c_void);

/// Functions with which a frontend releases and acquires its interpreter lock. They are set together and
/// never change, so a thread that has called `unlock` can call the matching `lock`.
struct Hooks {
    unlock: Unlock,
    lock: Lock,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the functions that a thread calls before and after it waits. `void* unlock()` releases the
/// interpreter lock of the host language and returns a state, or returns NULL if this thread does not hold
/// the lock. `void lock(void* state)` acquires the lock again. A frontend sets them once.
///
/// # Errors
/// Raises `ValueError` if a function is NULL, `RuntimeError` if other functions have been set.
///
/// # Safety
/// `unlock` and `lock` must be functions of these types that may be called on any thread for the lifetime of the
/// process.
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
    // The same frontend may be initialised again.
    if set.unlock as usize != unlock as usize || set.lock as usize != lock as usize {
        bail!("RuntimeError", "the wait hooks have been set already, and cannot be replaced");
    }
    Ok(())
}

/// Runs `body`, which waits for other threads. During that time, this thread does not hold the interpreter
/// lock of the host language.
pub(super) fn waiting<T>(body: impl FnOnce() -> T) -> T {
    let Some(hooks) = HOOKS.get() else { return body() };
    // SAFETY: the code that set the hooks guarantees that any thread may call this.
    let state = unsafe { (hooks.unlock)() };
    let result = body();
    if !state.is_null() {
        // SAFETY: `state` is the result of `unlock` of the same pair, on the same thread.
        unsafe { (hooks.lock)(state) };
    }
    result
}
