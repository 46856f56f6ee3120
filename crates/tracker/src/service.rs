//! The tracker as a server of sessions: one thread, which waits for all sockets.
//!
//! A session offers the functions `tracker.sync`, `tracker.request`, `tracker.release` and `tracker.summary`, as far as its key grants
//! them. A call is answered after the records of its decision are in the journal.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyfn::{Any, AnyView, Error, Result, bail, error, register};
use anyfn_protocol::endpoint::Service as Offered;
use anyfn_protocol::services::{Denied, Grants, Services, matches};
use anyfn_protocol::sink::Sink;
use anyfn_protocol::{
    Answer, Arrival, Endpoint, Key, Refused, Secret, ServerOpening, SessionLimits, answer_later, code,
};
use anyfn_rpc::keys::{Grant, Keys, Limits, generate_key, read_key, system_random};
use anyfn_rpc::policy::Policy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::journal::Journal;
use crate::state::{Call, Config, Connection, Millis, Refusal, Rights, Tracker};

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 4096;

/// Maximum number of clients that have not proved their key.
const UNPROVED_MAX: usize = 256;

/// Time that a client has to prove its key.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Time without a byte after which a connection is closed. Clients that wait for an answer send a ping after 5 seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// Time after which a connection is closed whose peer does not read.
const STUCK: Duration = Duration::from_secs(20);

/// Number of bytes that a peer has not read, above which the tracker reads nothing more from it.
const UNREAD_MAX: usize = 256 << 10;

/// Limits of a session.
const LIMITS: SessionLimits =
    SessionLimits { handles: 256, calls: 64, message_bytes: 256 << 10, call_seconds: 0, idle_seconds: 0 };

/// Options of a tracker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host name or IP address to listen on.
    pub host: String,
    /// Port to listen on; 0 selects any free port.
    pub port: u16,
    /// Path of a file with a single key, which grants everything.
    pub key_file: Option<PathBuf>,
    /// Path of a file of keys, each with its grants.
    pub keys: Option<PathBuf>,
    /// Path of the journal.
    pub journal: PathBuf,
    /// Time limits and limits of the queue.
    pub config: Config,
}

/// Number, time and length of a file. A file that replaces another one may have the same length, and the same time.
type Stamp = (u64, SystemTime, u64);

/// Clients that may use the tracker.
enum Access {
    /// All that can connect.
    Open,
    /// Those with this key.
    One(Key),
    /// Those with a key of the file, which is read again when it changes.
    File { path: PathBuf, keys: Keys, read: Option<Stamp> },
}

/// Rights of a connection, and its secret. A client whose key is unknown has to prove a secret that nobody knows.
struct Admitted {
    rights: Rights,
    functions: Vec<String>,
    key: Option<Key>,
}

enum Phase {
    Opening(Box<ServerOpening>, Option<Admitted>),
    /// The session, and the client's rights, functions and key.
    Open(Arc<Endpoint>, Rights, Vec<String>, Option<Key>),
}

struct Peer {
    stream: TcpStream,
    phase: Phase,
    /// Output before the session is open.
    out: Vec<u8>,
    since: Instant,
    heard: Instant,
    /// Number of bytes that the peer has not accepted yet.
    unread: usize,
    /// Time at which the peer last accepted bytes.
    moved: Instant,
    /// Reason for which the connection is closed, once its output has been sent.
    over: bool,
}

/// Call of a function of the tracker.
struct Called {
    function: Function,
    text: String,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Sync,
    Request,
    Release,
    Summary,
}

thread_local! {
    /// Calls that the endpoint that runs now has received. Functions of the registry do not know the session that calls them.
    static CALLED: RefCell<Vec<Called>> = const { RefCell::new(Vec::new()) };
}

fn called(function: Function, text: &str) -> Result<Any> {
    let answer = answer_later()?;
    CALLED.with_borrow_mut(|called| called.push(Called { function, text: text.to_owned(), answer }));
    Ok(Any::NONE)
}

/// Registers a server, or reports the state of its leases. `report` is a JSON object. Returns the leases that the server is to serve.
#[register("tracker.sync")]
fn sync(report: &str) -> Result<Any> {
    called(Function::Sync, report)
}

