//! Binds a frontend to the runtime when a program in another language, such as a Python interpreter, loads
//! the frontend.
//!
//! An extension module that linked the runtime, or left the `TVMFFI*` symbols to the dynamic linker, would depend on what else
//! the process has loaded: another library of the same ABI exports the same names. An extension therefore does neither. It
//! packages `libanyfn.so`, opens exactly that file when it starts ([`attach`]), and takes the function table from it. No symbol
//! becomes visible to other libraries, and none is taken from them.
//!
//! The crate `anyfn` calls the functions of the ABI by name. For that purpose this crate defines each name as a hidden stub that
//! jumps through the table: the crate `anyfn` serves both programs that link the runtime and extensions that attach to it. A
//! crate that depends on this one must not link the runtime as well.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyfn_abi::{ABI_VERSION, AnyfnApi, TVMFFIVersion};

mod stubs;

/// Reason why a file cannot serve as the runtime.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// The file cannot be opened as a library.
    Load {
        /// Path of the file that cannot be opened.
        path: PathBuf,
        /// Error message of the dynamic linker.
        reason: String,
    },
    /// The library has no function table.
    NoTable {
        /// Path of the library without a function table.
        path: PathBuf,
    },
    /// The library implements an incompatible version of the ABI.
    Version {
        /// Path of the library with the incompatible version.
        path: PathBuf,
        /// Version of the ABI that the library implements.
        found: TVMFFIVersion,
        /// Size of the library's function table in bytes.
        size: usize,
    },
    /// The runtime in the file refuses to be used in this process, because it conflicts with another runtime.
    Conflict {
        /// Path of the runtime that refuses to be used.
        path: PathBuf,
        /// Reason that the runtime states for its refusal.
        reason: String,
    },
    /// This extension is already attached to another runtime.
    Attached {
        /// Path of the runtime that [`attach`] was asked to open.
        path: PathBuf,
        /// Path of the runtime to which this extension is already attached.
        current: PathBuf,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Load { path, reason } => {
                write!(f, "cannot load the runtime {}: {reason}", path.display())
            }
            AttachError::NoTable { path } => {
                write!(f, "{} is not an anyfn runtime: it has no function `anyfn_api`", path.display())
            }
            AttachError::Version { path, found, size } => write!(
                f,
                "{} implements ABI {}.{}.{} (table of {size} bytes), but this extension needs {}.{}.{} (at least {} \
                 bytes); install the extension and the runtime from one package",
                path.display(),
                found.major,
                found.minor,
                found.patch,
                ABI_VERSION.major,
                ABI_VERSION.minor,
                ABI_VERSION.patch,
                size_of::<AnyfnApi>()
            ),
            AttachError::Conflict { path, reason } => {
                write!(f, "cannot use the runtime {}: {reason}", path.display())
            }
            AttachError::Attached { path, current } => write!(
                f,
                "cannot use the runtime {}: this process already uses {}",
                path.display(),
                current.display()
            ),
        }
    }
}

impl std::error::Error for AttachError {}

/// The runtime to which this extension is attached: its path, and the address of its function table. The lock also serialises
/// concurrent calls of [`attach`].
static ATTACHED: Mutex<Option<(PathBuf, usize)>> = Mutex::new(None);

/// Opens the runtime library at `path` and fills this extension's function table from it. An extension calls
/// this function once per process, before it uses any other function of the runtime.
///
/// The library stays loaded for the lifetime of the process, and its symbols stay invisible to other libraries.
///
/// # Errors
/// Returns [`AttachError`] if the file is not a runtime that this extension can use. Nothing is attached then,
/// and the library is closed.
pub fn attach(path: &Path) -> Result<(), AttachError> {
    let mut attached = ATTACHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((current, _)) = attached.as_ref() {
        let same = current == path;
        let error = || AttachError::Attached { path: path.into(), current: current.clone() };
        return if same { Ok(()) } else { Err(error()) };
    }
    let (library, api) = open(path)?;
    stubs::fill(check(path, api)?);
    // From now on, the library stays loaded.
    std::mem::forget(library);
    *attached = Some((path.into(), api.addr()));
    Ok(())
}

/// Fills this library's function table from `api`, the table of the runtime that loads the library. This is
/// for plugins that must work in any process, including one in which another runtime exposes its functions to
/// all libraries. Such a plugin exports the function `__anyfn_attach`, which the loader calls first. That
/// function passes its argument on to [`answer`]. The loader may call it again, on several threads at a time.
///
/// # Errors
/// Returns [`AttachError`] if `api` is null, or the table of a runtime that this library cannot use, or if this library is attached to
/// another runtime, whose threads may be using the table.
///
/// # Safety
/// `api` must be null, or the result of `anyfn_api()` of a runtime that is never closed.
pub unsafe fn attach_table(api: *const AnyfnApi) -> Result<(), AttachError> {
    let path = file_of(api.cast()).unwrap_or_else(|| "of this process".into());
    let mut attached = ATTACHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if api.is_null() {
        return Err(AttachError::NoTable { path });
    }
    if let Some((current, table)) = attached.as_ref() {
        let is_same = *table == api.addr();
        return if is_same { Ok(()) } else { Err(AttachError::Attached { path, current: current.clone() }) };
    }
    stubs::fill(check(&path, api)?);
    *attached = Some((path, api.addr()));
    Ok(())
}

