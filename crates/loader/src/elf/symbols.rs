//! Symbols in the dynamic symbol table of a library: the symbols that the library defines, and the symbols
//! that other libraries must define.

use object::elf::{self, Sym64};
use object::read::elf::Sym;
use object::{LittleEndian as LE, U16Bytes, U32, U64};

use super::dynamic::Dynamic;
use super::image::Image;
use crate::message::{CHECKS, refused, short};

/// A symbol of the dynamic symbol table.
#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    /// Address of the symbol's name according to the file, to which the load bias is added in
    /// memory.
    pub(crate) name_at: u64,
    /// Version of the symbol, such as `GLIBC_2.34`. For an undefined symbol, this is the version that the
    /// library requires. Empty if the symbol has no version.
    pub(crate) version: String,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) is_weak: bool,
    /// True if the symbol has a single definition in the whole process (`STB_GNU_UNIQUE`). A
    /// library that defines such a symbol is never unmapped.
    pub(crate) is_unique: bool,
    pub(crate) is_code: bool,
}

/// Symbols of a library, and properties of its symbol table.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    pub(super) undefined: Vec<Symbol>,
    pub(super) defined: Vec<Symbol>,
    /// Number of entries of the symbol table, including the first entry, which is not a symbol.
    pub(super) count: u64,
    /// Type of each entry of the symbol table, as a constant `STT_*` of ELF.
    pub(super) kinds: Vec<u8>,
}

impl Symbols {
    /// Reads and checks the symbol table, its hash tables and the versions of symbols.
    pub(super) fn read<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>) -> Result<Symbols, String> {
        let Some(at) = dynamic.symbols else {
            return Err(refused!("the file is damaged: it has no symbol table"));
        };
        let count = count(image, dynamic)?;
        let table: &[Sym64<LE>] = image.table(at, count, "symbols")?;
        // Only descriptions of files and the complete checks need versions.
        let is_versioned = CHECKS || cfg!(feature = "inspect");
        let versions = if is_versioned { Versions::read(image, dynamic)? } else { Versions(Vec::new()) };
        let numbers: Option<&[U16Bytes<LE>]> = dynamic
            .symbol_versions
            .filter(|_| is_versioned)
            .map(|at| image.table(at, count, "symbol versions"))
            .transpose()?;
        let kinds = table.iter().filter(|_| CHECKS).map(Sym::st_type).collect();
        let mut symbols = Symbols { count, kinds, ..Symbols::default() };
        // Names may share their ends, so that together they may be longer than the string table, but not by much.
        let mut letters_left = dynamic.strings.len().saturating_mul(8).max(1 << 24);
        for (index, symbol) in table.iter().enumerate().skip(1) {
            let damaged = |what: &str| refused!("the file is damaged: symbol {index} {what}");
            let name = dynamic.text(symbol.st_name.get(LE)).ok_or_else(|| damaged("has no name"))?;
            let number = numbers.map_or(1, |numbers| numbers[index].get(LE));
            let version = versions.name(number).ok_or_else(|| damaged("has an undefined version"))?;
            letters_left = letters_left
                .checked_sub(name.len() + version.len())
                .ok_or_else(|| refused!("the file is damaged: its symbol names are too long"))?;
            let (kind, bind) = (symbol.st_type(), symbol.st_bind());
            let known = matches!(bind, elf::STB_LOCAL | elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE)
                && matches!(kind, elf::STT_NOTYPE..=elf::STT_TLS | elf::STT_GNU_IFUNC);
            let no_code = matches!(kind, elf::STT_SECTION | elf::STT_FILE | elf::STT_COMMON);
            if CHECKS && (!known || symbol.is_undefined(LE) && (bind == elf::STB_LOCAL || no_code)) {
                return Err(damaged("has an invalid type or binding"));
            }
            let found = Symbol {
                name: String::from_utf8_lossy(name).into_owned(),
                name_at: dynamic.strings_at.wrapping_add(symbol.st_name.get(LE).into()),
                version: version.to_owned(),
                address: symbol.st_value(LE),
                size: symbol.st_size(LE),
                is_weak: bind == elf::STB_WEAK,
                is_unique: bind == elf::STB_GNU_UNIQUE,
                is_code: matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE),
            };
            if symbol.is_undefined(LE) {
                symbols.undefined.push(found);
                continue;
            }
            if CHECKS {
                check_place(image, symbol, &found, damaged)?;
            }
            if bind != elf::STB_LOCAL {
                symbols.defined.push(found);
            }
        }
        Ok(symbols)
    }
}

