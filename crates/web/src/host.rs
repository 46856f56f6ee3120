//! Functions that the host of the module, JavaScript code, provides. None of them throws.

use core::ffi::c_int;

use anyfn::abi::{DLTensor, TVMFFIAny};

#[link(wasm_import_module = "anyfn")]
unsafe extern "C" {
    /// Calls the JavaScript function with a number. Stores an owned value and returns 0, or stores an error object and returns -1.
    pub(crate) safe fn host_call(id: u32, args: *const TVMFFIAny, count: i32, result: *mut TVMFFIAny) -> c_int;

    /// Releases the JavaScript value with a number.
    pub(crate) safe fn host_drop(id: u32);

    /// Returns 1 if a call in progress has lent a typed array as this tensor, else 0.
    pub(crate) safe fn host_is_lent(tensor: *const DLTensor) -> c_int;

    /// Fills memory with random bytes that are fit for cryptography. Returns 0, or -1 if the host has none.
    #[cfg(feature = "session")]
    pub(crate) safe fn host_random(memory: *mut u8, size: usize) -> c_int;

    /// Returns the seconds since a fixed time, which never decrease.
    #[cfg(feature = "session")]
    pub(crate) safe fn host_now() -> f64;
}
