//! Configuration of an RPC server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::access::Access;
use super::audit::Log;
use super::sandbox::Isolation;
use super::session::SessionInfo;
use crate::keys::Limits;
use crate::policy::Policy;

/// Configuration of an RPC server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Host name or IP address to listen on.
    pub host: String,
    /// Port to listen on; 0 selects any free port.
    pub port: u16,
    /// Clients that may use the server.
    pub access: Access,
    /// Command line with which session processes are started: a program and its arguments. The program must
    /// call [`session_main`](super::session_main) before anything else.
    pub worker: Vec<String>,
    /// Environment variables of session processes, in addition to those that they inherit, such as `PATH`.
    pub environment: Vec<(String, String)>,
    /// Web pages that may open a session over WebSocket. By default, no page of any origin may; programs other than browsers are not
    /// restricted.
    #[cfg(feature = "websocket")]
    pub origins: crate::websocket::Origins,
    /// URL of a proxy (`anyfn rpc proxy`) and the name under which this server waits there, such as `ws://host:9191/board`. The server
    /// also listens at its address.
    #[cfg(feature = "websocket")]
    pub proxy: Option<String>,
    /// True if session processes write to the standard error of the server. Otherwise their output
    /// is captured until they begin to serve their clients, and then discarded.
    pub show_output: bool,
    /// Maximum number of sessions that are served simultaneously. Use 1 if the sessions need a
    /// device that cannot be shared. Further sessions wait in a queue.
    pub sessions: usize,
    /// Maximum number of sessions that wait in the queue.
    pub queue: usize,
    /// Time limit for a client to prove possession of its key.
    pub handshake: Duration,
    /// Maximum number of clients that have a session process but have not proved possession of
    /// their key. At the limit, a further client waits, or replaces a client that has had at least
    /// half a second for its proof.
    pub half_open: usize,
    /// Time without a heartbeat from a session process after which the listener kills the process.
    pub hung: Duration,
    /// Folder in which the server creates its own folder, which contains a folder for each session.
    /// The default is the system's folder for temporary files.
    pub folder: PathBuf,
    /// Destination of the server's audit log.
    pub log: Log,
    /// Degree to which the kernel isolates session processes from the listener, the paths in `protected`, the
    /// log, and each other.
    pub isolation: Isolation,
    /// Paths that session processes can neither read nor change, such as the key file.
    pub protected: Vec<PathBuf>,
    /// Folders that session processes may write to, in addition to their own folders, if any key permits
    /// uploads. If no key permits uploads, session processes may write anywhere except to `protected` and to
    /// the server's folder.
    pub writable: Vec<PathBuf>,
    /// List to which the server adds each session that has ended, in its last state; `None` if nobody takes them.
    pub ended: Option<Arc<Mutex<Vec<SessionInfo>>>>,
}

impl ServerConfig {
    /// Creates a default configuration: the server listens on a free port of the loopback address,
    /// and its clients may only use the device `cpu`. `worker` is the command line of session
    /// processes.
    pub fn new(worker: Vec<String>) -> ServerConfig {
        ServerConfig {
            host: "127.0.0.1".into(),
            port: 0,
            access: Access::Open(Policy::closed(), Limits::DEFAULT),
            worker,
            environment: Vec::new(),
            #[cfg(feature = "websocket")]
            origins: crate::websocket::Origins::default(),
            #[cfg(feature = "websocket")]
            proxy: None,
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
            ended: None,
        }
    }
    /// Returns the environment variables that session processes get in addition to those that they inherit.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        #[allow(unused_mut, reason = "only WebSocket needs one")]
        let mut all = self.environment.clone();
        #[cfg(feature = "websocket")]
        all.push((super::spawn::ORIGINS.into(), self.origins.to_text()));
        all
    }
}
