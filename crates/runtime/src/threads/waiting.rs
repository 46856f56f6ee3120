//! Waiting for other threads without keeping from them what they may need: the lock of the host's language.
//!
//! A task may call a function of Python on a worker. If the thread that waits for the task held the interpreter's lock,
//! both would wait for ever.

use core::ffi::c_void;
use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::{OpaquePtr, register};

type Unlock = unsafe extern "C" fn() -> *mut c_void;
type Lock = unsafe extern "C" fn(state: *mut c_void);

static UNLOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static LOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets what a thread calls before and after it waits: `void* unlock()` gives the host's lock back if this thread holds it,
/// else NULL; `void lock(void* state)` takes it again. A frontend sets them once.
///
/// # Safety
/// Both must be NULL or functions of these types, which may be called on any thread as long as the process lives.
#[register("anyfn.set_wait_hooks", unsafe)]
unsafe fn set_wait_hooks(unlock: OpaquePtr, lock: OpaquePtr) {
    let (unlock, lock) = (unlock.as_ptr(), lock.as_ptr());
    LOCK.store(lock, Ordering::Release);
    UNLOCK.store(if lock.is_null() { ptr::null_mut() } else { unlock }, Ordering::Release);
}

/// Runs `body`, which waits for other threads.
pub(super) fn waiting<T>(body: impl FnOnce() -> T) -> T {
    let unlock = UNLOCK.load(Ordering::Acquire);
    if unlock.is_null() {
        return body();
    }
    // SAFETY: set as a function of this type.
    let unlock = unsafe { core::mem::transmute::<*mut c_void, Unlock>(unlock) };
    // SAFETY: may be called from any thread.
    let state = unsafe { unlock() };
    let result = body();
    if !state.is_null() {
        // SAFETY: set as a function of this type, before the other.
        let lock = unsafe { core::mem::transmute::<*mut c_void, Lock>(LOCK.load(Ordering::Acquire)) };
        // SAFETY: what `unlock` gave, on the same thread.
        unsafe { lock(state) };
    }
    result
}
