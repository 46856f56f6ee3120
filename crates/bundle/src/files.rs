//! Temporary folders, and output files that get their final name only once they are complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns a suffix for the names of temporary files and folders. It differs from call to call and from
/// process to process.
fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A temporary folder that only the current user can access. It is removed on drop.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("anyfn-bundle-{}", unique()));
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// An output file that is written under a temporary name in the destination folder and renamed once it is
/// complete.
pub(super) struct Partial {
    path: PathBuf,
    place: PathBuf,
}

impl Partial {
    /// Chooses a temporary name for the output file whose final name is `place`. A file named `place` may
    /// already exist.
    pub(super) fn of(place: &Path) -> Result<Partial, String> {
        let Some(name) = place.file_name() else {
            return Err(format!("{} is not a file name", place.display()));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", unique()));
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(format!("the folder {} does not exist", folder.display()));
        }
        Ok(Partial { path: folder.join(hidden), place: place.to_path_buf() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the complete content to the temporary file, and copies the permissions of the file `like`.
    pub(super) fn write(&self, content: &[u8], like: &Path) -> Result<(), String> {
        let fail = |error: std::io::Error| format!("{}: {error}", self.place.display());
        fs::write(&self.path, content).map_err(fail)?;
        let permissions = fs::metadata(like).map_err(fail)?.permissions();
        fs::set_permissions(&self.path, permissions).map_err(fail)
    }

    /// Renames the temporary file to its final name.
    pub(super) fn finish(self) -> Result<(), String> {
        let fail = |error: std::io::Error| format!("{}: {error}", self.place.display());
        fs::File::open(&self.path).and_then(|file| file.sync_all()).map_err(fail)?;
        fs::rename(&self.path, &self.place).map_err(fail)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `finish`, no file of this name exists.
        drop(fs::remove_file(&self.path));
    }
}
