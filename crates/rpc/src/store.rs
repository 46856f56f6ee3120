//! Storage for the files that a client uploads, each identified by the digest of its content. The client
//! never specifies a path.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyfn::{Any, Result, bail, check_signals, error};
use blake2::{Blake2s256, Digest};

use anyfn_protocol::sink::Sink;

/// Number of characters of a digest, which consists of 32 bytes in hexadecimal.
const DIGITS: usize = 64;

/// Number of bytes that are read from a file at a time.
const PART: usize = 1 << 20;

/// Returns the digest of a file's content.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    hex(&Blake2s256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that the content of an uploaded file still has the digest `digest`. Code that the session has
/// loaded, or another process with the same rights, may have changed the file.
///
/// # Errors
/// Returns `ValueError` if the content has changed, `OSError` if the file cannot be read, and the error of a pending signal.
pub(crate) fn verify(path: &Path, digest: &str) -> Result<()> {
    let unreadable =
        |error: std::io::Error| error!("OSError", "cannot read the file at the remote end: {error}");
    let mut file = File::open(path).map_err(unreadable)?;
    let (mut hash, mut part) = (Blake2s256::new(), vec![0; PART]);
    loop {
        check_signals()?;
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(count) => hash.update(&part[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    if hex(&hash.finalize()) != digest {
        bail!("ValueError", "the content of the file no longer matches its digest: upload it again");
    }
    Ok(())
}

fn check(digest: &str) -> Result<()> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digest.len() != DIGITS || !digest.bytes().all(digit) {
        bail!("ValueError", "expected the digest of a file as {DIGITS} lowercase hexadecimal digits");
    }
    Ok(())
}

/// Files that the client of a session has uploaded.
pub(crate) struct Store {
    folder: PathBuf,
    limit: u64,
    /// Total size in bytes of the uploads in progress. It counts towards the client's storage
    /// limit.
    coming: Arc<AtomicU64>,
    /// Sequence number of the next upload. It is part of the name of a temporary file, so that simultaneous
    /// uploads of the same content do not interfere.
    next: AtomicU64,
}

/// Minimum number of bytes by which each file counts towards the client's storage limit. Without it, many
/// small files could fill the disk.
const FILE_MIN: u64 = 4096;

impl Store {
    pub(crate) fn new(folder: PathBuf, limit: u64) -> Store {
        Store { folder, limit, coming: Arc::default(), next: AtomicU64::new(0) }
    }

    /// Creates the folder for the first file. Sessions without uploads have none, so a process that ends without closing
    /// them leaves none behind. Servers create the folders of their sessions themselves.
    fn make_folder(&self) -> std::io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            // Two uploads may begin at the same time.
            Err(_) if self.folder.is_dir() => Ok(()),
            made => made,
        }
    }

    fn place(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}.so"))
    }

    pub(crate) fn has(&self, digest: &str) -> bool {
        check(digest).is_ok() && self.place(digest).is_file()
    }

    /// Returns a map from the digest of each uploaded file to its size in bytes.
    pub(crate) fn files(&self) -> HashMap<anyfn::String, u64> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let digest = name.strip_suffix(".so").filter(|digest| check(digest).is_ok())?;
            Some((anyfn::String::from(digest), entry.metadata().ok()?.len()))
        });
        files.collect()
    }

    pub(crate) fn remove(&self, digest: &str) -> Result<bool> {
        check(digest)?;
        Ok(fs::remove_file(self.place(digest)).is_ok())
    }

    pub(crate) fn path(&self, digest: &str) -> Result<String> {
        check(digest)?;
        if !self.has(digest) {
            bail!("ValueError", "no file with this digest exists: upload it first");
        }
        Ok(self.place(digest).to_string_lossy().into_owned())
    }

    /// Begins the upload of a file of `count` bytes. The file becomes available when all its bytes
    /// have arrived and match `digest`.
    pub(crate) fn put(&self, digest: &str, count: u64) -> Result<FileSink> {
        check(digest)?;
        let there: u64 = self.files().values().map(|bytes| (*bytes).max(FILE_MIN)).sum();
        let used = there.saturating_add(self.coming.load(Ordering::Relaxed));
        let counted = count.max(FILE_MIN);
        if used.saturating_add(counted) > self.limit {
            bail!(
                "PermissionError",
                "cannot upload {count} bytes: the session's files use {used} of their limit of {} (`store_bytes`)",
                self.limit
            );
        }
        if let Err(error) = self.make_folder() {
            bail!("OSError", "cannot create the folder for uploaded files at the remote end: {error}");
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let part = self.folder.join(format!("{digest}.{number}.part"));
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        match opened {
            Ok(file) => {
                self.coming.fetch_add(counted, Ordering::Relaxed);
                Ok(FileSink {
                    file,
                    part: Part { path: part, counted, coming: self.coming.clone() },
                    place: self.place(digest),
                    hash: Blake2s256::new(),
                    digest: digest.to_owned(),
                })
            }
            Err(error) => bail!("OSError", "cannot store the file at the remote end: {error}"),
        }
    }
}

/// Incomplete file of an upload. The file is removed when this value is dropped, unless it has been
/// renamed.
struct Part {
    path: PathBuf,
    counted: u64,
    coming: Arc<AtomicU64>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.coming.fetch_sub(self.counted, Ordering::Relaxed);
        let _ = fs::remove_file(&self.path);
    }
}

pub(crate) struct FileSink {
    file: File,
    part: Part,
    place: PathBuf,
    hash: Blake2s256,
    digest: String,
}

impl Sink for FileSink {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        match self.file.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) => bail!("OSError", "cannot store the file at the remote end: {error}"),
        }
    }

    fn finish(self: Box<Self>) -> Result<Any> {
        if hex(&self.hash.clone().finalize()) != self.digest {
            bail!("ValueError", "the content of the file does not match its digest");
        }
        match fs::rename(&self.part.path, &self.place) {
            Ok(()) => Ok(Any::NONE),
            Err(error) => bail!("OSError", "cannot store the file at the remote end: {error}"),
        }
    }
}
