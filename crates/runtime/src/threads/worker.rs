//! Creation of threads that do not interfere with the host program.

use core::ffi::CStr;
#[cfg(not(loom))]
use core::ffi::{c_int, c_void};
use std::io;
#[cfg(not(loom))]
use std::{mem::MaybeUninit, ptr, sync::Once};

/// Body of a thread.
#[cfg(not(loom))]
type Body = Box<dyn FnOnce() + Send>;

/// Starts a thread of the crate loom, for tests that explore all interleavings of threads.
#[cfg(loom)]
pub(super) fn spawn(_name: &'static CStr, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    loom::thread::spawn(body);
    Ok(())
}

/// Starts a detached thread that receives no signals except those caused by its own faults, so that
/// signal handlers run on the host program's own threads.
#[cfg(not(loom))]
pub(super) fn spawn(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    keep_mapped();
    super::fork::watch();
    let old = block_signals();
    let code = create(name, Box::new(body));
    if let Some(old) = old {
        // SAFETY: `old` is the previous mask of this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut()) };
    }
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Starts a detached thread. Returns 0, or the error number of the system. Does not use
/// `std::thread`, which would add hooks, names and thread handles that these threads do not need to
/// a library built for size.
#[cfg(not(loom))]
fn create(name: &'static CStr, body: Body) -> c_int {
    let mut options = MaybeUninit::uninit();
    // SAFETY: the options are writable.
    let code = unsafe { libc::pthread_attr_init(options.as_mut_ptr()) };
    if code != 0 {
        return code;
    }
    // Default stack size of C programs. Compiled code keeps arrays on the stack.
    // SAFETY: the options are initialised.
    unsafe { libc::pthread_attr_setstacksize(options.as_mut_ptr(), 8 << 20) };
    // SAFETY: the options are initialised.
    unsafe { libc::pthread_attr_setdetachstate(options.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    let start = Box::into_raw(Box::new((name, body)));
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the options are initialised, and the new thread becomes the owner of what it starts with.
    let code = unsafe { libc::pthread_create(thread.as_mut_ptr(), options.as_ptr(), run, start.cast()) };
    // SAFETY: the options are initialised and not used any more.
    unsafe { libc::pthread_attr_destroy(options.as_mut_ptr()) };
    if code != 0 {
        // SAFETY: allocated above; there is no thread that owns it.
        drop(unsafe { Box::from_raw(start) });
    }
    code
}

/// Runs the body of a new thread. A panic ends only the thread.
#[cfg(not(loom))]
extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `create` has allocated it for this thread.
    let start = unsafe { Box::from_raw(start.cast::<(&'static CStr, Body)>()) };
    let (name, body) = *start;
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the function has no requirements.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: the thread is this one, and the name is a C string.
        unsafe { libc::pthread_setname_np(this, name.as_ptr()) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name;
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)));
    ptr::null_mut()
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
