//! The incoming calls that each thread is running. Without the standard library, all threads share one stack of calls.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use anyfn::abi::TVMFFIEnvRegisterCAPI;
use anyfn::{Error, error};

use super::Endpoint;
use crate::sync::Lock;

/// State of an incoming call, which runs in this process.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) cancelled: AtomicBool,
}

/// Incoming call that this thread is running, as an element of a stack.
pub(crate) struct Serving {
    /// Endpoint at which the call arrived.
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) id: u64,
    pub(crate) depth: u16,
    pub(crate) state: Arc<Running>,
    /// True if an `Answer` will answer the call, instead of the return of the running function.
    pub(crate) answers_later: bool,
}

#[cfg(feature = "std")]
mod stack {
    use core::cell::{Cell, RefCell};

    use super::{Serving, Vec};

    std::thread_local! {
        /// Stack of the incoming calls that this thread is running, innermost last.
        static CURRENT: RefCell<Vec<Serving>> = const { RefCell::new(Vec::new()) };
        /// Spare buffer, which the next message of this thread reuses.
        static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }

    /// Calls `body` with the stack of the incoming calls that this thread is running. Returns
    /// `None` if the thread is exiting, or if `body` of an outer call of this function is using the
    /// stack.
    #[inline]
    pub(crate) fn with<T>(body: impl FnOnce(&mut Vec<Serving>) -> T) -> Option<T> {
        CURRENT.try_with(|calls| calls.try_borrow_mut().ok().map(|mut calls| body(&mut calls))).ok()?
    }

    /// Takes the spare message buffer of this thread, or creates an empty buffer. [`give_back`]
    /// makes the buffer available for the next message.
    pub(crate) fn spare() -> Vec<u8> {
        // A thread that is exiting may still make calls.
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// Stores a message buffer for reuse by this thread.
    pub(crate) fn give_back(mut message: Vec<u8>) {
        const KEPT_MAX: usize = 4096;
        if message.capacity() <= KEPT_MAX {
            message.clear();
            let _ = SPARE.try_with(|spare| spare.set(message));
        }
    }
}

#[cfg(not(feature = "std"))]
mod stack {
    use super::{Lock, Serving, Vec};

    static CURRENT: Lock<Vec<Serving>> = Lock::new(Vec::new());

    /// Calls `body` with the stack of the incoming calls that are being run. Without `std`, all
    /// threads share one stack. Never returns `None`.
    pub(crate) fn with<T>(body: impl FnOnce(&mut Vec<Serving>) -> T) -> Option<T> {
        Some(body(&mut CURRENT.lock()))
    }

    /// Creates a message buffer.
    pub(crate) fn spare() -> Vec<u8> {
        Vec::new()
    }

    /// Frees a message buffer.
    pub(crate) fn give_back(_message: Vec<u8>) {}
}

pub(crate) use stack::{give_back, spare, with};

/// Returns true if this thread is running an incoming call that the peer has cancelled.
pub fn is_cancelled() -> bool {
    with(|calls| calls.last().is_some_and(|call| call.state.cancelled.load(Ordering::Relaxed))).unwrap_or(false)
}

/// Callback for `check_signals`. It raises an error if this thread runs an incoming call that the peer has
/// cancelled.
extern "C" fn check_cancelled() -> c_int {
    if !is_cancelled() {
        return 0;
    }
    error!("CancelledError", "the peer no longer waits for the result").raise();
    -1
}

/// Registers [`check_cancelled`] with `check_signals`, once per process.
pub(crate) fn watch_cancelled() {
    static WATCHED: Lock<bool> = Lock::new(false);
    let mut watched = WATCHED.lock();
    if core::mem::replace(&mut *watched, true) {
        return;
    }
    let check = check_cancelled as extern "C" fn() -> c_int;
    // SAFETY: the name is a C string, and the function has the type that belongs to it. A runtime that does not know the name
    // fails and leaves an error; the hook is then never called.
    if unsafe { TVMFFIEnvRegisterCAPI(c"AnyfnCheckCancelled".as_ptr(), check as *mut c_void) } != 0 {
        drop(Error::take_raised());
    }
}
