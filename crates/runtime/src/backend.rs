//! C functions that compiled code calls by symbol, and the context symbols: variables of a compiled library into which
//! the loader writes the addresses of these functions.
#![allow(
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "the functions are exported by name, and their declarations have the documentation"
)]

use core::ffi::{c_int, c_void};

use anyfn::__private::{CONTEXT_SYMBOLS, ContextSymbol, entry, trampoline};
use anyfn::abi::TVMParallelGroupEnv;
use anyfn::{Device, bail};

use crate::threads::{self, Task};
use crate::workspace;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendParallelLaunch(
    task: Option<Task>,
    cdata: *mut c_void,
    num_task: c_int,
) -> c_int {
    trampoline(|| match task {
        // SAFETY: by the ABI, `task` may be called with `cdata` on any thread.
        Some(task) => unsafe { threads::launch(task, cdata, num_task) },
        None => bail!("ValueError", "TVMBackendParallelLaunch: argument `task` is NULL"),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendParallelBarrier(_task_id: c_int, env: *mut TVMParallelGroupEnv) -> c_int {
    trampoline(|| {
        // SAFETY: by the ABI, `env` is NULL or the pointer that the task received.
        match unsafe { env.as_ref() } {
            // SAFETY: by the ABI, this is the group of the running task, which its launch keeps alive.
            Some(group) => unsafe { threads::barrier(group) },
            None => bail!("ValueError", "TVMBackendParallelBarrier: argument `env` is NULL"),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendAllocWorkspace(
    device_type: c_int,
    device_id: c_int,
    nbytes: u64,
    _dtype_code_hint: c_int,
    _dtype_bits_hint: c_int,
) -> *mut c_void {
    let mut start = core::ptr::null_mut();
    trampoline(|| {
        start = workspace::allocate(Device::new(device_type, device_id), nbytes)?;
        Ok(())
    });
    start
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendFreeWorkspace(
    device_type: c_int,
    device_id: c_int,
    ptr: *mut c_void,
) -> c_int {
    trampoline(|| workspace::free(Device::new(device_type, device_id), ptr))
}

macro_rules! slot {
    ($name:literal, $function:ident) => {
        entry!(CONTEXT_SYMBOLS: ContextSymbol = {
            // SAFETY: compiled code calls the variable of this name with this function's signature, and the function
            // is never unloaded.
            unsafe { ContextSymbol::new($name, || $function as *mut c_void) }
        });
    };
}

slot!(c"__TVMBackendParallelLaunch", TVMBackendParallelLaunch);
slot!(c"__TVMBackendParallelBarrier", TVMBackendParallelBarrier);
slot!(c"__TVMBackendAllocWorkspace", TVMBackendAllocWorkspace);
slot!(c"__TVMBackendFreeWorkspace", TVMBackendFreeWorkspace);
