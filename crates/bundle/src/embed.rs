//! Embeds the modules of a bundle in an already linked shared library, without running a linker.
//!
//! The existing content of the library keeps its offsets and addresses. A new segment is appended, which contains the
//! modules and those tables that gain an entry: segments, dynamic symbols, names, versions and hash table. The order of
//! the symbols must not change, because relocations refer to them by index. Therefore the hash table is written in the
//! older format (`DT_HASH`), which allows symbols in any order.

use super::elf::{
    HEADER_SIZE, Ident, SECTION_SIZE, SEGMENT_SIZE, SHARED, SYMBOL, SYMBOL_SIZE, Section, align_up,
    data_symbol, put, u16_at, u32_at, u64_at,
};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_STRSZ: usize = 10;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const SHT_HASH: u32 = 5;
const SHF_ALLOC: u64 = 2;
/// Name of the section that contains the modules. The loader does not use sections, but tools such as `readelf` do.
const SECTION: &str = ".anyfn.bundle";
/// Version table index of a globally visible symbol (`VER_NDX_GLOBAL`).
const VERSION_GLOBAL: u16 = 1;

/// Location of a table of the library: its address in the loaded library and its offset in the file.
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    offset: usize,
}

/// A shared library whose headers and tables have been located.
struct Library<'a> {
    file: &'a [u8],
    /// Bytes of the segment table.
    segments: &'a [u8],
    /// Offset in the file and size in bytes of the dynamic table.
    dynamic: (usize, usize),
    symbols: Place,
    symbol_count: usize,
    strings: Place,
    strings_size: usize,
    versions: Option<Place>,
}

type Fallible<T> = Result<T, String>;

fn damaged(what: &str) -> String {
    format!("it is damaged: {what} is not where the file says")
}

impl<'a> Library<'a> {
    fn parse(file: &'a [u8]) -> Fallible<Library<'a>> {
        let Some((ident, kind)) = Ident::of(file) else { return Err("it is no ELF file".to_owned()) };
        ident.check()?;
        if kind != SHARED {
            return Err("it is no shared library".to_owned());
        }
        let header = || damaged("the header");
        let (at, size, count) = (u64_at(file, 32), u16_at(file, 54), u16_at(file, 56));
        let at = at.ok_or_else(header)?;
        let count: usize = count.ok_or_else(header)?.into();
        if size.map(usize::from) != Some(SEGMENT_SIZE) {
            return Err(damaged("the table of segments"));
        }
        let end = at.checked_add(count * SEGMENT_SIZE);
        let segments = end.and_then(|end| file.get(at..end)).ok_or_else(|| damaged("the table of segments"))?;
        let mut this = Library {
            file,
            segments,
            dynamic: (0, 0),
            symbols: Place { address: 0, offset: 0 },
            symbol_count: 0,
            strings: Place { address: 0, offset: 0 },
            strings_size: 0,
            versions: None,
        };
        let dynamic = this.segments().find(|s| segment_kind(s) == PT_DYNAMIC).and_then(|s| {
            let (at, size) = (u64_at(s, 8)?, u64_at(s, 32)?);
            file.get(at..at.checked_add(size)?).map(|_| (at, size))
        });
        this.dynamic = dynamic.ok_or_else(|| damaged("the table of dynamic entries"))?;
        let place = |tag: usize, what: &str| match this.dynamic_entry(tag) {
            None => Ok(None),
            Some((_, address)) => match this.offset_of(address) {
                Some(offset) => Ok(Some(Place { address, offset })),
                None => Err(damaged(what)),
            },
        };
        let symbols =
            place(DT_SYMTAB, "the table of symbols")?.ok_or_else(|| damaged("the table of symbols"))?;
        let strings =
            place(DT_STRTAB, "the names of symbols")?.ok_or_else(|| damaged("the names of symbols"))?;
        let versions = place(DT_VERSYM, "the versions of symbols")?;
        let hash = place(DT_HASH, "the hash table of symbols")?;
        let gnu_hash = place(DT_GNU_HASH, "the hash table of symbols")?;
        let count = match (hash, gnu_hash) {
            (Some(hash), _) => u32_at(file, hash.offset + 4).map(|count| count as usize),
            (None, Some(hash)) => count_by_gnu_hash(file, hash.offset),
            (None, None) => None,
        };
        let strings_size = this.dynamic_entry(DT_STRSZ).map_or(0, |(_, size)| size);
        this.symbol_count = count.ok_or_else(|| damaged("the hash table of symbols"))?;
        (this.symbols, this.strings, this.versions, this.strings_size) =
            (symbols, strings, versions, strings_size);
        Ok(this)
    }

    fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.segments.chunks_exact(SEGMENT_SIZE)
    }

