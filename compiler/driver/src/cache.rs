//! Content-addressed cache of compiled libraries.
//!
//! An entry is a folder whose name is a hash. It contains `module.so`, the source `module.c` from which it
//! was compiled, and `about`, which identifies the compiler and contains a checksum of the library. All of
//! these are compared before an entry is used. An entry is prepared in another folder, which is then renamed,
//! so processes need no lock.
//!
//! The folder `sources` contains generated sources: files with a checksum, the build ID of this compiler, the module,
//! and its source.

use std::fs::{self, DirBuilder, File};
use std::hash::Hasher as _;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyfn::Result;
use tempfile::TempDir;

use crate::compile::io_error;
use crate::identity::build_id;

/// On-disk cache of compiled libraries and generated sources, described by its folder and its size
/// limit.
pub(crate) struct Cache {
    folder: PathBuf,
    most_bytes: u64,
}

/// File name of the library in the folder of a cache entry.
pub(crate) const LIBRARY: &str = "module.so";
/// File name of the source in the folder of a cache entry.
pub(crate) const SOURCE: &str = "module.c";
const ABOUT: &str = "about";
/// Name of the subfolder of the cache that contains the sources generated from modules.
const SOURCES: &str = "sources";
/// Prefix of the temporary name under which a cache entry or a cached source is written.
const PARTIAL: &str = "partial-";
const MOST_BYTES: u64 = 512 << 20;
/// Age at which an incomplete cache entry is considered abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

