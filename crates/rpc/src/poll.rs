//! Waiting for events on file descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::c_int;

/// Entry of a [`poll`] call: a descriptor, the requested events, and the events that have occurred.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Polled(libc::pollfd);

impl Polled {
    /// Creates an entry that waits until the descriptor is readable.
    pub(crate) fn read(fd: BorrowedFd<'_>) -> Polled {
        Polled(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 })
    }

    /// Creates an entry that waits until the descriptor is readable, or writable, or either. If neither is asked for, the entry
    /// is ignored.
    #[cfg(feature = "websocket")]
    pub(crate) fn ready(fd: BorrowedFd<'_>, read: bool, write: bool) -> Polled {
        let events =
            if read { libc::POLLIN | libc::POLLRDHUP } else { 0 } | if write { libc::POLLOUT } else { 0 };
        Polled(libc::pollfd { fd: if events == 0 { -1 } else { fd.as_raw_fd() }, events, revents: 0 })
    }

    /// Creates an entry that waits until the peer has closed its end.
    pub(crate) fn closed(fd: BorrowedFd<'_>) -> Polled {
        Polled(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 })
    }

    /// Returns true if reading from the descriptor would not block, which includes the end of the stream.
    pub(crate) fn is_readable(&self) -> bool {
        self.0.revents != 0
    }

    /// Returns true if the peer has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

/// Waits until an event occurs on a descriptor, `timeout` has passed or a signal has arrived. Without a timeout, waits
/// indefinitely.
pub(crate) fn poll(all: &mut [Polled], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up: a deadline must have passed when the call returns, or the caller would loop.
    let milliseconds = match timeout {
        None => -1,
        Some(timeout) => c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX),
    };
    // SAFETY: `Polled` is a transparent `pollfd`; `poll` writes to as many of them as the slice has, which is borrowed mutably.
    let result = unsafe { libc::poll(all.as_mut_ptr().cast(), all.len() as libc::nfds_t, milliseconds) };
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() != io::ErrorKind::Interrupted {
        return Err(error);
    }
    for one in all {
        one.0.revents = 0;
    }
    Ok(())
}

/// Makes reads from a pipe return `WouldBlock` instead of blocking. The other end of the pipe is not affected.
pub(crate) fn set_nonblocking(pipe: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `F_SETFL` takes an integer; `pipe` is borrowed, so it is open.
    let code = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
