//! Makes the access table visible to all libraries of the process; the table itself is part of `anyfn`.

use core::ffi::c_void;

use anyfn::access;

/// Returns the name and value of the attribute of the tensor type that other libraries read.
pub(crate) fn attribute() -> (&'static str, *mut c_void) {
    watch_forks();
    let (name, functions) = access::functions();
    (name, core::ptr::from_ref(functions).cast_mut().cast())
}

/// Registers fork handlers: a child process has one thread, so its table must not keep the accesses of other threads.
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
    // SAFETY: the handlers only take and release a lock; the system removes them when it unmaps this library.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

#[cfg(not(all(feature = "std", unix)))]
fn watch_forks() {}
