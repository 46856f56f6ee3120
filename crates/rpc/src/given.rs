//! Inherited file descriptors: sockets that a parent process passes to a child process that serves a session.
//!
//! A descriptor number does not show who opened it. The parent therefore states in the environment that it started the process,
//! and which sockets it placed at those numbers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use anyfn::{Result, bail, error};

use crate::socket::is_socket;

/// Environment variable by which a parent passes its process id to a child process that serves a session.
pub(crate) const PARENT: &str = "ANYFN_RPC_PARENT";

/// Environment variable by which a parent passes the inode numbers of the inherited sockets to a child process
/// that serves a session. The numbers are separated by commas, in the order of the descriptors.
pub(crate) const SOCKETS: &str = "ANYFN_RPC_SOCKETS";

/// Returns the value of the environment variable [`SOCKETS`] for the sockets `all`, which a child process
/// inherits.
///
/// # Errors
/// Returns the error of `fstat`.
pub(crate) fn sockets<const N: usize>(all: [BorrowedFd<'_>; N]) -> io::Result<String> {
    let numbers: io::Result<Vec<_>> = all.iter().map(|fd| Ok(number(fd.as_raw_fd())?.to_string())).collect();
    Ok(numbers?.join(","))
}

/// Returns the inode number of an open descriptor. The number identifies a socket among all open
/// sockets.
#[allow(clippy::unnecessary_cast, reason = "the number has 32 bits on some systems")]
fn number(fd: RawFd) -> io::Result<u64> {
    // SAFETY: `stat` consists of integers, which may be zero.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `fstat` writes to `stat`, which is on this stack; it returns an error for a number that is not an open descriptor.
    let code = unsafe { libc::fstat(fd, &raw mut stat) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(stat.st_ino as u64) }
}

/// Takes ownership of the inherited sockets at the descriptor numbers `places`, and marks them close-on-exec.
/// Succeeds once per process. Error messages name `parents` as the code that must start this process.
///
/// # Errors
/// Returns `RuntimeError` if this process was not started to serve a session, if `places` hold other descriptors, or if they were
/// taken before.
pub(crate) fn take<const N: usize>(places: [RawFd; N], parents: &str) -> Result<[OwnedFd; N]> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: `getppid` takes no arguments and cannot fail.
    let parent = unsafe { libc::getppid() };
    let given = std::env::var(PARENT).is_ok_and(|number| number == parent.to_string());
    let numbers: io::Result<Vec<_>> = places.iter().map(|place| Ok(number(*place)?.to_string())).collect();
    let are_those =
        numbers.is_ok_and(|numbers| std::env::var(SOCKETS).is_ok_and(|all| all == numbers.join(",")));
    if !given || !are_those || !places.into_iter().all(is_socket) {
        return Err(error!(
            "RuntimeError",
            "this function may only be called in processes that {parents} starts"
        ));
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        bail!("RuntimeError", "this process already serves its session");
    }
    Ok(places.map(|place| {
        // SAFETY: `F_SETFD` takes only integers.
        unsafe { libc::fcntl(place, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: the descriptor is open, and the environment confirms that it is the socket which the parent placed there for
        // this function alone, so no other code in this process has created or taken it. `TAKEN` admits a single caller.
        unsafe { OwnedFd::from_raw_fd(place) }
    }))
}
