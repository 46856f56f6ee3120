//! Sentinels: objects that mark a special case, such as a missing value, and are recognised by their
//! identity.

use anyfn::abi::kTVMFFIObject;
use anyfn::{ObjectRef, Result};

use crate::sync::Slot;
use crate::sys::Mutex;

/// Object that represents a missing value, such as the value of a key that is not in a map.
static MISSING: Slot = Slot::new();
/// Object that precedes the named arguments in a call to a constructor.
static KWARGS: Slot = Slot::new();

/// Returns the object in `slot`. The first call creates a plain object there.
fn sentinel(slot: &'static Slot) -> Result<ObjectRef> {
    static LOCK: Mutex<()> = Mutex::new(());
    if let Some(object) = slot.get() {
        return Ok(object);
    }
    let _lock = LOCK.lock();
    if !slot.is_set() {
        // SAFETY: a plain object has no content.
        slot.swap(Some(unsafe { anyfn::__private::new_object(kTVMFFIObject, ()) }));
    }
    slot.get()
        .ok_or_else(|| anyfn::Error::new("InternalError", "cannot get a sentinel: its object was released"))
}

/// Returns the sentinel that represents a missing value.
pub(crate) fn missing() -> Result<ObjectRef> {
    sentinel(&MISSING)
}

/// Returns the sentinel that precedes keyword arguments.
pub(crate) fn kwargs() -> Result<ObjectRef> {
    sentinel(&KWARGS)
}
