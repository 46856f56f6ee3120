//! Tests that each damaged library is refused with a specific reason before any of its code runs. A damaged
//! library must never end the process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyfn_loader as _;
use anyfn_random::Random;

mod support;
use support::{compile, fails, load, scratch};

/// C source of a library with functions, data, thread-local data, constructors, imported symbols and symbol
/// versions.
const SOURCE: &str = r#"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
static __thread int counter;
static int started;
__attribute__((constructor)) static void start(void) { started = 1; if (getenv("ANYFN_TEST_MARK")) puts("code has run"); fflush(stdout); }
__attribute__((destructor)) static void stop(void) { started = 0; }
static int add(int a, int b) { return a + b; }
int (*table[])(int, int) = {add, add};
const char* names[] = {"a", "b"};
int __tvm_ffi_f(void* self, const void* args, int n, void* out) {
  (void)self; (void)args; (void)out;
  return (int)(sin((double)n) * 0.0) + table[n & 1](counter++, started) * 0 + (names[0] == 0);
}
"#;

fn library() -> Option<(Vec<u8>, Layout)> {
    // Compiled once, because the tests run at the same time.
    static CONTENT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let flags = ["-lm", "-Wl,--hash-style=both", "-Wl,-z,norelro", "-Wl,-init,__tvm_ffi_f"];
    let content =
        CONTENT.get_or_init(|| Some(fs::read(compile("damage", SOURCE, &flags)?).unwrap())).clone()?;
    let layout = Layout::of(&content);
    Some((content, layout))
}

