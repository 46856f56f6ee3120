//! What can be known of a shared library before any of its code runs.
//!
//! A file that is not what it seems (text, a program, cut off, for another machine, for another version of the ABI) is
//! refused with its reason here, since the dynamic loader's answer is vague or, for a truncated file, a bus error. This
//! guards against mistakes, not against who may write the file's directory.

use std::borrow::ToOwned;
use std::fs::File;
use std::io::Read;
use std::string::String;
use std::vec::Vec;

use anyfn::abi::{ABI_VERSION, TVMFFIVersion};
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian as LE, ReadCache};
use std::format;

/// What the loader needs to know of a library file.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Symbols that the library must get from elsewhere.
    pub(super) undefined: Vec<String>,
    /// Libraries that it names as needed.
    pub(super) needed: Vec<String>,
    /// Size of the import tree, if it has one.
    pub(super) import_tree_size: Option<u64>,
    /// Names of the code symbols of the library convention that it defines.
    pub(super) functions: Vec<String>,
}

/// Machine of this build, as ELF files name it.
pub(super) const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    elf::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else if cfg!(target_arch = "riscv64") {
    elf::EM_RISCV
} else {
    elf::EM_NONE
};

/// Version of this implementation, which a library's note may ask for.
const CORE: [u32; 3] = [
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
];

const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Reads the file; the reason if it cannot be loaded.
pub(super) fn check(mut file: File) -> Result<Facts, String> {
    let unreadable = |e: std::io::Error| format!("the file cannot be read: {e}");
    let len = file.metadata().map_err(unreadable)?.len();
    let mut head = Vec::new();
    (&mut file).take(64).read_to_end(&mut head).map_err(unreadable)?;
    check_head(&head, len)?;
    let data = ReadCache::new(file);
    let header = FileHeader64::<LE>::parse(&data).map_err(broken)?;
    check_bounds(header, &data, len)?;
    let segments = header.program_headers(LE, &data).map_err(broken)?;
    check_notes(segments, &data)?;
    facts(header, segments, &data)
}

fn broken(error: object::Error) -> String {
    format!("the file is damaged: {error}")
}

/// The first 64 bytes: is it a shared library for this machine?
fn check_head(head: &[u8], len: u64) -> Result<(), String> {
    if head.is_empty() {
        return Err("the file is empty".to_owned());
    }
    if !head.starts_with(&elf::ELFMAG) {
        let is_text = head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 128..));
        let what = if is_text { "a text file" } else { "a file of another format" };
        let begin = head[..head.len().min(16)].escape_ascii();
        return Err(format!("it is no ELF shared library but {what} (it begins with \"{begin}\")"));
    }
    if head.len() < 64 {
        return Err(format!("the file is cut off: {len} bytes are too few for an ELF file"));
    }
    if head[4] != elf::ELFCLASS64 || head[5] != elf::ELFDATA2LSB {
        return Err("it is a library for a 32-bit or big-endian machine, this process is 64-bit little-endian"
            .to_owned());
    }
    let field = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let machine = field(18);
    if machine != MACHINE {
        return Err(format!(
            "it is a library for {}, this process runs on {}",
            machine_name(machine),
            machine_name(MACHINE)
        ));
    }
    match field(16) {
        elf::ET_DYN => Ok(()),
        elf::ET_REL => Err("it is an object file; link it with -shared".to_owned()),
        elf::ET_EXEC => Err("it is a program, not a shared library".to_owned()),
        elf::ET_CORE => Err("it is a core dump, not a shared library".to_owned()),
        other => Err(format!("it is an ELF file of type {other}, not a shared library")),
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        elf::EM_X86_64 => "x86-64".to_owned(),
        elf::EM_AARCH64 => "AArch64".to_owned(),
        elf::EM_RISCV => "RISC-V".to_owned(),
        elf::EM_386 => "x86".to_owned(),
        elf::EM_ARM => "ARM".to_owned(),
        elf::EM_HEXAGON => "Hexagon".to_owned(),
        other => format!("machine number {other}"),
    }
}

