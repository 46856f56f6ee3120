//! Channel between the listener and a session process. Each packet contains one JSON message.
//!
//! A session names the key of its client, reports that the client has proved it, and then reports at
//! intervals that it is alive and which events occur. The listener answers with the permissions of the key,
//! then with the position in the queue, then with the admission. The messages of a session are not trusted,
//! since it may have run code of its client: an unexpected message ends it.

use std::fmt;

use serde_json::{Map, Value, json};

use anyfn_protocol::key::is_name;

use crate::keys::Secret;

/// Maximum length of a message on the channel, in bytes.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;

/// Maximum length of an event's name, in bytes.
const EVENT_MAX: usize = 64;

/// Maximum length of the details of an event as JSON, in bytes.
const DETAIL_MAX: usize = 4096;

/// Message from a session process to the listener.
#[derive(Debug, PartialEq)]
pub(crate) enum FromSession {
    /// Name of the client's key; `None` for a client without a key. An invalid name is replaced by the empty
    /// string.
    Hello(Option<String>),
    /// The client has proved possession of its key, or needs no key.
    Ready,
    /// The session process is alive. It sends this message at regular intervals.
    Alive,
    /// The session process, which was started only as a trial, is able to serve clients.
    Tried,
    /// Event for the audit log: its name and details.
    Audit(String, Map<String, Value>),
}

impl FromSession {
    pub(crate) fn write(&self) -> Vec<u8> {
        match self {
            FromSession::Hello(key) => json!({ "hello": { "key": key } }),
            FromSession::Ready => json!({ "ready": true }),
            FromSession::Alive => json!({ "alive": true }),
            FromSession::Tried => json!({ "tried": true }),
            FromSession::Audit(event, detail) => json!({ "audit": { "event": event, "detail": detail } }),
        }
        .to_string()
        .into_bytes()
    }

    pub(crate) fn read(message: &[u8]) -> Option<FromSession> {
        let message: Value = serde_json::from_slice(message).ok()?;
        let (kind, content) = only_entry(&message)?;
        match kind {
            "hello" => match content.get("key")? {
                Value::Null => Some(FromSession::Hello(None)),
                Value::String(key) => {
                    Some(FromSession::Hello(Some(if is_name(key) { key.clone() } else { String::new() })))
                }
                _ => None,
            },
            "ready" => Some(FromSession::Ready),
            "alive" => Some(FromSession::Alive),
            "tried" => Some(FromSession::Tried),
            "audit" => {
                let event = content.get("event")?.as_str().filter(|event| event.len() <= EVENT_MAX)?;
                let mut detail = content.get("detail")?.as_object()?.clone();
                if Value::Object(detail.clone()).to_string().len() > DETAIL_MAX {
                    detail = Map::from_iter([("left_out".into(), Value::Bool(true))]);
                }
                Some(FromSession::Audit(event.into(), detail))
            }
            _ => None,
        }
    }
}

/// Reason why a server refuses a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client has no key, but the server requires one.
    NoKey,
    /// The client has a key, but the server has none.
    KeyNotTaken,
    /// Any other reason, as a message for the client.
    Because(String),
}

impl Refusal {
    fn to_json(&self) -> Value {
        match self {
            Refusal::NoKey => json!("no_key"),
            Refusal::KeyNotTaken => json!("key_not_taken"),
            Refusal::Because(why) => json!({ "because": why }),
        }
    }

    fn read(value: &Value) -> Option<Refusal> {
        match value.as_str() {
            Some("no_key") => Some(Refusal::NoKey),
            Some("key_not_taken") => Some(Refusal::KeyNotTaken),
            Some(_) => None,
            None => Some(Refusal::Because(value.get("because")?.as_str()?.into())),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoKey => "this server requires a key",
            Refusal::KeyNotTaken => "this server has no keys",
            Refusal::Because(why) => why,
        })
    }
}

/// Message from the listener to a session process.
#[derive(Debug, PartialEq)]
pub(crate) enum ToSession {
    /// The client has these permissions once it has proved that it knows the secret. If there is no secret,
    /// the client need not prove anything.
    Policy(Value, Option<Secret>),
    /// The client is refused for this reason.
    Refuse(Refusal),
    /// The client has this position in the queue. Position 1 is the front.
    Queued(usize),
    /// The client is admitted, and its session begins.
    Go,
}

impl ToSession {
    pub(crate) fn write(&self) -> Vec<u8> {
        match self {
            ToSession::Policy(policy, secret) => {
                json!({ "policy": policy, "secret": secret.as_ref().map(Secret::to_text) })
            }
            ToSession::Refuse(why) => json!({ "refuse": why.to_json() }),
            ToSession::Queued(places) => json!({ "queued": places }),
            ToSession::Go => json!({ "go": true }),
        }
        .to_string()
        .into_bytes()
    }

    pub(crate) fn read(message: &[u8]) -> Option<ToSession> {
        let message: Value = serde_json::from_slice(message).ok()?;
        if let Some(policy) = message.get("policy") {
            let secret = match message.get("secret")? {
                Value::Null => None,
                secret => Some(Secret::parse(secret.as_str()?)?),
            };
            return Some(ToSession::Policy(policy.clone(), secret));
        }
        match only_entry(&message)? {
            ("refuse", why) => Some(ToSession::Refuse(Refusal::read(why)?)),
            ("queued", places) => Some(ToSession::Queued(usize::try_from(places.as_u64()?).ok()?)),
            ("go", _) => Some(ToSession::Go),
            _ => None,
        }
    }
}

fn only_entry(message: &Value) -> Option<(&str, &Value)> {
    let entries = message.as_object()?;
    let (name, content) = entries.iter().next()?;
    (entries.len() == 1).then_some((name.as_str(), content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_back() {
        let detail = Map::from_iter([("name".into(), json!("demo.add"))]);
        for message in [
            FromSession::Hello(None),
            FromSession::Hello(Some("alice".into())),
            FromSession::Ready,
            FromSession::Alive,
            FromSession::Audit("get_function".into(), detail),
        ] {
            assert_eq!(FromSession::read(&message.write()).as_ref(), Some(&message));
        }
        for message in [
            ToSession::Policy(json!({"upload": true}), None),
            ToSession::Policy(json!({}), Some(Secret([9; 32]))),
            ToSession::Refuse(Refusal::NoKey),
            ToSession::Refuse(Refusal::KeyNotTaken),
            ToSession::Refuse(Refusal::Because("no".into())),
            ToSession::Queued(3),
            ToSession::Go,
        ] {
            assert_eq!(ToSession::read(&message.write()).as_ref(), Some(&message));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let deep = "[".repeat(10_000);
        let long = json!({ "audit": { "event": "x".repeat(100), "detail": {} } }).to_string();
        for text in ["", "{}", "[]", "7", "{\"go\":true}", "{\"ready\":true,\"alive\":1}", &deep, &long] {
            assert_eq!(FromSession::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(FromSession::read(b"\xff"), None);
        // A name that no key can have does not get into the log.
        let hello = json!({ "hello": { "key": "\u{1b}[2J" } }).to_string();
        assert_eq!(FromSession::read(hello.as_bytes()), Some(FromSession::Hello(Some(String::new()))));
        let large =
            json!({ "audit": { "event": "load", "detail": { "name": "x".repeat(10_000) } } }).to_string();
        let Some(FromSession::Audit(_, detail)) = FromSession::read(large.as_bytes()) else {
            panic!("an event")
        };
        assert_eq!(Value::Object(detail), json!({ "left_out": true }));
    }
}
