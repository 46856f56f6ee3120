//! Handles that are made once.
//!
//! One lock guards the list of handles that are being made, never the making itself: that is foreign code, which may
//! take its time and make other handles. Threads that need a handle in the making wait; a wait that could never end,
//! because the maker waits for the waiter in turn, is an error.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::vec::Vec;

use anyfn::{Result, bail};

use crate::sys::{self, Condvar, Mutex};

/// A thread and the handle that it makes or waits for.
struct Claim {
    thread: usize,
    handle: usize,
}

struct State {
    making: Vec<Claim>,
    waiting: Vec<Claim>,
}

static STATE: Mutex<State> = Mutex::new(State { making: Vec::new(), waiting: Vec::new() });
static CHANGED: Condvar = Condvar::new();

impl State {
    fn maker_of(&self, handle: usize) -> Option<usize> {
        self.making.iter().find(|claim| claim.handle == handle).map(|claim| claim.thread)
    }

    /// Whether waiting for `handle` would be waiting for `me`.
    fn would_wait_for(&self, me: usize, handle: usize) -> bool {
        let mut handle = handle;
        // Each thread waits for one handle at most, so the chain is no longer than the list.
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

/// Ends a claim, however the making went.
struct Making(usize);

impl Drop for Making {
    fn drop(&mut self) {
        STATE.lock().making.retain(|claim| claim.handle != self.0);
        CHANGED.notify_all();
    }
}

/// Fills the handle at `cell` by `init`, once; gives the code of `init` when it is not 0.
///
/// # Safety
/// `cell` must live as long as some thread may use it, and be changed by these functions only.
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
    // SAFETY: the caller's function, called with a writable pointer.
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
