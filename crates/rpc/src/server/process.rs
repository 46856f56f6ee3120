//! Main function of a session process.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyfn::{Result, error};
use serde_json::{Map, Value};

use super::child::{Admission, Control, Turn};
use super::control::Refusal;
use super::spawn::{self, CLIENT_FD, CONTROL_FD};
use crate::establish::Arrival;
use crate::given;
use crate::keys::Key;
use anyfn_protocol::handshake::Refused;

/// Fallback time limit for a client to prove possession of its key. The listener knows the
/// configured limit and, if the limit is shorter, ends the process earlier.
const HANDSHAKE: Duration = Duration::from_secs(60);

/// Serves the client that a listener has passed to this process, and returns when the session is over. The
/// program of a session process must call this function once, before anything else.
///
/// # Errors
/// Returns `RuntimeError` if no listener has started this process, or if it already serves, and an error if the client cannot
/// prove possession of its key or has disconnected.
pub fn session_main() -> Result<()> {
    let [client, control] = given::take([CLIENT_FD, CONTROL_FD], "a server (`anyfn rpc server`)")?;
    let control = Arc::new(Control::new(control));
    if control.is_trial() {
        return Ok(());
    }
    spawn::forget_output();
    let (client, transport) = transport(client, &control)?;
    let arrival = Arrival::new(client, HANDSHAKE)?;
    let name = arrival.key_name().map(String::from);
    let (policy, secret) = match control.hello(name.as_deref())? {
        Admission::Granted(policy, secret) => (policy, secret),
        Admission::Refused(why) => {
            arrival.refuse(&why.into());
            return Ok(());
        }
    };
    let key = match (name, secret) {
        (Some(name), Some(secret)) => Some(Key::new(&name, secret)?),
        _ => None,
    };
    let guest = arrival.accept(key.as_ref()).inspect_err(|_| control.audit("denied", about("key")))?;
    let guest = RefCell::new(guest);
    let turn = control.wait(|| guest.borrow().is_gone(), |place| guest.borrow_mut().queued(place))?;
    let guest = guest.into_inner();
    match turn {
        Turn::Go => (),
        Turn::Refused(why) => {
            guest.refuse(&why.to_string());
            return Ok(());
        }
        Turn::Gone => return Ok(()),
    }
    let folder = std::env::current_dir()
        .map_err(|why| error!("OSError", "cannot access the folder of the session: {why}"))?;
    let log = control.clone();
    let connection = guest.welcome(policy, folder, move |event, what| log.audit(event, about(what)))?;
    let served = connection.clone();
    control.tick(move || served.is_over())?;
    let why = connection.serve();
    control.audit("over", about(reason(&transport).as_deref().unwrap_or(why.message())));
    Ok(())
}

/// Transport of the session, which is dropped after the session.
#[cfg(feature = "websocket")]
type Transport = Option<crate::websocket::Bridge>;
#[cfg(not(feature = "websocket"))]
type Transport = ();

/// Returns the socket from which the bytes of the session come: the client's, or the end of a bridge if it has opened a WebSocket.
#[cfg(feature = "websocket")]
fn transport(client: OwnedFd, control: &Control) -> Result<(OwnedFd, Transport)> {
    use crate::websocket::{Accepted, Origins, accept};
    let origins = Origins::parse(&std::env::var(spawn::ORIGINS).unwrap_or_default());
    match accept(client, &origins, HANDSHAKE) {
        Ok(Accepted::Plain(client)) => Ok((client, None)),
        Ok(Accepted::Web(bridge, session)) => {
            control.audit("websocket", Map::new());
            Ok((session, Some(bridge)))
        }
        Err(error) => {
            control.audit("denied", about(error.message()));
            Err(error)
        }
    }
}

/// Returns the reason for which the transport of a session has ended, if it knows one.
#[cfg(feature = "websocket")]
fn reason(transport: &Transport) -> Option<String> {
    let reason = transport.as_ref()?.reason().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    reason.clone().filter(|reason| !reason.is_empty())
}

#[cfg(not(feature = "websocket"))]
fn reason(_transport: &Transport) -> Option<String> {
    None
}

#[cfg(not(feature = "websocket"))]
fn transport(client: OwnedFd, _control: &Control) -> Result<(OwnedFd, Transport)> {
    Ok((client, ()))
}

/// Maximum length of a string from a client in the audit log, in bytes.
const ABOUT_MAX: usize = 512;

/// Returns the details of a log event about `what`, a string from a client. The string is truncated, because
/// messages to the listener have a maximum length.
fn about(what: &str) -> Map<String, Value> {
    let what = &what[..what.floor_char_boundary(ABOUT_MAX)];
    Map::from_iter([("what".into(), what.into())])
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Refused {
        match why {
            Refusal::NoKey => Refused::NoKey,
            Refusal::KeyNotTaken => Refused::KeyNotTaken,
            Refusal::Because(why) => Refused::Because(why),
        }
    }
}
