//! Frames: encoding of messages as a byte stream, and decoding. This module does no I/O.
//!
//! A frame is `u32 length of the payload | u8 kind | u8 flags | u16 zero | u64 id | payload`, little-endian. A message longer
//! than one frame continues in further frames of the same kind and id; all but the last have the flag `MORE`.

use alloc::vec::Vec;
use core::fmt;

use crate::tables::HashMap;

/// Size of a frame's header, in bytes.
pub const HEADER: usize = 16;

/// Maximum size of one frame's payload, in bytes.
pub const PAYLOAD_MAX: usize = 256 << 10;

/// Receivers whose messages are shorter than this, such as boards, refuse longer frames at once, because these exhaust their memory.
/// Other receivers accept all frames of at most [`PAYLOAD_MAX`], because a sender need not know the limit: a server is not told that of
/// its client, and earlier versions of this crate sent bulk data in the longest frames.
const STRICT: usize = 64 << 10;

/// Flag of a frame whose message continues in a later frame.
const MORE: u8 = 1;

/// Maximum number of multi-frame messages that may be incomplete at the same time.
const PARTIAL_MAX: usize = 64;

/// Type of a message, as stated in the frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// First message, from client to server: description of the client.
    Hello = 1,
    /// Reply to `Hello`, from server to client: the maximum length of a message that the server accepts.
    Welcome = 2,
    /// Call of a function or service, with an id that the caller has chosen.
    Call = 3,
    /// Result of the call whose id is in the frame header.
    Return = 4,
    /// Error result of the call whose id is in the frame header.
    Error = 5,
    /// Cancellation: the caller no longer waits for the call whose id is in the frame header.
    Cancel = 6,
    /// Release of handles that the sender received and no longer needs.
    Release = 7,
    /// Part of the bulk data of the call whose id is in the frame header: `u64 offset | bytes`.
    Data = 8,
    /// Request for a `Pong` with the same id.
    Ping = 9,
    /// Reply to a `Ping`, with the same id.
    Pong = 10,
    /// End of the session; the payload states the reason.
    Bye = 11,
    /// Position of the client in the queue, from server to client, any number of times before `Welcome`.
    /// Position 1 is the front.
    Queued = 12,
}

impl FrameKind {
    fn of(byte: u8) -> Option<FrameKind> {
        use FrameKind::*;
        [Hello, Welcome, Call, Return, Error, Cancel, Release, Data, Ping, Pong, Bye, Queued]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// Returns true if messages of this kind may consist of several frames.
    fn has_parts(self) -> bool {
        matches!(self, FrameKind::Call | FrameKind::Return | FrameKind::Error)
    }
}

/// Complete message that was received.
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Kind of the message.
    pub kind: FrameKind,
    /// Id of the call that the message belongs to.
    pub id: u64,
    /// Content of the message.
    pub payload: &'a [u8],
}

/// Reason why received bytes are not valid frames. The connection cannot continue after this error.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Unknown message kind.
    Kind(u8),
    /// Unexpected flags, or reserved bytes that are not zero.
    Flags,
    /// Payload longer than [`PAYLOAD_MAX`]. Contains its length in bytes.
    Length(u32),
    /// Multi-frame message that is longer than allowed, or too many incomplete messages.
    Message,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Kind(kind) => write!(f, "unknown frame kind {kind}"),
            Malformed::Flags => write!(f, "unknown frame flags"),
            Malformed::Length(length) => {
                write!(
                    f,
                    "expected a frame of at most {PAYLOAD_MAX} bytes, and no longer than a message may be, got {length}"
                )
            }
            Malformed::Message => {
                write!(f, "fragmented messages exceed the agreed length, or too many of them are incomplete")
            }
        }
    }
}

