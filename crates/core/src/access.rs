//! Shows the table of accesses to all libraries of the process; the table itself is part of `anyfn`.

use core::ffi::c_void;

use anyfn::access;

/// The attribute of the type of tensors that other libraries read, and its value.
pub(crate) fn attribute() -> (&'static str, *mut c_void) {
    watch_forks();
    let (name, functions) = access::functions();
    (name, core::ptr::from_ref(functions).cast_mut().cast())
}

/// A child of a fork has one thread, so accesses of others must not stay in its table.
#[cfg(all(feature = "std", unix))]
fn watch_forks() {
    extern "C" fn before() {
        access::before_fork();
    }
    extern "C" fn in_parent() {
        access::after_fork(false);
    }
    extern "C" fn in_child() {
        access::after_fork(true);
    }
    // SAFETY: the handlers only take and give back a lock; they go away with this library, which the system sees to.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

#[cfg(not(all(feature = "std", unix)))]
fn watch_forks() {}
