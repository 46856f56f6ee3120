//! The descriptors that a process is started with to serve a session on them.
//!
//! A number says nothing about whose a descriptor is, so whoever starts such a process says in its environment that it did.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use anyfn::{Result, bail, error};

use crate::socket::is_socket;

/// Environment variable of a process that is to serve a session: the number of the process that has started it.
pub(crate) const PARENT: &str = "ANYFN_RPC_PARENT";

/// Takes the sockets that the parent has put at these places, once; what this process starts does not get them. `parents` says
/// who starts such processes.
///
/// # Errors
/// `RuntimeError` if this process was not started for a session, or has taken them before.
pub(crate) fn take<const N: usize>(places: [RawFd; N], parents: &str) -> Result<[OwnedFd; N]> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: may be called at any time.
    let parent = unsafe { libc::getppid() };
    let given = std::env::var(PARENT).is_ok_and(|number| number == parent.to_string());
    if !given || !places.into_iter().all(is_socket) {
        return Err(error!("RuntimeError", "this is for processes that {parents} starts"));
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        bail!("RuntimeError", "this process serves its session already");
    }
    Ok(places.map(|place| {
        // SAFETY: no pointers; the descriptor is open.
        unsafe { libc::fcntl(place, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: the parent has put it there for this function alone, which comes here once.
        unsafe { OwnedFd::from_raw_fd(place) }
    }))
}
