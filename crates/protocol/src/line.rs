//! Packets on a serial line, without I/O: a reliable stream of bytes over a line that may lose or change bytes, and that does not tell when
//! the other end has closed it.
//!
//! A [`Line`] is one end. The program passes received bytes to [`Line::receive`], sends what [`Line::take_output`] returns, and tells the
//! time by [`Line::tick`]. What was received in order comes out of [`Line::take_received`]. A session of this crate runs over that
//! stream as over a socket. `docs/rpc.md` specifies the packets.
//!
//! A client begins by a packet with a number of its choice, on which a server starts afresh, whatever it has received before. A line
//! that was cut in the middle of a packet is therefore usable again at once.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Maximum number of bytes of the stream in one packet.
pub const DATA_MAX: usize = 224;
/// Maximum number of data packets that are sent before the first of them is acknowledged. Encoded, they have less than 1 KiB.
pub const WINDOW: usize = 4;
/// Bytes of a packet besides the data: kind, session, sequence number, checksum.
const OVERHEAD: usize = 6;
/// Maximum length of an encoded packet: one byte for each 254 bytes, rounded up.
const ENCODED_MAX: usize = DATA_MAX + OVERHEAD + 1;
/// Maximum number of received bytes that wait to be taken, before further packets are ignored. They are sent again.
const RECEIVED_MAX: usize = 4096;
/// Time after which packets that are not acknowledged are sent again.
const AGAIN: Duration = Duration::from_millis(400);

const BEGIN: u8 = 1;
const BEGUN: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;
const NACK: u8 = 5;
const UNKNOWN: u8 = 6;

/// Event that [`Line::receive`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEvent {
    /// The server receives this event when a client has begun a new session. All data of an earlier session is lost.
    Began,
    /// The client receives this event when the server does not know the session, because the server has restarted or has begun a
    /// session with another client.
    Lost,
}

/// One end of a serial line.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn_protocol::line::{Line, LineEvent};
///
/// let (mut client, mut server) = (Line::client(7), Line::server());
/// client.send(b"hello");
/// assert_eq!(server.receive(b"\x03noise"), []);
/// assert_eq!(server.receive(&client.take_output()), [LineEvent::Began]);
/// client.receive(&server.take_output());
/// server.receive(&client.take_output());
/// assert_eq!(server.take_received(), b"hello");
/// ```
pub struct Line {
    is_client: bool,
    /// Number of the session; `None` for a server without one.
    session: Option<u16>,
    /// True for a client whose session the server has not confirmed yet.
    is_opening: bool,
    /// Encoded bytes of the packet that is arriving.
    packet: Vec<u8>,
    /// True if the packet that is arriving is too long to be one.
    is_overlong: bool,
    /// Sequence number of the next data packet that is received.
    expected: u8,
    /// True after a gap was reported, until the expected packet arrives.
    has_complained: bool,
    received: Vec<u8>,
    /// Sequence number of the next data packet that is sent.
    next: u8,
    waiting: VecDeque<u8>,
    /// Packets that are not acknowledged, the oldest first.
    unacknowledged: VecDeque<Vec<u8>>,
    sent: Option<Duration>,
    now: Duration,
    out: Vec<u8>,
    events: Vec<LineEvent>,
    errors: u64,
}

impl Line {
    /// Creates the end of a client, whose output begins a session with the number `session`. The number should differ from those of the
    /// last sessions over the same line; a random one does.
    pub fn client(session: u16) -> Line {
        let mut line = Line::new(true, Some(session));
        line.is_opening = true;
        // Ends whatever an earlier client has begun to send.
        line.out.push(0);
        line.put(BEGIN, 0, &[]);
        line.sent = Some(Duration::ZERO);
        line
    }

    /// Creates the end of a server, which waits for a client.
    pub fn server() -> Line {
        Line::new(false, None)
    }

