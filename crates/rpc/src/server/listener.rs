//! Main loop of the listener. A single thread handles connections, messages of session processes, ended
//! processes, and deadlines.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyfn::{Result, error};
use serde_json::{Map, Value, json};

use super::access::{Access, Answer, Keyring};
use super::audit::{Audit, Log};
use super::config::ServerConfig;
use super::control::{FromSession, MESSAGE_MAX, Refusal, ToSession};
use super::folder::{Folder, Report};
use super::output::Output;
use super::queue::{Entered, Queue};
use super::sandbox::Sandbox;
use super::session::{Session, SessionInfo, SessionState};
use super::spawn::{self, Program, Start};
use super::sys::{self, Polled};
use crate::keys::Limits;
use crate::signals;
use anyfn_protocol::handshake::{Refused, Server};

/// Maximum number of connections without a session process. At the limit, a further connection replaces an
/// old one; see `Listener::drop_silent`.
const SILENT_MAX: usize = 256;

/// Maximum number of connections that the listener accepts before it handles other events. Also the
/// maximum number of messages that it reads from one session before it handles other events.
const AT_ONCE: usize = 64;

/// Minimum time that every client has to prove possession of its key, even if other clients are waiting.
const GRACE: Duration = Duration::from_millis(500);

/// Pause after the system has run out of descriptors, processes or memory. During the pause, no connection is
/// accepted and no process is started.
const REST: Duration = Duration::from_millis(100);

/// Interval at which the listener checks the key file for changes.
const REFRESH: Duration = Duration::from_secs(1);

/// Time limit for the trial that a server makes at its start. The trial is a session process
/// without a client, which shows that session processes work.
const TRIAL: Duration = Duration::from_secs(60);

/// Interval at which the listener reads the reports of the remover thread while folders are being removed.
const NEWS: Duration = Duration::from_millis(500);

/// Interval between searches for orphans, that is, processes that a session has left behind. After a search
/// that has found orphans, the interval is [`ORPHANS_SOON`].
const ORPHANS: Duration = Duration::from_secs(1);
const ORPHANS_SOON: Duration = Duration::from_millis(10);

/// Maximum number of rounds of one search for orphans. Each round kills the orphans that it finds; the
/// children of these processes are found in the next round.
const ORPHANS_AT_ONCE: usize = 16;

/// Maximum time that a stopping server waits for killed processes to end.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Accepted connection without a session process. Its client has sent nothing yet, or waits for a
/// session process to be started.
struct Silent {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    has_spoken: bool,
}

pub(crate) struct Listener {
    socket: Option<TcpListener>,
    config: ServerConfig,
    program: Program,
    keyring: Keyring,
    refreshed: Instant,
    folder: Folder,
    audit: Audit,
    sandbox: Sandbox,
    queue: Queue,
    stop: Arc<OwnedFd>,
    shown: Arc<Mutex<Vec<SessionInfo>>>,
    silent: VecDeque<Silent>,
    /// True if the next session process is for the newest waiting connection, false if it is for the oldest.
    takes_newest: bool,
    sessions: BTreeMap<u64, Session>,
    count: u64,
    /// End of the current pause, in which no connection is accepted and no process is started;
    /// `None` if there is no pause.
    rests_until: Option<Instant>,
    /// Time at which the listener began to stop; `None` while it runs.
    stops: Option<Instant>,
    /// True if this process has no children except session processes and processes that sessions have left
    /// behind.
    alone: bool,
    /// Time of the next search for orphans, processes that sessions have left behind; `None` if no search is
    /// needed.
    adopts: Option<Instant>,
    buffer: Vec<u8>,
}

/// Source of an event that the main loop handles.
enum Source {
    Stop,
    Socket,
    /// A client without a session process has sent its first bytes. Contains the index of its connection.
    Spoken(usize),
    /// A client without a session process has disconnected. Contains the index of its connection.
    Gone(usize),
    Control(u64),
    Output(u64),
    Process(u64),
}

