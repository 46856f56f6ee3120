//! The source within a binary in SPIR-V.

/// Words before the first instruction, and the place of the number of identifiers among them.
const HEADER: usize = 5;
const BOUND: usize = 3;
/// Bytes of the text of one instruction.
const PIECE: usize = 4 * 60_000;

/// Adds a source to a binary, as the instructions `OpString`, `OpSource` and `OpSourceContinued`.
pub(crate) fn with_source(mut code: Vec<u32>, source: &str) -> Vec<u32> {
    let Some(file) = code.get(BOUND).copied() else { return code };
    let mut at = HEADER;
    // Capabilities, extensions, imports, the memory model, entry points and execution modes come before.
    while let Some(word) = code.get(at).copied()
        && matches!(word & 0xFFFF, 10 | 11 | 14..=17 | 331)
        && word >> 16 > 0
    {
        at += (word >> 16) as usize;
    }
    let mut added = instruction(7, &[file], b"kernel.wgsl");
    let mut pieces = source.as_bytes().chunks(PIECE);
    // The language is not among those of SPIR-V 1.3.
    added.extend(instruction(3, &[0, 0, file], pieces.next().unwrap_or_default()));
    pieces.for_each(|piece| added.extend(instruction(2, &[], piece)));
    code[BOUND] = file + 1;
    let at = at.min(code.len());
    code.splice(at..at, added);
    code
}

/// Returns an instruction with operands and a string.
fn instruction(op: u32, operands: &[u32], text: &[u8]) -> Vec<u32> {
    let mut bytes = text.to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let words = bytes.chunks_exact(4).filter_map(<[u8]>::first_chunk).map(|word| u32::from_le_bytes(*word));
    let mut all = vec![0];
    all.extend(operands);
    all.extend(words);
    all[0] = (all.len() as u32) << 16 | op;
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_any_length_is_added_before_the_types() {
        let code = vec![0x0723_0203, 0x0001_0300, 0, 7, 0, 2 << 16 | 17, 1, 2 << 16 | 19, 3];
        for length in [0, 1, 3, 4, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let source = "x".repeat(length);
            let made = with_source(code.clone(), &source);
            assert_eq!((made[BOUND], &made[5..7]), (8, &code[5..7]));
            assert_eq!(made[made.len() - 2..], code[7..]);
            let (mut at, mut text) = (HEADER, Vec::new());
            while at < made.len() {
                let (words, op) = ((made[at] >> 16) as usize, made[at] & 0xFFFF);
                let part = match op {
                    3 => &made[at + 4..at + words],
                    2 => &made[at + 1..at + words],
                    _ => &[],
                };
                text.extend(part.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0));
                at += words;
            }
            assert_eq!(text.len(), length);
        }
    }
}
