//! Embeds the modules of a bundle in an already linked shared library, without running a linker.
//!
//! The existing content of the library keeps its offsets and addresses. A new segment is appended, which contains the
//! modules and those tables that gain an entry: segments, dynamic symbols, names, versions and hash table. The order of
//! the symbols must not change, because relocations refer to them by index. Therefore the hash table is written in the
//! older format (`DT_HASH`), which allows symbols in any order.
//!
//! The crate `object` declares the records of the format. Its own writers build files from their sections and assign
//! offsets and addresses anew, so they are not used here.

use object::elf::{self, Dyn64, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::pod::{self, Pod};
use object::{LittleEndian as LE, U16, U32, U64};

use super::elf::{Ident, SHARED, SYMBOL, data_symbol, index, put, records, section};

/// Name of the section that contains the modules. The loader does not use sections, but tools such as `readelf` do.
const SECTION: &str = ".anyfn.bundle";

/// A shared library in memory, with references to its ELF header and its tables.
struct Library<'a> {
    header: &'a FileHeader64<LE>,
    segments: &'a [ProgramHeader64<LE>],
    dynamic: &'a [Dyn64<LE>],
    /// Offset of the library's dynamic table in the file, in bytes.
    dynamic_at: usize,
    symbols: &'a [Sym64<LE>],
    /// Offset of the library's dynamic symbol table in the file, in bytes.
    symbols_at: usize,
    strings: &'a [u8],
    versions: Option<&'a [U16<LE>]>,
}

type Fallible<T> = Result<T, String>;

fn damaged(what: &str) -> String {
    format!("it is damaged: {what} is not where the file says")
}

/// Returns `count` records at the offset `at` of a file. Error messages use `what` as the name of
/// the table that contains the records.
fn table<'a, T: Pod>(file: &'a [u8], at: usize, count: usize, what: &str) -> Fallible<&'a [T]> {
    records(file, at, count).ok_or_else(|| damaged(what))
}

