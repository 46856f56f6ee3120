//! Reads and writes the parts of the ELF format that bundles need, for 64-bit little-endian files of any
//! machine.

/// Object file type of a relocatable file (`ET_REL`).
pub(super) const RELOCATABLE: u16 = 1;
pub(super) const SHARED: u16 = 3;

pub(super) const HEADER_SIZE: usize = 64;
pub(super) const SEGMENT_SIZE: usize = 56;
pub(super) const SECTION_SIZE: usize = 64;
pub(super) const SYMBOL_SIZE: usize = 24;

/// Name of the symbol whose data contains the modules of a library.
pub(super) const SYMBOL: &str = "__tvm_ffi__library_bin";

/// Type and binding of [`SYMBOL`]: a data object (`STT_OBJECT`) that is global (`STB_GLOBAL`).
pub(super) const GLOBAL_DATA: u8 = 0x11;

/// Format and machine of an ELF file, as its header identifies them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ident {
    ident: [u8; 16],
    pub(super) machine: u16,
    flags: u32,
}

impl Ident {
    /// Format and machine of files for the machine that runs this code.
    pub(super) const HOST: Ident = Ident {
        ident: [0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        machine: if cfg!(target_arch = "aarch64") { 183 } else { 62 },
        flags: 0,
    };

    /// Returns the format and machine and the object file type (`e_type`) from the header of a file, or
    /// `None` if the file is not an ELF file.
    pub(super) fn of(file: &[u8]) -> Option<(Ident, u16)> {
        let head: &[u8; HEADER_SIZE] = file.first_chunk()?;
        let ident: [u8; 16] = *head.first_chunk()?;
        if ident[..4] != Ident::HOST.ident[..4] {
            return None;
        }
        let this = Ident { ident, machine: u16_at(file, 18)?, flags: u32_at(file, 48)? };
        Some((this, u16_at(file, 16)?))
    }

    /// Returns an error unless files of this format are supported: 64 bits, little endian.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.ident[4], self.ident[5]) {
            (2, 1) => Ok(()),
            (1, _) => Err("it is for a 32-bit machine, which bundles do not support".to_owned()),
            (2, 2) => Err("it is for a big endian machine, which bundles do not support".to_owned()),
            _ => Err("its ELF header is damaged".to_owned()),
        }
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// Reads the 8-byte integer at the offset `at`. Returns `None` if the offset is out of bounds or the integer
/// does not fit into `usize`.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)?;
    usize::try_from(number).ok()
}

/// Overwrites the bytes at the offset `at` with `new`. Returns false and writes nothing if `new` does not
/// fit.
#[must_use]
pub(super) fn put(bytes: &mut [u8], at: usize, new: &[u8]) -> bool {
    let place = at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end));
    place.map(|place| place.copy_from_slice(new)).is_some()
}

/// Rounds `value` up to a multiple of `align`, which must be a power of two.
pub(super) fn align_up(value: usize, align: usize) -> usize {
    (value + align - 1) & !(align - 1)
}

/// A section header of an ELF file.
#[derive(Default)]
pub(super) struct Section {
    pub(super) name: u32,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) link: u32,
    pub(super) info: u32,
    pub(super) align: u64,
    pub(super) entry_size: u64,
}

impl Section {
    pub(super) fn to_bytes(&self) -> [u8; SECTION_SIZE] {
        let mut bytes = [0; SECTION_SIZE];
        let parts: [&[u8]; 10] = [
            &self.name.to_le_bytes(),
            &self.kind.to_le_bytes(),
            &self.flags.to_le_bytes(),
            &self.address.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.size.to_le_bytes(),
            &self.link.to_le_bytes(),
            &self.info.to_le_bytes(),
            &self.align.to_le_bytes(),
            &self.entry_size.to_le_bytes(),
        ];
        bytes.copy_from_slice(&parts.concat());
        bytes
    }
}

/// Encodes a symbol table entry for a global data object. Arguments: offset of the name in the string table,
/// index of the section, address, size in bytes.
pub(super) fn data_symbol(name: u32, section: u16, address: u64, size: u64) -> [u8; SYMBOL_SIZE] {
    let mut bytes = [0; SYMBOL_SIZE];
    let parts: [&[u8]; 5] = [
        &name.to_le_bytes(),
        &[GLOBAL_DATA, 0],
        &section.to_le_bytes(),
        &address.to_le_bytes(),
        &size.to_le_bytes(),
    ];
    bytes.copy_from_slice(&parts.concat());
    bytes
}

/// Returns an object file for the machine `ident` that defines only [`SYMBOL`], whose content is `data`.
pub(super) fn object_file(ident: &Ident, data: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0";
    let name = |name: &str| {
        let at =
            NAMES.windows(name.len() + 1).position(|part| part.split_last() == Some((&0, name.as_bytes())));
        at.unwrap_or(0) as u32
    };
    let strings = [b"\0", SYMBOL.as_bytes(), b"\0"].concat();
    let symbols = [[0; SYMBOL_SIZE], data_symbol(1, 1, 0, data.len() as u64)].concat();
    let mut file = vec![0; HEADER_SIZE];
    let section = |file: &mut Vec<u8>, content: &[u8], align: usize| {
        file.resize(align_up(file.len(), align), 0);
        let offset = file.len() as u64;
        file.extend_from_slice(content);
        (offset, content.len() as u64)
    };
    let (data_at, data_size) = section(&mut file, data, 16);
    let (symbols_at, symbols_size) = section(&mut file, &symbols, 8);
    let (strings_at, strings_size) = section(&mut file, &strings, 1);
    let (names_at, names_size) = section(&mut file, NAMES, 1);
    let sections = [
        Section::default(),
        Section {
            name: name(".rodata"),
            kind: 1,
            flags: 2,
            offset: data_at,
            size: data_size,
            align: 16,
            ..Section::default()
        },
        Section {
            name: name(".symtab"),
            kind: 2,
            offset: symbols_at,
            size: symbols_size,
            link: 3,
            info: 1,
            align: 8,
            entry_size: SYMBOL_SIZE as u64,
            ..Section::default()
        },
        Section {
            name: name(".strtab"),
            kind: 3,
            offset: strings_at,
            size: strings_size,
            align: 1,
            ..Section::default()
        },
        Section {
            name: name(".shstrtab"),
            kind: 3,
            offset: names_at,
            size: names_size,
            align: 1,
            ..Section::default()
        },
        // Declares that the stack need not be executable.
        Section {
            name: name(".note.GNU-stack"),
            kind: 1,
            offset: names_at + names_size,
            align: 1,
            ..Section::default()
        },
    ];
    let (sections_at, _) = section(&mut file, &sections.each_ref().map(Section::to_bytes).concat(), 8);
    let mut head = ident.ident.to_vec();
    head.extend(RELOCATABLE.to_le_bytes());
    head.extend(ident.machine.to_le_bytes());
    head.extend(1u32.to_le_bytes());
    head.extend([0; 16]);
    head.extend(sections_at.to_le_bytes());
    head.extend(ident.flags.to_le_bytes());
    for number in [HEADER_SIZE, 0, 0, SECTION_SIZE, sections.len(), 4] {
        head.extend((number as u16).to_le_bytes());
    }
    file[..HEADER_SIZE].copy_from_slice(&head);
    file
}
