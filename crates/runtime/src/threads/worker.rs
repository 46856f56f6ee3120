//! Creation of threads that do not interfere with the host program.

use std::io;
#[cfg(not(loom))]
use std::{mem::MaybeUninit, sync::Once, thread};

/// Starts a thread of the crate loom, for tests that explore all interleavings of threads.
#[cfg(loom)]
pub(super) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    loom::thread::spawn(body);
    Ok(())
}

/// Starts a detached thread that receives no signals, so that signal handlers run on the host program's own threads.
#[cfg(not(loom))]
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    keep_mapped();
    super::fork::watch();
    let old = block_signals();
    // Default stack size of C programs. Compiled code keeps arrays on the stack.
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(8 << 20).spawn(body);
    if let Some(old) = old {
        // SAFETY: `old` is the previous mask of this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut()) };
    }
    thread.map(drop)
}

/// Blocks all signals of this thread except those that a fault of the thread itself causes, such as `SIGSEGV`. Returns
/// the previous signal mask.
#[cfg(not(loom))]
fn block_signals() -> Option<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is writable.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP] {
        // SAFETY: `set` has been filled.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` has been filled, and `old` is writable.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), old.as_mut_ptr()) };
    // SAFETY: `old` is written on success.
    (code == 0).then(|| unsafe { old.assume_init() })
}

/// Keeps the file that contains this code mapped permanently, because worker threads wait in this code until the
/// process ends.
#[cfg(not(loom))]
fn keep_mapped() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the address is that of this function; `info` is writable.
        let found = unsafe { libc::dladdr((keep_mapped as *const ()).cast(), info.as_mut_ptr()) };
        // SAFETY: zeroed or filled, and all fields are plain data.
        let info = unsafe { info.assume_init() };
        if found != 0 && !info.dli_fname.is_null() {
            // SAFETY: a C string; the file is loaded already, so no code runs. `dlopen` may not find the main program
            // by this name, but that is never unmapped.
            unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
        }
    });
}
