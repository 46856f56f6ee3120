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
mod output;
mod process;
mod queue;
mod sandbox;
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
pub use sandbox::Isolation;
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
    /// Whether the kernel keeps session processes from the listener, from `protected`, from the log and from each other.
    pub isolation: Isolation,
    /// Paths that session processes can neither read nor change, such as the file of the keys.
    pub protected: Vec<PathBuf>,
    /// Folders that session processes may write where they are confined to their own: if some key grants uploads.
    pub writable: Vec<PathBuf>,
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
            isolation: Isolation::Auto,
            protected: Vec::new(),
            writable: Vec::new(),
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
    /// `PermissionError`, `ValueError` or `OSError` about the file of keys; `OSError` if the address cannot be had;
    /// `RuntimeError` if a session process, which is started once to see, ends before it could serve.
    pub fn start(config: ServerConfig) -> Result<Server> {
        Server::start_as(config, false)
    }

    /// Starts one; `alone` if this process is nothing else, so that all that its children leave behind is theirs.
    fn start_as(config: ServerConfig, alone: bool) -> Result<Server> {
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
        let mut listener = listener::Listener::new(listener, config, stop.clone(), sessions.clone(), alone)?;
        listener.try_worker()?;
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

/// Longest time that stopping takes: ten seconds for processes, ten for folders, and some for a system that is slow.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Runs a server until the process is asked to end (SIGTERM, SIGINT, SIGHUP), then stops it, which takes at most 30 seconds; asked
/// again, it ends at once, and leaves folders to the next server. For a program that is nothing else: other processes of the same user
/// cannot trace it, and processes that leave their sessions become its children and are ended.
///
/// It must have no other threads yet. `started` is told of the server.
///
/// # Errors
/// Those of [`Server::start`], and those of `started`.
pub fn run_until_signal(config: ServerConfig, started: impl FnOnce(&Server) -> Result<()>) -> Result<()> {
    sys::block_end_signals();
    sys::keep_others_out();
    let adopts = sys::adopt_orphans();
    let server = Server::start_as(config, adopts)?;
    started(&server)?;
    sys::wait_for_end();
    // Session processes end with the thread that has started them, in whatever way this process does.
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

/// Kills what is left of sessions, if all children of this process are theirs. What those have started becomes a child in turn.
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
