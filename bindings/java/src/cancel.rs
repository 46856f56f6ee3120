//! Cancellation of calls that run on a thread of their own. Native code notices it when it checks for signals.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use anyfn::Error;
use anyfn::abi::TVMFFIEnvRegisterCAPI;

use crate::entry::native;

thread_local! {
    /// The flag of the call on this thread, in a buffer of Java: not zero if the call was cancelled. NULL if it cannot be.
    static FLAG: Cell<*const AtomicI32> = const { Cell::new(ptr::null()) };
}

native! {
    /// `setFlag(address)`: sets the address of the flag of the call on this thread, 0 after the call. Returns the one before.
    fn Java_org_anyfn_Native_setFlag(env, class, address: i64) -> i64 {
        let flag: *const AtomicI32 = ptr::with_exposed_provenance(address as usize);
        let before = FLAG.try_with(|current| current.replace(flag)).unwrap_or(ptr::null());
        Ok(before.expose_provenance() as i64)
    }
}

extern "C" fn check_signals() -> c_int {
    let flag = FLAG.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: Java keeps the buffer alive until it sets another address.
    let is_cancelled = unsafe { flag.as_ref() }.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0);
    if is_cancelled {
        Error::new("CancelledError", "the call was cancelled").raise();
        return -1;
    }
    0
}

extern "C" fn ensure() -> c_int {
    0
}

extern "C" fn release(_: c_int) {}

/// Registers the function by which native code learns that its call was cancelled.
pub(crate) fn register() {
    let functions: [(&CStr, *mut c_void); 3] = [
        (c"PyErr_CheckSignals", check_signals as *mut _),
        (c"PyGILState_Ensure", ensure as *mut _),
        (c"PyGILState_Release", release as *mut _),
    ];
    for (name, function) in functions {
        // SAFETY: the runtime copies the name and calls the function with the type that the function of this name has.
        if unsafe { TVMFFIEnvRegisterCAPI(name.as_ptr(), function) } != 0 {
            // Native loops then do not notice that their calls were cancelled; nothing else depends on it.
            drop(Error::take_raised());
        }
    }
}