/// Attaches this library as [`attach_table`] does, and returns the result as `__anyfn_attach` does: 0 for success, -2 if this library is
/// attached to another runtime, and -1 for other errors.
///
/// # Safety
/// `api` must be null, or the result of `anyfn_api()` of a runtime that is never closed.
pub unsafe fn answer(api: *const AnyfnApi) -> c_int {
    // SAFETY: the requirements are the same.
    match unsafe { attach_table(api) } {
        Ok(()) => 0,
        Err(AttachError::Attached { .. }) => -2,
        Err(_) => -1,
    }
}

/// Reference to an open library, which is closed when the reference is dropped.
struct Library(*mut c_void);

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: `open` opened the library, and this extension uses nothing of a library that it closes.
        unsafe { libc::dlclose(self.0) };
    }
}

/// Opens the runtime library at `path`. Returns it and its function table, which exists as long as
/// the library is open.
fn open(path: &Path) -> Result<(Library, *const AnyfnApi), AttachError> {
    let load_error = |reason: String| AttachError::Load { path: path.into(), reason };
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| load_error("NUL in its path".into()))?;
    // SAFETY: the path is a valid C string. With RTLD_LOCAL, the symbols of the library stay invisible to others.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(load_error(linker_message()));
    }
    let library = Library(library);
    // SAFETY: the library is open, and the name is a valid C string.
    let entry = unsafe { libc::dlsym(library.0, c"anyfn_api".as_ptr()) };
    if entry.is_null() {
        return Err(AttachError::NoTable { path: path.into() });
    }
    // SAFETY: the runtime declares `anyfn_api` with this type.
    let entry: unsafe extern "C" fn() -> *const AnyfnApi =
        unsafe { std::mem::transmute::<*mut c_void, _>(entry) };
    // SAFETY: the function may be called at any time.
    let api = unsafe { entry() };
    if api.is_null() { Err(AttachError::NoTable { path: path.into() }) } else { Ok((library, api)) }
}

fn linker_message() -> String {
    // SAFETY: `dlerror` may be called at any time; the string belongs to this thread and is copied immediately.
    let message = unsafe { libc::dlerror() };
    text(message).unwrap_or_else(|| "unknown reason".into())
}

/// Checks that this extension can use the function table `api`, and returns the table as a reference. In
/// errors, `path` is reported as the file that contains the table. The caller must not close the
/// library of a table that this function returns.
fn check(path: &Path, api: *const AnyfnApi) -> Result<&'static AnyfnApi, AttachError> {
    // SAFETY: every table begins with its size and version, and lives as long as its library, which is open.
    let size = unsafe { (*api).size };
    // SAFETY: every table begins with its size and version, and lives as long as its library, which is open.
    let found = unsafe { (*api).version };
    // Members are only appended, so a longer table can be used too.
    if size < size_of::<AnyfnApi>() || found.major != ABI_VERSION.major || found.minor < ABI_VERSION.minor {
        return Err(AttachError::Version { path: path.into(), found, size });
    }
    // SAFETY: the table is not NULL, at least as large as the struct, and never freed while its library is open.
    let api = unsafe { &*api };
    match text(api.conflict) {
        Some(reason) => Err(AttachError::Conflict { path: path.into(), reason }),
        None => Ok(api),
    }
}

/// Copies a C string into a Rust string. Returns `None` for NULL.
fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the pointer is not NULL, and the C functions that return such strings terminate them with NUL.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Returns the address of a symbol that is globally visible in the process, such as a function of its
/// interpreter; NULL if the symbol is not found.
pub fn process_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: this looks up a name in the global scope; nothing is loaded or run.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns the path of the extension that contains this crate, as the dynamic linker reports it.
pub fn own_file() -> Option<PathBuf> {
    file_of((&raw const ATTACHED).cast())
}

/// Returns the path of the library or program that contains an address, as the dynamic linker reports it.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the linker only looks up the address; `info` is writable.
    let found: c_int = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: `info` is zeroed or filled in, and all its fields are plain data.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dli_fname` is the NUL-terminated name of a loaded file.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table for which nothing but its size and version is right.
    fn table() -> AnyfnApi {
        AnyfnApi { size: size_of::<AnyfnApi>(), version: ABI_VERSION, ..stubs::initial() }
    }

    #[test]
    fn a_library_stays_attached_to_its_first_runtime() {
        let [first, second]: [*const AnyfnApi; 2] =
            [Box::leak(Box::new(table())), Box::leak(Box::new(table()))];
        // SAFETY: NULL is allowed, and the tables are never freed.
        let answers = [std::ptr::null(), first, second, first].map(|api| unsafe { answer(api) });
        assert_eq!(answers, [-1, 0, -2, 0]);
    }
}
