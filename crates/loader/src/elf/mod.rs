//! Reading and checking of shared library files before any of their code runs.
//!
//! A file that cannot be loaded is refused here with the reason. It may be a text file or a program, truncated, or
//! built for another machine or another version of the ABI. The dynamic loader would give a vague message or, for a
//! truncated file, a bus error. The checks guard against mistakes, not against attackers who can write to the directory
//! of the file.

mod data;
mod dynamic;
mod image;
mod relocations;
mod symbols;

use std::fs::File;
use std::io::Read;

use anyfn::abi::{ABI_VERSION, TVMFFIVersion};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

pub(crate) use symbols::Symbol;

use crate::message::{CHECKS, broken, refused, short};

use data::{Data, Parts};
use dynamic::Dynamic;
use image::Image;

use symbols::Symbols;

/// Properties of a library, as read from its file.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Size of the file in bytes.
    pub(crate) size: u64,
    /// Name by which other libraries refer to this one (`DT_SONAME`).
    pub(crate) soname: Option<String>,
    /// Names of the libraries that this one needs (`DT_NEEDED`).
    pub(crate) needed: Vec<String>,
    /// Directories in which the dynamic loader also searches for the needed libraries (`DT_RUNPATH` or `DT_RPATH`).
    pub(crate) search_path: Option<String>,
    /// Symbols that the library needs and does not define itself.
    pub(crate) undefined: Vec<Symbol>,
    /// Symbols that the library defines.
    pub(crate) defined: Vec<Symbol>,
    /// Version of the ABI and version of the runtime for which the library was built, three numbers each. `None` if the
    /// library is not a Rust plugin.
    pub(crate) built_for: Option<[u32; 6]>,
    /// Build ID, which the linker has computed from the content of the library; `None` if the library has no
    /// build ID.
    pub(crate) build_id: Option<Vec<u8>>,
    /// Alignment in bytes that the library's code requires of tensor data. `None` if the compiler
    /// of Apache TVM has not generated the code.
    pub(crate) compiled: Option<usize>,
    /// True if the library follows the library convention of TVM 0.8.
    pub(crate) classic: bool,
    /// Serialised modules that the library contains, if there are any.
    pub(crate) import_tree: Option<Blob>,
    pub(crate) has_thread_locals: bool,
    pub(crate) executable_stack: bool,
    pub(crate) static_tls: bool,
    pub(crate) bound_at_once: bool,
    /// True if the library was linked so that it is never unmapped (`-z nodelete`).
    pub(crate) is_kept: bool,
    /// Range of the library's addresses, from the first to one past the last, relative to the address at which it is
    /// mapped.
    pub(crate) span: core::ops::Range<u64>,
}

/// A data constant of a library: its size in bytes according to the symbol table, and its content. The
/// content is `None` if it was not requested or is not in the file.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) size: u64,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Facts {
    /// Returns the size of the import tree in bytes, if there is one.
    pub(crate) fn import_tree_size(&self) -> Option<u64> {
        self.import_tree.as_ref().map(|blob| blob.size)
    }

    /// Returns the symbols of the library's exported functions: those defined symbols that refer to
    /// code and begin with the prefix [`FUNCTION`](crate::names::FUNCTION).
    pub(crate) fn functions(&self) -> impl Iterator<Item = &str> {
        let is_function = |symbol: &&Symbol| symbol.is_code && symbol.name.starts_with(crate::names::FUNCTION);
        self.defined.iter().filter(is_function).map(|symbol| symbol.name.as_str())
    }

    /// Returns the names of the defined symbols that refer to code.
    pub(crate) fn code(&self) -> impl Iterator<Item = &str> {
        self.defined.iter().filter(|symbol| symbol.is_code).map(|symbol| symbol.name.as_str())
    }

    /// Returns the names of the symbols that must be defined elsewhere. Weak symbols, which may be missing, are left
    /// out.
    pub(crate) fn undefined_names(&self) -> Vec<&str> {
        self.undefined.iter().filter(|symbol| !symbol.is_weak).map(|symbol| symbol.name.as_str()).collect()
    }
}

fn names_of(symbols: &[Symbol]) -> impl Iterator<Item = &str> + Clone {
    symbols.iter().map(|symbol| symbol.name.as_str())
}

/// Number with which ELF files identify the processor architecture of this build.
pub(crate) const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    elf::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else if cfg!(target_arch = "riscv64") {
    elf::EM_RISCV
} else {
    elf::EM_NONE
};

