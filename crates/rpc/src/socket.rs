//! Wrapper of a connected stream socket (TCP or a Unix socket pair) and its system calls.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::polling::{POLL_TIME, Polling};

/// Place of the reason for which a transport behind a socket has ended; see [`Socket::with_reason`].
pub(crate) type Reason = Arc<Mutex<Option<String>>>;

/// Connected stream socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// Reason for which the transport behind this socket has ended, if it has one and knows it.
    reason: Option<Reason>,
    /// Number of successful reads, and number of attempts to write.
    #[cfg(test)]
    pub(crate) calls: [std::sync::atomic::AtomicU64; 2],
}

/// Maximum time that a read blocks, so that its thread can check for other events.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Returns true if `fd` is an open socket.
pub(crate) fn is_socket(fd: RawFd) -> bool {
    let mut kind: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `getsockopt` writes `size` bytes to `kind` and their number to `size`, which are on this stack; it returns an error
    // for a number that is not an open descriptor.
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut size) == 0 }
}

fn option<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: `setsockopt` reads `size` bytes of `value`, which is borrowed. The callers pass integers and a `timeval`, which have no
    // padding.
    let code = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), size) };
    check(code as isize).map(drop)
}

/// Configures a TCP socket: small messages are sent immediately, and keep-alive detects a dead peer machine within 30 seconds. A pair
/// of Unix sockets has none of these options, and needs none.
pub(crate) fn watch_peer(fd: BorrowedFd<'_>) {
    let tcp: [(i32, i32, i32); 6] = [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 30_000),
    ];
    for (level, name, value) in tcp {
        let _ = option(fd, level, name, &value);
    }
}

/// Returns true for an address that only programs of this machine can reach.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.is_loopback(),
            None => address.is_loopback(),
        },
        IpAddr::V4(address) => address.is_loopback(),
    }
}

fn check(code: isize) -> io::Result<usize> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code as usize) }
}

/// System calls for short messages, made without the wrappers of the C library. The wrappers are thread
/// cancellation points, which costs two atomic operations per call, although no thread is cancelled here.
#[cfg(target_os = "linux")]
mod direct {
    use std::ffi::{c_int, c_long};
    use std::os::fd::RawFd;
    use std::ptr::null;

    pub(super) fn receive(fd: RawFd, into: &mut [u8], flags: c_int) -> isize {
        let (fd, flags, nobody) = (c_long::from(fd), c_long::from(flags), null::<u8>());
        // SAFETY: the call writes at most `len` bytes to `into`, which is borrowed mutably; with null pointers it does not report
        // the sender's address.
        unsafe {
            libc::syscall(libc::SYS_recvfrom, fd, into.as_mut_ptr(), into.len(), flags, nobody, nobody) as isize
        }
    }

    pub(super) fn send(fd: RawFd, bytes: &[u8], flags: c_int) -> isize {
        let (fd, flags, nobody) = (c_long::from(fd), c_long::from(flags), null::<u8>());
        // SAFETY: the call reads `len` bytes of the slice; with a null pointer it sends them to the peer of the connection.
        unsafe {
            libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, nobody, 0_usize) as isize
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod direct {
    use std::ffi::c_int;
    use std::os::fd::RawFd;

    pub(super) fn receive(fd: RawFd, into: &mut [u8], flags: c_int) -> isize {
        // SAFETY: `recv` writes at most `len` bytes to `into`, which is borrowed mutably.
        unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), flags) }
    }

    pub(super) fn send(fd: RawFd, bytes: &[u8], flags: c_int) -> isize {
        // SAFETY: `send` reads `len` bytes of the slice.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) }
    }
}