/// File offsets of the headers, dynamic entries and loadable segments of a library file.
struct Layout {
    /// Type and file offset of each program header.
    headers: Vec<(u32, usize)>,
    /// Tag and file offset of each entry of the dynamic section.
    dynamic: Vec<(u64, usize)>,
    /// Address, file offset and size of each loadable segment (`PT_LOAD`).
    loads: Vec<(u64, u64, u64)>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Layout {
    fn of(bytes: &[u8]) -> Layout {
        let start = u64_at(bytes, 32) as usize;
        let headers: Vec<_> =
            (0..u16_at(bytes, 56) as usize).map(|i| start + 56 * i).map(|at| (u32_at(bytes, at), at)).collect();
        let loads = headers
            .iter()
            .filter(|(kind, _)| *kind == 1)
            .map(|(_, at)| (u64_at(bytes, at + 16), u64_at(bytes, at + 8), u64_at(bytes, at + 32)))
            .collect();
        let section = headers.iter().find(|(kind, _)| *kind == 2).unwrap().1;
        let (from, size) = (u64_at(bytes, section + 8) as usize, u64_at(bytes, section + 32) as usize);
        let dynamic = (from..from + size).step_by(16).map(|at| (u64_at(bytes, at), at)).collect();
        Layout { headers, dynamic, loads }
    }

    /// Returns the file offset of the `n`-th program header of type `kind`.
    fn header(&self, kind: u32, n: usize) -> usize {
        self.headers.iter().filter(|(k, _)| *k == kind).nth(n).unwrap().1
    }

    /// Returns the file offset of the value of the entry `tag` in the dynamic section.
    fn entry(&self, tag: u64) -> usize {
        self.dynamic.iter().find(|(t, _)| *t == tag).unwrap_or_else(|| panic!("no dynamic entry {tag}")).1 + 8
    }

    /// Returns the file offset of the data to which the entry `tag` in the dynamic section points.
    fn target(&self, bytes: &[u8], tag: u64) -> usize {
        let address = u64_at(bytes, self.entry(tag));
        let (base, offset, _) =
            self.loads.iter().find(|(base, _, size)| (*base..base + size).contains(&address)).unwrap();
        (address - base + offset) as usize
    }
}

const DYNAMIC: u32 = 2;
const LOAD: u32 = 1;
const TLS: u32 = 7;

/// Tags of the entries in the dynamic section.
mod tag {
    pub(crate) const NEEDED: u64 = 1;
    pub(crate) const PLTRELSZ: u64 = 2;
    pub(crate) const PLTGOT: u64 = 3;
    pub(crate) const HASH: u64 = 4;
    pub(crate) const STRTAB: u64 = 5;
    pub(crate) const SYMTAB: u64 = 6;
    pub(crate) const RELA: u64 = 7;
    pub(crate) const RELASZ: u64 = 8;
    pub(crate) const RELAENT: u64 = 9;
    pub(crate) const STRSZ: u64 = 10;
    pub(crate) const SYMENT: u64 = 11;
    pub(crate) const INIT: u64 = 12;
    pub(crate) const PLTREL: u64 = 20;
    pub(crate) const JMPREL: u64 = 23;
    pub(crate) const INIT_ARRAY: u64 = 25;
    pub(crate) const INIT_ARRAYSZ: u64 = 27;
    pub(crate) const GNU_HASH: u64 = 0x6fff_fef5;
    pub(crate) const RELACOUNT: u64 = 0x6fff_fff9;
    pub(crate) const VERSYM: u64 = 0x6fff_fff0;
    pub(crate) const VERNEED: u64 = 0x6fff_fffe;
}

/// Function that returns the changes that damage a library file, as pairs of a file offset and the bytes to
/// write there.
type Patch = fn(&[u8], &Layout) -> Vec<(usize, Vec<u8>)>;

fn word(at: usize, value: u64) -> Vec<(usize, Vec<u8>)> {
    vec![(at, value.to_le_bytes().to_vec())]
}
fn half(at: usize, value: u32) -> Vec<(usize, Vec<u8>)> {
    vec![(at, value.to_le_bytes().to_vec())]
}
fn short(at: usize, value: u16) -> Vec<(usize, Vec<u8>)> {
    vec![(at, value.to_le_bytes().to_vec())]
}

/// Address far outside of any library.
const FAR: u64 = 0x7000_0000_0000;

/// Kinds of damage to a library file: name, change, and a part of the expected error message.
const DAMAGES: &[(&str, Patch, &str)] = &[
    // The header.
    ("magic", |_, _| vec![(0, b"ELF\x7f".to_vec())], "a file of another format"),
    ("class", |_, _| vec![(4, vec![1])], "32-bit"),
    ("order", |_, _| vec![(5, vec![2])], "big-endian"),
    ("version", |_, _| vec![(6, vec![9])], "of the unknown version 9"),
    ("arm", |_, _| short(18, 40), "it is a library for ARM"),
    ("hexagon", |_, _| short(18, 164), "it is a library for Hexagon"),
    ("no machine", |_, _| short(18, 0xffff), "machine number 65535"),
    ("object file", |_, _| short(16, 1), "link it with -shared"),
    ("program", |_, _| short(16, 2), "it is a program"),
    ("core dump", |_, _| short(16, 4), "a core dump"),
    ("other type", |_, _| short(16, 0xfe00), "an ELF file of type 65024"),
    ("no program headers", |_, _| short(56, 0), "no PT_LOAD"),
    ("program headers outside", |_, _| word(32, FAR), "its program headers end at byte"),
    ("program headers overflow", |_, _| word(32, u64::MAX - 8), "the size of its program headers overflows"),
    ("section headers outside", |_, _| word(40, FAR), "its section headers end at byte"),
    ("size of program headers", |_, _| short(54, 32), "program header"),
    // Program headers.
    ("segment outside", |_, l| word(l.header(LOAD, 0) + 32, FAR), "segments end at byte"),
    ("segment overflows", |_, l| word(l.header(LOAD, 0) + 8, u64::MAX - 7), "segments overflows"),
    (
        "more in the file than in memory",
        |_, l| word(l.header(LOAD, 0) + 40, 1),
        "more bytes in the file than in memory",
    ),
    (
        "segment that cannot be read",
        |_, l| half(l.header(LOAD, 0) + 4, 0),
        "is not readable, or has unknown flags",
    ),
    (
        "huge memory",
        |_, l| word(l.header(LOAD, 3) + 40, 1 << 50),
        "requires more memory than the address space has",
    ),
    ("memory overflows", |_, l| word(l.header(LOAD, 3) + 40, u64::MAX), "has a size that overflows"),
    ("alignment no power of two", |_, l| word(l.header(LOAD, 0) + 48, 0x1001), "violates its own alignment"),
    (
        "address not aligned",
        |b, l| {
            let at = l.header(LOAD, 1) + 16;
            word(at, u64_at(b, at) + 8)
        },
        "violates its own alignment",
    ),
    ("overlapping segments", |_, l| word(l.header(LOAD, 1) + 16, 0), "overlaps the previous one in memory"),
    ("nothing to load", |_, l| (0..4).flat_map(|i| half(l.header(LOAD, i), 0)).collect(), "no PT_LOAD"),
    ("no dynamic section", |_, l| half(l.header(DYNAMIC, 0), 0), "it has no dynamic section"),
    ("two dynamic sections", |_, l| half(l.header(TLS, 0), DYNAMIC), "a second dynamic section"),
    ("empty dynamic section", |_, l| word(l.header(DYNAMIC, 0) + 32, 0), "an empty dynamic section"),
    (
        "dynamic section outside",
        |_, l| word(l.header(DYNAMIC, 0) + 16, FAR),
        "its dynamic section is outside of the loaded segments",
    ),
    ("thread-local storage", |_, l| word(l.header(TLS, 0) + 40, 0), "thread-local storage"),
    // The dynamic section.
    ("endless dynamic section", |_, l| word(l.header(DYNAMIC, 0) + 32, 16), "its dynamic section has no end"),
    ("names outside", |_, l| word(l.entry(tag::STRTAB), FAR), "its names lie outside"),
    (
        "names without end",
        |b, l| {
            let at = l.entry(tag::STRSZ);
            word(at, u64_at(b, at) - 1)
        },
        "its dynamic string table does not end with a NUL byte",
    ),
    ("huge names", |_, l| word(l.entry(tag::STRSZ), u64::MAX), "its names lie outside"),
    (
        "needed library",
        |_, l| word(l.entry(tag::NEEDED), FAR),
        "the name of a needed library is not in the dynamic string table",
    ),
    ("symbols outside", |_, l| word(l.entry(tag::SYMTAB), FAR), "its symbols lie outside"),
    ("size of symbols", |_, l| word(l.entry(tag::SYMENT), 16), "expected 24 as the size of a symbol, got 16"),
    (
        "no symbols",
        |_, l| word(l.entry(tag::SYMTAB) - 8, 0x6fff_0000),
        "it has only one of the dynamic entries 6 and 11",
    ),
    ("no names", |_, l| word(l.entry(tag::STRTAB) - 8, 0x6fff_0000), "it has no dynamic string table"),
    (
        "no index",
        |_, l| {
            [word(l.entry(tag::HASH) - 8, 0x6fff_0000), word(l.entry(tag::GNU_HASH) - 8, 0x6fff_0001)].concat()
        },
        "it has no symbol hash table",
    ),
    ("index outside", |_, l| word(l.entry(tag::GNU_HASH), FAR), "its symbol hash tables lie outside"),
    ("empty index", |b, l| half(l.target(b, tag::HASH), 0), "its symbol hash table is empty"),
    ("huge index", |b, l| half(l.target(b, tag::HASH), u32::MAX), "its symbol hash tables lie outside"),
    (
        "index of symbols that are not there",
        |b, l| half(l.target(b, tag::HASH) + 8, 0x7fff_ffff),
        "refers to symbols that do not exist",
    ),
    (
        "index that goes in circles",
        |b, l| {
            let at = l.target(b, tag::HASH);
            let n = u32_at(b, at) as usize;
            let start = u32_at(b, at + 8) as usize;
            half(at + 8 + 4 * (n + start), start as u32)
        },
        "contains a cycle",
    ),
    ("index sizes", |b, l| half(l.target(b, tag::GNU_HASH) + 8, 3), "invalid sizes"),
    ("indices that do not agree", |b, l| half(l.target(b, tag::HASH) + 4, 2), "symbol"),
    ("start function", |_, l| word(l.entry(tag::INIT), 0x10), "its initialization function is not in its code"),
    (
        "start functions outside",
        |_, l| word(l.entry(tag::INIT_ARRAY), FAR),
        "lists of initialization and termination functions",
    ),
    (
        "one start function too many",
        |_, l| word(l.entry(tag::INIT_ARRAYSZ), 40),
        "an initialization or termination function is not in its code",
    ),
    (
        "unwind table outside",
        |_, l| word(l.header(0x6474_e550, 0) + 16, FAR),
        "its unwind table is outside of the loaded segments",
    ),
    (
        "an entry twice",
        |_, l| word(l.entry(tag::RELACOUNT) - 8, tag::RELAENT),
        "it has the dynamic entry 9 twice",
    ),
    (
        "relocation of data as a function",
        |b, l| {
            vec![(
                l.target(b, tag::SYMTAB) + 24 * u32_at(b, l.target(b, tag::JMPREL) + 12) as usize + 4,
                vec![0x11],
            )]
        },
        "as a function, which it is not",
    ),
    (
        "code without bytes",
        |b, l| {
            let at = l.header(LOAD, 1) + 32;
            word(at, u64_at(b, at) - 16)
        },
        "fewer bytes in the file than in memory",
    ),
    (
        "segments that share bytes",
        |b, l| {
            let at = l.header(LOAD, 1) + 8;
            word(at, u64_at(b, at) - 0x1000)
        },
        "overlaps the previous one in the file",
    ),
    (
        "half a start function",
        |_, l| word(l.entry(tag::INIT_ARRAYSZ), 12),
        "lists of initialization and termination functions",
    ),
    ("relocations outside", |_, l| word(l.entry(tag::RELA), FAR), "its relocations lie outside"),
    ("half a relocation", |_, l| word(l.entry(tag::RELASZ), 25), "its last relocation is incomplete"),
    (
        "size of relocations",
        |_, l| word(l.entry(tag::RELAENT), 8),
        "expected 24 as the size of a relocation, got 8",
    ),
    (
        "relocations without size",
        |_, l| word(l.entry(tag::RELASZ) - 8, 0x6fff_0000),
        "it has only one of the dynamic entries",
    ),
    (
        "relative relocations",
        |_, l| word(l.entry(tag::RELACOUNT), 1 << 40),
        "fewer relative relocations than it declares",
    ),
    (
        "version of a library that is not needed",
        |_, l| word(l.entry(tag::NEEDED) - 8, 0x6fff_0000),
        "which is not one of its needed libraries",
    ),
    (
        "table of function addresses",
        |_, l| word(l.entry(tag::PLTGOT), 0x10),
        "table of function addresses (DT_PLTGOT) is not in its data",
    ),
    ("huge relocations", |_, l| word(l.entry(tag::RELASZ), 24 << 40), "its relocations lie outside"),
    ("PLT relocation of nothing", |b, l| half(l.target(b, tag::JMPREL) + 8, 0), "is not allowed for the PLT"),
    (
        "symbols without versions",
        |_, l| word(l.entry(tag::VERSYM) - 8, 0x6fff_0000),
        "its symbols have no versions",
    ),
    ("PLT relocations outside", |_, l| word(l.entry(tag::JMPREL), FAR), "its relocations lie outside"),
    ("half a PLT relocation", |_, l| word(l.entry(tag::PLTRELSZ), 1), "its last relocation is incomplete"),
    ("kind of PLT relocations", |_, l| word(l.entry(tag::PLTREL), 17), "kind of PLT relocations"),
    (
        "relocation place",
        |b, l| word(l.target(b, tag::RELA), FAR),
        "relocation 0 writes outside of the library's data",
    ),
    (
        "relocation of code",
        |b, l| word(l.target(b, tag::RELA), 0),
        "relocation 0 writes outside of the library's data",
    ),
    ("relocation type", |b, l| half(l.target(b, tag::RELA) + 8, 250), "relocation 0 has type 250"),
    (
        "relocation of a program",
        |b, l| half(l.target(b, tag::RELA) + 8, 5),
        "relocation 0 is a copy relocation",
    ),
    (
        "relocation symbol",
        |b, l| half(l.target(b, tag::RELA) + 12, 0x00ff_ffff),
        "relocation 0 refers to symbol 16777215, but",
    ),
    (
        "start function is no code",
        |b, l| word(l.target(b, tag::RELA) + 16, 0),
        "relocation 0 sets an initialization or termination function that is not in its code",
    ),
    (
        "relocation asks no code",
        |b, l| {
            half(l.target(b, tag::RELA) + 8, 37)
                .into_iter()
                .chain(word(l.target(b, tag::RELA) + 16, FAR))
                .collect()
        },
        "relocation 0 calls a resolver function that is not in its code",
    ),
    ("symbol name", |b, l| half(l.target(b, tag::SYMTAB) + 24, u32::MAX), "symbol 1 has no name"),
    (
        "symbol kind",
        |b, l| vec![(l.target(b, tag::SYMTAB) + 28, vec![0x5f])],
        "symbol 1 has an invalid type or binding",
    ),
    ("symbol version", |b, l| short(l.target(b, tag::VERSYM) + 2, 0x7ffe), "symbol 1 has an undefined version"),
    ("versions outside", |_, l| word(l.entry(tag::VERNEED), FAR), "its versions lie outside"),
    ("version name", |b, l| half(l.target(b, tag::VERNEED) + 4, u32::MAX), "its table of versions is invalid"),
    ("symbol outside", |b, l| word(defined(b, l) + 8, FAR), "(__tvm_ffi_f) is outside of the loaded segments"),
    (
        "symbol too large",
        |b, l| word(defined(b, l) + 16, u64::MAX),
        "(__tvm_ffi_f) is outside of the loaded segments",
    ),
    (
        "symbol chosen by data",
        |b, l| vec![(defined(b, l) + 4, vec![0x1a]), (defined(b, l) + 8, 0u64.to_le_bytes().to_vec())],
        "has a resolver function that is not in its code",
    ),
    (
        "symbol in thread-local storage",
        |b, l| vec![(defined(b, l) + 4, vec![0x16])],
        "is outside of the thread-local storage",
    ),
];

/// Returns the file offset of the symbol table entry of the function `f`.
fn defined(bytes: &[u8], layout: &Layout) -> usize {
    let (symbols, names) = (layout.target(bytes, tag::SYMTAB), layout.target(bytes, tag::STRTAB));
    let name = |at: usize| {
        let from = names + u32_at(bytes, at) as usize;
        bytes[from..].split(|b| *b == 0).next().unwrap()
    };
    (1..).map(|i| symbols + 24 * i).find(|at| name(*at) == b"__tvm_ffi_f").unwrap()
}

#[test]
fn each_damage_is_refused_with_its_own_reason() {
    let Some((whole, layout)) = library() else { return };
    let mut wrong = Vec::new();
    for (name, patch, part) in DAMAGES {
        let mut content = whole.clone();
        for (at, bytes) in patch(&whole, &layout) {
            content[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        assert_ne!(content, whole, "{name} changes nothing");
        let path = scratch(&format!("damage-{}.so", name.replace(' ', "-")));
        fs::write(&path, content).unwrap();
        // In a separate process, so that a damage that is not refused ends only that process.
        let (said, printed) = load_elsewhere(&path);
        if !said.contains(part) || printed.contains("code has run") {
            wrong.push(format!("{name}: expected `{part}`, got: {said} {printed}"));
        }
        fs::remove_file(&path).unwrap();
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), DAMAGES.len(), wrong.join("\n"));
    assert!(DAMAGES.len() >= 60);
}

#[test]
fn a_library_that_is_cut_off_anywhere_is_refused() {
    let Some((whole, layout)) = library() else { return };
    let mut ends: Vec<usize> = (0..64).chain((64..whole.len()).step_by(97)).collect();
    ends.extend(
        layout
            .loads
            .iter()
            .flat_map(|(_, offset, size)| [*offset, offset + size - 1, offset + size / 2])
            .map(|end| end as usize),
    );
    // At the beginning, in the middle and before the last byte of each section, except sections without bytes in the file.
    let sections = u64_at(&whole, 40) as usize;
    let section = |i: usize| {
        let at = sections + 64 * i;
        (u32_at(&whole, at + 4), u64_at(&whole, at + 24) as usize, u64_at(&whole, at + 32) as usize)
    };
    let in_file = (0..u16_at(&whole, 60) as usize).map(section).filter(|(kind, ..)| ![0, 8].contains(kind));
    ends.extend(in_file.flat_map(|(_, offset, size)| [offset, offset + size / 2, offset + size - 1]));
    for end in ends {
        let path = scratch(&format!("cut-{end}.so"));
        fs::write(&path, &whole[..end]).unwrap();
        fails(
            load(&path),
            "RuntimeError",
            if end == 0 {
                "the file is empty"
            } else if end < 4 {
                "format"
            } else {
                "truncated"
            },
        );
        fs::remove_file(&path).unwrap();
    }
}

/// Tests that a library without section headers, as `sstrip` produces it, can be loaded. The
/// dynamic loader needs no section headers.
#[test]
fn section_headers_are_not_needed() {
    let Some((mut content, _)) = library() else { return };
    content[40..48].fill(0);
    content[58..64].fill(0);
    let path = scratch("no-sections.so");
    fs::write(&path, content).unwrap();
    let module = load(&path).unwrap();
    module.get_function("f").unwrap().call(()).unwrap();
}

/// Changes random bytes that the dynamic loader reads. Tests that each changed library is refused with an
/// error or can be loaded.
#[test]
fn random_damage_does_not_end_the_process() {
    let Some((whole, layout)) = library() else { return };
    let rounds = anyfn_random::setting("ANYFN_DAMAGE_ROUNDS", 60) as usize;
    // Everything before the code (headers, names, symbols, indices, relocations), and the dynamic section.
    let code = layout.loads[1].1 as usize;
    let section = layout.header(DYNAMIC, 0);
    let dynamic = u64_at(&whole, section + 8) as usize
        ..(u64_at(&whole, section + 8) + u64_at(&whole, section + 32)) as usize;
    let places: Vec<usize> = (0..code.min(whole.len())).filter(|at| whole[*at] != 0).chain(dynamic).collect();
    // Bytes that select code or data are excluded like code itself, because no check can tell a wrong address from a right one.
    let relocations = [tag::RELA, tag::JMPREL].map(|t| layout.target(&whole, t));
    let sizes = [tag::RELASZ, tag::PLTRELSZ].map(|t| u64_at(&whole, layout.entry(t)) as usize);
    let symbols = layout.target(&whole, tag::SYMTAB)..layout.target(&whole, tag::STRTAB);
    let names_code = |at: &usize| {
        (0..2).any(|i| {
            (relocations[i]..relocations[i] + sizes[i]).contains(at)
                && !(8..12).contains(&((*at - relocations[i]) % 24))
        }) || symbols.contains(at) && ![4, 5, 6, 7].contains(&((*at - symbols.start) % 24))
            || (symbols.end..symbols.end + u64_at(&whole, layout.entry(tag::STRSZ)) as usize).contains(at)
            || [tag::INIT, tag::INIT + 1, tag::INIT_ARRAY, tag::INIT_ARRAY + 1]
                .iter()
                .any(|t| (layout.entry(*t)..layout.entry(*t) + 8).contains(at))
    };
    let places: Vec<usize> = places.into_iter().filter(|at| !names_code(at)).collect();
    let mut random = Random::from_env();
    let (mut died, mut refused) = (Vec::new(), 0);
    for round in 0..rounds {
        let mut content = whole.clone();
        let changes: Vec<(usize, u8)> =
            (0..1 + random.below(3)).map(|_| (random.pick(&places), random.byte())).collect();
        for (at, byte) in &changes {
            content[*at] = *byte;
        }
        let path = scratch(&format!("random-{round}.so"));
        fs::write(&path, content).unwrap();
        let (said, _) = load_elsewhere(&path);
        if said.contains("signal") {
            died.push(format!("{changes:x?}: {said}"));
        } else if !said.contains("loaded") {
            refused += 1;
        }
        fs::remove_file(&path).unwrap();
    }
    eprintln!("{rounds} rounds: {refused} refused, {} died\n{}", died.len(), died.join("\n"));
    // At most one in a thousand may end the process: consistent damage, such as one relocation fewer.
    assert!(died.len() * 1000 <= rounds, "{} of {rounds}", died.len());
}

/// Loads a file in another process. Returns the outcome and the output of the process.
fn load_elsewhere(path: &Path) -> (String, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loads_for_the_others", "--nocapture", "--test-threads=1"])
        .env("ANYFN_TEST_LOAD", path)
        .env("ANYFN_TEST_MARK", "1")
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = printed.lines().find_map(|line| line.split_once("result: ").map(|(_, said)| said.to_owned()));
    (said.unwrap_or_else(|| format!("signal or exit: {}", output.status)), printed)
}

/// Loads the damaged file in a process that [`load_elsewhere`] has started.
#[test]
fn loads_for_the_others() {
    let Some(path) = std::env::var_os("ANYFN_TEST_LOAD") else { return };
    match load(Path::new(&path)) {
        Ok(_) => println!("\nresult: loaded"),
        Err(error) => println!("\nresult: {}", error.message()),
    }
    // The library stays loaded: its termination functions must not run, because the file is damaged.
    std::process::exit(0);
}

/// Tests that a small file cannot make the reader use much memory by giving all symbols the same long name.
#[test]
fn one_long_name_for_all_symbols_is_refused() {
    let mut source = String::from("int ");
    source.extend(std::iter::repeat_n('x', 60_000));
    source.push_str(";\n");
    for n in 0..3000 {
        source.push_str(&format!("int v{n};\n"));
    }
    let Some(path) = compile("long_name", &source, &[]) else { return };
    assert!(load(&path).is_ok());
    let mut content = fs::read(path).unwrap();
    let layout = Layout::of(&content);
    let (names, symbols) = (layout.target(&content, tag::STRTAB), layout.target(&content, tag::SYMTAB));
    let long =
        content[names..].windows(100).position(|part| part.iter().all(|byte| *byte == b'x')).unwrap() as u32;
    for symbol in 1..3000 {
        let at = symbols + 24 * symbol;
        content[at..at + 4].copy_from_slice(&long.to_le_bytes());
    }
    let damaged = scratch("long_name_for_all.so");
    fs::write(&damaged, content).unwrap();
    fails(load(&damaged), "RuntimeError", "its symbol names are too long");
}
