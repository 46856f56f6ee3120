//! Checks of machine code. The driver receives the address of the code alone and reads its length from the code itself, so code that was cut
//! off would make it read past the end.

/// Size of the header of an ELF file with addresses of 64 bits.
const ELF_HEADER: usize = 64;
/// Number at the beginning of a fatbin.
const FATBIN: u64 = 0xBA55_ED50;

/// Returns `N` bytes at an offset as a number.
fn number<const N: usize>(code: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = code.get(at..at.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Checks that an ELF file contains its tables and its sections.
///
/// # Errors
/// Returns the reason why not.
pub(super) fn check_cubin(code: &[u8]) -> Result<(), &'static str> {
    if !code.starts_with(b"\x7fELF") {
        return Err("it does not begin as an ELF file does");
    }
    // Class and order of bytes.
    if code.get(4..6).is_some_and(|bytes| bytes != [2, 1]) {
        return Err("it is not an ELF file of 64 bits and little-endian numbers");
    }
    has_sections(code).filter(|is_whole| *is_whole).map(|_| ()).ok_or("it is incomplete")
}

/// Returns true if all sections are in a file, `None` if the tables are not.
fn has_sections(code: &[u8]) -> Option<bool> {
    code.get(..ELF_HEADER)?;
    let is_within =
        |start: u64, bytes: u64| start.checked_add(bytes).is_some_and(|end| end <= code.len() as u64);
    for (table, bytes, count) in [(32, 54, 56), (40, 58, 60)] {
        let (start, each, count) =
            (number::<8>(code, table)?, number::<2>(code, bytes)?, number::<2>(code, count)?);
        if !is_within(start, each * count) {
            return Some(false);
        }
    }
    let (start, each) = (number::<8>(code, 40)?, number::<2>(code, 58)?);
    for index in 0..number::<2>(code, 60)? {
        let section = start + each * index;
        // Sections of other kinds may have no bytes in the file: 1 to 3 are code and data, symbols, and strings.
        if matches!(number::<4>(code, section + 4)?, 1..=3)
            && !is_within(number::<8>(code, section + 24)?, number::<8>(code, section + 32)?)
        {
            return Some(false);
        }
    }
    Some(true)
}

/// Checks that a fatbin has the size that its header says.
///
/// # Errors
/// Returns the reason why not.
pub(super) fn check_fatbin(code: &[u8]) -> Result<(), &'static str> {
    if number::<4>(code, 0) != Some(FATBIN) {
        return Err("it does not begin as a fatbin does");
    }
    let size = || number::<2>(code, 6)?.checked_add(number::<8>(code, 8)?);
    if size().is_some_and(|size| size <= code.len() as u64) { Ok(()) } else { Err("it is incomplete") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a cubin with one section of 8 bytes.
    pub(in crate::module) fn cubin() -> Vec<u8> {
        let mut code = vec![0; ELF_HEADER];
        code[..6].copy_from_slice(b"\x7fELF\x02\x01");
        code[40] = 72;
        (code[58], code[60]) = (64, 1);
        code.extend([7; 8]);
        let mut section = vec![0; 64];
        (section[4], section[24], section[32]) = (1, 64, 8);
        code.extend(section);
        code
    }

    #[test]
    fn code_that_was_cut_off_is_refused() {
        let whole = cubin();
        assert_eq!(check_cubin(&whole), Ok(()));
        for end in 4..whole.len() {
            assert!(check_cubin(&whole[..end]).is_err(), "{end}");
        }
        let with = |at: usize, value: u8| {
            let mut code = cubin();
            code[at] = value;
            check_cubin(&code)
        };
        assert_eq!(with(4, 1), Err("it is not an ELF file of 64 bits and little-endian numbers"));
        // The offset and the size of the section, and the number of sections.
        for (at, value) in [(72 + 24, 255), (72 + 31, 255), (72 + 39, 255), (60, 2), (47, 255)] {
            assert_eq!(with(at, value), Err("it is incomplete"), "{at}");
        }
        // A section without bytes in the file, such as that of shared memory.
        let mut code = cubin();
        (code[72 + 4], code[72 + 39]) = (8, 255);
        assert_eq!(check_cubin(&code), Ok(()));

        let mut fatbin = vec![0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        fatbin.extend([0; 8]);
        assert_eq!(check_fatbin(&fatbin), Ok(()));
        for end in 0..fatbin.len() {
            assert!(check_fatbin(&fatbin[..end]).is_err(), "{end}");
        }
        fatbin[15] = 255;
        assert_eq!(check_fatbin(&fatbin), Err("it is incomplete"));
    }
}
