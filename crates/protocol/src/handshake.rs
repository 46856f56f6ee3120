//! Handshake at the beginning of a connection. It selects the protocol version, and the client proves
//! possession of its key. This module does no I/O.
//!
//! ```text
//! client  "anyfnRPC" | u8 first version | u8 last version | u8 length | name of the key (none: length 0)
//! server  "anyfnRPC" | u8 version | u8 status | u16 length | text      status 0: go on; else the text says why not
//! with a key, both u16 length | bytes, after the pattern Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s:
//! client  psk, e
//! server  e, ee
//! ```
//! The bytes that both ends have sent before the key exchange are its prologue, so changing them in transit breaks the exchange.
//! The client has proved its key when its first record has been decrypted, not before: a recorded handshake can be sent again.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash};
use snow::{Builder, HandshakeState};

use crate::channel::{Opener, Sealer, encrypted};
use crate::key::{Key, NAME_MAX, Random, is_name};

/// Newest protocol version that this end supports.
pub const VERSION: u8 = 2;

/// Oldest protocol version that this end supports.
pub const OLDEST: u8 = 1;

/// First protocol version with shared values and a maximum message length: a value may refer to an earlier
/// value of its message, and `Welcome` contains the maximum length of a message that the server accepts.
pub const SHARING: u8 = 2;

const MAGIC: &[u8; 8] = b"anyfnRPC";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Maximum length in bytes of the reason that a server sends to a refused client.
const REASON_MAX: usize = 1024;

/// Maximum length of a message of the key exchange, in bytes.
const NOISE_MAX: usize = 256;

/// Reason why a connection cannot be established.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The peer does not use this protocol.
    Foreign,
    /// The peer supports only other protocol versions. Contains the first and the last version that it
    /// supports.
    Version(u8, u8),
    /// The client has no key, but the server requires one.
    NoKey,
    /// The client has a key, but the server has none. The client must not continue, because it
    /// would send confidential data to a server that cannot prove its identity.
    KeyNotTaken,
    /// The two ends have different keys.
    WrongKey,
    /// This end has no random bytes for the key exchange.
    NoRandom,
    /// Any other reason, as a message from the server.
    Because(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Foreign => write!(f, "the peer is not an anyfn server"),
            Refused::Version(from, to) => write!(
                f,
                "this end supports versions {OLDEST} to {VERSION} of the protocol, the peer supports versions {from} to {to}: install the same release of anyfn at both ends"
            ),
            Refused::NoKey => write!(f, "the server requires a key: pass `key_file=` or `key=`"),
            Refused::KeyNotTaken => write!(
                f,
                "the server was started without keys, so it cannot prove its identity: connect without a key, or start it with one"
            ),
            Refused::WrongKey => write!(f, "the server does not accept the key"),
            Refused::NoRandom => write!(f, "cannot exchange keys: no random bytes are available"),
            Refused::Because(reason) => write!(f, "{reason}"),
        }
    }
}

const OK: u8 = 0;
const BAD_VERSION: u8 = 1;
const NEEDS_KEY: u8 = 2;
const NO_KEYS: u8 = 3;
const REASON: u8 = 4;

/// Next step of a handshake.
#[derive(Debug)]
pub enum Step {
    /// Wait until more bytes have arrived.
    Wait,
    /// Send these bytes, then continue.
    Send(Vec<u8>),
    /// The client has sent the name of its key, or `None` if it has no key. This step occurs only on a server, which
    /// continues with [`Server::accept`] or [`Server::refusal`].
    Named(Option<String>),
    /// The handshake is complete. Contains the encoder and the decoder of the connection.
    Done(Sealer, Opener),
}

/// Buffer of received bytes that the handshake has not consumed yet.
#[derive(Debug, Default)]
struct Arrived(Vec<u8>);

impl Arrived {
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        (self.0.len() >= count).then(|| self.0.drain(..count).collect())
    }

    /// Takes a byte string with a length prefix (`u16 length | bytes`) from the buffer. Fails if
    /// the string is longer than `most` bytes. Returns `None` if the string has not arrived
    /// completely.
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

/// Cryptographic primitives of the key exchange, which use random bytes from the caller.
struct Primitives(Random);

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(RandomBytes(self.0)))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let cipher = DefaultResolver.resolve_cipher(choice)?;
        // On other processors, the default implementation takes no time for preparations.
        #[cfg(target_arch = "x86_64")]
        if matches!(choice, CipherChoice::ChaChaPoly) {
            return Some(crate::cipher::by_size(cipher));
        }
        Some(cipher)
    }
}

struct RandomBytes(Random);

impl snow::types::Random for RandomBytes {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        (self.0)(bytes).map_err(|_| snow::Error::Rng)
    }
}

