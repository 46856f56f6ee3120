//! Byte encoding of a connection after the handshake, in both directions: unencrypted, or as encrypted
//! records.
//!
//! A record is `u16 length | ciphertext`, with at most 65,535 bytes of ciphertext. The contents of the records, concatenated, are
//! the stream of frames.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use snow::StatelessTransportState;

use crate::frame::Frames;

/// Size of the authentication tag that encryption adds to a record, in bytes.
const TAG: usize = 16;

/// Maximum size of the content of one record, in bytes.
pub(crate) const RECORD_MAX: usize = u16::MAX as usize - TAG;

/// Encoder of outgoing bytes, which are sent unchanged or encrypted.
#[derive(Debug)]
pub enum Sealer {
    /// Sends bytes without encryption.
    Plain,
    /// Sends bytes as encrypted records. Contains the state of the encryption, and the sequence number of the
    /// next record.
    Noise(Arc<StatelessTransportState>, u64),
}

/// Maximum size of an encrypted record including its length prefix, in bytes.
const SEALED_MAX: usize = 2 + u16::MAX as usize;

/// Decoder of received bytes. Its output is a stream of frames.
#[derive(Debug)]
pub enum Opener {
    /// Receives bytes without encryption.
    Plain,
    /// Receives bytes as encrypted records.
    Noise(NoiseOpener),
}

/// Decoder of encrypted records.
#[derive(Debug)]
pub struct NoiseOpener {
    state: Arc<StatelessTransportState>,
    next: u64,
    /// Buffer of received bytes. The bytes from `start` to `end` have not been decrypted yet.
    arrived: Vec<u8>,
    start: usize,
    end: usize,
}

/// Error for a record that fails authentication, is out of order, or exceeds the maximum number of records per
/// encryption key.
#[derive(Debug, PartialEq, Eq)]
pub struct Forged;

impl fmt::Display for Forged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("authentication failed: received bytes that the peer did not send")
    }
}

impl Sealer {
    /// Returns true if bytes are sent without encryption.
    pub fn is_plain(&self) -> bool {
        matches!(self, Sealer::Plain)
    }

    /// Encodes `bytes` for sending and appends them to `out`.
    ///
    /// # Errors
    /// Returns [`Forged`] if the connection has reached the maximum number of records for one key.
    pub fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Forged> {
        let start = out.len();
        let end = self.seal_at(bytes, out, start)?;
        out.truncate(end);
        Ok(())
    }

    /// Encodes `bytes` for sending and writes them to `out` from the position `start`. Returns the position after them.
    /// `out` grows if they do not fit, and keeps its length otherwise, so that its memory is initialised only once.
    ///
    /// # Errors
    /// Returns the error of [`Sealer::seal`].
    pub(crate) fn seal_at(&mut self, bytes: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Forged> {
        let sealed = match self {
            Sealer::Plain => bytes.len(),
            Sealer::Noise(..) => bytes.len() + bytes.len().div_ceil(RECORD_MAX) * (2 + TAG),
        };
        let end = start + sealed;
        if out.len() < end {
            out.resize(end, 0);
        }
        let mut out = &mut out[start..end];
        match self {
            Sealer::Plain => out.copy_from_slice(bytes),
            Sealer::Noise(state, next) => {
                for part in bytes.chunks(RECORD_MAX) {
                    let (record, rest) = out.split_at_mut(2 + part.len() + TAG);
                    let (length, record) = record.split_at_mut(2);
                    length.copy_from_slice(&(record.len() as u16).to_le_bytes());
                    state.write_message(*next, part, record).map_err(|_| Forged)?;
                    *next += 1;
                    out = rest;
                }
            }
        }
        Ok(end)
    }
}

impl Opener {
    /// Returns a buffer into which the caller reads bytes from the socket. The caller reports with
    /// [`Opener::received`] how many bytes it has read. Each call must pass the same `frames`.
    pub fn room<'a>(&'a mut self, frames: &'a mut Frames) -> &'a mut [u8] {
        match self {
            Opener::Plain => frames.room(),
            Opener::Noise(noise) => noise.room(),
        }
    }

    /// Decodes the `count` bytes that the caller has written to the buffer returned by [`Opener::room`], and
    /// passes their content to `frames`.
    ///
    /// # Errors
    /// Returns [`Forged`] if a record is not authentic; the connection cannot continue.
    pub fn received(&mut self, count: usize, frames: &mut Frames) -> Result<(), Forged> {
        match self {
            Opener::Plain => {
                frames.filled(count);
                Ok(())
            }
            Opener::Noise(noise) => noise.received(count, frames),
        }
    }

    /// Decodes received bytes from any buffer, and passes their content to `frames`.
    ///
    /// # Errors
    /// Returns the error of [`Opener::received`].
    pub fn push(&mut self, mut bytes: &[u8], frames: &mut Frames) -> Result<(), Forged> {
        while !bytes.is_empty() {
            let room = self.room(frames);
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.received(now.len(), frames)?;
            bytes = later;
        }
        Ok(())
    }
}

impl NoiseOpener {
    fn room(&mut self) -> &mut [u8] {
        if self.arrived.is_empty() {
            self.arrived.resize(2 * SEALED_MAX, 0);
        }
        // Less than one record remains, so there is room for another record after it.
        if self.arrived.len() - self.end < SEALED_MAX {
            self.arrived.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.arrived[self.end..]
    }

    fn received(&mut self, count: usize, frames: &mut Frames) -> Result<(), Forged> {
        self.end = (self.end + count).min(self.arrived.len());
        while let Some((length, rest)) = self.arrived[self.start..self.end].split_first_chunk::<2>() {
            let length = usize::from(u16::from_le_bytes(*length));
            if length <= TAG {
                return Err(Forged);
            }
            let Some(record) = rest.get(..length) else { return Ok(()) };
            let plain = frames.room_for(length - TAG);
            let size = self.state.read_message(self.next, record, plain).map_err(|_| Forged)?;
            frames.filled(size);
            self.next += 1;
            self.start += 2 + length;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(())
    }
}

/// Returns the encoder and the decoder of an encrypted connection.
pub fn encrypted(state: StatelessTransportState) -> (Sealer, Opener) {
    let state = Arc::new(state);
    let opener = NoiseOpener { state: state.clone(), next: 0, arrived: Vec::new(), start: 0, end: 0 };
    (Sealer::Noise(state, 0), Opener::Noise(opener))
}