/// Version of this runtime. A library may require a minimum version.
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

/// Reads and checks a library file. Returns the reason as an error if the library cannot be loaded.
///
/// `len` is the size of the file in bytes.
pub(crate) fn check(file: File, len: u64) -> Result<Facts, String> {
    let facts = read_file(file, len, false)?;
    facts.built_for.map_or(Ok(()), check_version)?;
    Ok(facts)
}

/// Reads and checks a library file in order to describe it. Unlike [`check`], this function accepts
/// a library that was built for another version of the runtime, and reads the content of the import
/// tree. `len` is the size of the file in bytes.
pub(crate) fn inspect(file: File, len: u64) -> Result<Facts, String> {
    read_file(file, len, true)
}

/// Reads a library file of `len` bytes and checks its structure. Does not check the versions of the ABI and of the
/// runtime for which the library was built. If `with_content` is true, the content of the import
/// tree is read as well.
pub(crate) fn read_file(file: File, len: u64, with_content: bool) -> Result<Facts, String> {
    /// Maximum size in bytes of a file that is read as a whole. For a small file, this is faster than reading parts of
    /// it.
    const SMALL: u64 = 1 << 16;
    // If the file grows meanwhile, no more than `len` bytes are read.
    let begin = |size: u64| {
        let mut bytes = vec![0; size as usize];
        let size = read_up_to(&file, &mut bytes).map_err(|e| refused!("the file cannot be read: {e}"))?;
        bytes.truncate(size);
        Ok::<_, String>(bytes)
    };
    if len <= SMALL {
        let all = begin(len)?;
        return read(&all[..all.len().min(64)], Data::All(&all), all.len() as u64, with_content);
    }
    let head = begin(64)?;
    read(&head, Data::AsNeeded(&Parts::new(file, len)), len, with_content)
}

/// Reads the file from its beginning until `bytes` is full or the file ends. Returns the number of bytes that were
/// read.
fn read_up_to(mut file: &File, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut size = 0;
    while size < bytes.len() {
        match file.read(&mut bytes[size..]) {
            Ok(0) => break,
            Ok(more) => size += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(size)
}

/// Reads and checks the library in `data`, which has a size of `len` bytes. `head` must contain the
/// first 64 bytes of `data`, or all bytes if there are fewer.
fn read<'d>(head: &[u8], data: Data<'d>, len: u64, with_content: bool) -> Result<Facts, String> {
    check_head(head, len)?;
    let header = FileHeader64::<LE>::parse(data).map_err(broken)?;
    if CHECKS {
        check_bounds(header, data, len)?;
    }
    let segments = header.program_headers(LE, data).map_err(broken)?;
    let image = Image::new(header, data, len)?;
    let dynamic = Dynamic::read(&image)?;
    let symbols = Symbols::read(&image, &dynamic)?;
    if CHECKS {
        relocations::check(&image, &dynamic, &symbols)?;
        check_slots(&image, segments, &symbols)?;
    }
    let (built_for, build_id) = notes(segments, data)?;
    let classic = crate::classic::follows(names_of(&symbols.defined), names_of(&symbols.undefined));
    let tree = if classic { crate::names::CLASSIC_IMPORT_TREE } else { crate::names::IMPORT_TREE }.to_bytes();
    let tree = symbols.defined.iter().find(|symbol| symbol.name.as_bytes() == tree);
    let import_tree = tree.map(|symbol| Blob {
        size: symbol.size,
        // Device code may be large, so it is read only on request.
        bytes: with_content
            .then(|| image.bytes(symbol.address, symbol.size, "import tree").ok().map(<[u8]>::to_vec))
            .flatten(),
    });
    let compiled = crate::compiled::requirement(
        |name| symbols.undefined.iter().any(|symbol| symbol.name == name),
        || image.contents(false),
        || image.contents(true),
    );
    Ok(Facts {
        size: len,
        compiled,
        classic,
        soname: dynamic.soname,
        needed: dynamic.needed,
        search_path: dynamic.search_path,
        undefined: symbols.undefined,
        defined: symbols.defined,
        built_for,
        build_id,
        import_tree,
        has_thread_locals: image.thread_local > 0,
        executable_stack: image.executable_stack,
        static_tls: dynamic.static_tls,
        bound_at_once: dynamic.bound_at_once,
        is_kept: dynamic.is_kept,
        span: image.span(),
    })
}

/// Checks the symbols of the variables into which the loader writes addresses. Each must denote a variable of
/// at least the size of an address, in memory that stays writable.
fn check_slots<'d>(
    image: &Image<'d>,
    segments: &[ProgramHeader64<LE>],
    symbols: &Symbols,
) -> Result<(), String> {
    const SIZE: u64 = size_of::<usize>() as u64;
    // Data that is relocated when the library is loaded, and read-only from then on.
    let is_sealed = |address: u64| {
        segments.iter().any(|segment| {
            segment.p_type(LE) == elf::PT_GNU_RELRO
                && address.wrapping_sub(segment.p_vaddr(LE)) < segment.p_memsz(LE)
        })
    };
    for symbol in symbols.defined.iter().filter(|symbol| crate::names::is_slot(&symbol.name)) {
        let is_variable = !symbol.is_code && symbol.size >= SIZE;
        if !is_variable || !image.is_writable(symbol.address, SIZE) || is_sealed(symbol.address) {
            let name = short(&symbol.name);
            return Err(format!(
                "its symbol {name} is not a writable variable, but the loader writes an address into it"
            ));
        }
    }
    Ok(())
}

