//! Who may use a server, looked up.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyfn::Result;

use super::control::Refusal;
use crate::keys::{Grant, Keys, Limits, Secret};
use crate::policy::Policy;

/// Who may use a server.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everybody who can connect, with this grant; only on a loopback address.
    Open(Policy, Limits),
    /// Who has one of these keys.
    Keys(Keys),
    /// Who has one of the keys in this file, which is read again when it changes; what a key leaves out is as given here.
    File(PathBuf, Policy, Limits),
}

/// What a client that names a key, or none, is told.
pub(crate) enum Answer {
    /// This is granted to who knows the secret, if there is one.
    Grant(Grant),
    /// Nobody has this key; the client gets a secret that nobody knows, so that it cannot tell from a wrong one.
    Unknown(Secret),
    /// The client is not wanted.
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

/// What tells whether a file is still the one that was read.
type Stamp = (u64, u64, i64, i64, u64);

impl Keyring {
    /// Reads the keys.
    ///
    /// # Errors
    /// Those of [`Keys::read`].
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

    /// Reads the file of keys again if it has changed; whether it has. The keys stay as they are if the new ones are wrong.
    ///
    /// # Errors
    /// Those of [`Keys::read`], once for each change.
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

    /// Whether the keys may change.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// What a client that names this key is told.
    ///
    /// # Errors
    /// `OSError` if the system has no random bytes.
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

    /// Whether a session of this key, with the secret that it began with, may go on.
    pub(crate) fn still_grants(&self, key: Option<&str>, secret: Option<&Secret>) -> bool {
        match (&self.kind, key) {
            (Kind::Keys(keys) | Kind::File { keys, .. }, Some(key)) => {
                keys.get(key).is_some_and(|grant| grant.secret.as_ref() == secret)
            }
            _ => true,
        }
    }

    /// Whether anybody may upload, which is to run any code.
    pub(crate) fn grants_uploads(&self) -> bool {
        match &self.kind {
            Kind::Open(grant) => grant.policy.upload,
            Kind::Keys(keys) | Kind::File { keys, .. } => keys.grant_uploads(),
        }
    }

    /// The most that any key allows a process: its limits before it has said which key it is.
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