/// Requests devices. `request` is a JSON object with the entries `id`, `kind`, `labels`, `count`, `priority` and `timeout`. Returns the
/// leases as JSON when the devices are ready.
#[register("tracker.request")]
fn request(request: &str) -> Result<Any> {
    called(Function::Request, request)
}

/// Returns devices before a session with them has begun, or ends their sessions. `leases` is a JSON list of names of leases.
#[register("tracker.release")]
fn release(leases: &str) -> Result<Any> {
    called(Function::Release, leases)
}

/// Returns the devices, their leases and the queue as JSON.
#[register("tracker.summary")]
fn summary() -> Result<Any> {
    called(Function::Summary, "")
}

/// Grants of a session: some of the functions of the tracker.
struct Granted(Vec<String>);

impl Grants for Granted {
    fn allows_function(&self, name: &str) -> bool {
        name.starts_with("tracker.") && matches(&self.0, name)
    }

    fn allows_device(&self, _device: &str) -> bool {
        false
    }

    fn how_to_grant(&self, denied: Denied<'_>) -> String {
        match denied {
            Denied::Function(name) if name.starts_with("tracker.") => {
                format!("add {name:?} to `functions` of its key in the file of keys of the tracker")
            }
            _ => "this is a tracker, which offers only functions that begin with `tracker.`".into(),
        }
    }
}

/// Services of a session: look-ups of functions, and nothing else.
struct Desk(Services<Granted>);

impl Offered for Desk {
    fn call(&self, endpoint: &Arc<Endpoint>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any> {
        match code {
            code::GLOBAL | code::NAMES => self.0.call(endpoint, id, code, args),
            _ => bail!(
                "PermissionError",
                "a tracker only offers functions: request a device, and use the session with it"
            ),
        }
    }

    fn upload(&self, _: &Endpoint, _: u16, _: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
        Ok(None)
    }
}

/// Running tracker: its journal, its state and its connections.
pub struct Service {
    listener: TcpListener,
    access: Access,
    checked: Instant,
    journal: Journal,
    tracker: Tracker,
    peers: BTreeMap<Connection, Peer>,
    waiting: BTreeMap<Call, Answer>,
    connections: Connection,
    calls: Call,
    origin: Instant,
}

fn make_key() -> (String, String) {
    let mut name = [0; 8];
    let random = system_random(&mut name).and_then(|()| generate_key("lease"));
    // Without random bytes no key is safe. Nobody can connect with this one, because a server refuses it.
    let secret = random.map(|key| key.secret().to_text()).unwrap_or_default();
    (format!("lease-{:016x}", u64::from_ne_bytes(name)), secret)
}

impl Service {
    /// Opens the journal and listens.
    ///
    /// # Errors
    /// Returns the error of the journal or of the file of keys, `ValueError` if others could connect without a key, and `OSError`
    /// if the address cannot be bound.
    pub fn start(options: Options) -> Result<Service> {
        let Options { host, port, key_file, keys, journal, config } = options;
        let access = match (key_file, keys) {
            (Some(_), Some(_)) => bail!("ValueError", "expected `--key-file` or `--keys`, got both"),
            (Some(file), None) => Access::One(read_key(&file)?),
            (None, Some(path)) => Access::File { read: stamp(&path), keys: read_keys(&path)?, path },
            (None, None) => Access::Open,
        };
        let shown = format!("{host}:{port}");
        let listener = TcpListener::bind((host.as_str(), port))
            .map_err(|why| error!("OSError", "cannot listen at {shown}: {why}"))?;
        let os = |why: std::io::Error| error!("OSError", "cannot listen at {shown}: {why}");
        listener.set_nonblocking(true).map_err(os)?;
        let address = listener.local_addr().map_err(os)?;
        if matches!(access, Access::Open) && !address.ip().is_loopback() {
            bail!(
                "ValueError",
                "{address} can be reached from other machines, and without a key anyone there could use all devices: configure \
                 keys (`anyfn rpc key NAME` creates one), or listen at 127.0.0.1"
            );
        }
        let (journal_file, records) = Journal::open(&journal)?;
        let tracker = Tracker::restore(config, make_key, records, 0)
            .map_err(|why| error!("ValueError", "`{}`: {why}", journal.display()))?;
        let now = Instant::now();
        Ok(Service {
            listener,
            access,
            checked: now,
            journal: journal_file,
            tracker,
            peers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            connections: 0,
            calls: 0,
            origin: now,
        })
    }

