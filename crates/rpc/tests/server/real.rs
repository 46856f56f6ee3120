//! Tests the server with real clients and with session processes that use the actual protocol.

use std::time::Duration;

use anyfn::{Any, Error, Ref, Result, TypedPackedFunc, registry};
use anyfn_rpc::Session;
use anyfn_rpc::keys::{Key, Keys, Limits, generate_key};
use anyfn_rpc::policy::Policy;
use anyfn_rpc::server::{Access, RunningServer, session_main};
use serde_json::json;

use crate::rig::{Rig, alone, config, wait_for};

#[test]
#[ignore = "the other tests start it as a session process"]
fn worker() {
    let add = TypedPackedFunc::from_fn(|a: i64, b: i64| a + b);
    registry::register("demo.add").set(&add.into()).unwrap();
    let crash = TypedPackedFunc::from_fn(|| -> i64 { std::process::abort() });
    registry::register("demo.crash").set(&crash.into()).unwrap();
    let sleep = TypedPackedFunc::from_fn(|ms: u64| std::thread::sleep(Duration::from_millis(ms)));
    registry::register("demo.sleep").set(&sleep.into()).unwrap();
    let secret = TypedPackedFunc::from_fn(|| 42);
    registry::register("other.secret").set(&secret.into()).unwrap();
    session_main().unwrap();
}

fn rig(change: impl FnOnce(&mut anyfn_rpc::server::ServerConfig)) -> Rig {
    Rig::new(|config, _| {
        config.worker[1] = "real::worker".into();
        change(config);
    })
}

fn connect(rig: &Rig, key: Option<&Key>, timeout: f64) -> Result<Ref<Session>> {
    let key = key.map(Key::to_text);
    let connect = registry::get("rpc.connect")?;
    connect.call(("127.0.0.1", rig.server.port(), key.as_deref(), timeout))?.get::<Ref<Session>>()
}

/// Connects a client that the server must refuse, and returns the error.
fn kept_out(rig: &Rig, key: Option<&Key>, timeout: f64) -> Error {
    connect(rig, key, timeout).map(drop).unwrap_err()
}

fn add(session: &Session) -> Result<i64> {
    session.get_function("demo.add")?.call((40, 2))?.get::<i64>()
}

#[test]
fn a_client_without_a_key() {
    let rig = rig(|_| ());
    let session = connect(&rig, None, 20.0).unwrap();
    assert_eq!(add(&session).unwrap(), 42);
    for name in ["other.secret", "ffi.GetGlobalFunc", "rpc.start_server", "rpc.serve_session", "rpc.local"] {
        assert_eq!(session.get_function(name).unwrap_err().kind(), "PermissionError", "{name}");
    }
    rig.logged("session", |detail| detail["event"] == "denied" && detail["detail"]["what"] == "other.secret");
    rig.logged("session", |detail| detail["event"] == "get_function");
    let error = kept_out(&rig, Some(&generate_key("alice").unwrap()), 20.0);
    assert_eq!(error.kind(), "PermissionError");
    assert!(error.message().contains("without keys"), "{}", error.message());
    // A crash of the session is an error for this client, and affects no other client.
    let other = connect(&rig, None, 20.0).unwrap();
    let error = session.get_function("demo.crash").unwrap().call(()).unwrap_err();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().ends_with("; the log of the server states the reason"), "{}", error.message());
    rig.ended("signal 6 (SIGABRT)");
    assert_eq!(add(&other).unwrap(), 42);
    assert_eq!(add(&connect(&rig, None, 20.0).unwrap()).unwrap(), 42);
    drop(session);
    drop(other);
    rig.ended("closed");
    rig.server.stop();
}

#[test]
fn a_client_with_a_key() {
    let alice = generate_key("alice").unwrap();
    let mallory = generate_key("alice").unwrap();
    let rig = rig(|config| {
        let policy = Policy { functions: vec!["demo.add".into()], ..Policy::closed() };
        let limits = Limits { process_bytes: 1 << 30, ..Limits::DEFAULT };
        config.access = Access::Keys(Keys::one(&alice, policy, limits));
    });
    let session = connect(&rig, Some(&alice), 20.0).unwrap();
    assert_eq!(add(&session).unwrap(), 42);
    assert_eq!(session.get_function("demo.crash").unwrap_err().kind(), "PermissionError");
    let other_name = Key::new("bob", alice.secret().clone()).unwrap();
    for wrong in [&mallory, &other_name] {
        let error = kept_out(&rig, Some(wrong), 20.0);
        assert_eq!(error.kind(), "PermissionError", "{error:?}");
        assert!(error.message().contains("does not accept the key"), "{}", error.message());
    }
    let error = kept_out(&rig, None, 20.0);
    assert!(error.message().contains("requires a key"), "{}", error.message());
    rig.logged("session", |detail| detail["event"] == "denied");
    rig.logged("proved", |detail| detail["key"] == "alice");
    assert_eq!(rig.server.sessions().first().unwrap().key.as_deref(), Some("alice"));
    rig.server.stop();
    assert_eq!(add(&session).unwrap_err().kind(), "ConnectionError");
}

#[test]
fn calls_that_do_not_end() {
    // A client that disconnects during its call leaves nothing behind.
    let rig = rig(|config| config.sessions = 1);
    let session = connect(&rig, None, 20.0).unwrap();
    let sleep = session.get_function("demo.sleep").unwrap();
    let limited = registry::get("rpc.timed").unwrap().call((sleep, 0.2)).unwrap();
    let error = limited.get::<anyfn::PackedFunc>().unwrap().call((600_000,)).unwrap_err();
    assert_eq!(error.kind(), "TimeoutError");
    session.close();
    assert_eq!(add(&connect(&rig, None, 20.0).unwrap()).unwrap(), 42);
    rig.server.stop();
}

