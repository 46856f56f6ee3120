//! What the kernel keeps the code of a session from, by Landlock: no privilege is needed for it, and none is gained.
//!
//! The process of a session runs as the user of the server, so file permissions protect nothing of that user from it. In its
//! domain it cannot read or change the file of keys, the log and the folders of other sessions, it cannot trace (`ptrace`,
//! `pidfd_getfd`, `/proc/PID/mem`) or signal a process outside, the listener among them, and gains no privilege by `exec`.
//! Where some key may upload, files can be written in the folder of the session alone. What it starts inherits all of that.
//!
//! The rules of Landlock grant and never deny, so what is beside the protected paths is granted, entry by entry.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyfn::{Result, bail};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::sys;

/// How session processes are kept from what is not theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// As far as the kernel can; the log says how far that is.
    #[default]
    Auto,
    /// A kernel that cannot is an error.
    Required,
    /// Not at all.
    Off,
}

/// The interface that is asked for; of an older kernel what it has.
const WANTED: ABI = ABI::V6;

/// Entries beside a protected path that are granted; those of larger folders are not all within reach.
const ENTRIES_MAX: usize = 4096;

/// The rules for the processes of a server.
#[derive(Debug)]
pub(crate) struct Sandbox {
    is_on: bool,
    /// What no session may read or write.
    protected: Vec<PathBuf>,
    /// What all sessions may write beside their own folders.
    writable: Vec<PathBuf>,
    /// For the log.
    pub(crate) about: String,
}

impl Sandbox {
    /// Asks the kernel what it can.
    ///
    /// # Errors
    /// `RuntimeError` if isolation is required and the kernel cannot.
    pub(crate) fn new(isolation: Isolation, protected: &[PathBuf], writable: &[PathBuf]) -> Result<Sandbox> {
        let (is_on, about) = match (isolation, available()) {
            (Isolation::Off, _) => (false, "off".into()),
            (_, Ok(version)) => (true, version),
            (Isolation::Required, Err(why)) => {
                bail!("RuntimeError", "cannot isolate session processes, which is required: {why}")
            }
            (Isolation::Auto, Err(why)) => (false, format!("none: {why}")),
        };
        let whole = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        Ok(Sandbox {
            is_on,
            protected: protected.iter().map(whole).collect(),
            writable: writable.iter().map(whole).collect(),
            about,
        })
    }

    /// The rules for a session with the folder `own` in that of the server, for the new process to take on. `confined`: it may write
    /// nowhere else.
    ///
    /// # Errors
    /// If there are no descriptors or no memory left.
    pub(crate) fn rules(&self, server: &Path, own: &Path, confined: bool) -> io::Result<Option<OwnedFd>> {
        if !self.is_on {
            return Ok(None);
        }
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all())
            .and_then(|rules| rules.scope(Scope::Signal))
            .and_then(Ruleset::create)
            .map_err(|error| of_system(&error))?;
        let server = std::fs::canonicalize(server)?;
        let protected: Vec<&Path> =
            self.protected.iter().map(PathBuf::as_path).chain([server.as_path()]).collect();
        let mut granted = Vec::new();
        beside(Path::new("/"), &protected, &mut granted);
        // What is protected stays so in them.
        let mut writable = Vec::new();
        for path in &self.writable {
            if protected.iter().any(|other| other.starts_with(path)) {
                beside(path, &protected, &mut writable);
            } else {
                writable.push(path.clone());
            }
        }
        let others = if confined { AccessFs::ReadFile.into() } else { all() };
        let mut rules = granted.iter().map(|path| (path.as_path(), others)).collect::<Vec<_>>();
        rules.push((own, all()));
        rules.extend(writable.iter().map(|path| (path.as_path(), all())));
        // Devices and the process' own entries are guarded by their permissions; shared memory lies in a folder of its own.
        rules.push((Path::new("/dev/shm"), all()));
        rules.extend(["/dev", "/proc"].map(|path| (Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)));
        let mut ruleset = ruleset;
        for (path, access) in rules {
            ruleset = grant(ruleset, path, access)?;
        }
        Ok(ruleset.into())
    }
}

/// What is decided about: reading and changing files. Listing folders and running programs is not.
fn all() -> BitFlags<AccessFs> {
    AccessFs::from_all(WANTED) & !(AccessFs::ReadDir | AccessFs::Execute | AccessFs::IoctlDev)
}

/// Adds a rule. What is not there, or cannot be opened, is not granted.
fn grant(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let place = match PathFd::new(path).map_err(|error| of_system(&error)) {
        Ok(place) => place,
        Err(error) if sys::is_exhausted(&error) => return Err(error),
        Err(_) => return Ok(rules),
    };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
    rules.add_rule(PathBeneath::new(place, access)).map_err(|error| of_system(&error))
}

/// The error of the system that is behind another one, so that it can be told which it is.
fn of_system(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        cause = error.source();
    }
    io::Error::other(error.to_string())
}

/// What lies in a folder, or below it, but the protected paths and the folders that lead there.
fn beside(folder: &Path, protected: &[&Path], granted: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX) {
        let path = entry.path();
        if protected.contains(&path.as_path()) {
            continue;
        }
        if protected.iter().any(|other| other.starts_with(&path)) {
            beside(&path, protected, granted);
        } else if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            // Where a link leads is granted, or not, at its own place.
            granted.push(path);
        }
    }
}

/// What the kernel has, or why it has nothing.
fn available() -> std::result::Result<String, String> {
    match sys::landlock_version() {
        Ok(version) => Ok(format!("landlock {version}")),
        Err(error) => Err(format!("the kernel has no Landlock, or it is not enabled: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside() {
        let root = std::env::temp_dir().join(format!("sandbox-test-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("c")).unwrap();
        for file in ["a/key", "a/other", "file"] {
            std::fs::write(root.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink("/", root.join("link")).unwrap();
        let (key, b) = (root.join("a/key"), root.join("a/b"));
        let mut granted = Vec::new();
        beside(&root, &[&key, &b], &mut granted);
        granted.sort();
        assert_eq!(granted, [root.join("a/other"), root.join("c"), root.join("file")]);
        std::fs::remove_dir_all(root).unwrap();
    }
}
