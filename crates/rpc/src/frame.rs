//! Frames: how messages are cut out of a stream of bytes. Pure; nothing here knows of sockets.
//!
//! A frame is `u32 length of the payload | u8 kind | u8 flags | u16 zero | u64 id | payload`, little-endian. A message that
//! is longer than a frame may be continues in frames of the same kind and id; all but its last have the flag `MORE`.

use std::collections::HashMap;

/// Bytes in front of the payload.
pub const HEADER: usize = 16;

/// Longest payload of one frame.
pub const PAYLOAD_MAX: usize = 256 << 10;

/// Flag: the message goes on in a later frame.
const MORE: u8 = 1;

/// Messages that may be in parts at one time.
const PARTIAL_MAX: usize = 64;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client to server, the first message: what the client is.
    Hello = 1,
    /// Server to client, the answer: what the server is and allows.
    Welcome = 2,
    /// A call; its id is chosen by the caller.
    Call = 3,
    /// The result of the call with this id.
    Return = 4,
    /// The error of the call with this id.
    Error = 5,
    /// The caller no longer waits for the call with this id.
    Cancel = 6,
    /// Handles that the sender has received and no longer holds.
    Release = 7,
    /// Bytes of the transfer that belongs to the call with this id: `u64 offset | bytes`.
    Data = 8,
    /// Asks for a `Pong` with the same id.
    Ping = 9,
    /// The answer to a `Ping`.
    Pong = 10,
    /// The sender ends the session; the payload says why.
    Bye = 11,
    /// Server to client, any number of times before `Welcome`: the client's place in the queue, 1 for the next.
    Queued = 12,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        [Hello, Welcome, Call, Return, Error, Cancel, Release, Data, Ping, Pong, Bye, Queued]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// Whether messages of this kind may be longer than a frame.
    fn has_parts(self) -> bool {
        matches!(self, Kind::Call | Kind::Return | Kind::Error)
    }
}

/// A whole message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: Kind,
    /// The call that it belongs to.
    pub id: u64,
    /// The rest.
    pub payload: &'a [u8],
}

/// Why a stream of bytes is not one of frames. The connection cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A kind that there is not.
    Kind(u8),
    /// Flags, or bytes that are zero, are not what they should be.
    Flags,
    /// A payload longer than [`PAYLOAD_MAX`].
    Length(u32),
    /// A message of several frames is longer than allowed, or too many are incomplete.
    Message,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Kind(kind) => write!(f, "a message of kind {kind}, which there is not"),
            Malformed::Flags => write!(f, "a frame whose flags are not known"),
            Malformed::Length(length) => {
                write!(f, "a frame of {length} bytes, but the longest has {PAYLOAD_MAX}")
            }
            Malformed::Message => {
                write!(f, "a message in parts that is longer than agreed, or too many such messages")
            }
        }
    }
}

/// The frames of a message, for a sink that takes a header and a part of the payload at a time.
pub fn write_message<E>(
    kind: Kind,
    id: u64,
    payload: &[u8],
    mut sink: impl FnMut(&[u8; HEADER], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = payload;
    loop {
        let (part, later) = rest.split_at(rest.len().min(PAYLOAD_MAX));
        sink(&header(kind, !later.is_empty(), id, part.len()), part)?;
        rest = later;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// The header of a frame; `length` is at most [`PAYLOAD_MAX`].
pub fn header(kind: Kind, more: bool, id: u64, length: usize) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&(length as u32).to_le_bytes());
    out[4] = kind as u8;
    out[5] = if more { MORE } else { 0 };
    out[8..].copy_from_slice(&id.to_le_bytes());
    out
}

/// Cuts messages out of bytes as they arrive.
///
/// The buffer grows only when it is full of bytes that have arrived, so a length that is only claimed takes no memory.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn_rpc::frame::{Frames, Kind, header};
///
/// let mut frames = Frames::new(1 << 20);
/// let bytes = [&header(Kind::Ping, false, 7, 2)[..], b"hi"].concat();
/// for byte in bytes {
///     assert!(frames.next().unwrap().is_none());
///     frames.push(&[byte]);
/// }
/// let message = frames.next().unwrap().unwrap();
/// assert_eq!((message.kind, message.id, message.payload), (Kind::Ping, 7, &b"hi"[..]));
/// ```
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Messages of which not all frames are there.
    partial: HashMap<(u8, u64), Vec<u8>>,
    /// Bytes in `partial`.
    kept: usize,
    /// Most bytes in `partial`.
    message_max: usize,
    /// The message given last, if it had several frames.
    whole: Vec<u8>,
}