    fn new(is_client: bool, session: Option<u16>) -> Line {
        Line {
            is_client,
            session,
            is_opening: false,
            packet: Vec::new(),
            is_overlong: false,
            expected: 0,
            has_complained: false,
            received: Vec::new(),
            next: 0,
            waiting: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            sent: None,
            now: Duration::ZERO,
            out: Vec::new(),
            events: Vec::new(),
            errors: 0,
        }
    }

    /// Returns the number of received packets that were damaged.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Queues bytes of the stream, which go out in packets as earlier ones are acknowledged.
    pub fn send(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        self.fill();
    }

    /// Returns the number of bytes that were queued by [`Line::send`] and are not acknowledged yet.
    pub fn unsent(&self) -> usize {
        self.waiting.len() + self.unacknowledged.iter().map(Vec::len).sum::<usize>()
    }

    /// Takes the bytes that go out over the line.
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Takes the bytes of the stream that have arrived. At most about 4 KiB wait to be taken; what arrives then is ignored, and sent
    /// again by the other end after 400 milliseconds.
    pub fn take_received(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.received)
    }

    /// Tells the time since any fixed origin, a few times per second. Packets that have not been acknowledged for a while are sent
    /// again.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        let sent = *self.sent.get_or_insert(now);
        if now.saturating_sub(sent) < AGAIN {
            return;
        }
        if self.is_opening {
            self.sent = Some(now);
            self.put(BEGIN, 0, &[]);
        } else if !self.unacknowledged.is_empty() {
            self.send_again();
        }
    }

    /// Processes bytes that have arrived over the line, and returns what has happened.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<LineEvent> {
        for byte in bytes {
            match byte {
                0 => self.end_packet(),
                _ if self.packet.len() >= ENCODED_MAX => self.is_overlong = true,
                byte => self.packet.push(*byte),
            }
        }
        core::mem::take(&mut self.events)
    }

    fn end_packet(&mut self) {
        let encoded = core::mem::take(&mut self.packet);
        let is_overlong = core::mem::take(&mut self.is_overlong);
        if !encoded.is_empty() {
            match decode(&encoded).filter(|_| !is_overlong) {
                Some(packet) => self.packet_arrived(&packet),
                None => {
                    self.errors += 1;
                    self.complain();
                }
            }
        }
        // The memory serves the next packet.
        self.packet = encoded;
        self.packet.clear();
    }

    fn packet_arrived(&mut self, packet: &[u8]) {
        let [kind, low, high, sequence, data @ ..] = packet else { return };
        let session = u16::from_le_bytes([*low, *high]);
        match *kind {
            BEGIN if !self.is_client => {
                if self.session != Some(session) || self.expected != 0 || self.next != 0 {
                    let (mut fresh, now) = (Line::new(false, Some(session)), self.now);
                    (fresh.now, fresh.errors) = (now, self.errors);
                    *self = fresh;
                    self.events.push(LineEvent::Began);
                }
                self.put(BEGUN, 0, &[]);
            }
            BEGUN if self.is_opening && self.session == Some(session) => {
                self.is_opening = false;
                self.fill();
            }
            DATA | ACK if !self.is_client && self.session != Some(session) => {
                let own = self.session.replace(session);
                self.put(UNKNOWN, 0, &[]);
                self.session = own;
            }
            _ if self.session != Some(session) || self.is_opening => {}
            // The program does not take what has arrived, for instance because it waits to send. The other end sends this again.
            DATA if *sequence == self.expected && self.received.len() >= RECEIVED_MAX => {}
            DATA if *sequence == self.expected => {
                self.expected = self.expected.wrapping_add(1);
                self.has_complained = false;
                self.received.extend_from_slice(data);
                self.put(ACK, self.expected, &[]);
            }
            // A packet that was received before: its acknowledgement was lost.
            DATA if self.expected.wrapping_sub(*sequence) <= WINDOW as u8 => self.put(ACK, self.expected, &[]),
            DATA => self.complain(),
            ACK => self.acknowledged(*sequence),
            NACK => {
                self.acknowledged(*sequence);
                self.send_again();
            }
            UNKNOWN if self.is_client && self.events.is_empty() => self.events.push(LineEvent::Lost),
            _ => {}
        }
    }

    /// Reports a gap or a damaged packet once, so that the other end sends again before its time has passed.
    fn complain(&mut self) {
        if self.session.is_some() && !self.is_opening && !core::mem::replace(&mut self.has_complained, true) {
            self.put(NACK, self.expected, &[]);
        }
    }

    /// Removes the packets before the sequence number `next`, which the other end expects.
    fn acknowledged(&mut self, next: u8) {
        let oldest = self.next.wrapping_sub(self.unacknowledged.len() as u8);
        let count = usize::from(next.wrapping_sub(oldest));
        if count == 0 || count > self.unacknowledged.len() {
            return;
        }
        self.unacknowledged.drain(..count);
        self.sent = Some(self.now);
        self.fill();
    }

    fn send_again(&mut self) {
        self.sent = Some(self.now);
        let oldest = self.next.wrapping_sub(self.unacknowledged.len() as u8);
        for at in 0..self.unacknowledged.len() {
            let data = core::mem::take(&mut self.unacknowledged[at]);
            self.put(DATA, oldest.wrapping_add(at as u8), &data);
            self.unacknowledged[at] = data;
        }
    }

    /// Makes packets of waiting bytes, as many as may be unacknowledged.
    fn fill(&mut self) {
        if self.session.is_none() || self.is_opening {
            return;
        }
        while !self.waiting.is_empty() && self.unacknowledged.len() < WINDOW {
            let count = self.waiting.len().min(DATA_MAX);
            let data: Vec<u8> = self.waiting.drain(..count).collect();
            if self.unacknowledged.is_empty() {
                self.sent = Some(self.now);
            }
            self.put(DATA, self.next, &data);
            self.next = self.next.wrapping_add(1);
            self.unacknowledged.push_back(data);
        }
    }

    /// Adds a packet of this session to the output.
    fn put(&mut self, kind: u8, sequence: u8, data: &[u8]) {
        let [low, high] = self.session.unwrap_or_default().to_le_bytes();
        let head = [kind, low, high, sequence];
        let check = checksum(head.iter().chain(data)).to_le_bytes();
        encode(head.iter().chain(data).chain(&check).copied(), &mut self.out);
    }
}

