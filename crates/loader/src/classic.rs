//! The library convention of TVM 0.8.
//!
//! A library exports its functions under their own names, with another signature than the current one, so they are
//! called through a function that the crate `anyfn-classic` provides. The symbols that this module names take the place
//! of those in [`names`](crate::names). The import tree has another form, which [`parse`] reads.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;

use std::ffi::CString;
use std::string::String as StdString;

use anyfn::__private::{CLASSIC_SYMBOL, PACKED_C_CALLS};
use anyfn::abi::TVMFFIAny;
use anyfn::abi::classic::CLASSIC_FUNCTION_NAMES;

use crate::import_tree::{ModuleEntry, Reader, Tree, shown};
use crate::message::refused;
use crate::names::{CLASSIC_CONTEXT, CLASSIC_IMPORT_TREE, FUNCTION, is_slot};

/// True if the loader is built with the feature `classic`.
pub(crate) const ENABLED: bool = true;

/// Symbol of the name of a library's entry function, or of the function itself.
const MAIN: &str = "__tvm_main__";

/// Returns true if the functions of a library have the signature of TVM 0.8: it uses names of that runtime, and exports
/// no function by the current convention.
pub(crate) fn follows<'a>(
    mut defined: impl Iterator<Item = &'a str> + Clone,
    mut undefined: impl Iterator<Item = &'a str>,
) -> bool {
    let is_own = |name: &str| {
        [CLASSIC_CONTEXT, CLASSIC_IMPORT_TREE].iter().any(|own| own.to_str() == Ok(name))
            || name == MAIN
            || is_slot(name) && !name.starts_with("__TVMFFI") && !name.starts_with("__tvm_ffi_")
    };
    let is_current = |name: &str| name.starts_with(FUNCTION) || name.starts_with("__anyfn_");
    (defined.clone().any(is_own) || undefined.any(is_symbol)) && !defined.any(is_current)
}

/// Returns true if `name` is that of a function of the classic API.
pub(crate) fn is_symbol(name: &str) -> bool {
    name.starts_with("TVM") && CLASSIC_FUNCTION_NAMES.contains(&name)
}

/// Returns the names of a library's functions, sorted. `code` contains the names of the symbols that are code.
pub(crate) fn functions<'a>(code: impl Iterator<Item = &'a str>) -> Vec<StdString> {
    let is_function = |name: &&str| !matches!(*name, "_init" | "_fini") && !name.starts_with("_Z");
    let mut names: Vec<StdString> = code.filter(is_function).map(StdString::from).collect();
    anyfn::__private::sort(&mut names);
    names.dedup();
    names
}

/// Returns the address of the function `name` of a library, which exports `functions`. The names `main` and
/// `__tvm_main__` are also those of the entry function. `find` returns the address of a symbol of the library.
pub(crate) fn function(
    functions: &[StdString],
    name: &str,
    find: impl Fn(&CStr) -> Option<NonNull<c_void>>,
) -> Option<NonNull<c_void>> {
    let of = |name: &str| {
        functions.binary_search_by(|known| known.as_str().cmp(name)).ok()?;
        find(&CString::new(name).ok()?)
    };
    let found = of(name);
    if found.is_some() || !matches!(name, "main" | MAIN) {
        return found;
    }
    // The compiler has written either the function or its name.
    of(MAIN).or_else(|| {
        let entry = find(c"__tvm_main__")?;
        // SAFETY: by the convention, this data is a C string.
        of(unsafe { CStr::from_ptr(entry.as_ptr().cast()) }.to_str().ok()?)
    })
}

/// Returns the name under which a symbol of the system library is registered.
pub(crate) fn linked_name(name: &str) -> Option<CString> {
    CString::new([CLASSIC_SYMBOL, name].concat()).ok()
}

/// Returns the names of the functions of the system library that begin with `prefix`, sorted and without it.
pub(crate) fn linked_functions(symbols: &[CString], prefix: &str) -> Vec<StdString> {
    let begin = [CLASSIC_SYMBOL, prefix].concat();
    let names = symbols.iter().filter_map(|symbol| symbol.to_str().ok()?.strip_prefix(&begin));
    names.filter(|name| !name.starts_with("__")).map(StdString::from).collect()
}

/// Returns true if functions of such libraries can be called: if the program contains the classic API.
pub(crate) fn is_linked() -> bool {
    PACKED_C_CALLS.iter().next().is_some()
}

/// Calls a function of such a library.
///
/// # Safety
/// `function` must be the address of a function of such a library. The other arguments must be those of a `safe_call`.
pub(crate) unsafe fn call(
    function: *mut c_void,
    args: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    match PACKED_C_CALLS.iter().next() {
        // SAFETY: the caller guarantees the function and the arguments.
        Some(call) => unsafe { call(function, args, count, result) },
        None => anyfn::__private::trampoline(|| anyfn::bail!("RuntimeError", "no classic API")),
    }
}

/// Key of the entry with the imports of each module.
const IMPORTS: &str = "_import_tree";
/// Kinds of modules with this content: a format, a table of functions, and code.
const DEVICE_KINDS: [&str; 7] = ["aocl", "cuda", "hip", "hsaco", "metal", "opencl", "sdaccel"];