impl Socket {
    /// Takes ownership of a connected socket and configures it: reads time out after [`LOOK`], small messages
    /// are sent immediately, and keep-alive detects a dead peer machine. The last two apply only to TCP.
    ///
    /// # Errors
    /// Returns an error if `fd` is not a socket.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Socket> {
        let socket = Socket {
            fd,
            reason: None,
            #[cfg(test)]
            calls: Default::default(),
        };
        let wait = libc::timeval { tv_sec: 0, tv_usec: LOOK.subsec_micros() as libc::suseconds_t };
        option(socket.fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, &wait)?;
        watch_peer(socket.fd.as_fd());
        Ok(socket)
    }

    /// Sets the place of the reason for which the transport behind this socket ends. It is set before this socket is closed.
    #[cfg(feature = "websocket")]
    pub(crate) fn with_reason(mut self, reason: Reason) -> Socket {
        self.reason = Some(reason);
        self
    }

    /// Returns the reason for which the transport behind this socket has ended, if it is known.
    pub(crate) fn reason(&self) -> Option<String> {
        let reason = self.reason.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone().filter(|reason| !reason.is_empty())
    }

    /// Creates a pair of connected sockets.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptors left.
    pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let mut fds: [RawFd; 2] = [-1; 2];
        // SAFETY: `socketpair` writes two descriptors, for which the array has room.
        let code = unsafe {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())
        };
        check(code as isize)?;
        // SAFETY: `socketpair` has just created the descriptor, and only this array contains its number.
        let first = unsafe { OwnedFd::from_raw_fd(fds[0]) };
        // SAFETY: `socketpair` has just created this descriptor as well, and it differs from the first.
        let second = unsafe { OwnedFd::from_raw_fd(fds[1]) };
        Ok((first, second))
    }

    /// Reads like [`Socket::read`] with `wait` set to true, but may poll for a short time before the thread
    /// sleeps.
    pub(crate) fn read_polling(&self, into: &mut [u8], polling: &Polling) -> io::Result<usize> {
        if !polling.polls_now() {
            return self.read(into, true);
        }
        let begin = Instant::now();
        loop {
            match self.read(into, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    polling.succeeded();
                    return read;
                }
            }
            if begin.elapsed() > POLL_TIME {
                polling.failed();
                return self.read(into, true);
            }
        }
    }

    /// Reads bytes that have arrived. Returns their number, which is 0 if the peer has closed the connection.
    /// Without any bytes, returns `WouldBlock`: after [`LOOK`] if `wait` is true, otherwise immediately.
    pub(crate) fn read(&self, into: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let count = check(direct::receive(self.fd.as_raw_fd(), into, flags));
        #[cfg(test)]
        self.calls[0].fetch_add(u64::from(count.is_ok()), std::sync::atomic::Ordering::Relaxed);
        count
    }

    /// Writes `first` and then `second`, as far as that is possible without blocking. Returns the
    /// number of bytes written. Returns `WouldBlock` if no byte can be written.
    pub(crate) fn write(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        #[cfg(test)]
        self.calls[1].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if second.is_empty() {
            // Cheaper than a list with one entry.
            return check(direct::send(self.fd.as_raw_fd(), first, FLAGS));
        }
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        // SAFETY: `msghdr` consists of integers and raw pointers, which may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: `IoSlice` has the layout of `iovec`, and `msg_iovlen` is the number of them. They and the bytes that they refer
        // to are borrowed for the call, which only reads them; the pointer is mutable because `recvmsg` uses the same struct.
        check(unsafe { libc::sendmsg(self.fd.as_raw_fd(), &message, FLAGS) })
    }

    /// Waits until the socket is readable (if `read` is true) or writable (if `write` is true), for at most
    /// `wait`. Returns true if a read would not block.
    pub(crate) fn poll(&self, read: bool, write: bool, wait: Duration) -> io::Result<bool> {
        let events = if read { libc::POLLIN } else { 0 } | if write { libc::POLLOUT } else { 0 };
        let mut one = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: `poll` writes to one entry, which is on this stack.
        match check(unsafe { libc::poll(&mut one, 1, wait) } as isize) {
            Ok(_) => Ok(one.revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns true if writing a short message would not block.
    pub(crate) fn has_room(&self) -> bool {
        let mut one = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: `poll` writes to one entry, which is on this stack.
        unsafe { libc::poll(&mut one, 1, 0) == 1 && one.revents & libc::POLLOUT != 0 }
    }

    /// Returns true if the peer has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        let mut byte = [0_u8; 1];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: `recv` writes at most one byte to `byte`, which is on this stack.
        let code = unsafe { libc::recv(self.fd.as_raw_fd(), byte.as_mut_ptr().cast(), 1, flags) };
        code == 0 || (code < 0 && io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock)
    }

    /// Shuts down both directions, so that blocked reads and writes return.
    pub(crate) fn shut_down(&self) {
        // SAFETY: `shutdown` takes two numbers; `self` keeps the descriptor open.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_rests_does_not_poll() {
        let (a, b) = Socket::pair().unwrap();
        let (a, b) = (Socket::new(a).unwrap(), Socket::new(b).unwrap());
        let polling = Polling::default();
        let mut byte = [0_u8; 1];
        b.write(b"x", b"").unwrap();
        assert_eq!(a.read_polling(&mut byte, &polling).unwrap(), 1);
        assert_eq!(polling.counts(), (0, 1));
        // Nothing arrives: the read has polled, and slept until it timed out.
        let error = a.read_polling(&mut byte, &polling).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(polling.counts(), (1, 0));
        b.write(b"y", b"").unwrap();
        assert_eq!(a.read_polling(&mut byte, &polling).unwrap(), 1);
        assert_eq!(polling.counts(), (0, 0), "it slept immediately");
    }
}
