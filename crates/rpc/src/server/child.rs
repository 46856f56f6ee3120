//! The session process' side of the channel to its listener.

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

/// How often the listener hears that the process works.
const TICK: Duration = Duration::from_secs(1);

/// Ticks for which a process goes on after its session is over.
const GRACE: u32 = 2;

/// How often a process that waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What the listener says about a key.
#[derive(Debug)]
pub enum Admission {
    /// The client may do this, once it has proved to know the secret; without a secret it has to prove nothing.
    Granted(Policy, Option<Secret>),
    /// The client is not wanted.
    Refused(Refusal),
}

/// What comes of waiting for one's turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// The session begins.
    Go,
    /// The client is not wanted.
    Refused(Refusal),
    /// The client is gone.
    Gone,
}

/// The channel to the listener.
#[derive(Debug)]
pub struct Control {
    channel: OwnedFd,
}

impl Control {
    /// Takes the descriptor that the listener gave, see [`CONTROL_FD`](super::CONTROL_FD).
    pub fn new(channel: OwnedFd) -> Control {
        Control { channel }
    }

    /// Whether the listener has started this process only to see whether that is possible; it is told that it is. Then there is
    /// no client, and nothing more to do.
    pub fn is_trial(&self) -> bool {
        std::env::var_os(TRIAL).is_some() && self.say(&FromSession::Tried).is_ok()
    }

    /// Tells which key the client names, and learns what it allows.
    ///
    /// # Errors
    /// `OSError` if the listener is gone.
    pub fn hello(&self, key: Option<&str>) -> Result<Admission> {
        self.say(&FromSession::Hello(key.map(String::from)))?;
        match self.hear()? {
            ToSession::Policy(policy, secret) => {
                Ok(Admission::Granted(Policy::from_json(&Policy::closed(), &policy)?, secret))
            }
            ToSession::Refuse(why) => Ok(Admission::Refused(why)),
            other => bail!("InternalError", "the listener said {other:?} before it said what is allowed"),
        }
    }

    /// Tells that the client has proved to have its key, and waits until it is its turn. `queued` is told the place in the
    /// queue, 1 for the next, whenever it changes; `is_gone` is asked now and then whether the client is.
    ///
    /// # Errors
    /// `OSError` if the listener is gone, and those of `queued`.
    pub fn wait(
        &self,
        is_gone: impl Fn() -> bool,
        mut queued: impl FnMut(usize) -> Result<()>,
    ) -> Result<Turn> {
        self.say(&FromSession::Ready)?;
        loop {
            let mut channel = [Polled::read(self.channel.as_fd())];
            sys::poll(&mut channel, Some(LOOK))
                .map_err(|why| error!("OSError", "cannot wait for a turn: {why}"))?;
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
                other @ ToSession::Policy(..) => bail!("InternalError", "the listener said {other:?} twice"),
            }
        }
    }

    /// Tells the log of something. Nothing happens if the listener is busy or gone.
    pub fn audit(&self, event: &str, detail: Map<String, Value>) {
        let _ = sys::send(self.channel.as_fd(), &FromSession::Audit(event.into(), detail).write());
    }

    /// Starts the thread that tells the listener that this process works. It ends the process when the listener is gone, and when
    /// `is_over` has said for a while that the session is, but a call of it does not end.
    ///
    /// # Errors
    /// `OSError` if there can be no thread.
    pub fn tick(self: &Arc<Self>, is_over: impl Fn() -> bool + Send + 'static) -> Result<()> {
        let control = self.clone();
        let run = move || {
            sys::block_signals();
            let mut over = 0;
            loop {
                over = if is_over() { over + 1 } else { 0 };
                if over > GRACE {
                    // SAFETY: may be called at any time. Nothing is torn down under a call that still runs.
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
            Err(why) => bail!(
                "OSError",
                "cannot start the thread that tells the listener that this process works: {why}"
            ),
        }
    }

    fn say(&self, message: &FromSession) -> Result<()> {
        sys::send(self.channel.as_fd(), &message.write())
            .map_err(|why| error!("OSError", "the listener is gone: {why}"))
    }

    fn hear(&self) -> Result<ToSession> {
        let mut buffer = vec![0; MESSAGE_MAX];
        let size = sys::receive(self.channel.as_fd(), &mut buffer, true)
            .map_err(|why| error!("OSError", "the listener is gone: {why}"))?;
        if size == 0 {
            bail!("OSError", "the listener is gone");
        }
        match buffer.get(..size).and_then(ToSession::read) {
            Some(message) => Ok(message),
            None => bail!("InternalError", "the listener said something that this version does not know"),
        }
    }
}
