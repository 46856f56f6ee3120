//! The VM of the process, and the environments of threads. A native thread is attached when it first needs Java, as a daemon, so that
//! it does not keep the VM from exiting, and is detached when it ends.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::{AttachArgs, Env, OK, VERSION, Vm};

static VM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Detaches a thread that this library has attached when the thread ends.
struct Attached(Cell<bool>);

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(vm) = vm()
            && self.0.get()
        {
            // SAFETY: this thread is attached, and runs no Java code while its values are dropped.
            unsafe { vm.detach_current_thread() };
        }
    }
}

thread_local! {
    static ATTACHED: Attached = const { Attached(Cell::new(false)) };
}

/// Records the VM that has loaded the library.
pub(crate) fn set_vm(vm: Vm) {
    VM.store(vm.as_ptr(), Ordering::Release);
}

fn vm() -> Option<Vm> {
    let vm = VM.load(Ordering::Acquire);
    // SAFETY: a VM stays in its process.
    (!vm.is_null()).then(|| unsafe { Vm::from_ptr(vm) })
}

/// Returns the environment of this thread, which is attached if necessary. Returns `None` if the VM or the thread is ending.
pub(crate) fn env() -> Option<Env> {
    let vm = vm()?;
    let mut env = ptr::null_mut();
    // SAFETY: `env` is writable.
    if unsafe { vm.get_env(&mut env, VERSION) } == OK {
        // SAFETY: this is the environment of this thread.
        return Some(unsafe { Env::from_ptr(env) });
    }
    let args = AttachArgs { version: VERSION, name: c"anyfn".as_ptr(), group: ptr::null_mut() };
    ATTACHED
        .try_with(|attached| {
            // SAFETY: `env` is writable, and the arguments are valid during the call.
            let status = unsafe { vm.attach_current_thread_as_daemon(&mut env, &args) };
            attached.0.set(status == OK);
            // SAFETY: this is the environment of this thread.
            (status == OK).then(|| unsafe { Env::from_ptr(env) })
        })
        .ok()
        .flatten()
}

/// Returns true if this library has attached the thread.
pub(crate) fn is_attached_here() -> bool {
    ATTACHED.try_with(|attached| attached.0.get()).unwrap_or(false)
}
