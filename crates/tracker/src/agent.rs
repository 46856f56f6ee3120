//! The agent of a server: registers it with a tracker, installs the keys of its leases, and reports their sessions.
//!
//! The server reads its keys from a file, which the agent rewrites. A key that is removed ends its session within a second. Two threads
//! exchange reports and answers with the tracker: one waits for news, the other reports when a session begins or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyfn::{PackedFunc, Ref, Result, bail, error, registry};
use anyfn_rpc::Session;
use anyfn_rpc::keys::{generate_key, system_random};
use anyfn_rpc::server::{SessionInfo, SessionState};
use serde_json::{Value, json};

use crate::message::{AtServer, Labels, Sync, Synced};

/// Time in seconds that a report waits for news.
const WAIT: f64 = 4.0;

/// Interval at which the sessions are examined while there are leases.
const LOOK: Duration = Duration::from_millis(20);

/// Pause before the next attempt to reach the tracker. It doubles after each failure, up to the maximum.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// Returns a random duration from half of `pause` to `pause`, so that the servers of a pool do not all connect at the same time after
/// their tracker has been started again.
fn spread(pause: Duration) -> Duration {
    let mut random = [0];
    let _ = system_random(&mut random);
    pause / 2 + pause * u32::from(random[0]) / 510
}

/// Registration of a server.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Address of the tracker, `host:port`.
    pub tracker: String,
    /// Path of a file with the key for the tracker.
    pub key_file: Option<String>,
    /// Name of the server, unique within the tracker.
    pub name: String,
    /// Kind of the device.
    pub kind: String,
    /// Labels of the device.
    pub labels: Labels,
    /// Address for clients, `host:port` or a URL.
    pub address: String,
}

/// File of the keys of the current leases. It is removed with its folder when this value is dropped.
#[derive(Debug)]
pub struct LeaseKeys {
    folder: PathBuf,
    /// Grants of every lease, as in a file of keys.
    grant: Value,
}

impl LeaseKeys {
    /// Creates the file with a key that nobody has. `grant` contains the entries `functions` and `upload` of all leases.
    ///
    /// # Errors
    /// Returns `OSError` if the file cannot be written.
    pub fn create(grant: Value) -> Result<LeaseKeys> {
        let mut random = [0; 8];
        system_random(&mut random)?;
        let name = format!("anyfn-leases-{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        let folder = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|why| failed(&folder, &why))?;
        let keys = LeaseKeys { folder, grant };
        keys.write(&BTreeMap::new())?;
        Ok(keys)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join("keys")
    }

    fn write(&self, leases: &BTreeMap<String, Lease>) -> Result<()> {
        let nobody = json!({ "secret": generate_key("nobody")?.secret().to_text() });
        let mut keys = serde_json::Map::from_iter([("nobody".to_owned(), nobody)]);
        for (name, lease) in leases.iter().filter(|(_, lease)| !lease.revoked) {
            let mut entry = self.grant.clone();
            entry["secret"] = json!(lease.secret);
            entry["seconds"] = json!(lease.seconds);
            entry["sessions"] = json!(1);
            keys.insert(name.clone(), entry);
        }
        let (new, path) = (self.folder.join("new"), self.path());
        let text = json!({ "keys": keys }).to_string();
        let mut options = std::fs::File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| std::fs::rename(&new, &path)).map_err(|why| failed(&path, &why))
    }
}

impl Drop for LeaseKeys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn failed(path: &Path, why: &std::io::Error) -> anyfn::Error {
    error!("OSError", "cannot write `{}`: {why}", path.display())
}

/// Functions by which the agent sees the sessions of its server.
pub struct Sessions {
    /// Returns the sessions that exist.
    pub current: Box<dyn Fn() -> Vec<SessionInfo> + Send + std::marker::Sync>,
    /// Sessions that have ended since they were last taken.
    pub ended: Arc<Mutex<Vec<SessionInfo>>>,
}

#[derive(Clone, Debug)]
struct Lease {
    secret: String,
    seconds: u64,
    at_server: AtServer,
    /// True if its key is no longer accepted, but a session may not have ended yet.
    revoked: bool,
}

#[derive(Default)]
struct State {
    leases: BTreeMap<String, Lease>,
    ended: BTreeSet<String>,
    /// Numbers of the last report, and of the last report whose answer was applied.
    number: u64,
    applied: u64,
    /// Leases and ended leases in the last report.
    reported: (BTreeMap<String, AtServer>, BTreeSet<String>),
}