/// Everything that the headers name must lie in the file.
fn check_bounds(header: &FileHeader64<LE>, data: &ReadCache<File>, len: u64) -> Result<(), String> {
    let cut_off = |what: &str, end: Option<u64>| match end {
        Some(end) if end <= len => Ok(()),
        Some(end) => Err(format!("the file is cut off: its {what} end at byte {end}, but it has {len} bytes")),
        None => Err(format!("the file is damaged: the size of its {what} overflows")),
    };
    let table = |at: u64, count: u16, size: u16| at.checked_add(u64::from(count) * u64::from(size));
    let phnum = header.e_phnum.get(LE);
    cut_off("program headers", table(header.e_phoff.get(LE), phnum, header.e_phentsize.get(LE)))?;
    if header.e_shoff.get(LE) != 0 {
        cut_off(
            "section headers",
            table(header.e_shoff.get(LE), header.e_shnum.get(LE), header.e_shentsize.get(LE)),
        )?;
    }
    for segment in header.program_headers(LE, data).map_err(broken)? {
        if segment.p_type(LE) == elf::PT_LOAD {
            cut_off("segments", segment.p_offset(LE).checked_add(segment.p_filesz(LE)))?;
        }
    }
    if header.e_shoff.get(LE) != 0 {
        for section in header.section_headers(LE, data).map_err(broken)? {
            if !matches!(section.sh_type(LE), elf::SHT_NOBITS | elf::SHT_NULL) {
                cut_off("sections", section.sh_offset(LE).checked_add(section.sh_size(LE)))?;
            }
        }
    }
    Ok(())
}

/// The note that `export!` puts into a Rust plugin. Libraries of other makers have none.
fn check_notes(segments: &[ProgramHeader64<LE>], data: &ReadCache<File>) -> Result<(), String> {
    for segment in segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_NOTE) {
        let bytes = segment.data(LE, data).map_err(|()| "the file is cut off within a note".to_owned())?;
        our_notes(bytes).try_for_each(check_note)?;
    }
    Ok(())
}

/// Contents of our notes in a segment.
///
/// Read by hand, at the four-byte steps that ours have: tools such as sanitizers align the segment otherwise and put
/// zeros between notes, and other owners' notes are none of our business.
fn our_notes(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let (head, rest) = bytes.split_at_checked(12)?;
            let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (name_size, desc_size) = (word(0) as usize, word(4) as usize);
            let (name, rest) = rest.split_at_checked(name_size.next_multiple_of(4))?;
            let (desc, rest) = rest.split_at_checked(desc_size.next_multiple_of(4))?;
            bytes = rest;
            if name.get(..name_size) == Some(b"anyfn\0") && word(8) == 1 {
                return desc.get(..desc_size);
            }
        }
    })
}

fn check_note(desc: &[u8]) -> Result<(), String> {
    let words: Vec<u32> =
        desc.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).take(6).collect();
    let Ok([major, minor, patch, core @ ..]) = <[u32; 6]>::try_from(words) else {
        return Err("the file is damaged: its anyfn note is too short".to_owned());
    };
    let TVMFFIVersion { major: our_major, minor: our_minor, .. } = ABI_VERSION;
    if major != our_major || minor > our_minor {
        return Err(format!(
            "it was built for version {major}.{minor}.{patch} of the ABI, this runtime has {our_major}.{our_minor}.{}; \
             rebuild it with the `anyfn` crate of this runtime, or install a runtime that has ABI {major}.{minor}",
            ABI_VERSION.patch
        ));
    }
    if core > CORE {
        let dotted = |v: [u32; 3]| format!("{}.{}.{}", v[0], v[1], v[2]);
        return Err(format!(
            "it needs version {} of the anyfn runtime or a later one, this is {}; install a newer runtime",
            dotted(core),
            dotted(CORE)
        ));
    }
    Ok(())
}

