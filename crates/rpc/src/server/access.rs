//! Access control of a server, which looks up the keys of clients.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyfn::Result;

use super::control::Refusal;
use crate::keys::{Grant, Keys, Limits, Secret};
use crate::policy::Policy;

/// Rule that determines which clients may use a server.
#[derive(Clone, Debug)]
pub enum Access {
    /// All clients that can connect, with this grant; only on a loopback address.
    Open(Policy, Limits),
    /// Clients that have one of these keys.
    Keys(Keys),
    /// Clients that have one of the keys in this file, which is read again when it changes. The policy and the limits are the
    /// defaults for entries that a key lacks; see [`Keys::read`].
    File(PathBuf, Policy, Limits),
}

/// Answer to a client that has sent the name of its key, or that has no key.
pub(crate) enum Answer {
    /// Grant of the key. The client must prove that it knows the secret of the grant, if the grant has one.
    Grant(Grant),
    /// Key that does not exist. The client must prove that it knows this random secret, which is impossible,
    /// so a client cannot distinguish a wrong name from a wrong secret.
    Unknown(Secret),
    /// Refusal of the client.
    Refuse(Refusal),
}

/// The keys of a running server.
pub(crate) struct Keyring {
    kind: Kind,
}

enum Kind {
    Open(Grant),
    Keys(Keys),
    File { path: PathBuf, policy: Policy, limits: Limits, keys: Keys, read: Option<Stamp> },
}

/// Identity, modification time and size of a file. They differ if the file was replaced or changed after it was read.
type Stamp = (u64, u64, i64, i64, u64);

impl Keyring {
    /// Reads the keys of a server.
    ///
    /// # Errors
    /// Returns the error of [`Keys::read`].
    pub(crate) fn new(access: &Access) -> Result<Keyring> {
        let kind = match access {
            Access::Open(policy, limits) => {
                Kind::Open(Grant { secret: None, policy: policy.clone(), limits: limits.clone() })
            }
            Access::Keys(keys) => Kind::Keys(keys.clone()),
            Access::File(path, policy, limits) => {
                let read = stamp(path);
                let keys = Keys::read(path, policy, limits)?;
                Kind::File { path: path.clone(), policy: policy.clone(), limits: limits.clone(), keys, read }
            }
        };
        Ok(Keyring { kind })
    }

    /// Reads the file of keys again if it has changed. Returns true if it has changed. If the new content is
    /// invalid, the old keys stay in use.
    ///
    /// # Errors
    /// Returns the error of [`Keys::read`], once for each change.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let Kind::File { path, policy, limits, keys, read } = &mut self.kind else { return Ok(false) };
        let now = stamp(path);
        if now == *read {
            return Ok(false);
        }
        *read = now;
        *keys = Keys::read(path, policy, limits)?;
        Ok(true)
    }

    /// Returns true if the keys come from a file, so that they may change.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// Returns the answer to a client that claims to have the key `key`, or to a client without a key.
    ///
    /// # Errors
    /// Returns `OSError` if no random bytes can be read.
    pub(crate) fn look_up(&self, key: Option<&str>) -> Result<Answer> {
        match (&self.kind, key) {
            (Kind::Open(grant), None) => Ok(Answer::Grant(grant.clone())),
            (Kind::Open(_), Some(_)) => Ok(Answer::Refuse(Refusal::KeyNotTaken)),
            (_, None) => Ok(Answer::Refuse(Refusal::NoKey)),
            (Kind::Keys(keys) | Kind::File { keys, .. }, Some(key)) => match keys.get(key) {
                Some(grant) => Ok(Answer::Grant(grant.clone())),
                None => Ok(Answer::Unknown(Secret::random()?)),
            },
        }
    }

    /// Returns true if the key called `key` still exists with this secret, so that a session that began with it may continue.
    pub(crate) fn still_grants(&self, key: Option<&str>, secret: Option<&Secret>) -> bool {
        match (&self.kind, key) {
            (Kind::Keys(keys) | Kind::File { keys, .. }, Some(key)) => {
                keys.get(key).is_some_and(|grant| grant.secret.as_ref() == secret)
            }
            _ => true,
        }
    }

    /// Returns true if any client may upload libraries, and can therefore run any code.
    pub(crate) fn grants_uploads(&self) -> bool {
        match &self.kind {
            Kind::Open(grant) => grant.policy.upload,
            Kind::Keys(keys) | Kind::File { keys, .. } => keys.grant_uploads(),
        }
    }

    /// Returns, for each resource limit of a process, the highest value among all keys. These limits apply to a session process
    /// until its client has named its key.
    pub(crate) fn widest(&self) -> Limits {
        match &self.kind {
            Kind::Open(grant) => grant.limits.clone(),
            Kind::Keys(keys) | Kind::File { keys, .. } => keys.widest(),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = |metadata: Metadata| {
        (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size())
    };
    std::fs::metadata(path).ok().map(of)
}
