//! The descriptors that a process is started with to serve a session on them.
//!
//! A number says nothing about whose a descriptor is, so whoever starts such a process says in its environment that it did, and
//! which sockets it has put at those places.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use anyfn::{Result, bail, error};

use crate::socket::is_socket;

/// Environment variable of a process that is to serve a session: the number of the process that has started it.
pub(crate) const PARENT: &str = "ANYFN_RPC_PARENT";

/// Environment variable of such a process: the numbers by which the system tells its sockets apart, in the order of their places.
pub(crate) const SOCKETS: &str = "ANYFN_RPC_SOCKETS";

/// What the parent says of the sockets that it puts into place.
///
/// # Errors
/// If the system does not tell.
pub(crate) fn sockets<const N: usize>(all: [BorrowedFd<'_>; N]) -> io::Result<String> {
    let numbers: io::Result<Vec<_>> = all.iter().map(|fd| Ok(number(fd.as_raw_fd())?.to_string())).collect();
    Ok(numbers?.join(","))
}

/// The number by which the system tells an open file or socket from all others that are open.
fn number(fd: RawFd) -> io::Result<u64> {
    // SAFETY: `stat` is made of integers, which may be zero.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `fstat` writes to `stat`, which is on this stack; a number that is no descriptor is an error.
    let code = unsafe { libc::fstat(fd, &raw mut stat) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(stat.st_ino) }
}

/// Takes the sockets that the parent has put at these places, once; what this process starts does not get them. `parents` says
/// who starts such processes.
///
/// # Errors
/// `RuntimeError` if this process was not started for a session, if something else is at those places, or if it has taken them before.
pub(crate) fn take<const N: usize>(places: [RawFd; N], parents: &str) -> Result<[OwnedFd; N]> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: `getppid` takes nothing and cannot fail.
    let parent = unsafe { libc::getppid() };
    let given = std::env::var(PARENT).is_ok_and(|number| number == parent.to_string());
    let numbers: io::Result<Vec<_>> = places.iter().map(|place| Ok(number(*place)?.to_string())).collect();
    let are_those =
        numbers.is_ok_and(|numbers| std::env::var(SOCKETS).is_ok_and(|all| all == numbers.join(",")));
    if !given || !are_those || !places.into_iter().all(is_socket) {
        return Err(error!("RuntimeError", "this is for processes that {parents} starts"));
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        bail!("RuntimeError", "this process serves its session already");
    }
    Ok(places.map(|place| {
        // SAFETY: `F_SETFD` takes numbers.
        unsafe { libc::fcntl(place, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: the descriptor is open, and it is the very socket that the parent has put there for this function alone, as the
        // environment says: so nothing else in this process has made or taken it. `TAKEN` lets one caller come here.
        unsafe { OwnedFd::from_raw_fd(place) }
    }))
}
