//! Establishing a connection over a socket: the blocking driver of the handshake and the greetings.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyfn::{Error, Result, bail, check_signals, error};
use anyfn_protocol::{ClientOpening, Refused, ServerOpening};

use crate::child::ChildProcess;
use crate::connection::Connection;
use crate::keys::{Key, system_random};
use crate::policy::Policy;
use crate::service::Services;
use crate::socket::{LOOK, Socket};

fn late(peer: &str) -> Error {
    error!("TimeoutError", "{peer}: no answer within the time allowed")
}

/// Reads from the socket. Blocks until bytes have arrived or the deadline has passed.
fn read(socket: &Socket, peer: &str, deadline: Instant, into: &mut [u8]) -> Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(peer));
        }
        if !socket.poll(true, false, left.min(LOOK)).unwrap_or(true) {
            check_signals()?;
            continue;
        }
        match socket.read(into, false) {
            Ok(0) => bail!("ConnectionError", "{peer}: the peer closed the connection"),
            Ok(count) => return Ok(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => bail!("ConnectionError", "{peer}: {error}"),
        }
    }
}

fn write(socket: &Socket, peer: &str, deadline: Instant, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes, &[]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline {
                    return Err(late(peer));
                }
                let _ = socket.poll(false, true, LOOK);
            }
            Err(error) => bail!("ConnectionError", "{peer}: {error}"),
        }
    }
    Ok(())
}

/// Performs the client's part of the handshake and greeting over a connected socket. `child` is the
/// process at the other end, if this process has started it.
pub(crate) fn connect(
    fd: OwnedFd,
    key: Option<Key>,
    peer: &str,
    wait: Duration,
    child: Option<Arc<ChildProcess>>,
) -> Result<Connection> {
    let socket = Socket::new(fd).map_err(|error| error!("ConnectionError", "{peer}: {error}"))?;
    connect_over(socket, key, peer, wait, child)
}

/// Does what [`connect`] does over a socket that has been configured.
pub(crate) fn connect_over(
    socket: Socket,
    key: Option<Key>,
    peer: &str,
    wait: Duration,
    child: Option<Arc<ChildProcess>>,
) -> Result<Connection> {
    let deadline = Instant::now() + wait;
    let limits = Policy::of_client().session_limits();
    let mut opening = ClientOpening::new(peer, key, system_random, limits);
    let mut bytes = [0; 4096];
    loop {
        let written = write(&socket, peer, deadline, &opening.take_output());
        written.map_err(|error| explained(error, child.as_deref()))?;
        let count = match read(&socket, peer, deadline, &mut bytes) {
            Ok(count) => count,
            Err(error) if child.is_some() => return Err(explained(error, child.as_deref())),
            Err(error)
                if error.kind() == "ConnectionError"
                    && let Some(reason) = socket.reason() =>
            {
                let told = error!("ConnectionError", "{peer}: {reason}");
                let meant = opening.disconnected(&told);
                // A server that closes the connection without a reason may have refused the key.
                return Err(if meant.kind() == "PermissionError" { meant } else { told });
            }
            Err(error) => return Err(unanswered(error, &opening, peer, wait)),
        };
        if let Some(opened) = opening.receive(&bytes[..count])? {
            return Ok(Connection::new(socket, opened, child));
        }
    }
}

/// Adds a description of how the peer has ended to a transport error, if the peer is a child
/// process of this process.
fn explained(error: Error, child: Option<&ChildProcess>) -> Error {
    match child {
        Some(child) if matches!(error.kind(), "ConnectionError" | "TimeoutError") => child.explain(&error),
        _ => error,
    }
}

/// Returns the error that a client reports if its server has not answered. `error` is the error of
/// the transport, and `wait` is the time limit.
fn unanswered(error: Error, opening: &ClientOpening, peer: &str, wait: Duration) -> Error {
    match opening.position() {
        _ if error.kind() == "ConnectionError" => opening.disconnected(&error),
        Some(place) if error.kind() == "TimeoutError" => error!(
            "TimeoutError",
            "{peer}: the server is serving other clients, and this client is at position {place} of its queue: wait longer (`timeout=`)"
        ),
        None if error.kind() == "TimeoutError" => {
            // Rounded, because connecting has taken some of the time.
            let seconds = (wait.as_secs_f64() * 100.0).round() / 100.0;
            error!("TimeoutError", "{peer}: no answer within {seconds} seconds (`timeout=`)")
        }
        _ => error,
    }
}

/// Client that has sent its first message, which contains the name of its key, if any.
pub struct Arrival {
    line: Line,
    name: Option<String>,
    deadline: Instant,
}

/// Client that has proved possession of its key, or needs no key, and waits for admission.
pub struct Guest(Line);

