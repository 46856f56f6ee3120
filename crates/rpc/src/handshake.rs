//! The beginning of a connection: versions, and proof of the key. Pure: bytes in, bytes out.
//!
//! ```text
//! client  "anyfnRPC" | u8 first version | u8 last version | u8 length | name of the key (none: length 0)
//! server  "anyfnRPC" | u8 version | u8 status | u16 length | text      status 0: go on; else the text says why not
//! with a key, both u16 length | bytes, after the pattern Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s:
//! client  psk, e
//! server  e, ee
//! ```
//! What both have sent before is part of the handshake (its prologue), so that nobody can change it on the way. The client has
//! proved its key when its first record has been opened, not before: a handshake that was recorded can be sent again.

use std::fmt;

use snow::{Builder, HandshakeState};

use crate::channel::{Opener, Sealer, encrypted};
use crate::keys::{Key, NAME_MAX, is_name};

/// The newest version of the protocol that this side speaks.
pub const VERSION: u8 = 2;

/// The oldest version that this side speaks.
pub const OLDEST: u8 = 1;

/// The first version whose values may refer to earlier values of their message, and whose `Welcome` tells the server's limit.
pub const SHARING: u8 = 2;

const MAGIC: &[u8; 8] = b"anyfnRPC";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Longest text with which a server refuses.
const REASON_MAX: usize = 1024;

/// Longest message of the key exchange.
const NOISE_MAX: usize = 256;

/// Why a connection does not come about.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The other side does not speak this protocol.
    Foreign,
    /// It speaks other versions of it: from, to.
    Version(u8, u8),
    /// The server takes no client without a key.
    NoKey,
    /// The server has no keys; the client would send its secrets to something that cannot prove who it is.
    KeyNotTaken,
    /// The other side does not have the same key.
    WrongKey,
    /// The server says why.
    Because(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Foreign => write!(f, "what answers there is no anyfn server"),
            Refused::Version(from, to) => write!(
                f,
                "this side speaks versions {OLDEST} to {VERSION} of the protocol, the other one versions {from} to {to}: install the same release of anyfn on both"
            ),
            Refused::NoKey => write!(f, "the server asks for a key: pass `key=`"),
            Refused::KeyNotTaken => write!(
                f,
                "the server was started without keys, so it cannot prove who it is: connect without a key, or give it one"
            ),
            Refused::WrongKey => write!(f, "the key is not one of the server's"),
            Refused::Because(reason) => write!(f, "{reason}"),
        }
    }
}

const OK: u8 = 0;
const BAD_VERSION: u8 = 1;
const NEEDS_KEY: u8 = 2;
const NO_KEYS: u8 = 3;
const REASON: u8 = 4;

/// What a step of a handshake gives.
#[derive(Debug)]
pub enum Step {
    /// More bytes are needed.
    Wait,
    /// Send these, then go on.
    Send(Vec<u8>),
    /// Server only: the client names this key (or none); say what to do by [`Server::accept`] or [`Server::refusal`].
    Named(Option<String>),
    /// The handshake is over.
    Done(Sealer, Opener),
}

/// Bytes that have arrived and are not used yet.
#[derive(Debug, Default)]
struct Arrived(Vec<u8>);

impl Arrived {
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        (self.0.len() >= count).then(|| self.0.drain(..count).collect())
    }

    /// `u16 length | bytes`, of at most `most` bytes.
    fn take_sized(&mut self, most: usize) -> Result<Option<Vec<u8>>, Refused> {
        let Some(size) = self.0.first_chunk::<2>() else { return Ok(None) };
        let size = usize::from(u16::from_le_bytes(*size));
        if size > most {
            return Err(Refused::Foreign);
        }
        if self.0.len() < 2 + size {
            return Ok(None);
        }
        self.0.drain(..2);
        Ok(self.take(size))
    }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

