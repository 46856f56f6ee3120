//! Reads and writes the parts of the ELF format that bundles need, for 64-bit little-endian files of any machine. The records
//! and constants of the format are those of the crate `object`.

use object::elf::{self, FileHeader64, SectionHeader64, Sym64};
use object::pod::{self, Pod};
use object::{LittleEndian as LE, U16, U32, U64};

/// Object file type of a relocatable file.
pub(super) const RELOCATABLE: u16 = elf::ET_REL;
/// Object file type of a shared library.
pub(super) const SHARED: u16 = elf::ET_DYN;

/// Name of the symbol under which a library contains the serialised modules.
pub(super) const SYMBOL: &str = "__tvm_ffi__library_bin";

/// Format and machine of an ELF file, as its header identifies them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ident {
    ident: elf::Ident,
    machine: u16,
    flags: u32,
}

impl Ident {
    /// Format and machine of files for the machine that runs this code.
    pub(super) const HOST: Ident = Ident {
        ident: elf::Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        machine: if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 },
        flags: 0,
    };

    /// Reads the header of a file. Returns the format and machine, and the object file type (`e_type`).
    /// Returns `None` if the file is not an ELF file.
    pub(super) fn of(file: &[u8]) -> Option<(Ident, u16)> {
        /// An aligned copy of the ELF header. The header in `file` may be unaligned, because a
        /// member of an archive begins at any even offset.
        #[repr(align(8))]
        struct Head([u8; size_of::<FileHeader64<LE>>()]);

        let head = Head(*file.first_chunk()?);
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&head.0).ok()?;
        if header.e_ident.magic != elf::ELFMAG {
            return None;
        }
        let this =
            Ident { ident: header.e_ident, machine: header.e_machine.get(LE), flags: header.e_flags.get(LE) };
        Some((this, header.e_type.get(LE)))
    }

    /// Returns true if files of both kinds can be linked with each other.
    pub(super) fn is_like(&self, other: &Ident) -> bool {
        (self.ident.class, self.ident.data, self.machine)
            == (other.ident.class, other.ident.data, other.machine)
    }

    /// Returns an error unless this crate supports the format: 64 bits, little endian.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.ident.class, self.ident.data) {
            (elf::ELFCLASS64, elf::ELFDATA2LSB) => Ok(()),
            (elf::ELFCLASS32, _) => Err("it is for a 32-bit machine, which bundles do not support".to_owned()),
            (elf::ELFCLASS64, elf::ELFDATA2MSB) => {
                Err("it is for a big endian machine, which bundles do not support".to_owned())
            }
            _ => Err("its ELF header is damaged".to_owned()),
        }
    }
}

/// Prepares an object file for being linked with the runtime: its weak references to functions of the runtime become strong, so that
/// the linker takes them from the archive, and its variables for a loader become weak, so that several object files may define
/// them. Returns the names of the functions of the runtime to which the file refers.
pub(super) fn use_linked_runtime(file: &mut [u8]) -> Result<Vec<String>, String> {
    const DAMAGED: &str = "its symbol table cannot be read";
    if let Some((ident, _)) = Ident::of(file) {
        ident.check()?;
    }
    let header = &records::<FileHeader64<LE>>(file, 0, 1).ok_or(DAMAGED)?[0];
    let (at, mut count) = (index(header.e_shoff.get(LE)), usize::from(header.e_shnum.get(LE)));
    if count == 0 && at != 0 {
        // The number does not fit into the header of the file, so it is in that of the first section.
        let first = records::<SectionHeader64<LE>>(file, at, 1).ok_or(DAMAGED)?;
        count = index(first[0].sh_size.get(LE));
    }
    let sections = records::<SectionHeader64<LE>>(file, at, count).ok_or(DAMAGED)?;
    let Some(table) = sections.iter().find(|section| section.sh_type.get(LE) == elf::SHT_SYMTAB) else {
        return Ok(Vec::new());
    };
    let strings = sections.get(table.sh_link.get(LE) as usize).ok_or(DAMAGED)?;
    let strings = file.get(index(strings.sh_offset.get(LE))..).ok_or(DAMAGED)?;
    let start = index(table.sh_offset.get(LE));
    let symbols = records::<Sym64<LE>>(file, start, index(table.sh_size.get(LE)) / size_of::<Sym64<LE>>());
    let mut used = Vec::new();
    // Offsets of the `st_info` of symbols, with their new values.
    let mut changes = Vec::new();
    for (number, symbol) in symbols.ok_or(DAMAGED)?.iter().enumerate() {
        let name = strings.get(symbol.st_name.get(LE) as usize..).ok_or(DAMAGED)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let place = start + number * size_of::<Sym64<LE>>() + 4;
        let (kind, binding) = (symbol.st_info & 0xF, symbol.st_info >> 4);
        if symbol.st_shndx.get(LE) == elf::SHN_UNDEF && name.starts_with(b"TVMFFI") {
            used.push(String::from_utf8_lossy(name).into_owned());
            changes.push((place, (elf::STB_GLOBAL << 4) | kind));
        } else if binding == elf::STB_GLOBAL
            && (name.starts_with(b"__TVM") || name == b"__tvm_ffi__library_ctx")
        {
            changes.push((place, (elf::STB_WEAK << 4) | kind));
        }
    }
    for (place, info) in changes {
        file[place] = info;
    }
    Ok(used)
}

