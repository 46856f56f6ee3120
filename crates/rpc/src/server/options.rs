//! Conversion of named options to a server configuration. The command line and all language bindings use it.

use std::path::PathBuf;
use std::time::Duration;

use anyfn::{Result, bail};
use serde_json::{Map, Value};

use super::access::Access;
use super::audit::Log;
use super::config::ServerConfig;
use super::sandbox::Isolation;
use crate::keys::{Key, Keys, Limits, parse_key, set_grant};
use crate::policy::Policy;

impl ServerConfig {
    /// Creates a configuration from a JSON object with options. `worker` is the command line of session
    /// processes: a program and its arguments.
    ///
    /// | entry | meaning |
    /// |---|---|
    /// | `host`, `port` | address to listen at; by default `127.0.0.1` and any free port |
    /// | `keys` | path of a file of keys, each with what it grants |
    /// | `key_file`, `key` | path of a file with one key, or the key as a string |
    /// | `grant` | entries of [`Policy`] and [`Limits`]: grant of the only key or of clients without one; with `keys`, defaults |
    /// | `sessions`, `queue` | maximum number of sessions served at one time, and of sessions that wait |
    /// | `handshake_seconds`, `half_open`, `hung_seconds` | limits on clients without a proved key, and on hung processes |
    /// | `environment` | additional environment variables of session processes |
    /// | `allow_origins` | list of origins whose web pages may connect over WebSocket, such as `https://example.org`; none by default |
    /// | `proxy` | URL of a proxy and a name, by which clients reach this server, too |
    /// | `show_output` | true if the error output of session processes is shown |
    /// | `folder` | folder in which the folders of sessions are created |
    /// | `isolation` | `auto`: the kernel isolates session processes if it can; `required`, `off` |
    /// | `protected`, `writable` | lists of paths that no session can read, and of folders that all sessions can write to |
    /// | `log` | path of the log, or `-` for the error output |
    ///
    /// # Errors
    /// Returns a `ValueError` that names the wrong entry, and the error of reading a key.
    pub fn from_json(worker: Vec<String>, options: &Value) -> Result<ServerConfig> {
        let Value::Object(options) = options else {
            bail!("ValueError", "expected an object with the options of a server but got `{options}`");
        };
        if options.contains_key("key") && options.contains_key("key_file") {
            bail!("ValueError", "expected `key` or `key_file`, got both");
        }
        let mut config = ServerConfig::new(worker);
        let (mut policy, mut limits) = (Policy::closed(), Limits::DEFAULT);
        let mut key: Option<Key> = None;
        let mut file: Option<PathBuf> = None;
        for (name, value) in options {
            match name.as_str() {
                "host" => config.host = filled(name, value)?.into(),
                "port" => config.port = number(name, value, 0, u64::from(u16::MAX))? as u16,
                "keys" => {
                    file = Some(filled(name, value)?.into());
                    config.protected.push(filled(name, value)?.into());
                }
                "key_file" => {
                    key = Some(crate::keys::read_key(filled(name, value)?.as_ref())?);
                    config.protected.push(filled(name, value)?.into());
                }
                // The message does not repeat a wrong key.
                "key" => match value.as_str() {
                    Some(text) => key = Some(parse_key(text)?),
                    None => bail!("ValueError", "option `key`: expected a string"),
                },
                "grant" => {
                    for (entry, value) in object(name, value)? {
                        set_grant(&mut policy, &mut limits, entry, value)?;
                    }
                }
                "sessions" => config.sessions = number(name, value, 1, 100_000)? as usize,
                "queue" => config.queue = number(name, value, 0, 100_000)? as usize,
                "half_open" => config.half_open = number(name, value, 1, 100_000)? as usize,
                "handshake_seconds" => config.handshake = seconds(name, value)?,
                "hung_seconds" => config.hung = seconds(name, value)?,
                "environment" => {
                    for (variable, value) in object(name, value)? {
                        config.environment.push((variable.clone(), text(name, value)?.into()));
                    }
                }
                "show_output" => match value {
                    Value::Bool(show) => config.show_output = *show,
                    other => bail!("ValueError", "option `show_output`: expected true or false, got `{other}`"),
                },
                #[cfg(feature = "websocket")]
                "proxy" => config.proxy = Some(filled(name, value)?.into()),
                #[cfg(feature = "websocket")]
                "allow_origins" => {
                    let Some(all) = value.as_array() else {
                        bail!("ValueError", "option `{name}`: expected a list of origins, got `{value}`");
                    };
                    let all = all.iter().map(|origin| text(name, origin).map(String::from));
                    config.origins = crate::websocket::Origins::new(all.collect::<Result<_>>()?)?;
                }
                "isolation" => {
                    config.isolation = match text(name, value)? {
                        "auto" => Isolation::Auto,
                        "required" => Isolation::Required,
                        "off" => Isolation::Off,
                        other => bail!(
                            "ValueError",
                            "option `isolation`: expected `auto`, `required` or `off`, got {other:?}"
                        ),
                    }
                }
                "protected" => config.protected.extend(paths(name, value)?),
                "writable" => config.writable.extend(paths(name, value)?),
                "folder" => config.folder = filled(name, value)?.into(),
                "log" => {
                    config.log = match filled(name, value)? {
                        "-" => Log::Stderr,
                        path => Log::File(path.into()),
                    }
                }
                other => bail!("ValueError", "unknown server option `{other}`"),
            }
        }
        config.access = match (file, key) {
            (Some(_), Some(_)) => {
                bail!(
                    "ValueError",
                    "expected either a file of keys (`keys`) or one key (`key_file`, `key`), got both"
                )
            }
            (Some(file), None) => Access::File(file, policy, limits),
            (None, Some(key)) => Access::Keys(Keys::one(&key, policy, limits)),
            (None, None) => Access::Open(policy, limits),
        };
        Ok(config)
    }
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str> {
    match value {
        Value::String(text) => Ok(text),
        other => bail!("ValueError", "option `{name}`: expected a string, got `{other}`"),
    }
}

fn filled<'a>(name: &str, value: &'a Value) -> Result<&'a str> {
    match text(name, value)? {
        text if text.is_empty() || text.contains('\0') => {
            bail!(
                "ValueError",
                "option `{name}`: expected a non-empty string without NUL characters, got {text:?}"
            )
        }
        text => Ok(text),
    }
}

fn paths(name: &str, value: &Value) -> Result<Vec<PathBuf>> {
    let Some(all) = value.as_array() else {
        bail!("ValueError", "option `{name}`: expected a list of paths, got `{value}`");
    };
    all.iter().map(|path| filled(name, path).map(PathBuf::from)).collect()
}

fn object<'a>(name: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    match value {
        Value::Object(entries) => Ok(entries),
        other => bail!("ValueError", "option `{name}`: expected an object, got `{other}`"),
    }
}

fn number(name: &str, value: &Value, least: u64, most: u64) -> Result<u64> {
    match value.as_u64() {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => bail!("ValueError", "option `{name}`: expected a number from {least} to {most}, got `{value}`"),
    }
}

fn seconds(name: &str, value: &Value) -> Result<Duration> {
    match value.as_f64().map(Duration::try_from_secs_f64) {
        // Longer than any practical wait, and short enough that no sum of times overflows.
        Some(Ok(time)) if !time.is_zero() && time <= Duration::from_secs(1 << 30) => Ok(time),
        _ => bail!("ValueError", "option `{name}`: expected a positive number of seconds, got `{value}`"),
    }
}
