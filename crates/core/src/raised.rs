//! The error that a failed call stores for its caller, in one slot per thread.

use core::cell::Cell;
use core::mem::ManuallyDrop;

use anyfn::ObjectRef;

use crate::sys::per_thread;

per_thread! {
    /// Error that was raised on this thread and not taken yet. It is released when the thread ends.
    static RAISED: Cell<Option<ObjectRef>> = Cell::new(None);
}

per_thread! {
    /// Error that was raised while the thread or the process ends, after [`RAISED`] has been destroyed.
    static LATE: Cell<Option<ManuallyDrop<ObjectRef>>> = Cell::new(None);
}

/// Removes the raised error of this thread and returns it.
pub(crate) fn take() -> Option<ObjectRef> {
    match RAISED.with(Cell::take) {
        Some(error) => error,
        None => LATE.with(Cell::take).flatten().map(ManuallyDrop::into_inner),
    }
}

/// Sets or clears the raised error of this thread. The previous error is released.
pub(crate) fn set(error: Option<ObjectRef>) {
    let mut error = error;
    let old = RAISED.with(|slot| slot.replace(error.take()));
    let late = match &old {
        Some(_) => None,
        None => LATE.with(|slot| slot.replace(error.take().map(ManuallyDrop::new))).flatten(),
    };
    // Releasing may run foreign code that raises an error in turn, so it happens once the slot is updated.
    drop((old, late.map(ManuallyDrop::into_inner)));
}