    /// Returns the address on which the tracker listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until the journal cannot be written.
    ///
    /// # Errors
    /// Returns `OSError` if the journal cannot be written, or sockets cannot be waited for.
    pub fn run(mut self) -> Result<()> {
        loop {
            self.turn(Duration::from_secs(1))?;
        }
    }

    fn now(&self) -> Millis {
        self.origin.elapsed().as_millis() as Millis
    }

    /// Runs one turn of the event loop, which waits for at most `wait`.
    ///
    /// # Errors
    /// Returns the error of [`Service::run`].
    pub fn turn(&mut self, wait: Duration) -> Result<()> {
        self.wait(wait)?;
        self.accept();
        let ids: Vec<Connection> = self.peers.keys().copied().collect();
        for id in ids {
            self.read(id);
        }
        self.tracker.tick(self.now());
        let records = self.tracker.take_records();
        self.journal.append(&records)?;
        self.send_answers();
        self.check_keys();
        let now = Instant::now();
        for peer in self.peers.values_mut() {
            peer.write(now);
        }
        self.close_ended(now);
        // The ends of connections are decisions, too. Nobody waits for an answer to them.
        let records = self.tracker.take_records();
        self.journal.append(&records)?;
        if self.journal.is_long() {
            let snapshot = self.tracker.snapshot();
            self.journal.replace(&snapshot)?;
        }
        Ok(())
    }

