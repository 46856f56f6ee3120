//! Checks of relocations. A relocation makes the dynamic loader write a value to an address. An invalid
//! relocation could overwrite any memory or redirect any call.

use object::elf::{self, Rela64};
use object::{LittleEndian as LE, U64};

use super::dynamic::Dynamic;
use super::image::Image;
use super::symbols::Symbols;

/// Kind of a relocation, by the value that the dynamic loader writes for it.
#[derive(Clone, Copy, PartialEq)]
enum RelocationKind {
    Nothing,
    /// Relocation whose value is an eight-byte address within the library itself.
    Relative,
    /// Relocation whose value is an address that a function of the library returns (`IRELATIVE`).
    Computed,
    /// Relocation whose value has eight bytes and depends on a symbol, such as the symbol's address.
    Word,
    /// Relocation that fills a slot of the PLT: its value is the address of a function that the library calls
    /// (`JUMP_SLOT`).
    Slot,
    /// Relocation whose value is a module number or an offset of thread-local storage, in eight bytes.
    ThreadLocal,
    /// Relocation whose value has four bytes and depends on a symbol.
    Half,
    /// Relocation whose value is a descriptor of thread-local storage, in sixteen bytes (`TLSDESC`).
    Pair,
    /// Relocation that copies the content of another library's variable. Only executables have such
    /// relocations.
    Copy,
}

fn kind(number: u32) -> Option<RelocationKind> {
    if cfg!(target_arch = "x86_64") {
        Some(match number {
            elf::R_X86_64_NONE => RelocationKind::Nothing,
            elf::R_X86_64_RELATIVE | elf::R_X86_64_RELATIVE64 => RelocationKind::Relative,
            elf::R_X86_64_IRELATIVE => RelocationKind::Computed,
            elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_SIZE64 | elf::R_X86_64_PC64 => {
                RelocationKind::Word
            }
            elf::R_X86_64_JUMP_SLOT => RelocationKind::Slot,
            elf::R_X86_64_DTPMOD64 | elf::R_X86_64_DTPOFF64 | elf::R_X86_64_TPOFF64 => {
                RelocationKind::ThreadLocal
            }
            elf::R_X86_64_32 | elf::R_X86_64_PC32 | elf::R_X86_64_SIZE32 => RelocationKind::Half,
            elf::R_X86_64_TLSDESC => RelocationKind::Pair,
            elf::R_X86_64_COPY => RelocationKind::Copy,
            _ => return None,
        })
    } else {
        // Other machines are not distinguished: the location is checked as a word.
        Some(if number == 0 { RelocationKind::Nothing } else { RelocationKind::Word })
    }
}

/// Checks all relocations of a library. An error states what is wrong with the first invalid one.
pub(super) fn check<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>, symbols: &Symbols) -> Result<(), String> {
    let [general, plt] = dynamic.relocation_tables(image)?;
    for (table, is_plt) in [(general, false), (plt, true)] {
        for (index, relocation) in table.iter().enumerate() {
            one(image, dynamic, symbols, relocation, is_plt)
                .map_err(|what| format!("the file is damaged: relocation {index} {what}"))?;
        }
    }
    let first = usize::try_from(dynamic.relative_count).ok().and_then(|count| general.get(..count));
    let is_relative =
        |relocation: &Rela64<LE>| kind(relocation.r_type(LE, false)) == Some(RelocationKind::Relative);
    if !first.is_some_and(|first| !cfg!(target_arch = "x86_64") || first.iter().all(is_relative)) {
        return Err("the file is damaged: it has fewer relative relocations than it declares".to_owned());
    }
    relative(image, dynamic)?;
    run_lists(image, dynamic, [general, plt])
}