struct Shared {
    registration: Registration,
    instance: String,
    keys: LeaseKeys,
    sessions: Sessions,
    state: Mutex<State>,
    /// Session with the tracker and its function `tracker.sync`, while they are connected.
    line: Mutex<Option<(Ref<Session>, PackedFunc)>>,
    stopped: AtomicBool,
}

/// Running agent. It stops when it is dropped; the tracker then considers the server offline.
pub struct Agent {
    shared: Arc<Shared>,
}

impl Agent {
    /// Registers a server, and keeps it registered. If the tracker cannot be reached, the agent keeps trying.
    ///
    /// # Errors
    /// Returns the error with which the tracker refuses the server: `PermissionError` for its key, `ValueError` for a name that
    /// another server has.
    pub fn start(registration: Registration, keys: LeaseKeys, sessions: Sessions) -> Result<Agent> {
        let mut random = [0; 8];
        system_random(&mut random)?;
        let instance = format!("{:016x}", u64::from_ne_bytes(random));
        let shared = Arc::new(Shared::new(registration, instance, keys, sessions));
        match shared.exchange(0.0) {
            Err(error) if !matches!(error.kind(), "ConnectionError" | "TimeoutError") => return Err(error),
            Err(error) => log("cannot reach the tracker", &error),
            Ok(()) => {}
        }
        let (waits, watches) = (shared.clone(), shared.clone());
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let started = std::thread::Builder::new().name(name.into()).spawn(run);
            started.map(drop).map_err(|why| error!("OSError", "cannot start a thread: {why}"))
        };
        start("anyfn-tracker-wait", Box::new(move || waits.wait()))?;
        start("anyfn-tracker-look", Box::new(move || watches.watch()))?;
        Ok(Agent { shared })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // While a thread connects, it has the lock; it closes its session itself.
        let line = self.shared.line.try_lock().ok().and_then(|mut line| line.take());
        if let Some((session, _)) = line {
            session.close();
        }
        let _ = std::fs::remove_dir_all(&self.shared.keys.folder);
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line to the standard error, in the form of the log of a server.
fn log(what: &str, why: &anyfn::Error) {
    eprintln!("{}", json!({ "event": "tracker", "detail": { "what": what, "why": why.message() } }));
}

impl Shared {
    fn new(registration: Registration, instance: String, keys: LeaseKeys, sessions: Sessions) -> Shared {
        Shared {
            registration,
            instance,
            keys,
            sessions,
            state: Mutex::default(),
            line: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Waits for news until the agent stops.
    fn wait(&self) {
        let mut pause = PAUSE;
        while !self.stopped.load(Ordering::Relaxed) {
            match self.exchange(WAIT) {
                Ok(()) => pause = PAUSE,
                Err(error) => {
                    if pause == PAUSE && !self.stopped.load(Ordering::Relaxed) {
                        log("cannot report to the tracker; trying again", &error);
                    }
                    std::thread::sleep(spread(pause));
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Reports sessions that begin and end until the agent stops.
    fn watch(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let is_news = {
                let mut state = locked(&self.state);
                self.look(&mut state);
                state.reported != state.report()
            };
            if is_news && locked(&self.line).is_some() && self.exchange(0.0).is_err() {
                // The other thread connects again.
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Updates the leases from the sessions of the server.
    fn look(&self, state: &mut State) {
        let ended = std::mem::take(&mut *locked(&self.sessions.ended));
        if state.leases.is_empty() {
            return;
        }
        let mut has_changed = false;
        for session in ended {
            let Some(key) = session.key.filter(|_| session.state == SessionState::Active) else { continue };
            // Its client may have begun another session before the key is removed. That one is ended first.
            if let Some(lease) = state.leases.get_mut(&key) {
                lease.revoked = true;
                has_changed = true;
            }
        }
        let current = (self.sessions.current)();
        let State { leases, ended, .. } = state;
        leases.retain(|name, lease| {
            let of_lease = || current.iter().filter(|session| session.key.as_ref() == Some(name));
            if of_lease().any(|session| session.state == SessionState::Active) {
                lease.at_server = AtServer::Active;
            }
            // Clients that only name the key of an earlier lease do not keep the device.
            let is_proved =
                |session: &SessionInfo| matches!(session.state, SessionState::Waiting | SessionState::Active);
            let is_needed = !lease.revoked || of_lease().any(is_proved);
            if !is_needed {
                ended.insert(name.clone());
            }
            is_needed
        });
        if has_changed && let Err(why) = self.keys.write(&state.leases) {
            log("cannot remove the key of a lease", &why);
        }
    }

    /// Sends a report, and applies the answer.
    fn exchange(&self, wait: f64) -> Result<()> {
        let sync = self.connected()?;
        let (report, number) = {
            let mut state = locked(&self.state);
            self.look(&mut state);
            state.number += 1;
            state.reported = state.report();
            let Registration { name, kind, labels, address, .. } = self.registration.clone();
            let (leases, ended) = state.reported.clone();
            let report = Sync {
                name,
                kind,
                labels,
                address,
                instance: self.instance.clone(),
                number: state.number,
                leases,
                ended: ended.into_iter().collect(),
                wait,
            };
            (json!(report).to_string(), state.number)
        };
        let answer = sync.call((report.as_str(),)).and_then(|answer| answer.get::<String>());
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                *locked(&self.line) = None;
                // It has to be reported again.
                locked(&self.state).reported = Default::default();
                return Err(error);
            }
        };
        match serde_json::from_str(&answer) {
            Ok(synced) => self.apply(number, synced),
            Err(why) => bail!("ConnectionError", "invalid answer of the tracker: {why}"),
        }
    }

    /// Returns `tracker.sync` of the tracker. Connects if there is no session.
    fn connected(&self) -> Result<PackedFunc> {
        let mut line = locked(&self.line);
        if let Some((_, sync)) = &*line {
            return Ok(sync.clone());
        }
        let Registration { tracker, key_file, .. } = &self.registration;
        let (host, port) = split(tracker)?;
        let none: Option<&str> = None;
        let session = registry::get("rpc.connect")?.call((host, port, none, 10.0, key_file.as_deref()))?;
        let session = session.get::<Ref<Session>>()?;
        let sync = session.get_function("tracker.sync")?;
        if self.stopped.load(Ordering::Relaxed) {
            session.close();
            bail!("ConnectionError", "the agent has stopped");
        }
        *line = Some((session, sync.clone()));
        Ok(sync)
    }

    /// Accepts the keys of the leases in an answer, and no others.
    fn apply(&self, number: u64, synced: Synced) -> Result<()> {
        let mut state = locked(&self.state);
        if number <= state.applied {
            return Ok(());
        }
        state.applied = number;
        let wanted: BTreeSet<&String> = synced.leases.iter().map(|offer| &offer.lease).collect();
        let mut has_changed = false;
        state.ended.retain(|name| wanted.contains(name));
        for (name, lease) in &mut state.leases {
            if !wanted.contains(name) && !lease.revoked {
                (lease.revoked, has_changed) = (true, true);
            }
        }
        for offer in &synced.leases {
            if !state.leases.contains_key(&offer.lease) && !state.ended.contains(&offer.lease) {
                let lease = Lease {
                    secret: offer.secret.clone(),
                    seconds: offer.seconds,
                    at_server: AtServer::Ready,
                    revoked: false,
                };
                state.leases.insert(offer.lease.clone(), lease);
                has_changed = true;
            }
        }
        if has_changed { self.keys.write(&state.leases) } else { Ok(()) }
    }
}

impl State {
    fn report(&self) -> (BTreeMap<String, AtServer>, BTreeSet<String>) {
        let leases = self.leases.iter().map(|(name, lease)| (name.clone(), lease.at_server));
        (leases.collect(), self.ended.clone())
    }
}

/// Splits an address of the form `host:port`.
///
/// # Errors
/// Returns `ValueError` if the text does not have this form.
pub fn split(address: &str) -> Result<(&str, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() && port > 0 => {
            Ok((host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port))
        }
        _ => bail!("ValueError", "expected the address of a tracker as HOST:PORT, got `{address}`"),
    }
}

/// Returns the address at which clients reach a server that listens at `address`: that of the interface towards the tracker if the
/// server listens at all of them.
pub fn reachable(address: SocketAddr, tracker: &str) -> String {
    let towards = || -> Option<IpAddr> {
        let to = split(tracker).ok()?.to_socket_addrs().ok()?.next()?;
        let socket = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).ok()?;
        // No packet is sent.
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let ip = if address.ip().is_unspecified() { towards() } else { None }.unwrap_or(address.ip());
    SocketAddr::new(ip, address.port()).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::message::Offer;

    /// Sessions that a test sets.
    type List = Arc<Mutex<Vec<SessionInfo>>>;

    /// Returns an agent that is not connected, with its lists of current and ended sessions.
    fn agent() -> (Shared, List, List) {
        let registration = Registration {
            tracker: "127.0.0.1:1".into(),
            key_file: None,
            name: "board".into(),
            kind: "pi4".into(),
            labels: Labels::new(),
            address: "127.0.0.1:2".into(),
        };
        let (current, ended) = (List::default(), List::default());
        let listed = current.clone();
        let sessions = Sessions { current: Box::new(move || locked(&listed).clone()), ended: ended.clone() };
        let keys = LeaseKeys::create(json!({ "functions": [], "upload": false })).unwrap();
        (Shared::new(registration, "run".into(), keys, sessions), current, ended)
    }

    fn session(number: u64, key: &str, state: SessionState) -> SessionInfo {
        SessionInfo { number, pid: 1, peer: "127.0.0.1:3".parse().unwrap(), key: Some(key.into()), state }
    }

    /// Returns an answer of the tracker with the leases of these names.
    fn synced(names: &[&str]) -> Synced {
        let secret = generate_key("lease").unwrap().secret().to_text();
        let offer = |name: &&str| Offer {
            lease: (*name).to_owned(),
            user: "alice".into(),
            secret: secret.clone(),
            seconds: 0,
        };
        Synced { leases: names.iter().map(offer).collect() }
    }

    fn reported(agent: &Shared) -> (BTreeMap<String, AtServer>, BTreeSet<String>) {
        let mut state = locked(&agent.state);
        agent.look(&mut state);
        state.report()
    }

    /// A key is for one session: when that has ended, the key is removed, and the device is free after other sessions that its client has
    /// begun meanwhile have ended. Connections that only name the key do not keep the device.
    #[test]
    fn a_lease_ends_with_the_last_session_of_its_key() {
        let (agent, current, ended) = agent();
        let accepts = || std::fs::read_to_string(agent.keys.path()).unwrap().contains("lease-1");
        agent.apply(1, synced(&["lease-1"])).unwrap();
        assert!(accepts());
        *locked(&current) = vec![session(1, "lease-1", SessionState::Active)];
        assert_eq!(reported(&agent).0, [("lease-1".into(), AtServer::Active)].into());
        // The session ends, another has begun.
        locked(&ended).push(session(1, "lease-1", SessionState::Active));
        *locked(&current) = vec![session(2, "lease-1", SessionState::Active)];
        assert_eq!(reported(&agent), ([("lease-1".into(), AtServer::Active)].into(), BTreeSet::new()));
        assert!(!accepts());
        // The tracker still lists the lease: its key is not accepted again.
        agent.apply(2, synced(&["lease-1"])).unwrap();
        assert!(!accepts());
        *locked(&current) = vec![session(3, "lease-1", SessionState::Proving)];
        assert_eq!(reported(&agent), (BTreeMap::new(), ["lease-1".into()].into()));
        agent.apply(3, synced(&[])).unwrap();
        assert_eq!(reported(&agent), (BTreeMap::new(), BTreeSet::new()));
    }

    #[test]
    fn pauses_are_spread() {
        let all: BTreeSet<Duration> = (0..100).map(|_| spread(PAUSE)).collect();
        assert!(all.len() > 10 && all.iter().all(|pause| (PAUSE / 2..=PAUSE).contains(pause)), "{all:?}");
    }

    /// A signal ends a server at once, although a thread of it waits for a tracker that does not answer.
    #[test]
    fn an_agent_that_connects_stops_at_once() {
        let shared = Arc::new(agent().0);
        let folder = shared.keys.folder.clone();
        let connecting = shared.line.lock().unwrap();
        let (done, stopped) = mpsc::channel();
        std::thread::spawn({
            let agent = Agent { shared: shared.clone() };
            move || {
                drop(agent);
                done.send(()).unwrap();
            }
        });
        stopped.recv_timeout(Duration::from_secs(30)).expect("the agent waits for the connection");
        drop(connecting);
        assert!(!folder.exists());
    }
}
