//! The compiler as a plugin, a library that a program loads when it needs to compile. The runtime contains no
//! part of the compiler.

extern crate anyfn_compiler as _;

use std::ffi::c_int;

use anyfn_abi::AnyfnApi;

/// Attaches this library to the runtime that loads it, even if another runtime in the process
/// exports its symbols globally. The loader calls this function before any other. Returns 0 if the
/// library can work with the runtime, -2 if another runtime uses it already, and -1 otherwise.
///
/// # Safety
/// `api` must be the function table of a runtime that is never closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __anyfn_attach(api: *const AnyfnApi) -> c_int {
    // SAFETY: the requirements are the same.
    unsafe { anyfn_attach::answer(api) }
}

anyfn::export!();
