//! Keys, and what each of them allows.
//!
//! A key is the text `NAME:SECRET`: the name is sent in the clear, the secret (32 random bytes, in base64url without
//! padding) never is. A client has one key, a server a file of them, each with what it grants.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use anyfn::{Error, Result, bail};
use serde_json::Value;

use crate::policy::{Policy, SECONDS_MAX, number};

/// Bytes of a secret.
pub const SECRET_SIZE: usize = 32;

/// Longest name of a key.
pub const NAME_MAX: usize = 64;

/// Least memory of a session process; with less no program starts.
const PROCESS_MIN: u64 = 16 << 20;

/// Fewest files of a session process: its connections, what it loads, and some of its own.
const FILES_MIN: u64 = 64;

/// Longest file of keys.
const FILE_MAX: u64 = 4 << 20;

/// 32 bytes that both ends know. They are not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_SIZE]);

impl Secret {
    /// Fresh random bytes of the operating system.
    ///
    /// # Errors
    /// `OSError` if the system has none.
    pub fn random() -> Result<Secret> {
        let mut bytes = [0; SECRET_SIZE];
        match File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)) {
            Ok(()) => Ok(Secret(bytes)),
            Err(error) => bail!("OSError", "cannot read random bytes from /dev/urandom: {error}"),
        }
    }

    /// Reads 43 characters of base64url.
    fn parse(text: &str) -> Option<Secret> {
        let bytes = base64_decode(text)?;
        bytes.try_into().ok().map(Secret)
    }

    /// The secret as text. Whoever prints this has to know who reads it.
    pub fn to_text(&self) -> String {
        base64_encode(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a client has: the name of a key and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    name: String,
    secret: Secret,
}

impl Key {
    /// Makes a key with a new random secret.
    ///
    /// # Errors
    /// `ValueError` if the name is not one of a key; `OSError` if the system has no random bytes.
    pub fn generate(name: &str) -> Result<Key> {
        Key::new(name, Secret::random()?)
    }

    /// A key with this secret.
    ///
    /// # Errors
    /// `ValueError` if the name is not one of a key.
    pub fn new(name: &str, secret: Secret) -> Result<Key> {
        check_name(name)?;
        Ok(Key { name: name.into(), secret })
    }

    /// Reads the one key in a file that nobody else may read.
    ///
    /// # Errors
    /// `OSError` if the file cannot be read, `PermissionError` if others may read it, `ValueError` if it holds no key.
    pub fn read(path: &Path) -> Result<Key> {
        let text = read_private(path)?;
        text.trim().parse().map_err(|error: Error| in_file(path, &error))
    }

    /// The name, which is sent in the clear.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The secret.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The whole key as text, secret included.
    pub fn to_text(&self) -> String {
        format!("{}:{}", self.name, self.secret.to_text())
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Key> {
        // The message never repeats what it was given: most of a mistyped key is a secret.
        let Some((name, secret)) = text.split_once(':') else {
            bail!(
                "ValueError",
                "a key is `NAME:SECRET`, as `anyfn rpc key NAME` prints it; this text has no colon"
            );
        };
        check_name(name)?;
        match Secret::parse(secret) {
            Some(secret) => Key::new(name, secret),
            None => bail!(
                "ValueError",
                "the secret of key `{name}` is not 43 characters of base64url (letters, digits, `-`, `_`); got {} \
                 characters",
                secret.chars().count()
            ),
        }
    }
}

/// What a key allows, beyond what is in a [`Policy`]: how much its session processes may use, and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most sessions at one time; others wait in a queue.
    pub sessions: u32,
    /// Most memory that a session process may map; it dies when it needs more.
    pub process_bytes: u64,
    /// Most processor time of a session process, in seconds.
    pub cpu_seconds: u64,
    /// Longest session, in seconds; 0 for any.
    pub seconds: u64,
    /// Largest file that a session process may write.
    pub file_bytes: u64,
    /// Most files that a session process may have open.
    pub files: u64,
}

impl Limits {
    /// Limits of a server that was told none.
    pub const DEFAULT: Limits = Limits {
        sessions: 16,
        process_bytes: 16 << 30,
        cpu_seconds: 24 * 3600,
        seconds: 0,
        file_bytes: 4 << 30,
        files: 1024,
    };

    /// Sets the limit with this name; whether there is one.
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

/// A key as a server has it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What the client has to prove that it knows; none if the server takes clients without a key.
    pub secret: Option<Secret>,
    /// What its sessions may do.
    pub policy: Policy,
    /// What their processes may use.
    pub limits: Limits,
}

/// All keys of a server.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    grants: BTreeMap<String, Grant>,
}

impl Keys {
    /// One key, with one grant.
    pub fn one(key: &Key, policy: Policy, limits: Limits) -> Keys {
        let policy = Policy { key: Some(key.name.clone()), ..policy };
        let grant = Grant { secret: Some(key.secret.clone()), policy, limits };
        Keys { grants: BTreeMap::from([(key.name.clone(), grant)]) }
    }

