//! Publishes the access table, which records all accesses in progress to the elements of tensors. The table is
//! published as a type attribute, so that all libraries of the process share it.

use core::ffi::c_void;

use anyfn::access;

/// Returns the name and the value of a type attribute of `ffi.Tensor`. Other libraries find the access table
/// through this attribute. The value is the address of the table's functions.
pub(crate) fn attribute() -> (&'static str, *mut c_void) {
    watch_forks();
    let (name, functions) = access::functions();
    (name, core::ptr::from_ref(functions).cast_mut().cast())
}

/// Registers fork handlers. After a fork only one thread exists in the child process, so the handlers remove
/// the accesses of the other threads from the child's access table.
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