impl Listener {
    pub(crate) fn new(
        socket: TcpListener,
        config: ServerConfig,
        stop: Arc<OwnedFd>,
        shown: Arc<Mutex<Vec<SessionInfo>>>,
        alone: bool,
    ) -> Result<Listener> {
        let keyring = Keyring::new(&config.access)?;
        let program = Program::new(&config.worker, &config.variables(), config.show_output)
            .map_err(|why| error!("ValueError", "cannot start session processes: {why}"))?;
        let mut audit =
            Audit::open(&config.log).map_err(|why| error!("OSError", "cannot write the log: {why}"))?;
        let folder = Folder::create(&config.folder).map_err(|why| {
            error!("OSError", "cannot create the session folder in `{}`: {why}", config.folder.display())
        })?;
        let mut protected = config.protected.clone();
        protected.extend(match &config.log {
            Log::File(path) => Some(path.clone()),
            _ => None,
        });
        if let Access::File(path, ..) = &config.access {
            protected.push(path.clone());
        }
        let sandbox = Sandbox::new(config.isolation, &protected, &config.writable)?;
        let address = socket.local_addr().map(|address| address.to_string()).unwrap_or_default();
        let mut line = details([("address", json!(address)), ("pid", json!(std::process::id()))]);
        line.insert("isolation".into(), json!(sandbox.about));
        audit.write("listen", None, line);
        Ok(Listener {
            socket: Some(socket),
            queue: Queue::new(config.sessions, config.queue),
            config,
            program,
            keyring,
            refreshed: Instant::now(),
            folder,
            audit,
            sandbox,
            stop,
            shown,
            silent: VecDeque::new(),
            takes_newest: true,
            sessions: BTreeMap::new(),
            count: 0,
            rests_until: None,
            stops: None,
            alone,
            adopts: None,
            buffer: vec![0; MESSAGE_MAX],
        })
    }

    /// Serves clients until the stop event is signalled. Then ends all sessions and removes their folders.
    pub(crate) fn run(mut self) {
        signals::block_all();
        loop {
            self.round();
            if let Some(since) = self.stops
                && (self.sessions.is_empty() && self.adopts.is_none() || since.elapsed() > LAST_WAIT)
            {
                break;
            }
        }
        let mut line = Map::new();
        let left: Vec<_> = self.sessions.values().map(|session| session.pid).collect();
        if !left.is_empty() {
            line.insert("left".into(), json!(left));
        }
        let left = self.folder.finish(Instant::now() + LAST_WAIT);
        if !left.is_empty() {
            line.insert("left_folders".into(), json!(left));
        }
        self.audit.write("stop", None, line);
    }

    fn round(&mut self) {
        let timeout = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        for source in self.wait(timeout) {
            match source {
                Source::Stop => self.stop(),
                Source::Socket => self.accept(),
                Source::Spoken(at) => {
                    if let Some(silent) = self.silent.get_mut(at) {
                        silent.has_spoken = true;
                    }
                }
                Source::Gone(at) => drop(self.silent.remove(at)),
                Source::Control(number) => self.hear_session(number),
                Source::Output(number) => self.hear_output(number),
                Source::Process(number) => self.finish(number),
            }
        }
        let now = Instant::now();
        self.refresh_keys(now);
        self.keep_time(now);
        self.start_sessions(now);
        self.admit();
        self.end_orphans(now);
        self.tell_of_folders();
        self.show();
    }

    /// Updates the list of sessions that users of the server see.
    fn show(&self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clear();
        shown.extend(self.sessions.values().map(Session::info));
    }

