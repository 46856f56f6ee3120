//! Messages of servers and clients to the tracker, and its answers: JSON texts, as which functions of a session pass them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum length in bytes of the name of a server, of a kind, and of the name and value of a label.
pub const WORD_MAX: usize = 64;

/// Maximum number of labels of a server or of a request.
pub const LABELS_MAX: usize = 16;

/// Maximum number of devices in one request.
pub const COUNT_MAX: u32 = 64;

/// Maximum priority of a request.
pub const PRIORITY_MAX: u8 = 9;

/// Maximum time in seconds that a request may wait: 30 days.
pub const TIMEOUT_MAX: f64 = 30.0 * 24.0 * 3600.0;

/// Names and values of labels, such as `os` and `linux`.
pub type Labels = BTreeMap<String, String>;

/// State of a lease at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtServer {
    /// The server accepts the key of the lease; no session has begun.
    Ready,
    /// The session of the lease is being served.
    Active,
}

/// Registration and report of a server: the argument of `tracker.sync`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// Name of the server, unique within the tracker.
    pub name: String,
    /// Kind of the device.
    pub kind: String,
    /// Labels of the device.
    #[serde(default)]
    pub labels: Labels,
    /// Address to which clients connect: `host:port` or a URL.
    pub address: String,
    /// Identifier of the run of the server. A server that has been started again has another one.
    pub instance: String,
    /// Number of the report, which increases with every report of a run.
    pub number: u64,
    /// Leases whose keys the server accepts.
    #[serde(default)]
    pub leases: BTreeMap<String, AtServer>,
    /// Leases whose session has ended. A server repeats them until the tracker does not list them any more.
    #[serde(default)]
    pub ended: Vec<String>,
    /// Time in seconds that the server waits for news.
    #[serde(default)]
    pub wait: f64,
}

/// Answer to [`Sync`]: all leases whose keys the server is to accept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Synced {
    /// Leases of the server's device: none or one.
    pub leases: Vec<Offer>,
}

/// Lease that a server is to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the lease, which is the name of its key, too.
    pub lease: String,
    /// User who holds the lease.
    pub user: String,
    /// Secret of the key.
    pub secret: String,
    /// Maximum duration of the session in seconds; 0 for no limit.
    pub seconds: u64,
}

/// Request of a client: the argument of `tracker.request`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Identifier that the client has chosen. A client that has lost its connection repeats the request with the same one.
    pub id: String,
    /// Kind of the devices.
    pub kind: String,
    /// Labels that each of the devices must have.
    #[serde(default)]
    pub labels: Labels,
    /// Number of devices, which are leased together.
    #[serde(default = "one")]
    pub count: u32,
    /// Priority from 0 to 9. A higher one is served first.
    #[serde(default)]
    pub priority: u8,
    /// Time in seconds that the request may wait.
    pub timeout: f64,
}

fn one() -> u32 {
    1
}

/// Answer to [`Ask`]: the leases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// One lease for each device.
    pub leases: Vec<Leased>,
}

/// Lease for a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leased {
    /// Name of the lease.
    pub lease: String,
    /// Name of the server.
    pub device: String,
    /// Address of the server.
    pub address: String,
    /// Key for one session with the server.
    pub key: String,
}

/// Checks a name of a server, kind or label, or a value of a label. Returns the reason why it is invalid.
///
/// # Errors
/// Returns a message that names `what`.
pub fn check_word(what: &str, word: &str) -> Result<(), String> {
    let is_valid = (1..=WORD_MAX).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:/@+".contains(&byte));
    if is_valid {
        return Ok(());
    }
    let shown: String = word.chars().take(WORD_MAX).flat_map(char::escape_default).collect();
    Err(format!("{what}: expected 1 to {WORD_MAX} characters from A-Z, a-z, 0-9 and ._-:/@+, got `{shown}`"))
}

fn check_labels(labels: &Labels) -> Result<(), String> {
    if labels.len() > LABELS_MAX {
        return Err(format!("`labels`: expected at most {LABELS_MAX} labels, got {}", labels.len()));
    }
    labels.iter().try_for_each(|(name, value)| {
        check_word("`labels`", name)?;
        check_word(&format!("label `{name}`"), value)
    })
}

impl Sync {
    /// Checks the values.
    ///
    /// # Errors
    /// Returns a message that names the wrong entry.
    pub fn check(&self) -> Result<(), String> {
        check_word("`name`", &self.name)?;
        check_word("`kind`", &self.kind)?;
        check_labels(&self.labels)?;
        check_word("`instance`", &self.instance)?;
        if self.address.is_empty() || self.address.len() > 256 || self.address.chars().any(char::is_control) {
            return Err("`address`: expected 1 to 256 characters".into());
        }
        if self.leases.len() > 64 || self.ended.len() > 1024 {
            return Err("expected the leases of one device, got too many".into());
        }
        if !(0.0..=60.0).contains(&self.wait) {
            return Err(format!("`wait`: expected 0 to 60 seconds, got {}", self.wait));
        }
        Ok(())
    }
}

impl Ask {
    /// Checks the values.
    ///
    /// # Errors
    /// Returns a message that names the wrong entry.
    pub fn check(&self) -> Result<(), String> {
        check_word("`id`", &self.id)?;
        check_word("`kind`", &self.kind)?;
        check_labels(&self.labels)?;
        if !(1..=COUNT_MAX).contains(&self.count) {
            return Err(format!("`count`: expected a number from 1 to {COUNT_MAX}, got {}", self.count));
        }
        if self.priority > PRIORITY_MAX {
            return Err(format!(
                "`priority`: expected a number from 0 to {PRIORITY_MAX}, got {}",
                self.priority
            ));
        }
        if !(0.0..=TIMEOUT_MAX).contains(&self.timeout) {
            return Err(format!("`timeout`: expected 0 to {TIMEOUT_MAX} seconds, got {}", self.timeout));
        }
        Ok(())
    }
}
