//! A server that clients reach through a proxy, by connections that the server opens: one that waits, and one for each session. Their
//! bytes go to the listener like those of any other client, so keys, grants and limits are the same.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyfn::{Result, bail, error};

use super::connect::{self, Address};
use super::proxy::is_name;
use super::relay::relay;
use super::side::{Pipe, Side, Stop, Web};
use crate::poll::{Polled, poll};
use crate::signals;

/// Time limit for opening a connection to the proxy.
const CONNECT: Duration = Duration::from_secs(10);

/// Pauses between attempts to reach the proxy.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Time without a heartbeat of the proxy after which the connection that waits is opened again.
const SILENT: Duration = Duration::from_secs(60);

/// Interval at which a thread looks whether the server has stopped.
const LOOK: Duration = Duration::from_millis(500);

/// Connections of a server to a proxy. They end after this value is dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    stops: Arc<AtomicBool>,
}

struct Shared {
    url: String,
    server: SocketAddr,
    sessions: AtomicUsize,
    sessions_max: usize,
    stops: Arc<AtomicBool>,
}

impl Tunnel {
    /// Lets the server that listens at `server` wait at a proxy. `url` is `ws://HOST:PORT/NAME`, and `sessions_max` the number of clients
    /// that the proxy may bring at a time. The proxy need not be reachable yet.
    ///
    /// # Errors
    /// Returns `ValueError` for an impossible URL, and `OSError` if no thread can be started.
    pub(crate) fn start(url: &str, mut server: SocketAddr, sessions_max: usize) -> Result<Tunnel> {
        Address::parse(url)?;
        if !url.splitn(4, '/').nth(3).is_some_and(is_name) {
            bail!(
                "ValueError",
                "expected the URL of a proxy and a name of 1 to 64 letters, digits, '.', '_' and '-', such as \
                 `ws://host:9191/board`, got {url:?}"
            );
        }
        if server.ip().is_unspecified() {
            server.set_ip(if server.is_ipv6() {
                std::net::Ipv6Addr::LOCALHOST.into()
            } else {
                std::net::Ipv4Addr::LOCALHOST.into()
            });
        }
        let stops = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            url: format!("{url}?role=server"),
            server,
            sessions: AtomicUsize::new(0),
            sessions_max,
            stops: stops.clone(),
        });
        spawn(move || wait(&shared))?;
        Ok(Tunnel { stops })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("anyfn-rpc-tunnel".into()).spawn(|| {
        signals::block_all();
        run();
    });
    thread.map(drop).map_err(|why| error!("OSError", "cannot start a thread: {why}"))
}

/// Waits at the proxy for one client after the other.
fn wait(shared: &Arc<Shared>) {
    let mut pause = PAUSE_MIN;
    while !shared.stops.load(Ordering::Relaxed) {
        if shared.sessions.load(Ordering::Relaxed) >= shared.sessions_max {
            std::thread::sleep(LOOK);
            continue;
        }
        let began = Instant::now();
        let client = connect::open(&shared.url, CONNECT).ok().and_then(|web| first_bytes(shared, web));
        match client {
            Some((web, first)) => {
                pause = PAUSE_MIN;
                let session = shared.clone();
                shared.sessions.fetch_add(1, Ordering::Relaxed);
                let run = move || {
                    copy(&session, web, first);
                    session.sessions.fetch_sub(1, Ordering::Relaxed);
                };
                if spawn(run).is_err() {
                    shared.sessions.fetch_sub(1, Ordering::Relaxed);
                }
            }
            None => {
                // A proxy that refuses this server at once is not asked again at once.
                if began.elapsed() > PAUSE_MAX {
                    pause = PAUSE_MIN;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits for the first bytes of a client. Returns `None` if the proxy ends the connection or is silent, or if the server stops.
fn first_bytes(shared: &Shared, mut web: Web) -> Option<(Web, Vec<u8>)> {
    while !shared.stops.load(Ordering::Relaxed) {
        let is_written = match web.flush() {
            Ok(is_written) => is_written,
            Err(_) => return None,
        };
        match web.receive() {
            Ok(first) => return Some((web, first)),
            Err(Stop::Over(_)) => return None,
            Err(Stop::Wait) => {}
        }
        if Instant::now().duration_since(web.heard()) > SILENT {
            break;
        }
        if poll(&mut [Polled::ready(web.fd(), true, !is_written)], Some(LOOK)).is_err() {
            break;
        }
    }
    web.close("the server stops");
    None
}

/// Copies the bytes of a session between the proxy and the listener.
fn copy(shared: &Shared, mut web: Web, first: Vec<u8>) {
    let pipe = TcpStream::connect_timeout(&shared.server, CONNECT).and_then(|stream| {
        stream.set_nodelay(true)?;
        Pipe::new(UnixStream::from(OwnedFd::from(stream)))
    });
    match pipe {
        Ok(mut pipe) => {
            if pipe.send(first).is_ok() {
                relay(web, pipe, None, |_| {});
            }
        }
        Err(_) => web.close("the server does not accept connections"),
    }
}
