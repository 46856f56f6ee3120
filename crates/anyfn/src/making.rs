//! Number of calls in progress of the functions that make objects, in the whole process.
//!
//! Such a function is found by the type alone, so nothing that the caller holds keeps its library mapped. The caller counts, then
//! reads the function's address; the runtime takes the addresses of a library away, then looks at the number. So either the
//! caller finds no address of the library, or the runtime finds the call and leaves the library mapped.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use anyfn_abi::{kTVMFFIObject, kTVMFFIOpaquePtr};

use crate::types;

/// The attribute of the root type that shows the number of the runtime to other copies of this crate.
const ATTRIBUTE: &str = "__anyfn_making__";

/// The number; other copies than the runtime's have one for the case that there is no runtime of ours.
static OWN: AtomicUsize = AtomicUsize::new(0);

static SHARED: AtomicPtr<AtomicUsize> = AtomicPtr::new(ptr::null_mut());

/// The attribute and its value, for the runtime.
#[doc(hidden)]
pub fn attribute() -> (&'static str, *mut c_void) {
    (ATTRIBUTE, ptr::from_ref(&OWN).cast_mut().cast())
}

/// Whether a call is in progress; for the runtime, after it has taken addresses away.
#[doc(hidden)]
pub fn is_idle() -> bool {
    fence(Ordering::SeqCst);
    OWN.load(Ordering::SeqCst) == 0
}

/// A call in progress.
pub(crate) struct Making(&'static AtomicUsize);

impl Making {
    /// Counts a call whose function is looked up next.
    #[inline]
    pub(crate) fn begin() -> Making {
        // SAFETY: NULL, or a number that lives as long as the process (the runtime's) or as this library (its own).
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
    // SAFETY: an opaque pointer has its value in `v_ptr`.
    let found = found.map(|value| unsafe { value.value.v_ptr }.cast::<AtomicUsize>());
    // SAFETY: the runtime sets the attribute before anybody else can, to a number that lives as long as it.
    let count = found.and_then(|found| unsafe { found.as_ref() }).unwrap_or(&OWN);
    SHARED.store(ptr::from_ref(count).cast_mut(), Ordering::Release);
    count
}
