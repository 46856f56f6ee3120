//! The journal: a file of records, one line of JSON each, to which lines are only appended.
//!
//! A record is on the disk before anybody learns of it. A crash can only cut the last line short, which is then removed. When most
//! lines are obsolete, the file is replaced by a shorter one with the same meaning.

use std::fs::{File, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyfn::{Result, bail, error};

use crate::state::Record;

/// First line of a journal.
const HEAD: &str = "{\"anyfn_tracker_journal\":1}\n";

/// Number of lines below which a journal is not replaced.
const SMALL: usize = 1000;

/// Open journal, which no other tracker can open meanwhile.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    lines: usize,
    /// Number of lines after the last replacement.
    needed: usize,
}

fn failed(what: &str, path: &Path, why: &std::io::Error) -> anyfn::Error {
    error!("OSError", "cannot {what} the journal `{}`: {why}", path.display())
}

impl Journal {
    /// Opens a journal, or creates an empty one that only its owner may read. Returns the journal and its records.
    ///
    /// # Errors
    /// Returns `OSError` if the file cannot be read or written, `RuntimeError` if another tracker uses it, and `ValueError` if it
    /// is not a journal or a line other than the last is damaged.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Record>)> {
        let (mut file, mut text) = (create(path, false)?, Vec::new());
        lock(&file, path)?;
        file.read_to_end(&mut text).map_err(|why| failed("read", path, &why))?;
        let (records, good) =
            parse(&text).map_err(|why| error!("ValueError", "`{}`: {why}", path.display()))?;
        let mut journal =
            Journal { path: path.to_owned(), file, bytes: good as u64, lines: records.len(), needed: 0 };
        // It contains keys. A file that others have created may be open to all.
        let private = journal.file.set_permissions(Permissions::from_mode(0o600));
        private.map_err(|why| failed("protect", path, &why))?;
        if good < text.len() {
            let cut = journal.file.set_len(journal.bytes).and_then(|()| journal.file.sync_all());
            cut.map_err(|why| failed("repair", path, &why))?;
        }
        if good == 0 {
            journal.write(HEAD.as_bytes())?;
            journal.sync_folder()?;
        }
        Ok((journal, records))
    }

    /// Appends records. They are on the disk when the method returns.
    ///
    /// # Errors
    /// Returns `OSError` if they cannot be written. The journal then contains none of them.
    pub fn append(&mut self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.write(&lines(records))?;
        self.lines += records.len();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let at = std::io::SeekFrom::Start(self.bytes);
        let written =
            self.file.seek(at).and_then(|_| self.file.write_all(bytes)).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.bytes += bytes.len() as u64,
            Err(why) => {
                let _ = self.file.set_len(self.bytes);
                return Err(failed("write to", &self.path, &why));
            }
        }
        Ok(())
    }

    /// Returns true if the journal has grown so much that it should be replaced.
    pub fn is_long(&self) -> bool {
        self.lines > SMALL.max(4 * self.needed)
    }

    /// Replaces the content of the journal by `records`. A crash leaves either the old or the new file. If the new file cannot be
    /// written, for example because the disk is full or no descriptors are left, the old one stays in use until it has grown again.
    ///
    /// # Errors
    /// Returns `OSError` if it is unknown which of the two files the disk contains. Nothing may be appended then.
    pub fn replace(&mut self, records: &[Record]) -> Result<()> {
        let text = [HEAD.as_bytes(), &lines(records)].concat();
        match self.write_new(&text) {
            Ok(file) => self.file = file,
            Err(why) => {
                eprintln!("anyfn rpc tracker: {}; the longer one stays in use", why.message());
                self.needed = self.lines;
                return Ok(());
            }
        }
        self.bytes = text.len() as u64;
        (self.lines, self.needed) = (records.len(), records.len());
        self.sync_folder()
    }

    /// Writes a new file and gives it the name of the journal. Returns it.
    fn write_new(&self, text: &[u8]) -> Result<File> {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut file = create(&new, true)?;
        lock(&file, &new)?;
        let written = file.write_all(text).and_then(|()| file.sync_all());
        written
            .and_then(|()| std::fs::rename(&new, &self.path))
            .map_err(|why| failed("replace", &self.path, &why))?;
        Ok(file)
    }

    /// Writes the entry of the file in its folder to the disk.
    fn sync_folder(&self) -> Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|why| failed("write", &self.path, &why))
    }
}

fn create(path: &Path, empty: bool) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(empty).mode(0o600);
    options.open(path).map_err(|why| failed("open", path, &why))
}