    /// Waits for events and returns their sources. Sources that are connections come in descending order of
    /// index, so that the caller can remove one without invalidating the others.
    fn wait(&self, timeout: Option<Duration>) -> Vec<Source> {
        let mut polled = Vec::new();
        let mut sources = Vec::new();
        let mut ask = |what: Polled, source| {
            polled.push(what);
            sources.push(source);
        };
        if self.stops.is_none() {
            ask(Polled::read(self.stop.as_fd()), Source::Stop);
        }
        for (number, session) in &self.sessions {
            // The messages of a process come before its end, since its last ones are of interest.
            if let Some(control) = &session.control {
                ask(Polled::read(control.as_fd()), Source::Control(*number));
            }
            if let Some(output) = session.output.pipe() {
                ask(Polled::read(output), Source::Output(*number));
            }
            ask(Polled::read(session.process.as_fd()), Source::Process(*number));
        }
        for (at, silent) in self.silent.iter().enumerate().rev() {
            let stream = silent.stream.as_fd();
            ask(
                if silent.has_spoken { Polled::closed(stream) } else { Polled::read(stream) },
                Source::Spoken(at),
            );
        }
        if let (Some(socket), None) = (&self.socket, self.rests_until) {
            ask(Polled::read(socket.as_fd()), Source::Socket);
        }
        if sys::poll(&mut polled, timeout).is_err() {
            // The kernel is out of memory; trying again is the only option.
            std::thread::sleep(REST);
            return Vec::new();
        }
        let is_ready = |(polled, source): (Polled, Source)| match (&source, polled.is_readable()) {
            (_, false) => None,
            // Closed without sending anything, or before its turn.
            (Source::Spoken(at), true) if polled.is_closed() => Some(Source::Gone(*at)),
            _ => Some(source),
        };
        polled.into_iter().zip(sources).filter_map(is_ready).collect()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let (handshake, hung) = (self.config.handshake, self.config.hung);
        let sessions = self.sessions.values().filter_map(|session| Some(session.deadline(handshake, hung)?.0));
        let silent = self.silent.front().map(|silent| silent.since + handshake);
        let place = match self.silent.iter().any(|silent| silent.has_spoken) {
            true if self.rests_until.is_none() => self.half_open().map(|session| session.started + GRACE).min(),
            _ => None,
        };
        let refresh = (!self.sessions.is_empty() && self.keyring.is_file()).then(|| self.refreshed + REFRESH);
        let stop = self.stops.map(|since| since + LAST_WAIT);
        let news = self.folder.is_busy().then(|| Instant::now() + NEWS);
        let first = sessions.chain(silent).chain(place).chain(refresh).chain(stop).chain(self.rests_until);
        first.chain(news).chain(self.adopts).min()
    }

    fn half_open(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().filter(|session| session.is_half_open())
    }

    fn stop(&mut self) {
        self.stops = Some(Instant::now());
        self.socket = None;
        self.silent.clear();
        for session in self.sessions.values_mut() {
            session.end("the server stops");
        }
    }

