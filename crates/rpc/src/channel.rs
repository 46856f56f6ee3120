//! The two directions of a connection after the handshake: bytes as they are, or encrypted records.
//!
//! A record is `u16 length | ciphertext`, of at most 65,535 bytes of ciphertext; what is in records, one behind the other, is the
//! stream of frames.

use std::sync::Arc;

use snow::StatelessTransportState;

use crate::frame::Frames;

/// Bytes that authentication adds to a record.
const TAG: usize = 16;

/// Most bytes in one record.
const RECORD_MAX: usize = u16::MAX as usize - TAG;

/// Turns bytes into what is sent.
#[derive(Debug)]
pub enum Sealer {
    /// As they are.
    Plain,
    /// Encrypted, with the number of the next record.
    Noise(Arc<StatelessTransportState>, u64),
}

/// Most bytes that a record takes.
const SEALED_MAX: usize = 2 + u16::MAX as usize;

/// Turns what is received into the bytes of frames.
#[derive(Debug)]
pub enum Opener {
    /// As they are.
    Plain,
    /// Encrypted.
    Noise(NoiseOpener),
}

/// Takes records apart.
#[derive(Debug)]
pub struct NoiseOpener {
    state: Arc<StatelessTransportState>,
    next: u64,
    /// What has arrived of the next records: from `start` to `end`.
    arrived: Vec<u8>,
    start: usize,
    end: usize,
}

/// A record that nobody with the key has made, or that is out of its order.
#[derive(Debug, PartialEq, Eq)]
pub struct Forged;

impl Sealer {
    /// Whether bytes are sent as they are.
    pub fn is_plain(&self) -> bool {
        matches!(self, Sealer::Plain)
    }

    /// Appends to `out` what is sent for `bytes`.
    ///
    /// # Errors
    /// If the connection has carried more records than one key may.
    pub fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Forged> {
        match self {
            Sealer::Plain => out.extend_from_slice(bytes),
            Sealer::Noise(state, next) => {
                for part in bytes.chunks(RECORD_MAX) {
                    let start = out.len();
                    out.extend_from_slice(&((part.len() + TAG) as u16).to_le_bytes());
                    out.resize(start + 2 + part.len() + TAG, 0);
                    state.write_message(*next, part, &mut out[start + 2..]).map_err(|_| Forged)?;
                    *next += 1;
                }
            }
        }
        Ok(())
    }
}

impl Opener {
    /// Room for bytes to be received into; say with [`Opener::received`] how many there are. They are for `frames`, the same ones
    /// each time.
    pub fn room<'a>(&'a mut self, frames: &'a mut Frames) -> &'a mut [u8] {
        match self {
            Opener::Plain => frames.room(),
            Opener::Noise(noise) => noise.room(),
        }
    }

    /// So many bytes of [`Opener::room`] have been filled: passes on what is in them.
    ///
    /// # Errors
    /// If a record is not genuine; the connection cannot go on.
    pub fn received(&mut self, count: usize, frames: &mut Frames) -> Result<(), Forged> {
        match self {
            Opener::Plain => {
                frames.filled(count);
                Ok(())
            }
            Opener::Noise(noise) => noise.received(count, frames),
        }
    }

    /// Bytes have arrived: passes on what is in them.
    ///
    /// # Errors
    /// As [`Opener::received`].
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
        // What is there is less than a record, so there is room for one behind it.
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

/// Both directions of an encrypted connection; `early` is what has arrived behind the handshake.
pub(crate) fn encrypted(state: StatelessTransportState) -> (Sealer, Opener) {
    let state = Arc::new(state);
    let opener = NoiseOpener { state: state.clone(), next: 0, arrived: Vec::new(), start: 0, end: 0 };
    (Sealer::Noise(state, 0), Opener::Noise(opener))
}
