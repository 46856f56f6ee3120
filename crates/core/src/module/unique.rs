//! Separates the static data of C++ headers where two runtimes are in one process.
//!
//! The headers of the ABI keep type indices and the like in static variables of inline functions. g++ makes such
//! variables unique in the whole process (`STB_GNU_UNIQUE`), whichever library defines them, even in libraries that are
//! opened locally. Values that a library has received from this runtime would become the variables of another runtime
//! that is loaded later. Its indices are different, so it would end the process while it starts.
//!
//! The dynamic loader finds such variables by name, and the names are those in the memory of the library that came
//! first. So once a library is open and all its symbols are bound, those names are changed in memory, and libraries
//! that come later have variables of their own. Where that is not possible, nothing changes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::elf::{self, Facts};
use super::{dl, lease, load};

/// Prefixes of the names of variables in functions of the headers, and of their guards.
const OF_HEADERS: [&str; 4] = ["_ZZN3tvm3ffi", "_ZGVZN3tvm3ffi", "_ZZNK3tvm3ffi", "_ZGVZNK3tvm3ffi"];
/// Function in which every object class keeps its type index.
const TYPE_INDEX: &str = "_GetOrAllocRuntimeTypeIndex";

/// Hides the names of such variables in a C++ library that was just opened, and in the libraries that came with it.
pub(super) fn keep_apart(library: dl::Library, facts: &Facts, opening: &lease::Opening) {
    if !lease::is_cpp(facts) {
        return;
    }
    let Some(difference) = library.difference() else { return };
    hide(difference, facts);
    let own = difference.wrapping_add(facts.span.start as usize);
    for object in opening.came().into_iter().filter(|object| object.range.start != own) {
        let path = object.path.to_string_lossy();
        if is_of_system(path.rsplit('/').next().unwrap_or_default()) {
            continue;
        }
        let facts = load::find(&path).and_then(|(_, file, _)| elf::read_file(file, false));
        if let Ok(facts) = facts {
            hide(object.range.start.wrapping_sub(facts.span.start as usize), &facts);
        }
    }
}

/// Returns true for large libraries without such variables that often come with the first C++ library, and for
/// generated ones.
fn is_of_system(name: &str) -> bool {
    let known = ["libstdc++.", "libc++.", "libc++abi.", "libgcc_s.", "libm.", "libc."];
    known.iter().any(|begin| name.starts_with(begin)) || name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Hides the names in a library that is mapped at its addresses plus `difference`.
fn hide(difference: usize, facts: &Facts) {
    let is_of_headers =
        |name: &str| OF_HEADERS.iter().any(|begin| name.starts_with(begin)) || name.contains(TYPE_INDEX);
    let mut names = facts.defined.iter().filter(|s| s.is_unique && is_of_headers(&s.name)).peekable();
    if names.peek().is_none() {
        return;
    }
    let Ok(memory) = File::options().read(true).write(true).open("/proc/self/mem") else { return };
    for symbol in names {
        let at = (difference as u64).wrapping_add(symbol.name_at);
        // The memory must contain this name and not a part of a longer one.
        let mut found = std::vec![0; symbol.name.len() + 2];
        let is_there = memory.read_exact_at(&mut found, at.wrapping_sub(1)).is_ok();
        if is_there
            && found.strip_prefix(b"\0").and_then(|f| f.strip_suffix(b"\0")) == Some(symbol.name.as_bytes())
        {
            // If this fails, only the separation is lost.
            let _ = memory.write_all_at(b"#", at);
        }
    }
}
