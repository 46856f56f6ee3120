//! The dynamic section of a library. It contains the addresses of the tables that the dynamic loader uses.

use object::elf::{self, Dyn64, Rela64};
use object::read::elf::Dyn;
use object::{LittleEndian as LE, U64};

use super::image::Image;
use crate::message::{CHECKS, refused};

/// Tag of the entry that states the size in bytes of the compact table of relative relocations
/// (RELR).
const DT_RELRSZ: u32 = 35;
/// Tag of the entry that states the address of the compact table of relative relocations.
const DT_RELR: u32 = 36;
/// Tag of the entry that states the size in bytes of one entry in the compact table of relative
/// relocations.
const DT_RELRENT: u32 = 37;

/// Entries of the dynamic section that the checks use. A field with two numbers contains the address and the
/// size in bytes of a table, unless its comment states otherwise.
#[derive(Default)]
pub(super) struct Dynamic<'d> {
    pub(super) strings: &'d [u8],
    /// Address of the library's dynamic string table (`DT_STRTAB`).
    pub(super) strings_at: u64,
    pub(super) symbols: Option<u64>,
    pub(super) hash: Option<u64>,
    pub(super) gnu_hash: Option<u64>,
    /// Address and size in bytes of the table of relocations.
    pub(super) relocations: (u64, u64),
    pub(super) plt_relocations: (u64, u64),
    pub(super) relative: (u64, u64),
    /// Number of relative relocations at the beginning of the table of relocations.
    pub(super) relative_count: u64,
    pub(super) start: (u64, u64),
    pub(super) end: (u64, u64),
    /// Address and number of entries of the table of symbol versions that the library needs from other
    /// libraries. `defined_versions` has the same form.
    pub(super) needed_versions: (u64, u64),
    pub(super) defined_versions: (u64, u64),
    pub(super) symbol_versions: Option<u64>,
    pub(super) text_relocations: bool,
    pub(super) static_tls: bool,
    pub(super) bound_at_once: bool,
    pub(super) is_kept: bool,
    pub(super) soname: Option<String>,
    pub(super) needed: Vec<String>,
    pub(super) search_path: Option<String>,
}

impl<'d> Dynamic<'d> {
    /// Returns the table of relocations and the relocation table of the PLT, in this order.
    pub(super) fn relocation_tables(&self, image: &Image<'d>) -> Result<[&'d [Rela64<LE>]; 2], String> {
        let table = |(at, size): (u64, u64)| match size {
            0 => Ok(&[][..]),
            size if size % 24 == 0 => image.table(at, size / 24, "relocations"),
            _ => Err(refused!("the file is damaged: its last relocation is incomplete")),
        };
        Ok([table(self.relocations)?, table(self.plt_relocations)?])
    }

