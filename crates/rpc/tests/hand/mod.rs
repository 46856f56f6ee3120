//! Test client that encodes each message itself, and a server for it within this process.

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

/// Thread that serves one client. It returns the reason why the session ended.
pub(crate) type Server = JoinHandle<String>;

/// Starts a server for one client under `policy`. If `key` is not `None`, the client must use that key.
pub(crate) fn serve(policy: Policy, key: Option<&str>) -> (UnixStream, Server) {
    serve_within(policy, key, Duration::from_secs(30))
}

/// Starts a server for one client. The handshake must finish within `wait`.
pub(crate) fn serve_within(policy: Policy, key: Option<&str>, wait: Duration) -> (UnixStream, Server) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (here, there) = UnixStream::pair().unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("anyfn-rpc-hand-{}-{number}", std::process::id()));
    let key: Option<Key> = key.map(|key| key.parse().unwrap());
    let server = std::thread::spawn(move || {
        std::fs::create_dir(&folder).unwrap();
        let why = session(OwnedFd::from(there), policy, key.as_ref(), wait, &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        why
    });
    here.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    here.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    (here, server)
}

/// Environment variable that makes all test clients of this program use a key.
const WITH_KEY: &str = "ANYFN_RPC_WITH_KEY";

fn key() -> Option<&'static str> {
    std::env::var_os(WITH_KEY).map(|_| ALICE)
}

/// Starts a server and returns a client that has performed handshake and greeting.
pub(crate) fn greeted(policy: Policy) -> (Line, Server) {
    let (stream, server) = serve(policy, key());
    (if key().is_some() { Line::greet_with_key(stream) } else { Line::greet(stream) }, server)
}

/// Starts a server and returns a client that has performed handshake and greeting in version 2 of the
/// protocol.
pub(crate) fn greeted_2(policy: Policy) -> (Line, Server) {
    let (stream, server) = serve(policy, key());
    (if key().is_some() { Line::greet_2_with_key(stream) } else { Line::greet_2(stream) }, server)
}

/// Runs all tests of this program except the test `but` a second time, with clients that use a key. At least
/// `least` tests must run.
pub(crate) fn again_with_a_key(but: &str, least: usize) {
    assert_eq!(key(), None, "the second run leaves this test out");
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    // One after the other, because some tests check the allocations of the process.
    again.args(["--test-threads=1", "--skip", but]).env(WITH_KEY, "1");
    let done = again.output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    let passed = told.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(passed >= least, "{passed} tests have run:\n{told}");
}

fn session(
    there: OwnedFd,
    policy: Policy,
    key: Option<&Key>,
    wait: Duration,
    folder: &std::path::Path,
) -> String {
    let arrival = match Arrival::new(there, wait) {
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