/// Returns `count` records at the offset `at` of a file. Returns `None` if the records are not
/// aligned or extend beyond the end of the file.
pub(super) fn records<T: Pod>(file: &[u8], at: usize, count: usize) -> Option<&[T]> {
    pod::slice_from_bytes(file.get(at..)?, count).ok().map(|(records, _)| records)
}

/// Converts an offset or a size in a file to `usize`. A number that does not fit becomes `usize::MAX`, which
/// is beyond the end of every file.
pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Overwrites the bytes at the offset `at` with `new`. Returns false and writes nothing if `new` does not
/// fit.
#[must_use]
pub(super) fn put(bytes: &mut [u8], at: usize, new: &[u8]) -> bool {
    let place = at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end));
    place.map(|place| place.copy_from_slice(new)).is_some()
}

/// Creates the symbol table entry of a global data object. Arguments: offset of its name in the
/// string table, index of its section, address, size in bytes.
pub(super) fn data_symbol(name: u32, section: u16, address: u64, size: u64) -> Sym64<LE> {
    Sym64 {
        st_name: U32::new(LE, name),
        st_info: (elf::STB_GLOBAL << 4) | elf::STT_OBJECT,
        st_other: elf::STV_DEFAULT,
        st_shndx: U16::new(LE, section),
        st_value: U64::new(LE, address),
        st_size: U64::new(LE, size),
    }
}

/// Creates the header of a section that is not mapped at run time and has no fixed-size entries.
/// Arguments: offset of its name in the section name table, type, offset in the file and size in
/// bytes, alignment.
pub(super) fn section(name: u32, kind: u32, (offset, size): (usize, usize), align: u64) -> SectionHeader64<LE> {
    SectionHeader64 {
        sh_name: U32::new(LE, name),
        sh_type: U32::new(LE, kind),
        sh_flags: U64::new(LE, 0),
        sh_addr: U64::new(LE, 0),
        sh_offset: U64::new(LE, offset as u64),
        sh_size: U64::new(LE, size as u64),
        sh_link: U32::new(LE, 0),
        sh_info: U32::new(LE, 0),
        sh_addralign: U64::new(LE, align),
        sh_entsize: U64::new(LE, 0),
    }
}

/// Returns an object file for the machine `ident`. The file defines a single symbol, [`SYMBOL`], with the
/// content `data`.
pub(super) fn object_file(ident: &Ident, data: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0";
    let name = |name: &str| {
        let at =
            NAMES.windows(name.len() + 1).position(|part| part.split_last() == Some((&0, name.as_bytes())));
        at.unwrap_or(0) as u32
    };
    let strings = [b"\0", SYMBOL.as_bytes(), b"\0"].concat();
    let symbols = [Sym64::default(), data_symbol(1, 1, 0, data.len() as u64)];
    let mut file = vec![0; size_of::<FileHeader64<LE>>()];
    let mut add = |content: &[u8], align: usize| {
        file.resize(file.len().next_multiple_of(align), 0);
        let offset = file.len();
        file.extend_from_slice(content);
        (offset, content.len())
    };
    let data_at = add(data, 16);
    let symbols_at = add(pod::bytes_of_slice(&symbols), 8);
    let strings_at = add(&strings, 1);
    let names_at = add(NAMES, 1);
    let sections = [
        section(0, elf::SHT_NULL, (0, 0), 0),
        SectionHeader64 {
            sh_flags: U64::new(LE, elf::SHF_ALLOC.into()),
            ..section(name(".rodata"), elf::SHT_PROGBITS, data_at, 16)
        },
        SectionHeader64 {
            // The section with the names, and the index of the first global symbol.
            sh_link: U32::new(LE, 3),
            sh_info: U32::new(LE, 1),
            sh_entsize: U64::new(LE, size_of::<Sym64<LE>>() as u64),
            ..section(name(".symtab"), elf::SHT_SYMTAB, symbols_at, 8)
        },
        section(name(".strtab"), elf::SHT_STRTAB, strings_at, 1),
        section(name(".shstrtab"), elf::SHT_STRTAB, names_at, 1),
        // Declares that the stack need not be executable.
        section(name(".note.GNU-stack"), elf::SHT_PROGBITS, (names_at.0 + names_at.1, 0), 1),
    ];
    let (sections_at, _) = add(pod::bytes_of_slice(&sections), 8);
    let header = FileHeader64 {
        e_ident: ident.ident,
        e_type: U16::new(LE, RELOCATABLE),
        e_machine: U16::new(LE, ident.machine),
        e_version: U32::new(LE, elf::EV_CURRENT.into()),
        e_entry: U64::new(LE, 0),
        e_phoff: U64::new(LE, 0),
        e_shoff: U64::new(LE, sections_at as u64),
        e_flags: U32::new(LE, ident.flags),
        e_ehsize: U16::new(LE, size_of::<FileHeader64<LE>>() as u16),
        e_phentsize: U16::new(LE, 0),
        e_phnum: U16::new(LE, 0),
        e_shentsize: U16::new(LE, size_of::<SectionHeader64<LE>>() as u16),
        e_shnum: U16::new(LE, sections.len() as u16),
        e_shstrndx: U16::new(LE, 4),
    };
    file[..size_of::<FileHeader64<LE>>()].copy_from_slice(pod::bytes_of(&header));
    file
}

