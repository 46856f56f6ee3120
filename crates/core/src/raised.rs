//! The error that a failed call leaves for its caller: one slot per thread.

use core::cell::Cell;
use core::mem::ManuallyDrop;

use anyfn::ObjectRef;

use crate::sys::per_thread;

per_thread! {
    /// The raised error, released with the thread.
    static RAISED: Cell<Option<ObjectRef>> = Cell::new(None);
}

per_thread! {
    /// The error of a call while the thread, or the process, is ending and [`RAISED`] is gone.
    static LATE: Cell<Option<ManuallyDrop<ObjectRef>>> = Cell::new(None);
}

/// Takes the error out of the slot.
pub(crate) fn take() -> Option<ObjectRef> {
    match RAISED.with(Cell::take) {
        Some(error) => error,
        None => LATE.with(Cell::take).flatten().map(ManuallyDrop::into_inner),
    }
}

/// Puts an error into the slot; one that is there is released.
pub(crate) fn set(error: Option<ObjectRef>) {
    let mut error = error;
    let old = RAISED.with(|slot| slot.replace(error.take()));
    let late = match &old {
        Some(_) => None,
        None => LATE.with(|slot| slot.replace(error.take().map(ManuallyDrop::new))).flatten(),
    };
    // Releasing may run foreign code that raises in turn, so it happens when the slot is settled.
    drop((old, late.map(ManuallyDrop::into_inner)));
}
