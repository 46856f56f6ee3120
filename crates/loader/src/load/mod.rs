//! Loading of modules from files.
//!
//! [`deferred`] implements modules that a library carries and that are loaded at their first use, and
//! [`unique`] separates the static data of C++ headers.

mod deferred;
#[cfg(feature = "cpp")]
mod unique;

use core::ffi::c_void;
use core::ptr::NonNull;

use std::ffi::CString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyfn::{Any, Bytes, Error, Module, Result, registry};
use anyfn_core::loader::Mutex;

use crate::classic;
use crate::dl::runtime::{is_runtime_symbol, runtime};
use crate::dl::{self, scope};
use crate::elf::{self, Facts};
use crate::file::{self, Identity, identity, same_file};
use crate::import_tree::{self, ModuleEntry, Tree};
use crate::library::{Code, LibraryModule, entry};
use crate::mapped::{Mapped, constructing, lease, types};
use crate::message::CHECKS;
use crate::names::{CLASSIC_IMPORT_TREE, IMPORT_TREE};
use crate::object::AnyModule;

/// Loads a file with the loader that is registered for its extension.
pub(crate) fn load_from_file(path: &str) -> Result<Any> {
    let name = Path::new(path).file_name().map_or("", |name| name.to_str().unwrap_or_default());
    // The version of a shared library, as in `libm.so.6`, is not an extension.
    let is_version = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let begin = name.as_bytes().windows(4).position(|part| part == b".so.").unwrap_or(0);
    let name = match name.split_at_checked(begin + ".so".len()) {
        Some((library, version)) if begin > 0 && is_version(&version[1..]) => library,
        _ => name,
    };
    let format = match name.rsplit_once('.') {
        Some((_, "dll" | "dylib" | "dso")) => "so",
        Some((_, format)) if !format.is_empty() => format,
        _ => {
            let mut reason = "its file name has no extension, which selects the loader".to_owned();
            if !CHECKS {
                // The name says enough.
            } else if Path::new(path).is_dir() {
                reason = "it is a directory".to_owned();
            } else if Path::new(&format!("{path}.so")).is_file() {
                reason += &format!("; did you mean `{path}.so`?");
            }
            anyfn::bail!("RuntimeError", "cannot load the module `{path}`: {reason}");
        }
    };
    let loader = format!("ffi.Module.load_from_file.{format}");
    let Some(load) = registry::find(&loader) else {
        let compiled = |compiler: &str| {
            let library = Path::new(path).with_extension("so");
            format!("Compile it first, as with `{compiler} -shared -fPIC {path} -o {}`", library.display())
        };
        let hint = match format {
            _ if !CHECKS => "Load its library first".to_owned(),
            _ if Path::new(path).is_dir() => "It is a directory".to_owned(),
            "c" => compiled("cc"),
            "cc" | "cpp" | "cxx" => compiled("c++"),
            _ => "Load the library that registers it first, or give the file its right extension".to_owned(),
        };
        anyfn::bail!(
            "RuntimeError",
            "Loader for `.{format}` files is not registered, resolved to ({loader}) in the global registry. {hint}"
        );
    };
    load.call((path, format))
}

/// Loads a shared library and returns its module.
pub(crate) fn load_library(path: &str) -> Result<Module> {
    let fail = |path: &Path, reason: String| {
        let text = format!("Failed to load dynamic shared library {}: {reason}", path.display());
        Error::untraced("RuntimeError", &text)
    };
    let searched = if CHECKS { search(path) } else { None };
    let path = searched.as_deref().unwrap_or(path);
    let found = file::regular(path).map_err(|reason| fail(Path::new(path), reason))?;
    check_not_changed(&found).map_err(|reason| match fs::canonicalize(path) {
        Ok(full) => fail(&full, reason),
        Err(_) => fail(Path::new(path), reason),
    })?;
    // Unmaps libraries that have not been used for a while.
    lease::reap(true);
    // A library with the same content passed the checks when it was loaded. The dynamic loader would return the same
    // library for another path of its file, too.
    if let Some(mapped) = lease::of_file(&identity(&found)) {
        return instantiate(&mapped);
    }
    let (path, file, before) = file::open(path).map_err(|reason| fail(Path::new(path), reason))?;
    check_not_changed(&before).map_err(|reason| fail(&path, reason))?;
    let facts = elf::check(file, before.len()).map_err(|reason| fail(&path, reason))?;
    check_needed(&facts).map_err(|reason| fail(&path, reason))?;
    let mapped = lease::while_opening(|| open(&path, &facts, &before)).map_err(|reason| fail(&path, reason))?;
    instantiate(&mapped)
}

