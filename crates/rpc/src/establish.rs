//! Establishing a connection: the handshake, and then one greeting from each end. The greeting of a client
//! with a key is its first encrypted message and proves that the client has the key.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyfn::{Error, Result, bail, check_signals, error};

use crate::channel::{Opener, Sealer};
use crate::connection::{Connection, Proxies};
use crate::frame::{self, FrameKind, Frames};
use crate::handshake::{Client, Refused, SHARING, Server, Step};
use crate::keys::Key;
use crate::policy::Policy;
use crate::remote;
use crate::service::Services;
use crate::socket::{LOOK, Socket};
use crate::value::Wire;

/// Functions that create and recognise the proxies of all connections.
const PROXIES: Proxies = Proxies { create: remote::proxy, find: remote::stands_for };

/// Connection after the handshake and before the first call.
struct Line {
    socket: Socket,
    sealer: Sealer,
    opener: Opener,
    frames: Frames,
    peer: String,
}

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

fn refused(peer: &str, refused: &Refused) -> Error {
    let kind = match refused {
        Refused::NoKey | Refused::KeyNotTaken | Refused::WrongKey => "PermissionError",
        _ => "ConnectionError",
    };
    error!(kind, "{peer}: {refused}")
}

impl Line {
    fn send(&mut self, kind: FrameKind, payload: &[u8], deadline: Instant) -> Result<()> {
        let mut out = Vec::new();
        let Line { sealer, .. } = self;
        let sealed = frame::write_message(kind, 0, payload, |header, part| {
            sealer.seal(&[header, part].concat(), &mut out)
        });
        match sealed {
            Ok(()) => write(&self.socket, &self.peer, deadline, &out),
            Err(_) => Err(refused(&self.peer, &Refused::WrongKey)),
        }
    }

    /// Waits for the peer's greeting, a message of kind `kind`, and returns its payload. Skips the `Queued`
    /// messages that a client receives before the greeting.
    fn greeting(&mut self, kind: FrameKind, deadline: Instant) -> Result<Vec<u8>> {
        let mut place = None;
        loop {
            match self.frames.next() {
                Ok(Some(message)) if message.kind == kind => return Ok(message.payload.to_vec()),
                Ok(Some(message)) if message.kind == FrameKind::Bye => {
                    let why: String =
                        String::from_utf8_lossy(message.payload).chars().filter(|c| !c.is_control()).collect();
                    bail!("ConnectionError", "{}: {why}", self.peer);
                }
                Ok(Some(message)) if message.kind == FrameKind::Queued && kind == FrameKind::Welcome => {
                    place = message.payload.first_chunk().map(|place| u32::from_le_bytes(*place));
                    continue;
                }
                Ok(Some(_)) => return Err(refused(&self.peer, &Refused::Foreign)),
                Ok(None) => {}
                Err(malformed) => bail!("ConnectionError", "{}: {malformed}", self.peer),
            }
            let mut bytes = [0; 4096];
            let count = match (read(&self.socket, &self.peer, deadline, &mut bytes), place) {
                (Err(error), Some(place)) if error.kind() == "TimeoutError" => bail!(
                    "TimeoutError",
                    "{}: the server is serving other clients, and this client is at position {place} of its queue: wait longer (`timeout=`)",
                    self.peer
                ),
                (count, _) => count?,
            };
            self.open(&bytes[..count])?;
        }
    }

    fn open(&mut self, bytes: &[u8]) -> Result<()> {
        let Line { opener, frames, .. } = self;
        match opener.push(bytes, frames) {
            Ok(()) => Ok(()),
            Err(_) => Err(refused(&self.peer, &Refused::WrongKey)),
        }
    }
}

/// Performs the client's part of the handshake over a connected socket.
pub(crate) fn connect(fd: OwnedFd, key: Option<Key>, peer: &str, wait: Duration) -> Result<Arc<Connection>> {
    let deadline = Instant::now() + wait;
    let socket = Socket::new(fd).map_err(|error| error!("ConnectionError", "{peer}: {error}"))?;
    let with_key = key.is_some();
    let (mut handshake, first) = Client::new(key);
    write(&socket, peer, deadline, &first)?;
    let mut bytes = [0; 1024];
    let mut answered = false;
    let (sealer, opener) = loop {
        let count = match read(&socket, peer, deadline, &mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == "ConnectionError" && !answered => bail!(
                "ConnectionError",
                "{} before it answered: if it is an anyfn server, its log states the reason",
                error.message()
            ),
            // A server gives no reason to clients with a wrong key.
            Err(error) if error.kind() == "ConnectionError" && with_key => {
                return Err(refused(peer, &Refused::WrongKey));
            }
            Err(error) => return Err(error),
        };
        answered = true;
        match handshake.receive(&bytes[..count]).map_err(|why| refused(peer, &why))? {
            Step::Send(out) => write(&socket, peer, deadline, &out)?,
            Step::Done(sealer, opener) => break (sealer, opener),
            Step::Wait | Step::Named(_) => {}
        }
    };
    let version = handshake.version();
    let policy = Policy::of_client();
    let frames = Frames::new(policy.message_bytes);
    let mut line = Line { socket, sealer, opener, frames, peer: peer.to_owned() };
    line.open(&handshake.rest())?;
    line.send(FrameKind::Hello, concat!("anyfn ", env!("CARGO_PKG_VERSION")).as_bytes(), deadline)?;
    let welcome = line.greeting(FrameKind::Welcome, deadline)?;
    let wire = Wire { shares: version >= SHARING, longest: longest(&welcome, policy.message_bytes) };
    let directions = (line.sealer, line.opener, line.frames);
    Ok(Connection::new(line.socket, directions, wire, policy, None, PROXIES, peer.to_owned()))
}