/// Checks that a file is a shared library for this machine. `head` contains the first 64 bytes of
/// the file, or all bytes if there are fewer. `len` is the size of the file in bytes.
fn check_head(head: &[u8], len: u64) -> Result<(), String> {
    if head.is_empty() && CHECKS {
        return Err(refused!("the file is empty"));
    }
    if !head.starts_with(&elf::ELFMAG) && CHECKS {
        let is_text = head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 128..));
        let what = if is_text { "a text file" } else { "a file of another format" };
        let begin = head[..head.len().min(16)].escape_ascii();
        return Err(refused!("it is not an ELF shared library but {what} (it begins with \"{begin}\")"));
    }
    if head.len() < 64 {
        return Err(refused!("the file is truncated: {len} bytes are too few for an ELF file"));
    }
    if head[4] != elf::ELFCLASS64 || head[5] != elf::ELFDATA2LSB {
        return Err(refused!(
            "it is a library for a 32-bit or big-endian machine, this process is 64-bit little-endian"
        ));
    }
    if head[6] != elf::EV_CURRENT {
        return Err(refused!("it is an ELF file of the unknown version {}", head[6]));
    }
    let field = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if !CHECKS {
        let is_library = head.starts_with(&elf::ELFMAG) && field(18) == MACHINE && field(16) == elf::ET_DYN;
        return if is_library { Ok(()) } else { Err(refused!("")) };
    }
    let machine = field(18);
    if machine != MACHINE {
        return Err(refused!(
            "it is a library for {}, this process runs on {}",
            machine_name(machine),
            machine_name(MACHINE)
        ));
    }
    match field(16) {
        elf::ET_DYN => Ok(()),
        elf::ET_REL => Err(refused!("it is an object file; link it with -shared")),
        elf::ET_EXEC => Err(refused!("it is a program, not a shared library")),
        elf::ET_CORE => Err(refused!("it is a core dump, not a shared library")),
        other => Err(refused!("it is an ELF file of type {other}, not a shared library")),
    }
}

pub(crate) fn machine_name(machine: u16) -> String {
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

/// Checks that the segments, the sections and the tables of headers all end within the `len` bytes of the file.
fn check_bounds<'d>(header: &FileHeader64<LE>, data: Data<'d>, len: u64) -> Result<(), String> {
    let cut_off = |what: &str, end: Option<u64>| match end {
        Some(end) if end <= len => Ok(()),
        Some(end) => {
            Err(refused!("the file is truncated: its {what} end at byte {end}, but it has {len} bytes"))
        }
        None => Err(refused!("the file is damaged: the size of its {what} overflows")),
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

/// Contents of two notes: the versions for which a Rust plugin was built (from the note that `export!` adds),
/// and the build ID (from the note of the linker).
type Notes = (Option<[u32; 6]>, Option<Vec<u8>>);

fn notes<'d>(segments: &[ProgramHeader64<LE>], data: Data<'d>) -> Result<Notes, String> {
    let (mut built_for, mut build_id) = (None, None);
    for segment in segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_NOTE) {
        /// Maximum size of a segment of notes in bytes. Real segments have a few hundred bytes.
        const SIZE_MAX: u64 = 1 << 20;
        if segment.p_filesz(LE) > SIZE_MAX {
            return Err(refused!("the file is damaged: its notes are too long"));
        }
        let bytes = segment.data(LE, data).map_err(|()| refused!("the file is truncated within a note"))?;
        for desc in notes_of(bytes, b"anyfn\0", 1) {
            built_for = Some(version_words(desc)?);
        }
        build_id = notes_of(bytes, b"GNU\0", elf::NT_GNU_BUILD_ID).next().map(<[u8]>::to_vec).or(build_id);
    }
    Ok((built_for, build_id))
}

