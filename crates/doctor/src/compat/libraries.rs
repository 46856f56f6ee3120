//! Reads which libraries need `libtvm_ffi.so`, and which symbols they need from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyfn::{Any, Array, Map, Result, String as Text, registry};

use super::NAME;
use super::environment::fail;

/// Symbol that only the libraries of this project define.
const MARK: &str = "anyfn_api";

/// A shared library, as its file describes it.
pub(super) struct Library {
    pub(super) path: PathBuf,
    soname: String,
    needed: BTreeSet<String>,
    pub(super) defined: BTreeSet<String>,
    undefined: BTreeSet<String>,
}

impl Library {
    /// Reads the file of a library.
    ///
    /// # Errors
    /// Returns the reason if the file is not a shared library for this machine.
    pub(super) fn read(path: &Path) -> Result<Library> {
        let read = registry::get("ffi.ModuleFileSymbols")?;
        let fields = read.call((path.to_string_lossy().as_ref(),))?.get::<Map<Text, Any>>()?;
        let field = |name: &str| fields.get(Text::from(name)).map(Option::unwrap_or_default);
        let names = |name: &str| -> Result<BTreeSet<String>> {
            let names = field(name)?.get::<Array<Any>>()?;
            names.iter().map(|name| Ok(name.get::<&str>()?.to_owned())).collect()
        };
        Ok(Library {
            path: path.to_path_buf(),
            soname: field("soname")?.get::<&str>().unwrap_or_default().to_owned(),
            needed: names("needed")?,
            defined: names("defined")?,
            undefined: names("undefined")?,
        })
    }

    /// Reads the library of this project that replaces the other one.
    ///
    /// # Errors
    /// Returns the reason if `path` is another file.
    pub(super) fn ours(path: &str) -> Result<Library> {
        let library = Library::read(Path::new(path))?;
        if !library.is_ours() || library.soname != NAME {
            let what =
                if library.is_ours() { "is anyfn under another name" } else { "is not a library of anyfn" };
            return Err(fail(format!(
                "{path} {what}; expected the file {NAME} that `./x dist` writes to dist/compat"
            )));
        }
        Ok(library)
    }

    /// Reads the libraries that this one needs and that lie in the same folder.
    pub(super) fn needed_beside(&self) -> Vec<Library> {
        let paths = self.needed.iter().map(|name| self.path.with_file_name(name));
        paths.filter_map(|path| Library::read(&path).ok()).collect()
    }

    /// Returns true if the library is one of this project.
    pub(super) fn is_ours(&self) -> bool {
        self.defined.contains(MARK)
    }

    /// Returns true if the library needs `libtvm_ffi.so`: it names that file, or has undefined symbols of the runtime.
    fn is_client(&self) -> bool {
        self.soname != NAME
            && (self.needed.contains(NAME) || self.undefined.iter().any(|name| is_c_symbol(name)))
    }
}

/// Returns true if a symbol is one of the C functions of the ABI.
fn is_c_symbol(name: &str) -> bool {
    name.starts_with("TVMFFI")
}

/// Returns true if a symbol is a C function of the ABI, or is in the C++ namespace `tvm::ffi`.
fn is_runtime_symbol(name: &str) -> bool {
    is_c_symbol(name) || name.starts_with("_Z") && name.contains("3tvm3ffi")
}

/// A library that needs `libtvm_ffi.so`.
pub(super) struct Client {
    pub(super) path: PathBuf,
    /// Number of symbols that it needs from `libtvm_ffi.so`.
    pub(super) symbols: usize,
    /// Needed symbols that the replacement does not define.
    pub(super) missing: Vec<String>,
}

/// Returns the clients among `libraries`. `others` are libraries that may define symbols for them, and `original` is the library
/// that is replaced, if it is known.
pub(super) fn clients(
    libraries: &[Library],
    others: &[Library],
    ours: &Library,
    original: Option<&Library>,
) -> Vec<Client> {
    // Without the original, a symbol that another library defines does not have to come from it.
    let is_elsewhere =
        |name: &String| others.iter().any(|other| other.soname != NAME && other.defined.contains(name));
    let is_missing = |name: &&String| match original {
        Some(original) => original.defined.contains(*name),
        None => is_runtime_symbol(name) && !is_elsewhere(name),
    };
    let client = |library: &Library| {
        let (found, rest): (Vec<&String>, Vec<_>) =
            library.undefined.iter().partition(|name| ours.defined.contains(*name));
        let missing: Vec<String> = rest.into_iter().filter(is_missing).cloned().collect();
        let found = found.iter().filter(|name| is_runtime_symbol(name)).count();
        Client { path: library.path.clone(), symbols: found + missing.len(), missing }
    };
    libraries.iter().filter(|library| library.is_client()).map(client).collect()
}

/// Reads all shared libraries in a folder of packages. Links to folders are not followed. Files that are not shared libraries for
/// this machine are left out, as packages also contain linker scripts and code for devices.
pub(super) fn in_folder(site: &Path) -> Vec<Library> {
    let (mut found, mut folders) = (Vec::new(), vec![site.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if name.ends_with(".so") || name.contains(".so.") && !name.starts_with(NAME) {
                found.push(path);
            }
        }
    }
    anyfn::__private::sort(&mut found);
    found.iter().filter_map(|path| Library::read(path).ok()).collect()
}
