//! Safe wrappers of system calls for the server.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, pid_t};

use crate::poll::set_nonblocking;
pub(crate) use crate::poll::{Polled, poll};

/// Converts the result of a system call: -1 becomes the error in `errno`.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of the descriptor that a system call has returned.
///
/// # Safety
/// `result` must be -1, or a descriptor that the call has created and that no other code knows.
unsafe fn owned(result: c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the descriptor is open, and no other code owns it, as the caller guarantees.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes ownership of the two descriptors that a system call has created.
///
/// # Safety
/// The call must have created both, and no other code may know them.
unsafe fn owned_pair(fds: [c_int; 2]) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: no other code owns the first, as the caller guarantees.
    let first = unsafe { owned(fds[0]) };
    // SAFETY: no other code owns the second, as the caller guarantees.
    let second = unsafe { owned(fds[1]) };
    Ok((first?, second?))
}

/// Creates a pair of connected sockets that preserve message boundaries and are closed by `exec`.
pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `socketpair` writes two descriptors, for which the array has room.
    check(unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())
    })?;
    // SAFETY: `socketpair` has just created both, and only this array contains their numbers.
    unsafe { owned_pair(fds) }
}

/// Creates an event descriptor, which becomes readable once the event is signalled.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: `eventfd` takes two integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: `eventfd` has just created the descriptor.
    unsafe { owned(fd) }
}

/// Signals an event. The descriptor of the event then stays readable.
pub(crate) fn signal_event(event: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `one` is on this stack and has the eight bytes that are read. The only possible failure is a full counter, which is
    // readable too.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Creates a process descriptor, which becomes readable when the process ends.
pub(crate) fn process(pid: pid_t) -> io::Result<OwnedFd> {
    // SAFETY: `pidfd_open` takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: `pidfd_open` has just created the descriptor.
    unsafe { owned(fd as c_int) }
}

/// Sends a signal to a process, which must not have been reaped yet.
pub(crate) fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: `kill` takes two integers. If the process has already ended, nothing has to be done.
    unsafe { libc::kill(pid, signal) };
}

/// Sends a signal to a process and its process group. The process must not have been reaped yet.
pub(crate) fn kill_group(pid: pid_t, signal: c_int) {
    // A process that has not reached `setsid` yet leads no group.
    kill(pid, signal);
    // SAFETY: `killpg` takes two integers.
    unsafe { libc::killpg(pid, signal) };
}

/// Kills a child process and collects its exit status.
pub(crate) fn kill_now(pid: pid_t) {
    kill(pid, libc::SIGKILL);
    // SAFETY: with a null pointer `waitpid` does not return the status.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// Exit status of a process, and the resources that it used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    /// Exit status in the format of `wait`; `None` if other code has already collected it.
    pub(crate) status: Option<c_int>,
    /// CPU time of the process, including the child processes whose exit status it has collected.
    pub(crate) cpu: Duration,
    /// Maximum resident set size of the process, in bytes.
    pub(crate) memory_bytes: u64,
}

/// Returns true if a child process has ended. Does not collect its exit status. Returns an error if the
/// process is not a child of this process, or other code has already collected its exit status.
pub(crate) fn has_ended(pid: pid_t) -> io::Result<bool> {
    // SAFETY: `siginfo_t` consists of integers and unions of integers and pointers, which may all be zero.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `waitid` writes to `info`, which is on this stack; its other arguments are integers.
    check(unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, flags) })?;
    // SAFETY: this reads an integer of a union: `waitid` has filled in the member for children, or left the zeros, which are an
    // integer too.
    Ok(unsafe { info.si_pid() } == pid)
}

/// Collects the exit status and resource use of a process that has ended. Never blocks.
pub(crate) fn take_end(pid: pid_t) -> Ended {
    let mut status = 0;
    // SAFETY: `rusage` consists of integers, which may be zero.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `wait4` writes to `status` and `usage`, which are on this stack.
    let taken = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    let time = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    Ended {
        status: (taken == pid).then_some(status),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    }
}

/// Returns the Landlock interface version that the kernel supports.
pub(crate) fn landlock_version() -> io::Result<c_int> {
    const VERSION: c_int = 1;
    // SAFETY: with this flag the call takes no rules, but a null pointer and the size 0.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    check(version as c_int)
}

