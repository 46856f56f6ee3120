//! Alignment that machine code requires of the memory that it reads and writes.
//!
//! Vector code contains instructions that fault on addresses which are not a multiple of their width. They
//! are few, and their prefix encodes their width. So a search for their bytes at every offset finds each of
//! them. The search may also find the same bytes in other instructions or data; then the result is at worst
//! too large.

/// Returns an upper bound on the alignment in bytes that the instructions in `code` require.
#[cfg(target_arch = "x86_64")]
pub(crate) fn alignment(code: &[u8]) -> usize {
    // Instructions of the first generation require 16 bytes and cannot be recognised.
    let mut found = 16;
    for (at, byte) in code.iter().enumerate() {
        if let 0x62 | 0xC4 | 0xC5 = byte {
            found = found.max(width(&code[at..]));
            if found == 64 {
                break;
            }
        }
    }
    found
}

/// Returns 1, because vector instructions of this processor accept any address.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn alignment(_code: &[u8]) -> usize {
    1
}

/// Returns the alignment in bytes that an instruction at the start of `code` would require of its memory operand, or 1
/// if it would require none.
#[cfg(target_arch = "x86_64")]
fn width(code: &[u8]) -> usize {
    // Opcode map, mandatory prefix, width in bytes, opcode, operands.
    let (table, prefix, width, operation, operands) = match *code {
        [0xC5, p, operation, operands, ..] => (1, p & 3, 16 << (p >> 2 & 1), operation, operands),
        [0xC4, t, p, operation, operands, ..] => (t & 31, p & 3, 16 << (p >> 2 & 1), operation, operands),
        [0x62, t, p, w, operation, operands, ..] => (t & 7, p & 3, 16 << (w >> 5 & 3), operation, operands),
        _ => return 1,
    };
    const MOVE: u8 = 1;
    const LOAD: u8 = 2;
    let is_aligned = match (table, operation) {
        (MOVE, 0x28 | 0x29 | 0x2B) => true,
        // With other prefixes these are moves without a required alignment.
        (MOVE, 0x6F | 0x7F | 0xE7) => prefix == 1,
        (LOAD, 0x2A) => true,
        _ => false,
    };
    let is_memory = operands >> 6 != 3;
    if is_aligned && is_memory { width.min(64) } else { 1 }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_need_alignment_are_found() {
        // The bytes are as an assembler writes them.
        let cases: [(&[u8], usize); 14] = [
            (&[], 16),
            // movaps xmm0, [rdi]
            (&[0x0F, 0x28, 0x07], 16),
            // vmovups ymm0, [rdi]
            (&[0xC5, 0xFC, 0x10, 0x07], 16),
            // vmovaps ymm0, [rdi]
            (&[0xC5, 0xFC, 0x28, 0x07], 32),
            // vmovaps [r8 + 64], ymm9
            (&[0xC4, 0x41, 0x7C, 0x29, 0x48, 0x40], 32),
            // vmovdqa ymm0, [rdi]
            (&[0xC5, 0xFD, 0x6F, 0x07], 32),
            // vmovdqu ymm0, [rdi]
            (&[0xC5, 0xFE, 0x6F, 0x07], 16),
            // vmovaps ymm0, ymm1
            (&[0xC5, 0xFC, 0x28, 0xC1], 16),
            // vmovaps zmm0, [rdi]
            (&[0x62, 0xF1, 0x7C, 0x48, 0x28, 0x07], 64),
            // vmovups zmm0, [rdi]
            (&[0x62, 0xF1, 0x7C, 0x48, 0x10, 0x07], 16),
            // vmovdqa64 [rdi], zmm0
            (&[0x62, 0xF1, 0xFD, 0x48, 0x7F, 0x07], 64),
            // vmovdqu64 [rdi], zmm0
            (&[0x62, 0xF1, 0xFE, 0x48, 0x7F, 0x07], 16),
            // vmovntdq [rdi], zmm0
            (&[0x62, 0xF1, 0x7D, 0x48, 0xE7, 0x07], 64),
            // vmovntdqa ymm0, [rdi]
            (&[0xC4, 0xE2, 0x7D, 0x2A, 0x07], 32),
        ];
        for (code, expected) in cases {
            assert_eq!(alignment(code), expected, "{code:02x?}");
            // The result holds at any offset.
            let shifted = [&[0x90, 0x62, 0xC5], code].concat();
            assert!(alignment(&shifted) >= expected, "{code:02x?}");
        }
    }

    #[test]
    fn code_that_is_cut_off_is_no_problem() {
        for code in [&[0x62_u8][..], &[0xC4], &[0xC5, 0xFC], &[0x62, 0xF1, 0x7C, 0x48, 0x28]] {
            assert_eq!(alignment(code), 16);
        }
    }
}
