//! Keeps the static variables of the ABI's C++ headers separate for each library, for processes with two
//! runtimes.
//!
//! The headers keep type indices and similar data in static variables of inline functions. g++ gives such a variable
//! one definition in the whole process (`STB_GNU_UNIQUE`), which even libraries that are opened with local visibility
//! share. So if another runtime is loaded after a C++ library of this runtime, its variables would already have the
//! values that this runtime has assigned. The other runtime has other indices, so it would end the process while it
//! starts.
//!
//! The dynamic loader identifies such variables by name, and reads the names from the memory of the library that was
//! loaded first. So once a library is open and all its symbols are bound, these names are changed in its memory.
//! Libraries that are loaded later then have variables of their own. If the names cannot be changed, the library is
//! used as it is.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::dl;
use crate::elf::{self, Facts};
use crate::file;
use crate::mapped::lease;

/// Prefixes of the mangled names of static variables in functions of the ABI's C++ headers, and of the guards
/// of these variables.
const OF_HEADERS: [&str; 4] = ["_ZZN3tvm3ffi", "_ZGVZN3tvm3ffi", "_ZZNK3tvm3ffi", "_ZGVZNK3tvm3ffi"];
/// Name of the C++ function whose static variables hold the type indices of object classes. It is part of the
/// mangled names of these variables.
const TYPE_INDEX: &str = "_GetOrAllocRuntimeTypeIndex";

/// Renames the static variables of the ABI's C++ headers in a C++ library that was just opened, and
/// in the libraries that were opened together with it. Libraries that are loaded later then do not
/// share these variables.
pub(crate) fn keep_apart(library: dl::Library, facts: &Facts, opening: &lease::Opening) {
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
        let facts =
            file::find(&path).and_then(|(_, file, metadata)| elf::read_file(file, metadata.len(), false));
        if let Ok(facts) = facts {
            hide(object.range.start.wrapping_sub(facts.span.start as usize), &facts);
        }
    }
}

/// Returns true if a library called `name` need not be searched for static variables of the ABI's
/// C++ headers. This is the case for the C and C++ standard libraries, and for generated scope
/// libraries in memory, whose file names are numbers.
fn is_of_system(name: &str) -> bool {
    let known = ["libstdc++.", "libc++.", "libc++abi.", "libgcc_s.", "libm.", "libc."];
    known.iter().any(|begin| name.starts_with(begin)) || name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Renames the static variables of the ABI's C++ headers in the memory of a library. `difference` is the
/// library's load bias, which is added to addresses of the file.
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
        let mut found = vec![0; symbol.name.len() + 2];
        let is_there = memory.read_exact_at(&mut found, at.wrapping_sub(1)).is_ok();
        if is_there
            && found.strip_prefix(b"\0").and_then(|f| f.strip_suffix(b"\0")) == Some(symbol.name.as_bytes())
        {
            // If this fails, only the separation is lost.
            let _ = memory.write_all_at(b"#", at);
        }
    }
}
