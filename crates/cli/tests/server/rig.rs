//! Test fixture: a server with a separate folder, and checks that its sessions leave nothing behind.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyfn::{Ref, registry};
use anyfn_host::rpc::Session;
use serde_json::Value;

use crate::hand::*;

/// Maximum time to wait for an event that should happen soon. Such events usually take much less time.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// Options that grant all functions and services that the tests use.
pub(crate) const GRANTED: &[&str] = &["--allow", "testing.*", "--upload"];

/// Options that load the test functions. The empty string is replaced by the path of the plugin.
pub(crate) const LOADS: &[&str] = &["--load", ""];

pub(crate) struct Server {
    process: Child,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// True if clients of this server need the key [`ALICE`].
    pub(crate) with_key: bool,
    pub(crate) root: PathBuf,
    descriptors: usize,
}

/// Returns true if the environment requests the long variants of the tests.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("ANYFN_SOAK").is_some()
}

/// Returns the path of the plugin `anyfn-testing`, which contains sample functions. Cargo has built it beside
/// the test program.
pub(crate) fn plugin() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let deps = deps.parent().unwrap();
    let candidates = [deps.join("libanyfn_testing.so"), deps.join("../libanyfn_testing.so")];
    candidates.into_iter().find(|path| path.exists()).expect("anyfn-testing is built")
}

impl Server {
    /// Starts a server without a key, with additional options.
    pub(crate) fn open(words: &[&str]) -> Server {
        Server::start(&[LOADS, words].concat(), None)
    }

    /// Starts a server with the key [`ALICE`], with additional options.
    pub(crate) fn with_key(words: &[&str]) -> Server {
        Server::start(&[LOADS, words].concat(), Some(("--key-file", ALICE)))
    }

