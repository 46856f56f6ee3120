//! RPC server: a listener that starts one isolated session process for each client.
//!
//! The listener reads no byte of any client. It accepts connections, starts a process for each client that has sent something,
//! sends that process the grant of the client's key, and ends it when its session is over, too old, idle, hung or too large. In
//! reading order: `config`, `listener` (the main loop), `queue` (admission of sessions), `control` (messages between listener
//! and process), `spawn` (isolation of the process), `process` and `child` (code that runs in the process), `access`, `folder`,
//! `audit`, `sys`; `options` and `functions` are the entry points.

mod access;
mod audit;
mod child;
mod config;
mod control;
mod folder;
mod functions;
mod listener;
mod options;
mod output;
mod process;
mod queue;
mod sandbox;
mod session;
mod spawn;
mod sys;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyfn::{Result, bail, error};

use crate::fork::Owner;

pub use access::Access;
pub use audit::Log;
pub use child::{Admission, Control, Turn};
pub use config::ServerConfig;
pub use control::Refusal;
pub use functions::RunningServer;
pub use process::session_main;
pub use sandbox::Isolation;
pub use session::{SessionInfo, SessionState};
pub use spawn::{CLIENT_FD, CONTROL_FD};

/// Running server, which stops when this value is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<OwnedFd>,
    sessions: Arc<Mutex<Vec<SessionInfo>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Process that has started the server. Processes that are forked from it do not have the
    /// server's thread.
    owner: Owner,
    /// Connections to a proxy.
    #[cfg(feature = "websocket")]
    tunnel: Mutex<Option<crate::websocket::Tunnel>>,
}

impl Server {
    /// Starts a server on a new thread.
    ///
    /// # Errors
    /// Returns `ValueError` for an impossible configuration, such as an address that other machines can reach without a key.
    /// Returns `PermissionError`, `ValueError` or `OSError` for the file of keys, `OSError` if the address cannot be bound, and
    /// `RuntimeError` if a session process, which is started once as a trial, ends before it could serve.
    pub fn start(config: ServerConfig) -> Result<Server> {
        Server::start_as(config, false)
    }

