//! A client by hand, and something to serve it within this process.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(unused_imports, reason = "as above")]

mod client;
pub(crate) mod random;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyfn_rpc::policy::Policy;
use anyfn_rpc::{Arrival, Key, Refused};

pub(crate) use client::*;

/// A thread that serves one client; why it stopped.
pub(crate) type Server = JoinHandle<String>;

/// Serves one client with these rights, and with a key if one is given.
pub(crate) fn serve(policy: Policy, key: Option<&str>) -> (UnixStream, Server) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (here, there) = UnixStream::pair().unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("anyfn-rpc-hand-{}-{number}", std::process::id()));
    let key: Option<Key> = key.map(|key| key.parse().unwrap());
    let server = std::thread::spawn(move || {
        std::fs::create_dir(&folder).unwrap();
        let why = session(OwnedFd::from(there), policy, key.as_ref(), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        why
    });
    here.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    here.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    (here, server)
}

fn session(there: OwnedFd, policy: Policy, key: Option<&Key>, folder: &std::path::Path) -> String {
    let arrival = match Arrival::new(there, Duration::from_millis(500)) {
        Ok(arrival) => arrival,
        Err(error) => return error.to_string(),
    };
    match (arrival.key_name(), key) {
        (None, Some(_)) => {
            arrival.refuse(&Refused::NoKey);
            return "no key".into();
        }
        (Some(_), None) => {
            arrival.refuse(&Refused::KeyNotTaken);
            return "key not taken".into();
        }
        _ => {}
    }
    let connection = arrival.accept(key).and_then(|guest| guest.welcome(policy, folder.into(), |_, _| {}));
    match connection {
        Ok(connection) => connection.serve().to_string(),
        Err(error) => error.to_string(),
    }
}
