//! Signals: their names, and blocking them on a thread.

use libc::c_int;

/// Signals that end a process, with their names.
const NAMES: &[(c_int, &str)] = &[
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGSYS, "SIGSYS"),
];

/// Describes a signal by its number and, if known, its name, such as `signal 11 (SIGSEGV)`.
pub(crate) fn describe(signal: c_int) -> String {
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

/// Signals that report a fault of the running thread, such as an invalid memory access or an abort.
/// If they were blocked, a fault would end the process without calling its signal handlers.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP];

/// Blocks all signals on this thread except [`FAULTS`], so that other threads of the program handle
/// them.
pub(crate) fn block_all() {
    // SAFETY: `sigset_t` is an array of integers, which may be zero.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is on this stack and not borrowed.
    unsafe { libc::sigfillset(&raw mut all) };
    for signal in FAULTS {
        // SAFETY: `sigfillset` has initialised `all`, which is on this stack and not borrowed.
        unsafe { libc::sigdelset(&raw mut all, signal) };
    }
    // SAFETY: `all` is only read; with a null pointer the old set is not returned.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
}
