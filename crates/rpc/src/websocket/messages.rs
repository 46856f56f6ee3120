//! The messages of a WebSocket (RFC 6455), after its handshake: binary ones, and those that keep it alive and close it.
//!
//! The libraries for this carry a model of HTTP and random generators that are larger than all of this module
//! (`docs/adr/0009-own-code-where-a-library-would-lose-something.md`). A test runs both ends against one of them.

use std::io::{self, ErrorKind, Read, Write};

use super::MESSAGE_MAX;

/// Maximum number of bytes that are read from a stream at a time.
const PIECE: usize = 64 << 10;

/// Number of bytes after which [`WebSocket::read`] returns although no message is complete, so that its caller can look at other streams
/// and at the time. It is longer than the longest message in one frame.
const READ_MAX: usize = 2 * MESSAGE_MAX;

/// Maximum length in bytes of the content of a control message.
const CONTROL_MAX: usize = 125;

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Flag of the last frame of a message, in the first byte of a frame.
const LAST: u8 = 0x80;
/// Flag of a frame whose content is masked, in the second byte of a frame.
const MASKED: u8 = 0x80;

/// Code with which a WebSocket is closed regularly.
pub(super) const NORMAL: u16 = 1000;
/// Code for a peer that breaks the rules of the protocol.
const PROTOCOL: u16 = 1002;
/// Code for a message of a type that is not accepted.
const UNSUPPORTED: u16 = 1003;
/// Code for a message that is too long.
const TOO_LONG: u16 = 1009;

/// Received message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Binary(Vec<u8>),
    /// It has been answered by [`WebSocket::flush`].
    Ping,
    Pong,
    /// The peer closes the WebSocket, with a code, which is 0 if it gives none, and a reason.
    Close(u16, String),
}