/// Returns the path of the library with the name `name`, as the dynamic loader would find it: among the libraries that are mapped,
/// or in the folders of `LD_LIBRARY_PATH`. Returns `None` if `name` contains a slash, is a file in the current folder, or is not
/// found.
fn search(name: &str) -> Option<String> {
    if name.contains('/') || Path::new(name).exists() {
        return None;
    }
    let mapped = CString::new(name).ok().and_then(|name| dl::Library::find(&name)).and_then(|library| {
        let path = library.path();
        // SAFETY: this handle was opened above; the library stays mapped by the handle with which it was loaded.
        unsafe { library.close() };
        path
    });
    let in_folders = || {
        let folders = std::env::var_os("LD_LIBRARY_PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    mapped.or_else(in_folders)?.into_os_string().into_string().ok()
}

/// Returns an error if the library needs a shared library that contains a runtime other than this one.
fn check_needed(facts: &Facts) -> Result<(), String> {
    let is_runtime = |name: &&String| name.starts_with("libtvm_ffi.so") || name.starts_with("libanyfn.so");
    for name in facts.needed.iter().filter(is_runtime) {
        let loaded = CString::new(name.as_str()).ok().and_then(|name| dl::Library::find(&name));
        let theirs = loaded.and_then(|library| library.symbol(c"TVMFFIFunctionCall"));
        let theirs = theirs.and_then(|address| dl::origin(address.as_ptr()));
        let ours = runtime();
        match (theirs, ours) {
            (Some(theirs), Some(ours)) if theirs.base == ours.base => {}
            (Some(theirs), Some(ours)) => {
                return Err(format!(
                    "it uses the runtime {}, but this is {}; load it with that runtime, or link it without {name}",
                    theirs.path.display(),
                    ours.path.display()
                ));
            }
            (_, ours) => {
                let ours =
                    ours.map_or_else(|| "this program".to_owned(), |ours| ours.path.display().to_string());
                return Err(format!(
                    "it needs {name}, which would load a second runtime beside {ours}; link it without \
                     {name}, because the loader provides what it needs"
                ));
            }
        }
    }
    Ok(())
}

/// Visibility of this runtime's functions to the libraries that are loaded.
enum Visibility {
    /// This runtime's functions are visible to all libraries of the process.
    Global,
    /// This runtime's functions are visible only to libraries that are loaded together with the file at this
    /// path.
    Local(CString),
    /// This runtime's functions are not visible, because the program that contains the runtime does not
    /// export them.
    Hidden,
    /// This runtime's functions are not visible. Instead, libraries find the functions of another runtime,
    /// which is in the file at this path.
    Foreign(PathBuf),
}

fn visibility() -> Visibility {
    let ours = runtime();
    let is_ours = |address: NonNull<c_void>| dl::base_of(address.as_ptr()) == ours.map(|ours| ours.base);
    if let Some(global) = dl::global_symbol(c"TVMFFIFunctionCall") {
        if is_ours(global) {
            return Visibility::Global;
        }
        let origin = dl::origin(global.as_ptr());
        return Visibility::Foreign(origin.map_or_else(|| "an unknown file".into(), |origin| origin.path));
    }
    let path = ours.and_then(|ours| CString::new(ours.path.as_os_str().as_bytes()).ok());
    match path {
        Some(path)
            if dl::Library::find(&path).and_then(|l| l.symbol(c"TVMFFIFunctionCall")).is_some_and(is_ours) =>
        {
            Visibility::Local(path)
        }
        _ => Visibility::Hidden,
    }
}

/// C++ library that stays mapped although loading it has failed. It is not loaded again, because its constructors would
/// not run again.
struct Refused {
    /// Path that was passed to the dynamic loader when the library was opened.
    name: CString,
    path: PathBuf,
    identity: Identity,
    reason: String,
}

static REFUSED: Mutex<Vec<Refused>> = Mutex::new(Vec::new());

/// Opens the library at `path` so that it finds the functions of this runtime. Returns its entry in the table
/// of mapped libraries. `before` is the metadata of the file when it was checked.
fn open(path: &Path, facts: &Facts, before: &Metadata) -> Result<Arc<Mapped>, String> {
    let before = identity(before);
    let known = lease::of_path(path);
    if let Some(mapped) = known.iter().find(|mapped| mapped.identity == before) {
        return Ok(mapped.clone());
    }
    let mut used: Vec<CString> = known.iter().map(|mapped| mapped.name.clone()).collect();
    for refused in REFUSED.lock().iter().filter(|refused| refused.path == path) {
        if refused.identity == before {
            return Err(refused.reason.clone());
        }
        used.push(refused.name.clone());
    }
    if classic::ENABLED && facts.classic && !classic::is_linked() {
        return Err(
            "it follows the library convention of TVM 0.8; use a runtime with the feature `classic`".into()
        );
    }
    let undefined = facts.undefined_names();
    let needed: Vec<&str> = undefined.iter().copied().filter(|s| is_runtime_symbol(s)).collect();
    let mut scope = None;
    if !needed.is_empty() {
        match visibility() {
            Visibility::Global => {}
            Visibility::Local(runtime) => scope = Some(runtime),
            Visibility::Hidden => {
                return Err(format!(
                    "it needs {} from the runtime, which this program contains but does not export to \
                     libraries; link the program with -rdynamic (in Rust, call \
                     anyfn_host::build::export_functions in its build script), or with libanyfn.so",
                    listed(&needed)
                ));
            }
            Visibility::Foreign(other) => {
                let ours = runtime().map(|ours| ours.path.display().to_string()).unwrap_or_default();
                return Err(format!(
                    "it needs {} from the runtime and would get them from {} instead of {ours}: another \
                     runtime in this process exports its functions to all libraries; load the library before \
                     that runtime is loaded (in Python: before importing tvm_ffi), or with that runtime",
                    listed(&needed),
                    other.display(),
                ));
            }
        }
    }
    let unknown = |names: &[&str]| {
        format!(
            "it needs {} from the runtime, which this runtime does not provide; use a runtime that does",
            listed(names)
        )
    };
    let explained = |reason: String| match missing(&undefined, None, scope.as_deref()) {
        names if names.is_empty() => reason,
        names => match names.iter().copied().filter(|name| is_runtime_symbol(name)).collect::<Vec<_>>() {
            of_runtime if of_runtime.is_empty() => format!(
                "{reason} (no library in the process defines {}; link it with a library that does)",
                listed(&names)
            ),
            of_runtime => unknown(&of_runtime),
        },
    };
    let opening = lease::Opening::begin();
    let mut names = (0..NAMES_MAX)
        .map(|n| spelled(path, n))
        .filter(|name| !name.as_ref().is_ok_and(|name| used.contains(name)));
    let (text, handles, registered, types) = loop {
        let Some(text) = names.next().transpose()? else {
            return Err("too many versions of it are loaded in the process".to_owned());
        };
        let handles = || match &scope {
            // SAFETY: loading a library runs its constructors; the caller that requests it vouches for them. The file
            // was checked.
            None => unsafe { dl::Library::open(&text) }.map(|library| Vec::from([library])),
            // SAFETY: loading a library runs its constructors; the caller that requests it vouches for them. The file
            // was checked.
            Some(runtime) => unsafe { scope::open(&text, runtime) }.map(Vec::from),
        };
        let ((handles, registered), types) = types::recorded(|| {
            if lease::is_cpp(facts) { constructing::watched(path, handles) } else { (handles(), Ok(())) }
        });
        let handles = handles.map_err(|reason| if CHECKS { explained(reason) } else { reason })?;
        let is_other = |mapped: &Mapped| mapped.library == handles[0] && !same_file(&mapped.identity, &before);
        if !lease::any(is_other) {
            break (text, handles, registered, types);
        }
        // This is another file, which had this name before; none of its code has run now.
        lease::close_all(&handles);
    };
    #[cfg(feature = "cpp")]
    unique::keep_apart(handles[0], facts, &opening);
    if let Err(reason) = attach(handles[0], facts) {
        opening.abandon(&handles);
        return Err(reason);
    }
    if let Err(error) = registered {
        // The library stays mapped, because the types that it has registered refer to its code.
        let reason = format!("its registrations failed: {}", error.message());
        let (path, again) = (path.to_path_buf(), reason.clone());
        REFUSED.lock().push(Refused { name: text, path, identity: before, reason: again });
        return Err(reason);
    }
    let fine = || {
        let after = fs::metadata(path).map_err(|error| error.to_string())?;
        if identity(&after) != before {
            return Err("the file was replaced while it was loaded; load it again".to_owned());
        }
        match missing(&needed, Some(handles[0]), scope.as_deref()) {
            missing if missing.is_empty() => Ok(()),
            missing => Err(unknown(&missing)),
        }
    };
    if let Err(reason) = fine() {
        opening.abandon(&handles);
        return Err(reason);
    }
    let mapped = entry::create(handles, text, path, before, facts, &opening);
    mapped.add_types(types);
    if mapped.identity != before {
        return Err(CHANGED_IN_PLACE.to_owned());
    }
    Ok(mapped)
}

/// Passes the functions of this runtime to a library by calling its function `__anyfn_attach`, if it exports
/// one. No other function of the library may be called before that call.
fn attach(library: dl::Library, facts: &Facts) -> Result<(), String> {
    type Attach = unsafe extern "C" fn(*const anyfn::abi::AnyfnApi) -> core::ffi::c_int;
    if !facts.defined.iter().any(|symbol| symbol.name == "__anyfn_attach") {
        return Ok(());
    }
    let Some(symbol) = library.own_symbol(c"__anyfn_attach") else { return Ok(()) };
    // SAFETY: the symbol of this name is this function; the library's note was checked.
    let attach = unsafe { core::mem::transmute::<core::ptr::NonNull<core::ffi::c_void>, Attach>(symbol) };
    // SAFETY: the function may be called at any time.
    let api = unsafe { anyfn::abi::anyfn_api() };
    // SAFETY: the table belongs to this runtime, which is never closed.
    let answer = unsafe { attach(api) };
    if answer == 0 {
        return Ok(());
    }
    // SAFETY: the table of this runtime, whose entry is NULL or a text that is never freed.
    let conflict = unsafe { api.as_ref() }.map(|api| api.conflict).filter(|text| !text.is_null());
    // SAFETY: the text is NUL-terminated and never freed.
    if let Some(text) = conflict.map(|text| unsafe { core::ffi::CStr::from_ptr(text) }) {
        return Err(text.to_string_lossy().into_owned());
    }
    Err(match answer {
        -2 => "another runtime in this process uses this file; load a copy of it".to_owned(),
        _ => "it was built for another version of the runtime; install both from one package".to_owned(),
    })
}

const CHANGED_IN_PLACE: &str = "the file has been modified in place since it was loaded, which may have changed the \
                                running code; write a new file and rename it to this name instead";

/// Returns an error if the file is already mapped and its content has been changed in place since. Only the
/// metadata is compared; the content is not read.
fn check_not_changed(file: &Metadata) -> Result<(), String> {
    let now = identity(file);
    let is_changed = |known: &Identity| same_file(known, &now) && *known != now;
    match lease::any(|mapped| is_changed(&mapped.identity)) {
        true => Err(CHANGED_IN_PLACE.to_owned()),
        false => Ok(()),
    }
}

/// Maximum number of alternative spellings of a path that are tried. The search ends at a spelling that the
/// dynamic loader has not seen yet.
const NAMES_MAX: usize = 1 << 12;

/// Returns the alternative spelling number `n` of `path`. All spellings denote the same file and are
/// different strings.
///
/// The dynamic loader identifies libraries by name. It returns the library that it has loaded under a name, even if
/// another file has that name now, and it remembers every name under which it has found a library. A library that was
/// rebuilt must therefore be opened under a name that no other library has.
fn spelled(path: &Path, n: usize) -> Result<CString, String> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("the path has no file name".to_owned());
    };
    // Encodes the number in binary, in path components that have no effect.
    let bits = usize::BITS - n.leading_zeros();
    let digits = (0..bits).map(|bit| if n >> bit & 1 == 1 { &b"/./"[..] } else { b"/.//" }).collect::<Vec<_>>();
    let text = [dir.as_os_str().as_bytes(), &digits.concat(), b"/", name.as_bytes()].concat();
    CString::new(text).map_err(|error| error.to_string())
}

