//! What the server asks of the kernel, as safe functions.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, pid_t};

/// `-1` as the error that it announces.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes what a call returned as a descriptor of our own.
///
/// # Safety
/// It is -1, or a descriptor that the call has made and that nothing else knows.
unsafe fn owned(result: c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the descriptor is open and nobody else's, as the caller guarantees.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Both descriptors that a call has made.
///
/// # Safety
/// The call has made them, and nothing else knows them.
unsafe fn owned_pair(fds: [c_int; 2]) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: the first is nobody else's, as the caller guarantees.
    let first = unsafe { owned(fds[0]) };
    // SAFETY: the second is nobody else's, as the caller guarantees.
    let second = unsafe { owned(fds[1]) };
    Ok((first?, second?))
}

/// Two ends of a channel that keeps messages apart; both are closed by `exec`.
pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `socketpair` writes two descriptors, for which the array has room.
    check(unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())
    })?;
    // SAFETY: `socketpair` has just made both, and only this array has their numbers.
    unsafe { owned_pair(fds) }
}

/// A counter that makes `poll` return.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: `eventfd` takes two numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: `eventfd` has just made the descriptor.
    unsafe { owned(fd) }
}

/// Makes the event readable for ever.
pub(crate) fn signal_event(event: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `one` is on this stack and has the eight bytes that are read of it. The only failure is a counter that is full, which is readable too.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn process(pid: pid_t) -> io::Result<OwnedFd> {
    // SAFETY: `pidfd_open` takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: `pidfd_open` has just made the descriptor.
    unsafe { owned(fd as c_int) }
}

/// Sends a signal to a process that has not been waited for.
pub(crate) fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: `kill` takes two numbers. A process that is gone already is no failure.
    unsafe { libc::kill(pid, signal) };
}

/// Sends a signal to a process and all of its group; it must not have been waited for.
pub(crate) fn kill_group(pid: pid_t, signal: c_int) {
    // A process that has not come to `setsid` yet leads no group.
    kill(pid, signal);
    // SAFETY: `killpg` takes two numbers.
    unsafe { libc::killpg(pid, signal) };
}

/// Kills a process of ours that nobody has been told of, and takes its end.
pub(crate) fn kill_now(pid: pid_t) {
    kill(pid, libc::SIGKILL);
    // SAFETY: a null pointer tells `waitpid` that the status is not asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// How a process ended, and what it used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    /// As `wait` tells it; none if somebody else has taken it.
    pub(crate) status: Option<c_int>,
    /// Processor time, of it and of what it waited for.
    pub(crate) cpu: Duration,
    /// Most memory at one time.
    pub(crate) memory_bytes: u64,
}

/// Whether a process of ours has ended and can be waited for; an error if it is none of ours (any more).
pub(crate) fn has_ended(pid: pid_t) -> io::Result<bool> {
    // SAFETY: `siginfo_t` is made of integers and unions of integers and pointers, which all may be zero.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `waitid` writes to `info`, which is on this stack, and takes numbers beside it.
    check(unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, flags) })?;
    // SAFETY: reads an integer of a union: `waitid` has filled in the member for children, or left the zeros, which are one too.
    Ok(unsafe { info.si_pid() } == pid)
}

