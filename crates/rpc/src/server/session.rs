//! A session as the listener has it: a process, the channel to it, and how far its client has come.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libc::pid_t;

use super::control::ToSession;
use super::output::Output;
use super::spawn::CANNOT_START;
use super::sys::{self, Ended};
use super::{SessionInfo, State};
use crate::keys::{Limits, Secret};

/// Lines of the log that a session may cause at once, and a second.
const LINES: f64 = 100.0;

/// How long a process may go on after it has closed its channel.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) pid: pid_t,
    pub(crate) peer: SocketAddr,
    /// Becomes readable when the process ends.
    pub(crate) process: OwnedFd,
    /// None once the process has closed it.
    pub(crate) control: Option<OwnedFd>,
    /// What it says on its error output before its session begins.
    pub(crate) output: Output,
    pub(crate) folder: PathBuf,
    pub(crate) state: State,
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<Secret>,
    /// The client is not to come any further.
    pub(crate) refused: bool,
    pub(crate) limits: Limits,
    pub(crate) started: Instant,
    /// When the state became what it is.
    pub(crate) since: Instant,
    /// When the process last said something.
    pub(crate) heard: Instant,
    /// The place in the queue that the client was told.
    pub(crate) told: Option<usize>,
    /// Why it was ended, if it was.
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
            state: State::Greeting,
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

    pub(crate) fn enter(&mut self, state: State) {
        self.state = state;
        self.since = Instant::now();
        self.heard = self.since;
    }

    /// Whether its client has still to prove that it has its key.
    pub(crate) fn is_half_open(&self) -> bool {
        self.ending.is_none() && matches!(self.state, State::Greeting | State::Proving)
    }

    /// Tells the process something; false if that is not possible now.
    pub(crate) fn tell(&self, message: &ToSession) -> bool {
        self.control.as_ref().is_some_and(|control| sys::send(control.as_fd(), &message.write()).is_ok())
    }

    /// The process has closed its channel.
    pub(crate) fn close_control(&mut self) {
        self.control = None;
        self.closed = Some(Instant::now());
    }

    /// Kills the process and all of its group; why is told when it has ended.
    pub(crate) fn end(&mut self, why: &'static str) {
        self.ending.get_or_insert(why);
        sys::kill_group(self.pid, libc::SIGKILL);
    }

    /// Whether one more line may go to the log for this session.
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

    /// When it has to be ended if nothing happens, and why.
    pub(crate) fn deadline(&self, handshake: Duration, hung: Duration) -> Option<(Instant, &'static str)> {
        if self.ending.is_some() {
            return None;
        }
        let closed = self
            .closed
            .map(|closed| (closed + LAST_WORDS, "the process has closed its channel to the listener"));
        let by_state = match self.state {
            State::Greeting | State::Proving => {
                Some((self.started + handshake, "the client did not prove in time that it has its key"))
            }
            State::Waiting | State::Active => Some((self.heard + hung, "the process does not answer")),
        };
        let seconds = Duration::from_secs(self.limits.seconds);
        let by_age = (self.state == State::Active && !seconds.is_zero())
            .then(|| Some((self.since.checked_add(seconds)?, "the session took longer than its key allows")))
            .flatten();
        [closed, by_state, by_age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// In words, why it ended.
    pub(crate) fn reason(&self, ended: &Ended) -> String {
        if let Some(why) = self.ending {
            return why.into();
        }
        let Some(status) = ended.status else { return "the process has ended".into() };
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            // A process that ignores the first signal is killed a second later. The kernel counts for the limit by looking at each tick,
            // for the sum exactly.
            let limit = Duration::from_secs(self.limits.cpu_seconds.max(1)).mul_f64(0.9);
            let used_up = signal == libc::SIGXCPU || signal == libc::SIGKILL && ended.cpu >= limit;
            return match signal {
                _ if used_up => "the process used more processor time than its key allows".into(),
                _ => format!("the process was ended by signal {signal} ({})", signal_name(signal)),
            };
        }
        match libc::WEXITSTATUS(status) {
            0 => "closed".into(),
            CANNOT_START if self.state == State::Greeting => "the session process cannot be started".into(),
            status => format!("the process ended with status {status}"),
        }
    }
}

fn signal_name(signal: libc::c_int) -> &'static str {
    match signal {
        libc::SIGSEGV => "an access to memory that is not its own",
        libc::SIGBUS => "an access to memory that is not there",
        libc::SIGABRT => "abort, perhaps without memory",
        libc::SIGFPE => "a division by zero",
        libc::SIGILL => "an instruction that there is not",
        libc::SIGKILL => "kill",
        libc::SIGTERM => "termination",
        libc::SIGXFSZ => "a file larger than its key allows",
        _ => "see `kill -l`",
    }
}
