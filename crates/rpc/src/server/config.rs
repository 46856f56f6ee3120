//! Configuration of a server.

use std::path::PathBuf;
use std::time::Duration;

use super::access::Access;
use super::audit::Log;
use super::sandbox::Isolation;
use crate::keys::Limits;
use crate::policy::Policy;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Host name or address to listen on.
    pub host: String,
    /// Port to listen on; 0 for any free port.
    pub port: u16,
    /// Rule that determines which clients may use the server.
    pub access: Access,
    /// Command line of a session process: a program and its arguments. The program must call
    /// [`session_main`](super::session_main) before anything else.
    pub worker: Vec<String>,
    /// Environment variables of session processes, in addition to the few that they inherit.
    pub environment: Vec<(String, String)>,
    /// True if session processes write to the error output of the server; otherwise their output is
    /// discarded.
    pub show_output: bool,
    /// Maximum number of sessions that are served at one time; 1 for a device that cannot be shared. Further sessions wait in a
    /// queue.
    pub sessions: usize,
    /// Maximum number of sessions in the queue.
    pub queue: usize,
    /// Time limit for a client to prove its key.
    pub handshake: Duration,
    /// Maximum number of clients at one time that have a session process and have not proved their key. A
    /// further client replaces a client that has had at least half a second to prove its key, or waits.
    pub half_open: usize,
    /// Time after which a session process is ended if the listener has received no message from it.
    pub hung: Duration,
    /// Folder in which the folders of sessions are created; by default the system's folder for temporary files.
    pub folder: PathBuf,
    /// Destination of the log.
    pub log: Log,
    /// Degree to which the kernel isolates session processes from the listener, from the paths in
    /// `protected`, from the log and from each other.
    pub isolation: Isolation,
    /// Paths that session processes can neither read nor change, such as the file of keys.
    pub protected: Vec<PathBuf>,
    /// Folders that session processes may write to in addition to their own. Without an entry here, session processes may write
    /// only to their own folders if any key grants uploads.
    pub writable: Vec<PathBuf>,
}

impl ServerConfig {
    /// Creates the configuration of a server that listens on a free port of the loopback address and grants
    /// nothing. `worker` is the command line of its session processes.
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
