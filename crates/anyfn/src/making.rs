//! Process-wide count of calls in progress to functions that create objects. Other calls are not
//! counted.
//!
//! Such a function is found through the type of the object alone, so the caller holds nothing that keeps the library of
//! the function mapped. The caller increments the count before it reads the address of the function. The runtime
//! removes the addresses of a library before it reads the count. So either the caller finds no address of the library,
//! or the runtime finds that a call is in progress and leaves the library mapped.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use anyfn_abi::{kTVMFFIObject, kTVMFFIOpaquePtr};

use crate::types;

/// Name of a type attribute of `ffi.Object`. Its value is the address of the runtime's count of calls in
/// progress. Other copies of this crate find the count through this attribute.
const ATTRIBUTE: &str = "__anyfn_making__";

/// Number of calls in progress to functions that create objects. A copy of this crate outside the
/// runtime uses its own count only if the process has no anyfn runtime.
static OWN: AtomicUsize = AtomicUsize::new(0);

static SHARED: AtomicPtr<AtomicUsize> = AtomicPtr::new(ptr::null_mut());

/// Returns the name of the attribute under which the runtime publishes the count, and the address of the
/// count.
#[doc(hidden)]
pub fn attribute() -> (&'static str, *mut c_void) {
    (ATTRIBUTE, ptr::from_ref(&OWN).cast_mut().cast())
}

/// Returns true if no call to a function that creates objects is in progress. The runtime checks
/// this after it has removed the addresses of a library's functions from the type table.
#[doc(hidden)]
pub fn is_idle() -> bool {
    fence(Ordering::SeqCst);
    OWN.load(Ordering::SeqCst) == 0
}

/// Guard of a call to a function that creates objects. The call is counted as in progress until the
/// guard is dropped.
pub(crate) struct Making(&'static AtomicUsize);

impl Making {
    /// Counts a call to a function that creates objects as in progress, until the returned guard is
    /// dropped. The caller must read the address of that function only after this.
    #[inline]
    pub(crate) fn begin() -> Making {
        // SAFETY: the pointer is NULL, or refers to a count that lives as long as the process (the runtime's) or as
        // this library (its own).
        let count = unsafe { SHARED.load(Ordering::Acquire).as_ref() }.unwrap_or_else(find);
        count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Making(count)
    }
}

impl Drop for Making {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cold]
fn find() -> &'static AtomicUsize {
    let found = types::attribute(ATTRIBUTE, kTVMFFIObject).filter(|value| value.type_index == kTVMFFIOpaquePtr);
    // SAFETY: the value of an opaque pointer is in `v_ptr`.
    let found = found.map(|value| unsafe { value.value.v_ptr }.cast::<AtomicUsize>());
    // SAFETY: the runtime sets the attribute before other code can, to a count that lives as long as the runtime.
    let count = found.and_then(|found| unsafe { found.as_ref() }).unwrap_or(&OWN);
    SHARED.store(ptr::from_ref(count).cast_mut(), Ordering::Release);
    count
}
