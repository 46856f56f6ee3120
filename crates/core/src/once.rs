//! One-time initialisation of handles.
//!
//! One lock guards the list of handles under construction. It is not held during the construction itself, which runs
//! foreign code that may take long and create other handles. Threads that need a handle under construction wait. A wait
//! that could never end, because the constructing thread waits for the waiting thread in turn, is an error.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::vec::Vec;

use anyfn::{Result, bail};

use crate::sys::{self, Condvar, Mutex};

/// A thread and the handle that it constructs or waits for.
struct Claim {
    thread: usize,
    handle: usize,
}

struct Claims {
    making: Vec<Claim>,
    waiting: Vec<Claim>,
}

static STATE: Mutex<Claims> = Mutex::new(Claims { making: Vec::new(), waiting: Vec::new() });
static CHANGED: Condvar = Condvar::new();

impl Claims {
    fn maker_of(&self, handle: usize) -> Option<usize> {
        self.making.iter().find(|claim| claim.handle == handle).map(|claim| claim.thread)
    }

    /// Returns true if the thread `me` would wait for itself by waiting for `handle`. That is the case if the
    /// thread that constructs the handle waits, directly or through further threads, for a handle that `me`
    /// constructs.
    fn would_wait_for(&self, me: usize, handle: usize) -> bool {
        let mut handle = handle;
        // Each thread waits for at most one handle, so the chain is no longer than the list.
        for _ in 0..=self.waiting.len() {
            let Some(maker) = self.maker_of(handle) else { return false };
            if maker == me {
                return true;
            }
            match self.waiting.iter().find(|claim| claim.thread == maker) {
                Some(claim) => handle = claim.handle,
                None => return false,
            }
        }
        false
    }
}

/// Guard that removes a handle from the list of handles under construction, whether its construction succeeds or fails.
struct Making(usize);

impl Drop for Making {
    fn drop(&mut self) {
        STATE.lock().making.retain(|claim| claim.handle != self.0);
        CHANGED.notify_all();
    }
}

/// Initialises the handle at `cell` by calling `init`, unless it is initialised already. Returns the status
/// that `init` returned, or 0 if it was not called.
///
/// # Safety
/// `cell` must live as long as any thread may use it. Only this function and `TVMFFIHandleDeinitOnce` may change it.
pub(crate) unsafe fn init(
    cell: &AtomicPtr<c_void>,
    init: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
) -> Result<c_int> {
    if !cell.load(Ordering::Acquire).is_null() {
        return Ok(0);
    }
    let me = sys::thread_token();
    let handle = ptr::from_ref(cell).addr();
    let mut state = STATE.lock();
    loop {
        if !cell.load(Ordering::Acquire).is_null() {
            return Ok(0);
        }
        if state.maker_of(handle).is_none() {
            break;
        }
        if state.would_wait_for(me, handle) {
            bail!("RuntimeError", "TVMFFIHandleInitOnce: the handle's init_func needs the handle itself");
        }
        state.waiting.push(Claim { thread: me, handle });
        state = CHANGED.wait(&STATE, state);
        state.waiting.retain(|claim| claim.thread != me);
    }
    state.making.push(Claim { thread: me, handle });
    drop(state);
    let _making = Making(handle);
    let mut made = ptr::null_mut();
    // SAFETY: the function comes from the caller and is called with a writable pointer.
    let code = unsafe { init(&mut made) };
    if code != 0 {
        return Ok(code);
    }
    if made.is_null() {
        bail!("RuntimeError", "init_func must return a non-NULL handle");
    }
    cell.store(made, Ordering::Release);
    Ok(0)
}
