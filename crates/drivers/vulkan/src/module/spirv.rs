//! Reading of SPIR-V: the instructions, and the source that a binary contains.

use anyfn::{Result, bail};

const MAGIC: u32 = 0x0723_0203;
/// The newest version that devices with Vulkan 1.2 accept.
const NEWEST: u32 = 0x0001_0500;
/// Words before the first instruction.
const HEADER: usize = 5;

/// An instruction: its number, and the words after the first.
#[derive(Clone, Copy)]
pub(super) struct Instruction<'a> {
    pub(super) op: u32,
    pub(super) operands: &'a [u32],
}

impl Instruction<'_> {
    /// Returns an operand; 0 if it is missing.
    pub(super) fn at(&self, index: usize) -> u32 {
        self.operands.get(index).copied().unwrap_or(0)
    }
}

/// Returns the instructions of a binary.
///
/// # Errors
/// Returns `ValueError` if the words are not SPIR-V.
pub(super) fn instructions(code: &[u32]) -> Result<Vec<Instruction<'_>>> {
    if code.first().is_some_and(|word| word.swap_bytes() == MAGIC) {
        bail!("ValueError", "expected SPIR-V with the lowest byte of a word first");
    }
    if code.len() < HEADER || code[0] != MAGIC {
        let first = code.first().copied().unwrap_or(0);
        bail!("ValueError", "expected SPIR-V, which begins with {MAGIC:#010x}, but got {first:#010x}");
    }
    if code[1] > NEWEST {
        bail!("ValueError", "expected SPIR-V of version 1.5 or earlier but got {}", version(code));
    }
    let (mut all, mut at) = (Vec::new(), HEADER);
    while at < code.len() {
        let (length, op) = ((code[at] >> 16) as usize, code[at] & 0xFFFF);
        let Some(words) = code.get(at..at + length).filter(|words| !words.is_empty()) else {
            bail!("ValueError", "the SPIR-V is damaged at word {at}");
        };
        all.push(Instruction { op, operands: &words[1..] });
        at += length;
    }
    Ok(all)
}

/// Returns the string at the beginning of operands, and the operands after it.
pub(super) fn string(operands: &[u32]) -> (String, &[u32]) {
    let bytes: Vec<u8> = operands.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let rest = operands.get(length / 4 + 1..).unwrap_or_default();
    (String::from_utf8_lossy(&bytes[..length]).into_owned(), rest)
}

/// Returns the source that a binary contains as text; `None` if it contains none.
pub(super) fn source(code: &[u32]) -> Option<String> {
    let mut text: Option<Vec<u8>> = None;
    for instruction in instructions(code).ok()? {
        let part = match instruction.op {
            // OpSource: language, version, file, text.
            3 if instruction.operands.len() > 3 => &instruction.operands[3..],
            // OpSourceContinued.
            2 if text.is_some() => instruction.operands,
            _ => continue,
        };
        let bytes = part.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0);
        text.get_or_insert_default().extend(bytes);
    }
    text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the version of SPIR-V of a binary as text.
pub(super) fn version(code: &[u32]) -> String {
    let word = code.get(1).copied().unwrap_or(0);
    format!("{}.{}", word >> 16 & 0xFF, word >> 8 & 0xFF)
}
