//! The beginning of a session, without I/O: the handshake, and then one greeting from each end. The greeting of a client with a key
//! is its first encrypted message and proves that the client has the key.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use anyfn::{Error, Result, bail, error};

use crate::channel::{Opener, Sealer};
use crate::endpoint::{Driver, Endpoint, Parts, Service, SessionLimits, reason};
use crate::frame::{self, FrameKind, Frames};
use crate::handshake::{Client, Refused, SHARING, Server, Step};
use crate::key::{Key, Random};
use crate::remote;
use crate::value::Wire;

/// Maximum length in bytes of the greeting that a client sends.
const HELLO_MAX: usize = 4096;

/// Greeting that a client sends: `anyfn` and its version.
const HELLO: &str = concat!("anyfn ", env!("CARGO_PKG_VERSION"));

/// Converts the reason why a session cannot be opened into an error. `peer` is the name of the
/// peer.
pub fn refused(peer: &str, refused: &Refused) -> Error {
    let kind = match refused {
        Refused::NoKey | Refused::KeyNotTaken | Refused::WrongKey => "PermissionError",
        _ => "ConnectionError",
    };
    error!(kind, "{peer}: {refused}")
}

/// Encoders and decoders between the handshake and the first call.
struct Greeting {
    sealer: Sealer,
    opener: Opener,
    frames: Frames,
    version: u8,
}

impl Greeting {
    fn open(&mut self, bytes: &[u8], peer: &str) -> Result<()> {
        match self.opener.push(bytes, &mut self.frames) {
            Ok(()) => Ok(()),
            Err(_) => Err(refused(peer, &Refused::WrongKey)),
        }
    }

    fn write(&mut self, kind: FrameKind, payload: &[u8], peer: &str, out: &mut Vec<u8>) -> Result<()> {
        let sealer = &mut self.sealer;
        let sealed =
            frame::write_message(kind, 0, payload, |header, part| sealer.seal(&[header, part].concat(), out));
        sealed.map_err(|_| refused(peer, &Refused::WrongKey))
    }

    /// Returns the payload of the peer's greeting, a message of kind `kind`, or `None` if the
    /// greeting has not arrived. Before its greeting, a server may send the client's position in
    /// its queue, which is recorded in `position`.
    fn read(&mut self, kind: FrameKind, peer: &str, position: &mut Option<u32>) -> Result<Option<Vec<u8>>> {
        loop {
            match self.frames.next() {
                Ok(Some(message)) if message.kind == kind => return Ok(Some(message.payload.to_vec())),
                Ok(Some(message)) if message.kind == FrameKind::Bye => {
                    bail!("ConnectionError", "{peer}: {}", reason(message.payload));
                }
                Ok(Some(message)) if message.kind == FrameKind::Queued && kind == FrameKind::Welcome => {
                    *position = message.payload.first_chunk().map(|place| u32::from_le_bytes(*place));
                }
                Ok(Some(_)) => return Err(refused(peer, &Refused::Foreign)),
                Ok(None) => return Ok(None),
                Err(malformed) => bail!("ConnectionError", "{peer}: {malformed}"),
            }
        }
    }
}

/// Session whose ends have greeted each other.
pub struct Opened(Parts);

impl Opened {
    /// Returns the endpoint of the session, for an event loop that moves the bytes.
    pub fn endpoint(self) -> Arc<Endpoint> {
        Endpoint::new(self.0, None)
    }

    /// Returns the endpoint of the session. `driver` writes the endpoint's output and lets threads
    /// wait for results.
    pub fn with_driver(self, driver: Arc<dyn Driver>) -> Arc<Endpoint> {
        Endpoint::new(self.0, Some(driver))
    }
}

enum ClientState {
    /// State of the handshake, and a flag that is true once the server has sent anything.
    Handshake(Box<Client>, bool),
    Greeting(Box<Greeting>),
    Over,
}