    fn wait(&self, wait: Duration) -> Result<()> {
        let until = self.tracker.deadline().map(|at| Duration::from_millis(at.saturating_sub(self.now())));
        let wait = until.map_or(wait, |until| until.min(wait));
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        for peer in self.peers.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, peer.unread <= UNREAD_MAX && !peer.over);
            flags.set(PollFlags::OUT, peer.unread > 0);
            fds.push(PollFd::from_borrowed_fd(peer.stream.as_fd(), flags));
        }
        match poll(&mut fds, Some(&wait)) {
            Ok(_) => Ok(()),
            Err(why) if why == rustix::io::Errno::INTR => Ok(()),
            Err(why) => bail!("OSError", "cannot wait for connections: {why}"),
        }
    }

    fn accept(&mut self) {
        for _ in 0..64 {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(why) => {
                    if why.kind() != ErrorKind::WouldBlock {
                        // There are no descriptors left; connections that end will release some.
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
            };
            if self.peers.len() >= CONNECTIONS_MAX || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let _ = stream.set_nodelay(true);
            let is_unproved = |peer: &&Peer| matches!(peer.phase, Phase::Opening(..));
            if self.peers.values().filter(is_unproved).count() >= UNPROVED_MAX
                && let Some(oldest) = self.peers.iter().find(|(_, peer)| is_unproved(peer)).map(|(id, _)| *id)
            {
                self.peers.remove(&oldest);
            }
            self.connections += 1;
            let now = Instant::now();
            let phase = Phase::Opening(Box::new(ServerOpening::new("client")), None);
            let peer = Peer {
                stream,
                phase,
                out: Vec::new(),
                since: now,
                heard: now,
                unread: 0,
                moved: now,
                over: false,
            };
            self.peers.insert(self.connections, peer);
        }
    }

    /// Reads what a peer has sent, and runs the calls in it.
    fn read(&mut self, id: Connection) {
        let mut bytes = [0; 16 << 10];
        for _ in 0..16 {
            let Some(peer) = self.peers.get_mut(&id) else { return };
            if peer.over || peer.unread > UNREAD_MAX {
                return;
            }
            let count = match peer.stream.read(&mut bytes) {
                Ok(0) => {
                    peer.over = true;
                    return;
                }
                Ok(count) => count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    peer.over = true;
                    return;
                }
            };
            peer.heard = Instant::now();
            let is_fine = match &mut peer.phase {
                Phase::Opening(..) => peer.open(&self.access, &bytes[..count]),
                Phase::Open(endpoint, ..) => endpoint.receive(&bytes[..count]).is_ok(),
            };
            peer.over |= !is_fine;
            self.run_calls(id);
        }
    }

    fn run_calls(&mut self, id: Connection) {
        loop {
            let Some(Phase::Open(endpoint, rights, ..)) = self.peers.get(&id).map(|peer| &peer.phase) else {
                return;
            };
            let (endpoint, rights) = (endpoint.clone(), rights.clone());
            let has_run = endpoint.run_next();
            for called in CALLED.take() {
                self.decide(id, &rights, called);
            }
            if !has_run {
                return;
            }
        }
    }

    fn decide(&mut self, connection: Connection, rights: &Rights, called: Called) {
        self.calls += 1;
        let (call, now, text) = (self.calls, self.now(), called.text.as_str());
        let wrong = |why: serde_json::Error| {
            error!("ValueError", "expected the JSON of a message to the tracker: {why}")
        };
        let done = match called.function {
            Function::Sync => serde_json::from_str(text)
                .map(|sync| self.tracker.sync(now, rights, connection, call, sync))
                .map_err(wrong),
            Function::Request => serde_json::from_str(text)
                .map(|ask| self.tracker.request(now, rights, connection, call, ask))
                .map_err(wrong),
            Function::Release => match serde_json::from_str::<Vec<String>>(text) {
                Ok(leases) => {
                    self.tracker.release(now, rights, &leases);
                    return called.answer.send(Ok(Any::NONE));
                }
                Err(why) => Err(wrong(why)),
            },
            Function::Summary => return called.answer.send(Any::new(self.tracker.summary(now).to_string())),
        };
        match done {
            Ok(()) => drop(self.waiting.insert(call, called.answer)),
            Err(error) => called.answer.send(Err(error)),
        }
    }

    fn send_answers(&mut self) {
        for (call, answer) in self.tracker.take_answers() {
            let Some(waiting) = self.waiting.remove(&call) else { continue };
            waiting.send(match answer {
                Ok(value) => Any::new(value.to_string()),
                Err(Refusal(kind, message)) => Err(Error::untraced(kind, &message)),
            });
        }
    }

    /// Reads the file of keys again if it has changed, and ends the sessions of keys that it no longer contains, or that grant something
    /// else. Servers and clients then connect again.
    fn check_keys(&mut self) {
        if self.checked.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.checked = Instant::now();
        let Access::File { path, keys, read } = &mut self.access else { return };
        let now = stamp(path);
        if now == *read {
            return;
        }
        *read = now;
        match read_keys(path) {
            Ok(new) => *keys = new,
            Err(why) => return eprintln!("anyfn rpc tracker: {}; the former keys stay in use", why.message()),
        }
        for peer in self.peers.values_mut() {
            let Phase::Open(endpoint, rights, functions, Some(key)) = &peer.phase else { continue };
            let is_same = keys.get(key.name()).is_some_and(|grant| {
                grant.secret.as_ref() == Some(key.secret())
                    && (rights, functions) == (&rights_of(key.name(), grant), &grant.policy.functions)
            });
            if !is_same {
                endpoint.close();
                peer.over = true;
            }
        }
    }

    fn close_ended(&mut self, now: Instant) {
        let is_over = |peer: &Peer| {
            let is_late = match &peer.phase {
                Phase::Opening(..) => now.duration_since(peer.since) > HANDSHAKE,
                Phase::Open(endpoint, ..) => {
                    endpoint.ended().is_some() || now.duration_since(peer.heard) > SILENCE
                }
            };
            is_late || peer.over || peer.unread > 0 && now.duration_since(peer.moved) > STUCK
        };
        let ended: Vec<Connection> =
            self.peers.iter().filter(|(_, peer)| is_over(peer)).map(|(id, _)| *id).collect();
        for id in ended {
            if let Some(Peer { phase: Phase::Open(endpoint, ..), .. }) = self.peers.remove(&id) {
                endpoint.disconnected("the connection was closed");
                let is_of_other = |_: &Call, answer: &mut Answer| !Arc::ptr_eq(answer.endpoint(), &endpoint);
                self.waiting.retain(is_of_other);
                self.tracker.disconnect(self.now(), id);
            }
        }
    }
}

