//! Functions that compiled code calls by symbol: they run tasks on worker threads and allocate
//! workspaces.
//!
//! They are not part of the function table, because a runtime may be built without them. A library that was compiled
//! for the host has a pointer variable for each of these functions that it uses. The variable is named `__TVM..` after
//! the function, and the loader fills it. C source calls the functions by name.

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

/// State that the tasks of one parallel launch share.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TVMParallelGroupEnv {
    /// Opaque identifier of the launch, which `TVMBackendParallelBarrier` uses.
    pub sync_handle: *mut c_void,
    /// Number of tasks of the launch.
    pub num_task: i32,
}

backend! {
    /// Runs `task(i, env, cdata)` for each `i` below `num_task` and waits for all tasks.
    ///
    /// The tasks run on this thread and on worker threads. If `num_task` is 0, the number of tasks is the
    /// number of threads. If a task returns a value other than 0, the other tasks still run to completion, and
    /// then the first error that occurred is raised. A task may itself launch tasks.
    fn TVMBackendParallelLaunch(
        task: Option<unsafe extern "C" fn(task_id: c_int, env: *mut TVMParallelGroupEnv, cdata: *mut c_void) -> c_int>,
        cdata: *mut c_void,
        num_task: c_int,
    ) -> c_int;

    /// Waits until all tasks of the launch have reached the barrier. A task passes the `task_id` and `env` that it
    /// received.
    ///
    /// Raises `RuntimeError` if a task of the launch has returned without reaching the barrier, because the wait would
    /// never end.
    fn TVMBackendParallelBarrier(task_id: c_int, env: *mut TVMParallelGroupEnv) -> c_int;

    /// Allocates temporary memory on a device. Memory on the host is aligned to 64 bytes. The
    /// element type is only a hint.
    ///
    /// Returns NULL and raises an error if the memory cannot be allocated. The memory must be freed on the same thread,
    /// in any order.
    fn TVMBackendAllocWorkspace(
        device_type: c_int,
        device_id: c_int,
        nbytes: u64,
        dtype_code_hint: c_int,
        dtype_bits_hint: c_int,
    ) -> *mut c_void;

    /// Frees memory that `TVMBackendAllocWorkspace` has returned. Raises `ValueError` if this thread has not allocated
    /// `ptr`.
    fn TVMBackendFreeWorkspace(device_type: c_int, device_id: c_int, ptr: *mut c_void) -> c_int;
}
