//! Finds the runtime at run time, for frontends that are loaded into a foreign process.
//!
//! An extension module that linked the runtime, or left the `TVMFFI*` symbols to the dynamic linker, would depend on
//! what else the process has loaded: another library of the same ABI exports the same names. So an extension does
//! neither. It packages `libanyfn.so`, opens that very file at its start ([`attach`]), and takes the function table
//! from it. Nothing becomes visible to other libraries, and nothing is taken from them.
//!
//! The `anyfn` crate calls the functions of the ABI by name. For it this crate defines each name as a hidden stub that
//! jumps through the table: the same crate serves programs that link the runtime and extensions that
//! attach to it. Whoever depends on this crate must not link the runtime too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyfn_abi::{ABI_VERSION, AnyfnApi, TVMFFIVersion};

mod stubs;

/// Why a file cannot serve as the runtime.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// The file cannot be opened as a library.
    Load {
        /// The file.
        path: PathBuf,
        /// What the dynamic linker says.
        reason: String,
    },
    /// The library has no function table.
    NoTable {
        /// The file.
        path: PathBuf,
    },
    /// The library implements an ABI that this extension cannot use.
    Version {
        /// The file.
        path: PathBuf,
        /// The version that the library implements.
        found: TVMFFIVersion,
        /// Size of its function table in bytes.
        size: usize,
    },
    /// The library must not be used in this process.
    Conflict {
        /// The file.
        path: PathBuf,
        /// What the library says.
        reason: String,
    },
    /// The process is attached to another file already.
    Attached {
        /// The file that was asked for.
        path: PathBuf,
        /// The file that is in use.
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

/// The file that is attached. The lock also makes concurrent first calls wait for each other.
static ATTACHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Opens the runtime and fills the function table. The first thing an extension does; once for the process.
///
/// The library stays loaded for ever, and its symbols stay invisible to other libraries.
///
/// # Errors
/// [`AttachError`] if the file is no runtime that this extension can use. Nothing is attached then.
pub fn attach(path: &Path) -> Result<(), AttachError> {
    let mut attached = ATTACHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(current) = attached.as_deref() {
        let same = current == path;
        let error = || AttachError::Attached { path: path.into(), current: current.into() };
        return if same { Ok(()) } else { Err(error()) };
    }
    let api = check(path, open(path)?)?;
    stubs::fill(api);
    *attached = Some(path.into());
    Ok(())
}

/// Fills the function table with that of the runtime which loads this library: for plugins that must work in any process, also in
/// one where another runtime shows its functions to all libraries. Such a plugin exports `__anyfn_attach`, which the loader
/// calls first, and passes on what it gets.
///
/// # Errors
/// [`AttachError`] if the runtime is of a version that this library cannot use.
///
/// # Safety
/// `api` is what `anyfn_api()` gives, of a runtime that is never closed.
pub unsafe fn attach_table(api: *const AnyfnApi) -> Result<(), AttachError> {
    let path = Path::new("of this process");
    let mut attached = ATTACHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if api.is_null() {
        return Err(AttachError::NoTable { path: path.into() });
    }
    stubs::fill(check(path, api)?);
    *attached = Some(path.into());
    Ok(())
}

/// The table of the library at `path`, which stays loaded.
fn open(path: &Path) -> Result<*const AnyfnApi, AttachError> {
    let load_error = |reason: String| AttachError::Load { path: path.into(), reason };
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| load_error("NUL in its path".into()))?;
    // SAFETY: a valid path. RTLD_LOCAL: what the library exports stays invisible to others.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(load_error(linker_message()));
    }
    // SAFETY: an open library and a valid name.
    let entry = unsafe { libc::dlsym(library, c"anyfn_api".as_ptr()) };
    if entry.is_null() {
        // SAFETY: opened above, and nothing of it is in use.
        unsafe { libc::dlclose(library) };
        return Err(AttachError::NoTable { path: path.into() });
    }
    // SAFETY: the runtime declares `anyfn_api` with this type.
    let entry: unsafe extern "C" fn() -> *const AnyfnApi =
        unsafe { std::mem::transmute::<*mut c_void, _>(entry) };
    // SAFETY: the function may be called at any time.
    let api = unsafe { entry() };
    if api.is_null() { Err(AttachError::NoTable { path: path.into() }) } else { Ok(api) }
}

fn linker_message() -> String {
    // SAFETY: may be called at any time; the text is this thread's and is copied at once.
    let message = unsafe { libc::dlerror() };
    text(message).unwrap_or_else(|| "unknown reason".into())
}

/// The table, if this extension can use it.
fn check(path: &Path, api: *const AnyfnApi) -> Result<&'static AnyfnApi, AttachError> {
    // SAFETY: every table begins with its size and version, and lives as long as the library, which is never closed.
    let size = unsafe { (*api).size };
    // SAFETY: every table begins with its size and version, and lives as long as the library, which is never closed.
    let found = unsafe { (*api).version };
    // Members are only appended, so a longer table serves too.
    if size < size_of::<AnyfnApi>() || found.major != ABI_VERSION.major || found.minor < ABI_VERSION.minor {
        return Err(AttachError::Version { path: path.into(), found, size });
    }
    // SAFETY: not NULL, as large as the struct, and never freed.
    let api = unsafe { &*api };
    match text(api.conflict) {
        Some(reason) => Err(AttachError::Conflict { path: path.into(), reason }),
        None => Ok(api),
    }
}

/// A C string of the runtime; `None` for NULL.
fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not NULL, and the C functions that give such texts end them with NUL.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Address of a symbol that the process has loaded globally, such as one of its interpreter; NULL if there is none.
pub fn process_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: asks for a name in the global scope; nothing is loaded or run.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The file of the extension that contains this crate, as the dynamic linker knows it.
pub fn own_file() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the linker only looks the address up; `info` is writable.
    let found: c_int = unsafe { libc::dladdr((&raw const ATTACHED).cast(), info.as_mut_ptr()) };
    // SAFETY: zeroed or filled, and all fields are plain data.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated name of a loaded file.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}
