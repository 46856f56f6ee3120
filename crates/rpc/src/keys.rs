//! Files of keys, and the permissions and limits that a server grants to each key.
//!
//! A client has one key; a server has a file of keys, each with its grant.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use anyfn::{Error, Result, bail};
use anyfn_protocol::key::check_name;
pub use anyfn_protocol::key::{Key, Secret};
use serde_json::Value;

use crate::policy::{Policy, SECONDS_MAX, number, unknown_grant};

/// Minimum value of the memory limit of a session process, in bytes. No program can start with less
/// memory.
const PROCESS_MIN: u64 = 16 << 20;

/// Minimum value of the limit on the number of open files of a session process. A process needs descriptors
/// for its connections, the libraries that it loads, and a few other files.
const FILES_MIN: u64 = 64;

/// Maximum size of a key file, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Fills `bytes` with random bytes from the operating system.
///
/// # Errors
/// Returns `OSError` if the random bytes cannot be read.
pub fn system_random(bytes: &mut [u8]) -> Result<()> {
    match getrandom::fill(bytes) {
        Ok(()) => Ok(()),
        Err(error) => bail!("OSError", "cannot get random bytes from the operating system: {error}"),
    }
}

/// Creates a key with a new random secret.
///
/// # Errors
/// Returns `ValueError` if `name` is not a valid name of a key, and `OSError` if no random bytes can be read.
pub fn generate_key(name: &str) -> Result<Key> {
    Key::generate(name, system_random)
}

/// Reads a key from a file. The file must contain only the key, and must not be accessible to other
/// users.
///
/// # Errors
/// Returns `FileNotFoundError` if the file does not exist, `OSError` if it cannot be read for another reason, `PermissionError` if
/// other users may access it, and `ValueError` if it contains no key.
pub fn read_key(path: &Path) -> Result<Key> {
    let text = read_private(path)?;
    text.parse().map_err(|error: Error| in_file(path, &error))
}

/// Parses a key that a program has passed as a string.
pub(crate) fn parse_key(text: &str) -> Result<Key> {
    text.parse::<Key>().map_err(|error| match text.contains(':') {
        true => error,
        false => {
            let message =
                format!("{}; the path of a file that contains a key is passed as `key_file=`", error.message());
            Error::new(error.kind(), &message)
        }
    })
}

/// Creates a file that contains only `key` and is not accessible to other users. An existing file
/// is not changed.
///
/// # Errors
/// Returns `FileExistsError` if the file exists, and `OSError` if it cannot be written.
pub fn create_key_file(path: &Path, key: &Key) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let shown = path.display();
    let mut file = match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
            "FileExistsError",
            "cannot create `{shown}`: the file exists; specify another file, or delete this one if its key is no longer used"
        ),
        Err(error) => bail!("OSError", "cannot create `{shown}`: {error}"),
    };
    file.write_all(format!("{}\n", key.to_text()).as_bytes()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        Error::new("OSError", &format!("cannot write `{shown}`: {error}"))
    })
}

/// Resource limits of a key, in addition to its [`Policy`]: limits on each session process, and on the number
/// and duration of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of simultaneous sessions with this key. Further sessions wait in a queue.
    pub sessions: u32,
    /// Maximum size of the address space of a session process, in bytes. A process that exceeds the limit
    /// fails to allocate memory and ends.
    pub process_bytes: u64,
    /// Maximum CPU time of a session process, in seconds.
    pub cpu_seconds: u64,
    /// Maximum duration of a session in seconds; 0 for no limit.
    pub seconds: u64,
    /// Maximum size of a file that a session process may write, in bytes.
    pub file_bytes: u64,
    /// Maximum number of files that a session process may have open.
    pub files: u64,
}

impl Limits {
    /// Default limits of a key.
    pub const DEFAULT: Limits = Limits {
        sessions: 16,
        process_bytes: 16 << 30,
        cpu_seconds: 24 * 3600,
        seconds: 0,
        file_bytes: 4 << 30,
        files: 1024,
    };

    /// Sets the limit called `name` to `value`. Returns false if no limit has this name.
    fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        let (place, least, most) = match name {
            "sessions" => {
                self.sessions = number(name, value, 1, u32::MAX.into())? as u32;
                return Ok(true);
            }
            "process_bytes" => (&mut self.process_bytes, PROCESS_MIN, u64::MAX),
            "cpu_seconds" => (&mut self.cpu_seconds, 1, SECONDS_MAX),
            "seconds" => (&mut self.seconds, 0, SECONDS_MAX),
            "file_bytes" => (&mut self.file_bytes, 0, u64::MAX),
            "files" => (&mut self.files, FILES_MIN, 1 << 30),
            _ => return Ok(false),
        };
        *place = number(name, value, least, most)?;
        Ok(true)
    }
}

