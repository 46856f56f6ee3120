//! Sessions over WebSocket, the only transport that web pages have.
//!
//! The bytes of a session are the concatenated contents of binary messages; where a message ends has no meaning. A thread, the
//! *bridge*, copies them between the WebSocket and one end of a socket pair, and the session uses the other end like any other
//! socket. So everything that this crate promises about sockets (time limits, a slow peer, cancellation) holds here, too.
//!
//! In reading order: `messages` is the protocol of WebSocket, and `http` the heads that open one; `relay` copies bytes between two
//! sides; `accept` and `connect` are the two ends of the handshake; `proxy` pairs clients with servers that only open connections, and
//! `tunnel` is such a server.

mod accept;
mod connect;
mod functions;
mod http;
mod messages;
pub mod proxy;
mod relay;
mod side;
#[cfg(all(target_os = "linux", feature = "server"))]
mod tunnel;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::thread::JoinHandle;

use anyfn::{Result, error};

use crate::signals;
use crate::socket::{Reason, Socket};

pub use accept::Origins;
pub(crate) use accept::{Accepted, accept};
pub(crate) use connect::connect;
#[cfg(all(target_os = "linux", feature = "server"))]
pub(crate) use connect::is_local;
pub use functions::RunningProxy;
use side::{Pipe, Web};
#[cfg(all(target_os = "linux", feature = "server"))]
pub(crate) use tunnel::Tunnel;

/// Maximum size in bytes of a received message. It bounds the memory that a peer can occupy before its bytes reach the session, whose
/// longest frame is a quarter of it.
const MESSAGE_MAX: usize = 1 << 20;

/// Thread that copies the bytes of a session between a WebSocket and a socket pair. Dropping this value waits until the thread has
/// sent what the session has written, which takes at most about two seconds after the session has closed its end.
#[derive(Debug)]
pub(crate) struct Bridge {
    thread: Option<JoinHandle<()>>,
    reason: Reason,
}

impl Bridge {
    /// Starts a bridge. Returns it with the session's end of the socket pair.
    ///
    /// # Errors
    /// Returns `OSError` if the process has no descriptors or threads left.
    fn start(web: Web) -> Result<(Bridge, OwnedFd)> {
        let os = |why: std::io::Error| error!("OSError", "cannot serve a WebSocket: {why}");
        let (inner, session) = Socket::pair().map_err(os)?;
        let pipe = Pipe::new(UnixStream::from(inner)).map_err(os)?;
        let reason = Reason::default();
        let told = reason.clone();
        let copy = move || {
            signals::block_all();
            relay::relay(web, pipe, None, |why| {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
            });
        };
        let thread = std::thread::Builder::new().name("anyfn-rpc-web".into()).spawn(copy).map_err(os)?;
        Ok((Bridge { thread: Some(thread), reason }, session))
    }

    /// Returns the place of the reason for which the bridge ends. It is set before the session's socket is closed.
    pub(crate) fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Lets the thread end by itself, after the session has closed its end.
    pub(crate) fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
