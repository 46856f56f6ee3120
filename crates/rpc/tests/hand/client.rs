//! Test client that encodes each message itself, as `docs/rpc.md` specifies, and shares no code with the
//! crate. Tests of other crates use it as well.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use snow::{Builder, HandshakeState, StatelessTransportState};

pub(crate) const HELLO: u8 = 1;
pub(crate) const WELCOME: u8 = 2;
pub(crate) const CALL: u8 = 3;
pub(crate) const RETURN: u8 = 4;
pub(crate) const ERROR: u8 = 5;
pub(crate) const CANCEL: u8 = 6;
pub(crate) const RELEASE: u8 = 7;
pub(crate) const DATA: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
pub(crate) const BYE: u8 = 11;
pub(crate) const QUEUED: u8 = 12;

pub(crate) const GLOBAL: u16 = 1;
pub(crate) const MODULE_FUNCTION: u16 = 2;
pub(crate) const MODULE_NAMES: u16 = 3;
pub(crate) const EMPTY: u16 = 4;
pub(crate) const WRITE: u16 = 5;
pub(crate) const READ: u16 = 6;
pub(crate) const HAS: u16 = 7;
pub(crate) const PUT: u16 = 8;
pub(crate) const FILES: u16 = 9;
pub(crate) const REMOVE: u16 = 10;
pub(crate) const LOAD: u16 = 11;
pub(crate) const TIME: u16 = 12;
pub(crate) const INFO: u16 = 13;
pub(crate) const TEXT: u16 = 14;
pub(crate) const FIELD: u16 = 15;
pub(crate) const COPY: u16 = 16;
pub(crate) const SYNC: u16 = 17;
pub(crate) const ATTRIBUTE: u16 = 18;
pub(crate) const NAMES: u16 = 19;
pub(crate) const REGISTER: u16 = 20;

/// Key called `alice`, whose secret consists of 32 bytes with the value 7.
pub(crate) const ALICE: &str = "alice:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

/// First bytes that a client without a key sends. A server that accepts the client replies with
/// [`ACCEPTED`].
pub(crate) const PREFACE: &[u8] = b"anyfnRPC\x01\x01\x00";
pub(crate) const ACCEPTED: &[u8] = b"anyfnRPC\x01\x00\x00\x00";

/// First bytes that a client without a key sends in version 2 of the protocol. A server that
/// accepts the client replies with [`ACCEPTED_2`].
pub(crate) const PREFACE_2: &[u8] = b"anyfnRPC\x02\x02\x00";
pub(crate) const ACCEPTED_2: &[u8] = b"anyfnRPC\x02\x00\x00\x00";

pub(crate) fn frame(kind: u8, flags: u8, id: u64, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..], &[kind, flags, 0, 0], &id.to_le_bytes(), payload].concat()
}

pub(crate) fn none() -> Vec<u8> {
    vec![0]
}

