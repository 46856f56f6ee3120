//! Library files: how they are opened, and how a file and its content are identified.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Identity of a file, which changes when its content changes: device, inode, size, and modification time in
/// seconds and nanoseconds. Files with the same identity are assumed to have the same content.
pub(crate) type Identity = (u64, u64, u64, (i64, i64));

/// Opens the file at `path`. Returns its absolute path, the open file and its metadata, or the reason why it cannot be
/// opened.
pub(crate) fn find(path: &str) -> Result<(PathBuf, File, Metadata), String> {
    let full = fs::canonicalize(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => match std::env::current_dir() {
            Ok(here) if Path::new(path).is_relative() => format!("there is no such file in {}", here.display()),
            _ => "there is no such file".to_owned(),
        },
        _ => error.to_string(),
    })?;
    let unreadable = |error: std::io::Error| format!("the file cannot be read: {error}");
    // Checked before the file is opened, because opening a pipe would wait.
    let kind = fs::metadata(&full).map_err(unreadable)?;
    if kind.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !kind.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = File::open(&full).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    Ok((full, file, metadata))
}

/// Returns true if two identities belong to the same file. The content of the file may have changed in between.
pub(crate) fn same_file(one: &Identity, other: &Identity) -> bool {
    (one.0, one.1) == (other.0, other.1)
}

/// Returns the identity of a file from its metadata.
pub(crate) fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino(), file.size(), (file.mtime(), file.mtime_nsec()))
}

/// Returns the identity of the file at `path`, or `None` if its metadata cannot be read, for example because the file
/// does not exist.
pub(crate) fn identity_of(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().as_ref().map(identity)
}