/// Parses and checks a serialised import tree. `content` must not include the size that precedes it.
pub(crate) fn parse(content: &[u8]) -> Result<Tree<'_>, StdString> {
    let mut reader = Reader(content);
    let count = reader.number("the number of modules")?;
    let (mut entries, mut rows) = (Vec::new(), None);
    for left in (0..count).rev() {
        let kind = reader.bytes("the kind of a module")?;
        match core::str::from_utf8(kind) {
            Ok("_lib") => entries.push(ModuleEntry::Library),
            Ok(IMPORTS) if rows.is_none() => {
                rows = Some((reader.numbers("the list of rows")?, reader.numbers("the list of imports")?));
            }
            Ok(kind) if !kind.is_empty() && kind != IMPORTS => {
                let begin = reader.0;
                skip(kind, left, &mut reader)?;
                entries.push(ModuleEntry::Other { kind, bytes: &begin[..begin.len() - reader.0.len()] });
            }
            _ => return Err(refused!("the kind of a module is \"{}\"", shown(kind))),
        }
    }
    if !reader.0.is_empty() {
        return Err(refused!("{} bytes follow its last module", reader.0.len()));
    }
    let Some((rows, children)) = rows else {
        // The form of older versions: the library imports all modules.
        entries.retain(|entry| *entry != ModuleEntry::Library);
        entries.insert(0, ModuleEntry::Library);
        let edges = (1..entries.len()).map(|to| (0, to)).collect();
        return Ok(Tree { entries, edges });
    };
    if !entries.contains(&ModuleEntry::Library) {
        return Err(refused!("it has no entry for the library itself"));
    }
    Tree::with_rows(entries, &rows, &children)
}

/// Advances `reader` past the content of a module, which `left` entries follow.
fn skip(kind: &str, left: u64, reader: &mut Reader<'_>) -> Result<(), StdString> {
    if DEVICE_KINDS.contains(&kind) {
        reader.bytes("the format of a module")?;
        for _ in 0..reader.number("the number of functions of a module")? {
            reader.bytes("the name of a function")?;
            reader.bytes("the name of a function")?;
            let types = reader.number("the types of a function")?;
            reader.take(types.saturating_mul(4), "the types of a function")?;
            for _ in 0..reader.number("the launch parameters of a function")? {
                reader.bytes("the launch parameters of a function")?;
            }
        }
        return reader.bytes("the code of a module").map(drop);
    }
    // The size of other contents is not stated; they end where the last entry begins, or at the end.
    let end = match left {
        0 => Some(reader.0.len()),
        1 => {
            let mark = [&(IMPORTS.len() as u64).to_le_bytes(), IMPORTS.as_bytes()].concat();
            (0..reader.0.len()).rev().find(|at| reader.0[*at..].starts_with(&mark))
        }
        _ => None,
    };
    let Some(end) = end else {
        let kind = shown(kind.as_bytes());
        return Err(refused!("a module of kind `{kind}` must be the last one, because its size is not stated"));
    };
    reader.take(end as u64, "the content of a module").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import_tree::tests::{damage, numbers, text};

    fn blob(count: u64, parts: &[Vec<u8>]) -> Vec<u8> {
        [count.to_le_bytes().to_vec(), parts.concat()].concat()
    }

    fn opencl() -> Vec<u8> {
        let function =
            [text("k"), text("k"), [2u64.to_le_bytes().to_vec(), vec![0; 8]].concat(), numbers(&[])].concat();
        [text("cl"), 1u64.to_le_bytes().to_vec(), function, text("code")].concat()
    }

    #[test]
    fn reads_a_library_with_imports() {
        let tree = [text("_import_tree"), numbers(&[0, 2, 2, 2]), numbers(&[1, 2])].concat();
        let content = blob(4, &[text("_lib"), text("opencl"), opencl(), text("my"), vec![7; 5], tree]);
        let tree = parse(&content).unwrap();
        assert_eq!(tree.edges, [(0, 1), (0, 2)]);
        let kinds: Vec<(&str, usize)> = tree.modules().map(|(kind, size, _)| (kind, size)).collect();
        assert_eq!(kinds, [("library", 0), ("opencl", opencl().len()), ("my", 5)]);
        for len in 0..content.len() {
            assert!(parse(&content[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn reads_the_form_of_older_versions() {
        let content = blob(2, &[text("opencl"), opencl(), text("my"), vec![7; 5]]);
        let tree = parse(&content).unwrap();
        assert_eq!(tree.edges, [(0, 1), (0, 2)]);
        assert_eq!(tree.entries[0], ModuleEntry::Library);
    }

    #[test]
    fn reads_any_import_tree_without_a_panic() {
        let tree = |rows: &[u64], to: &[u64]| [text("_import_tree"), numbers(rows), numbers(to)].concat();
        let seeds = [
            blob(2, &[text("_lib"), tree(&[0, 0], &[])]),
            blob(2, &[text("opencl"), opencl(), text("my"), vec![7; 5]]),
            blob(
                4,
                &[text("_lib"), text("opencl"), opencl(), text("my"), vec![7; 5], tree(&[0, 2, 2, 2], &[1, 2])],
            ),
        ];
        damage(&seeds, parse);
    }

    #[test]
    fn refuses_what_is_inconsistent() {
        let check = |content: Vec<u8>, reason: &str| {
            let error = parse(&content).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        let tree = |rows: &[u64], to: &[u64]| [text("_import_tree"), numbers(rows), numbers(to)].concat();
        check(blob(3, &[text("my"), vec![1], text("my"), vec![2], text("_lib")]), "must be the last one");
        check(blob(2, &[text("_lib"), tree(&[0, 1], &[4])]), "imports module 4, but there are 1 modules");
        check(blob(2, &[text("_lib"), tree(&[0, 1], &[0])]), "in a cycle");
        check(blob(2, &[text("my"), tree(&[0, 0], &[])]), "no entry for the library itself");
        check(blob(2, &[text("_lib"), tree(&[0, 0, 0], &[])]), "2 rows");
        check(blob(2, &[text("_lib"), text("")]), "the kind of a module is");
        check(blob(1, &[text("_lib"), vec![0]]), "1 bytes follow");
        check(u64::MAX.to_le_bytes().to_vec(), "truncated");
    }
}
