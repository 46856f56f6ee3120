//! Making threads that disturb nobody.

use std::io;
#[cfg(not(loom))]
use std::{mem::MaybeUninit, sync::Once, thread};

/// Starts a thread of the model.
#[cfg(loom)]
pub(super) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    loom::thread::spawn(body);
    Ok(())
}

/// Starts a thread that gets no signals, so that handlers run where the program expects them. It is nobody's to join.
#[cfg(not(loom))]
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    keep_mapped();
    super::fork::watch();
    let old = block_signals();
    // What C programs have by default; compiled code keeps arrays on the stack.
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(8 << 20).spawn(body);
    if let Some(old) = old {
        // SAFETY: the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut()) };
    }
    thread.map(drop)
}

/// Blocks all signals of this thread but those that its own instructions cause; gives the old mask.
#[cfg(not(loom))]
fn block_signals() -> Option<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is writable.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP] {
        // SAFETY: the set has been filled.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set has been filled, and the old one is writable.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), old.as_mut_ptr()) };
    // SAFETY: written on success.
    (code == 0).then(|| unsafe { old.assume_init() })
}

/// The file with this code stays mapped from now on, since threads wait in it until the process ends.
#[cfg(not(loom))]
fn keep_mapped() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: asks about an address of this very code; `info` is writable.
        let found = unsafe { libc::dladdr((keep_mapped as *const ()).cast(), info.as_mut_ptr()) };
        // SAFETY: zeroed or filled, and all fields are plain data.
        let info = unsafe { info.assume_init() };
        if found != 0 && !info.dli_fname.is_null() {
            // SAFETY: a C string; the file is loaded already, so no code runs. A program is found by no name, and stays.
            unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
        }
    });
}
