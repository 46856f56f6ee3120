//! The compiler as a plugin: a library like any other, which a program loads when it wants to compile. The runtime has
//! nothing of it.

extern crate anyfn_compiler as _;

use std::ffi::c_int;

use anyfn_abi::AnyfnApi;

/// Called by the loader before anything else: gives the library the functions of the runtime that loads it, whatever other
/// runtime shows its own to all libraries of the process. Zero if it can work with them.
///
/// # Safety
/// `api` is the table of a runtime that is never closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __anyfn_attach(api: *const AnyfnApi) -> c_int {
    // SAFETY: `api` is the table of a runtime that is never closed, by this function's own contract, which is what is asked for.
    match unsafe { anyfn_attach::attach_table(api) } {
        Ok(()) => 0,
        Err(_) => -1,
    }
}

anyfn::export!();