    /// Reads a file of keys, which nobody else may read.
    ///
    /// The file is `{"keys": {"alice": {"secret": "...", "functions": ["demo.*"], "upload": true, ...}}}`: the entries of
    /// a key are those of [`Policy`] and [`Limits`]; what is left out is as in `policy` and `limits`, but that no
    /// function and no upload is allowed unless the key says so.
    ///
    /// # Errors
    /// `OSError` if the file cannot be read, `PermissionError` if others may read it, `ValueError` that names the key and
    /// the entry that is wrong.
    pub fn read(path: &Path, policy: &Policy, limits: &Limits) -> Result<Keys> {
        let text = read_private(path)?;
        Keys::parse(&text, policy, limits).map_err(|error| in_file(path, &error))
    }

    /// Reads the content of a file of keys; see [`Keys::read`].
    ///
    /// # Errors
    /// `ValueError` that names the key and the entry that is wrong.
    pub fn parse(text: &str, policy: &Policy, limits: &Limits) -> Result<Keys> {
        let content: Value = match serde_json::from_str(text) {
            Ok(content) => content,
            Err(error) => bail!("ValueError", "this is not JSON: {error}"),
        };
        let keys = match &content {
            Value::Object(entries) if entries.len() == 1 => entries.get("keys").and_then(Value::as_object),
            _ => None,
        };
        let Some(keys) = keys else {
            bail!(
                "ValueError",
                "expected `{{\"keys\": {{NAME: {{\"secret\": ..., ...}}, ...}}}}` and nothing else"
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
            bail!("ValueError", "there is no key; `anyfn rpc key NAME` makes one");
        }
        Ok(Keys { grants })
    }

    /// Whether any of them grants uploads.
    pub(crate) fn grant_uploads(&self) -> bool {
        self.grants.values().any(|grant| grant.policy.upload)
    }

    /// The most that any of them allows a process.
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

    /// What the key with this name grants.
    pub fn get(&self, name: &str) -> Option<&Grant> {
        self.grants.get(name)
    }
}

fn parse_grant(name: &str, entries: &Value, base: &Policy, limits: &Limits) -> Result<Grant> {
    let Value::Object(entries) = entries else {
        bail!("ValueError", "expected an object with `secret` and what the key grants");
    };
    let secret = match entries.get("secret").map(|secret| secret.as_str().and_then(Secret::parse)) {
        Some(Some(secret)) => secret,
        Some(None) => bail!("ValueError", "`secret` is not a text of 43 characters of base64url"),
        None => bail!("ValueError", "`secret` is missing; `anyfn rpc key {name}` prints one behind the colon"),
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

/// Sets one entry of what is granted: one of [`Limits`] or of [`Policy`].
pub(crate) fn set_grant(policy: &mut Policy, limits: &mut Limits, name: &str, value: &Value) -> Result<()> {
    // The name of the key is not for anybody to choose here.
    if name == "key" {
        bail!("ValueError", "there is no entry `key` in what a key grants");
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
        "the name of a key is 1 to {NAME_MAX} letters, digits, `.`, `-` and `_`, all ASCII, but got `{shown}`"
    )
}

/// Whether a text may be the name of a key.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Reads a file that holds secrets; a file that others may read is refused, since it is one no longer.
fn read_private(path: &Path) -> Result<String> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let shown = path.display();
    let failed = |error: std::io::Error| Error::new("OSError", &format!("cannot read `{shown}`: {error}"));
    // Opening a pipe would wait for whoever writes it.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    // What is asked is what was opened, not what has the name by now.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        bail!("OSError", "cannot read `{shown}`: expected a regular file");
    }
    if metadata.mode() & 0o077 != 0 {
        bail!(
            "PermissionError",
            "`{shown}` holds secrets but others may read or write it (mode {:03o}); `chmod 600` it, and make new keys \
             if somebody else could have read it",
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

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bytes as base64url without padding.
pub(crate) fn base64_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            let digit = (bits >> (18 - 6 * at)) & 63;
            text.push(char::from(ALPHABET[digit as usize]));
        }
    }
    text
}

/// Reads what [`base64_encode`] writes; each value has one text only.
pub(crate) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for byte in group {
            bits = (bits << 6) | ALPHABET.iter().position(|letter| letter == byte)? as u32;
        }
        let size = group.len().checked_sub(1).filter(|size| *size > 0)?;
        bits <<= 6 * (4 - group.len());
        let [_, all @ ..] = bits.to_be_bytes();
        // The bits that are not used are zero, or two texts would be the same secret.
        if all[size..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&all[..size]);
    }
    Some(bytes)
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
    fn the_secret_is_not_shown() {
        let key = Key::generate("alice").unwrap();
        assert!(!format!("{key:?}").contains(&key.secret().to_text()));
    }
}