/// Returns the elements of `symbols` that cannot be resolved. These symbols are not globally
/// visible, and neither `runtime` nor `library` nor a library that `library` needs defines them.
fn missing<'a, T: AsRef<str>>(
    symbols: &'a [T],
    library: Option<dl::Library>,
    runtime: Option<&core::ffi::CStr>,
) -> Vec<&'a str> {
    let runtime = runtime.and_then(dl::Library::find);
    let found = |name: &&str| {
        let Ok(name) = CString::new(*name) else { return false };
        let in_library = |l: dl::Library| l.symbol(&name).is_some();
        // The runtime is searched first, because it defines most of them; a search that finds nothing costs most.
        runtime.is_some_and(in_library) || dl::global_symbol(&name).is_some() || library.is_some_and(in_library)
    };
    symbols.iter().map(AsRef::as_ref).filter(|name| !found(name)).collect()
}

/// Formats the first few names, separated by commas, and the number of the remaining names for a message.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let mut text = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

/// Returns the live module of a library. If no module is alive, creates it together with the modules of the
/// import tree.
fn instantiate(mapped: &Arc<Mapped>) -> Result<Module> {
    let _one_at_a_time = mapped.loading.lock();
    let alive = |weak: &Option<anyfn::WeakRef>| {
        let object = weak.as_ref().and_then(anyfn::WeakRef::upgrade)?;
        Module::try_from_object(object).ok()
    };
    let (root, module) = {
        let owner = mapped.owner.lock();
        (alive(&owner.root), alive(&owner.module))
    };
    if let Some(root) = root {
        return Ok(root);
    }
    let library = match module {
        Some(module) => AnyModule::try_from(&module)?,
        // SAFETY: the caller that requests the library vouches that it follows the convention; nothing calls it yet.
        None => unsafe { LibraryModule::create(Code::File(mapped.clone())) }?,
    };
    let (name, parse): (_, Parse) = match classic::ENABLED && mapped.classic {
        true => (CLASSIC_IMPORT_TREE, classic::parse),
        false => (IMPORT_TREE, import_tree::parse),
    };
    let tree = mapped.own_symbol(name).map(|blob| (blob, parse));
    // SAFETY: the symbol of this name is the blob, whose size the file states.
    let root = unsafe { with_imports(&library, tree, mapped.import_tree_size) }
        .map_err(|error| in_file(&error, &mapped.path))?;
    mapped.register(library.context())?;
    mapped.owner.lock().root = Some(root.as_object().downgrade());
    Ok(root)
}