fn facts(
    header: &FileHeader64<LE>,
    segments: &[ProgramHeader64<LE>],
    data: &ReadCache<File>,
) -> Result<Facts, String> {
    let mut facts = Facts::default();
    if header.e_shoff.get(LE) == 0 {
        // Without section headers the symbols are not looked at; the dynamic loader reports what is missing.
        return Ok(facts);
    }
    let sections = header.sections(LE, data).map_err(broken)?;
    let symbols = sections.symbols(LE, data, elf::SHT_DYNSYM).map_err(broken)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for symbol in symbols.iter().skip(1) {
        let name = symbol.name(LE, symbols.strings()).map_err(broken)?;
        if symbol.is_undefined(LE) {
            if symbol.st_bind() == elf::STB_GLOBAL {
                facts.undefined.push(text(name));
            }
        } else if name == super::library::IMPORT_TREE.to_bytes() {
            facts.import_tree_size = Some(symbol.st_size(LE));
        } else if name.starts_with(super::library::FUNCTION.as_bytes()) && symbol.st_type() != elf::STT_OBJECT {
            facts.functions.push(text(name));
        }
    }
    for segment in segments {
        for entry in segment.dynamic(LE, data).map_err(broken)?.unwrap_or_default() {
            if entry.tag32(LE) == Some(elf::DT_NEEDED) {
                let name = u32::try_from(entry.d_val(LE)).ok().and_then(|at| symbols.strings().get(at).ok());
                facts.needed.push(text(name.ok_or("the file is damaged: a needed library has no name")?));
            }
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_versions_of_the_note() {
        let note = |words: [u32; 6]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let abi = [ABI_VERSION.major, ABI_VERSION.minor, 0];
        assert_eq!(check_note(&note([abi[0], abi[1], 99, 0, 0, 1])), Ok(()));
        assert!(
            check_note(&note([abi[0] + 1, 0, 0, 0, 0, 0])).unwrap_err().contains("version 1.0.0 of the ABI")
        );
        assert!(check_note(&note([abi[0], abi[1] + 1, 0, 0, 0, 0])).unwrap_err().contains("install a runtime"));
        assert!(check_note(&note([abi[0], abi[1], 0, 99, 1, 2])).unwrap_err().contains("needs version 99.1.2"));
        assert!(check_note(&[1, 2, 3]).unwrap_err().contains("too short"));
    }

    #[test]
    fn finds_our_notes_between_others() {
        let note = |name: &[u8], desc: &[u8]| {
            let mut bytes = Vec::new();
            for size in [name.len() as u32, desc.len() as u32, 1] {
                bytes.extend(size.to_le_bytes());
            }
            for part in [name, desc] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let all =
            [note(b"GNU\0", &[7; 20]), note(b"anyfn\0", &[1; 24]), std::vec![0; 36], note(b"anyfn\0", &[2; 3])]
                .concat();
        assert_eq!(our_notes(&all).collect::<Vec<_>>(), [&[1; 24][..], &[2; 3]]);
        for len in 0..all.len() {
            assert!(our_notes(&all[..len]).count() <= 2);
        }
        let endless = [0xff; 12];
        assert_eq!(our_notes(&endless).count(), 0);
    }

    #[test]
    fn tells_what_a_file_is() {
        assert_eq!(check_head(b"", 0).unwrap_err(), "the file is empty");
        assert!(check_head(b"hello\n", 6).unwrap_err().contains("a text file (it begins with \"hello\\n\")"));
        assert!(check_head(b"MZ\0\x01", 4).unwrap_err().contains("another format"));
        assert!(check_head(b"\x7fELF\x02\x01", 6).unwrap_err().contains("cut off: 6 bytes"));
        let mut head = [0u8; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[16] = 3;
        head[18] = 243;
        if MACHINE != elf::EM_RISCV {
            assert!(check_head(&head, 64).unwrap_err().contains("for RISC-V"));
        }
        head[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        assert_eq!(check_head(&head, 64), Ok(()));
        head[16] = 1;
        assert!(check_head(&head, 64).unwrap_err().contains("-shared"));
    }
}