    // Connections.

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(socket) = &self.socket else { return };
            match socket.accept() {
                Ok((stream, peer)) => {
                    if sys::watch_peer(&stream).is_ok() {
                        self.silent.push_back(Silent {
                            stream,
                            peer,
                            since: Instant::now(),
                            has_spoken: false,
                        });
                    }
                    if self.silent.len() > SILENT_MAX {
                        self.drop_silent();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    let is_exhausted = sys::is_exhausted(&error);
                    // Any other error concerns this connection alone, before it was accepted.
                    if is_exhausted && !self.drop_silent() {
                        self.rest("accept", &error.to_string());
                        return;
                    }
                }
            }
        }
    }

    /// Closes one connection without a session process: the oldest connection from the address that
    /// has the most such connections. Returns true if such a connection existed.
    fn drop_silent(&mut self) -> bool {
        let place = oldest_of_most(self.silent.iter().map(|silent| silent.peer.ip()));
        place.and_then(|place| self.silent.remove(place)).is_some()
    }

    fn rest(&mut self, what: &str, why: &str) {
        self.audit.write("failed", None, details([("what", json!(what)), ("why", json!(why))]));
        self.rests_until = Some(Instant::now() + REST);
    }

    /// Starts session processes for clients that have sent their first bytes, up to the limit on clients that
    /// have not yet proved possession of their key.
    fn start_sessions(&mut self, now: Instant) {
        while self.rests_until.is_none() {
            let half_open: Vec<IpAddr> = self.half_open().map(|session| session.peer.ip()).collect();
            let waiting = self.silent.iter().map(|silent| silent.has_spoken.then(|| silent.peer.ip()));
            let Some(at) = next_of(waiting, &half_open, self.takes_newest) else { return };
            if half_open.len() >= self.config.half_open && !self.make_place(now) {
                return;
            }
            self.takes_newest = !self.takes_newest;
            if let Some(silent) = self.silent.remove(at)
                && let Err(error) = self.start(&silent)
            {
                self.rest("start", &error.to_string());
                if sys::is_exhausted(&error) {
                    // This client has its turn when resources are available again, unless its time limit
                    // passes first.
                    let at = self.silent.partition_point(|other| other.since <= silent.since);
                    self.silent.insert(at, silent);
                } else {
                    refuse_unheard(&silent.stream);
                }
            }
        }
    }

    /// Ends one session whose client has not proved possession of its key within [`GRACE`]. Of
    /// these sessions, selects the oldest from the address that has the most of them. Returns true
    /// if such a session existed.
    fn make_place(&mut self, now: Instant) -> bool {
        let old: Vec<(u64, IpAddr)> = self
            .half_open()
            .filter(|session| now.duration_since(session.started) >= GRACE)
            .map(|session| (session.number, session.peer.ip()))
            .collect();
        let Some(place) = oldest_of_most(old.iter().map(|(_, address)| *address)) else { return false };
        let session = old.get(place).and_then(|(number, _)| self.sessions.get_mut(number));
        session
            .map(|session| session.end("the client did not prove its key, and another client needed its slot"))
            .is_some()
    }

    fn start(&mut self, silent: &Silent) -> std::io::Result<()> {
        self.count += 1;
        let number = self.count;
        let (mine, control) = sys::packet_pair()?;
        let folder = self.folder.session(number)?;
        let limits = self.keyring.widest();
        let (pid, process, output) =
            match self.start_process(&folder, silent.stream.as_fd(), &control, &limits, false) {
                Ok(started) => started,
                Err(error) => {
                    self.folder.remove(folder);
                    return Err(error);
                }
            };
        let session = Session::new(number, pid, silent.peer, (process, mine, output), folder, limits);
        self.sessions.insert(number, session);
        if self.alone {
            self.adopts.get_or_insert(Instant::now() + ORPHANS);
        }
        Ok(())
    }

    /// Starts a session process. Returns its process id, its process descriptor, and the pipe with its
    /// standard error, which is `None` if standard error is shown.
    fn start_process(
        &self,
        folder: &Path,
        client: BorrowedFd<'_>,
        control: &OwnedFd,
        limits: &Limits,
        is_trial: bool,
    ) -> std::io::Result<(libc::pid_t, OwnedFd, Option<OwnedFd>)> {
        let rules = self.sandbox.rules(self.folder.path(), folder, self.keyring.grants_uploads())?;
        let (reader, writer) = match self.config.show_output {
            true => (None, None),
            false => sys::pipe().map(|(reader, writer)| (Some(reader), Some(writer)))?,
        };
        let (output, rules) = (writer.as_ref(), rules.as_ref());
        let pid = self.program.start(&Start { folder, client, control, limits, output, rules, is_trial })?;
        match sys::process(pid) {
            Ok(process) => Ok((pid, process, reader)),
            Err(error) => {
                sys::kill_now(pid);
                Err(error)
            }
        }
    }

    /// Starts a session process without a client, as a trial. A mistake such as a library that cannot be
    /// loaded is thus reported when the server starts, and not to each client.
    pub(crate) fn try_worker(&mut self) -> Result<()> {
        let os = |why: std::io::Error| error!("OSError", "cannot start a session process: {why}");
        let folder = self.folder.session(0).map_err(os)?;
        let tried = self.try_in(&folder);
        self.folder.remove(folder);
        tried
    }

    fn try_in(&mut self, folder: &Path) -> Result<()> {
        let os = |why: std::io::Error| error!("OSError", "cannot start a session process: {why}");
        let (mine, control) = sys::packet_pair().map_err(os)?;
        let (client, _there) = UnixStream::pair().map_err(os)?;
        let limits = self.keyring.widest();
        let (pid, process, output) =
            self.start_process(folder, client.as_fd(), &control, &limits, true).map_err(os)?;
        drop(control);
        let mut output = Output::new(output);
        let deadline = Instant::now() + TRIAL;
        let late = loop {
            let mut polled = vec![Polled::read(process.as_fd())];
            polled.extend(output.pipe().map(Polled::read));
            let left = deadline.saturating_duration_since(Instant::now());
            sys::poll(&mut polled, Some(left)).map_err(os)?;
            if polled.get(1).is_some_and(Polled::is_readable) {
                output.read(&mut self.buffer);
            }
            if polled.first().is_some_and(Polled::is_readable) || left.is_zero() {
                break left.is_zero();
            }
        };
        sys::kill_group(pid, libc::SIGKILL);
        sys::kill_now(pid);
        output.read(&mut self.buffer);
        let said = sys::receive(mine.as_fd(), &mut self.buffer, false).unwrap_or(0);
        if self.buffer.get(..said).and_then(FromSession::read) == Some(FromSession::Tried) {
            return Ok(());
        }
        let why = match output.last_line() {
            _ if late => format!("the process did not begin to serve within {} seconds", TRIAL.as_secs()),
            Some(line) => line,
            None => "the process ended before it began to serve (`--show-output` shows its output)".into(),
        };
        Err(error!("RuntimeError", "session processes cannot serve: {why}"))
    }

    // Sessions.

    fn hear_output(&mut self, number: u64) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.output.read(&mut self.buffer);
        }
    }

    /// Kills orphans: processes that sessions have left behind and that have become children of this process.
    /// A process that still belongs to a live session is ended together with that session.
    fn end_orphans(&mut self, now: Instant) {
        if self.adopts.is_none_or(|at| at > now) {
            return;
        }
        let (mut ended, mut is_left) = (0_u64, true);
        // Processes that these have started become children in turn; the next search is soon.
        for _ in 0..ORPHANS_AT_ONCE {
            let is_ours = |pid: i32| self.sessions.values().any(|session| session.pid == pid);
            let orphans: Vec<_> = sys::children()
                .into_iter()
                .filter(|pid| !is_ours(*pid) && !is_ours(sys::session_of(*pid)))
                .collect();
            if orphans.is_empty() {
                is_left = false;
                break;
            }
            for pid in orphans {
                sys::kill(pid, libc::SIGKILL);
                ended += u64::from(sys::take_end(pid).status.is_some());
            }
        }
        if ended > 0 {
            self.audit.write("orphans", None, details([("ended", json!(ended))]));
        }
        // A killed process needs a moment to end.
        let pause = if is_left || ended > 0 { ORPHANS_SOON } else { ORPHANS };
        let is_over = self.sessions.is_empty() && !is_left && ended == 0;
        self.adopts = (!is_over).then(|| now + pause);
    }

    fn tell_of_folders(&mut self) {
        for report in self.folder.news() {
            let (path, why) = match report {
                Report::PutAside(path, why) => (path, why),
                Report::Removed(path) => (path, "the folder has been removed".into()),
            };
            let what = [("what", json!("remove")), ("folder", json!(path)), ("why", json!(why))];
            self.audit.write("failed", None, details(what));
        }
    }

    fn hear_session(&mut self, number: u64) {
        for _ in 0..AT_ONCE {
            let Some(control) = self.sessions.get(&number).and_then(|session| session.control.as_ref()) else {
                return;
            };
            let message = match sys::receive(control.as_fd(), &mut self.buffer, false) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => {
                    if let Some(session) = self.sessions.get_mut(&number) {
                        session.close_control();
                    }
                    return;
                }
                Ok(size) => self.buffer.get(..size).and_then(FromSession::read),
            };
            if message.and_then(|message| self.obey(number, message)).is_none()
                && let Some(session) = self.sessions.get_mut(&number)
            {
                session.end("the process sent an invalid or unexpected message");
            }
        }
    }

    /// Handles a message from a session process. Returns `None` if the process may not send this message in
    /// its current state.
    fn obey(&mut self, number: u64, message: FromSession) -> Option<()> {
        let session = self.sessions.get_mut(&number)?;
        let is_audit = matches!(message, FromSession::Audit(..));
        if session.ending.is_some() && !is_audit {
            return Some(());
        }
        match (message, session.state) {
            (FromSession::Hello(key), SessionState::Greeting) => self.greet(number, key),
            (FromSession::Ready, SessionState::Proving) if !session.refused => {
                session.enter(SessionState::Waiting);
                let key = session.key.clone();
                self.audit.write("proved", Some(number), details([("key", json!(key))]));
                let sessions_max = usize::try_from(session.limits.sessions).unwrap_or(usize::MAX);
                match self.queue.enter(number, key, sessions_max) {
                    Entered::In => (),
                    Entered::InsteadOf(other) => {
                        self.refuse(
                            other,
                            "the queue is full, and clients with other keys have priority; try again later",
                        );
                    }
                    Entered::Full => {
                        self.refuse(number, "too many clients wait for this server; try again later")
                    }
                }
                Some(())
            }
            (FromSession::Alive, SessionState::Waiting | SessionState::Active) => {
                session.heard = Instant::now();
                Some(())
            }
            (FromSession::Audit(event, detail), _) => {
                if session.may_log() {
                    let detail = details([("event", json!(event)), ("detail", Value::Object(detail))]);
                    self.audit.write("session", Some(number), detail);
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Handles the name of a client's key, or `None` for a client without a key. Returns `None` if
    /// the reply cannot be sent to the session process.
    fn greet(&mut self, number: u64, key: Option<String>) -> Option<()> {
        self.refresh_keys_now();
        let answer = self.keyring.look_up(key.as_deref());
        let session = self.sessions.get_mut(&number)?;
        session.state = SessionState::Proving;
        let peer = json!(session.peer.to_string());
        let mut line = details([("peer", peer), ("pid", json!(session.pid)), ("key", json!(key))]);
        let message = match answer {
            Ok(Answer::Grant(grant)) => {
                session.key = key;
                session.secret = grant.secret.clone();
                session.limits = grant.limits;
                // A process that has already ended has no limits to set.
                let _ = spawn::tighten(session.pid, &session.limits);
                ToSession::Policy(grant.policy.to_json(), grant.secret)
            }
            Ok(Answer::Unknown(secret)) => {
                line.insert("unknown".into(), true.into());
                session.refused = true;
                ToSession::Policy(crate::policy::Policy::closed().to_json(), Some(secret))
            }
            Ok(Answer::Refuse(why)) => {
                line.insert("refused".into(), why.to_string().into());
                session.refused = true;
                ToSession::Refuse(why)
            }
            Err(error) => {
                line.insert("failed".into(), error.message().into());
                session.refused = true;
                ToSession::Refuse(Refusal::Because("this server cannot accept clients now".into()))
            }
        };
        self.audit.write("hello", Some(number), line);
        session.tell(&message).then_some(())
    }

    /// Refuses a client that has proved possession of its key or needs no key. `why` is sent to the
    /// client as the reason.
    fn refuse(&mut self, number: u64, why: &str) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.refused = true;
            session.tell(&ToSession::Refuse(Refusal::Because(why.into())));
            self.audit.write("refused", Some(number), details([("why", json!(why))]));
        }
    }

    /// Admits as many waiting sessions as can be served. Sends each client that still waits its
    /// position in the queue, unless the position has not changed.
    fn admit(&mut self) {
        while let Some(number) = self.queue.admit() {
            let Some(session) = self.sessions.get_mut(&number) else {
                self.queue.leave(number);
                continue;
            };
            session.enter(SessionState::Active);
            // Logged and shown first: what the session does follows in the log, and a client that has connected sees its
            // session as active.
            self.audit.write("begin", Some(number), Map::new());
            self.show();
            if let Some(session) = self.sessions.get_mut(&number)
                && !session.tell(&ToSession::Go)
            {
                session.end("the process does not read messages from the listener");
            }
        }
        for (place, number) in self.queue.waiting().enumerate() {
            let Some(session) = self.sessions.get_mut(&number) else { continue };
            if session.told != Some(place) && session.tell(&ToSession::Queued(place + 1)) {
                session.told = Some(place);
            }
        }
    }

    /// Cleans up after a session process has ended: removes its session and its folder, and kills
    /// its remaining child processes. Does nothing if the process is still running.
    fn finish(&mut self, number: u64) {
        let Some(session) = self.sessions.get(&number) else { return };
        match sys::has_ended(session.pid) {
            Ok(false) => return,
            // Processes that it has started are killed, too. Its id still belongs to it, since no code has
            // waited for it.
            Ok(true) => sys::kill_group(session.pid, libc::SIGKILL),
            // Other code has waited for it; the id may belong to another process by now.
            Err(_) => (),
        }
        self.hear_session(number);
        self.hear_output(number);
        let Some(session) = self.sessions.remove(&number) else { return };
        if self.alone {
            self.adopts = Some(Instant::now());
        }
        let ended = sys::take_end(session.pid);
        if let Some(list) = &self.config.ended {
            list.lock().unwrap_or_else(PoisonError::into_inner).push(session.info());
        }
        self.queue.leave(number);
        let mut line = details([
            ("reason", json!(session.reason(&ended))),
            ("seconds", json!(round(session.started.elapsed()))),
            ("cpu_seconds", json!(round(ended.cpu))),
            ("memory_bytes", json!(ended.memory_bytes)),
        ]);
        if session.key.is_none() {
            line.insert("peer".into(), session.peer.to_string().into());
        }
        if let Some(status) = ended.status {
            line.insert("status".into(), status.into());
        }
        if session.state == SessionState::Greeting
            && ended.status != Some(0)
            && let Some(said) = session.output.last_line()
        {
            line.insert("said".into(), said.into());
        }
        if session.lines_left_out > 0 {
            line.insert("lines_left_out".into(), session.lines_left_out.into());
        }
        self.audit.write("end", Some(number), line);
        self.folder.remove(session.folder);
    }

    // Time.

    fn keep_time(&mut self, now: Instant) {
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
        }
        let handshake = self.config.handshake;
        while self.silent.front().is_some_and(|silent| silent.since + handshake <= now) {
            self.silent.pop_front();
        }
        for session in self.sessions.values_mut() {
            if let Some((at, why)) = session.deadline(handshake, self.config.hung)
                && at <= now
            {
                session.end(why);
            }
        }
    }

    fn refresh_keys(&mut self, now: Instant) {
        if now.duration_since(self.refreshed) >= REFRESH {
            self.refresh_keys_now();
        }
    }

    /// Reads the key file again if the file has changed. Then ends the sessions whose keys no
    /// longer exist or have another secret.
    fn refresh_keys_now(&mut self) {
        self.refreshed = Instant::now();
        match self.keyring.refresh() {
            Ok(false) => return,
            Ok(true) => self.audit.write("keys", None, Map::new()),
            Err(error) => {
                let why = details([("what", json!("keys")), ("why", json!(error.message()))]);
                return self.audit.write("failed", None, why);
            }
        }
        for session in self.sessions.values_mut() {
            if session.key.is_some()
                && !self.keyring.still_grants(session.key.as_deref(), session.secret.as_ref())
            {
                session.end("its key has been revoked");
            }
        }
    }
}