fn noise(key: &Key, prologue: &[u8], initiator: bool) -> Result<HandshakeState, Refused> {
    let params = PATTERN.parse().map_err(|_| Refused::WrongKey)?;
    let builder = Builder::new(params).prologue(prologue).and_then(|builder| builder.psk(0, &key.secret().0));
    let built = builder
        .and_then(|builder| if initiator { builder.build_initiator() } else { builder.build_responder() });
    built.map_err(|_| Refused::WrongKey)
}

fn finish(state: HandshakeState) -> Result<(Sealer, Opener), Refused> {
    Ok(encrypted(state.into_stateless_transport_mode().map_err(|_| Refused::WrongKey)?))
}

/// The client's side.
#[derive(Debug)]
pub struct Client {
    key: Option<Key>,
    arrived: Arrived,
    /// What both have sent before the key exchange.
    prologue: Vec<u8>,
    noise: Option<Box<HandshakeState>>,
    version: u8,
}

impl Client {
    /// The handshake, and the bytes to send first.
    pub fn new(key: Option<Key>) -> (Client, Vec<u8>) {
        let name = key.as_ref().map_or("", Key::name);
        let mut first = MAGIC.to_vec();
        first.extend_from_slice(&[OLDEST, VERSION, name.len().min(NAME_MAX) as u8]);
        first.extend(name.bytes().take(NAME_MAX));
        let client =
            Client { key, arrived: Arrived::default(), prologue: first.clone(), noise: None, version: OLDEST };
        (client, first)
    }

    /// Bytes have arrived.
    ///
    /// # Errors
    /// If the connection cannot come about.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Refused> {
        self.arrived.0.extend_from_slice(bytes);
        if let Some(noise) = self.noise.as_mut() {
            let Some(message) = self.arrived.take_sized(NOISE_MAX)? else { return Ok(Step::Wait) };
            noise.read_message(&message, &mut [0; NOISE_MAX]).map_err(|_| Refused::WrongKey)?;
            let Some(noise) = self.noise.take() else { return Ok(Step::Wait) };
            return self.done(finish(*noise)?);
        }
        let given = &self.arrived.0;
        if !MAGIC.starts_with(&given[..given.len().min(MAGIC.len())]) {
            return Err(Refused::Foreign);
        }
        let Some(head) = given.first_chunk::<12>() else { return Ok(Step::Wait) };
        let (version, status) = (head[8], head[9]);
        let length = usize::from(u16::from_le_bytes([head[10], head[11]]));
        if length > REASON_MAX {
            return Err(Refused::Foreign);
        }
        let Some(answer) = self.arrived.take(12 + length) else { return Ok(Step::Wait) };
        let text = String::from_utf8_lossy(&answer[12..]).chars().filter(|c| !c.is_control()).collect();
        match status {
            OK if (OLDEST..=VERSION).contains(&version) => self.version = version,
            OK | BAD_VERSION => return Err(Refused::Version(version, version)),
            NEEDS_KEY => return Err(Refused::NoKey),
            NO_KEYS => return Err(Refused::KeyNotTaken),
            REASON => return Err(Refused::Because(text)),
            _ => return Err(Refused::Foreign),
        }
        self.prologue.extend_from_slice(&answer);
        let Some(key) = &self.key else { return self.done((Sealer::Plain, Opener::Plain)) };
        let mut state = noise(key, &self.prologue, true)?;
        let mut message = [0; NOISE_MAX];
        let size = state.write_message(&[], &mut message).map_err(|_| Refused::WrongKey)?;
        self.noise = Some(Box::new(state));
        Ok(Step::Send(sized(&message[..size])))
    }

    /// Version that the server has chosen.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// What has arrived behind the handshake, still sealed.
    pub fn rest(self) -> Vec<u8> {
        self.arrived.0
    }

    fn done(&mut self, (sealer, opener): (Sealer, Opener)) -> Result<Step, Refused> {
        Ok(Step::Done(sealer, opener))
    }
}

/// The server's side.
#[derive(Debug, Default)]
pub struct Server {
    arrived: Arrived,
    prologue: Vec<u8>,
    named: bool,
    noise: Option<Box<HandshakeState>>,
    version: u8,
}