pub(crate) fn int(value: i64) -> Vec<u8> {
    [&[3][..], &value.to_le_bytes()].concat()
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

pub(crate) fn text(value: &str) -> Vec<u8> {
    [&[5][..], &sized(value.as_bytes())].concat()
}

pub(crate) fn bytes(value: &[u8]) -> Vec<u8> {
    [&[6][..], &sized(value)].concat()
}

pub(crate) fn dtype(code: u8, bits: u8, lanes: u16) -> Vec<u8> {
    [&[7, code, bits][..], &lanes.to_le_bytes()].concat()
}

pub(crate) fn device(kind: i32, number: i32) -> Vec<u8> {
    [&[8][..], &kind.to_le_bytes(), &number.to_le_bytes()].concat()
}

pub(crate) fn shape(extents: &[i64]) -> Vec<u8> {
    let mut out = [&[9][..], &(extents.len() as u32).to_le_bytes()].concat();
    extents.iter().for_each(|extent| out.extend_from_slice(&extent.to_le_bytes()));
    out
}

pub(crate) fn array(items: &[Vec<u8>]) -> Vec<u8> {
    [&[10][..], &(items.len() as u32).to_le_bytes(), &items.concat()].concat()
}

/// Encodes a value to which later values of the message may refer.
pub(crate) fn kept(value: &[u8]) -> Vec<u8> {
    [&[18][..], value].concat()
}

/// Encodes a reference to an earlier value of the message. `number` is the index of that value among those
/// encoded by [`kept`].
pub(crate) fn again(number: u32) -> Vec<u8> {
    [&[19][..], &number.to_le_bytes()].concat()
}

pub(crate) fn graph(json: &str) -> Vec<u8> {
    [&[15][..], &sized(json.as_bytes())].concat()
}

/// Encodes a handle of an object that belongs to the client and is not a tensor.
pub(crate) fn mine(handle: u64, class: u8, key: &str) -> Vec<u8> {
    [&[16][..], &handle.to_le_bytes(), &[class], &sized(key.as_bytes())].concat()
}

pub(crate) fn yours(handle: u64) -> Vec<u8> {
    [&[17][..], &handle.to_le_bytes()].concat()
}

pub(crate) fn error(kind: &str, message: &str) -> Vec<u8> {
    [sized(kind.as_bytes()), sized(message.as_bytes()), sized(b"")].concat()
}

fn call_payload(parent: u64, depth: u16, target: &[u8], args: &[Vec<u8>]) -> Vec<u8> {
    let count = (args.len() as u32).to_le_bytes();
    [&parent.to_le_bytes()[..], &depth.to_le_bytes(), target, &count, &args.concat()].concat()
}

/// Encodes a call of the service `code`.
pub(crate) fn ask(id: u64, code: u16, args: &[Vec<u8>]) -> Vec<u8> {
    let target = [&[1][..], &code.to_le_bytes()].concat();
    frame(CALL, 0, id, &call_payload(0, 0, &target, args))
}

/// Encodes a call of the server function with the handle `handle`.
pub(crate) fn call(id: u64, parent: u64, depth: u16, handle: u64, args: &[Vec<u8>]) -> Vec<u8> {
    let target = [&[0][..], &handle.to_le_bytes()].concat();
    frame(CALL, 0, id, &call_payload(parent, depth, &target, args))
}

pub(crate) fn data(id: u64, at: u64, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, id, &[&at.to_le_bytes()[..], bytes].concat())
}

pub(crate) fn release(handle: u64, count: u64) -> Vec<u8> {
    frame(RELEASE, 0, 0, &[handle.to_le_bytes(), count.to_le_bytes()].concat())
}

/// Creates the client's side of the key exchange. `prologue` contains all bytes that were exchanged before
/// the key exchange.
pub(crate) fn initiator(secret: [u8; 32], prologue: &[u8]) -> HandshakeState {
    Builder::new("Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s".parse().unwrap())
        .prologue(prologue)
        .unwrap()
        .psk(0, &secret)
        .unwrap()
        .build_initiator()
        .unwrap()
}

/// Returns the first bytes that a client with the key `name` sends.
pub(crate) fn preface_of(name: &str) -> Vec<u8> {
    [&b"anyfnRPC\x01\x01"[..], &[name.len() as u8], name.as_bytes()].concat()
}