const CLIENT: &str = "client";

/// Socket of a client whose session has not begun yet, and the state of its handshake.
struct Line {
    socket: Socket,
    opening: ServerOpening,
}

impl Line {
    /// Sends the output that has been collected.
    fn flush(&mut self, deadline: Instant) -> Result<()> {
        write(&self.socket, CLIENT, deadline, &self.opening.take_output())
    }

    /// Sends the client the reason why it is refused, which is part of the collected output, and
    /// returns `error`.
    fn no(&mut self, error: Error, deadline: Instant) -> Error {
        let _ = self.flush(deadline);
        error
    }

    /// Reads from the client until the handshake reaches its next stage, and returns this stage.
    /// `arrival` is the current stage.
    fn until_next(
        &mut self,
        mut arrival: anyfn_protocol::Arrival,
        deadline: Instant,
    ) -> Result<anyfn_protocol::Arrival> {
        let mut bytes = [0; 4096];
        while arrival == anyfn_protocol::Arrival::Waiting {
            self.flush(deadline)?;
            let count = read(&self.socket, CLIENT, deadline, &mut bytes)?;
            arrival = match self.opening.receive(&bytes[..count]) {
                Ok(arrival) => arrival,
                Err(error) => return Err(self.no(error, deadline)),
            };
        }
        self.flush(deadline).map(|()| arrival)
    }
}

impl Arrival {
    /// Reads the first message of a client. `wait` is the time limit for the whole handshake.
    ///
    /// # Errors
    /// Returns an error if the peer is not a client of this protocol, or too slow. Before that, the client is sent the reason if
    /// the protocol has a message for it.
    pub fn new(fd: OwnedFd, wait: Duration) -> Result<Arrival> {
        let deadline = Instant::now() + wait;
        let socket = Socket::new(fd).map_err(|error| error!("ConnectionError", "{CLIENT}: {error}"))?;
        let mut line = Line { socket, opening: ServerOpening::new(CLIENT) };
        match line.until_next(anyfn_protocol::Arrival::Waiting, deadline)? {
            anyfn_protocol::Arrival::Named(name) => Ok(Arrival { line, name, deadline }),
            _ => Err(anyfn_protocol::opening::refused(CLIENT, &Refused::Foreign)),
        }
    }

    /// Returns the name of the key that the client claims to have, or `None` if it connects without a key.
    pub fn key_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Refuses the client and sends it the reason.
    pub fn refuse(mut self, why: &Refused) {
        let error = self.line.opening.refuse(why);
        drop(self.line.no(error, self.deadline));
    }

    /// Accepts the client, and waits until the client has proved that it has `key`. If `key` is
    /// `None`, the client need not prove anything.
    ///
    /// # Errors
    /// Returns an error if the client cannot prove it, or not in time.
    pub fn accept(self, key: Option<&Key>) -> Result<Guest> {
        let Arrival { mut line, deadline, .. } = self;
        match line.opening.accept(key, system_random) {
            Ok(arrival) => line.until_next(arrival, deadline).map(|_| Guest(line)),
            Err(error) => Err(line.no(error, deadline)),
        }
    }
}

impl Guest {
    /// Refuses the client and sends it the reason.
    pub fn refuse(mut self, why: &str) {
        let _ = self.0.opening.turn_away(why);
        let _ = self.0.flush(Instant::now() + LOOK);
    }

    /// Notifies the client of its position `place` in the queue. Position 1 is the front.
    ///
    /// # Errors
    /// Returns an error if the client has disconnected, or does not read.
    pub fn queued(&mut self, place: usize) -> Result<()> {
        self.0.opening.queued(u32::try_from(place).unwrap_or(u32::MAX))?;
        self.0.flush(Instant::now() + LOOK)
    }

    /// Returns true if the client has disconnected while waiting.
    pub fn is_gone(&self) -> bool {
        self.0.socket.is_closed()
    }

    /// Begins the session under `policy`. Files that the client uploads are stored in `folder`. `audit` is
    /// called with the name of each event and its subject, such as the name of a function.
    ///
    /// # Errors
    /// Returns an error if the client has disconnected.
    pub fn welcome(
        self,
        policy: Policy,
        folder: PathBuf,
        audit: impl Fn(&str, &str) + Send + Sync + 'static,
    ) -> Result<Connection> {
        let Line { socket, opening } = self.0;
        let services = Box::new(Services::new(policy.clone(), folder, Box::new(audit)));
        let (opened, out) = opening.welcome(policy.session_limits(), Some(services))?;
        write(&socket, CLIENT, Instant::now() + Duration::from_secs(10), &out)?;
        Ok(Connection::new(socket, opened, None))
    }
}