/// A server's record of one key: the secret, and the permissions and limits of clients with this key.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Secret whose possession the client must prove; `None` if the server accepts clients without a key.
    pub secret: Option<Secret>,
    /// Permissions and limits of sessions with this key.
    pub policy: Policy,
    /// Limits on the number, duration and processes of sessions with this key.
    pub limits: Limits,
}

/// All keys of a server, each with its grant.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    grants: BTreeMap<String, Grant>,
}

impl Keys {
    /// Creates a set that contains one key, with the given permissions and limits.
    pub fn one(key: &Key, policy: Policy, limits: Limits) -> Keys {
        let policy = Policy { key: Some(key.name().to_owned()), ..policy };
        let grant = Grant { secret: Some(key.secret().clone()), policy, limits };
        Keys { grants: BTreeMap::from([(key.name().to_owned(), grant)]) }
    }

    /// Reads a key file, which other users must not be able to read.
    ///
    /// The file is `{"keys": {"alice": {"secret": "...", "functions": ["demo.*"], "upload": true, ...}}}`. The entries of a key
    /// are those of [`Policy`] and [`Limits`]. An entry that is missing has the value in `policy` or `limits`, except that a key
    /// without the entries `functions` and `upload` may call no functions and upload nothing.
    ///
    /// # Errors
    /// Returns `FileNotFoundError` if the file does not exist, `OSError` if it cannot be read for another reason, `PermissionError`
    /// if other users may access it, and a `ValueError` that names the key and its wrong entry.
    pub fn read(path: &Path, policy: &Policy, limits: &Limits) -> Result<Keys> {
        let text = read_private(path)?;
        Keys::parse(&text, policy, limits).map_err(|error| in_file(path, &error))
    }

    /// Parses the content of a key file; see [`Keys::read`].
    ///
    /// # Errors
    /// Returns a `ValueError` that names the key and its wrong entry.
    pub fn parse(text: &str, policy: &Policy, limits: &Limits) -> Result<Keys> {
        let content: Value = match serde_json::from_str(text) {
            Ok(content) => content,
            Err(error) if text.trim_ascii_start().starts_with('{') => {
                bail!("ValueError", "invalid JSON: {error}")
            }
            Err(error) => bail!(
                "ValueError",
                "expected a file of keys, got invalid JSON ({error}); use `--key-file` (in Python `key_file=`) for a single key"
            ),
        };
        let keys = match &content {
            Value::Object(entries) if entries.len() == 1 => entries.get("keys").and_then(Value::as_object),
            _ => None,
        };
        let Some(keys) = keys else {
            bail!(
                "ValueError",
                "expected `{{\"keys\": {{NAME: {{\"secret\": ..., ...}}, ...}}}}` without further entries"
            );
        };
        let base = Policy { functions: Vec::new(), upload: false, ..policy.clone() };
        let mut grants = BTreeMap::new();
        for (name, entries) in keys {
            check_name(name)?;
            let grant = parse_grant(name, entries, &base, limits)
                .map_err(|error| Error::new(error.kind(), &format!("key `{name}`: {}", error.message())))?;
            grants.insert(name.clone(), grant);
        }
        if grants.is_empty() {
            bail!("ValueError", "expected at least one key; `anyfn rpc key NAME` creates one");
        }
        Ok(Keys { grants })
    }

    /// Returns true if any key permits uploads.
    pub(crate) fn grant_uploads(&self) -> bool {
        self.grants.values().any(|grant| grant.policy.upload)
    }

    /// Returns the maximum over all keys of each resource limit of a process. `sessions` and
    /// `seconds` are 0 in the result.
    pub(crate) fn widest(&self) -> Limits {
        let mut widest =
            Limits { sessions: 0, process_bytes: 0, cpu_seconds: 0, seconds: 0, file_bytes: 0, files: 0 };
        for Grant { limits, .. } in self.grants.values() {
            widest.process_bytes = widest.process_bytes.max(limits.process_bytes);
            widest.cpu_seconds = widest.cpu_seconds.max(limits.cpu_seconds);
            widest.file_bytes = widest.file_bytes.max(limits.file_bytes);
            widest.files = widest.files.max(limits.files);
        }
        widest
    }