/// Encodes bytes with a length prefix, as `u16 length | bytes`.
pub(crate) fn short(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

/// Returns the bytes of the key exchange that a client sends after the server has accepted its first bytes.
pub(crate) fn exchange(noise: &mut HandshakeState) -> Vec<u8> {
    let mut message = [0; 256];
    let size = noise.write_message(&[], &mut message).unwrap();
    assert_eq!(size, 32 + 16);
    short(&message[..size])
}

/// Client's end of a session after the handshake, over any connected socket.
pub(crate) struct Line {
    pub(crate) stream: UnixStream,
    noise: Option<(StatelessTransportState, u64, u64)>,
    plain: Vec<u8>,
    /// Number of call results that have arrived.
    pub(crate) returns: usize,
    /// Positions of this client in the server's queue, as reported by the server before its `Welcome`
    /// message.
    pub(crate) places: Vec<u32>,
    /// True if the session uses version 2 of the protocol.
    pub(crate) is_version_2: bool,
    /// Payload of the server's `Welcome` message.
    pub(crate) welcome: Vec<u8>,
}

/// Received frame: kind, flags, id, payload.
pub(crate) type Frame = (u8, u8, u64, Vec<u8>);

impl Line {
    /// Performs handshake and greeting without a key.
    pub(crate) fn greet(stream: UnixStream) -> Line {
        let mut line = Line::open(stream);
        line.hello();
        line
    }

    /// Performs handshake and greeting without a key, in version 2 of the protocol.
    pub(crate) fn greet_2(mut stream: UnixStream) -> Line {
        stream.write_all(PREFACE_2).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, ACCEPTED_2);
        let mut line = Line::plain(stream);
        line.is_version_2 = true;
        line.hello();
        line
    }

    /// Performs handshake and greeting with the key [`ALICE`].
    pub(crate) fn greet_with_key(stream: UnixStream) -> Line {
        let mut line = Line::open_with_key(stream);
        line.hello();
        line
    }

    /// Performs handshake and greeting with the key [`ALICE`], in version 2 of the protocol.
    pub(crate) fn greet_2_with_key(stream: UnixStream) -> Line {
        let mut line = Line::key_exchange(stream, 2, ACCEPTED_2);
        line.is_version_2 = true;
        line.hello();
        line
    }

    /// Performs the handshake without a key, but not the greeting.
    pub(crate) fn open(mut stream: UnixStream) -> Line {
        stream.write_all(PREFACE).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, ACCEPTED);
        Line::plain(stream)
    }

    /// Creates a client for a connection whose handshake without a key is complete.
    pub(crate) fn plain(stream: UnixStream) -> Line {
        Line {
            stream,
            noise: None,
            plain: Vec::new(),
            returns: 0,
            places: Vec::new(),
            is_version_2: false,
            welcome: Vec::new(),
        }
    }

    /// Performs the handshake with the key [`ALICE`], but not the greeting.
    pub(crate) fn open_with_key(stream: UnixStream) -> Line {
        Line::key_exchange(stream, 1, ACCEPTED)
    }

    fn key_exchange(mut stream: UnixStream, version: u8, accepted: &[u8]) -> Line {
        let mut first = preface_of("alice");
        first[8..10].fill(version);
        stream.write_all(&first).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, accepted);
        let mut noise = initiator([7; 32], &[&first[..], &answer].concat());
        stream.write_all(&exchange(&mut noise)).unwrap();
        Line::sealed(stream, noise)
    }

    /// Completes the handshake of a client with a key: reads the server's part of the key exchange.
    pub(crate) fn sealed(mut stream: UnixStream, mut noise: HandshakeState) -> Line {
        let mut size = [0; 2];
        stream.read_exact(&mut size).unwrap();
        let mut reply = vec![0; u16::from_le_bytes(size).into()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply.len(), 32 + 16);
        noise.read_message(&reply, &mut [0; 256]).unwrap();
        let state = noise.into_stateless_transport_mode().unwrap();
        Line {
            stream,
            noise: Some((state, 0, 0)),
            plain: Vec::new(),
            returns: 0,
            places: Vec::new(),
            is_version_2: false,
            welcome: Vec::new(),
        }
    }

    /// Sends a `Hello` message and waits for `Welcome`. Records the client's positions in the queue, which
    /// the server may report before `Welcome`.
    pub(crate) fn hello(&mut self) {
        self.send(&frame(HELLO, 0, 0, b"by hand"));
        loop {
            match self.receive().expect("a welcome, but the other side has closed") {
                (QUEUED, 0, 0, place) => {
                    self.places.push(u32::from_le_bytes(place.try_into().unwrap()));
                }
                (kind, flags, id, payload) => {
                    assert_eq!((kind, flags, id), (WELCOME, 0, 0));
                    // The payload is empty in version 1, and the maximum length of a message to the server in version 2.
                    assert_eq!(payload.len(), if self.is_version_2 { 8 } else { 0 });
                    self.welcome = payload;
                    return;
                }
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        for part in bytes.chunks(60_000) {
            let sealed = self.seal(part);
            self.stream.write_all(&sealed)?;
        }
        Ok(())
    }

    /// Encodes `bytes` for sending: as the next encrypted record if the session has a key, otherwise
    /// unchanged.
    pub(crate) fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some((noise, next, _)) = &mut self.noise else { return bytes.to_vec() };
        let mut out = vec![0; bytes.len() + 16];
        noise.write_message(*next, bytes, &mut out).unwrap();
        *next += 1;
        short(&out)
    }

    /// Returns the next frame, or None if the peer has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let head = self.take(16)?;
        let length = u32::from_le_bytes(head[..4].try_into().unwrap());
        assert_eq!(head[6..8], [0, 0]);
        let id = u64::from_le_bytes(head[8..].try_into().unwrap());
        self.returns += usize::from(head[4] == RETURN);
        Some((head[4], head[5], id, self.take(length as usize)?))
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.plain.len() < count {
            match &mut self.noise {
                None => {
                    let mut bytes = [0; 65536];
                    let read = read(&mut self.stream, &mut bytes)?;
                    self.plain.extend_from_slice(&bytes[..read]);
                }
                Some((noise, _, next)) => {
                    let mut size = [0; 2];
                    self.stream.read_exact(&mut size).ok()?;
                    let mut record = vec![0; u16::from_le_bytes(size).into()];
                    self.stream.read_exact(&mut record).ok()?;
                    let mut plain = vec![0; record.len()];
                    let size = noise.read_message(*next, &record, &mut plain).unwrap();
                    *next += 1;
                    self.plain.extend_from_slice(&plain[..size]);
                }
            }
        }
        Some(self.plain.drain(..count).collect())
    }

    /// Waits for the reply to a call. Returns the encoded result, or the kind and message of the
    /// error. Skips `Release`, `Ping` and `Pong` messages.
    pub(crate) fn answer(&mut self, id: u64) -> Result<Vec<u8>, (String, String)> {
        loop {
            let (kind, flags, of, payload) = self.receive().expect("an answer, but the other side has closed");
            assert_eq!(flags, 0);
            match kind {
                RETURN if of == id => return Ok(payload),
                ERROR if of == id => return Err(error_of(&payload)),
                RELEASE | PING | PONG => {}
                other => panic!("a message of kind {other} for {of} instead of the answer to {id}"),
            }
        }
    }

    /// Looks up a global function of the server and returns its handle.
    pub(crate) fn global(&mut self, id: u64, name: &str) -> u64 {
        self.send(&ask(id, GLOBAL, &[text(name)]));
        let answer = self.answer(id).unwrap();
        assert_eq!(answer[..6], [10, 2, 0, 0, 0, 16]);
        u64::from_le_bytes(answer[6..14].try_into().unwrap())
    }

    /// Creates a tensor of `count` zero bytes at the server and returns its handle.
    pub(crate) fn empty(&mut self, id: u64, count: i64) -> u64 {
        self.send(&ask(id, EMPTY, &[shape(&[count]), dtype(1, 8, 1), device(1, 0)]));
        let answer = self.answer(id).unwrap();
        assert_eq!((answer[0], answer[9]), (16, 3));
        u64::from_le_bytes(answer[1..9].try_into().unwrap())
    }

    /// Returns true if the server still replies in this session.
    pub(crate) fn serves(&mut self, id: u64) -> bool {
        if self.try_send(&frame(PING, 0, id, b"")).is_err() {
            return false;
        }
        while let Some((kind, _, of, _)) = self.receive() {
            if (kind, of) == (PONG, id) {
                return true;
            }
        }
        false
    }

    /// Reads until the peer closes the connection.
    pub(crate) fn drain(&mut self) {
        while self.receive().is_some() {}
    }
}