    fn loaded(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.segments().filter(|segment| segment_kind(segment) == PT_LOAD)
    }

    /// Converts an address in the loaded library to an offset in the file. Returns `None` if no segment loads
    /// that address from the file.
    fn offset_of(&self, address: usize) -> Option<usize> {
        self.loaded().find_map(|segment| {
            let (offset, begin, size) = (u64_at(segment, 8)?, u64_at(segment, 16)?, u64_at(segment, 32)?);
            let inside = address.checked_sub(begin).filter(|inside| *inside < size)?;
            offset.checked_add(inside)
        })
    }

    /// Returns the offset in the file and the value of the first dynamic entry whose tag is `wanted`.
    fn dynamic_entry(&self, wanted: usize) -> Option<(usize, usize)> {
        self.dynamic_entries().find(|(_, tag, _)| *tag == wanted).map(|(at, _, value)| (at, value))
    }

    /// Iterates over the dynamic entries, each as its offset in the file, its tag and its value.
    fn dynamic_entries(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<'a> {
        let (file, (begin, size)) = (self.file, self.dynamic);
        let entries = (begin..begin + size / 16 * 16).step_by(16);
        entries
            .map(move |at| (at, u64_at(file, at).unwrap_or(0), u64_at(file, at + 8).unwrap_or(0)))
            .take_while(|(_, tag, _)| *tag != 0)
    }

    fn bytes(&self, place: Place, size: usize, what: &str) -> Fallible<&'a [u8]> {
        let end = place.offset.checked_add(size);
        end.and_then(|end| self.file.get(place.offset..end)).ok_or_else(|| damaged(what))
    }

    fn symbols(&self) -> Fallible<&'a [u8]> {
        self.bytes(self.symbols, self.symbol_count.saturating_mul(SYMBOL_SIZE), "the table of symbols")
    }

    fn strings(&self) -> Fallible<&'a [u8]> {
        self.bytes(self.strings, self.strings_size, "the names of symbols")
    }
}

fn segment_kind(segment: &[u8]) -> u32 {
    u32_at(segment, 0).unwrap_or(0)
}