/// Checks that a relocation sets the address of each function that runs when the library is loaded or unloaded.
fn run_lists<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>, tables: [&[Rela64<LE>]; 2]) -> Result<(), String> {
    let mut slots: Vec<u64> = Vec::new();
    for (at, size) in [dynamic.start, dynamic.end] {
        /// Maximum size of a list of initialisation or termination functions in bytes. Real lists are much
        /// shorter.
        const SIZE_MAX: u64 = 1 << 24;
        if size > SIZE_MAX {
            return Err(
                "the file is damaged: it has too many initialization or termination functions".to_owned()
            );
        }
        slots.extend((at..at + size).step_by(8));
    }
    slots.sort_unstable();
    let mut relocated = vec![false; slots.len()];
    let mut mark = |place: u64| {
        if let Ok(at) = slots.binary_search(&place) {
            relocated[at] = true;
        }
    };
    tables.into_iter().flatten().for_each(|relocation| mark(relocation.r_offset.get(LE)));
    let mut in_code = true;
    each_relative(dynamic.relative_table(image)?, |place| {
        if slots.binary_search(&place).is_ok() {
            // With these relocations the address is in the file.
            let word = image.bytes(place, 8, "initialization and termination functions")?;
            in_code &= image.is_code(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        mark(place);
        Ok(())
    })?;
    if !in_code || relocated.contains(&false) {
        return Err(
            "the file is damaged: an initialization or termination function is not in its code".to_owned()
        );
    }
    Ok(())
}

fn one<'d>(
    image: &Image<'d>,
    dynamic: &Dynamic<'d>,
    symbols: &Symbols,
    relocation: &Rela64<LE>,
    is_plt: bool,
) -> Result<(), String> {
    let (number, symbol) = (relocation.r_type(LE, false), relocation.r_sym(LE, false));
    let Some(kind) = kind(number) else {
        return Err(format!("has type {number}, which is unknown on this architecture"));
    };
    if is_plt
        && cfg!(target_arch = "x86_64")
        && !matches!(kind, RelocationKind::Slot | RelocationKind::Computed | RelocationKind::Pair)
    {
        return Err(format!("has type {number}, which is not allowed for the PLT"));
    }
    let (place, target) = (relocation.r_offset.get(LE), relocation.r_addend.get(LE) as u64);
    let size = match kind {
        RelocationKind::Nothing => return Ok(()),
        RelocationKind::Copy => {
            return Err("is a copy relocation, which is allowed in programs only".to_owned());
        }
        RelocationKind::Half => 4,
        RelocationKind::Pair => 16,
        _ => 8,
    };
    if u64::from(symbol) >= symbols.count {
        return Err(format!("refers to symbol {symbol}, but the library has {} symbols", symbols.count));
    }
    let may_write =
        image.is_writable(place, size) || dynamic.text_relocations && image.is_in_memory(place, size);
    if !may_write {
        return Err("writes outside of the library's data".to_owned());
    }
    let (section, length) = image.dynamic;
    if place < section + length && section < place + size {
        return Err("writes into the dynamic section".to_owned());
    }
    let target_kind = symbols.kinds.get(symbol as usize).copied().unwrap_or_default();
    if kind == RelocationKind::Slot
        && !matches!(target_kind, elf::STT_NOTYPE | elf::STT_FUNC | elf::STT_GNU_IFUNC)
    {
        return Err(format!("uses symbol {symbol} as a function, which it is not"));
    }
    let is_thread_local = matches!(kind, RelocationKind::ThreadLocal | RelocationKind::Pair);
    if is_thread_local && symbol != 0 && !matches!(target_kind, elf::STT_TLS | elf::STT_SECTION) {
        return Err(format!("uses symbol {symbol} as thread-local storage, which it is not"));
    }
    if symbol == 0 && image.thread_local == 0 && is_thread_local {
        return Err("refers to thread-local storage, but the library has none".to_owned());
    }
    if kind == RelocationKind::Computed && !image.is_code(target) {
        return Err("calls a resolver function that is not in its code".to_owned());
    }
    let runs = |(at, size): (u64, u64)| place >= at && place < at.saturating_add(size);
    if kind == RelocationKind::Relative && (runs(dynamic.start) || runs(dynamic.end)) && !image.is_code(target)
    {
        return Err("sets an initialization or termination function that is not in its code".to_owned());
    }
    Ok(())
}

/// Checks the relative relocations in compact form. Their table contains addresses, and bit maps for the words that
/// follow each address.
fn relative<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>) -> Result<(), String> {
    each_relative(dynamic.relative_table(image)?, |place| match image.is_writable(place, 8) {
        true => Ok(()),
        false => {
            Err("the file is damaged: a relative relocation writes outside of the library's data".to_owned())
        }
    })
}

fn each_relative(table: &[U64<LE>], mut visit: impl FnMut(u64) -> Result<(), String>) -> Result<(), String> {
    let mut next: u64 = 0;
    for entry in table {
        let entry = entry.get(LE);
        if entry & 1 == 0 {
            visit(entry)?;
            next = entry.wrapping_add(8);
            continue;
        }
        for bit in (0..63).filter(|bit| entry >> (bit + 1) & 1 == 1) {
            visit(next.wrapping_add(8 * bit))?;
        }
        next = next.wrapping_add(63 * 8);
    }
    Ok(())
}
