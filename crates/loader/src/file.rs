//! Library files: how they are opened, and how a file and its content are identified.

use core::ffi::c_int;

use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Identity of a file, which changes when its content changes: device, inode, size, and modification time in
/// seconds and nanoseconds. Files with the same identity are assumed to have the same content.
pub(crate) type Identity = (u64, u64, u64, (i64, i64));

/// Returns the metadata of the file at `path`, or the reason why the file cannot be loaded. It is not opened.
pub(crate) fn regular(path: &str) -> Result<Metadata, String> {
    // Opening another kind of file could wait, for example for the writer of a pipe.
    let metadata = fs::metadata(path).map_err(|error| absent(path, &error))?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    Ok(metadata)
}

/// Opens the regular file at `path`. Returns its absolute path without symbolic links, the open file and its metadata,
/// or the reason why it cannot be opened.
pub(crate) fn open(path: &str) -> Result<(PathBuf, File, Metadata), String> {
    let unreadable = |error: std::io::Error| format!("the file cannot be read: {error}");
    let (full, file) = match open_without_links(path) {
        Some(file) => (PathBuf::from(path), file),
        None => {
            let full = fs::canonicalize(path).map_err(|error| absent(path, &error))?;
            let file = File::open(&full).map_err(unreadable)?;
            (full, file)
        }
    };
    let metadata = file.metadata().map_err(unreadable)?;
    Ok((full, file, metadata))
}

/// Opens the file at `path` like [`open`], and checks before that it is a regular file.
pub(crate) fn find(path: &str) -> Result<(PathBuf, File, Metadata), String> {
    regular(path)?;
    open(path)
}

fn absent(path: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => match std::env::current_dir() {
            Ok(here) if Path::new(path).is_relative() => format!("there is no such file in {}", here.display()),
            _ => "there is no such file".to_owned(),
        },
        _ => error.to_string(),
    }
}

/// Opens the file at `path` if `path` is what [`fs::canonicalize`] would return: an absolute path without redundant
/// components that leads through no symbolic link. Otherwise, or if the system cannot tell, returns `None`.
///
/// The kernel resolves the path once, where `fs::canonicalize` examines each of its components by a system call.
fn open_without_links(path: &str) -> Option<File> {
    let mut parts = path.strip_prefix('/')?.split('/');
    if parts.any(|part| matches!(part, "" | "." | "..")) {
        return None;
    }
    let path = CString::new(path).ok()?;
    // SAFETY: the struct consists of integers.
    let mut how: libc::open_how = unsafe { core::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    // Called by number, because few C libraries have a function for it. Kernels before 5.6 and some sandboxes refuse it.
    // SAFETY: the path is NUL-terminated, and `how` is a struct of the given size; both outlive the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size_of_val(&how))
    };
    let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Some(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_canonical() {
        let folder = std::env::temp_dir().join(format!("anyfn-file-{}", std::process::id()));
        fs::create_dir_all(folder.join("real")).unwrap();
        let folder = fs::canonicalize(&folder).unwrap();
        let real = folder.join("real/a.so");
        fs::write(&real, b"content").unwrap();
        std::os::unix::fs::symlink("real", folder.join("link")).unwrap();
        std::os::unix::fs::symlink("a.so", folder.join("real/b.so")).unwrap();
        for path in ["real/a.so", "link/a.so", "real/b.so", "real/./a.so", "real//a.so", "link/../real/a.so"] {
            let path = folder.join(path).to_str().unwrap().to_owned();
            let (full, file, metadata) = find(&path).unwrap();
            assert_eq!(full, real, "{path}");
            assert_eq!(identity(&metadata), identity(&file.metadata().unwrap()));
            assert_eq!(Some(identity(&metadata)), identity_of(&real));
        }
        let of = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        // Where the kernel knows the system call, only a path without links is opened by it.
        if open_without_links(&of("real/a.so")).is_some() {
            for path in
                ["link/a.so", "real/b.so", "real/./a.so", "real//a.so", "real/../real/a.so", "absent.so"]
            {
                assert!(open_without_links(&of(path)).is_none(), "{path}");
            }
        }
        assert!(open_without_links("relative.so").is_none());
        assert_eq!(find(&of("real")).unwrap_err(), "it is a directory");
        assert_eq!(find(&of("absent.so")).unwrap_err(), "there is no such file");
        assert!(find("absent.so").unwrap_err().starts_with("there is no such file in /"));
        assert_eq!(find("/dev/null").unwrap_err(), "it is not a regular file");
        fs::remove_dir_all(&folder).unwrap();
    }
}