/// Returns the CRC-16 with the polynomial 0x1021 and the start 0xFFFF.
fn checksum<'a>(bytes: impl Iterator<Item = &'a u8>) -> u16 {
    bytes.fold(0xFFFF, |mut sum: u16, byte| {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            sum = if sum & 0x8000 != 0 { sum << 1 ^ 0x1021 } else { sum << 1 };
        }
        sum
    })
}

/// Appends bytes in the encoding COBS, which contains no 0, and a 0. At most 254 bytes.
fn encode(bytes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let mut head = out.len();
    out.push(1);
    for byte in bytes {
        if byte == 0 {
            head = out.len();
            out.push(1);
        } else {
            out.push(byte);
            out[head] += 1;
        }
    }
    out.push(0);
}

/// Decodes a packet without the 0 at its end, and removes its checksum. Returns `None` if it is damaged.
fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut packet = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((count, after)) = rest.split_first() {
        let (part, after) = after.split_at_checked(usize::from(*count).checked_sub(1)?)?;
        packet.extend_from_slice(part);
        if !after.is_empty() {
            packet.push(0);
        }
        rest = after;
    }
    let (content, check) = packet.split_last_chunk::<2>()?;
    let is_right = checksum(content.iter()) == u16::from_le_bytes(*check);
    let length = content.len();
    packet.truncate(length);
    (is_right && length >= OVERHEAD - 2).then_some(packet)
}