/// Refuses a client for which no session process can be started. The client has already sent its first message.
fn refuse_unheard(mut stream: &TcpStream) {
    let why = Refused::Because("this server cannot start a session now: its log states the reason".into());
    if let Some(answer) = Server::default().refusal(&why) {
        // The socket has room for these few bytes. Closing a socket with unread bytes resets the connection, and a client that is
        // reset may lose the answer; therefore the bytes of its message are read first, as far as they have arrived.
        let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&answer));
        let _ = stream.shutdown(Shutdown::Write);
        let mut unread = [0; 4096];
        for _ in 0..16 {
            if !matches!(stream.read(&mut unread), Ok(count) if count > 0) {
                break;
            }
        }
    }
}

/// Selects the connection that gets the next session process, and returns its index. Candidates are the
/// connections from the addresses with the fewest clients in `half_open`. Of these, the newest and the oldest
/// are selected in turn: the newest, so that a client need not wait for all clients that filled the queue
/// before it, and the oldest, so that a stream of new clients does not keep an old one waiting indefinitely.
/// `waiting` contains the address of each connection, or `None` for a connection that has sent nothing.
fn next_of(
    waiting: impl Iterator<Item = Option<IpAddr>>,
    half_open: &[IpAddr],
    takes_newest: bool,
) -> Option<usize> {
    let count = |address: IpAddr| half_open.iter().filter(|other| **other == address).count();
    let counted = waiting.enumerate().filter_map(|(at, address)| Some((count(address?), at)));
    let place = match takes_newest {
        true => counted.min_by_key(|(count, at)| (*count, usize::MAX - *at)),
        false => counted.min(),
    };
    place.map(|(_, at)| at)
}

/// Returns the first index of the most frequent address. Among equally frequent addresses, selects the one
/// that occurs first.
fn oldest_of_most(addresses: impl Iterator<Item = IpAddr> + Clone) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for address in addresses.clone() {
        *counts.entry(address).or_default() += 1;
    }
    let most = counts.values().max().copied()?;
    addresses.into_iter().position(|address| counts.get(&address) == Some(&most))
}

fn details<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

fn round(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_old_connections_take_turns_and_addresses_are_equal() {
        let ip = |last: u8| IpAddr::from([127, 0, 0, last]);
        let waiting = [None, Some(ip(1)), Some(ip(1)), Some(ip(2)), Some(ip(2)), Some(ip(1)), None];
        let next = |half_open: &[IpAddr], newest| next_of(waiting.into_iter(), half_open, newest);
        assert_eq!((next(&[], false), next(&[], true)), (Some(1), Some(5)));
        // An address with clients that have proved nothing waits for those that have fewer.
        let half_open = [ip(1), ip(1), ip(2)];
        assert_eq!((next(&half_open, false), next(&half_open, true)), (Some(3), Some(4)));
        assert_eq!(next_of([None].into_iter(), &half_open, true), None);
    }
}