/// Checks that a defined symbol lies in the library. `damaged` formats the error message.
fn check_place(
    image: &Image<'_>,
    symbol: &Sym64<LE>,
    found: &Symbol,
    damaged: impl Fn(&str) -> String,
) -> Result<(), String> {
    let kind = symbol.st_type();
    let shown = short(&found.name);
    if kind == elf::STT_GNU_IFUNC && !image.is_code(found.address) {
        return Err(damaged(&refused!("({shown}) has a resolver function that is not in its code")));
    }
    // Symbols such as `_end` lie just past the last byte.
    let is_absolute = symbol.st_shndx(LE) == elf::SHN_ABS;
    let reach = if kind == elf::STT_FUNC || kind == elf::STT_OBJECT { found.size } else { 0 };
    let is_there = || {
        image.is_in_memory(found.address, reach)
            || reach == 0 && image.is_in_memory(found.address.wrapping_sub(1), 1)
    };
    if kind == elf::STT_TLS {
        if found.address.checked_add(found.size).is_none_or(|end| end > image.thread_local) {
            return Err(damaged(&refused!("({shown}) is outside of the thread-local storage")));
        }
    } else if matches!(kind, elf::STT_FUNC | elf::STT_OBJECT | elf::STT_NOTYPE) && !is_absolute && !is_there() {
        return Err(damaged(&refused!("({shown}) is outside of the loaded segments")));
    }
    Ok(())
}

/// Returns the number of symbols. It is computed from the hash tables, because the file does not state it elsewhere.
fn count<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>) -> Result<u64, String> {
    let mut count = None;
    if let Some(at) = dynamic.hash {
        count = Some(plain_index(image, at)?);
    }
    if let Some(at) = dynamic.gnu_hash {
        let named = gnu_index(image, dynamic, at)?;
        match count {
            Some(count) if named > count => {
                return Err(refused!("the file is damaged: its two symbol hash tables contradict each other"));
            }
            Some(_) => {}
            None => count = Some(named),
        }
    }
    count.ok_or_else(|| {
        refused!("the file is damaged: it has no symbol hash table (neither DT_HASH nor DT_GNU_HASH)")
    })
}

const INDEX: &str = "symbol hash tables";

/// Checks the hash table of the older form (`DT_HASH`) at the address `at` and returns the number of symbols.
fn plain_index<'d>(image: &Image<'d>, at: u64) -> Result<u64, String> {
    let head: &[U32<LE>] = image.table(at, 2, INDEX)?;
    let (buckets, chains) = (u64::from(head[0].get(LE)), u64::from(head[1].get(LE)));
    if buckets == 0 {
        return Err(refused!("the file is damaged: its symbol hash table is empty"));
    }
    let words: &[U32<LE>] = image.table(at + 8, buckets + chains, INDEX)?;
    if words.iter().any(|word| u64::from(word.get(LE)) >= chains.max(1)) {
        return Err(refused!("the file is damaged: its symbol hash table refers to symbols that do not exist"));
    }
    if !CHECKS {
        return Ok(chains);
    }
    // A chain that returns to itself would never end.
    let chain = &words[buckets as usize..];
    let mut seen = vec![false; chain.len()];
    for start in &words[..buckets as usize] {
        let mut at = start.get(LE) as usize;
        while at != 0 {
            if core::mem::replace(&mut seen[at], true) {
                return Err(refused!("the file is damaged: its symbol hash table contains a cycle"));
            }
            at = chain[at].get(LE) as usize;
        }
    }
    Ok(chains)
}

/// Checks the hash table of the newer form (`DT_GNU_HASH`) at the address `at`. Returns the number of symbols, which is
/// one more than the highest symbol index in the table. If the table is empty, the highest symbol index in the
/// relocations is used instead.
fn gnu_index<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>, at: u64) -> Result<u64, String> {
    let head: &[U32<LE>] = image.table(at, 4, INDEX)?;
    let [buckets, base, bloom, shift] = [0, 1, 2, 3].map(|i: usize| u64::from(head[i].get(LE)));
    if buckets == 0 || !bloom.is_power_of_two() || shift > 63 {
        return Err(refused!("the file is damaged: its symbol hash table has invalid sizes"));
    }
    let _: &[U64<LE>] = image.table(at + 16, bloom, INDEX)?;
    let bucket_at = at + 16 + bloom * 8;
    let starts: &[U32<LE>] = image.table(bucket_at, buckets, INDEX)?;
    let highest = starts.iter().map(|start| u64::from(start.get(LE))).max().unwrap_or(0);
    if starts.iter().any(|start| start.get(LE) != 0 && u64::from(start.get(LE)) < base) {
        return Err(refused!("the file is damaged: its symbol hash table refers to symbols that do not exist"));
    }
    if highest == 0 {
        // No symbol is defined, so the index does not contain the number of undefined ones; the relocations
        // do.
        return Ok(base.max(1 + highest_relocated(image, dynamic)?));
    }
    // Reads from the highest start to the end of its chain, which an odd word marks.
    let chain_at = bucket_at + buckets * 4 + (highest - base) * 4;
    let rest = image.rest(chain_at, INDEX)?;
    let words = rest.as_chunks::<4>().0;
    match words.iter().position(|word| word[0] & 1 == 1) {
        Some(last) => Ok(highest + last as u64 + 1),
        None => Err(refused!("the file is damaged: its symbol hash table has no end")),
    }
}

