//! Clients of a tracker: `rpc.request` leases devices and opens a session with each of them.
//!
//! A lease is a key for one session. It ends with the session, so nothing else has to be returned or renewed.

use std::time::{Duration, Instant};

use anyfn::{Error, Ref, Result, bail, check_signals, error, register, registry};
use serde_json::{Map, Value, json};

use crate::keys::system_random;
use crate::session::{Session, seconds};

/// Time limit in seconds for connecting to a device. The tracker withdraws a lease that is not used within 15 seconds.
const CONNECT: f64 = 12.0;

/// Pause before the next attempt, and its maximum.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Number of refusals of the key after which another attempt is made.
const REFUSALS: u32 = 2;

/// Splits `host:port`.
fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?))
}

/// Requests devices from a tracker, waits until they are free, and opens a session with each of them. A device is returned when its
/// session ends.
///
/// `tracker` is `HOST:PORT`. `options` is a JSON object with the entries `labels` (an object; default none), `count` (number of devices;
/// default 1), `priority` (0 to 9; default 0) and `timeout` (time limit in seconds for waiting; default 60). `key` and `key_file` are
/// those of `rpc.connect`, for the tracker. If the tracker cannot be reached, or a device is lost before its session has begun, the
/// request is repeated until its time is over.
#[register("rpc.request", blocking)]
fn request(
    tracker: &str,
    kind: &str,
    #[default("{}")] options: &str,
    #[default(None)] key: Option<&str>,
    #[default(None)] key_file: Option<&str>,
) -> Result<Vec<Ref<Session>>> {
    let Some((host, port)) = split(tracker) else {
        bail!("ValueError", "`tracker`: expected HOST:PORT, got `{tracker}`");
    };
    let mut ask: Map<String, Value> = match serde_json::from_str(options) {
        Ok(options) => options,
        Err(why) => bail!("ValueError", "`options`: expected a JSON object: {why}"),
    };
    let unknown = ask.keys().find(|name| !["labels", "count", "priority", "timeout"].contains(&name.as_str()));
    if let Some(name) = unknown {
        bail!("ValueError", "unknown option `{name}`: expected `labels`, `count`, `priority` or `timeout`");
    }
    let timeout = match ask.get("timeout") {
        None => 60.0,
        Some(value) => value.as_f64().unwrap_or(f64::NAN),
    };
    let deadline = Instant::now() + seconds("timeout", timeout)?;
    ask.insert("kind".into(), kind.into());
    let connect = registry::get("rpc.connect")?;
    let (mut pause, mut refusals) = (PAUSE, 0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let client = Client { host, port, key, key_file };
        match client.attempt(&connect, &mut ask, left) {
            Err(why) if left > pause && (is_passing(&why) || is_refusal(&why) && refusals < REFUSALS) => {
                refusals += u32::from(is_refusal(&why));
                check_signals()?;
                std::thread::sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}

/// Returns true for errors of connections, which another attempt may not meet.
fn is_passing(error: &Error) -> bool {
    error.kind() == "ConnectionError"
}

/// Returns true if the tracker seems to refuse the key. A tracker that is killed during the proof of the key looks the same.
fn is_refusal(error: &Error) -> bool {
    error.kind() == "PermissionError"
}

/// Tracker and the key for it.
struct Client<'a> {
    host: &'a str,
    port: u16,
    key: Option<&'a str>,
    key_file: Option<&'a str>,
}

impl Client<'_> {
    /// Requests devices once. The identifier of the request in `ask` is kept as long as the tracker may know it, so that the request
    /// keeps its position in the queue when the tracker has been started again.
    fn attempt(
        &self,
        connect: &anyfn::PackedFunc,
        ask: &mut Map<String, Value>,
        left: Duration,
    ) -> Result<Vec<Ref<Session>>> {
        if !ask.contains_key("id") {
            let mut id = [0; 16];
            system_random(&mut id)?;
            ask.insert("id".into(), format!("{:032x}", u128::from_ne_bytes(id)).into());
        }
        ask.insert("timeout".into(), left.as_secs_f64().into());
        let wait = left.as_secs_f64().clamp(0.1, 10.0);
        let tracker = connect.call((self.host, self.port, self.key, wait, self.key_file));
        // A tracker that does not answer may be starting.
        let tracker = tracker.map_err(|error| passing(error, "TimeoutError"))?.get::<Ref<Session>>()?;
        let answer =
            tracker.get_function("tracker.request")?.call((Value::Object(ask.clone()).to_string(),))?;
        let leases: Value = serde_json::from_str(answer.get::<&str>()?).unwrap_or_default();
        // From here on, the request is answered; the next attempt is a new one.
        ask.remove("id");
        let mut sessions = Vec::new();
        for lease in leases["leases"].as_array().into_iter().flatten() {
            match self.open(connect, lease) {
                Ok(session) => sessions.push(session),
                Err(error) => {
                    sessions.iter().for_each(|session: &Ref<Session>| session.close());
                    let names: Vec<&Value> = leases["leases"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|lease| &lease["lease"])
                        .collect();
                    let _ = tracker
                        .get_function("tracker.release")
                        .and_then(|release| release.call((json!(names).to_string(),)));
                    // The lease may have been withdrawn, or its server may have ended.
                    let error = passing(passing(error, "TimeoutError"), "PermissionError");
                    return Err(error);
                }
            }
        }
        tracker.close();
        Ok(sessions)
    }

    fn open(&self, connect: &anyfn::PackedFunc, lease: &Value) -> Result<Ref<Session>> {
        let (address, key) = (lease["address"].as_str().unwrap_or(""), lease["key"].as_str());
        let session = match split(address) {
            _ if address.contains("://") => registry::get("rpc.connect_url")?.call((address, key, CONNECT))?,
            Some((host, port)) => connect.call((host, port, key, CONNECT))?,
            None => bail!("ConnectionError", "the tracker has sent the address `{address}`, which is invalid"),
        };
        session.get::<Ref<Session>>()
    }
}

/// Returns `error`, as a `ConnectionError` if it has the kind `kind`.
fn passing(error: Error, kind: &str) -> Error {
    if error.kind() == kind { error!("ConnectionError", "{}", error.message()) } else { error }
}
