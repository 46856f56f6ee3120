//! The functions that compiled code calls by symbol: worker threads and workspaces.
//!
//! They are no part of the function table, since a runtime may be built without them. A library that was compiled for
//! the host has a pointer variable for each that it uses, named `__TVM..` after the function, which the loader fills; C
//! source calls them by name.

use core::ffi::{c_int, c_void};

macro_rules! backend {
    ($( $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?; )*) => {
        unsafe extern "C" {
            $( $(#[$doc])* pub fn $name($($arg: $ty),*) $(-> $ret)?; )*
        }

        /// Names of the functions that compiled code calls by symbol.
        pub const BACKEND_FUNCTION_NAMES: &[&str] = &[$( stringify!($name) ),*];
    };
}

/// What the tasks of one parallel launch share.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TVMParallelGroupEnv {
    /// The launch, for `TVMBackendParallelBarrier`.
    pub sync_handle: *mut c_void,
    /// Number of tasks.
    pub num_task: i32,
}

backend! {
    /// Runs `task(i, env, cdata)` for each `i` below `num_task`, on this thread and on worker threads, and waits for all.
    ///
    /// 0 tasks means as many as there are threads. If a task returns other than 0, the others still run to their end;
    /// then the first error that came is raised. A task may launch tasks itself.
    fn TVMBackendParallelLaunch(
        task: Option<unsafe extern "C" fn(task_id: c_int, env: *mut TVMParallelGroupEnv, cdata: *mut c_void) -> c_int>,
        cdata: *mut c_void,
        num_task: c_int,
    ) -> c_int;

    /// Waits until all tasks of the launch have come here; called by a task with what it was given.
    ///
    /// `RuntimeError` if one of them has ended without, so that waiting would never end.
    fn TVMBackendParallelBarrier(task_id: c_int, env: *mut TVMParallelGroupEnv) -> c_int;

    /// Allocates temporary memory on a device, aligned to 64 bytes on the host; the type of the elements is a hint.
    ///
    /// NULL if there is none, and an error is raised. To be freed on the same thread, in any order.
    fn TVMBackendAllocWorkspace(
        device_type: c_int,
        device_id: c_int,
        nbytes: u64,
        dtype_code_hint: c_int,
        dtype_bits_hint: c_int,
    ) -> *mut c_void;

    /// Gives memory of `TVMBackendAllocWorkspace` back. `ValueError` for what this thread has not allocated.
    fn TVMBackendFreeWorkspace(device_type: c_int, device_id: c_int, ptr: *mut c_void) -> c_int;
}