#[test]
fn calls_longer_than_allowed() {
    let rig = rig(|config| {
        let policy = Policy { functions: vec!["demo.*".into()], call_seconds: 1, ..Policy::closed() };
        config.access = Access::Open(policy, Limits::DEFAULT);
    });
    let session = connect(&rig, None, 20.0).unwrap();
    let error = session.get_function("demo.sleep").unwrap().call((600_000,)).unwrap_err();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().contains("exceeded the limit of 1 seconds"), "{}", error.message());
    assert_eq!(add(&connect(&rig, None, 20.0).unwrap()).unwrap(), 42);
    rig.server.stop();
}

#[test]
fn an_exclusive_device() {
    let rig = rig(|config| config.sessions = 1);
    let first = connect(&rig, None, 20.0).unwrap();
    let error = kept_out(&rig, None, 1.0);
    assert_eq!(error.kind(), "TimeoutError");
    // A client that has timed out does not keep the next one waiting.
    let waiting = std::thread::spawn({
        let port = rig.server.port();
        move || -> Result<i64> {
            let connect = registry::get("rpc.connect")?;
            let session: Ref<Session> =
                connect.call(("127.0.0.1", port, Any::NONE, 60.0))?.get::<Ref<Session>>()?;
            add(&session)
        }
    });
    wait_for(|| (rig.server.sessions().len() == 2).then_some(()), || format!("{:?}", rig.server.sessions()));
    assert_eq!(add(&first).unwrap(), 42);
    first.close();
    assert_eq!(waiting.join().unwrap().unwrap(), 42);
    drop(first);
    rig.server.stop();
}

#[test]
fn a_server_out_of_the_registry() {
    let _alone = alone();
    let worker: Vec<String> = config().worker.iter().map(|word| word.replace("worker::", "real::")).collect();
    let key = registry::get("rpc.make_key").unwrap().call(("alice",)).unwrap();
    let key = key.get::<&str>().unwrap();
    let options =
        json!({ "key": key, "grant": { "functions": ["demo.*"], "calls": 4 }, "sessions": 2 }).to_string();
    let start = registry::get("rpc.start_server").unwrap();
    let server = start.call((worker.clone(), options.as_str())).unwrap().get::<Ref<RunningServer>>().unwrap();
    let connect = registry::get("rpc.connect").unwrap();
    let session = connect.call(("127.0.0.1", server.port, key, 30.0)).unwrap().get::<Ref<Session>>().unwrap();
    assert_eq!(add(&session).unwrap(), 42);
    let sessions = server.sessions().unwrap();
    let only = sessions.iter().next().unwrap();
    assert_eq!(only.get("key").unwrap().unwrap().get::<&str>().unwrap(), "alice");
    assert_eq!(only.get("state").unwrap().unwrap().get::<&str>().unwrap(), "active");
    server.stop();
    assert_eq!(add(&session).unwrap_err().kind(), "ConnectionError");
    for timeout in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let error = connect.call(("127.0.0.1", server.port, key, timeout)).map(drop).unwrap_err();
        assert_eq!(error.kind(), "ValueError", "{timeout}");
        assert!(error.message().contains("`timeout`: expected a positive number"), "{}", error.message());
    }
    for (host, port, option) in [("", 1, "`host`"), ("127.0.0.1", 0, "`port`")] {
        let error = connect.call((host, port)).map(drop).unwrap_err();
        assert_eq!(error.kind(), "ValueError", "{option}");
        assert!(error.message().starts_with(option), "{}", error.message());
    }
    for command in [vec![], vec![String::new()]] {
        let error = registry::get("rpc.spawn").unwrap().call((command,)).map(drop).unwrap_err();
        assert!(error.message().starts_with("`command`: expected a program"), "{}", error.message());
    }
    for (options, expected) in [
        ("{", "got invalid JSON"),
        ("[]", "expected an object"),
        ("{\"prot\": 1}", "unknown server option `prot`"),
        ("{\"port\": 70000}", "option `port`: expected a number from 0 to 65535"),
        ("{\"hung_seconds\": -1}", "option `hung_seconds`"),
        ("{\"hung_seconds\": 1e300}", "option `hung_seconds`"),
        ("{\"key\": \"a\", \"keys\": \"b\"}", "expected a key of the form `NAME:SECRET`"),
        ("{\"key\": \"a\", \"key_file\": \"b\"}", "expected `key` or `key_file`, got both"),
        ("{\"grant\": {\"key\": \"a\"}}", "unknown grant `key`"),
        ("{\"grant\": {\"uplaod\": true}}", "unknown grant `uplaod`"),
        ("{\"environment\": {\"A\": 1}}", "option `environment`: expected a string"),
        ("{\"sessions\": 0}", "option `sessions`: expected a number from 1 to 100000, got `0`"),
        ("{\"half_open\": 0}", "option `half_open`: expected a number from 1"),
        ("{\"host\": \"\"}", "option `host`: expected a non-empty string"),
        ("{\"folder\": \"\"}", "option `folder`: expected a non-empty string"),
        ("{\"grant\": {\"handles\": 0}}", "`handles`: expected a number from 1 to 4294967295, got `0`"),
        ("{\"grant\": {\"handles\": 1.5}}", "`handles`: expected a number from 1 to 4294967295, got `1.5`"),
        ("{\"grant\": {\"functions\": [\"\"]}}", "`functions`: expected a name"),
        ("{\"grant\": {\"devices\": [\"\"]}}", "`devices`: expected a device"),
    ] {
        let error = start.call((worker.clone(), options)).map(drop).unwrap_err();
        assert_eq!(error.kind(), "ValueError", "{options}");
        assert!(error.message().contains(expected), "{options}: {}", error.message());
    }
}