impl Frames {
    /// `message_max` is the most bytes that messages in parts may take, all together.
    pub fn new(message_max: usize) -> Frames {
        Frames {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            partial: HashMap::new(),
            kept: 0,
            message_max,
            whole: Vec::new(),
        }
    }

    /// Changes the most bytes that messages in parts may take.
    pub fn set_message_max(&mut self, message_max: usize) {
        self.message_max = message_max;
    }

    /// Room for bytes to be read into; say with [`Frames::filled`] how many there are.
    pub fn room(&mut self) -> &mut [u8] {
        // Less would take too many system calls.
        self.room_for((self.buffer.len() / 4).clamp(1, 128 << 10))
    }

    /// As [`Frames::room`], for so many bytes at least, which have arrived.
    pub fn room_for(&mut self, count: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < count && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < count {
            // At most twice as much as before, or as what has arrived: that pays for it.
            let length = (2 * self.buffer.len()).max(self.end + count).max(4 << 10);
            self.buffer.resize(length, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes of [`Frames::room`] have been filled.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Bytes that have arrived and not been given out.
    pub fn waiting(&self) -> usize {
        self.end - self.start
    }

    /// Takes bytes that have arrived.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// The next whole message, if it has arrived.
    ///
    /// # Errors
    /// If the bytes are not frames; then they never become any again.
    #[allow(clippy::should_implement_trait, reason = "the message borrows, which an iterator's item may not")]
    pub fn next(&mut self) -> Result<Option<Message<'_>>, Malformed> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let kind = Kind::of(head[4]).ok_or(Malformed::Kind(head[4]))?;
            let more = head[5] == MORE;
            if head[5] & !MORE != 0 || head[6..8] != [0, 0] || (more && !kind.has_parts()) {
                return Err(Malformed::Flags);
            }
            if length as usize > PAYLOAD_MAX {
                return Err(Malformed::Length(length));
            }
            let length = length as usize;
            if rest.len() < length {
                return Ok(None);
            }
            let id = u64::from_le_bytes([
                head[8], head[9], head[10], head[11], head[12], head[13], head[14], head[15],
            ]);
            let from = self.start + HEADER;
            self.start = from + length;
            if !more && (self.partial.is_empty() || !self.partial.contains_key(&(kind as u8, id))) {
                return Ok(Some(Message { kind, id, payload: &self.buffer[from..from + length] }));
            }
            if self.keep(kind, id, from, length, more)? {
                return Ok(Some(Message { kind, id, payload: &self.whole }));
            }
        }
    }

    /// Keeps a part of a message; whether it was the last one, so that the message is in `whole`.
    fn keep(&mut self, kind: Kind, id: u64, from: usize, length: usize, more: bool) -> Result<bool, Malformed> {
        let key = (kind as u8, id);
        self.kept += length;
        if self.kept > self.message_max
            || (self.partial.len() >= PARTIAL_MAX && !self.partial.contains_key(&key))
        {
            return Err(Malformed::Message);
        }
        let message = self.partial.entry(key).or_default();
        message.extend_from_slice(&self.buffer[from..from + length]);
        if more {
            return Ok(false);
        }
        self.whole = self.partial.remove(&key).unwrap_or_default();
        self.kept -= self.whole.len();
        Ok(true)
    }
}
