//! Registered functions for proxies, and their options by name.

use std::sync::{Mutex, PoisonError};

use anyfn::{Object, Ref, Result, String as Text, bail, methods, register};
use serde_json::Value;

use super::Origins;
use super::proxy::{Proxy, ProxyConfig, log_to_stderr};

/// Running proxy. It stops when the last reference to it is dropped.
#[derive(Object)]
#[object(key = "rpc.Proxy", init = false, final)]
pub struct RunningProxy {
    /// Address on which the proxy listens.
    pub host: Text,
    /// Port on which the proxy listens.
    pub port: i64,
    #[field(skip)]
    proxy: Mutex<Option<Proxy>>,
}

#[methods]
impl RunningProxy {
    /// Stops accepting connections. Repeated calls have no effect.
    #[blocking]
    pub fn stop(&self) {
        drop(self.proxy.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Starts a proxy on threads of this process. `options` is a JSON object with the entries `host`, `port`, `allow_origins` (a list),
/// `waiting`, `waiting_of_address` and `sessions`; see `docs/rpc-server.md`. Events are lines of JSON on the standard error.
#[register("rpc.start_proxy", blocking)]
fn start_proxy(#[default("{}")] options: &str) -> Result<Ref<RunningProxy>> {
    let options: Value = match serde_json::from_str(options) {
        Ok(options) => options,
        Err(why) => {
            bail!("ValueError", "expected the options of a proxy as a JSON object, got invalid JSON: {why}")
        }
    };
    let proxy = Proxy::start(ProxyConfig::from_json(&options)?, log_to_stderr())?;
    let host = proxy.address().ip().to_string();
    let port = proxy.address().port().into();
    Ok(Ref::new(RunningProxy { host: host.as_str().into(), port, proxy: Mutex::new(Some(proxy)) }))
}

impl ProxyConfig {
    /// Creates a configuration from a JSON object with options; see `rpc.start_proxy`.
    ///
    /// # Errors
    /// Returns a `ValueError` that names the wrong entry.
    pub fn from_json(options: &Value) -> Result<ProxyConfig> {
        let Value::Object(options) = options else {
            bail!("ValueError", "expected an object with the options of a proxy but got `{options}`");
        };
        let mut config = ProxyConfig::default();
        for (name, value) in options {
            let number = |least: u64, most: u64| match value.as_u64() {
                Some(number) if (least..=most).contains(&number) => Ok(number as usize),
                _ => bail!(
                    "ValueError",
                    "option `{name}`: expected a number from {least} to {most}, got `{value}`"
                ),
            };
            match (name.as_str(), value) {
                ("host", Value::String(host)) if !host.is_empty() => config.host.clone_from(host),
                ("port", _) => config.port = number(0, u16::MAX.into())? as u16,
                ("waiting", _) => config.waiting = number(1, 10_000)?,
                ("waiting_of_address", _) => config.waiting_of_address = number(1, 10_000)?,
                ("sessions", _) => config.pairs = number(1, 10_000)?,
                ("allow_origins", Value::Array(origins)) => {
                    let text =
                        |origin: &Value| origin.as_str().map_or_else(|| origin.to_string(), String::from);
                    config.origins = Origins::new(origins.iter().map(text).collect())?;
                }
                ("host" | "allow_origins", _) => {
                    bail!(
                        "ValueError",
                        "option `{name}`: expected a non-empty string or a list of strings, got `{value}`"
                    )
                }
                (other, _) => bail!("ValueError", "unknown proxy option `{other}`"),
            }
        }
        Ok(config)
    }
}
