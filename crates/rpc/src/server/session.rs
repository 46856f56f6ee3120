//! Sessions as the listener sees them: the session process, the channel to it, and the progress of its
//! client.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libc::pid_t;

use super::control::ToSession;
use super::output::Output;
use super::spawn::CANNOT_START;
use super::sys::{self, Ended};
use crate::keys::{Limits, Secret};
use crate::signals;

/// Maximum number of log lines that a session may write in a burst, and per second on average.
const LINES: f64 = 100.0;

/// Maximum time that a session process may take to exit after it has closed its channel to the listener.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Description of one session of a server, for display.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Number of the session, unique within the server.
    pub number: u64,
    /// Id of the session process.
    pub pid: i32,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Name of the client's key; `None` if the client has no key, or has not sent its name yet.
    pub key: Option<String>,
    /// Progress of the session.
    pub state: SessionState,
}

/// Progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The session process is starting, or the client has not sent the name of its key.
    Greeting,
    /// The client has sent the name of its key but has not proved that it has the key.
    Proving,
    /// The session waits in the queue while other sessions are served.
    Waiting,
    /// The session is being served.
    Active,
}

pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) pid: pid_t,
    pub(crate) peer: SocketAddr,
    /// Process descriptor, which becomes readable when the process ends.
    pub(crate) process: OwnedFd,
    /// Channel to the process; `None` once the process has closed it.
    pub(crate) control: Option<OwnedFd>,
    /// Standard error of the process, captured until the process begins to serve its client.
    pub(crate) output: Output,
    pub(crate) folder: PathBuf,
    pub(crate) state: SessionState,
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<Secret>,
    /// True if the client has been refused, or will fail to prove possession of its key because the server has
    /// no such key.
    pub(crate) refused: bool,
    pub(crate) limits: Limits,
    pub(crate) started: Instant,
    /// Time at which the session began to wait in the queue or to be served; before that, the time
    /// at which the session process was started.
    pub(crate) since: Instant,
    /// Time of the last heartbeat from the session process, or of a later change of the session's
    /// state.
    pub(crate) heard: Instant,
    /// Position in the queue, counted from 0, that the listener last reported to the client; `None`
    /// before the first report.
    pub(crate) told: Option<usize>,
    /// Reason why the listener ended the session; `None` if the listener has not ended it.
    pub(crate) ending: Option<&'static str>,
    closed: Option<Instant>,
    lines: f64,
    lines_at: Instant,
    pub(crate) lines_left_out: u64,
}

impl Session {
    pub(crate) fn new(
        number: u64,
        pid: pid_t,
        peer: SocketAddr,
        descriptors: (OwnedFd, OwnedFd, Option<OwnedFd>),
        folder: PathBuf,
        limits: Limits,
    ) -> Session {
        let now = Instant::now();
        let (process, control, output) = descriptors;
        Session {
            number,
            pid,
            peer,
            process,
            control: Some(control),
            output: Output::new(output),
            folder,
            state: SessionState::Greeting,
            key: None,
            secret: None,
            refused: false,
            limits,
            started: now,
            since: now,
            heard: now,
            told: None,
            ending: None,
            closed: None,
            lines: LINES,
            lines_at: now,
            lines_left_out: 0,
        }
    }

    pub(crate) fn info(&self) -> SessionInfo {
        SessionInfo {
            number: self.number,
            pid: self.pid,
            peer: self.peer,
            key: self.key.clone(),
            state: self.state,
        }
    }

    pub(crate) fn enter(&mut self, state: SessionState) {
        self.state = state;
        self.since = Instant::now();
        self.heard = self.since;
    }

    /// Returns true if the handshake with the client is not complete yet, and the listener has not
    /// ended the session.
    pub(crate) fn is_half_open(&self) -> bool {
        self.ending.is_none() && matches!(self.state, SessionState::Greeting | SessionState::Proving)
    }

    /// Sends a message to the session process. Returns false if the channel is closed or full.
    pub(crate) fn tell(&self, message: &ToSession) -> bool {
        self.control.as_ref().is_some_and(|control| sys::send(control.as_fd(), &message.write()).is_ok())
    }

    /// Records that the session process has closed its channel.
    pub(crate) fn close_control(&mut self) {
        self.control = None;
        self.closed = Some(Instant::now());
    }

    /// Kills the session process and its process group. `why` is logged after the process has ended.
    pub(crate) fn end(&mut self, why: &'static str) {
        self.ending.get_or_insert(why);
        sys::kill_group(self.pid, libc::SIGKILL);
    }

    /// Returns true if the session's rate limit permits one more log line.
    pub(crate) fn may_log(&mut self) -> bool {
        let now = Instant::now();
        self.lines = (self.lines + now.duration_since(self.lines_at).as_secs_f64() * LINES).min(LINES);
        self.lines_at = now;
        if self.lines < 1.0 {
            self.lines_left_out += 1;
            return false;
        }
        self.lines -= 1.0;
        true
    }

    /// Returns the earliest of the session's deadlines, and the reason why the listener ends the session at
    /// that time.
    pub(crate) fn deadline(&self, handshake: Duration, hung: Duration) -> Option<(Instant, &'static str)> {
        if self.ending.is_some() {
            return None;
        }
        let closed = self
            .closed
            .map(|closed| (closed + LAST_WORDS, "the process has closed its channel to the listener"));
        let by_state = match self.state {
            SessionState::Greeting | SessionState::Proving => {
                Some((self.started + handshake, "the client did not prove its key in time"))
            }
            SessionState::Waiting | SessionState::Active => {
                Some((self.heard + hung, "the process does not answer"))
            }
        };
        let seconds = Duration::from_secs(self.limits.seconds);
        let by_age = (self.state == SessionState::Active && !seconds.is_zero())
            .then(|| Some((self.since.checked_add(seconds)?, "the session took longer than its key allows")))
            .flatten();
        [closed, by_state, by_age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Returns the reason why the session ended, as a message for the log.
    pub(crate) fn reason(&self, ended: &Ended) -> String {
        if let Some(why) = self.ending {
            return why.into();
        }
        let Some(status) = ended.status else { return "the process has ended".into() };
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            // A process that ignores the first signal is killed one second later. The kernel samples processor time at each tick
            // for the limit, but measures the sum exactly.
            let limit = Duration::from_secs(self.limits.cpu_seconds.max(1)).mul_f64(0.9);
            let used_up = signal == libc::SIGXCPU || signal == libc::SIGKILL && ended.cpu >= limit;
            return match signal {
                _ if used_up => "the process used more processor time than its key allows".into(),
                _ => {
                    let (signal, why) = (signals::describe(signal), why_signalled(signal));
                    format!("the process was ended by {signal}{why}")
                }
            };
        }
        match libc::WEXITSTATUS(status) {
            0 => "closed".into(),
            CANNOT_START if self.state == SessionState::Greeting => {
                "the session process cannot be started".into()
            }
            status => format!("the process ended with status {status}"),
        }
    }
}

/// Returns the probable reason for a signal, as the end of a message.
fn why_signalled(signal: libc::c_int) -> &'static str {
    match signal {
        libc::SIGABRT => "; possibly because memory ran out",
        libc::SIGXFSZ => "; it wrote a file larger than its key allows",
        _ => "",
    }
}