    /// Returns the grant of the key called `name`, or `None` if the key does not exist.
    pub fn get(&self, name: &str) -> Option<&Grant> {
        self.grants.get(name)
    }
}

fn parse_grant(name: &str, entries: &Value, base: &Policy, limits: &Limits) -> Result<Grant> {
    let Value::Object(entries) = entries else {
        bail!("ValueError", "expected an object with `secret` and the grants of the key");
    };
    let parsed = |secret: &Value| Secret::parse(secret.as_str()?.trim_ascii());
    let secret = match entries.get("secret").map(parsed) {
        Some(Some(secret)) => secret,
        Some(None) => bail!("ValueError", "`secret`: expected a string of 43 characters of base64url"),
        None => bail!("ValueError", "`secret` is missing; `anyfn rpc key {name}` prints one after the colon"),
    };
    let mut limits = limits.clone();
    let mut policy = base.clone();
    for (entry, value) in entries {
        match entry.as_str() {
            "secret" => (),
            _ => set_grant(&mut policy, &mut limits, entry, value)?,
        }
    }
    policy.key = Some(name.into());
    Ok(Grant { secret: Some(secret), policy, limits })
}

/// Sets the field called `name`, of [`Policy`] or of [`Limits`], to `value`.
pub(crate) fn set_grant(policy: &mut Policy, limits: &mut Limits, name: &str, value: &Value) -> Result<()> {
    // A grant cannot change the name of its key.
    if name == "key" {
        return Err(unknown_grant(name));
    }
    if !limits.set(name, value)? {
        *policy = Policy::from_json(policy, &serde_json::json!({ name: value }))?;
    }
    Ok(())
}

/// Quotes a path for a shell if it contains characters that a shell may interpret.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,@%:=".contains(&byte);
    if text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Reads a file that contains secrets. Returns an error if other users have access to the file.
fn read_private(path: &Path) -> Result<String> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let message = format!("cannot read `{shown}`: {error}");
        Error::new(Error::from(error).kind(), &message)
    };
    // Opening a named pipe would otherwise wait for its writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    // These are the metadata of the opened file, not of the file that has this name by now.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        bail!("OSError", "cannot read `{shown}`: expected a regular file");
    }
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    if ![0, user].contains(&metadata.uid()) {
        bail!(
            "PermissionError",
            "`{shown}` contains secrets, but belongs to another user (uid {}), who may read and change it: create new keys \
             in a file of your own: `anyfn rpc key -o FILE NAME`",
            metadata.uid()
        );
    }
    if metadata.mode() & 0o077 != 0 {
        bail!(
            "PermissionError",
            "`{shown}` contains secrets, but other users may read or write it (mode {:03o}): run `chmod 600 {}`; if \
             another user could have read it, create new keys: `anyfn rpc key -o FILE NAME` creates a file that only you may \
             read",
            metadata.mode() & 0o777,
            quoted(path)
        );
    }
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MAX {
        bail!("ValueError", "`{shown}` is longer than {FILE_MAX} bytes");
    }
    Ok(text)
}

fn in_file(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), &format!("`{}`: {}", path.display(), error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted(Path::new("/keys/board-1.key")), "/keys/board-1.key");
        assert_eq!(quoted(Path::new("my key")), "'my key'");
        assert_eq!(quoted(Path::new("alice's")), "'alice'\\''s'");
    }

    #[test]
    fn a_path_in_place_of_a_key_is_recognised() {
        let error = parse_key("alice.key").unwrap_err();
        assert!(error.message().contains("`key_file=`"), "{}", error.message());
        let error = parse_key("alice:x").unwrap_err();
        assert!(!error.message().contains("key_file"), "{}", error.message());
        let error = Keys::parse("alice:secret\n", &Policy::closed(), &Limits::DEFAULT).unwrap_err();
        assert!(
            error.message().contains("`--key-file`") && !error.message().contains("secret"),
            "{}",
            error.message()
        );
    }

    #[test]
    fn an_unknown_grant_lists_the_limits() {
        let (mut policy, mut limits) = (Policy::closed(), Limits::DEFAULT);
        let error = set_grant(&mut policy, &mut limits, "handels", &serde_json::json!(1)).unwrap_err();
        for name in crate::policy::LIMITS {
            assert!(error.message().contains(name), "{}", error.message());
            set_grant(&mut policy, &mut limits, name, &serde_json::json!(PROCESS_MIN)).unwrap();
        }
    }
}