    /// Reads and checks the dynamic section.
    pub(super) fn read(image: &Image<'d>) -> Result<Dynamic<'d>, String> {
        let (address, size) = image.dynamic;
        let entries: &[Dyn64<LE>] = image.table(address, size / 16, "dynamic entries")?;
        let Some(end) = entries.iter().position(|entry| entry.d_tag(LE) == 0) else {
            return Err(refused!("the file is damaged: its dynamic section has no end (no DT_NULL)"));
        };
        let entries = &entries[..end];
        if CHECKS {
            check_entries(image, entries)?;
        }
        let value = |tag: u32| {
            entries.iter().find(|entry| entry.d_tag(LE) == u64::from(tag)).map(|entry| entry.d_val(LE))
        };
        let pair = |at: u32, size: u32| (value(at).unwrap_or(0), value(size).unwrap_or(0));
        let flags = value(elf::DT_FLAGS).unwrap_or(0);
        let flags_1 = value(elf::DT_FLAGS_1).unwrap_or(0);
        if flags_1 & u64::from(elf::DF_1_PIE) != 0 {
            return Err(refused!("it is a program (a position-independent one), not a shared library"));
        }
        if flags_1 & u64::from(elf::DF_1_NOOPEN) != 0 {
            return Err(refused!("it was linked with -z nodlopen, which forbids loading it at run time"));
        }
        let mut dynamic = Dynamic {
            symbols: value(elf::DT_SYMTAB),
            hash: value(elf::DT_HASH),
            gnu_hash: value(elf::DT_GNU_HASH),
            relocations: pair(elf::DT_RELA, elf::DT_RELASZ),
            plt_relocations: pair(elf::DT_JMPREL, elf::DT_PLTRELSZ),
            relative: pair(DT_RELR, DT_RELRSZ),
            relative_count: value(elf::DT_RELACOUNT).unwrap_or(0),
            start: pair(elf::DT_INIT_ARRAY, elf::DT_INIT_ARRAYSZ),
            end: pair(elf::DT_FINI_ARRAY, elf::DT_FINI_ARRAYSZ),
            needed_versions: pair(elf::DT_VERNEED, elf::DT_VERNEEDNUM),
            defined_versions: pair(elf::DT_VERDEF, elf::DT_VERDEFNUM),
            symbol_versions: value(elf::DT_VERSYM),
            text_relocations: value(elf::DT_TEXTREL).is_some() || flags & u64::from(elf::DF_TEXTREL) != 0,
            static_tls: flags & u64::from(elf::DF_STATIC_TLS) != 0,
            bound_at_once: flags & u64::from(elf::DF_BIND_NOW) != 0 || flags_1 & u64::from(elf::DF_1_NOW) != 0,
            is_kept: flags_1 & u64::from(elf::DF_1_NODELETE) != 0,
            ..Dynamic::default()
        };
        if CHECKS {
            dynamic.code(image, value)?;
        }
        dynamic.texts(image, entries)?;
        Ok(dynamic)
    }

    /// Checks that the initialisation and termination functions of the library are in executable memory, and
    /// that the arrays of such functions are mapped.
    fn code(&self, image: &Image<'d>, value: impl Fn(u32) -> Option<u64>) -> Result<(), String> {
        for (tag, what) in [(elf::DT_INIT, "initialization function"), (elf::DT_FINI, "termination function")] {
            if value(tag).is_some_and(|address| address != 0 && !image.is_code(address)) {
                return Err(refused!("the file is damaged: its {what} is not in its code"));
            }
        }
        for (at, size) in [self.start, self.end] {
            if size % 8 != 0 || size > 0 && !image.is_in_memory(at, size) {
                return Err(refused!(
                    "the file is damaged: its lists of initialization and termination functions are outside \
                     of the loaded segments"
                ));
            }
        }
        Ok(())
    }

    fn texts(&mut self, image: &Image<'d>, entries: &[Dyn64<LE>]) -> Result<(), String> {
        let value = |tag: u32| {
            entries.iter().find(|entry| entry.d_tag(LE) == u64::from(tag)).map(|entry| entry.d_val(LE))
        };
        let Some((at, size)) = value(elf::DT_STRTAB).zip(value(elf::DT_STRSZ)) else {
            return Err(refused!("the file is damaged: it has no dynamic string table"));
        };
        self.strings = image.bytes(at, size, "names")?;
        self.strings_at = at;
        if self.strings.last() != Some(&0) {
            return Err(refused!("the file is damaged: its dynamic string table does not end with a NUL byte"));
        }
        /// Maximum length in bytes of a name or search path in the dynamic string table. Real ones
        /// are much shorter.
        const TEXT_MAX: usize = 1 << 16;
        let text = |at: u64, what: &str| {
            let name = u32::try_from(at).ok().and_then(|at| self.text(at));
            name.filter(|name| name.len() <= TEXT_MAX)
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .ok_or_else(|| {
                    refused!("the file is damaged: {what} is not in the dynamic string table, or too long")
                })
        };
        let one = |tag: u32, what: &str| value(tag).map(|at| text(at, what)).transpose();
        let soname = one(elf::DT_SONAME, "its SONAME")?;
        let search_path = match one(elf::DT_RUNPATH, "its search path")? {
            Some(path) => Some(path),
            None => one(elf::DT_RPATH, "its search path")?,
        };
        let is_needed = |entry: &&Dyn64<LE>| entry.d_tag(LE) == u64::from(elf::DT_NEEDED);
        /// Maximum number of needed libraries. Real libraries need far fewer.
        const NEEDED_MAX: usize = 4096;
        if entries.iter().filter(is_needed).count() > NEEDED_MAX {
            return Err(refused!("the file is damaged: it needs too many libraries"));
        }
        let needed =
            entries.iter().filter(is_needed).map(|entry| text(entry.d_val(LE), "the name of a needed library"));
        let needed = needed.collect::<Result<Vec<_>, _>>()?;
        (self.soname, self.search_path, self.needed) = (soname, search_path, needed);
        Ok(())
    }

    /// Returns the table of relative relocations in compact form.
    pub(super) fn relative_table(&self, image: &Image<'d>) -> Result<&'d [U64<LE>], String> {
        let (at, size) = self.relative;
        if size == 0 { Ok(&[]) } else { image.table(at, size / 8, "relative relocations") }
    }

    /// Returns the string at offset `at` in the string table.
    pub(super) fn text(&self, at: u32) -> Option<&'d [u8]> {
        let rest = self.strings.get(at as usize..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        rest.get(..end)
    }
}

/// Checks that the entries of the dynamic section are complete and have the expected sizes.
fn check_entries(image: &Image<'_>, entries: &[Dyn64<LE>]) -> Result<(), String> {
    let mut tags: Vec<u64> = entries.iter().map(|entry| entry.d_tag(LE)).collect();
    anyfn::__private::sort(&mut tags);
    if let Some([tag, _]) = tags.array_windows::<2>().find(|[a, b]| a == b && *a != u64::from(elf::DT_NEEDED)) {
        return Err(refused!("the file is damaged: it has the dynamic entry {tag} twice"));
    }
    let value =
        |tag: u32| entries.iter().find(|entry| entry.d_tag(LE) == u64::from(tag)).map(|entry| entry.d_val(LE));
    let is_size = |tag: u32, expected: u64, what: &str| match value(tag) {
        None => Ok(()),
        Some(size) if size == expected => Ok(()),
        Some(size) => Err(refused!("the file is damaged: expected {expected} as the {what}, got {size}")),
    };
    is_size(elf::DT_SYMENT, 24, "size of a symbol")?;
    is_size(elf::DT_RELAENT, 24, "size of a relocation")?;
    is_size(DT_RELRENT, 8, "size of a relative relocation")?;
    is_size(elf::DT_PLTREL, elf::DT_RELA.into(), "kind of PLT relocations")?;
    if value(elf::DT_REL).is_some() {
        return Err(refused!(
            "the file is damaged: it has relocations without addends (DT_REL), which this architecture \
             does not use"
        ));
    }
    for (at, size) in [
        (elf::DT_SYMTAB, elf::DT_SYMENT),
        (elf::DT_RELA, elf::DT_RELASZ),
        (elf::DT_RELA, elf::DT_RELAENT),
        (elf::DT_JMPREL, elf::DT_PLTRELSZ),
        (elf::DT_JMPREL, elf::DT_PLTREL),
        (DT_RELR, DT_RELRSZ),
        (elf::DT_INIT_ARRAY, elf::DT_INIT_ARRAYSZ),
        (elf::DT_FINI_ARRAY, elf::DT_FINI_ARRAYSZ),
        (elf::DT_VERNEED, elf::DT_VERNEEDNUM),
        (elf::DT_VERDEF, elf::DT_VERDEFNUM),
    ] {
        if value(at).is_some() != value(size).is_some() {
            return Err(refused!(
                "the file is damaged: it has only one of the dynamic entries {at} and {size}"
            ));
        }
    }
    if value(elf::DT_VERNEED).is_some() && value(elf::DT_VERSYM).is_none() {
        return Err(refused!(
            "the file is damaged: it has a table of required versions, but its symbols have no versions"
        ));
    }
    // The dynamic loader writes into the first three words of the table.
    if value(elf::DT_PLTGOT).is_some_and(|at| value(elf::DT_JMPREL).is_some() && !image.is_writable(at, 24)) {
        return Err(refused!(
            "the file is damaged: its table of function addresses (DT_PLTGOT) is not in its data"
        ));
    }
    Ok(())
}