impl Server {
    /// Bytes have arrived; also call it, without bytes, after each step until it waits.
    ///
    /// # Errors
    /// If the connection cannot come about; [`Server::refusal`] has what to send then.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Refused> {
        self.arrived.0.extend_from_slice(bytes);
        if !self.named {
            return self.preface();
        }
        if self.noise.is_none() {
            return Ok(Step::Wait);
        }
        let Some(message) = self.arrived.take_sized(NOISE_MAX)? else { return Ok(Step::Wait) };
        let Some(mut state) = self.noise.take() else { return Ok(Step::Wait) };
        let mut out = [0; NOISE_MAX];
        state.read_message(&message, &mut out).map_err(|_| Refused::WrongKey)?;
        if state.is_my_turn() {
            let size = state.write_message(&[], &mut out).map_err(|_| Refused::WrongKey)?;
            self.noise = Some(state);
            return Ok(Step::Send(sized(&out[..size])));
        }
        Err(Refused::WrongKey)
    }

    fn preface(&mut self) -> Result<Step, Refused> {
        let given = &self.arrived.0;
        if !MAGIC.starts_with(&given[..given.len().min(MAGIC.len())]) {
            return Err(Refused::Foreign);
        }
        let Some(head) = given.first_chunk::<11>() else { return Ok(Step::Wait) };
        let (from, to, length) = (head[8], head[9], usize::from(head[10]));
        if length > NAME_MAX {
            return Err(Refused::Foreign);
        }
        let Some(preface) = self.arrived.take(11 + length) else { return Ok(Step::Wait) };
        if from > to || from > VERSION || to < OLDEST {
            return Err(Refused::Version(from, to));
        }
        self.version = to.min(VERSION);
        self.named = true;
        let name = std::str::from_utf8(&preface[11..]).map_err(|_| Refused::Foreign)?;
        if !name.is_empty() && !is_name(name) {
            return Err(Refused::Foreign);
        }
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.prologue = preface;
        Ok(Step::Named(name))
    }

    /// The client may go on; with the key that it has to prove.
    ///
    /// # Errors
    /// If the key exchange cannot begin.
    pub fn accept(&mut self, key: Option<&Key>) -> Result<Vec<u8>, Refused> {
        let answer = answer(self.version, OK, "");
        self.prologue.extend_from_slice(&answer);
        if let Some(key) = key {
            self.noise = Some(Box::new(noise(key, &self.prologue, false)?));
        }
        Ok(answer)
    }

    /// Version chosen for this client: the newest that both sides speak.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// After the last message was sent: the two directions, and what has arrived already, still sealed.
    ///
    /// # Errors
    /// If the key exchange is not over.
    pub fn finish(self) -> Result<(Sealer, Opener, Vec<u8>), Refused> {
        let (sealer, opener) = match self.noise {
            Some(state) => finish(*state)?,
            None => (Sealer::Plain, Opener::Plain),
        };
        Ok((sealer, opener, self.arrived.0))
    }

    /// What to send to a client that is refused. Nobody who lacks the key learns which part of it was wrong.
    pub fn refusal(&self, refused: &Refused) -> Option<Vec<u8>> {
        let version = if self.version == 0 { VERSION } else { self.version };
        match refused {
            Refused::Foreign | Refused::WrongKey => None,
            Refused::Version(..) => Some(answer(version, BAD_VERSION, "")),
            Refused::NoKey => Some(answer(version, NEEDS_KEY, "")),
            Refused::KeyNotTaken => Some(answer(version, NO_KEYS, "")),
            Refused::Because(reason) => Some(answer(version, REASON, reason)),
        }
    }
}

fn answer(version: u8, status: u8, text: &str) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let text = &text[..text.floor_char_boundary(REASON_MAX)];
    out.extend_from_slice(&[version, status]);
    out.extend_from_slice(&sized(text.as_bytes()));
    out
}