impl Cache {
    /// Opens the compilation cache of the current user. Returns `None` if the cache is disabled by
    /// `ANYFN_CACHE=off`, if the cache folder cannot be determined or created, or if other users
    /// have access to the folder.
    pub(crate) fn open() -> Option<Cache> {
        match std::env::var_os("ANYFN_CACHE").as_ref().map(|value| value.to_string_lossy()).as_deref() {
            Some("off" | "0") => return None,
            None | Some("" | "on" | "1") => {}
            Some(other) => ignored_once(&format!("ANYFN_CACHE must be `off` or `on`, got {other:?}")),
        }
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = variable("ANYFN_CACHE_DIR")
            .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("anyfn")))
            .or_else(|| variable("HOME").map(|folder| folder.join(".cache").join("anyfn")))?;
        // The path is absolute, so that libraries in the folder are found even if the process changes its
        // working directory.
        let folder = std::path::absolute(folder).ok()?;
        if let Err(reason) = private(&folder) {
            warn_once(&folder, &reason);
            return None;
        }
        let asked = variable("ANYFN_CACHE_MB").map(|text| text.to_string_lossy().into_owned());
        let megabytes = asked.as_ref().and_then(|text| text.trim().parse::<u64>().ok());
        if let (Some(text), None) = (asked, megabytes) {
            ignored_once(&format!("ANYFN_CACHE_MB must be a number of megabytes, got {text:?}"));
        }
        Some(Cache { folder, most_bytes: megabytes.map_or(MOST_BYTES, |n| n.saturating_mul(1 << 20)) })
    }

    fn entry(&self, compiler: &str, source: &str) -> PathBuf {
        let (a, b) = (
            hash(0, &[compiler.as_bytes(), source.as_bytes()]),
            hash(1, &[compiler.as_bytes(), source.as_bytes()]),
        );
        self.folder.join(format!("{a:016x}{b:016x}"))
    }

    /// Returns the path of the cached library that the compiler with the identity `compiler` made
    /// from `source`. Returns `None` if no such library is cached, or if its cache entry is
    /// damaged.
    pub(crate) fn get(&self, compiler: &str, source: &str) -> Option<PathBuf> {
        let entry = self.entry(compiler, source);
        let mut file = File::open(entry.join(ABOUT)).ok()?;
        let mut told = String::new();
        file.read_to_string(&mut told).ok()?;
        let library = entry.join(LIBRARY);
        let is_same = fs::read(entry.join(SOURCE)).ok()? == source.as_bytes();
        if !is_same || told != about(compiler, &fs::read(&library).ok()?) {
            return None;
        }
        is_used(&file);
        Some(library)
    }

    /// Returns the path of the file that caches the source generated from a serialised module, and
    /// the header that precedes the source in that file. Returns `None` if this build of the
    /// compiler has no build ID.
    fn source_of(&self, module: &str) -> Option<(PathBuf, String)> {
        let build = build_id()?;
        let (a, b) =
            (hash(0, &[build.as_bytes(), module.as_bytes()]), hash(1, &[build.as_bytes(), module.as_bytes()]));
        let head = format!("anyfn {build}\n{} bytes\n{module}\n", module.len());
        Some((self.folder.join(SOURCES).join(format!("{a:016x}{b:016x}")), head))
    }

    /// Returns the cached source that this build of the compiler generated from a serialised
    /// module. Returns `None` if no such source is cached, or if the file is damaged.
    pub(crate) fn source(&self, module: &str) -> Option<String> {
        let (path, head) = self.source_of(module)?;
        let mut file = File::open(path).ok()?;
        let mut told = String::new();
        file.read_to_string(&mut told).ok()?;
        let (sum, rest) = told.split_once('\n')?;
        if sum != format!("{:016x}", hash(2, &[rest.as_bytes()])) {
            return None;
        }
        let source = rest.strip_prefix(&head)?.to_owned();
        is_used(&file);
        Some(source)
    }

    /// Caches the source that was generated from a serialised module. Errors are ignored, since the
    /// source can be generated again.
    pub(crate) fn keep_source(&self, module: &str, source: &str) {
        let Some((path, head)) = self.source_of(module) else { return };
        let write = || -> std::io::Result<()> {
            let folder = self.folder.join(SOURCES);
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let sum = hash(2, &[format!("{head}{source}").as_bytes()]);
            let mut file = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(&folder)?;
            write!(file, "{sum:016x}\n{head}{source}")?;
            file.persist(path)?;
            Ok(())
        };
        let _ = write();
    }

    /// Copies a library that was compiled in another folder into a new cache entry. Returns the
    /// path of the copy. If the entry cannot be created, for example because the disk is full,
    /// prints a warning once and returns `None`.
    pub(crate) fn keep(&self, compiler: &str, source: &str, library: &Path) -> Option<PathBuf> {
        let kept = self.try_keep(compiler, source, library);
        kept.map_err(|error| warn_once(&self.folder, &error.to_string())).ok()
    }

    fn try_keep(&self, compiler: &str, source: &str, library: &Path) -> std::io::Result<PathBuf> {
        let partial = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(&self.folder)?;
        fs::write(partial.path().join(SOURCE), source)?;
        fs::copy(library, partial.path().join(LIBRARY))?;
        fs::write(partial.path().join(ABOUT), about(compiler, &fs::read(library)?))?;
        let entry = self.entry(compiler, source);
        let mut tries = 0;
        while let Err(error) = fs::rename(partial.path(), &entry) {
            // Another process has created the same entry, or the existing entry is damaged.
            if let Some(library) = self.get(compiler, source) {
                return Ok(library);
            }
            let _ = remove(&entry);
            tries += 1;
            if tries == 3 {
                return Err(error);
            }
        }
        self.trim();
        Ok(entry.join(LIBRARY))
    }

    /// Removes the cache entry to which the file `library` belongs.
    pub(crate) fn remove(&self, library: &Path) {
        if let Some(entry) = library.parent() {
            let _ = fs::remove_dir_all(entry);
        }
    }

    /// Removes unfinished entries that are older than [`ABANDONED`]. While the cache exceeds its
    /// size limit, also removes the least recently used entries. The function is called for each
    /// new entry. With the default size limit, only the first call in a process and every 16th call
    /// after it have an effect.
    fn trim(&self) {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !MADE.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) && self.most_bytes == MOST_BYTES {
            return;
        }
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let folders = [self.folder.clone(), self.folder.join(SOURCES)];
        for found in folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
            let path = found.path();
            let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
            if found.file_name().to_string_lossy().starts_with(PARTIAL) {
                if changed(&path).is_some_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED)) {
                    let _ = remove(&path);
                }
                continue;
            }
            let is_file = found.file_type().is_ok_and(|kind| kind.is_file());
            let size = |path: PathBuf| fs::metadata(path).map_or(0, |data| data.len());
            let (told, bytes) = match is_file {
                true => (path.clone(), size(path.clone())),
                false => (path.join(ABOUT), size(path.join(LIBRARY)) + size(path.join(SOURCE))),
            };
            let Some(used) = changed(&told) else { continue };
            entries.push((used, bytes, path));
        }
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        // The last entry is the new one.
        entries.pop();
        for (_, size, path) in entries {
            if total <= self.most_bytes {
                break;
            }
            if remove(&path).is_ok() {
                total -= size;
            }
        }
    }
}