fn noise(key: &Key, prologue: &[u8], initiator: bool, random: Random) -> Result<HandshakeState, Refused> {
    let params = PATTERN.parse().map_err(|_| Refused::WrongKey)?;
    let builder = Builder::with_resolver(params, Box::new(Primitives(random)));
    let builder = builder.prologue(prologue).and_then(|builder| builder.psk(0, &key.secret().0));
    let built = builder
        .and_then(|builder| if initiator { builder.build_initiator() } else { builder.build_responder() });
    built.map_err(|_| Refused::WrongKey)
}

/// Converts an error that occurred while this end wrote a message of the key exchange.
fn unusable(error: snow::Error) -> Refused {
    if matches!(error, snow::Error::Rng) { Refused::NoRandom } else { Refused::WrongKey }
}

fn finish(state: HandshakeState) -> Result<(Sealer, Opener), Refused> {
    Ok(encrypted(state.into_stateless_transport_mode().map_err(|_| Refused::WrongKey)?))
}

/// State of the handshake at the client.
#[derive(Debug)]
pub struct Client {
    key: Option<Key>,
    random: Random,
    arrived: Arrived,
    /// All bytes exchanged before the key exchange. The key exchange authenticates them.
    prologue: Vec<u8>,
    noise: Option<Box<HandshakeState>>,
    version: u8,
}

impl Client {
    /// Begins a handshake. Returns its state and the bytes to send first. `random` is called only if there is a key.
    pub fn new(key: Option<Key>, random: Random) -> (Client, Vec<u8>) {
        let name = key.as_ref().map_or("", Key::name);
        let mut first = MAGIC.to_vec();
        first.extend_from_slice(&[OLDEST, VERSION, name.len().min(NAME_MAX) as u8]);
        first.extend(name.bytes().take(NAME_MAX));
        let (arrived, prologue) = (Arrived::default(), first.clone());
        let client = Client { key, random, arrived, prologue, noise: None, version: OLDEST };
        (client, first)
    }

    /// Processes received bytes and returns the next step.
    ///
    /// # Errors
    /// Returns the reason if the connection cannot be established.
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
        let mut state = noise(key, &self.prologue, true, self.random)?;
        let mut message = [0; NOISE_MAX];
        let size = state.write_message(&[], &mut message).map_err(unusable)?;
        self.noise = Some(Box::new(state));
        Ok(Step::Send(sized(&message[..size])))
    }

    /// Returns the protocol version that the server has chosen.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Takes the bytes that were received after the end of the handshake, without decrypting them.
    pub fn take_rest(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.arrived.0)
    }

    fn done(&mut self, (sealer, opener): (Sealer, Opener)) -> Result<Step, Refused> {
        Ok(Step::Done(sealer, opener))
    }
}

/// State of the handshake at the server.
#[derive(Debug, Default)]
pub struct Server {
    arrived: Arrived,
    prologue: Vec<u8>,
    named: bool,
    noise: Option<Box<HandshakeState>>,
    version: u8,
}

impl Server {
    /// Processes received bytes and returns the next step. Must be called again after each step, if necessary
    /// without bytes, until it returns [`Step::Wait`].
    ///
    /// # Errors
    /// Returns the reason if the connection cannot be established; [`Server::refusal`] returns the bytes to send then.
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
            let size = state.write_message(&[], &mut out).map_err(unusable)?;
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
        let name = core::str::from_utf8(&preface[11..]).map_err(|_| Refused::Foreign)?;
        if !name.is_empty() && !is_name(name) {
            return Err(Refused::Foreign);
        }
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.prologue = preface;
        Ok(Step::Named(name))
    }

    /// Accepts the client and returns the bytes to send. If `key` is not `None`, the client must then prove
    /// that it has this key. `random` is called only in that case.
    ///
    /// # Errors
    /// Returns an error if the key exchange cannot begin.
    pub fn accept(&mut self, key: Option<&Key>, random: Random) -> Result<Vec<u8>, Refused> {
        let answer = answer(self.version, OK, "");
        self.prologue.extend_from_slice(&answer);
        if let Some(key) = key {
            self.noise = Some(Box::new(noise(key, &self.prologue, false, random)?));
        }
        Ok(answer)
    }

    /// Returns the protocol version of this connection: the newest that both ends support.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Returns the encoder and the decoder of the connection, and the bytes that were received after the end of
    /// the handshake, without decrypting these bytes. Must be called after the last message of the handshake
    /// was sent.
    ///
    /// # Errors
    /// Returns an error if the key exchange is not complete.
    pub fn finish(self) -> Result<(Sealer, Opener, Vec<u8>), Refused> {
        let (sealer, opener) = match self.noise {
            Some(state) => finish(*state)?,
            None => (Sealer::Plain, Opener::Plain),
        };
        Ok((sealer, opener, self.arrived.0))
    }

    /// Returns the bytes to send to a refused client, or `None` if the client receives no answer. A
    /// client with a wrong key receives none, so that it does not learn which part of the key is
    /// wrong.
    pub fn refusal(&self, refused: &Refused) -> Option<Vec<u8>> {
        let version = if self.version == 0 { VERSION } else { self.version };
        match refused {
            Refused::Foreign | Refused::WrongKey | Refused::NoRandom => None,
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