/// Splits a message into frames, and calls `sink` with the header and the payload of each frame.
pub fn write_message<E>(
    kind: FrameKind,
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

/// Returns the header of a frame. `more` is true if the message continues in a later frame. `length` is the length of the payload
/// and must be at most [`PAYLOAD_MAX`].
pub fn header(kind: FrameKind, more: bool, id: u64, length: usize) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&(length as u32).to_le_bytes());
    out[4] = kind as u8;
    out[5] = if more { MORE } else { 0 };
    out[8..].copy_from_slice(&id.to_le_bytes());
    out
}

/// Decoder that splits a byte stream into messages as the bytes arrive.
///
/// The buffer grows only when it is full of bytes that have arrived, so a claimed length alone takes no memory.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn_protocol::frame::{Frames, FrameKind, header};
///
/// let mut frames = Frames::new(1 << 20);
/// let bytes = [&header(FrameKind::Ping, false, 7, 2)[..], b"hi"].concat();
/// for byte in bytes {
///     assert!(frames.next().unwrap().is_none());
///     frames.push(&[byte]);
/// }
/// let message = frames.next().unwrap().unwrap();
/// assert_eq!((message.kind, message.id, message.payload), (FrameKind::Ping, 7, &b"hi"[..]));
/// ```
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Incomplete messages that consist of several frames, by kind and id.
    partial: HashMap<(u8, u64), Vec<u8>>,
    /// Total number of bytes in `partial`.
    kept: usize,
    /// Maximum number of bytes in `partial`.
    message_max: usize,
    /// Content of the most recently returned message that consisted of several frames. The caller of
    /// [`Frames::next`] borrows it.
    whole: Vec<u8>,
}

impl Frames {
    /// Creates an empty decoder. `message_max` is the maximum number of bytes of all incomplete messages
    /// together.
    pub fn new(message_max: usize) -> Frames {
        Frames {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            partial: HashMap::default(),
            kept: 0,
            message_max,
            whole: Vec::new(),
        }
    }

    /// Changes the maximum number of bytes of all incomplete messages together.
    pub fn set_message_max(&mut self, message_max: usize) {
        self.message_max = message_max;
    }

    /// Returns a buffer into which the caller reads bytes from the socket. The caller reports with
    /// [`Frames::filled`] how many bytes it has read.
    pub fn room(&mut self) -> &mut [u8] {
        // Less space would take too many system calls.
        self.room_for((self.buffer.len() / 4).clamp(1, 128 << 10))
    }

    /// Returns a buffer like [`Frames::room`], but with at least `count` bytes. The buffer may grow
    /// by this size, so the caller must already have received the bytes that it will write to the
    /// buffer.
    pub fn room_for(&mut self, count: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < count && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < count {
            // At most twice the previous size or the size of what has arrived, so the memory stays proportional to the received
            // bytes.
            let length = (2 * self.buffer.len()).max(self.end + count).max(4 << 10);
            self.buffer.resize(length, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Records that the caller has written `count` bytes to the buffer returned by [`Frames::room`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Returns the number of received bytes that [`Frames::next`] has not consumed yet.
    pub fn waiting(&self) -> usize {
        self.end - self.start
    }

    /// Appends received bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// Returns the next message, or `None` if no further message is complete.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the bytes are not frames; the stream cannot recover from that.
    #[allow(clippy::should_implement_trait, reason = "the message borrows, which an iterator's item may not")]
    pub fn next(&mut self) -> Result<Option<Message<'_>>, Malformed> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let kind = FrameKind::of(head[4]).ok_or(Malformed::Kind(head[4]))?;
            let more = head[5] == MORE;
            if head[5] & !MORE != 0 || head[6..8] != [0, 0] || (more && !kind.has_parts()) {
                return Err(Malformed::Flags);
            }
            let most = if self.message_max < STRICT { self.message_max } else { PAYLOAD_MAX };
            if length as usize > most {
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

    /// Appends a frame's payload to an incomplete message. Returns true if the frame was the last
    /// one of the message; `whole` then contains the message.
    fn keep(
        &mut self,
        kind: FrameKind,
        id: u64,
        from: usize,
        length: usize,
        more: bool,
    ) -> Result<bool, Malformed> {
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
