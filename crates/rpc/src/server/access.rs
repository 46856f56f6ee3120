//! Access control of a server: looks up the key of each client.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyfn::Result;

use super::control::Refusal;
use crate::keys::{Grant, Keys, Limits, Secret};
use crate::policy::Policy;

/// Clients that may use a server.
#[derive(Clone, Debug)]
pub enum Access {
    /// All clients that can connect, with the given permissions and limits. The server must listen on a
    /// loopback address.
    Open(Policy, Limits),
    /// Clients that have one of these keys.
    Keys(Keys),
    /// Clients that have one of the keys in a key file, which is read again when it changes. The policy and
    /// the limits are defaults for the keys in the file; see [`Keys::read`].
    File(PathBuf, Policy, Limits),
}

/// Decision about a client that has sent the name of its key, or that has no key.
pub(crate) enum Answer {
    /// The client has these permissions and limits, provided that it proves that it knows the
    /// secret. If there is no secret, the client need not prove anything.
    Grant(Grant),
    /// The key does not exist. The client must prove that it knows this random secret, which is
    /// impossible. The client therefore cannot distinguish a wrong name from a wrong secret.
    Unknown(Secret),
    /// The client is refused for this reason.
    Refuse(Refusal),
}

/// Current keys of a running server.
pub(crate) struct Keyring {
    kind: KeySource,
}

enum KeySource {
    Open(Grant),
    Keys(Keys),
    File { path: PathBuf, policy: Policy, limits: Limits, keys: Keys, read: Option<Stamp> },
}

/// Fingerprint of a file: its identity, modification time and size. A different fingerprint shows that the
/// file was replaced or changed.
type Stamp = (u64, u64, i64, i64, u64);

impl Keyring {
    /// Creates the key ring of a server, and reads the key file if there is one.
    ///
    /// # Errors
    /// Returns the error of [`Keys::read`].
    pub(crate) fn new(access: &Access) -> Result<Keyring> {
        let kind = match access {
            Access::Open(policy, limits) => {
                KeySource::Open(Grant { secret: None, policy: policy.clone(), limits: limits.clone() })
            }
            Access::Keys(keys) => KeySource::Keys(keys.clone()),
            Access::File(path, policy, limits) => {
                let read = stamp(path);
                let keys = Keys::read(path, policy, limits)?;
                KeySource::File {
                    path: path.clone(),
                    policy: policy.clone(),
                    limits: limits.clone(),
                    keys,
                    read,
                }
            }
        };
        Ok(Keyring { kind })
    }

    /// Reads the key file again if the file has changed, and returns true in that case. If the new
    /// content is invalid, the old keys stay in use.
    ///
    /// # Errors
    /// Returns the error of [`Keys::read`], once for each change.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let KeySource::File { path, policy, limits, keys, read } = &mut self.kind else { return Ok(false) };
        let now = stamp(path);
        if now == *read {
            return Ok(false);
        }
        *read = now;
        *keys = Keys::read(path, policy, limits)?;
        Ok(true)
    }

    /// Returns true if the keys come from a key file, which may change.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, KeySource::File { .. })
    }

    /// Decides about a client that claims to have the key `key`, or that has no key.
    ///
    /// # Errors
    /// Returns `OSError` if no random bytes can be read.
    pub(crate) fn look_up(&self, key: Option<&str>) -> Result<Answer> {
        match (&self.kind, key) {
            (KeySource::Open(grant), None) => Ok(Answer::Grant(grant.clone())),
            (KeySource::Open(_), Some(_)) => Ok(Answer::Refuse(Refusal::KeyNotTaken)),
            (_, None) => Ok(Answer::Refuse(Refusal::NoKey)),
            (KeySource::Keys(keys) | KeySource::File { keys, .. }, Some(key)) => match keys.get(key) {
                Some(grant) => Ok(Answer::Grant(grant.clone())),
                None => Ok(Answer::Unknown(Secret::generate(crate::keys::system_random)?)),
            },
        }
    }

    /// Returns true if a session with the key called `key` may continue: the key still exists and
    /// has the same secret, or the client has no key.
    pub(crate) fn still_grants(&self, key: Option<&str>, secret: Option<&Secret>) -> bool {
        match (&self.kind, key) {
            (KeySource::Keys(keys) | KeySource::File { keys, .. }, Some(key)) => {
                keys.get(key).is_some_and(|grant| grant.secret.as_ref() == secret)
            }
            _ => true,
        }
    }

    /// Returns true if any client may upload libraries, and may thus run any code.
    pub(crate) fn grants_uploads(&self) -> bool {
        match &self.kind {
            KeySource::Open(grant) => grant.policy.upload,
            KeySource::Keys(keys) | KeySource::File { keys, .. } => keys.grant_uploads(),
        }
    }

    /// Returns the maximum over all keys of each resource limit of a process. These limits apply to
    /// a session process until its client has sent the name of its key.
    pub(crate) fn widest(&self) -> Limits {
        match &self.kind {
            KeySource::Open(grant) => grant.limits.clone(),
            KeySource::Keys(keys) | KeySource::File { keys, .. } => keys.widest(),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = |metadata: Metadata| {
        (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size())
    };
    std::fs::metadata(path).ok().map(of)
}