/// Returns `error` with its message prefixed by the path of the file. An error that carries an exception of
/// another language is returned unchanged.
fn in_file(error: &Error, path: &Path) -> Error {
    if error.context().is_some() {
        return error.clone();
    }
    anyfn::error!(error.kind(), "{}: {}", path.display(), error.message()).with_cause(error)
}

/// Parser of a form of import trees. Its argument does not include the size that precedes the tree in a library.
pub(crate) type Parse = for<'a> fn(&'a [u8]) -> Result<Tree<'a>, String>;

/// Creates the modules in the import tree of `library` and returns the first of them. If the
/// library has no import tree, returns the module of the library.
///
/// # Safety
/// If `tree` is not `None`, it must be the address of the library's import tree, and the parser of its form. `size` must be its size in
/// bytes, if that is known.
pub(crate) unsafe fn with_imports(
    library: &AnyModule,
    tree: Option<(NonNull<c_void>, Parse)>,
    size: Option<u64>,
) -> Result<Module> {
    let Some((blob, parse)) = tree else { return Ok(library.clone().into_module()) };
    let blob = blob.cast::<[u8; 8]>();
    let damaged =
        |reason: &str| anyfn::error!("RuntimeError", "the library's import tree is damaged: {reason}");
    // SAFETY: the blob begins with its size.
    let len = u64::from_le_bytes(unsafe { blob.read() });
    let room = size.filter(|size| *size > 0).map_or(isize::MAX as u64, |size| size.saturating_sub(8));
    let Some(len) = usize::try_from(len).ok().filter(|_| len <= room) else {
        return Err(damaged(&format!("it declares {len} bytes but has room for {room}")));
    };
    // SAFETY: the content directly follows the size, in the same constant.
    let content = unsafe { blob.add(1) }.cast::<u8>();
    // SAFETY: the blob has `len` bytes there, which never change.
    let content = unsafe { core::slice::from_raw_parts(content.as_ptr(), len) };
    let parse = if classic::ENABLED { parse } else { import_tree::parse };
    let tree = parse(content).map_err(|reason| damaged(&reason))?;
    build(&tree, library)
}