impl Peer {
    /// Continues the handshake. Returns false if the connection is to be closed.
    fn open(&mut self, access: &Access, bytes: &[u8]) -> bool {
        let Phase::Opening(opening, admitted) = &mut self.phase else { return false };
        let mut arrival = opening.receive(bytes);
        if let Ok(Arrival::Named(name)) = &arrival {
            arrival = match access.admit(name.as_deref()) {
                Ok(granted) => {
                    let accepted = opening.accept(granted.key.as_ref(), system_random);
                    *admitted = Some(granted);
                    accepted
                }
                Err(why) => Err(opening.refuse(&why)),
            };
        }
        let is_greeted = match arrival {
            Ok(arrival) => arrival == Arrival::Greeted,
            Err(_) => {
                self.out.extend_from_slice(&opening.take_output());
                return false;
            }
        };
        self.out.extend_from_slice(&opening.take_output());
        if !is_greeted {
            return true;
        }
        let Some(Admitted { rights, functions, key }) = admitted.take() else { return false };
        let opening = std::mem::replace(&mut **opening, ServerOpening::new("client"));
        let services = Box::new(Desk(Services::new(Granted(functions.clone()))));
        let Ok((opened, out)) = opening.welcome(LIMITS, Some(services)) else { return false };
        self.out.extend_from_slice(&out);
        let endpoint = opened.endpoint();
        // Calls may have arrived together with the greeting.
        let is_fine = endpoint.receive(&[]).is_ok();
        self.phase = Phase::Open(endpoint, rights, functions, key);
        is_fine
    }

    /// Sends as much output as the peer accepts.
    fn write(&mut self, now: Instant) {
        let Peer { stream, out, phase, .. } = self;
        let mut has_moved = false;
        let mut send = |bytes: &[u8]| match stream.write(bytes) {
            Ok(count) => {
                has_moved |= count > 0;
                count
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            // Nobody will read the rest; reading reports the end.
            Err(_) => bytes.len(),
        };
        if !out.is_empty() {
            let count = send(out);
            out.drain(..count);
        }
        let mut unread = out.len();
        if let (true, Phase::Open(endpoint, ..)) = (out.is_empty(), &*phase) {
            unread += endpoint.send_output(send);
        }
        if has_moved || self.unread == 0 {
            self.moved = now;
        }
        self.unread = unread;
    }
}

impl Access {
    /// Decides about a client that claims to have a key, or has none.
    fn admit(&self, name: Option<&str>) -> Result<Admitted, Refused> {
        let all = || vec!["tracker.*".to_owned()];
        let rights =
            |user: &str| Rights { user: user.to_owned(), leases: u32::MAX, seconds: 0, priority: true };
        match (self, name) {
            (Access::Open, None) => Ok(Admitted { rights: rights(""), functions: all(), key: None }),
            (Access::Open, Some(_)) => Err(Refused::KeyNotTaken),
            (_, None) => Err(Refused::NoKey),
            (Access::One(key), Some(name)) if key.name() == name => {
                Ok(Admitted { rights: rights(name), functions: all(), key: Some(key.clone()) })
            }
            (Access::File { keys, .. }, Some(name)) if let Some(grant) = keys.get(name) => {
                let functions = grant.policy.functions.clone();
                let rights = rights_of(name, grant);
                let secret = grant.secret.clone().ok_or(Refused::NoRandom)?;
                let key = Key::new(name, secret).map_err(|_| Refused::NoRandom)?;
                Ok(Admitted { rights, functions, key: Some(key) })
            }
            (_, Some(name)) => {
                let secret = Secret::generate(system_random).map_err(|_| Refused::NoRandom)?;
                let key = Key::new(name, secret).map_err(|_| Refused::Foreign)?;
                Ok(Admitted { rights: rights(name), functions: Vec::new(), key: Some(key) })
            }
        }
    }
}

fn rights_of(name: &str, grant: &Grant) -> Rights {
    Rights {
        user: name.to_owned(),
        leases: grant.limits.sessions,
        seconds: grant.limits.seconds,
        priority: matches(&grant.policy.functions, "tracker.priority"),
    }
}

fn read_keys(path: &std::path::Path) -> Result<Keys> {
    Keys::read(path, &Policy::closed(), &Limits::DEFAULT)
}

fn stamp(path: &std::path::Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.modified().ok()?, metadata.len()))
}
