//! Sandbox for session processes, based on Landlock, a Linux mechanism with which a process without
//! privileges restricts its own access to files.
//!
//! A session process runs as the user of the server, so file permissions do not protect the files of that user from it. In its
//! Landlock domain it cannot read or change the file of keys, the log and the folders of other sessions. It cannot trace
//! (`ptrace`, `pidfd_getfd`, `/proc/PID/mem`) or signal a process outside the domain, such as the listener, and gains no
//! privilege by `exec`. If some key grants uploads, it can write files only in the folder of the session. Processes that it
//! starts inherit all of that.
//!
//! On older kernels, even if isolation is required, it can nevertheless truncate these files (before version 3 of Landlock,
//! Linux 6.2) and signal processes of the same user (before version 6, Linux 6.12).
//!
//! The rules of Landlock can grant access but not deny it. Access is therefore granted to each path that is
//! not protected.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyfn::{Result, bail};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::sys;

/// Degree to which the kernel isolates session processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Session processes are isolated as far as the kernel supports it. The log states the extent.
    #[default]
    Auto,
    /// Session processes are isolated as far as the kernel supports it. The server does not start if
    /// the kernel does not support any version of Landlock.
    Required,
    /// Session processes are not isolated.
    Off,
}

/// Requested version of the Landlock interface. An older kernel enforces the subset that it supports.
const WANTED: ABI = ABI::V6;

/// Maximum number of accessible entries in a folder that contains a protected path at any depth. Sessions
/// cannot access further entries of such a folder.
const ENTRIES_MAX: usize = 4096;

/// Sandbox settings of a server's session processes.
#[derive(Debug)]
pub(crate) struct Sandbox {
    is_on: bool,
    /// Paths that session processes may neither read nor write.
    protected: Vec<PathBuf>,
    /// Paths that all session processes may write, in addition to their own folders.
    writable: Vec<PathBuf>,
    /// Description of the isolation for the log.
    pub(crate) about: String,
}

impl Sandbox {
    /// Creates the sandbox settings, after querying the isolation that the kernel supports.
    ///
    /// # Errors
    /// Returns `RuntimeError` if isolation is required and the kernel does not support it.
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

    /// Creates the Landlock rules that a session process applies to itself; `None` if isolation is off.
    /// `server` is the server's folder, and `own` the session's folder in it. If `confined` is true, the
    /// session can write files only in `own`, in the writable paths, and in `/dev` and `/proc`, as far as
    /// file permissions allow.
    ///
    /// # Errors
    /// Returns an error if there are no descriptors or no memory left.
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
        // Protected paths below a writable one stay protected.
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
        // Devices and the process's own entries are guarded by their permissions; shared memory lies in a folder of its own.
        rules.push((Path::new("/dev/shm"), all()));
        rules.extend(["/dev", "/proc"].map(|path| (Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)));
        let mut ruleset = ruleset;
        for (path, access) in rules {
            ruleset = grant(ruleset, path, access)?;
        }
        Ok(ruleset.into())
    }
}

/// Returns the kinds of file access that the sandbox restricts. These kinds include reading and changing files,
/// but not listing folders or running programs.
fn all() -> BitFlags<AccessFs> {
    AccessFs::from_all(WANTED) & !(AccessFs::ReadDir | AccessFs::Execute | AccessFs::IoctlDev)
}

/// Adds a rule that permits `access` to `path`. Does nothing if the path does not exist or cannot be opened.
fn grant(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let place = match PathFd::new(path).map_err(|error| of_system(&error)) {
        Ok(place) => place,
        Err(error) if sys::is_exhausted(&error) => return Err(error),
        Err(_) => return Ok(rules),
    };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
    rules.add_rule(PathBeneath::new(place, access)).map_err(|error| of_system(&error))
}

/// Finds the operating system error among the causes of `error`, so that the caller can check the
/// error code.
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

/// Appends to `granted` the paths of the entries of a folder, except protected paths, ancestors of
/// protected paths, and symbolic links. Searches the ancestors of protected paths recursively.
fn beside(folder: &Path, protected: &[&Path], granted: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX) {
        let path = entry.path();
        if protected.contains(&path.as_path()) {
            continue;
        }
        if protected.iter().any(|other| other.starts_with(&path)) {
            beside(&path, protected, granted);
        } else if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            // The target of a link is granted, or not, at its own location.
            granted.push(path);
        }
    }
}

/// Returns the kernel's Landlock version as a string, or the reason why Landlock cannot be used.
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
