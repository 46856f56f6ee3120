//! The runtime as a WebAssembly module, which the JavaScript package loads in pages and in Node.js.
//!
//! The package is a client of the exports of this module: memory and calls (`calls`), values (`values`) and the registered functions
//! named `anyfn.web.*` (`globals`), which the addon for Node.js implements by Node-API. JavaScript functions are objects that
//! refer to a number of the host's table (`js_function`); calling them calls an import (`host`). `module` contains modules whose code
//! is a second WebAssembly module, and modules of kernels; `webgpu` is the driver of the devices on which these run. `session` connects
//! the page with other processes.
//!
//! Protocol of exports that can fail: they return 0 and store an owned value, or return -1 and store an error object.
//!
//! Invariants: no JavaScript exception travels through a frame of this module, because frames of WebAssembly do not run destructors
//! then; the imports catch all exceptions. A panic ends the module: the host rejects all further calls.
// For other platforms the crate is empty: it consists of imports and exports of WebAssembly.
#![cfg(target_family = "wasm")]

use anyfn_host as _;

mod calls;
mod globals;
mod host;
mod js_function;
mod module;
#[cfg(feature = "session")]
mod session;
mod values;
mod webgpu;

use core::ffi::c_int;

use anyfn::{Any, Error};

/// Version of the imports and exports of this module, which the package compares with its own.
const VERSION: u32 = 1;

/// Prepares the module. Returns the version of its interface.
#[unsafe(no_mangle)]
extern "C" fn anyfn_web_init() -> u32 {
    values::register_tensor_owner();
    #[cfg(feature = "timing")]
    session::set_clock();
    VERSION
}

/// Stores an owned value or an error object. Returns 0 or -1.
///
/// # Safety
/// `out` must be writable, and must hold no value.
unsafe fn store(result: Result<Any, Error>, out: *mut anyfn::abi::TVMFFIAny) -> c_int {
    let (code, value) = match result {
        Ok(value) => (0, value),
        Err(error) => (-1, Any::from(error.into_object())),
    };
    // SAFETY: guaranteed by the caller.
    unsafe { out.write(value.into_raw()) };
    code
}