/// Takes the end of a process that is over. Never blocks.
pub(crate) fn take_end(pid: pid_t) -> Ended {
    let mut status = 0;
    // SAFETY: `rusage` is made of integers, which may be zero.
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

/// Version of the kernel's Landlock.
pub(crate) fn landlock_version() -> io::Result<c_int> {
    const VERSION: c_int = 1;
    // SAFETY: with this flag the call takes no rules: a null pointer, of size 0.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    check(version as c_int)
}

/// Keeps others of the same user from tracing this process and from reading its memory and its entries below `/proc`; it writes no
/// core file, which would hold secrets.
pub(crate) fn keep_others_out() {
    // SAFETY: `PR_SET_DUMPABLE` takes a number. It cannot fail with 0.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

/// Ends this process without anything else.
pub(crate) fn exit_now(status: c_int) -> ! {
    // SAFETY: `_exit` may be called at any time, on any thread.
    unsafe { libc::_exit(status) }
}

/// Makes this process the parent of those that its descendants leave behind.
pub(crate) fn adopt_orphans() -> bool {
    // SAFETY: `PR_SET_CHILD_SUBREAPER` takes a number.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) == 0 }
}

/// Children of this process, whichever of its threads they belong to.
pub(crate) fn children() -> Vec<pid_t> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Number of the session of processes that a process belongs to.
pub(crate) fn session_of(pid: pid_t) -> pid_t {
    // SAFETY: `getsid` takes a number.
    unsafe { libc::getsid(pid) }
}

/// A pipe whose reading end does not wait; both ends are closed by `exec`.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `pipe2` writes two descriptors, for which the array has room.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: `pipe2` has just made both, and only this array has their numbers.
    let (reader, writer) = unsafe { owned_pair(fds) }?;
    // SAFETY: `F_SETFL` takes a number; the descriptor is open as long as `reader` lives.
    check(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok((reader, writer))
}

/// Reads what there is in a pipe; 0 at its end.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `read` writes at most `len` bytes to the slice, which is borrowed mutably; `fd` is borrowed, so it is open.
    let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Whether an error says that there are too few descriptors, processes or memory now; later there may be enough.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// What a descriptor is asked for, and what it has, in a call of [`poll`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Polled(libc::pollfd);

impl Polled {
    /// Asks whether something can be read.
    pub(crate) fn read(fd: BorrowedFd<'_>) -> Polled {
        Polled(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 })
    }

    /// Asks whether the other end is gone.
    pub(crate) fn closed(fd: BorrowedFd<'_>) -> Polled {
        Polled(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 })
    }

    /// Whether there is something to read, an end included.
    pub(crate) fn is_readable(&self) -> bool {
        self.0.revents != 0
    }

    /// Whether the other end is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

/// Waits until one of them has what it is asked for, or the time is over; without a time for as long as it takes.
pub(crate) fn poll(all: &mut [Polled], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up: a deadline must be over when the call returns, or the caller would go round and round.
    let milliseconds = match timeout {
        None => -1,
        Some(timeout) => c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX),
    };
    // SAFETY: `Polled` is a transparent `pollfd`; `poll` writes to as many of them as the slice has, which is borrowed mutably.
    let result = unsafe { libc::poll(all.as_mut_ptr().cast(), all.len() as libc::nfds_t, milliseconds) };
    match check(result) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            for one in all {
                one.0.revents = 0;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Sends a message without waiting.
pub(crate) fn send(fd: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `send` reads `len` bytes of the slice; `fd` is borrowed, so it is open.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message; its size, which is 0 at the end, and is larger than the buffer if it did not fit.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: `recv` writes at most `len` bytes to the slice, which is borrowed mutably, whatever it returns; `fd` is borrowed, so it
        // is open.
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

/// The type of the names of limits, which differs between C libraries.
#[cfg(target_env = "gnu")]
pub(crate) type Resource = libc::__rlimit_resource_t;
/// The type of the names of limits, which differs between C libraries.
#[cfg(not(target_env = "gnu"))]
pub(crate) type Resource = c_int;

/// Sets a limit of a process of ours, never above what its hard limit is now.
pub(crate) fn limit(pid: pid_t, resource: Resource, most: u64) -> io::Result<()> {
    limit_with_grace(pid, resource, most, 0)
}

/// The same, with a hard limit that lies higher: at the lower one the process gets the signal that tells why it ends.
pub(crate) fn limit_with_grace(pid: pid_t, resource: Resource, most: u64, grace: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a null pointer for the new limits sets none; the old ones are written to `now`, which is on this stack.
    check(unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut now) })?;
    let mut new = capped(now, most.saturating_add(grace));
    new.rlim_cur = capped(now, most).rlim_cur;
    // SAFETY: `new` is on this stack and only read; a null pointer for the old limits asks for none.
    check(unsafe { libc::prlimit(pid, resource, &raw const new, std::ptr::null_mut()) }).map(drop)
}

/// A limit that is no higher than the present one.
pub(crate) fn capped(now: libc::rlimit, most: u64) -> libc::rlimit {
    let most = libc::rlim_t::try_from(most).unwrap_or(libc::RLIM_INFINITY).min(now.rlim_max);
    libc::rlimit { rlim_cur: most, rlim_max: most }
}

/// Makes the kernel notice peers that are gone: within half a minute while data is under way, a minute otherwise.
pub(crate) fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    let set = |level: c_int, name: c_int, value: c_int| {
        let size = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: `setsockopt` reads `size` bytes of `value`, which is on this stack and of the type that these options take.
        check(unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), size) })
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 20)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
    set(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 30_000)?;
    stream.set_nodelay(true)
}

/// Blocks all signals on this thread, so that those of the program are taken by threads of the program.
pub(crate) fn block_signals() {
    // SAFETY: `sigset_t` is an array of integers, which may be zero.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is on this stack and borrowed by nobody.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: `all` is only read; a null pointer says that the old set is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
}

/// Waits for one of the signals that ask a program to end, and returns it. They must be blocked on all threads.
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

/// Blocks the signals that ask a program to end on this thread and those that it starts, for [`wait_for_end`].
pub(crate) fn block_end_signals() {
    let set = end_signals();
    // SAFETY: `set` is on this stack and only read; a null pointer says that the old set is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

fn end_signals() -> libc::sigset_t {
    // SAFETY: `sigset_t` is an array of integers, which may be zero.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is on this stack and borrowed by nobody.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: `set` was initialised by `sigemptyset` and is on this stack; a number that is no signal would be an error.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