    /// Starts a server. `alone` is true if the session processes are the only children of this process. Every
    /// other child process is then an orphan that a session has left behind.
    fn start_as(config: ServerConfig, alone: bool) -> Result<Server> {
        if config.sessions == 0 || config.half_open == 0 {
            bail!("ValueError", "`sessions` and `half_open`: expected at least 1, got 0");
        }
        let Some(program) = config.worker.first() else {
            bail!("ValueError", "`worker`: expected the program of session processes, got an empty list");
        };
        spawn::check_program(program).map_err(|why| error!("OSError", "cannot run `{program}`: {why}"))?;
        let listener = bind(&config)?;
        let os = |why: std::io::Error| error!("OSError", "cannot start a server: {why}");
        let address = listener.local_addr().map_err(os)?;
        listener.set_nonblocking(true).map_err(os)?;
        let stop = Arc::new(sys::event().map_err(os)?);
        let sessions = Arc::new(Mutex::new(Vec::new()));
        #[cfg(feature = "websocket")]
        let (proxy, most) = (config.proxy.clone(), config.sessions.saturating_add(config.queue));
        let mut listener = listener::Listener::new(listener, config, stop.clone(), sessions.clone(), alone)?;
        listener.try_worker()?;
        let thread =
            std::thread::Builder::new().name("anyfn-rpc-listen".into()).spawn(|| listener.run()).map_err(os)?;
        let server = Server {
            address,
            stop,
            sessions,
            thread: Mutex::new(Some(thread)),
            owner: Owner::this_process(),
            #[cfg(feature = "websocket")]
            tunnel: Mutex::new(None),
        };
        #[cfg(feature = "websocket")]
        if let Some(url) = proxy {
            *server.tunnel.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(crate::websocket::Tunnel::start(&url, address, most)?);
        }
        Ok(server)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port on which the server listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns a description of each session, ordered by session number.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a function that returns what [`Server::sessions`] does, for another thread.
    pub fn watch(&self) -> impl Fn() -> Vec<SessionInfo> + Send + Sync + use<> {
        let sessions = self.sessions.clone();
        move || sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all sessions and the server. Returns after their processes have ended and their folders
    /// have been removed. Repeated calls have no effect, nor do calls in a process that was forked
    /// from the one that has started the server.
    pub fn stop(&self) {
        if !self.owner.is_here() {
            return;
        }
        #[cfg(feature = "websocket")]
        drop(self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take());
        sys::signal_event(self.stop.as_fd());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.owner.forget_thread(&mut self.thread);
    }
}

/// Maximum time for stopping a server: ten seconds for processes, ten for folders, and a margin for a slow
/// system.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Runs a server until the process receives a termination signal (SIGTERM, SIGINT, SIGHUP), then stops the
/// server, which takes at most 30 seconds. A second signal ends the process immediately and leaves the
/// removal of folders to the next server. The program must do nothing else: other processes of the same user
/// cannot trace it, and processes that leave their sessions become its children and are ended.
///
/// The process must have no other threads yet. `started` is called with the running server.
///
/// # Errors
/// Returns the error of [`Server::start`], or of `started`.
pub fn run_until_signal(config: ServerConfig, started: impl FnOnce(&Server) -> Result<()>) -> Result<()> {
    sys::block_end_signals();
    sys::keep_others_out();
    let adopts = sys::adopt_orphans();
    let server = Server::start_as(config, adopts)?;
    started(&server)?;
    sys::wait_for_end();
    // Session processes end with the thread that has started them, however this process ends.
    let impatient = move || {
        let signal = sys::wait_for_end();
        end_children(adopts);
        sys::exit_now(128 + signal);
    };
    let late = move || {
        std::thread::sleep(STOP_MAX);
        end_children(adopts);
        sys::exit_now(1);
    };
    let _ = std::thread::Builder::new().name("anyfn-rpc-signals".into()).spawn(impatient);
    let _ = std::thread::Builder::new().name("anyfn-rpc-late".into()).spawn(late);
    server.stop();
    Ok(())
}

/// Kills all children of this process, which all belong to sessions. Does nothing if `adopts` is false, that
/// is, if this process does not adopt orphans. The children of a killed process become children of this process
/// and are killed as well.
fn end_children(adopts: bool) {
    let until = std::time::Instant::now() + Duration::from_secs(1);
    while adopts && std::time::Instant::now() < until {
        let children = sys::children();
        if children.is_empty() {
            return;
        }
        for pid in children {
            sys::kill(pid, libc::SIGKILL);
            sys::take_end(pid);
        }
    }
}

fn bind(config: &ServerConfig) -> Result<TcpListener> {
    let (host, port) = (config.host.as_str(), config.port);
    let shown = || if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let failed = |why: std::io::Error| error!("OSError", "cannot listen at {}: {why}", shown());
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    #[cfg(feature = "websocket")]
    if let (Access::Open(..), Some(url)) = (&config.access, &config.proxy)
        && !crate::websocket::is_local(url)
    {
        bail!(
            "ValueError",
            "without a key, everyone who reaches the proxy {url} could use this server: configure keys (`anyfn rpc key NAME` \
             creates one), or use a proxy at 127.0.0.1"
        );
    }
    if let Access::Open(..) = config.access
        && let Some(address) = addresses.iter().find(|address| !crate::socket::is_loopback(address.ip()))
    {
        bail!(
            "ValueError",
            "{address} can be reached from other machines, and without a key anyone there could use this server: configure \
             keys (`anyfn rpc key NAME` creates one), or listen at 127.0.0.1"
        );
    }
    TcpListener::bind(&addresses[..]).map_err(failed)
}
