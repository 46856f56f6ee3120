//! Permissions and limits of a session.

use anyfn::{Device, Error, Result, bail, error};
use anyfn_protocol::SessionLimits;
use anyfn_protocol::services::Denied;
use serde_json::{Value, json};

/// Permissions and limits of a session. Everything that is not explicitly permitted is denied.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name of the client's key; `None` if the client has no key.
    pub key: Option<String>,
    /// Global functions that the client may look up, as names or as prefixes followed by `*`.
    pub functions: Vec<String>,
    /// True if the client may upload and load libraries. Such a client can run any code with the rights of
    /// the server.
    pub upload: bool,
    /// Devices that the client may use, such as `cpu` or `cuda:1`. A device kind without an index permits all
    /// devices of this kind; `*` permits all devices.
    pub devices: Vec<String>,
    /// Maximum number of handles that the client may hold at any time.
    pub handles: u32,
    /// Maximum total size in bytes of the tensors that the client allocates.
    pub memory_bytes: u64,
    /// Maximum total size in bytes of the files that the client uploads.
    pub store_bytes: u64,
    /// Maximum size of one message in bytes. A message contains the arguments or the result of a call.
    pub message_bytes: usize,
    /// Maximum number of simultaneous calls.
    pub calls: u32,
    /// Time limit of a call in seconds; 0 for no limit. If a call exceeds the limit, the session
    /// ends.
    pub call_seconds: u64,
    /// Time in seconds after which a session without received messages ends; 0 for no limit.
    pub idle_seconds: u64,
}

impl Policy {
    /// Returns a policy that permits everything, for a fully trusted peer such as a child process.
    /// Its only limits prevent a mistake from exhausting the resources of the machine.
    pub fn trusted() -> Policy {
        Policy {
            key: None,
            functions: vec!["*".into()],
            upload: true,
            devices: vec!["*".into()],
            handles: 1 << 24,
            memory_bytes: u64::MAX,
            store_bytes: u64::MAX,
            message_bytes: 1 << 30,
            calls: 4096,
            call_seconds: 0,
            idle_seconds: 0,
        }
    }

    /// Returns the policy that a client applies to its server. The server may call only functions that the
    /// client has passed to it.
    pub(crate) fn of_client() -> Policy {
        Policy { functions: Vec::new(), upload: false, devices: Vec::new(), ..Policy::trusted() }
    }

