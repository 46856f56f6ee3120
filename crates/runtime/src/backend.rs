//! The functions that compiled code calls by symbol, and the slots of libraries that get their addresses.
#![allow(
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "the functions are exported by name, and their declarations have the documentation"
)]

use core::ffi::{c_int, c_void};

use anyfn::__private::{CONTEXT_SYMBOLS, ContextSymbol, linkme, trampoline};
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
        // SAFETY: the ABI asks for a task that is fit to run with `cdata` on any thread.
        Some(task) => unsafe { threads::launch(task, cdata, num_task) },
        None => bail!("ValueError", "TVMBackendParallelLaunch: argument `task` is NULL"),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendParallelBarrier(_task_id: c_int, env: *mut TVMParallelGroupEnv) -> c_int {
    trampoline(|| {
        // SAFETY: the ABI asks for what the task was given.
        match unsafe { env.as_ref() } {
            // SAFETY: the ABI asks for the group that the running task was given, which its launch keeps alive.
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
    ($entry:ident, $name:literal, $function:ident) => {
        #[linkme::distributed_slice(CONTEXT_SYMBOLS)]
        #[linkme(crate = linkme)]
        // SAFETY: compiled code calls the variable of this name with the signature of this function, which never goes.
        static $entry: ContextSymbol = unsafe { ContextSymbol::new($name, || $function as *mut c_void) };
    };
}

slot!(LAUNCH, c"__TVMBackendParallelLaunch", TVMBackendParallelLaunch);
slot!(BARRIER, c"__TVMBackendParallelBarrier", TVMBackendParallelBarrier);
slot!(ALLOC, c"__TVMBackendAllocWorkspace", TVMBackendAllocWorkspace);
slot!(FREE, c"__TVMBackendFreeWorkspace", TVMBackendFreeWorkspace);