/// Client's part of the beginning of a session.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn_protocol::{Arrival, ClientOpening, ServerOpening, SessionLimits};
///
/// let mut client = ClientOpening::new("server", None, |_| Ok(()), SessionLimits::SMALL);
/// let mut server = ServerOpening::new("client");
/// let Arrival::Named(None) = server.receive(&client.take_output())? else { panic!("the client has no key") };
/// server.accept(None, |_| Ok(()))?;
/// assert!(client.receive(&server.take_output())?.is_none());
/// let Arrival::Greeted = server.receive(&client.take_output())? else { panic!("the greeting has arrived") };
/// let (session, welcome) = server.welcome(SessionLimits::SMALL, None)?;
/// let here = client.receive(&welcome)?.expect("the session is open").endpoint();
/// let there = session.endpoint();
///
/// here.close();
/// assert_eq!(there.receive(&here.take_output()).unwrap_err().message(), "client: the peer ended the session");
/// # Ok::<(), anyfn::Error>(())
/// ```
pub struct ClientOpening {
    state: ClientState,
    out: Vec<u8>,
    peer: String,
    has_key: bool,
    position: Option<u32>,
    limits: SessionLimits,
}

impl ClientOpening {
    /// Begins a session. `peer` is the name of the server for error messages. If `key` is not
    /// `None`, the client proves that it has the key; `random` is called only in that case.
    /// `limits` are the limits that the client sets for the server.
    pub fn new(peer: &str, key: Option<Key>, random: Random, limits: SessionLimits) -> ClientOpening {
        let has_key = key.is_some();
        let (handshake, out) = Client::new(key, random);
        ClientOpening {
            state: ClientState::Handshake(Box::new(handshake), false),
            out,
            peer: peer.to_owned(),
            has_key,
            position: None,
            limits,
        }
    }

    /// Takes the bytes that the server is to receive.
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Processes received bytes. Returns the session once it is open. Bytes that follow the
    /// greeting are kept, and the session processes them.
    ///
    /// # Errors
    /// Returns `PermissionError` if the server does not accept the key, and `ConnectionError` for every other reason why the
    /// session cannot be opened. The caller then closes the connection.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Opened>> {
        match &mut self.state {
            ClientState::Handshake(handshake, answered) => {
                *answered |= !bytes.is_empty();
                let (sealer, opener) =
                    match handshake.receive(bytes).map_err(|why| refused(&self.peer, &why))? {
                        Step::Send(out) => {
                            self.out.extend_from_slice(&out);
                            return Ok(None);
                        }
                        Step::Done(sealer, opener) => (sealer, opener),
                        Step::Wait | Step::Named(_) => return Ok(None),
                    };
                let version = handshake.version();
                let rest = handshake.take_rest();
                let frames = Frames::new(self.limits.message_bytes);
                let mut greeting = Box::new(Greeting { sealer, opener, frames, version });
                greeting.write(FrameKind::Hello, HELLO.as_bytes(), &self.peer, &mut self.out)?;
                greeting.open(&rest, &self.peer)?;
                self.state = ClientState::Greeting(greeting);
            }
            ClientState::Greeting(greeting) => greeting.open(bytes, &self.peer)?,
            ClientState::Over => bail!("ConnectionError", "{}: the session has been opened before", self.peer),
        }
        self.welcomed()
    }

    fn welcomed(&mut self) -> Result<Option<Opened>> {
        let ClientState::Greeting(greeting) = &mut self.state else { return Ok(None) };
        let welcome = greeting.read(FrameKind::Welcome, &self.peer, &mut self.position)?;
        let Some(welcome) = welcome else { return Ok(None) };
        let ClientState::Greeting(greeting) = core::mem::replace(&mut self.state, ClientState::Over) else {
            return Ok(None);
        };
        let Greeting { sealer, opener, frames, version } = *greeting;
        let longest = longest(&welcome, self.limits.message_bytes);
        Ok(Some(Opened(Parts {
            sealer,
            opener,
            frames,
            wire: Wire { shares: version >= SHARING, longest },
            limits: self.limits.clone(),
            service: None,
            proxies: remote::FUNCTIONS,
            peer: self.peer.clone(),
        })))
    }

    /// Returns the position of this client in the server's queue, if the server has sent one. Position 1 is the front.
    pub fn position(&self) -> Option<u32> {
        self.position
    }

    /// Returns the error to report if the server closes the connection now. `why` is the error of
    /// the transport.
    pub fn disconnected(&self, why: &Error) -> Error {
        match &self.state {
            ClientState::Handshake(_, false) => error!(
                "ConnectionError",
                "{} before it answered: if it is an anyfn server, its log states the reason",
                why.message()
            ),
            // A server gives no reason to clients with a wrong key.
            ClientState::Handshake(..) if self.has_key => refused(&self.peer, &Refused::WrongKey),
            _ => why.clone(),
        }
    }
}