/// Returns the number of symbols, computed from a hash table in the newer format (`DT_GNU_HASH`). The table
/// does not contain the number, so the function follows the last hash chain to its end.
fn count_by_gnu_hash(file: &[u8], at: usize) -> Option<usize> {
    let number = |index: usize| u32_at(file, at.checked_add(index.checked_mul(4)?)?).map(|n| n as usize);
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

/// Computes the hash of a symbol's name for the older format of hash tables (`DT_HASH`).
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add((*byte).into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

fn name_at(strings: &[u8], at: usize) -> &[u8] {
    let rest = strings.get(at..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Builds a hash table in the older format (`DT_HASH`) over all defined symbols.
fn hash_table(symbols: &[u8], strings: &[u8]) -> Vec<u8> {
    let count = symbols.len() / SYMBOL_SIZE;
    let bucket_count = (count / 2).max(1) | 1;
    let (mut buckets, mut chain) = (vec![0u32; bucket_count], vec![0u32; count]);
    // In reverse order, so that the first symbol comes first in its chain.
    for (at, symbol) in symbols.chunks_exact(SYMBOL_SIZE).enumerate().skip(1).rev() {
        if u16_at(symbol, 6).unwrap_or(0) != 0 {
            let name = name_at(strings, u32_at(symbol, 0).unwrap_or(0) as usize);
            let bucket = &mut buckets[hash(name) as usize % bucket_count];
            chain[at] = core::mem::replace(bucket, at as u32);
        }
    }
    let all = [vec![bucket_count as u32, count as u32], buckets, chain].concat();
    all.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns the index of the symbol [`SYMBOL`] if the library defines it, that is, if the library already
/// contains modules.
fn carried(library: &Library<'_>) -> Fallible<Option<usize>> {
    let strings = library.strings()?;
    let is_it = |symbol: &[u8]| {
        let is_defined = u16_at(symbol, 6).unwrap_or(0) != 0;
        is_defined && name_at(strings, u32_at(symbol, 0).unwrap_or(0) as usize) == SYMBOL.as_bytes()
    };
    Ok(library.symbols()?.chunks_exact(SYMBOL_SIZE).position(is_it))
}

/// Returns true if the library with the content `file` already contains modules.
pub(super) fn carries(file: &[u8]) -> Fallible<bool> {
    Ok(carried(&Library::parse(file)?)?.is_some())
}

/// Returns a copy of the library with `data` embedded as [`SYMBOL`]. If the library already contains such
/// data, `data` replaces it.
pub(super) fn embed(file: &[u8], data: &[u8]) -> Fallible<Vec<u8>> {
    let library = Library::parse(file)?;
    let known = carried(&library)?;
    let section_count: usize = u16_at(file, 60).unwrap_or(0).into();
    let section: u16 = if section_count == 0 { 1 } else { section_count as u16 };
    if section >= 0xff00 || library.segments.len() / SEGMENT_SIZE >= 0xfffe {
        return Err("it has too many sections or segments".to_owned());
    }

    let align = library.loaded().filter_map(|s| u64_at(s, 48)).max().unwrap_or(0).max(0x1000);
    let end = library.loaded().filter_map(|s| u64_at(s, 16)?.checked_add(u64_at(s, 40)?)).max();
    let Some(end) = end.filter(|end| align.is_power_of_two() && *end < usize::MAX >> 2 && align < 1 << 30)
    else {
        return Err(damaged("a segment"));
    };
    let begin = align_up(file.len(), 16);
    let address = align_up(end, align) + begin % align;

    // Content of the new segment.
    let mut content = Vec::new();
    let mut add = |bytes: &[u8], align: usize| {
        content.resize(align_up(content.len(), align), 0);
        content.extend_from_slice(bytes);
        content.len() - bytes.len()
    };
    let segments_at = add(&vec![0; library.segments.len() + SEGMENT_SIZE], 16);
    let data_at = add(data, 16);
    let mut symbols = library.symbols()?.to_vec();
    let mut strings = library.strings()?.to_vec();
    let mut tables = None;
    let data_address = (address + data_at) as u64;
    match known {
        Some(known) => {
            let name = u32_at(&symbols, known * SYMBOL_SIZE).unwrap_or(0);
            let symbol = data_symbol(name, section, data_address, data.len() as u64);
            symbols[known * SYMBOL_SIZE..][..SYMBOL_SIZE].copy_from_slice(&symbol);
        }
        None => {
            let name = u32::try_from(strings.len()).map_err(|_| "it has too many names".to_owned())?;
            strings.extend_from_slice(SYMBOL.as_bytes());
            strings.push(0);
            symbols.extend(data_symbol(name, section, data_address, data.len() as u64));
            let versions = match library.versions {
                Some(place) => {
                    let old = library.bytes(place, library.symbol_count * 2, "the versions of symbols")?;
                    Some([old, &VERSION_GLOBAL.to_le_bytes()].concat())
                }
                None => None,
            };
            let hash = hash_table(&symbols, &strings);
            let symbols_at = add(&symbols, 8);
            let hash_at = add(&hash, 8);
            let versions = versions.map(|versions| (add(&versions, 8), versions.len()));
            let strings_at = add(&strings, 1);
            tables = Some((symbols_at, (hash_at, hash.len()), versions, strings_at));
        }
    }

    let mut out = file.to_vec();
    out.resize(begin, 0);
    // Each table that has moved: its old address, its offset in the segment, its size, and its section type if that
    // changes.
    let mut moved: Vec<(usize, usize, usize, Option<u32>)> = Vec::new();
    let mut fine = true;
    if let Some((symbols_at, (hash_at, hash_size), versions, strings_at)) = tables {
        // A library may have a hash table of each format. Then the new table takes the entry of the older one, and the
        // other entry is dropped.
        let has_both = [DT_HASH, DT_GNU_HASH].iter().all(|tag| library.dynamic_entry(*tag).is_some());
        let mut entries: Vec<usize> = Vec::new();
        for (_, tag, value) in library.dynamic_entries() {
            entries.extend(match tag {
                DT_SYMTAB => [tag, address + symbols_at],
                DT_STRTAB => [tag, address + strings_at],
                DT_STRSZ => [tag, strings.len()],
                DT_GNU_HASH if has_both => continue,
                DT_HASH | DT_GNU_HASH => [DT_HASH, address + hash_at],
                DT_VERSYM => [tag, versions.map_or(value, |(at, _)| address + at)],
                _ => [tag, value],
            });
            match tag {
                DT_SYMTAB => moved.push((value, symbols_at, symbols.len(), None)),
                DT_STRTAB => moved.push((value, strings_at, strings.len(), None)),
                DT_HASH | DT_GNU_HASH => moved.push((value, hash_at, hash_size, Some(SHT_HASH))),
                DT_VERSYM => moved.extend(versions.map(|(at, size)| (value, at, size, None))),
                _ => {}
            }
        }
        // The dynamic table never grows.
        entries.resize(library.dynamic.1 / 16 * 2, 0);
        let entries: Vec<u8> = entries.iter().flat_map(|number| (*number as u64).to_le_bytes()).collect();
        fine &= put(&mut out, library.dynamic.0, &entries);
    } else {
        fine &= put(&mut out, library.symbols.offset, &symbols);
    }

    let segment = new_segment(begin, address, content.len(), align);
    let mut segments = Vec::new();
    let last =
        library.segments.chunks_exact(SEGMENT_SIZE).rposition(|s| segment_kind(s) == PT_LOAD).unwrap_or(0);
    for (index, old) in library.segments().enumerate() {
        let mut old = old.to_vec();
        if segment_kind(&old) == PT_PHDR {
            let (offset, address) = ((begin + segments_at) as u64, (address + segments_at) as u64);
            let size = (library.segments.len() + SEGMENT_SIZE) as u64;
            fine &= put(&mut old, 8, &[offset, address, address, size, size].map(u64::to_le_bytes).concat());
        }
        segments.extend(old);
        if index == last {
            segments.extend_from_slice(&segment);
        }
    }
    fine &= put(&mut content, segments_at, &segments);
    out.extend_from_slice(&content);
    fine &= put(&mut out, 32, &((begin + segments_at) as u64).to_le_bytes());
    fine &= put(&mut out, 56, &((segments.len() / SEGMENT_SIZE) as u16).to_le_bytes());
    let data_place = Place { address: address + data_at, offset: begin + data_at };
    if section_count > 0 {
        add_section(&mut out, section_count, &moved, (begin, address), (data_place, data.len()))?;
    }
    if fine { Ok(out) } else { Err(damaged("a table")) }
}

/// Returns the program header of a loadable read-only segment.
fn new_segment(offset: usize, address: usize, size: usize, align: usize) -> Vec<u8> {
    const READ: u32 = 4;
    let numbers = [offset, address, address, size, size, align].map(|number| (number as u64).to_le_bytes());
    [&PT_LOAD.to_le_bytes()[..], &READ.to_le_bytes(), &numbers.concat()].concat()
}

/// Rewrites the section table, which is only read by tools: updates the sections of the tables that have
/// moved, and adds a section for the modules.
fn add_section(
    out: &mut Vec<u8>,
    count: usize,
    moved: &[(usize, usize, usize, Option<u32>)],
    (begin, address): (usize, usize),
    (data, data_size): (Place, usize),
) -> Fallible<()> {
    let wrong = || damaged("the table of sections");
    let at = u64_at(out, 40).ok_or_else(wrong)?;
    let names: usize = u16_at(out, 62).ok_or_else(wrong)?.into();
    let end = at.checked_add(count * SECTION_SIZE).ok_or_else(wrong)?;
    let mut table = out.get(at..end).ok_or_else(wrong)?.to_vec();
    let header = table.get(names * SECTION_SIZE..).filter(|_| names < count).ok_or_else(wrong)?;
    let (names_at, names_size) = u64_at(header, 24)
        .zip(u64_at(header, 32))
        .filter(|(at, size)| at.checked_add(*size).is_some())
        .ok_or_else(wrong)?;
    let mut all_names = out.get(names_at..names_at + names_size).ok_or_else(wrong)?.to_vec();
    let name = all_names.len() as u32;
    all_names.extend_from_slice(SECTION.as_bytes());
    all_names.push(0);

    let mut fine = true;
    for header in table.chunks_exact_mut(SECTION_SIZE) {
        let is_loaded = u64_at(header, 8).unwrap_or(0) as u64 & SHF_ALLOC != 0;
        let old = u64_at(header, 16).filter(|_| is_loaded);
        let Some((_, to, size, kind)) = moved.iter().find(|(from, ..)| Some(*from) == old) else { continue };
        let numbers = [address + to, begin + to, *size].map(|number| (number as u64).to_le_bytes());
        fine &= put(header, 16, &numbers.concat());
        if let Some(kind) = kind {
            fine &= put(header, 4, &kind.to_le_bytes());
            fine &= put(header, 56, &4u64.to_le_bytes());
        }
    }
    let names_at = out.len();
    out.extend_from_slice(&all_names);
    let place = [names_at, all_names.len()].map(|number| (number as u64).to_le_bytes());
    fine &= put(&mut table, names * SECTION_SIZE + 24, &place.concat());
    let section = Section {
        name,
        kind: 1,
        flags: SHF_ALLOC,
        address: data.address as u64,
        offset: data.offset as u64,
        size: data_size as u64,
        align: 16,
        ..Section::default()
    };
    table.extend(section.to_bytes());
    out.resize(align_up(out.len(), 8), 0);
    let at = out.len();
    out.extend_from_slice(&table);
    fine &= put(out, 40, &(at as u64).to_le_bytes());
    fine &= put(out, 60, &(count as u16 + 1).to_le_bytes());
    if fine { Ok(()) } else { Err(wrong()) }
}

const _: () = assert!(HEADER_SIZE == 64);

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
            let symbol =
                &library.symbols().unwrap()[carried(&library).unwrap().unwrap() * SYMBOL_SIZE..][..SYMBOL_SIZE];
            let (address, size) = (u64_at(symbol, 8).unwrap(), u64_at(symbol, 16).unwrap());
            let at = library.offset_of(address).unwrap();
            assert_eq!(twice[at..at + size], [7; 100_000]);
            // The original content is still there, at its original location.
            let before = Library::parse(&file).unwrap();
            for segment in before.loaded() {
                let (at, size) = (u64_at(segment, 8).unwrap(), u64_at(segment, 32).unwrap());
                let same =
                    file[at..at + size].iter().zip(&twice[at..at + size]).filter(|(one, other)| one == other);
                assert!(size - same.count() < 200, "only the header and dynamic entries change");
            }
            let names = |library: &Library<'_>| -> Vec<Vec<u8>> {
                let (symbols, strings) = (library.symbols().unwrap(), library.strings().unwrap());
                let names =
                    symbols.chunks_exact(SYMBOL_SIZE).map(|s| name_at(strings, u32_at(s, 0).unwrap() as usize));
                names.map(<[u8]>::to_vec).collect()
            };
            assert_eq!(names(&library)[..before.symbol_count], names(&before));
        }
    }

    /// Tests that damaged files are accepted or refused without a panic and in bounded memory. `ANYFN_FUZZ_SECONDS` is
    /// the duration of the test in seconds.
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
            let dynamic = Library::parse(&file).unwrap().dynamic;
            for _ in 0..1 + next() % 6 {
                let at = match next() % 4 {
                    0 => next() % file.len(),
                    1 => next() % file.len().min(0x400),
                    2 => dynamic.0 + next() % dynamic.1.max(1),
                    _ => next() % HEADER_SIZE,
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

    /// Discards the result of [`put`], which leaves the file unchanged if the location is out of bounds.
    fn fine(_put: bool) {}
}