/// Returns the highest index of a symbol that a relocation refers to.
fn highest_relocated<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>) -> Result<u64, String> {
    let relocations = dynamic.relocation_tables(image)?.into_iter().flatten();
    Ok(relocations.map(|relocation| relocation.r_sym(LE, false)).max().unwrap_or(0).into())
}

/// Names of symbol versions, each with the number that symbols use to refer to it. Sorted by number.
struct Versions<'d>(Vec<(u16, &'d [u8])>);

impl<'d> Versions<'d> {
    fn read(image: &Image<'d>, dynamic: &Dynamic<'d>) -> Result<Versions<'d>, String> {
        let damaged = || refused!("the file is damaged: its table of versions is invalid");
        let mut names = Vec::new();
        let name = |at: u32| dynamic.text(at).ok_or_else(damaged);
        let step = |at: u64, by: u32| at.checked_add(by.into()).ok_or_else(damaged);
        /// Maximum number of entries of a table of versions, which is a linked list. Version numbers have 15
        /// bits, so a list with more entries contains a cycle.
        const MAX: u64 = 1 << 15;
        let (mut at, number) = dynamic.needed_versions;
        for _ in 0..number.min(MAX) {
            let entry: &elf::Verneed<LE> = &image.table(at, 1, "versions")?[0];
            // The dynamic loader ends the process if such a library is not among the needed ones.
            let from = name(entry.vn_file.get(LE))?;
            if !dynamic.needed.iter().any(|needed| needed.as_bytes() == from) {
                let from = short(&String::from_utf8_lossy(from));
                return Err(refused!(
                    "the file is damaged: it requires versions of {from}, which is not one of its needed \
                     libraries"
                ));
            }
            let mut aux = step(at, entry.vn_aux.get(LE))?;
            for _ in 0..entry.vn_cnt.get(LE) {
                let version: &elf::Vernaux<LE> = &image.table(aux, 1, "versions")?[0];
                // There are no more version numbers than this.
                if names.len() > 0x8000 {
                    return Err(damaged());
                }
                names.push((version.vna_other.get(LE) & 0x7fff, name(version.vna_name.get(LE))?));
                if version.vna_next.get(LE) == 0 {
                    break;
                }
                aux = step(aux, version.vna_next.get(LE))?;
            }
            at = step(at, entry.vn_next.get(LE))?;
            if entry.vn_next.get(LE) == 0 {
                break;
            }
        }
        let (mut at, number) = dynamic.defined_versions;
        for _ in 0..number.min(MAX) {
            let entry: &elf::Verdef<LE> = &image.table(at, 1, "versions")?[0];
            if entry.vd_cnt.get(LE) == 0 {
                return Err(damaged());
            }
            let aux: &elf::Verdaux<LE> = &image.table(step(at, entry.vd_aux.get(LE))?, 1, "versions")?[0];
            names.push((entry.vd_ndx.get(LE) & 0x7fff, name(aux.vda_name.get(LE))?));
            at = step(at, entry.vd_next.get(LE))?;
            if entry.vd_next.get(LE) == 0 {
                break;
            }
        }
        anyfn::__private::sort_by(&mut names, |one, other| one.0.cmp(&other.0));
        Ok(Versions(names))
    }

    /// Returns the name of the version with the given number, or `None` if there is no such
    /// version. The numbers 0 and 1 mean that the symbol has no version; the name is then empty.
    fn name(&self, number: u16) -> Option<&'d str> {
        match number & 0x7fff {
            0 | 1 => Some(""),
            number => {
                let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
                Some(core::str::from_utf8(self.0[at].1).unwrap_or_default())
            }
        }
    }
}