    /// Returns those limits of the policy that the protocol enforces.
    pub(crate) fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            handles: self.handles,
            calls: self.calls,
            message_bytes: self.message_bytes,
            call_seconds: self.call_seconds,
            idle_seconds: self.idle_seconds,
        }
    }

    /// Returns a policy that permits only the device `cpu`, with the default limits of a server.
    pub fn closed() -> Policy {
        Policy {
            key: None,
            functions: Vec::new(),
            upload: false,
            devices: vec!["cpu".into()],
            handles: 100_000,
            memory_bytes: 8 << 30,
            store_bytes: 1 << 30,
            message_bytes: 64 << 20,
            calls: 64,
            call_seconds: 0,
            idle_seconds: 3600,
        }
    }

    /// Returns true if the client may look up the global function called `name`.
    pub fn allows_function(&self, name: &str) -> bool {
        anyfn_protocol::services::matches(&self.functions, name)
    }

    /// Returns true if the client may use a device, such as `cuda:0`.
    pub fn allows_device(&self, device: &str) -> bool {
        let kind = device.split(':').next().unwrap_or(device);
        self.devices.iter().any(|allowed| allowed == "*" || allowed == device || allowed == kind)
    }

    /// Converts the policy to JSON, to pass it to another process.
    pub fn to_json(&self) -> Value {
        json!({
            "key": self.key, "functions": self.functions, "upload": self.upload, "devices": self.devices,
            "handles": self.handles, "memory_bytes": self.memory_bytes, "store_bytes": self.store_bytes,
            "message_bytes": self.message_bytes, "calls": self.calls, "call_seconds": self.call_seconds,
            "idle_seconds": self.idle_seconds,
        })
    }

    /// Creates a policy from JSON that [`Policy::to_json`] has returned. Fields that the JSON lacks are taken
    /// from `base`.
    ///
    /// # Errors
    /// Returns a `ValueError` that names the first entry which is unknown or has a wrong value.
    pub fn from_json(base: &Policy, value: &Value) -> Result<Policy> {
        let Value::Object(entries) = value else {
            bail!("ValueError", "expected an object of grants, got `{value}`");
        };
        let mut policy = base.clone();
        for (name, value) in entries {
            policy.set(name, value)?;
        }
        Ok(policy)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        let number = |least, most| number(name, value, least, most);
        let texts = || {
            let texts =
                value.as_array().and_then(|all| all.iter().map(|one| one.as_str().map(String::from)).collect());
            match texts {
                Some(texts) => Ok(texts),
                None => bail!("ValueError", "`{name}`: expected a list of strings, got `{value}`"),
            }
        };
        let small = || Ok::<_, anyfn::Error>(number(1, u32::MAX.into())? as u32);
        match name {
            "key" => match value {
                Value::Null => self.key = None,
                Value::String(key) => self.key = Some(key.clone()),
                other => bail!("ValueError", "`key`: expected a name, got `{other}`"),
            },
            "functions" => {
                self.functions = checked(name, texts()?, "a name, or a prefix followed by `*`", is_pattern)?
            }
            "upload" => match value {
                Value::Bool(upload) => self.upload = *upload,
                other => bail!("ValueError", "`upload`: expected true or false, got `{other}`"),
            },
            "devices" => {
                let devices = checked(name, texts()?, "a device such as `cpu` or `cuda:1`, or `*`", is_device)?;
                let devices: Result<Vec<_>> =
                    devices.iter().map(|device| canonical_device(name, device)).collect();
                self.devices = devices?;
            }
            "handles" => self.handles = small()?,
            "memory_bytes" => self.memory_bytes = number(0, u64::MAX)?,
            "store_bytes" => self.store_bytes = number(0, u64::MAX)?,
            "message_bytes" => self.message_bytes = number(MESSAGE_MIN, usize::MAX as u64)? as usize,
            "calls" => self.calls = small()?,
            "call_seconds" => self.call_seconds = number(0, SECONDS_MAX)?,
            "idle_seconds" => self.idle_seconds = number(0, SECONDS_MAX)?,
            other => return Err(unknown_grant(other)),
        }
        Ok(())
    }
}

/// Describes how the operator of a server grants a permission: on the command line, in Python, or in a file of keys.
pub(crate) fn how_to_grant(denied: Denied<'_>) -> String {
    let (option, argument, entry) = match denied {
        Denied::Function(name) => {
            let pattern = pattern_for(name);
            // A shell would expand the asterisk.
            let quote = if pattern.ends_with('*') { "'" } else { "" };
            (
                format!("--allow {quote}{pattern}{quote}"),
                format!("functions=[\"{pattern}\"]"),
                format!("\"functions\": [\"{pattern}\"]"),
            )
        }
        Denied::Device(device) => (
            format!("--device {device}"),
            format!("devices=[\"{device}\"]"),
            format!("\"devices\": [\"{device}\"]"),
        ),
        Denied::Upload => ("--upload".into(), "upload=True".into(), "\"upload\": true".into()),
    };
    format!(
        "the server has to grant it: `{option}` on the command line, `rpc.serve({argument})` in Python, `{entry}` in a file of keys"
    )
}

/// Prefix of the names of the functions that profile the remote end. A permission is suggested for
/// all of them together, since they are useful only together.
const PROFILE: &str = "anyfn.profile.";

/// Returns the pattern that grants the function called `name`. The pattern is the placeholder
/// `NAME` if the name is too long or contains unusual characters.
fn pattern_for(name: &str) -> String {
    let is_plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte));
    match name {
        name if name.starts_with(PROFILE) => format!("{PROFILE}*"),
        name if name.len() <= 128 && is_plain(name) => name.into(),
        _ => "NAME".into(),
    }
}

/// Minimum value of [`Policy::message_bytes`]. With smaller messages, a session could not make
/// calls.
const MESSAGE_MIN: u64 = 4096;

/// Maximum value of a time limit in seconds, 34 years. It prevents deadlines from overflowing.
pub(crate) const SECONDS_MAX: u64 = 1 << 30;