/// Prevents other processes of the same user from tracing this process and from reading its memory or its
/// entries in `/proc`. Also prevents core dumps, which would contain secrets.
pub(crate) fn keep_others_out() {
    // SAFETY: `PR_SET_DUMPABLE` takes an integer. It cannot fail with 0.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

/// Exits this process immediately, without running destructors or exit handlers.
pub(crate) fn exit_now(status: c_int) -> ! {
    // SAFETY: `_exit` may be called at any time, on any thread.
    unsafe { libc::_exit(status) }
}

/// Makes this process the parent of processes that its descendants leave behind (a child subreaper). Returns
/// true on success.
pub(crate) fn adopt_orphans() -> bool {
    // SAFETY: `PR_SET_CHILD_SUBREAPER` takes an integer.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) == 0 }
}

/// Returns the ids of all child processes of this process, whichever thread started them.
pub(crate) fn children() -> Vec<pid_t> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Returns the id of the POSIX session that a process belongs to.
pub(crate) fn session_of(pid: pid_t) -> pid_t {
    // SAFETY: `getsid` takes an integer.
    unsafe { libc::getsid(pid) }
}

/// Creates a pipe whose read end does not block. Both ends are closed by `exec`.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `pipe2` writes two descriptors, for which the array has room.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: `pipe2` has just created both, and only this array contains their numbers.
    let (reader, writer) = unsafe { owned_pair(fds) }?;
    set_nonblocking(reader.as_fd())?;
    Ok((reader, writer))
}

/// Reads the bytes that a pipe contains, up to the size of `buffer`. Returns their number, which is
/// 0 at the end of the pipe.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `read` writes at most `len` bytes to the slice, which is borrowed mutably; `fd` is borrowed, so it is open.
    let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Returns true if an error means that the system has run out of descriptors, processes or memory.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Sends a message over a channel without blocking.
pub(crate) fn send(fd: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `send` reads `len` bytes of the slice; `fd` is borrowed, so it is open.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message from a channel. Returns its size, which is 0 at the end of the channel and exceeds the
/// buffer if the message did not fit. If `wait` is false and no message has arrived, returns `WouldBlock`.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: `recv` writes at most `len` bytes to the slice, which is borrowed mutably, whatever it returns; `fd` is
        // borrowed, so it is open.
        let got = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        match usize::try_from(got) {
            Ok(got) => return Ok(got),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Type of constants such as `RLIMIT_AS`, which identify resource limits. The type differs between C libraries.
#[cfg(target_env = "gnu")]
pub(crate) type Resource = libc::__rlimit_resource_t;
/// Type of constants such as `RLIMIT_AS`, which identify resource limits. The type differs between C libraries.
#[cfg(not(target_env = "gnu"))]
pub(crate) type Resource = c_int;

/// Sets the soft and the hard limit of a resource of a process to `most`, or to the current hard
/// limit if that is lower.
pub(crate) fn limit(pid: pid_t, resource: Resource, most: u64) -> io::Result<()> {
    limit_with_grace(pid, resource, most, 0)
}

/// Sets the soft limit of a resource of a process to `most`, and the hard limit to `most` plus
/// `grace`. Neither is set above the current hard limit. At the soft limit, the process receives a
/// signal that shows which limit it has reached.
pub(crate) fn limit_with_grace(pid: pid_t, resource: Resource, most: u64, grace: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: with a null pointer for the new limits none are set; the old ones are written to `now`, which is on this stack.
    check(unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut now) })?;
    let mut new = capped(now, most.saturating_add(grace));
    new.rlim_cur = capped(now, most).rlim_cur;
    // SAFETY: `new` is on this stack and only read; with a null pointer the old limits are not returned.
    check(unsafe { libc::prlimit(pid, resource, &raw const new, std::ptr::null_mut()) }).map(drop)
}

/// Returns a soft and a hard limit that both equal `most`, or the hard limit in `now` if that is
/// lower.
pub(crate) fn capped(now: libc::rlimit, most: u64) -> libc::rlimit {
    let most = libc::rlim_t::try_from(most).unwrap_or(libc::RLIM_INFINITY).min(now.rlim_max);
    libc::rlimit { rlim_cur: most, rlim_max: most }
}

/// Configures keep-alive, so that the kernel detects a dead peer: within half a minute while data is in
/// transit, otherwise within a minute.
pub(crate) fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    let set = |level: c_int, name: c_int, value: c_int| {
        let size = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: `setsockopt` reads `size` bytes of `value`, which is on this stack and has the type that these options take.
        check(unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), size) })
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 20)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
    set(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 30_000)?;
    stream.set_nodelay(true)
}

/// Waits for a termination signal and returns its number. All threads must have blocked these signals.
pub(crate) fn wait_for_end() -> c_int {
    let set = end_signals();
    loop {
        let mut signal = 0;
        // SAFETY: `sigwait` reads `set` and writes `signal`, which are on this stack.
        if unsafe { libc::sigwait(&raw const set, &raw mut signal) } == 0 {
            return signal;
        }
    }
}

/// Blocks termination signals on this thread and the threads that it starts later, so that [`wait_for_end`]
/// receives them.
pub(crate) fn block_end_signals() {
    let set = end_signals();
    // SAFETY: `set` is on this stack and only read; with a null pointer the old set is not returned.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

fn end_signals() -> libc::sigset_t {
    // SAFETY: `sigset_t` is an array of integers, which may be zero.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is on this stack and not borrowed.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: `set` was initialised by `sigemptyset` and is on this stack; a number that is not a signal would be an error.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
