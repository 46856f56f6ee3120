//! Reads and writes the codes (bit patterns) of scalars, and converts sequences of them.

use core::mem::MaybeUninit;

use crate::encoding::Scalar;
use crate::runs::{Format, RUN, run};

/// Codes (bit patterns) of scalars, which are packed without gaps, lowest bits first.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    bytes: &'a [u8],
    bits: usize,
}

impl<'a> Codes<'a> {
    /// Reads `bytes` as codes of scalars with the encoding `scalar`.
    pub fn new(bytes: &'a [u8], scalar: &Scalar) -> Codes<'a> {
        Codes { bytes, bits: scalar.bits() as usize }
    }

    /// Returns the code at `index`.
    ///
    /// # Panics
    /// Panics if the bytes do not contain that many codes.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        let size = self.bits / 8;
        if self.bits.is_multiple_of(8) {
            let mut code = [0; 8];
            code[..size].copy_from_slice(&self.bytes[index * size..(index + 1) * size]);
            return u64::from_le_bytes(code);
        }
        let (first, mut code) = (index * self.bits, 0);
        for bit in 0..self.bits {
            let at = first + bit;
            code |= u64::from(self.bytes[at / 8] >> (at % 8) & 1) << bit;
        }
        code
    }
}

/// Stores `code` as the scalar of `bits` bits at `index`, in the packed form that [`Codes::get`] reads. The bits of this
/// scalar must be zero before the call.
///
/// # Panics
/// Panics if the bytes have no scalar at `index`.
#[inline]
pub fn put(bytes: &mut [u8], bits: usize, index: usize, code: u64) {
    if bits.is_multiple_of(8) {
        let size = bits / 8;
        bytes[index * size..(index + 1) * size].copy_from_slice(&code.to_le_bytes()[..size]);
        return;
    }
    for bit in 0..bits {
        let at = index * bits + bit;
        bytes[at / 8] |= (code >> bit & 1) as u8 * (1 << (at % 8));
    }
}

/// Converts `count` scalars, which are packed in `source`, from the encoding `from` to the encoding `to`, and writes the results to
/// `target`. After each result, `step - 1` scalars of `target` are set to zero, so `target` must have room for `count * step` scalars.
///
/// # Errors
/// Returns the index of the first scalar whose number `to` does not represent; the content of `target` is then unspecified, and may be
/// uninitialised. Otherwise all bytes of `target` were written.
///
/// # Panics
/// Panics if `source` or `target` is too short.
#[inline(never)]
pub fn convert(
    from: &Scalar,
    to: &Scalar,
    source: &[u8],
    count: usize,
    step: usize,
    target: &mut [MaybeUninit<u8>],
) -> Result<(), usize> {
    let (size, bits) = (from.bits() as usize, to.bits() as usize);
    let formats = (Format::of(from), Format::of(to));
    let codes = Codes::new(source, from);
    if from == to && step == 1 && formats.0.is_some_and(|format| format != Format::Bool) {
        let bytes = &source[..count * size / 8];
        target[..bytes.len()].write_copy_of_slice(bytes);
        return Ok(());
    }
    for first in (0..count).step_by(RUN) {
        let end = count.min(first + RUN);
        // A run begins at a byte, because its length is a multiple of 8.
        let piece = &mut target[first * step * bits / 8..(end * step * bits).div_ceil(8)];
        let is_done = step == 1
            && match formats {
                (Some(from), Some(to)) => run(from, to, &source[first * size / 8..end * size / 8], piece),
                _ => false,
            };
        if !is_done {
            piece.fill(MaybeUninit::new(0));
            // SAFETY: the bytes were written just now.
            let piece = unsafe { piece.assume_init_mut() };
            for index in first..end {
                let code = to.encode(from.decode(codes.get(index))).ok_or(index)?;
                put(piece, bits, (index - first) * step, code);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::Element;

    fn scalar(name: &str) -> Scalar {
        Element::of(name.parse().unwrap()).unwrap().scalar
    }

    fn converted(from: &str, to: &str, source: &[u8], count: usize, step: usize) -> Result<Vec<u8>, usize> {
        let (from, to) = (scalar(from), scalar(to));
        let mut target = vec![MaybeUninit::new(0xA5); (count * step * to.bits() as usize).div_ceil(8)];
        convert(&from, &to, source, count, step, &mut target)?;
        // SAFETY: the bytes were initialised, and stay so.
        Ok(target.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    #[test]
    fn equal_encodings_keep_all_codes_except_those_of_bools() {
        let nan = [1, 0, 0xA0, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF];
        assert_eq!(converted("float32", "float32", &nan, 2, 1).unwrap(), nan);
        assert_eq!(converted("float64", "float64", &nan, 1, 1).unwrap(), nan);
        assert_eq!(converted("bool", "bool", &[0, 1, 2, 255], 4, 1).unwrap(), [0, 1, 1, 1]);
        assert_eq!(converted("int4", "int4", &[0x21, 0xF3], 3, 1).unwrap(), [0x21, 0x03]);
    }

    #[test]
    fn zeros_follow_each_result() {
        assert_eq!(converted("int8", "int16", &[1, 0xFF], 2, 2).unwrap(), [1, 0, 0, 0, 0xFF, 0xFF, 0, 0]);
    }

    #[test]
    fn the_first_scalar_that_does_not_fit_is_found_in_any_run() {
        for at in [0, 1, RUN - 1, RUN, 2 * RUN + 7] {
            let mut source = vec![1_u8; 3 * RUN];
            source[at] = 200;
            source[3 * RUN - 1] = 201;
            assert_eq!(converted("uint8", "int8", &source, source.len(), 1), Err(at));
        }
    }
}