impl<'a> Library<'a> {
    fn parse(file: &'a [u8]) -> Fallible<Library<'a>> {
        const SEGMENTS: &str = "the table of segments";
        const DYNAMIC: &str = "the table of dynamic entries";
        const SYMBOLS: &str = "the table of symbols";
        const STRINGS: &str = "the names of symbols";
        const VERSIONS: &str = "the versions of symbols";
        const HASH: &str = "the hash table of symbols";

        let Some((ident, kind)) = Ident::of(file) else { return Err("it is no ELF file".to_owned()) };
        ident.check()?;
        if kind != SHARED {
            return Err("it is no shared library".to_owned());
        }
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(file).map_err(|()| damaged("the header"))?;
        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LE>>() {
            return Err(damaged(SEGMENTS));
        }
        let segments: &[ProgramHeader64<LE>] =
            table(file, index(header.e_phoff.get(LE)), header.e_phnum.get(LE).into(), SEGMENTS)?;
        let segment = segments.iter().find(|segment| segment.p_type.get(LE) == elf::PT_DYNAMIC);
        let segment = segment.ok_or_else(|| damaged(DYNAMIC))?;
        let dynamic_at = index(segment.p_offset.get(LE));
        let dynamic: &[Dyn64<LE>] =
            table(file, dynamic_at, index(segment.p_filesz.get(LE)) / size_of::<Dyn64<LE>>(), DYNAMIC)?;

        let offset = |tag: u32, what: &str| match dynamic_value(dynamic, tag) {
            None => Ok(None),
            Some(address) => offset_of(segments, address).map(Some).ok_or_else(|| damaged(what)),
        };
        let symbols_at = offset(elf::DT_SYMTAB, SYMBOLS)?.ok_or_else(|| damaged(SYMBOLS))?;
        let strings_at = offset(elf::DT_STRTAB, STRINGS)?.ok_or_else(|| damaged(STRINGS))?;
        let versions_at = offset(elf::DT_VERSYM, VERSIONS)?;
        let count = match (offset(elf::DT_HASH, HASH)?, offset(elf::DT_GNU_HASH, HASH)?) {
            (Some(at), _) => words(file, at).and_then(|words| Some(words.get(1)?.get(LE) as usize)),
            (None, Some(at)) => count_by_gnu_hash(file, at),
            (None, None) => None,
        };
        let count = count.ok_or_else(|| damaged(HASH))?;
        let strings_size = dynamic_value(dynamic, elf::DT_STRSZ).map_or(0, index);
        let versions = versions_at.map(|at| table(file, at, count, VERSIONS)).transpose()?;
        Ok(Library {
            header,
            segments,
            dynamic,
            dynamic_at,
            symbols: table(file, symbols_at, count, SYMBOLS)?,
            symbols_at,
            strings: table(file, strings_at, strings_size, STRINGS)?,
            versions,
        })
    }

    fn loaded(&self) -> impl Iterator<Item = &'a ProgramHeader64<LE>> + use<'a> {
        self.segments.iter().filter(|segment| is_loaded(segment))
    }
}

fn is_loaded(segment: &ProgramHeader64<LE>) -> bool {
    segment.p_type.get(LE) == elf::PT_LOAD
}

/// Returns the file offset of the data at `address` in the loaded library. Returns `None` if no segment loads
/// that address from the file.
fn offset_of(segments: &[ProgramHeader64<LE>], address: u64) -> Option<usize> {
    segments.iter().filter(|segment| is_loaded(segment)).find_map(|segment| {
        let inside = address.checked_sub(segment.p_vaddr.get(LE))?;
        let offset = segment.p_offset.get(LE).checked_add(inside)?;
        usize::try_from(offset).ok().filter(|_| inside < segment.p_filesz.get(LE))
    })
}

/// Returns the entries of a dynamic table that precede its end marker.
fn dynamic_entries(dynamic: &[Dyn64<LE>]) -> impl Iterator<Item = &Dyn64<LE>> {
    dynamic.iter().take_while(|entry| entry.d_tag.get(LE) != u64::from(elf::DT_NULL))
}

/// Returns the value of the first dynamic entry whose tag is `tag`.
fn dynamic_value(dynamic: &[Dyn64<LE>], tag: u32) -> Option<u64> {
    let entry = dynamic_entries(dynamic).find(|entry| entry.d_tag.get(LE) == u64::from(tag));
    entry.map(|entry| entry.d_val.get(LE))
}

/// Returns the data of a file from the offset `at` to the end, as 32-bit integers.
fn words(file: &[u8], at: usize) -> Option<&[U32<LE>]> {
    records(file, at, file.len().checked_sub(at)? / size_of::<U32<LE>>())
}

/// Determines the number of dynamic symbols from the hash table at the offset `at`, which has the
/// newer format (`DT_GNU_HASH`). That format does not store the number, so the function follows the
/// last hash chain to its end.
///
/// `GnuHashTable::symbol_table_length` of `object` does the same, but does not distinguish a table without entries, which
/// is valid, from a damaged one.
fn count_by_gnu_hash(file: &[u8], at: usize) -> Option<usize> {
    let words = words(file, at)?;
    let number = |index: usize| words.get(index).map(|word| word.get(LE) as usize);
    let (buckets, first, filter) = (number(0)?, number(1)?, number(2)?);
    let buckets_at = 4 + 2 * filter;
    let mut last = 0;
    for bucket in 0..buckets {
        last = last.max(number(buckets_at + bucket)?);
    }
    if last == 0 {
        return Some(first);
    }
    let chain = |symbol: usize| number(buckets_at + buckets + symbol.checked_sub(first)?);
    while chain(last)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

fn name_of<'a>(symbol: &Sym64<LE>, strings: &'a [u8]) -> &'a [u8] {
    let rest = strings.get(symbol.st_name.get(LE) as usize..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn is_defined(symbol: &Sym64<LE>) -> bool {
    symbol.st_shndx.get(LE) != elf::SHN_UNDEF
}

/// Builds a hash table in the older format (`DT_HASH`) over all defined symbols.
fn hash_table(symbols: &[Sym64<LE>], strings: &[u8]) -> Vec<U32<LE>> {
    let bucket_count = (symbols.len() / 2).max(1) | 1;
    let (mut buckets, mut chain) = (vec![0u32; bucket_count], vec![0u32; symbols.len()]);
    // In reverse order, so that the first symbol comes first in its chain.
    for (at, symbol) in symbols.iter().enumerate().skip(1).rev() {
        if is_defined(symbol) {
            let bucket = &mut buckets[elf::hash(name_of(symbol, strings)) as usize % bucket_count];
            chain[at] = core::mem::replace(bucket, at as u32);
        }
    }
    let all = [vec![bucket_count as u32, symbols.len() as u32], buckets, chain].concat();
    all.into_iter().map(|number| U32::new(LE, number)).collect()
}

/// Returns the index of the symbol [`SYMBOL`] if the library defines it, that is, if the library already
/// contains modules.
fn carried(library: &Library<'_>) -> Option<usize> {
    let is_it =
        |symbol: &Sym64<LE>| is_defined(symbol) && name_of(symbol, library.strings) == SYMBOL.as_bytes();
    library.symbols.iter().position(is_it)
}

/// Returns true if the library with the content `file` already contains modules.
pub(super) fn carries(file: &[u8]) -> Fallible<bool> {
    Ok(carried(&Library::parse(file)?).is_some())
}

/// A table of the library that was copied to the new segment. The fields are used to update the
/// header of the table's section.
struct Moved {
    /// Address of the table before it was moved to the new segment.
    from: u64,
    /// Offset of the moved table in the new segment, in bytes.
    to: usize,
    /// Size of the moved table in bytes.
    size: usize,
    /// New type of the moved table's section, or `None` if the type stays the same.
    kind: Option<u32>,
}

/// Location of a table or other data in the new file: its address once loaded, its offset in the file, and
/// its size in bytes.
#[derive(Clone, Copy)]
struct TableLocation {
    address: u64,
    offset: usize,
    size: usize,
}

/// Returns a copy of the library with `data` embedded as [`SYMBOL`]. If the library already contains such
/// data, `data` replaces it.
pub(super) fn embed(file: &[u8], data: &[u8]) -> Fallible<Vec<u8>> {
    let library = Library::parse(file)?;
    let section_count = library.header.e_shnum.get(LE);
    let section_index = section_count.max(1);
    if section_index >= elf::SHN_LORESERVE || library.segments.len() + 1 >= usize::from(elf::PN_XNUM) {
        return Err("it has too many sections or segments".to_owned());
    }

    let align = library.loaded().map(|segment| segment.p_align.get(LE)).max().unwrap_or(0).max(0x1000);
    let end = library.loaded().filter_map(|s| s.p_vaddr.get(LE).checked_add(s.p_memsz.get(LE))).max();
    let Some(end) = end.filter(|end| align.is_power_of_two() && *end < u64::MAX >> 2 && align < 1 << 30) else {
        return Err(damaged("a segment"));
    };
    let begin = file.len().next_multiple_of(16);
    let address = end.next_multiple_of(align) + begin as u64 % align;

    // Content of the new segment.
    let mut content = Vec::new();
    let mut add = |bytes: &[u8], align: usize| {
        content.resize(content.len().next_multiple_of(align), 0);
        content.extend_from_slice(bytes);
        content.len() - bytes.len()
    };
    let segments_size = (library.segments.len() + 1) * size_of::<ProgramHeader64<LE>>();
    let segments_at = add(&vec![0; segments_size], 16);
    let data_at = add(data, 16);
    let data_place =
        TableLocation { address: address + data_at as u64, offset: begin + data_at, size: data.len() };
    let mut symbols = library.symbols.to_vec();
    let mut strings = library.strings.to_vec();
    let mut tables = None;
    let symbol = |name: u32| data_symbol(name, section_index, data_place.address, data.len() as u64);
    match carried(&library) {
        Some(known) => {
            let name = symbols[known].st_name.get(LE);
            symbols[known] = symbol(name);
        }
        None => {
            let name = u32::try_from(strings.len()).map_err(|_| "it has too many names".to_owned())?;
            strings.extend_from_slice(SYMBOL.as_bytes());
            strings.push(0);
            symbols.push(symbol(name));
            let hash = hash_table(&symbols, &strings);
            let symbols_at = add(pod::bytes_of_slice(&symbols), 8);
            let hash_at = add(pod::bytes_of_slice(&hash), 8);
            let versions = library.versions.map(|old| {
                let mut versions = old.to_vec();
                versions.push(U16::new(LE, elf::VER_NDX_GLOBAL));
                (add(pod::bytes_of_slice(&versions), 8), size_of_val(&versions[..]))
            });
            let strings_at = add(&strings, 1);
            tables = Some((symbols_at, (hash_at, size_of_val(&hash[..])), versions, strings_at));
        }
    }

    let mut out = file.to_vec();
    out.resize(begin, 0);
    let mut moved: Vec<Moved> = Vec::new();
    let mut fine = true;
    if let Some((symbols_at, (hash_at, hash_size), versions, strings_at)) = tables {
        // A library may have a hash table of each format. Then the new table takes the entry of the older one, and the
        // other entry is dropped.
        let has_both =
            [elf::DT_HASH, elf::DT_GNU_HASH].iter().all(|tag| dynamic_value(library.dynamic, *tag).is_some());
        let mut entries: Vec<Dyn64<LE>> = Vec::new();
        for entry in dynamic_entries(library.dynamic) {
            let (tag, value) = (entry.d_tag.get(LE), entry.d_val.get(LE));
            let mut move_to = |to: usize, size: usize, kind: Option<u32>| {
                moved.push(Moved { from: value, to, size, kind });
                address + to as u64
            };
            let (tag, value) = match u32::try_from(tag) {
                Ok(elf::DT_SYMTAB) => (tag, move_to(symbols_at, size_of_val(&symbols[..]), None)),
                Ok(elf::DT_STRTAB) => (tag, move_to(strings_at, strings.len(), None)),
                Ok(elf::DT_STRSZ) => (tag, strings.len() as u64),
                Ok(elf::DT_GNU_HASH) if has_both => continue,
                Ok(elf::DT_HASH | elf::DT_GNU_HASH) => {
                    (u64::from(elf::DT_HASH), move_to(hash_at, hash_size, Some(elf::SHT_HASH)))
                }
                Ok(elf::DT_VERSYM) => (tag, versions.map_or(value, |(at, size)| move_to(at, size, None))),
                _ => (tag, value),
            };
            entries.push(Dyn64 { d_tag: U64::new(LE, tag), d_val: U64::new(LE, value) });
        }
        // The dynamic table never grows.
        let end = Dyn64 { d_tag: U64::new(LE, elf::DT_NULL.into()), d_val: U64::new(LE, 0) };
        entries.resize(library.dynamic.len(), end);
        fine &= put(&mut out, library.dynamic_at, pod::bytes_of_slice(&entries));
    } else {
        fine &= put(&mut out, library.symbols_at, pod::bytes_of_slice(&symbols));
    }

    let segment = new_segment(begin, address, content.len(), align);
    let mut segments = Vec::new();
    let last = library.segments.iter().rposition(is_loaded).unwrap_or(0);
    for (index, old) in library.segments.iter().enumerate() {
        let mut old = *old;
        if old.p_type.get(LE) == elf::PT_PHDR {
            old.p_offset.set(LE, (begin + segments_at) as u64);
            old.p_vaddr.set(LE, address + segments_at as u64);
            old.p_paddr.set(LE, address + segments_at as u64);
            old.p_filesz.set(LE, segments_size as u64);
            old.p_memsz.set(LE, segments_size as u64);
        }
        segments.push(old);
        if index == last {
            segments.push(segment);
        }
    }
    fine &= put(&mut content, segments_at, pod::bytes_of_slice(&segments));
    out.extend_from_slice(&content);
    let mut header = *library.header;
    header.e_phoff.set(LE, (begin + segments_at) as u64);
    header.e_phnum.set(LE, segments.len() as u16);
    if section_count > 0 {
        add_section(&mut out, &mut header, &moved, (begin, address), data_place)?;
    }
    fine &= put(&mut out, 0, pod::bytes_of(&header));
    if fine { Ok(out) } else { Err(damaged("a table")) }
}

/// Creates the program header of a loadable, read-only segment.
fn new_segment(offset: usize, address: u64, size: usize, align: u64) -> ProgramHeader64<LE> {
    ProgramHeader64 {
        p_type: U32::new(LE, elf::PT_LOAD),
        p_flags: U32::new(LE, elf::PF_R),
        p_offset: U64::new(LE, offset as u64),
        p_vaddr: U64::new(LE, address),
        p_paddr: U64::new(LE, address),
        p_filesz: U64::new(LE, size as u64),
        p_memsz: U64::new(LE, size as u64),
        p_align: U64::new(LE, align),
    }
}

/// Rewrites the section table, which tools read but the loader ignores. Updates the section headers of the
/// tables in `moved`, which are now in the new segment at the offset `begin` and the address `address`. Adds
/// a section for the modules.
fn add_section(
    out: &mut Vec<u8>,
    header: &mut FileHeader64<LE>,
    moved: &[Moved],
    (begin, address): (usize, u64),
    data: TableLocation,
) -> Fallible<()> {
    const WHAT: &str = "the table of sections";
    let (count, names) = (header.e_shnum.get(LE), usize::from(header.e_shstrndx.get(LE)));
    let old: &[SectionHeader64<LE>] = table(out, index(header.e_shoff.get(LE)), count.into(), WHAT)?;
    let mut sections = old.to_vec();
    let old = sections.get(names).ok_or_else(|| damaged(WHAT))?;
    let all_names: &[u8] = table(out, index(old.sh_offset.get(LE)), index(old.sh_size.get(LE)), WHAT)?;
    let mut all_names = all_names.to_vec();
    let name = all_names.len() as u32;
    all_names.extend_from_slice(SECTION.as_bytes());
    all_names.push(0);

    for section in &mut sections {
        let is_loaded = section.sh_flags.get(LE) & u64::from(elf::SHF_ALLOC) != 0;
        let old = section.sh_addr.get(LE);
        let Some(table) = moved.iter().find(|table| is_loaded && table.from == old) else { continue };
        section.sh_addr.set(LE, address + table.to as u64);
        section.sh_offset.set(LE, (begin + table.to) as u64);
        section.sh_size.set(LE, table.size as u64);
        if let Some(kind) = table.kind {
            section.sh_type.set(LE, kind);
            section.sh_entsize.set(LE, 4);
        }
    }
    sections[names].sh_offset.set(LE, out.len() as u64);
    sections[names].sh_size.set(LE, all_names.len() as u64);
    out.extend_from_slice(&all_names);
    sections.push(SectionHeader64 {
        sh_flags: U64::new(LE, elf::SHF_ALLOC.into()),
        sh_addr: U64::new(LE, data.address),
        ..section(name, elf::SHT_PROGBITS, (data.offset, data.size), 16)
    });
    out.resize(out.len().next_multiple_of(8), 0);
    header.e_shoff.set(LE, out.len() as u64);
    header.e_shnum.set(LE, count + 1);
    out.extend_from_slice(pod::bytes_of_slice(&sections));
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyfn_random::Random;

    use super::*;

    /// Returns the contents of up to six small shared libraries that are installed on this machine.
    fn samples() -> Vec<Vec<u8>> {
        let own = std::env::current_exe().unwrap();
        let beside = own.parent().unwrap().read_dir().unwrap().flatten().map(|entry| entry.path());
        let system =
            ["/lib/x86_64-linux-gnu/libdl.so.2", "/lib/x86_64-linux-gnu/libutil.so.1", "/lib64/libdl.so.2"];
        let all = beside.chain(system.map(Into::into)).filter(|path| path.to_string_lossy().contains(".so"));
        all.flat_map(std::fs::read).filter(|file| file.len() < 1 << 20).take(6).collect()
    }

    #[test]
    fn what_is_embedded_is_found_again() {
        for file in samples() {
            let once = embed(&file, b"first").unwrap();
            assert!(!carries(&file).unwrap() && carries(&once).unwrap());
            let twice = embed(&once, &[7; 100_000]).unwrap();
            let library = Library::parse(&twice).unwrap();
            let symbol = &library.symbols[carried(&library).unwrap()];
            let at = offset_of(library.segments, symbol.st_value.get(LE)).unwrap();
            let size = index(symbol.st_size.get(LE));
            assert_eq!(twice[at..at + size], [7; 100_000]);
            // The original content is still there, at its original location.
            let before = Library::parse(&file).unwrap();
            for segment in before.loaded() {
                let (at, size) = (index(segment.p_offset.get(LE)), index(segment.p_filesz.get(LE)));
                let same =
                    file[at..at + size].iter().zip(&twice[at..at + size]).filter(|(one, other)| one == other);
                assert!(size - same.count() < 200, "only the header and dynamic entries change");
            }
            let names = |library: &Library<'_>| -> Vec<Vec<u8>> {
                library.symbols.iter().map(|symbol| name_of(symbol, library.strings).to_vec()).collect()
            };
            assert_eq!(names(&library)[..before.symbols.len()], names(&before));
        }
    }

    /// Tests that embedding data in a damaged library succeeds or returns an error, without a
    /// panic, and that the size of the result is bounded. `ANYFN_FUZZ_SECONDS` sets the duration of
    /// the test in seconds.
    #[test]
    fn takes_any_library_without_a_panic() {
        let mut seeds = samples();
        seeds.extend(seeds.iter().map(|file| embed(file, b"carried").unwrap()).collect::<Vec<_>>());
        if seeds.is_empty() {
            return eprintln!("skipped: there is no small library");
        }
        let mut random = Random::from_env();
        let mut next = || random.number() as usize;
        let (mut rounds, mut refused) = (0u64, 0u64);
        for _ in anyfn_random::rounds(200, 1) {
            let mut file = seeds[next() % seeds.len()].clone();
            let library = Library::parse(&file).unwrap();
            let dynamic = (library.dynamic_at, size_of_val(library.dynamic));
            for _ in 0..1 + next() % 6 {
                let at = match next() % 4 {
                    0 => next() % file.len(),
                    1 => next() % file.len().min(0x400),
                    2 => dynamic.0 + next() % dynamic.1.max(1),
                    _ => next() % size_of::<FileHeader64<LE>>(),
                };
                let words = [0, 1, u64::MAX, i64::MAX as u64, 1 << 32, 0xffff_fff8, file.len() as u64];
                match next() % 4 {
                    0 => fine(put(&mut file, at, &[next() as u8])),
                    1 => fine(put(&mut file, at & !7, &words[next() % 7].to_le_bytes())),
                    2 => fine(put(&mut file, at & !3, &(next() as u32).to_le_bytes())),
                    _ => file.truncate(file.len() - next() % 64.min(file.len())),
                }
            }
            match embed(&file, b"data") {
                Ok(new) => assert!(new.len() < 3 * file.len() + (1 << 16)),
                Err(_) => refused += 1,
            }
            rounds += 1;
        }
        eprintln!("{rounds} files, {refused} refused");
        assert!(refused > 0);
    }

    /// Ignores the result of [`put`]. The result is false, and the file unchanged, if the location is out of
    /// bounds.
    fn fine(_put: bool) {}
}
