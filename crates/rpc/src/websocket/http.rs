//! Heads of HTTP messages, as far as opening a WebSocket needs them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyfn::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::poll::{Polled, poll};

/// Maximum length in bytes of a head.
const HEAD_MAX: usize = 16 << 10;

/// Maximum number of header fields in a head.
const FIELDS_MAX: usize = 100;

/// Maximum time between two checks for a signal while a WebSocket opens.
const LOOK: Duration = Duration::from_millis(100);

/// Text that RFC 6455 appends to the key of a request.
const APPENDED: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Reason why a handshake has failed.
#[derive(Debug)]
pub(super) enum Unopened {
    /// The deadline has passed.
    Late,
    /// Reading or writing the stream has failed.
    Io(io::Error),
    /// The peer has sent something else than a handshake.
    Invalid(&'static str),
    /// The check has returned an error.
    Stopped(anyfn::Error),
}

/// Head and its length, `None` if it is not complete.
type Parsed = std::result::Result<Option<(Head, usize)>, Unopened>;

/// Head of a request or of an answer.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Target of a request (its path and query), or the reason of an answer.
    pub(super) text: String,
    /// Status of an answer.
    pub(super) status: u16,
    fields: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// Returns the values of a header field, whose name is compared without regard to case.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |field| field.0.eq_ignore_ascii_case(name)).map(|field| &*field.1)
    }

    /// Returns true if a header field contains `word` in a list that is separated by commas.
    fn lists(&self, name: &str, word: &str) -> bool {
        let is_word = |part: &[u8]| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes());
        self.values(name).any(|value| value.split(|byte| *byte == b',').any(is_word))
    }

    /// Returns why the head is not that of a WebSocket.
    fn upgrades(&self) -> std::result::Result<(), Unopened> {
        if !self.lists("Connection", "Upgrade") {
            return Err(Unopened::Invalid("there is no `Connection: Upgrade`"));
        }
        if !self.lists("Upgrade", "websocket") {
            return Err(Unopened::Invalid("there is no `Upgrade: websocket`"));
        }
        Ok(())
    }

    /// Returns the key of a request for a WebSocket.
    pub(super) fn key(&self) -> std::result::Result<&[u8], Unopened> {
        self.upgrades()?;
        if !self.lists("Sec-WebSocket-Version", "13") {
            return Err(Unopened::Invalid("there is no `Sec-WebSocket-Version: 13`"));
        }
        self.values("Sec-WebSocket-Key").next().ok_or(Unopened::Invalid("there is no `Sec-WebSocket-Key`"))
    }

    /// Returns why an answer with the status 101 is not that to a request with `key`.
    pub(super) fn accepts(&self, key: &[u8]) -> std::result::Result<(), Unopened> {
        self.upgrades()?;
        if self.values("Sec-WebSocket-Accept").next() != Some(accepted(key).as_bytes()) {
            return Err(Unopened::Invalid("`Sec-WebSocket-Accept` does not match the request"));
        }
        // The request asks for none of these.
        if self.values("Sec-WebSocket-Protocol").chain(self.values("Sec-WebSocket-Extensions")).next().is_some()
        {
            return Err(Unopened::Invalid("it has a protocol or an extension that the request has not"));
        }
        Ok(())
    }

    /// Creates the head of a request with these fields.
    #[cfg(test)]
    pub(super) fn of_fields<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Head {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.as_bytes().to_vec());
        Head { fields: fields.map(owned).collect(), ..Head::default() }
    }

    fn parse_request(bytes: &[u8]) -> Parsed {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let Some(length) = complete(request.parse(bytes), request.version)? else { return Ok(None) };
        if request.method != Some("GET") {
            return Err(Unopened::Invalid("its method is not GET"));
        }
        let text = request.path.unwrap_or_default().to_owned();
        Ok(Some((Head { text, status: 0, fields: owned(request.headers) }, length)))
    }

    fn parse_answer(bytes: &[u8]) -> Parsed {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut fields);
        let Some(length) = complete(answer.parse(bytes), answer.version)? else { return Ok(None) };
        let text = answer.reason.unwrap_or_default().to_owned();
        Ok(Some((Head { text, status: answer.code.unwrap_or(0), fields: owned(answer.headers) }, length)))
    }
}

