//! The error that a failed call leaves for its caller: one slot per thread.

use core::cell::Cell;

use anyfn::ObjectRef;

use crate::sys::per_thread;

per_thread! {
    /// The raised error, released with the thread.
    static RAISED: Cell<Option<ObjectRef>> = Cell::new(None);
}

/// Takes the error out of the slot.
pub(crate) fn take() -> Option<ObjectRef> {
    RAISED.with(Cell::take).flatten()
}

/// Puts an error into the slot; one that is there is released.
pub(crate) fn set(error: Option<ObjectRef>) {
    let old = RAISED.with(|slot| slot.replace(error));
    // Releasing may run foreign code that raises in turn, so it happens when the slot is settled.
    drop(old);
}