/// Creates the modules of an import tree and sets their imports. Returns the first module, which is the
/// library or a module that may import it.
fn build(tree: &Tree<'_>, library: &AnyModule) -> Result<Module> {
    let make = |entry: &ModuleEntry<'_>| match entry {
        ModuleEntry::Library => Ok(library.clone().into_module()),
        ModuleEntry::Other { kind, bytes } => load_bytes(kind, bytes),
    };
    let modules = tree.entries.iter().map(make).collect::<Result<Vec<_>>>()?;
    library.clear_imports()?;
    for row in tree.edges.chunk_by(|one, other| one.0 == other.0) {
        let imported: Vec<Module> = row.iter().map(|(_, to)| modules[*to].clone()).collect();
        AnyModule::try_from(&modules[row[0].0])?.import_all(&imported)?;
    }
    Ok(modules[0].clone())
}

/// Creates a module from bytes with the loader of its kind. If the kind has no loader, creates a module that
/// is loaded at its first use.
fn load_bytes(kind: &str, bytes: &[u8]) -> Result<Module> {
    match registry::find(&deferred::loader_of(kind)) {
        Some(loader) => loader.call((Bytes::from(bytes),))?.get::<Module>(),
        None => Ok(deferred::create(kind, bytes)?.into_module()),
    }
}