    /// Starts a server with the options `words`. `secrets` is a further option that takes a file, and the
    /// content of that file. The server loads the test functions only if `words` contains [`LOADS`].
    pub(crate) fn start(words: &[&str], secrets: Option<(&str, &str)>) -> Server {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("anyfn-cli-server-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("sessions")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
        command.args(["rpc", "server", "--port", "0"]);
        command.arg("--folder").arg(root.join("sessions")).arg("--log").arg(root.join("log"));
        if let Some((option, content)) = secrets {
            let file = root.join("keys");
            let mut options = fs::File::options();
            let mut file_of_keys = options.create_new(true).write(true).mode(0o600).open(&file).unwrap();
            std::io::Write::write_all(&mut file_of_keys, content.as_bytes()).unwrap();
            command.arg(option).arg(file);
        }
        let plugin = plugin().into_os_string();
        command.args(words.iter().map(|word| if word.is_empty() { &plugin } else { OsStr::new(word) }));
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = dies_with_us(&mut command).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (host, port) =
            line.trim().trim_start_matches("listening at ").rsplit_once(':').expect("an address");
        let mut server = Server {
            process,
            host: host.into(),
            port: port.parse().unwrap(),
            with_key: secrets.is_some(),
            root,
            descriptors: 0,
        };
        server.serves();
        server.wait_until_quiet();
        server.descriptors = server.descriptors();
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Opens a connection without sending anything.
    pub(crate) fn connect(&self) -> UnixStream {
        dial(&self.host, self.port)
    }

    /// Connects a client and completes its handshake.
    pub(crate) fn line(&self) -> Line {
        let stream = self.connect();
        if self.with_key { Line::greet_with_key(stream) } else { Line::greet(stream) }
    }

    /// Connects to the server with the library's own client (`rpc.connect`).
    pub(crate) fn session(&self, timeout: f64) -> anyfn::Result<Ref<Session>> {
        let key = self.with_key.then_some(ALICE);
        registry::get("rpc.connect")?.call((&*self.host, self.port, key, timeout))?.get::<Ref<Session>>()
    }

    /// Checks that the next client is served. Tests call this after every attack.
    pub(crate) fn serves(&self) {
        let started = Instant::now();
        let mut line = self.line();
        line.send(&ask(1, INFO, &[]));
        assert_eq!(line.answer(1).unwrap()[0], 12);
        line.send(&frame(BYE, 0, 0, b"well"));
        line.drain();
        assert!(started.elapsed() < SOON);
    }

    /// Returns the ids of the session processes.
    pub(crate) fn children(&self) -> Vec<u32> {
        let parent = self.pid().to_string();
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let mut rest = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(1);
            if rest.next() == Some(&*parent) {
                all.push(pid);
            }
        }
        all
    }

    /// Returns the folders of the sessions.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let of_servers = fs::read_dir(self.root.join("sessions")).unwrap().flatten();
        of_servers.flat_map(|entry| fs::read_dir(entry.path()).unwrap().flatten()).map(|e| e.path()).collect()
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Returns the number of open descriptors of the listener, once it no longer changes. Starting a session
    /// needs descriptors that the listener closes later.
    pub(crate) fn steady_descriptors(&self) -> u64 {
        let (mut last, mut same) = (0, 0);
        wait_for(
            || {
                let now = self.descriptors();
                same = if now == last { same + 1 } else { 0 };
                last = now;
                (same >= 20).then_some(now as u64)
            },
            || "the number of descriptors does not settle".to_owned(),
        )
    }

    /// Returns the resident memory of the listener in KiB.
    pub(crate) fn memory(&self) -> u64 {
        status(self.pid(), "VmRSS:")
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.root.join("log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the reasons why sessions have ended, from the server's log.
    pub(crate) fn ends(&self) -> Vec<String> {
        let log = self.log();
        let ends = log.iter().filter(|line| line["event"] == "end");
        ends.map(|line| line["detail"]["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the server's log reports that a session has ended for a reason that contains `reason`.
    pub(crate) fn ended(&self, reason: &str) {
        wait_for(
            || self.ends().iter().any(|why| why.contains(reason)).then_some(()),
            || format!("no session ended by `{reason}`: {:?}", self.ends()),
        );
    }

    /// Waits until all session processes have ended and all session folders are removed.
    pub(crate) fn wait_until_quiet(&self) {
        wait_for(
            || (self.children().is_empty() && self.folders().is_empty()).then_some(()),
            || format!("left: processes {:?}, folders {:?}", self.children(), self.folders()),
        );
    }

    /// Waits until the server process has ended, whatever its exit status.
    pub(crate) fn wait_for_end(&self) {
        wait_for(
            || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
                stat.rsplit(") ")
                    .next()
                    .is_none_or(|rest| rest.starts_with('Z') || rest.is_empty())
                    .then_some(())
            },
            || "the server does not end".into(),
        );
    }

    /// Serves another client, ends the server, and checks that no process, descriptor or folder of
    /// any client is left.
    pub(crate) fn finish(mut self) {
        self.serves();
        self.wait_until_quiet();
        wait_for(
            || (self.descriptors() <= self.descriptors).then_some(()),
            || format!("{} descriptors, {} before", self.descriptors(), self.descriptors),
        );
        signal(self.pid(), libc::SIGTERM);
        assert!(self.process.wait().unwrap().success());
        assert_eq!(fs::read_dir(self.root.join("sessions")).unwrap().count(), 0);
        let text = fs::read_to_string(self.root.join("log")).unwrap();
        assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)));
        text.lines().for_each(check_text);
        assert!(!text.contains(&ALICE[6..]), "the log has a secret");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.root.join("log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("the log ends with\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Makes `command` start a process that is killed when this test ends, even if the test itself is killed.
pub(crate) fn dies_with_us(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    let prepare = || {
        // SAFETY: this is a system call that affects only the new process.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: the function makes only a system call.
    unsafe { command.pre_exec(prepare) }
}

/// Returns the number in the line `name` of `/proc/<pid>/status`.
pub(crate) fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

pub(crate) fn dial(host: &str, port: u16) -> UnixStream {
    let stream = TcpStream::connect((host, port)).unwrap();
    stream.set_nodelay(true).unwrap();
    // The test client, `Line`, works with any connected socket.
    let stream = UnixStream::from(OwnedFd::from(stream));
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream
}

pub(crate) fn signal(pid: u32, number: i32) {
    // SAFETY: `kill` takes only numbers.
    unsafe { libc::kill(pid as i32, number) };
}

/// Waits until `find` returns a value, and returns it. Panics with the message from `why` if this takes
/// longer than [`SOON`].
pub(crate) fn wait_for<T>(find: impl FnMut() -> Option<T>, why: impl Fn() -> String) -> T {
    wait_long_for(SOON, find, why)
}

pub(crate) fn wait_long_for<T>(
    most: Duration,
    mut find: impl FnMut() -> Option<T>,
    why: impl Fn() -> String,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < most, "{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Decodes an array of strings that a session has sent.
pub(crate) fn texts(value: &[u8]) -> Vec<String> {
    assert_eq!(value[0], 10);
    let number = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 5;
    (0..number(1))
        .map(|_| {
            assert_eq!(value[at], 5);
            let length = number(at + 1);
            at += 5 + length;
            String::from_utf8(value[at - length..at].to_vec()).unwrap()
        })
        .collect()
}

pub(crate) fn float(value: f64) -> Vec<u8> {
    [&[4][..], &value.to_le_bytes()].concat()
}

pub(crate) fn bool(value: bool) -> Vec<u8> {
    vec![1 + u8::from(value)]
}

/// Returns the hexadecimal BLAKE2s digest of a file's content, under which a session stores the file.
pub(crate) fn digest(content: &[u8]) -> String {
    use blake2::Digest;
    blake2::Blake2s256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Uploads a file in parts with call number `id`, and returns its digest.
pub(crate) fn put(line: &mut Line, id: u64, content: &[u8]) -> String {
    let digest = digest(content);
    line.send(&ask(id, PUT, &[text(&digest), int(content.len() as i64)]));
    for (at, part) in (0..).step_by(100_000).zip(content.chunks(100_000)) {
        line.send(&data(id, at, part));
    }
    line.answer(id).unwrap();
    digest
}

/// Returns all paths below a folder.
pub(crate) fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        all.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            all.extend(tree(&entry.path()));
        }
    }
    all
}
