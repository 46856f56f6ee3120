//! Test fixture: a server in a temporary folder, clients, and checks that nothing is left behind after the
//! server has stopped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyfn_rpc::keys::Limits;
use anyfn_rpc::policy::Policy;
use anyfn_rpc::server::{Access, Log, Server, ServerConfig};
use serde_json::Value;

/// Maximum time that a test waits for an event, much longer than the event normally takes.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Lock that makes the tests run one at a time, because they count descriptors and change limits of this
/// process.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Temporary folder of a test, removed on drop.
struct Root(PathBuf);

pub(crate) struct Rig {
    pub(crate) server: Server,
    root: Root,
    descriptors: usize,
    /// Ids of processes that must have ended by the end of the test.
    pids: Mutex<Vec<u32>>,
    _alone: MutexGuard<'static, ()>,
}

/// Returns a server configuration whose session processes run this test program.
pub(crate) fn config() -> ServerConfig {
    let me = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let words = [me.as_str(), "worker::worker", "--exact", "--ignored", "--nocapture"];
    let mut config = ServerConfig::new(words.map(String::from).to_vec());
    let policy = Policy { functions: vec!["demo.*".into()], ..Policy::closed() };
    config.access = Access::Open(policy, Limits { process_bytes: 1 << 30, ..Limits::DEFAULT });
    config
}

impl Rig {
    pub(crate) fn new(change: impl FnOnce(&mut ServerConfig, &Path)) -> Rig {
        let alone = alone();
        let root = std::env::temp_dir().join(format!("rpc-server-test-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        let descriptors = descriptors();
        let mut config = config();
        config.folder = root.join("sessions");
        config.log = Log::File(root.join("log"));
        fs::create_dir(&config.folder).unwrap();
        change(&mut config, &root);
        let server = Server::start(config).unwrap();
        Rig { server, root: Root(root), descriptors, pids: Mutex::new(Vec::new()), _alone: alone }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root.0
    }

    /// Connects a client that has sent nothing yet.
    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.server.address()).unwrap())
    }

    /// Connects a client and waits until it is served.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.connect();
        client.say("-");
        assert_eq!(client.hear().as_deref(), Some("go"));
        client
    }

    /// Checks that a new client is served. Every test ends with this check.
    pub(crate) fn serves(&self) {
        let mut client = self.client();
        assert_eq!(client.ask("echo hello"), "hello");
    }

    pub(crate) fn remember(&self, pid: u32) {
        self.pids.lock().unwrap().push(pid);
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.root().join("log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the log contains a line whose event is `event` and whose detail satisfies
    /// `is_it`. Returns that line.
    pub(crate) fn logged(&self, event: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let find = || self.log().into_iter().find(|line| line["event"] == event && is_it(&line["detail"]));
        wait_for(find, || format!("no `{event}` in {:#?}", self.log()))
    }

    /// Waits until the log reports that a session has ended for a reason that contains `reason`.
    /// Returns that line of the log.
    pub(crate) fn ended(&self, reason: &str) -> Value {
        self.logged("end", |detail| detail["reason"].as_str().unwrap().contains(reason))
    }

    /// Stops the server and checks that no process, file or descriptor is left behind.
    pub(crate) fn finish(self) {
        self.serves();
        self.server.stop();
        for line in self.log() {
            if let Some(pid) = line["detail"]["pid"].as_u64()
                && line["event"] == "hello"
            {
                self.remember(pid as u32);
            }
        }
        for pid in self.pids.lock().unwrap().iter() {
            let is_gone = || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(());
            wait_for(is_gone, || format!("process {pid} is left"));
        }
        let left: Vec<_> =
            fs::read_dir(self.root().join("sessions")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.log().last().unwrap()["event"], "stop");
        drop(self.server);
        let clients = CLIENTS.load(Ordering::Relaxed);
        let count = descriptors();
        assert!(
            count <= self.descriptors + clients,
            "{count} descriptors, {} and {clients} clients before",
            self.descriptors
        );
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// Number of open clients, each of which holds one file descriptor of this process.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

impl Drop for Client {
    fn drop(&mut self) {
        CLIENTS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(SOON)).unwrap();
        CLIENTS.fetch_add(1, Ordering::Relaxed);
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Returns the next line from the session process, or None at the end of the connection.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().into()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear().expect("an answer")
    }
}

/// Calls `find` repeatedly until it returns a value, and returns that value. After [`SOON`], panics
/// with the message that `why` returns.
pub(crate) fn wait_for<T>(mut find: impl FnMut() -> Option<T>, why: impl Fn() -> String) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < SOON, "{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
