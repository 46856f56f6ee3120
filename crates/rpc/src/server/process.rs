//! Main function of a session process.

use std::cell::RefCell;
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
    control.audit("over", about(why.message()));
    Ok(())
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
