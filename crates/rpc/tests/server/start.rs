//! Tests of the configuration, the start and the end of a server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyfn_rpc::keys::{Key, Keys, Limits, generate_key};
use anyfn_rpc::policy::Policy;
use anyfn_rpc::server::{Access, Server};

use crate::rig::{Rig, alone, config, wait_for};

fn refused(change: impl FnOnce(&mut anyfn_rpc::server::ServerConfig)) -> String {
    let mut config = config();
    change(&mut config);
    let error = Server::start(config).unwrap_err();
    format!("{}: {}", error.kind(), error.message())
}

#[test]
fn without_a_key_on_this_machine_alone() {
    let _alone = alone();
    for host in ["0.0.0.0", "::", "::ffff:0.0.0.0", "192.0.2.1"] {
        let message = refused(|config| config.host = host.into());
        assert!(
            message.starts_with("ValueError") && message.contains("reached from other machines"),
            "{message}"
        );
    }
    for host in ["localhost", "127.0.0.1", "::ffff:127.0.0.1"] {
        let mut config = config();
        config.host = host.into();
        match Server::start(config) {
            Ok(server) => server.stop(),
            // The machine may lack this family of addresses.
            Err(error) => assert_eq!(error.kind(), "OSError"),
        }
    }
    let mut config = config();
    config.host = "0.0.0.0".into();
    config.access = Access::Keys(Keys::one(&generate_key("a").unwrap(), Policy::closed(), Limits::DEFAULT));
    assert!(Server::start(config).unwrap().port() > 0);
}

#[test]
fn what_cannot_be() {
    let _alone = alone();
    let message = refused(|config| config.worker = Vec::new());
    assert!(message.contains("`worker`"), "{message}");
    let message = refused(|config| config.worker = vec!["/nowhere/program".into()]);
    assert!(message.starts_with("OSError: cannot run `/nowhere/program`"), "{message}");
    let message = refused(|config| config.folder = "/nowhere".into());
    assert!(message.contains("/nowhere"), "{message}");
    let message = refused(|config| config.host = "no such host".into());
    assert!(message.starts_with("OSError: cannot listen at no such host:0"), "{message}");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let message = refused(|config| config.port = other.local_addr().unwrap().port());
    assert!(message.contains("in use"), "{message}");
}

#[test]
fn files_of_keys() {
    let _alone = alone();
    let secret = generate_key("a").unwrap().secret().to_text();
    let path = std::env::temp_dir().join(format!("rpc-keys-test-{}", std::process::id()));
    let read = |text: &str, mode| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        match Keys::read(&path, &Policy::closed(), &Limits::DEFAULT) {
            Ok(keys) => Ok(keys),
            Err(error) => Err(format!("{}: {}", error.kind(), error.message())),
        }
    };
    let good = format!(
        "{{\"keys\": {{\"a\": {{\"secret\": \"{secret}\", \"functions\": [\"demo.*\"], \"seconds\": 7, \"calls\": 3}}}}}}"
    );
    let keys = read(&good, 0o600).unwrap();
    let grant = keys.get("a").unwrap();
    assert_eq!((grant.limits.seconds, grant.policy.calls, grant.policy.upload), (7, 3, false));
    assert!(grant.policy.allows_function("demo.add") && !grant.policy.allows_function("ffi.add"));
    assert_eq!(grant.secret.as_ref().unwrap().to_text(), secret);
    for mode in [0o640, 0o604, 0o620] {
        let message = read(&good, mode).unwrap_err();
        assert!(message.starts_with("PermissionError"), "{message}");
        // The remedies, as commands.
        for command in [&*format!("`chmod 600 {}`", path.display()), "`anyfn rpc key -o FILE NAME`"] {
            assert!(message.contains(command), "{message}");
        }
    }
    let spaced = good.replace(&secret, &format!(" {secret}\\n"));
    assert_eq!(read(&spaced, 0o600).unwrap().get("a").unwrap().secret.as_ref().unwrap().to_text(), secret);
    let entry = |text: &str| format!("{{\"keys\": {{\"a\": {{\"secret\": \"{secret}\", {text}}}}}}}");
    for (text, expected) in [
        ("".into(), "invalid JSON"),
        ("{\"keys\": {}}".into(), "expected at least one key"),
        ("{\"keys\": {}, \"more\": 1}".into(), "without further entries"),
        ("{\"keys\": {\"a b\": {}}}".into(), "expected a key name"),
        ("{\"keys\": {\"a\": 1}}".into(), "key `a`: expected an object"),
        ("{\"keys\": {\"a\": {}}}".into(), "key `a`: `secret` is missing"),
        ("{\"keys\": {\"a\": {\"secret\": \"short\"}}}".into(), "key `a`: `secret`: expected a string"),
        (entry("\"uplaod\": true"), "key `a`: unknown grant `uplaod`"),
        (entry("\"key\": \"b\""), "key `a`: unknown grant `key`"),
        (entry("\"upload\": 1"), "key `a`: `upload`: expected true or false"),
        (entry("\"seconds\": -1"), "key `a`: `seconds`: expected a number from 0"),
        (entry("\"functions\": [1]"), "key `a`: `functions`: expected a list"),
    ] {
        let message = read(&text, 0o600).unwrap_err();
        assert!(message.contains(expected) && message.contains("rpc-keys-test"), "{message}");
        assert!(!message.contains(&secret), "{message}");
    }
    fs::remove_file(&path).unwrap();
    let message = Keys::read(&path, &Policy::closed(), &Limits::DEFAULT).unwrap_err();
    assert_eq!(message.kind(), "FileNotFoundError");
}

#[test]
fn keys_as_text() {
    let _alone = alone();
    let key = generate_key("alice").unwrap();
    assert_eq!(key.to_text().len(), "alice:".len() + 43);
    assert_eq!(key.to_text().parse::<Key>().unwrap(), key);
    assert_ne!(generate_key("alice").unwrap(), key);
    for wrong in ["", "alice", "alice:", "alice:abc", ":AAAA", "a b:AAAA", &format!("{}A", key.to_text())] {
        let error = wrong.parse::<Key>().unwrap_err();
        assert_eq!(error.kind(), "ValueError", "{wrong}");
    }
}

#[test]
fn stopping_ends_all() {
    let rig = Rig::new(|config, _| config.handshake = Duration::from_secs(20));
    let mut active = rig.client();
    let child: u32 = active.ask("start").parse().unwrap();
    let mut half = rig.connect();
    half.say("x");
    let mut silent = rig.connect();
    rig.server.stop();
    rig.server.stop();
    for client in [&mut active, &mut half, &mut silent] {
        assert_eq!(client.hear(), None);
    }
    rig.ended("the server stops");
    assert!(rig.server.sessions().is_empty());
    let left = fs::read_dir(rig.root().join("sessions")).unwrap().count();
    assert_eq!(left, 0);
    // The process was killed, but the system may need a moment.
    let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    let is_over = |state: String| state.is_empty() || state.contains(") Z");
    wait_for(|| is_over(state()).then_some(()), || format!("{} is left", state()));
}