/// Returns the maximum length in bytes of a message that this end may send: the maximum in `welcome`, the
/// server's greeting, but at most `own`.
fn longest(welcome: &[u8], own: usize) -> usize {
    let taken = welcome.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    usize::try_from(taken).map_or(own, |taken| taken.min(own))
}

/// Progress of a client that connects to a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// More bytes have to arrive.
    Waiting,
    /// The client claims to have the key of this name, or has no key. The server continues with
    /// [`ServerOpening::accept`] or [`ServerOpening::refuse`].
    Named(Option<String>),
    /// The client has proved that it has its key, if any, and has sent its greeting. The server
    /// continues with [`ServerOpening::welcome`], after any delay.
    Greeted,
}

enum ServerState {
    Handshake(Box<Server>),
    Greeting(Box<Greeting>),
    Greeted(Box<Greeting>),
    Over,
}

/// Server's part of the beginning of a session; see [`ClientOpening`] for an example.
pub struct ServerOpening {
    state: ServerState,
    out: Vec<u8>,
    peer: String,
    accepted: bool,
    /// True if the client has to prove that it has a key.
    needs_proof: bool,
}

impl ServerOpening {
    /// Begins to wait for the first bytes of a client. `peer` is the name of the client for error messages.
    pub fn new(peer: &str) -> ServerOpening {
        ServerOpening {
            state: ServerState::Handshake(Box::default()),
            out: Vec::new(),
            peer: peer.to_owned(),
            accepted: false,
            needs_proof: false,
        }
    }

