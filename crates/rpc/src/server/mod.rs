//! The server: a listener that starts one isolated process for each client.
//!
//! The listener reads no byte of any client: it takes connections, starts a process for each that has something to say, tells it
//! what the key that the client names allows, and ends it when it is over, too old, idle, hung or too large. In reading
//! order: `listener` (the loop), `queue` (who is served, who waits), `control` (what listener and process say to each
//! other), `spawn` (how the process is isolated), `process` and `child` (the process' side), `access`, `folder`, `audit`,
//! `sys`; `options` and `functions` are the doors.

mod access;
mod audit;
mod child;
mod control;
mod folder;
mod functions;
mod listener;
mod options;
mod process;
mod queue;
mod session;
mod spawn;
mod sys;

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyfn::{Result, bail, error};

pub use access::Access;
pub use audit::Log;
pub use child::{Admission, Control, Turn};
pub use control::Refusal;
pub use functions::RunningServer;
pub use process::session_main;
pub use spawn::{CLIENT_FD, CONTROL_FD};

use crate::keys::Limits;
use crate::policy::Policy;

/// What a server is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Name or address to listen at.
    pub host: String,
    /// Port; 0 for any that is free.
    pub port: u16,
    /// Who may use it.
    pub access: Access,
    /// The program of a session process and its arguments; it has to call [`session_main`], first of all.
    pub worker: Vec<String>,
    /// Variables of the environment of session processes, beside the few that they get.
    pub environment: Vec<(String, String)>,
    /// Whether session processes write to the error output of the server; else what they write is lost.
    pub show_output: bool,
    /// Sessions that are served at one time; 1 for a device that cannot be shared. Others wait.
    pub sessions: usize,
    /// Sessions that may wait.
    pub queue: usize,
    /// How long a client may take to prove that it has its key.
    pub handshake: Duration,
    /// Clients that have not yet done so at one time; one more makes the oldest go.
    pub half_open: usize,
    /// A session process that says nothing for so long is ended.
    pub hung: Duration,
    /// Where the folders of sessions are made; the system's for such by default.
    pub folder: PathBuf,
    /// Where the log goes.
    pub log: Log,
}

impl ServerConfig {
    /// A server on a free port of this machine alone that grants nothing, with the program of its sessions.
    pub fn new(worker: Vec<String>) -> ServerConfig {
        ServerConfig {
            host: "127.0.0.1".into(),
            port: 0,
            access: Access::Open(Policy::closed(), Limits::DEFAULT),
            worker,
            environment: Vec::new(),
            show_output: false,
            sessions: 64,
            queue: 64,
            handshake: Duration::from_secs(10),
            half_open: 16,
            hung: Duration::from_secs(15),
            folder: std::env::temp_dir(),
            log: Log::None,
        }
    }
}

/// A session as the server sees it.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Its number; no two sessions of a server have the same.
    pub number: u64,
    /// The process.
    pub pid: i32,
    /// Where the client is.
    pub peer: SocketAddr,
    /// Name of the key; none without one, and as long as it has not been named.
    pub key: Option<String>,
    /// Where it stands.
    pub state: State,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The process starts, or the client has not named its key.
    Greeting,
    /// The client has to prove that it has its key.
    Proving,
    /// Others are served first.
    Waiting,
    /// It is served.
    Active,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<OwnedFd>,
    sessions: Arc<Mutex<Vec<SessionInfo>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Starts a server on a thread of its own.
    ///
    /// # Errors
    /// `ValueError` if the configuration is not possible, an address beyond this machine without a key among it;
    /// `PermissionError`, `ValueError` or `OSError` about the file of keys; `OSError` if the address cannot be had.
    pub fn start(config: ServerConfig) -> Result<Server> {
        if config.sessions == 0 || config.half_open == 0 {
            bail!("ValueError", "a server with no sessions serves nobody");
        }
        let Some(program) = config.worker.first() else {
            bail!("ValueError", "the program of session processes is missing (`worker`)");
        };
        spawn::check_program(program).map_err(|why| error!("OSError", "cannot run `{program}`: {why}"))?;
        let listener = bind(&config)?;
        let os = |why: std::io::Error| error!("OSError", "cannot start a server: {why}");
        let address = listener.local_addr().map_err(os)?;
        listener.set_nonblocking(true).map_err(os)?;
        let stop = Arc::new(sys::event().map_err(os)?);
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let listener = listener::Listener::new(listener, config, stop.clone(), sessions.clone())?;
        let thread =
            std::thread::Builder::new().name("anyfn-rpc-listen".into()).spawn(|| listener.run()).map_err(os)?;
        Ok(Server { address, stop, sessions, thread: Mutex::new(Some(thread)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sessions that there are, in the order of their numbers.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all sessions and the server; returns when nothing is left of them. Again does nothing.
    pub fn stop(&self) {
        sys::signal_event(self.stop.as_fd());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a server until the process is asked to end (SIGTERM, SIGINT, SIGHUP), then stops it: for a program that is nothing else.
/// It must have no other threads yet. `started` is told of the server.
///
/// # Errors
/// Those of [`Server::start`], and those of `started`.
pub fn run_until_signal(config: ServerConfig, started: impl FnOnce(&Server) -> Result<()>) -> Result<()> {
    sys::block_end_signals();
    let server = Server::start(config)?;
    started(&server)?;
    sys::wait_for_end();
    server.stop();
    Ok(())
}

fn bind(config: &ServerConfig) -> Result<TcpListener> {
    let (host, port) = (config.host.as_str(), config.port);
    let shown = || if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let failed = |why: std::io::Error| error!("OSError", "cannot listen at {}: {why}", shown());
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    if let Access::Open(..) = config.access
        && let Some(address) = addresses.iter().find(|address| !is_loopback(address.ip()))
    {
        bail!(
            "ValueError",
            "{address} can be reached from other machines, and without a key everybody there could use this server: give it \
             keys (`anyfn rpc key NAME` makes one), or listen at 127.0.0.1"
        );
    }
    TcpListener::bind(&addresses[..]).map_err(failed)
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.is_loopback(),
            None => address.is_loopback(),
        },
        IpAddr::V4(address) => address.is_loopback(),
    }
}
