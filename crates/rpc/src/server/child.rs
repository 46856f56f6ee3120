//! Session process's end of the channel to its listener.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use anyfn::{Result, bail, error};
use serde_json::{Map, Value};

use super::control::{FromSession, MESSAGE_MAX, Refusal, ToSession};
use super::spawn::TRIAL;
use super::sys::{self, Polled};
use crate::keys::Secret;
use crate::policy::Policy;
use crate::signals;

/// Interval at which a session process reports to its listener that it is alive.
const TICK: Duration = Duration::from_secs(1);

/// Number of [`TICK`] intervals for which a session process waits for running calls after its
/// session has ended, before the process exits.
const GRACE: u32 = 2;

/// Interval at which a session process checks, while it waits for admission, that its client is still
/// connected.
const LOOK: Duration = Duration::from_millis(200);

/// Decision of the listener about a client and its key.
#[derive(Debug)]
pub enum Admission {
    /// The client has these permissions once it has proved that it knows the secret. If there is no secret,
    /// the client need not prove anything.
    Granted(Policy, Option<Secret>),
    /// The client is refused for this reason.
    Refused(Refusal),
}

/// Result of waiting until the listener admits the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// The client is admitted, and its session begins.
    Go,
    /// The client is refused for this reason.
    Refused(Refusal),
    /// The client has disconnected.
    Gone,
}

/// Session process's end of the channel to its listener.
#[derive(Debug)]
pub struct Control {
    channel: OwnedFd,
}

impl Control {
    /// Creates the channel from the inherited descriptor; see [`CONTROL_FD`](super::CONTROL_FD).
    pub fn new(channel: OwnedFd) -> Control {
        Control { channel }
    }

    /// Returns true if the listener has started this process only as a trial, without a client. In
    /// this case, also reports to the listener that the process is able to serve clients. The
    /// process should then exit.
    pub fn is_trial(&self) -> bool {
        std::env::var_os(TRIAL).is_some() && self.say(&FromSession::Tried).is_ok()
    }

    /// Sends the name of the client's key to the listener, and returns the listener's decision about the
    /// client.
    ///
    /// # Errors
    /// Returns `OSError` if the listener has ended.
    pub fn hello(&self, key: Option<&str>) -> Result<Admission> {
        self.say(&FromSession::Hello(key.map(String::from)))?;
        match self.hear()? {
            ToSession::Policy(policy, secret) => {
                Ok(Admission::Granted(Policy::from_json(&Policy::closed(), &policy)?, secret))
            }
            ToSession::Refuse(why) => Ok(Admission::Refused(why)),
            other => {
                bail!("InternalError", "expected the grants of the session from the listener, got {other:?}")
            }
        }
    }

    /// Reports to the listener that the client has proved possession of its key or needs no key,
    /// and waits until the client is admitted. `queued` is called with the client's position in the
    /// queue whenever the position changes; position 1 is the front. `is_gone` is called at
    /// intervals and returns true if the client has disconnected.
    ///
    /// # Errors
    /// Returns `OSError` if the listener has ended, and the error of `queued`.
    pub fn wait(
        &self,
        is_gone: impl Fn() -> bool,
        mut queued: impl FnMut(usize) -> Result<()>,
    ) -> Result<Turn> {
        self.say(&FromSession::Ready)?;
        loop {
            let mut channel = [Polled::read(self.channel.as_fd())];
            sys::poll(&mut channel, Some(LOOK))
                .map_err(|why| error!("OSError", "cannot wait for admission: {why}"))?;
            if is_gone() {
                return Ok(Turn::Gone);
            }
            if channel.iter().all(|channel| !channel.is_readable()) {
                self.say(&FromSession::Alive)?;
                continue;
            }
            match self.hear()? {
                ToSession::Go => return Ok(Turn::Go),
                ToSession::Refuse(why) => return Ok(Turn::Refused(why)),
                ToSession::Queued(place) => queued(place)?,
                other @ ToSession::Policy(..) => bail!("InternalError", "the listener sent {other:?} twice"),
            }
        }
    }

    /// Sends an event for the audit log to the listener. Does nothing if the listener is busy or has ended.
    pub fn audit(&self, event: &str, detail: Map<String, Value>) {
        let _ = sys::send(self.channel.as_fd(), &FromSession::Audit(event.into(), detail).write());
    }

    /// Starts a thread that reports to the listener at intervals that this process is alive. The thread ends
    /// the process if the listener has ended. It also ends the process if `is_over` returns true for some time:
    /// the session is then over, and only a call that still runs keeps the process alive.
    ///
    /// # Errors
    /// Returns `OSError` if the thread cannot be started.
    pub fn tick(self: &Arc<Self>, is_over: impl Fn() -> bool + Send + 'static) -> Result<()> {
        let control = self.clone();
        let run = move || {
            signals::block_all();
            let mut over = 0;
            loop {
                over = if is_over() { over + 1 } else { 0 };
                if over > GRACE {
                    // SAFETY: `_exit` may be called at any time. It tears nothing down that a running call uses.
                    unsafe { libc::_exit(0) };
                }
                match sys::send(control.channel.as_fd(), &FromSession::Alive.write()) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => std::process::exit(1),
                    _ => std::thread::sleep(TICK),
                }
            }
        };
        match Builder::new().name("anyfn-rpc-tick".into()).spawn(run) {
            Ok(_) => Ok(()),
            Err(why) => {
                bail!("OSError", "cannot start the thread that sends heartbeats to the listener: {why}")
            }
        }
    }

    fn say(&self, message: &FromSession) -> Result<()> {
        sys::send(self.channel.as_fd(), &message.write())
            .map_err(|why| error!("OSError", "cannot send to the listener: {why}"))
    }

    fn hear(&self) -> Result<ToSession> {
        let mut buffer = vec![0; MESSAGE_MAX];
        let size = sys::receive(self.channel.as_fd(), &mut buffer, true)
            .map_err(|why| error!("OSError", "cannot receive from the listener: {why}"))?;
        if size == 0 {
            bail!("OSError", "the listener closed the channel");
        }
        match buffer.get(..size).and_then(ToSession::read) {
            Some(message) => Ok(message),
            None => bail!("InternalError", "unknown message from the listener"),
        }
    }
}