/// Locks the file at `path`. A tracker that has replaced the file since it was opened still uses the new one.
fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            bail!("RuntimeError", "another tracker uses the journal `{}`", path.display())
        }
        Err(TryLockError::Error(why)) => return Err(failed("lock", path, &why)),
    }
    let (opened, named) = (file.metadata(), std::fs::metadata(path));
    match (opened, named) {
        (Ok(opened), Ok(named)) if (opened.dev(), opened.ino()) == (named.dev(), named.ino()) => Ok(()),
        _ => bail!("RuntimeError", "another tracker has replaced the journal `{}`", path.display()),
    }
}

fn lines(records: &[Record]) -> Vec<u8> {
    let mut text = Vec::new();
    for record in records {
        text.extend_from_slice(serde_json::json!(record).to_string().as_bytes());
        text.push(b'\n');
    }
    text
}

/// Returns the records of a journal and the number of bytes up to the end of its last complete line.
fn parse(text: &[u8]) -> Result<(Vec<Record>, usize), String> {
    let good = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if !text.starts_with(HEAD.as_bytes()) {
        let is_cut = good == 0 && HEAD.as_bytes().starts_with(text);
        return if is_cut { Ok((Vec::new(), 0)) } else { Err("expected the journal of a tracker".into()) };
    }
    let mut records = Vec::new();
    for (at, line) in text[HEAD.len()..good].split_inclusive(|byte| *byte == b'\n').enumerate() {
        records.push(serde_json::from_slice(line).map_err(|why| format!("line {}: {why}", at + 2))?);
    }
    Ok((records, good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::LeaseRecord;

    fn grant(number: usize) -> Record {
        let lease = LeaseRecord {
            lease: format!("lease-{number}"),
            device: "board".into(),
            secret: "s".into(),
            seconds: 0,
        };
        Record::Grant { request: ("alice".into(), "1".into()), leases: vec![lease] }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("anyfn-journal-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_journal_that_is_cut_anywhere_keeps_its_complete_lines() {
        let folder = Folder::new("cut");
        let path = folder.0.join("journal");
        let all: Vec<Record> = (0..3).map(grant).chain([Record::End("lease-0".into())]).collect();
        Journal::open(&path).unwrap().0.append(&all).unwrap();
        let text = std::fs::read(&path).unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Journal::open(&path).unwrap());
        assert_eq!(mode(), 0o600);
        for cut in 0..=text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let (mut journal, records) = Journal::open(&path).unwrap();
            let complete = text[..cut].iter().filter(|byte| **byte == b'\n').count().saturating_sub(1);
            assert_eq!(records, all[..complete], "{cut}");
            // What is written next stands on a line of its own.
            journal.append(&[Record::End("later".into())]).unwrap();
            drop(journal);
            let (_, records) = Journal::open(&path).unwrap();
            assert_eq!(records.len(), complete + 1, "{cut}");
        }
    }

    #[test]
    fn damage_in_the_middle_and_other_files_are_refused() {
        let folder = Folder::new("damage");
        let path = folder.0.join("journal");
        for (text, expected) in [
            (format!("{HEAD}{{\"end\":\n{{\"end\":\"x\"}}\n"), "line 2"),
            ("something else\n".into(), "expected the journal of a tracker"),
            ("\n".into(), "expected the journal of a tracker"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = Journal::open(&path).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes(), "it was changed");
        }
    }

    #[test]
    fn one_tracker_has_it_and_it_can_be_replaced() {
        let folder = Folder::new("replace");
        let path = folder.0.join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        let error = Journal::open(&path).unwrap_err();
        assert!(error.message().contains("another tracker uses"), "{error}");
        for number in 0..SMALL + 1 {
            journal.lines += 1;
            if number % 100 == 0 {
                journal.append(&[grant(number)]).unwrap();
            }
        }
        assert!(journal.is_long());
        // The new file cannot be written: the old one stays in use, and the next attempt is made later.
        let new = folder.0.join("journal.new");
        std::fs::create_dir(&new).unwrap();
        journal.replace(&[grant(7)]).unwrap();
        std::fs::remove_dir(&new).unwrap();
        journal.append(&[grant(9)]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1 + 11 + 1);
        assert!(!journal.is_long());
        journal.replace(&[grant(7)]).unwrap();
        assert!(!journal.is_long());
        assert!(Journal::open(&path).is_err(), "the lock moves to the new file");
        journal.append(&[grant(8)]).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1, [grant(7), grant(8)]);
    }
}