/// Reason why a WebSocket cannot be read or written.
#[derive(Debug)]
pub(super) enum Fault {
    /// Reading or writing the stream has failed, or would block.
    Io(io::Error),
    /// The WebSocket is closed.
    Ended,
    /// The peer has broken a rule: the code of the close message that tells it, and the rule.
    Invalid(u16, &'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

/// Returns a fault for a peer that does not follow the protocol.
fn broken<T>(why: &'static str) -> Result<T, Fault> {
    Err(Fault::Invalid(PROTOCOL, why))
}

/// Frame whose content arrives.
#[derive(Clone, Copy)]
struct Frame {
    kind: u8,
    is_last: bool,
    mask: [u8; 4],
    /// Number of bytes that have not arrived.
    left: usize,
    /// Number of bytes that have arrived, modulo 4: index of the byte of the mask for the next one.
    turn: usize,
}

/// WebSocket on a stream that may or may not block.
pub(super) struct WebSocket<S> {
    stream: S,
    /// A server receives masked frames and sends others, and a client the reverse.
    is_server: bool,
    /// Bytes of the stream, of which those from `start` to `end` have not been decoded.
    piece: Box<[u8]>,
    start: usize,
    end: usize,
    /// Header of the next frame, as far as it has arrived.
    head: [u8; 14],
    head_length: usize,
    frame: Option<Frame>,
    /// Content of the current binary message; `None` between messages.
    message: Option<Vec<u8>>,
    /// Content of the current control message.
    control: Vec<u8>,
    /// Encoded frames, of which the first `sent` bytes have been written.
    output: Vec<u8>,
    sent: usize,
    /// Content of the last ping that has not been answered.
    pong: Option<Vec<u8>>,
    has_sent_close: bool,
    has_received_close: bool,
    /// True after a fault of the peer: what follows in the stream has no meaning.
    is_broken: bool,
}

impl<S: Read + Write> WebSocket<S> {
    /// Creates the end of a WebSocket after its handshake. `rest` is what has been read from the stream behind the handshake.
    pub(super) fn new(stream: S, is_server: bool, rest: &[u8]) -> WebSocket<S> {
        let mut piece = vec![0; PIECE.max(rest.len())].into_boxed_slice();
        piece[..rest.len()].copy_from_slice(rest);
        WebSocket {
            stream,
            is_server,
            piece,
            start: 0,
            end: rest.len(),
            head: [0; 14],
            head_length: 0,
            frame: None,
            message: None,
            control: Vec::new(),
            output: Vec::new(),
            sent: 0,
            pong: None,
            has_sent_close: false,
            has_received_close: false,
            is_broken: false,
        }
    }

    /// Returns the stream.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the next message. After a fault, and after the message that closes the WebSocket, it reads and ignores the rest of the
    /// stream, so that the peer receives what has been written. If the peer keeps sending bytes that complete no message, it returns
    /// the fault of an interrupted call, and the next call continues.
    pub(super) fn read(&mut self) -> Result<Message, Fault> {
        let mut read = 0;
        while read < READ_MAX {
            let is_over = self.has_received_close || self.is_broken;
            if is_over {
                self.start = self.end;
                // The server closes the connection. A client waits for that.
                if self.is_server && self.has_received_close && self.flush()? {
                    return Err(Fault::Ended);
                }
            } else {
                match self.decode() {
                    Ok(Some(message)) => return Ok(message),
                    Ok(None) => {}
                    Err(fault) => {
                        self.is_broken = true;
                        return Err(fault);
                    }
                }
            }
            match self.stream.read(&mut self.piece) {
                Ok(0) => return Err(Fault::Ended),
                Ok(count) => {
                    (self.start, self.end) = (0, count);
                    read += count;
                }
                Err(error) if self.is_broken && error.kind() == ErrorKind::WouldBlock => {
                    return Err(if self.flush()? { Fault::Ended } else { error.into() });
                }
                Err(error) => return Err(error.into()),
            }
        }
        // What was read last is decoded by the next call.
        Err(Fault::Io(ErrorKind::Interrupted.into()))
    }

    /// Decodes bytes that have been read, up to the end of a message.
    fn decode(&mut self) -> Result<Option<Message>, Fault> {
        loop {
            let Some(frame) = &mut self.frame else {
                if self.start == self.end {
                    return Ok(None);
                }
                self.head[self.head_length] = self.piece[self.start];
                self.start += 1;
                self.head_length += 1;
                if let Some(frame) = self.header()? {
                    (self.frame, self.head_length) = (Some(frame), 0);
                }
                continue;
            };
            let count = frame.left.min(self.end - self.start);
            let bytes = &mut self.piece[self.start..self.start + count];
            apply(frame.mask, frame.turn, bytes);
            match &mut self.message {
                Some(message) if frame.kind < CLOSE => message.extend_from_slice(bytes),
                _ => self.control.extend_from_slice(bytes),
            }
            self.start += count;
            frame.left -= count;
            frame.turn = (frame.turn + count) % 4;
            if frame.left > 0 {
                return Ok(None);
            }
            let Frame { kind, is_last, .. } = *frame;
            self.frame = None;
            if kind < CLOSE {
                if is_last && let Some(message) = self.message.take() {
                    return Ok(Some(Message::Binary(message)));
                }
                continue;
            }
            let content = std::mem::take(&mut self.control);
            return match kind {
                PING => {
                    // The answer to an earlier one may be omitted.
                    self.pong = Some(content);
                    Ok(Some(Message::Ping))
                }
                PONG => Ok(Some(Message::Pong)),
                _ => self.closed(&content).map(Some),
            };
        }
    }

    /// Decodes the header of a frame, and checks it. Returns `None` if it is not complete.
    fn header(&mut self) -> Result<Option<Frame>, Fault> {
        let head = &self.head[..self.head_length];
        let &[first, second, ref rest @ ..] = head else { return Ok(None) };
        let (kind, is_last) = (first & 15, first & LAST != 0);
        if first & 0x70 != 0 {
            return broken("a reserved flag is set");
        }
        if (second & MASKED != 0) != self.is_server {
            return broken(if self.is_server {
                "a frame of a client is not masked"
            } else {
                "a frame of a server is masked"
            });
        }
        let short = usize::from(second & !MASKED);
        match (kind, self.message.is_some()) {
            (CONTINUED, false) => return broken("a frame continues no message"),
            (TEXT | BINARY, true) => return broken("a message begins within a message"),
            (TEXT, _) => {
                return Err(Fault::Invalid(UNSUPPORTED, "expected binary messages, got a message of text"));
            }
            (CONTINUED | BINARY, _) => {}
            (CLOSE..=PONG, _) if is_last && short <= CONTROL_MAX => {}
            (CLOSE..=PONG, _) => return broken("a control message is too long or has several frames"),
            _ => return broken("a frame is of an unknown type"),
        }
        let size = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.is_server { 4 } else { 0 };
        let Some((length, rest)) = rest.split_at_checked(size) else { return Ok(None) };
        let length = match size {
            0 => short as u64,
            _ => length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        // A control message within a message is none of its fragments.
        let room = match &self.message {
            Some(message) if kind < CLOSE => MESSAGE_MAX - message.len(),
            _ => MESSAGE_MAX,
        };
        let Some(left) = usize::try_from(length).ok().filter(|length| *length <= room) else {
            return Err(Fault::Invalid(TOO_LONG, "a message is longer than 1 MiB"));
        };
        if rest.len() < mask {
            return Ok(None);
        }
        let mut of_frame = [0; 4];
        of_frame[..mask].copy_from_slice(rest);
        if kind == BINARY {
            self.message = Some(Vec::new());
        }
        Ok(Some(Frame { kind, is_last, mask: of_frame, left, turn: 0 }))
    }

    /// Decodes the content of a close message, and answers it.
    fn closed(&mut self, content: &[u8]) -> Result<Message, Fault> {
        let (code, why) = match *content {
            [] => (0, String::new()),
            [high, low, ref why @ ..] => {
                let code = u16::from_be_bytes([high, low]);
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return broken("a close message has an invalid code");
                }
                match std::str::from_utf8(why) {
                    Ok(why) => (code, why.to_owned()),
                    Err(_) => return broken("the reason of a close message is not UTF-8"),
                }
            }
            _ => return broken("a close message has half a code"),
        };
        self.has_received_close = true;
        if !self.has_sent_close {
            self.has_sent_close = true;
            self.encode(CLOSE, &content[..content.len().min(2)])?;
        }
        Ok(Message::Close(code, why))
    }

    /// Encodes a binary message, which [`WebSocket::flush`] sends.
    pub(super) fn write(&mut self, content: &[u8]) -> Result<(), Fault> {
        if self.has_sent_close { Err(Fault::Ended) } else { self.encode(BINARY, content) }
    }

    /// Encodes a ping, which [`WebSocket::flush`] sends.
    pub(super) fn ping(&mut self) -> Result<(), Fault> {
        if self.has_sent_close { Err(Fault::Ended) } else { self.encode(PING, &[]) }
    }

    /// Encodes a close message, which [`WebSocket::flush`] sends, unless one has been sent. The reason is cut to what fits.
    pub(super) fn close(&mut self, code: u16, why: &str) -> Result<(), Fault> {
        if self.has_sent_close {
            return Ok(());
        }
        self.has_sent_close = true;
        let why = &why[..why.floor_char_boundary(CONTROL_MAX - 2)];
        self.encode(CLOSE, &[&code.to_be_bytes(), why.as_bytes()].concat())
    }

    fn encode(&mut self, kind: u8, content: &[u8]) -> Result<(), Fault> {
        let masked = if self.is_server { 0 } else { MASKED };
        self.output.push(LAST | kind);
        match content.len() {
            length @ ..126 => self.output.push(masked | length as u8),
            length @ ..65536 => {
                self.output.push(masked | 126);
                self.output.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                self.output.push(masked | 127);
                self.output.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        if self.is_server {
            self.output.extend_from_slice(content);
            return Ok(());
        }
        // Unpredictable bytes, so that a program cannot choose what a client sends through proxies of HTTP.
        let mut mask = [0; 4];
        getrandom::fill(&mut mask).map_err(io::Error::from)?;
        self.output.extend_from_slice(&mask);
        let start = self.output.len();
        self.output.extend_from_slice(content);
        apply(mask, 0, &mut self.output[start..]);
        Ok(())
    }

    /// Writes encoded frames to the stream. Returns true if none are left, and false if the stream does not accept more now.
    pub(super) fn flush(&mut self) -> Result<bool, Fault> {
        loop {
            while self.sent < self.output.len() {
                match self.stream.write(&self.output[self.sent..]) {
                    Ok(0) => return Err(Fault::Io(ErrorKind::WriteZero.into())),
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.output.clear();
            self.sent = 0;
            match self.pong.take() {
                Some(content) if !self.has_sent_close => self.encode(PONG, &content)?,
                _ => return Ok(true),
            }
        }
    }
}

/// Masks or unmasks bytes; the two are the same. `turn` is the index of the byte of the mask for the first of them.
fn apply(mask: [u8; 4], turn: usize, bytes: &mut [u8]) {
    if mask == [0; 4] {
        return;
    }
    let turned: [u8; 8] = std::array::from_fn(|at| mask[(turn + at) % 4]);
    let word = u64::from_ne_bytes(turned);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for eight in words {
        *eight = (u64::from_ne_bytes(*eight) ^ word).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(turned) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use anyfn_random::Random;
    use tungstenite::protocol::Role;
    use tungstenite::protocol::frame::coding::{Data, OpCode};
    use tungstenite::protocol::frame::{CloseFrame, Frame as TheirFrame};

    use super::*;

    type Theirs = tungstenite::WebSocket<TcpStream>;
    type Their = tungstenite::Message;

    /// Stream that contains bytes, of which a read returns at most `most`, and takes what is written.
    struct Script<'a> {
        input: &'a [u8],
        most: usize,
        output: Vec<u8>,
    }

    impl Read for Script<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.most.min(buffer.len());
            (&mut self.input).take(most as u64).read(buffer)
        }
    }

    impl Write for Script<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.output.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the two ends of a connection: ours, and that of the other implementation.
    fn pair(is_server: bool) -> (WebSocket<TcpStream>, Theirs) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = WebSocket::new(listener.accept().unwrap().0, is_server, &[]);
        let role = if is_server { Role::Client } else { Role::Server };
        (ours, Theirs::from_raw_socket(theirs, role, None))
    }

    /// Reads our end until a message of data or the end.
    fn next(ours: &mut WebSocket<TcpStream>) -> Message {
        loop {
            match ours.read().unwrap() {
                Message::Ping => assert!(ours.flush().unwrap()),
                Message::Pong => {}
                message => return message,
            }
        }
    }

    /// Messages of all lengths whose encoding differs cross in both directions, whole and in fragments with pings between them.
    #[test]
    fn another_implementation_understands_us_and_we_understand_it() {
        let lengths = [0, 1, 3, 7, 125, 126, 127, 4096, 65_535, 65_536, 70_001, MESSAGE_MAX];
        for is_server in [true, false] {
            let (mut ours, mut theirs) = pair(is_server);
            let peer = thread::spawn(move || {
                let mut random = Random::new(7);
                for length in lengths {
                    let content: Vec<u8> = (0..length).map(|_| random.byte()).collect();
                    theirs.send(Their::binary(content.clone())).unwrap();
                    for (at, part) in content.chunks(length / 3 + 1).enumerate() {
                        let is_last = (at + 1) * (length / 3 + 1) >= length;
                        let kind = if at == 0 { Data::Binary } else { Data::Continue };
                        let frame = TheirFrame::message(part.to_vec(), OpCode::Data(kind), is_last);
                        theirs.send(Their::Frame(frame)).unwrap();
                        theirs.send(Their::Ping(vec![at as u8].into())).unwrap();
                    }
                    let mut echoed = Vec::new();
                    while echoed.len() < 2 * length {
                        match theirs.read().unwrap() {
                            Their::Binary(bytes) => echoed.extend(bytes),
                            Their::Pong(_) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    assert!(echoed == [&content[..], &content].concat(), "{length}");
                }
                let reason = "bye".into();
                theirs.close(Some(CloseFrame { code: 4000.into(), reason })).unwrap();
                loop {
                    match theirs.read() {
                        Ok(Their::Close(frame)) => assert_eq!(u16::from(frame.unwrap().code), 4000),
                        Ok(_) => {}
                        Err(why) => {
                            return assert!(matches!(why, tungstenite::Error::ConnectionClosed), "{why}");
                        }
                    }
                }
            });
            for length in lengths {
                // An empty message has no fragments here.
                for _ in 0..if length == 0 { 1 } else { 2 } {
                    let Message::Binary(content) = next(&mut ours) else { panic!("expected binary") };
                    assert_eq!(content.len(), length);
                    ours.write(&content).unwrap();
                    assert!(ours.flush().unwrap());
                }
            }
            assert_eq!(next(&mut ours), Message::Close(4000, "bye".into()));
            assert!(ours.flush().unwrap());
            if is_server {
                assert!(matches!(ours.read(), Err(Fault::Ended)));
            }
            drop(ours);
            peer.join().unwrap();
        }
    }

    #[test]
    fn a_close_of_ours_is_understood_and_ends_both() {
        for is_server in [true, false] {
            let (mut ours, mut theirs) = pair(is_server);
            let peer = thread::spawn(move || {
                let Their::Close(Some(frame)) = theirs.read().unwrap() else {
                    panic!("expected a close message")
                };
                assert_eq!((u16::from(frame.code), frame.reason.len()), (4001, 122));
                while theirs.read().is_ok() {}
            });
            // 61 characters of two bytes fit.
            ours.close(4001, &"\u{e9}".repeat(100)).unwrap();
            assert!(ours.flush().unwrap());
            assert!(matches!(ours.write(b"late"), Err(Fault::Ended)));
            assert_eq!(next(&mut ours), Message::Close(4001, "\u{e9}".repeat(61)));
            assert!(matches!(ours.read(), Err(Fault::Ended)));
            drop(ours);
            peer.join().unwrap();
        }
    }

    /// Returns what ours and theirs receive of the same bytes, as texts, up to the first error.
    fn receive(bytes: &[u8], is_server: bool, most: usize) -> (Vec<String>, Vec<String>) {
        let script = || Script { input: bytes, most, output: Vec::new() };
        let mut all = (Vec::new(), Vec::new());
        let mut ours = WebSocket::new(script(), is_server, &[]);
        loop {
            match ours.read() {
                Ok(Message::Binary(content)) => all.0.push(format!("{content:?}")),
                Ok(Message::Close(code, why)) => {
                    all.0.push(format!("close {code} {why}"));
                    break;
                }
                Ok(_) => {}
                Err(Fault::Invalid(code, _)) => {
                    all.0.push(format!("wrong {code}"));
                    break;
                }
                Err(_) => break,
            }
        }
        let role = if is_server { Role::Server } else { Role::Client };
        let config = tungstenite::protocol::WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let mut theirs = tungstenite::WebSocket::from_raw_socket(script(), role, Some(config));
        loop {
            match theirs.read() {
                Ok(Their::Binary(content)) => all.1.push(format!("{:?}", &content[..])),
                Ok(Their::Text(_)) => {
                    all.1.push("wrong 1003".into());
                    break;
                }
                Ok(Their::Close(frame)) => {
                    let (code, why) = frame.map_or((0, String::new()), |frame| {
                        (frame.code.into(), frame.reason.as_str().to_owned())
                    });
                    // It reports an invalid code as this message.
                    let is_wrong = why == "Protocol violation";
                    all.1.push(if is_wrong { "wrong 1002".into() } else { format!("close {code} {why}") });
                    break;
                }
                Ok(_) => {}
                Err(tungstenite::Error::Protocol(
                    tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
                )) => break,
                Err(tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)) => {
                    all.1.push("wrong 1002".into());
                    break;
                }
                Err(tungstenite::Error::Capacity(_)) => {
                    all.1.push("wrong 1009".into());
                    break;
                }
                Err(_) => break,
            }
        }
        all
    }

    /// Random frames, most of them valid, in pieces of any length: both implementations receive the same, and refuse the same. Of a
    /// damaged frame, ours looks at the header only, and the other one sometimes waits for the end of it, or checks in another order.
    #[test]
    fn damaged_frames_are_refused_as_by_another_implementation() {
        let (first, time, started) = (anyfn_random::seed(), anyfn_random::time(), std::time::Instant::now());
        let mut seed = first;
        while time.map_or(seed < first + 1000, |time| started.elapsed() < time) {
            let mut random = Random::new(seed);
            let is_server = random.below(2) == 0;
            let mut bytes = Vec::new();
            for _ in 0..random.below(12) {
                let kinds = if random.below(8) == 0 { 9 } else { 8 };
                let kind = [0, 0, 2, 2, 2, 8, 9, 10, 3][random.below(kinds)];
                let last = if random.below(3) == 0 { 0 } else { LAST };
                let length = [0, 1, 2, 5, 125, 126, 300][random.below(7)];
                let mut script = Script { input: &[], most: 1, output: Vec::new() };
                let mut encoder = WebSocket::new(&mut script, !is_server, &[]);
                let content: Vec<u8> = match kind {
                    CLOSE => [&[3, 232 + random.below(20) as u8][..], b"why"].concat(),
                    _ => (0..length).map(|_| random.byte()).collect(),
                };
                encoder.encode(kind, &content).unwrap();
                encoder.flush().unwrap();
                script.output[0] = kind | if kind >= CLOSE && random.below(10) > 0 { LAST } else { last };
                bytes.extend(script.output);
            }
            let is_damaged = !bytes.is_empty() && random.below(3) == 0;
            if is_damaged {
                let at = random.below(bytes.len());
                bytes[at] = random.byte();
            }
            let (mut ours, mut theirs) = receive(&bytes, is_server, 1 + random.below(40));
            seed += 1;
            if ours.iter().any(|one| one.starts_with("close 1014") || is_damaged && one == "wrong 1003") {
                // A registered code that the other one does not know, and text, which it knows.
                continue;
            }
            if is_damaged && ours.pop_if(|one| one.starts_with("wrong")).is_some() {
                theirs.pop_if(|one| one.starts_with("wrong"));
            }
            assert_eq!(ours, theirs, "seed {}: {bytes:?}", seed - 1);
        }
    }

    /// Stream that repeats bytes without end.
    struct Endless<'a>(&'a [u8]);

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len() / self.0.len() * self.0.len();
            buffer[..count].chunks_mut(self.0.len()).for_each(|part| part.copy_from_slice(self.0));
            Ok(count)
        }
    }

    impl Write for Endless<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A peer that sends without pause and completes no message cannot keep the thread of its relay from looking at the time.
    #[test]
    fn bytes_without_end_return_to_the_caller() {
        let is_interrupted =
            |fault: &Fault| matches!(fault, Fault::Io(error) if error.kind() == ErrorKind::Interrupted);
        // A message that begins, and then frames of it that are empty.
        let mut client = WebSocket::new(Endless(&[CONTINUED, 0]), false, &[BINARY, 0]);
        for _ in 0..3 {
            assert!(is_interrupted(&client.read().unwrap_err()));
        }
        // Bytes behind a broken rule are ignored.
        let mut client = WebSocket::new(Endless(&[0xff]), false, &[]);
        assert!(matches!(client.read(), Err(Fault::Invalid(PROTOCOL, _))));
        assert!(is_interrupted(&client.read().unwrap_err()));
        // So are those behind a close message.
        let mut client = WebSocket::new(Endless(&[LAST | CLOSE, 0]), false, &[]);
        assert_eq!(client.read().unwrap(), Message::Close(0, String::new()));
        assert!(is_interrupted(&client.read().unwrap_err()));
    }

    #[test]
    fn a_ping_does_not_count_as_a_part_of_the_longest_message() {
        let mut bytes = vec![BINARY, 127];
        bytes.extend_from_slice(&(MESSAGE_MAX as u64).to_be_bytes());
        bytes.resize(bytes.len() + MESSAGE_MAX, 7);
        bytes.extend_from_slice(&[LAST | PING, 2, 1, 2, LAST | CONTINUED, 0]);
        let script = Script { input: &bytes, most: 1 << 20, output: Vec::new() };
        let mut client = WebSocket::new(script, false, &[]);
        assert_eq!(client.read().unwrap(), Message::Ping);
        assert_eq!(client.read().unwrap(), Message::Binary(vec![7; MESSAGE_MAX]));
    }

    #[test]
    fn unanswered_pings_take_no_memory() {
        let mut script = Script { input: &[], most: 1 << 20, output: Vec::new() };
        let mut client = WebSocket::new(&mut script, false, &[]);
        for _ in 0..1000 {
            client.ping().unwrap();
        }
        client.flush().unwrap();
        let pings = script.output;
        let mut server = WebSocket::new(Script { input: &pings, most: 1 << 20, output: Vec::new() }, true, &[]);
        while let Ok(message) = server.read() {
            assert_eq!(message, Message::Ping);
        }
        server.flush().unwrap();
        assert_eq!(server.stream().output, [LAST | PONG, 0]);
    }
}