    /// Takes the bytes that the client is to receive.
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Processes received bytes.
    ///
    /// # Errors
    /// Returns `PermissionError` or `ConnectionError` if the peer is not a client of this protocol, or cannot prove its key. The
    /// caller then sends the output, which contains the reason if the protocol has a message for it, and closes the connection.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Arrival> {
        match &mut self.state {
            ServerState::Handshake(handshake) => match handshake.receive(bytes) {
                Ok(Step::Wait) => Ok(Arrival::Waiting),
                Ok(Step::Named(name)) => Ok(Arrival::Named(name)),
                Ok(Step::Send(out)) if self.accepted && self.needs_proof => {
                    self.out.extend_from_slice(&out);
                    self.begin_greeting()
                }
                Ok(_) => Err(refused(&self.peer, &Refused::Foreign)),
                Err(why) => Err(self.refuse(&why)),
            },
            ServerState::Greeting(greeting) => {
                greeting.open(bytes, &self.peer)?;
                self.greeted()
            }
            ServerState::Greeted(greeting) => {
                if greeting.frames.waiting().saturating_add(bytes.len()) > HELLO_MAX {
                    bail!("ConnectionError", "{}: the client sends before it is welcome", self.peer);
                }
                greeting.open(bytes, &self.peer).map(|()| Arrival::Greeted)
            }
            ServerState::Over => bail!("ConnectionError", "{}: the session has been opened before", self.peer),
        }
    }

    /// Refuses the client: puts the reason into the output, unless the reason is to remain secret, and returns the error.
    pub fn refuse(&mut self, why: &Refused) -> Error {
        if let ServerState::Handshake(handshake) = &self.state
            && let Some(answer) = handshake.refusal(why)
        {
            self.out.extend_from_slice(&answer);
        }
        refused(&self.peer, why)
    }

    /// Accepts the client that has sent the name of its key. If `key` is not `None`, the client has
    /// to prove that it has this key; `random` is called only in that case. Processes the bytes
    /// that have arrived already and returns the client's progress.
    ///
    /// # Errors
    /// Returns the errors of [`ServerOpening::receive`].
    pub fn accept(&mut self, key: Option<&Key>, random: Random) -> Result<Arrival> {
        let ServerState::Handshake(handshake) = &mut self.state else {
            bail!("RuntimeError", "the client has been accepted before");
        };
        let answer = handshake.accept(key, random).map_err(|why| refused(&self.peer, &why))?;
        self.out.extend_from_slice(&answer);
        (self.accepted, self.needs_proof) = (true, key.is_some());
        if self.needs_proof { self.receive(&[]) } else { self.begin_greeting() }
    }

    fn begin_greeting(&mut self) -> Result<Arrival> {
        let ServerState::Handshake(handshake) = core::mem::replace(&mut self.state, ServerState::Over) else {
            return Ok(Arrival::Waiting);
        };
        let version = handshake.version();
        let (sealer, opener, rest) = handshake.finish().map_err(|why| refused(&self.peer, &why))?;
        let mut greeting = Box::new(Greeting { sealer, opener, frames: Frames::new(HELLO_MAX), version });
        greeting.open(&rest, &self.peer)?;
        self.state = ServerState::Greeting(greeting);
        self.greeted()
    }

    fn greeted(&mut self) -> Result<Arrival> {
        let ServerState::Greeting(greeting) = &mut self.state else { return Ok(Arrival::Waiting) };
        if greeting.read(FrameKind::Hello, &self.peer, &mut None)?.is_none() {
            return Ok(Arrival::Waiting);
        }
        if let ServerState::Greeting(greeting) = core::mem::replace(&mut self.state, ServerState::Over) {
            self.state = ServerState::Greeted(greeting);
        }
        Ok(Arrival::Greeted)
    }

    fn send(&mut self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        match &mut self.state {
            ServerState::Greeted(greeting) => greeting.write(kind, payload, &self.peer, &mut self.out),
            _ => bail!("RuntimeError", "{}: the client has not greeted", self.peer),
        }
    }

    /// Sends a client that has greeted its position in the queue. Position 1 is the front.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the client has not greeted.
    pub fn queued(&mut self, position: u32) -> Result<()> {
        self.send(FrameKind::Queued, &position.to_le_bytes())
    }

    /// Refuses a client that has greeted, for the reason `why`.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the client has not greeted.
    pub fn turn_away(&mut self, why: &str) -> Result<()> {
        self.send(FrameKind::Bye, why.as_bytes())
    }

    /// Opens the session with a client that has greeted. `limits` are the limits that the server
    /// sets for the client. Returns the session and the bytes to send, which include all earlier
    /// output.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the client has not greeted.
    pub fn welcome(
        mut self,
        limits: SessionLimits,
        service: Option<Box<dyn Service>>,
    ) -> Result<(Opened, Vec<u8>)> {
        let ServerState::Greeted(greeting) = &self.state else {
            bail!("RuntimeError", "{}: the client has not greeted", self.peer);
        };
        let wire = Wire { shares: greeting.version >= SHARING, longest: limits.message_bytes };
        let limit = (limits.message_bytes as u64).to_le_bytes();
        self.send(FrameKind::Welcome, if wire.shares { &limit } else { &[] })?;
        let ServerState::Greeted(greeting) = self.state else {
            bail!("RuntimeError", "{}: the client has not greeted", self.peer);
        };
        let Greeting { sealer, opener, frames, .. } = *greeting;
        let (proxies, peer) = (remote::FUNCTIONS, self.peer);
        Ok((Opened(Parts { sealer, opener, frames, wire, limits, service, proxies, peer }), self.out))
    }
}
