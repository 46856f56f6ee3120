//! The target of a JavaScript function that calls one native function, which has been looked up by name.
//!
//! Making such a function takes the engine several microseconds, so functions that are arguments or results of calls have none: they are
//! JavaScript functions that pass the number of their slot ([`crate::slots`]) along.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use anyfn::ObjectRef;
use anyfn::abi::TVMFFIObject;

/// The native function that a JavaScript function calls. It is the data of the JavaScript function.
pub(crate) struct Callee {
    /// State of the environment ([`crate::state::State`]), which lives longer.
    pub(crate) state: *const (),
    /// Address of the function object, which its slot keeps alive. NULL once the slot is released.
    function: Cell<*mut TVMFFIObject>,
    /// Number of calls in progress.
    calls: Cell<u32>,
    /// The function object, if its slot was released during calls, until they end.
    held: Cell<Option<ObjectRef>>,
}

impl Callee {
    /// Begins a call. Returns the address of the function object, which stays alive until [`Callee::end`], or `None` if it was released.
    #[inline]
    pub(crate) fn begin(&self) -> Option<*mut TVMFFIObject> {
        let function = self.function.get();
        if function.is_null() {
            return None;
        }
        self.calls.set(self.calls.get() + 1);
        Some(function)
    }

    /// Ends a call.
    #[inline]
    pub(crate) fn end(&self) {
        let calls = self.calls.get() - 1;
        self.calls.set(calls);
        if calls == 0 && self.function.get().is_null() {
            drop(self.held.take());
        }
    }

    /// Returns true while calls are in progress. The memory must not be freed then, even if no JavaScript function refers to it any more.
    pub(crate) fn is_in_use(&self) -> bool {
        self.calls.get() > 0
    }

    /// Makes all later calls fail. Calls in progress keep the function object alive.
    pub(crate) fn release(&self, object: &ObjectRef) {
        self.function.set(ptr::null_mut());
        if self.is_in_use() {
            self.held.set(Some(object.clone()));
        }
    }
}

/// An owned [`Callee`], whose address does not change.
pub(crate) struct OwnedCallee(NonNull<Callee>);

impl OwnedCallee {
    /// Makes a callee for a function object that the caller keeps alive until it calls [`Callee::release`].
    pub(crate) fn new(state: *const (), function: &ObjectRef) -> OwnedCallee {
        let callee = Callee {
            state,
            function: Cell::new(function.as_handle().cast()),
            calls: Cell::new(0),
            held: Cell::new(None),
        };
        OwnedCallee(NonNull::from(Box::leak(Box::new(callee))))
    }

    /// Returns the address, for the data of a JavaScript function.
    pub(crate) fn as_ptr(&self) -> *mut Callee {
        self.0.as_ptr()
    }
}

impl Deref for OwnedCallee {
    type Target = Callee;

    fn deref(&self) -> &Callee {
        // SAFETY: the memory was allocated by `new`, and is freed by `drop`. All access is by shared references.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for OwnedCallee {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::leak`. The table of slots drops a callee when no JavaScript function refers to it and no
        // call is in progress.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