/// Reads bytes and returns their number, or None if the peer has closed the connection.
pub(crate) fn read(stream: &mut UnixStream, into: &mut [u8]) -> Option<usize> {
    match stream.read(into) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Decodes the payload of an error reply. Returns the error's kind and message, after checking that no string
/// in the payload contains control characters or addresses.
pub(crate) fn error_of(payload: &[u8]) -> (String, String) {
    let mut rest = payload;
    let mut next = || {
        let (length, after) = rest.split_first_chunk::<4>().unwrap();
        let (text, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        rest = after;
        String::from_utf8(text.to_vec()).unwrap()
    };
    let (kind, message, trace) = (next(), next(), next());
    [&kind, &message, &trace].into_iter().for_each(|text| check_text(text));
    (kind, message)
}

/// Checks that a string from the server contains no control characters and no addresses of this process.
pub(crate) fn check_text(text: &str) {
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
    // The number after `handle` is one that the other process has sent.
    for (at, _) in text.match_indices("0x").filter(|(at, _)| !text[..*at].ends_with("handle ")) {
        let digits = text[at + 2..].chars().take_while(char::is_ascii_hexdigit).count();
        let begins = text[at + 2..].starts_with(['5', '7']);
        assert!(!(begins && digits == 12), "an address: {text}");
    }
}