/// Returns the maximum length in bytes of a message that this end may send: the maximum in `welcome`, the
/// server's greeting, but at most `own`.
fn longest(welcome: &[u8], own: usize) -> usize {
    let taken = welcome.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    usize::try_from(taken).map_or(own, |taken| taken.min(own))
}

/// Client that has sent its first message, which contains the name of its key, if any.
pub struct Arrival {
    socket: Socket,
    handshake: Server,
    name: Option<String>,
    deadline: Instant,
}

/// Client that has proved possession of its key, or needs none, and waits for admission.
pub struct Guest(Line, u8);

const CLIENT: &str = "client";

impl Arrival {
    /// Reads the first message of a client. `wait` is the time limit for the whole handshake.
    ///
    /// # Errors
    /// Returns an error if the peer is not a client of this protocol, or too slow. Before that, the client is sent the reason if
    /// the protocol has a message for it.
    pub fn new(fd: OwnedFd, wait: Duration) -> Result<Arrival> {
        let deadline = Instant::now() + wait;
        let socket = Socket::new(fd).map_err(|error| error!("ConnectionError", "{CLIENT}: {error}"))?;
        let mut arrival = Arrival { socket, handshake: Server::default(), name: None, deadline };
        match arrival.step()? {
            Step::Named(name) => arrival.name = name,
            _ => return Err(refused(CLIENT, &Refused::Foreign)),
        }
        Ok(arrival)
    }

    /// Returns the name of the key that the client claims to have, or `None` if it connects without a key.
    pub fn key_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn step(&mut self) -> Result<Step> {
        let mut bytes = [0; 1024];
        let mut count = 0;
        loop {
            match self.handshake.receive(&bytes[..count]) {
                Ok(Step::Wait) => count = read(&self.socket, CLIENT, self.deadline, &mut bytes)?,
                Ok(step) => return Ok(step),
                Err(why) => return Err(self.no(&why)),
            }
        }
    }

    fn no(&self, why: &Refused) -> Error {
        if let Some(answer) = self.handshake.refusal(why) {
            let _ = write(&self.socket, CLIENT, self.deadline, &answer);
        }
        refused(CLIENT, why)
    }

    /// Refuses the client and sends it the reason.
    pub fn refuse(self, why: &Refused) {
        self.no(why);
    }

    /// Accepts the client, and waits until it has proved that it has `key`. If `key` is `None`, the client
    /// need not prove anything.
    ///
    /// # Errors
    /// Returns an error if the client cannot prove it, or not in time.
    pub fn accept(mut self, key: Option<&Key>) -> Result<Guest> {
        let answer = self.handshake.accept(key).map_err(|why| refused(CLIENT, &why))?;
        write(&self.socket, CLIENT, self.deadline, &answer)?;
        if key.is_some() {
            match self.step()? {
                Step::Send(out) => write(&self.socket, CLIENT, self.deadline, &out)?,
                _ => return Err(refused(CLIENT, &Refused::WrongKey)),
            }
        }
        let version = self.handshake.version();
        let (sealer, opener, rest) = self.handshake.finish().map_err(|why| refused(CLIENT, &why))?;
        let frames = Frames::new(4096);
        let mut line = Line { socket: self.socket, sealer, opener, frames, peer: CLIENT.to_owned() };
        line.open(&rest)?;
        line.greeting(FrameKind::Hello, self.deadline)?;
        Ok(Guest(line, version))
    }
}

impl Guest {
    /// Refuses the client and sends it the reason.
    pub fn refuse(mut self, why: &str) {
        let _ = self.0.send(FrameKind::Bye, why.as_bytes(), Instant::now() + LOOK);
    }

    /// Notifies the client of its position `place` in the queue. Position 1 is the front.
    ///
    /// # Errors
    /// Returns an error if the client has disconnected, or does not read.
    pub fn queued(&mut self, place: usize) -> Result<()> {
        let place = u32::try_from(place).unwrap_or(u32::MAX).to_le_bytes();
        self.0.send(FrameKind::Queued, &place, Instant::now() + LOOK)
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
    ) -> Result<Arc<Connection>> {
        let Guest(mut line, version) = self;
        let wire = Wire { shares: version >= SHARING, longest: policy.message_bytes };
        let limit = (policy.message_bytes as u64).to_le_bytes();
        let welcome = if wire.shares { &limit[..] } else { &[] };
        line.send(FrameKind::Welcome, welcome, Instant::now() + Duration::from_secs(10))?;
        line.frames.set_message_max(policy.message_bytes);
        let directions = (line.sealer, line.opener, line.frames);
        let services = Box::new(Services::new(policy.clone(), folder, Box::new(audit)));
        Ok(Connection::new(line.socket, directions, wire, policy, Some(services), PROXIES, line.peer))
    }
}
