//! The folders of session processes, and how nothing of them is left.
//!
//! A server has one folder, named for nobody to guess, readable by nobody else, and locked while the server lives; each of its
//! sessions has one in there. What a server that was killed has left is found by its lock being free, and removed by the next.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use libc::c_int;

use super::sys::check;

/// How the names of folders of servers begin.
const PREFIX: &str = "anyfn-server-";

/// The folder of a server.
pub(crate) struct Folder {
    path: PathBuf,
    /// The folder itself, locked.
    _lock: File,
    remover: Option<(mpsc::Sender<PathBuf>, JoinHandle<()>)>,
}

impl Folder {
    /// Makes one below `parent`, and removes those of servers that are no more.
    pub(crate) fn create(parent: &Path, unique: &str) -> io::Result<Folder> {
        remove_left_over(parent);
        let path = parent.join(format!("{PREFIX}{unique}"));
        make(&path)?;
        let lock = open_folder(&path)?;
        lock_now(&lock)?;
        // Removing what a session has left may take long, and others must not wait for it.
        let (sender, receiver) = mpsc::channel::<PathBuf>();
        let remove_all = move || {
            super::sys::block_signals();
            while let Ok(path) = receiver.recv() {
                // What cannot be removed now is tried again when the server ends, and by the next one.
                let _ = remove(&path);
            }
        };
        let thread = Builder::new().name("anyfn-rpc-remove".into()).spawn(remove_all)?;
        Ok(Folder { path, _lock: lock, remover: Some((sender, thread)) })
    }

    /// Makes the folder of a session.
    pub(crate) fn session(&self, number: u64) -> io::Result<PathBuf> {
        let path = self.path.join(number.to_string());
        make(&path)?;
        Ok(path)
    }

    /// Removes the folder of a session, some time soon.
    pub(crate) fn remove(&self, path: PathBuf) {
        if let Some((sender, _)) = &self.remover {
            let _ = sender.send(path);
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.remover.take() {
            drop(sender);
            let _ = thread.join();
        }
        let _ = remove(&self.path);
    }
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn open_folder(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Locks it, if nobody else has.
fn lock_now(folder: &File) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

/// Removes the folders of servers of this user that are no more.
fn remove_left_over(parent: &Path) {
    // SAFETY: no pointers.
    let user = unsafe { libc::geteuid() };
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        let is_mine = || entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user);
        if !is_one || !is_mine() {
            continue;
        }
        if let Ok(folder) = open_folder(&entry.path())
            && lock_now(&folder).is_ok()
        {
            let _ = remove(&entry.path());
        }
    }
}

/// Removes a folder and all that is in it: however deep it is, and whatever permissions it was given. Links are not followed.
///
/// Folders in the folder are emptied into it, one after the other, so that neither stack nor path nor descriptors grow
/// with the depth.
fn remove(path: &Path) -> io::Result<()> {
    let top = open_folder(path)?;
    top.set_permissions(Permissions::from_mode(0o700))?;
    let mut moved = 0u64;
    let mut folders = VecDeque::new();
    unlink_files(&top, &mut folders)?;
    while let Some(name) = folders.pop_front() {
        let mut inner = Vec::new();
        let folder = open_in(&top, &name)?;
        unlink_files(&folder, &mut inner)?;
        for from in inner {
            let to = unused_name(&top, &mut moved)?;
            // It may have no permissions of its own, and is changed by being moved.
            drop(open_in(&folder, &from)?);
            // SAFETY: both names end with NUL, both descriptors are open.
            check(unsafe { libc::renameat(folder.as_raw_fd(), from.as_ptr(), top.as_raw_fd(), to.as_ptr()) })?;
            folders.push_back(to);
        }
        // SAFETY: as above.
        check(unsafe { libc::unlinkat(top.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })?;
    }
    std::fs::remove_dir(path)
}

/// A name that nothing in the folder has.
fn unused_name(folder: &File, count: &mut u64) -> io::Result<CString> {
    loop {
        let name = CString::new(format!(".{count}"))?;
        *count += 1;
        // SAFETY: the name ends with NUL.
        if unsafe { libc::faccessat(folder.as_raw_fd(), name.as_ptr(), libc::F_OK, libc::AT_SYMLINK_NOFOLLOW) }
            != 0
        {
            return Ok(name);
        }
    }
}

/// Opens a folder in a folder, giving it permissions if it has none.
fn open_in(folder: &File, name: &CStr) -> io::Result<File> {
    let flags: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let open = || {
        // SAFETY: the name ends with NUL.
        let fd = check(unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags) })?;
        // SAFETY: a descriptor just made for us.
        Ok::<_, io::Error>(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    };
    let opened = match open() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // SAFETY: the name ends with NUL.
            check(unsafe { libc::fchmodat(folder.as_raw_fd(), name.as_ptr(), 0o700, 0) })?;
            open()?
        }
        other => other?,
    };
    opened.set_permissions(Permissions::from_mode(0o700))?;
    Ok(opened)
}

/// Removes what is in a folder but folders, whose names it tells.
fn unlink_files(folder: &File, folders: &mut impl Extend<CString>) -> io::Result<()> {
    // The list is read whole: what is removed while it is read would not be safe.
    let here = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let names =
        std::fs::read_dir(here)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<OsString>>>()?;
    for name in names {
        let name = CString::new(name.into_vec())?;
        // SAFETY: the name ends with NUL.
        match check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }) {
            Ok(_) => (),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {
                folders.extend([name])
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("folder-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn all_is_removed() {
        let parent = scratch("all");
        let kept = parent.join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let folder = Folder::create(&parent, "test").unwrap();
        let path = folder.session(1).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&kept, path.join("link")).unwrap();
        fs::write(path.join("file"), "x").unwrap();
        fs::write(path.join(".0"), "x").unwrap();
        fs::create_dir_all(path.join("a/.0/b/c")).unwrap();
        fs::create_dir_all(path.join("a/.1/b/c")).unwrap();
        fs::write(path.join("a/.0/b/c/file"), "x").unwrap();
        fs::set_permissions(path.join("a/.1/b"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o500)).unwrap();
        drop(folder);
        assert!(kept.join("file").exists());
        fs::remove_dir_all(kept).unwrap();
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn no_depth_is_too_deep() {
        let parent = scratch("deep");
        let folder = Folder::create(&parent, "test").unwrap();
        let mut at = open_folder(&folder.session(1).unwrap()).unwrap();
        for _ in 0..3000 {
            // SAFETY: the name ends with NUL.
            check(unsafe { libc::mkdirat(at.as_raw_fd(), c"d".as_ptr(), 0o700) }).unwrap();
            at = open_in(&at, c"d").unwrap();
        }
        drop(folder);
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn what_a_killed_server_left_is_removed() {
        let parent = scratch("left");
        let left = parent.join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join("1/tmp")).unwrap();
        let living = Folder::create(&parent, "living").unwrap();
        assert!(!left.exists());
        let next = Folder::create(&parent, "next").unwrap();
        assert!(living.path.exists());
        drop((living, next));
        fs::remove_dir(parent).unwrap();
    }
}