/// Removes the folder of a cache entry, or the file of a cached source.
fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Updates the modification time of a file if that time is more than an hour ago. The modification
/// time records the last use of a cache entry, and the least recently used entries are removed
/// first.
fn is_used(file: &File) {
    let changed = file.metadata().and_then(|data| data.modified());
    if changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED)) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Returns the expected content of a cache entry's file `about`: the version of anyfn, the size and hash of
/// the library, and the identity of the compiler.
fn about(compiler: &str, library: &[u8]) -> String {
    format!(
        "anyfn {}\n{} bytes {:016x}\n{compiler}",
        env!("CARGO_PKG_VERSION"),
        library.len(),
        hash(2, &[library])
    )
}

/// Returns a hash that identifies cache entries and detects damage. It need not be cryptographic, since the
/// content of an entry is compared before it is used.
fn hash(seed: u8, parts: &[&[u8]]) -> u64 {
    #[expect(deprecated, reason = "the one of the standard library whose results do not change")]
    let mut hasher = std::hash::SipHasher::new_with_keys(seed.into(), 0);
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}

/// Creates the cache folder if it does not exist, and checks that no other user has access to it.
/// Returns the reason if this fails. A folder that other users can access must not be used, because
/// those users could replace a cached library with their own code.
fn private(folder: &Path) -> Result<(), String> {
    let data = match fs::symlink_metadata(folder) {
        Ok(data) => data,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| format!("it cannot be created: {error}"))?;
            fs::symlink_metadata(folder).map_err(|error| error.to_string())?
        }
        Err(error) => return Err(error.to_string()),
    };
    if !data.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    // SAFETY: `geteuid` takes no arguments, accesses no memory of this process and cannot fail.
    let user = unsafe { libc::geteuid() };
    if data.uid() != user {
        return Err(format!("it belongs to user {}, not to {user}", data.uid()));
    }
    if data.mode() & 0o077 != 0 {
        let mode = data.mode() & 0o777;
        return Err(format!(
            "other users have access to it (mode {mode:o}); run `chmod 700` on it, or set ANYFN_CACHE_DIR \
             to another folder"
        ));
    }
    Ok(())
}

/// Prints a warning that an environment variable is ignored, once for each reason.
#[cold]
fn ignored_once(reason: &str) {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.iter().any(|known| known == reason) {
        eprintln!("anyfn: warning: {reason}; it is ignored");
        told.push(reason.to_owned());
    }
}

#[cold]
fn warn_once(folder: &Path, reason: &str) {
    static TOLD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.iter().any(|known| known == folder) {
        told.push(folder.to_path_buf());
        eprintln!("anyfn: warning: compiled code is not cached in {}: {reason}", folder.display());
    }
}

/// Creates a folder for files that are not cached. All such folders are removed when the process exits.
///
/// # Errors
/// Returns `OSError` if the folder cannot be created.
pub(crate) fn scratch() -> Result<PathBuf> {
    static FOLDER: Mutex<Option<(u32, PathBuf)>> = Mutex::new(None);
    extern "C" fn at_exit() {
        // A forked child does not remove the folder, because it belongs to the parent.
        if let Ok(mut folder) = FOLDER.try_lock()
            && let Some((_, path)) = folder.take_if(|(process, _)| *process == std::process::id())
        {
            let _ = fs::remove_dir_all(path);
        }
    }
    let mut folder = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    let path = match &*folder {
        Some((owner, path)) if *owner == process => path.clone(),
        _ => {
            let path = temporary()?.keep();
            // SAFETY: `at_exit` has the type that `atexit` expects: it takes no arguments, and a panic in it aborts the
            // process instead of unwinding. The C library links `atexit` into each library, where it registers the
            // function with the handle of that library (`__cxa_atexit`). The function is therefore called before its
            // code is unmapped, at the latest when the process exits.
            unsafe { libc::atexit(at_exit) };
            *folder = Some((process, path.clone()));
            path
        }
    };
    drop(folder);
    let failed = |error: std::io::Error| io_error(&path, &error);
    Ok(tempfile::Builder::new().prefix("").tempdir_in(&path).map_err(failed)?.keep())
}

/// Creates a folder that is removed when the returned value is dropped.
///
/// # Errors
/// Returns `OSError` if the folder cannot be created.
pub(crate) fn temporary() -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    // A user who can write to the folder can make this user run other code.
    let builder = builder.prefix("anyfn-").permissions(fs::Permissions::from_mode(0o700));
    // C compilers also use `/tmp` if TMPDIR is not a folder.
    let made = builder.tempdir().or_else(|error| builder.tempdir_in("/tmp").map_err(|_| error));
    made.map_err(|error| io_error(&std::env::temp_dir(), &error))
}