/// Returns the length of a head, `None` if it is not complete.
fn complete(
    parsed: httparse::Result<usize>,
    version: Option<u8>,
) -> std::result::Result<Option<usize>, Unopened> {
    match parsed {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(_)) if version != Some(1) => {
            Err(Unopened::Invalid("its version is not HTTP/1.1"))
        }
        Ok(httparse::Status::Complete(length)) => Ok(Some(length)),
        Err(_) => Err(Unopened::Invalid("it is not HTTP")),
    }
}

fn owned(fields: &[httparse::Header<'_>]) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|field| (field.name.to_owned(), field.value.to_owned())).collect()
}

/// Returns the value by which a server shows that it has understood the request with `key`.
pub(super) fn accepted(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(APPENDED).finalize())
}

/// Handshake on a stream that does not block. The deadline is that of the whole handshake, so a peer that sends one byte at a time gains
/// nothing. `check` is called about ten times per second; its error ends the handshake.
pub(super) struct Exchange<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) deadline: Instant,
    pub(super) check: fn() -> Result<()>,
}

impl Exchange<'_> {
    /// Reads the head of a request. Returns it with the bytes that follow it and have arrived already.
    pub(super) fn request(&self) -> std::result::Result<(Head, Vec<u8>), Unopened> {
        self.head(Head::parse_request)
    }

    /// Reads the head of an answer. Returns it with the bytes that follow it and have arrived already.
    pub(super) fn answer(&self) -> std::result::Result<(Head, Vec<u8>), Unopened> {
        self.head(Head::parse_answer)
    }

    fn head(&self, parse: fn(&[u8]) -> Parsed) -> std::result::Result<(Head, Vec<u8>), Unopened> {
        let mut bytes = Vec::new();
        loop {
            let known = bytes.len();
            if !self.more(&mut bytes)? {
                return Err(Unopened::Invalid("the connection ended before its end"));
            }
            // A head can only be complete, or wrong as a whole, at the end of a line.
            if bytes[known..].contains(&b'\n')
                && let Some((head, length)) = parse(&bytes)?
            {
                return Ok((head, bytes.split_off(length)));
            }
            if bytes.len() > HEAD_MAX {
                return Err(Unopened::Invalid("it is longer than 16 KiB"));
            }
        }
    }

    /// Waits for bytes, and appends them. Returns false at the end of the stream.
    pub(super) fn more(&self, bytes: &mut Vec<u8>) -> std::result::Result<bool, Unopened> {
        let mut piece = [0; 4096];
        loop {
            match (&mut { self.stream }).read(&mut piece) {
                Ok(count) => {
                    bytes.extend_from_slice(&piece[..count]);
                    return Ok(count > 0);
                }
                Err(error) => self.wait(error, true)?,
            }
        }
    }

    /// Writes all bytes.
    pub(super) fn send(&self, mut bytes: &[u8]) -> std::result::Result<(), Unopened> {
        while !bytes.is_empty() {
            match (&mut { self.stream }).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => self.wait(error, false)?,
            }
        }
        Ok(())
    }

    /// Waits until the stream can be read or written, if `error` says that it would block.
    fn wait(&self, error: io::Error, reads: bool) -> std::result::Result<(), Unopened> {
        match error.kind() {
            ErrorKind::WouldBlock => {}
            ErrorKind::Interrupted => return Ok(()),
            _ => return Err(Unopened::Io(error)),
        }
        (self.check)().map_err(Unopened::Stopped)?;
        let Some(left) = self.deadline.checked_duration_since(Instant::now()) else {
            return Err(Unopened::Late);
        };
        poll(&mut [Polled::ready(self.stream.as_fd(), reads, !reads)], Some(left.min(LOOK)))
            .map_err(Unopened::Io)
    }
}
