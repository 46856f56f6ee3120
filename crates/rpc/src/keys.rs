//! Keys of clients, and the permissions and limits that a server grants to each key.
//!
//! A key is the string `NAME:SECRET`: the name is sent in plain text, the secret (32 random bytes, in base64url without padding)
//! is never sent. A client has one key; a server has a file of keys, each with its grant.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use anyfn::{Error, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::policy::{Policy, SECONDS_MAX, number};

/// Size of a key's secret, in bytes.
pub const SECRET_SIZE: usize = 32;

/// Maximum length of a key's name, in bytes.
pub const NAME_MAX: usize = 64;

/// Minimum memory limit of a session process, in bytes. No program can start with less.
const PROCESS_MIN: u64 = 16 << 20;

/// Minimum value of the limit on the number of open files of a session process. A process needs descriptors
/// for its connections, the libraries that it loads, and a few other files.
const FILES_MIN: u64 = 64;

/// Maximum size of a key file, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Secret of 32 bytes that client and server share. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_SIZE]);

impl Secret {
    /// Creates a secret from random bytes of the operating system.
    ///
    /// # Errors
    /// Returns `OSError` if the random bytes cannot be read.
    pub fn random() -> Result<Secret> {
        let mut bytes = [0; SECRET_SIZE];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Ok(Secret(bytes)),
            Err(error) => bail!("OSError", "cannot get random bytes from the operating system: {error}"),
        }
    }

    /// Parses a secret in the form of 43 base64url characters. Returns `None` if `text` does not have this
    /// form.
    fn parse(text: &str) -> Option<Secret> {
        let bytes = base64_decode(text)?;
        bytes.try_into().ok().map(Secret)
    }

    /// Formats the secret as 43 base64url characters. Printing the result reveals the secret to everyone who
    /// can read the output.
    pub fn to_text(&self) -> String {
        base64_encode(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Key of a client: a name and a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    name: String,
    secret: Secret,
}

impl Key {
    /// Creates a key with a new random secret.
    ///
    /// # Errors
    /// Returns `ValueError` if `name` is not a valid name of a key, and `OSError` if no random bytes can be read.
    pub fn generate(name: &str) -> Result<Key> {
        Key::new(name, Secret::random()?)
    }

    /// Creates a key with the given secret.
    ///
    /// # Errors
    /// Returns `ValueError` if `name` is not a valid name of a key.
    pub fn new(name: &str, secret: Secret) -> Result<Key> {
        check_name(name)?;
        Ok(Key { name: name.into(), secret })
    }

    /// Reads a key from a file. The file must contain only the key, and other users must have no access to
    /// it.
    ///
    /// # Errors
    /// Returns `OSError` if the file cannot be read, `PermissionError` if other users may access it, and `ValueError` if it
    /// contains no key.
    pub fn read(path: &Path) -> Result<Key> {
        let text = read_private(path)?;
        text.trim().parse().map_err(|error: Error| in_file(path, &error))
    }

    /// Returns the name of the key. The name is sent unencrypted.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the secret of the key.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Formats the key, including its secret, as a string.
    pub fn to_text(&self) -> String {
        format!("{}:{}", self.name, self.secret.to_text())
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Key> {
        // The message never repeats the input: most of a mistyped key is a secret.
        let Some((name, secret)) = text.split_once(':') else {
            bail!(
                "ValueError",
                "expected a key of the form `NAME:SECRET`, as printed by `anyfn rpc key NAME`, got a string without a colon"
            );
        };
        check_name(name)?;
        match Secret::parse(secret) {
            Some(secret) => Key::new(name, secret),
            None => bail!(
                "ValueError",
                "expected 43 characters of base64url (letters, digits, `-`, `_`) as the secret of key `{name}`, got {}",
                match secret.chars().count() {
                    43 => "other characters".to_owned(),
                    count => format!("{count} characters"),
                }
            ),
        }
    }
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
        let policy = Policy { key: Some(key.name.clone()), ..policy };
        let grant = Grant { secret: Some(key.secret.clone()), policy, limits };
        Keys { grants: BTreeMap::from([(key.name.clone(), grant)]) }
    }

    /// Reads a key file, which other users must not be able to read.
    ///
    /// The file is `{"keys": {"alice": {"secret": "...", "functions": ["demo.*"], "upload": true, ...}}}`. The entries of a key
    /// are those of [`Policy`] and [`Limits`]. An entry that is missing has the value in `policy` or `limits`, except that a key
    /// without the entries `functions` and `upload` may call no functions and upload nothing.
    ///
    /// # Errors
    /// Returns `OSError` if the file cannot be read, `PermissionError` if other users may access it, and a `ValueError` that
    /// names the key and its wrong entry.
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
            Err(error) => bail!("ValueError", "invalid JSON: {error}"),
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

    /// Returns, for each resource limit of a process, the maximum over all keys.
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
    let secret = match entries.get("secret").map(|secret| secret.as_str().and_then(Secret::parse)) {
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
        bail!("ValueError", "unknown grant `key`");
    }
    if !limits.set(name, value)? {
        *policy = Policy::from_json(policy, &serde_json::json!({ name: value }))?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_MAX).flat_map(char::escape_debug).collect();
    bail!(
        "ValueError",
        "expected a key name of 1 to {NAME_MAX} ASCII letters, digits, `.`, `-` and `_`, got `{shown}`"
    )
}

/// Returns true if `name` is a valid key name.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Reads a file that contains secrets. Returns an error if other users have access to the file.
fn read_private(path: &Path) -> Result<String> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let shown = path.display();
    let failed = |error: std::io::Error| Error::new("OSError", &format!("cannot read `{shown}`: {error}"));
    // Opening a named pipe would otherwise wait for its writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    // These are the metadata of the opened file, not of the file that has this name by now.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        bail!("OSError", "cannot read `{shown}`: expected a regular file");
    }
    if metadata.mode() & 0o077 != 0 {
        bail!(
            "PermissionError",
            "`{shown}` contains secrets, but other users may read or write it (mode {:03o}); run `chmod 600` on it, and \
             create new keys if another user could have read it",
            metadata.mode() & 0o777
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

/// Encodes bytes as base64url without padding.
pub(crate) fn base64_encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a string that [`base64_encode`] has created. Returns `None` for all other strings, so that each
/// value has only one encoding.
pub(crate) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_and_back() {
        for size in 0..40usize {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 37 + size) as u8).collect();
            let text = base64_encode(&bytes);
            assert_eq!(base64_decode(&text).as_deref(), Some(&bytes[..]), "{text}");
        }
        assert_eq!(base64_encode(b"\xfb\xff\xfe"), "-__-");
        assert_eq!(base64_encode(b"ab"), "YWI");
        for wrong in ["A", "AAAAA", "AB=", "A+/A", "YWJ", "\u{e9}AAA"] {
            assert_eq!(base64_decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_damaged_secret_is_described_but_not_shown() {
        for (secret, got) in [("!".repeat(43), "got other characters"), ("ab".to_owned(), "got 2 characters")] {
            let error = format!("alice:{secret}").parse::<Key>().unwrap_err();
            assert_eq!(error.kind(), "ValueError");
            assert!(error.message().ends_with(got), "{error}");
            assert!(!error.message().contains(&secret), "{error}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let key = Key::generate("alice").unwrap();
        assert!(!format!("{key:?}").contains(&key.secret().to_text()));
    }
}