/// Parses the JSON value of the limit called `name`, an integer from `least` to `most`.
///
/// # Errors
/// Returns a `ValueError` that names the entry, its value and what is expected.
pub(crate) fn number(name: &str, value: &Value, least: u64, most: u64) -> Result<u64> {
    match value.as_u64() {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => bail!("ValueError", "`{name}`: expected a number from {least} to {most}, got `{value}`"),
    }
}

fn checked(name: &str, texts: Vec<String>, expected: &str, is_one: fn(&str) -> bool) -> Result<Vec<String>> {
    match texts.iter().find(|text| !is_one(text)) {
        None => Ok(texts),
        Some(wrong) => bail!("ValueError", "`{name}`: expected {expected}, got {wrong:?}"),
    }
}

fn is_pattern(text: &str) -> bool {
    let beginning = text.strip_suffix('*').unwrap_or(text);
    !text.is_empty() && !beginning.contains(|c: char| c == '*' || c.is_whitespace() || c.is_control())
}

fn is_device(text: &str) -> bool {
    let (kind, number) = text.split_once(':').unwrap_or((text, "0"));
    text == "*"
        || !kind.is_empty()
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && number.parse::<u32>().is_ok()
}

/// Returns the canonical name of a device or device kind, such as `cuda` for `gpu`, as
/// [`Policy::allows_device`] compares it. `name` is the name of the entry in error messages.
fn canonical_device(name: &str, text: &str) -> Result<String> {
    if text == "*" {
        return Ok(text.into());
    }
    let device = text.parse::<Device>();
    let device = device.map_err(|error| error!(error.kind(), "`{name}`: {}", error.message()))?.to_string();
    match device.split_once(':') {
        Some((kind, _)) if !text.contains(':') => Ok(kind.into()),
        _ => Ok(device),
    }
}

/// Names of the limits of a session, in [`Policy`] and in [`Limits`](crate::keys::Limits).
pub(crate) const LIMITS: [&str; 13] = [
    "sessions",
    "seconds",
    "idle_seconds",
    "call_seconds",
    "cpu_seconds",
    "process_bytes",
    "memory_bytes",
    "store_bytes",
    "message_bytes",
    "file_bytes",
    "files",
    "calls",
    "handles",
];

/// Returns the error for an unknown name in a grant. The message lists the known names.
pub(crate) fn unknown_grant(name: &str) -> Error {
    let limits = LIMITS.join(", ");
    error!(
        "ValueError",
        "unknown grant `{name}`: expected one of the limits {limits}, or functions, upload or devices"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_that_exist() {
        let closed = Policy::closed();
        let policy = |devices: &[&str]| Policy::from_json(&closed, &json!({ "devices": devices }));
        let granted = policy(&["gpu", "rocm:1", "*"]).unwrap();
        assert_eq!(granted.devices, ["cuda", "rocm:1", "*"]);
        assert_eq!(Policy::from_json(&closed, &granted.to_json()).unwrap(), granted);
        let error = policy(&["cpu", "gpuu"]).unwrap_err();
        assert!(error.message().starts_with("`devices`: unknown device `gpuu`"), "{}", error.message());
    }

    #[test]
    fn missing_grants_are_named() {
        for (denied, option, argument, entry) in [
            (
                Denied::Function("demo.add"),
                "--allow demo.add",
                "functions=[\"demo.add\"]",
                "\"functions\": [\"demo.add\"]",
            ),
            (
                Denied::Function("anyfn.profile.start"),
                "--allow 'anyfn.profile.*'",
                "functions=[\"anyfn.profile.*\"]",
                "\"functions\": [\"anyfn.profile.*\"]",
            ),
            (Denied::Function("a`\n"), "--allow NAME", "functions=[\"NAME\"]", "\"functions\": [\"NAME\"]"),
            (Denied::Device("cuda:1"), "--device cuda:1", "devices=[\"cuda:1\"]", "\"devices\": [\"cuda:1\"]"),
            (Denied::Upload, "--upload", "upload=True", "\"upload\": true"),
        ] {
            let how = how_to_grant(denied);
            for part in [format!("`{option}`"), format!("`rpc.serve({argument})`"), format!("`{entry}`")] {
                assert!(how.contains(&part), "no {part} in {how}");
            }
        }
        assert_eq!(pattern_for(&"x".repeat(1000)), "NAME");
    }
}