#[cfg(test)]
mod tests {
    use object::SectionIndex;
    use object::read::elf::{FileHeader, SectionHeader, Sym};

    use super::*;

    #[test]
    fn the_object_file_defines_the_symbol_for_the_given_machine() {
        let ident = Ident { machine: elf::EM_RISCV, flags: 5, ..Ident::HOST };
        let file = object_file(&ident, b"modules");
        let (found, kind) = Ident::of(&file).unwrap();
        assert_eq!((found.machine, found.flags, kind), (elf::EM_RISCV, 5, RELOCATABLE));

        let file = file.as_slice();
        let header = FileHeader64::<LE>::parse(file).unwrap();
        let sections = header.sections(LE, file).unwrap();
        let names: Vec<&[u8]> =
            sections.iter().map(|section| sections.section_name(LE, section).unwrap()).collect();
        let expected: [&[u8]; 6] = [b"", b".rodata", b".symtab", b".strtab", b".shstrtab", b".note.GNU-stack"];
        assert_eq!(names, expected);
        let symbols = sections.symbols(LE, file, elf::SHT_SYMTAB).unwrap();
        let symbol = symbols.symbol(object::SymbolIndex(1)).unwrap();
        assert_eq!(symbol.name(LE, symbols.strings()).unwrap(), SYMBOL.as_bytes());
        assert!(symbol.is_definition(LE) && symbol.st_size(LE) == 7);
        let section = sections.section(SectionIndex(symbol.st_shndx(LE).into())).unwrap();
        assert_eq!(section.data(LE, file).unwrap(), b"modules");
    }

    /// Returns an object file whose only symbol is a weak reference to a function of the runtime, and the place of its binding.
    fn with_weak_reference() -> (Vec<u8>, usize) {
        let mut file = object_file(&Ident::HOST, b"modules");
        let name = file.windows(SYMBOL.len()).position(|part| part == SYMBOL.as_bytes()).unwrap();
        assert!(put(&mut file, name, b"TVMFFI"));
        let header = FileHeader64::<LE>::parse(file.as_slice()).unwrap();
        let sections = header.sections(LE, file.as_slice()).unwrap();
        let table = sections.iter().find(|section| section.sh_type.get(LE) == elf::SHT_SYMTAB).unwrap();
        let symbol = index(table.sh_offset.get(LE)) + size_of::<Sym64<LE>>();
        // `st_info`, `st_other` and `st_shndx`.
        assert!(put(&mut file, symbol + 4, &[elf::STB_WEAK << 4, 0, 0, 0]));
        (file, symbol + 4)
    }

    #[test]
    fn weak_references_to_the_runtime_become_strong() {
        let (file, binding) = with_weak_reference();
        let mut many = file.clone();
        // Files with 65,280 sections or more have their number in the first section.
        let (count, first) = (many[60], index(u64::from_le_bytes(many[40..48].try_into().unwrap())));
        many[60] = 0;
        many[first + 32] = count;
        for mut file in [file, many] {
            let used = use_linked_runtime(&mut file).unwrap();
            assert!(used.len() == 1 && used[0].starts_with("TVMFFI"), "{used:?}");
            assert_eq!(file[binding], elf::STB_GLOBAL << 4);
        }
    }

    #[test]
    fn damaged_object_files_are_refused() {
        let (file, _) = with_weak_reference();
        for end in 0..file.len() {
            // The strings are at the end, and the section headers behind them.
            assert!(use_linked_runtime(&mut file[..end].to_vec()).is_err(), "{end}");
        }
        for (at, byte) in (0..file.len()).flat_map(|at| [(at, 0xFF), (at, 0x80), (at, 1)]) {
            let mut damaged = file.clone();
            damaged[at] ^= byte;
            // Not everything is an error, but nothing may panic or allocate without limit.
            drop(use_linked_runtime(&mut damaged));
        }
    }

    #[test]
    fn an_identification_is_found_at_any_offset() {
        let file = object_file(&Ident::HOST, b"");
        for shift in 0..9 {
            let shifted = [vec![0; shift], file.clone()].concat();
            let (ident, kind) = Ident::of(&shifted[shift..]).unwrap();
            assert_eq!((ident.machine, kind), (Ident::HOST.machine, RELOCATABLE));
        }
        assert!(Ident::of(&file[..63]).is_none() && Ident::of(&file[1..]).is_none());
    }
}