/// Returns the contents of all notes with the owner `owner` and the type `number` in the segment
/// `bytes`.
///
/// The notes are parsed here and not by a library, because tools such as sanitizers align the segment differently and
/// put zeros between notes. The parser advances in steps of four bytes and skips the notes of other owners.
fn notes_of<'a>(mut bytes: &'a [u8], owner: &'static [u8], number: u32) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || {
        loop {
            let (head, rest) = bytes.split_at_checked(12)?;
            let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (name_size, desc_size) = (word(0) as usize, word(4) as usize);
            let (name, rest) = rest.split_at_checked(name_size.next_multiple_of(4))?;
            let (desc, rest) = rest.split_at_checked(desc_size.next_multiple_of(4))?;
            bytes = rest;
            if name.get(..name_size) == Some(owner) && word(8) == number {
                return desc.get(..desc_size);
            }
        }
    })
}

/// Returns the version of the ABI and the version of the runtime in a plugin's note, three numbers each.
fn version_words(desc: &[u8]) -> Result<[u32; 6], String> {
    let words = desc.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).take(6);
    <[u32; 6]>::try_from(words.collect::<Vec<_>>())
        .map_err(|_| refused!("the file is damaged: its anyfn note is too short"))
}

/// Returns an error if a plugin needs another version of the ABI, or a newer runtime. The six
/// numbers come from the plugin's note: three for the version of the ABI, then three for the
/// version of the runtime.
pub(crate) fn check_version([major, minor, patch, core @ ..]: [u32; 6]) -> Result<(), String> {
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
            "it requires version {} of the anyfn runtime or a later one, but this is {}; install a newer \
             runtime",
            dotted(core),
            dotted(CORE)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyfn_random::Random;

    use super::*;

    #[test]
    fn compares_versions_of_the_note() {
        let check_note = |desc: &[u8]| version_words(desc).and_then(check_version);
        let note = |words: [u32; 6]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let abi = [ABI_VERSION.major, ABI_VERSION.minor, 0];
        assert_eq!(check_note(&note([abi[0], abi[1], 99, 0, 0, 1])), Ok(()));
        assert!(
            check_note(&note([abi[0] + 1, 0, 0, 0, 0, 0])).unwrap_err().contains("version 1.0.0 of the ABI")
        );
        assert!(check_note(&note([abi[0], abi[1] + 1, 0, 0, 0, 0])).unwrap_err().contains("install a runtime"));
        assert!(
            check_note(&note([abi[0], abi[1], 0, 99, 1, 2])).unwrap_err().contains("requires version 99.1.2")
        );
        assert_eq!(check_note(&[1u8, 2, 3]).unwrap_err().contains("too short"), CHECKS);
    }

    #[test]
    fn finds_our_notes_between_others() {
        fn ours(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
            notes_of(bytes, b"anyfn\0", 1)
        }
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
            [note(b"GNU\0", &[7; 20]), note(b"anyfn\0", &[1; 24]), vec![0; 36], note(b"anyfn\0", &[2; 3])]
                .concat();
        assert_eq!(ours(&all).collect::<Vec<_>>(), [&[1; 24][..], &[2; 3]]);
        for len in 0..all.len() {
            assert!(ours(&all[..len]).count() <= 2);
        }
        let endless = [0xff; 12];
        assert_eq!(ours(&endless).count(), 0);
    }

    #[test]
    #[cfg(feature = "checks")]
    fn tells_what_a_file_is() {
        assert_eq!(check_head(b"", 0).unwrap_err(), "the file is empty");
        assert!(check_head(b"hello\n", 6).unwrap_err().contains("a text file (it begins with \"hello\\n\")"));
        assert!(check_head(b"MZ\0\x01", 4).unwrap_err().contains("another format"));
        assert!(check_head(b"\x7fELF\x02\x01", 6).unwrap_err().contains("truncated: 6 bytes"));
        let mut head = [0u8; 64];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
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

    /// Tests that every library that the dynamic loader accepts passes the checks of this module.
    /// The test reads the libraries that are installed on this machine or, if `ANYFN_ELF_DIR`
    /// contains a path, the libraries below that directory.
    #[test]
    fn accepts_the_libraries_of_this_machine() {
        fn visit(folder: &std::path::Path, left: &mut usize, refused: &mut Vec<String>) {
            let Ok(entries) = std::fs::read_dir(folder) else { return };
            for entry in entries.flatten() {
                let path = entry.path();
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    visit(&path, left, refused);
                } else if kind.is_file() && *left > 0 {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    if !name.ends_with(".so") && !name.contains(".so.") {
                        continue;
                    }
                    let Ok(mut file) = File::open(&path) else { continue };
                    let mut head = [0; 20];
                    let is_ours = file.read_exact(&mut head).is_ok()
                        && head.starts_with(&elf::ELFMAG)
                        && head[18..] == MACHINE.to_le_bytes();
                    if !is_ours {
                        continue;
                    }
                    *left -= 1;
                    let len = file.metadata().map_or(0, |metadata| metadata.len());
                    let again = File::open(&path).map_err(|e| format!("{e}"));
                    if let Err(reason) = again.and_then(|file| check(file, len)) {
                        refused.push(format!("{}: {reason}", path.display()));
                    }
                }
            }
        }
        let (folder, mut left) = match std::env::var_os("ANYFN_ELF_DIR") {
            Some(folder) => (folder, usize::MAX),
            None => ("/usr/lib".into(), 200),
        };
        let mut refused = Vec::new();
        let before = left;
        visit(folder.as_ref(), &mut left, &mut refused);
        assert!(refused.is_empty(), "refused {} of {}:\n{}", refused.len(), before - left, refused.join("\n"));
    }

    /// Tests that reading damaged files of all kinds ends without a panic and in bounded time.
    /// `ANYFN_FUZZ_SECONDS` extends the test.
    #[test]
    fn reads_anything_without_a_panic() {
        let own = std::env::current_exe().unwrap();
        let mut seeds: Vec<Vec<u8>> = vec![crate::dl::scope::tests::sample()];
        let beside = own.parent().into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).flatten();
        let libraries =
            beside.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "so"));
        // Small libraries, of which many rounds fit into a second.
        let small = |path: &std::path::PathBuf| path.metadata().is_ok_and(|file| file.len() < 1 << 20);
        seeds.extend(libraries.filter(small).flat_map(std::fs::read).take(4));
        for name in
            ["/lib/x86_64-linux-gnu/libdl.so.2", "/lib/x86_64-linux-gnu/libutil.so.1", "/lib64/libdl.so.2"]
        {
            seeds.extend(std::fs::read(name));
        }
        let mut random = Random::from_env();
        let mut next = || random.number() as usize;
        let (mut rounds, mut refused) = (0u64, 0u64);
        // The first thousand rounds run however long they take.
        for _ in anyfn_random::rounds(1000, 1) {
            let mut content = seeds[next() % seeds.len()].clone();
            for _ in 0..1 + next() % 8 {
                // Changes mostly affect the first pages, where the tables are.
                let reach = if next() % 4 == 0 { content.len() } else { content.len().min(0x1000) };
                let at = next() % reach;
                match next() % 5 {
                    0 => content[at] = next() as u8,
                    1 => content[at] ^= 1 << (next() % 8),
                    2 if at + 8 <= content.len() => {
                        let words =
                            [0, 1, u64::MAX, i64::MAX as u64, 1 << 32, 0xffff_fff8, content.len() as u64];
                        content[at..at + 8].copy_from_slice(&words[next() % 7].to_le_bytes());
                    }
                    3 if at + 16 <= content.len() => {
                        let from = next() % (content.len() - 8);
                        let word: [u8; 8] = content[from..from + 8].try_into().unwrap();
                        content[at..at + 8].copy_from_slice(&word);
                    }
                    _ => content.truncate(content.len().saturating_sub(next() % 64).max(1)),
                }
            }
            let head = &content[..content.len().min(64)];
            refused += u64::from(read(head, Data::All(&content), content.len() as u64, true).is_err());
            rounds += 1;
        }
        eprintln!("{rounds} files, {refused} refused");
        assert!(refused > 0);
    }
}
