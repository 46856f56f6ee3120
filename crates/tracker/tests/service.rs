//! Tests of the event loop with clients that are encoded without blocking.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyfn_core as _;
use anyfn_protocol::{ClientOpening, Endpoint, Key, SessionLimits};
use anyfn_rpc::keys::{generate_key, system_random};
use anyfn_tracker::state::Config;
use anyfn_tracker::{Options, Service};

/// Runs turns of the tracker until `done` returns a value.
fn until<T>(service: &mut Service, mut done: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        service.turn(Duration::from_millis(5)).unwrap();
        if let Some(value) = done() {
            return value;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing happens");
    }
}

fn read(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    let count = match socket.read(&mut bytes) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    };
    bytes.truncate(count);
    bytes
}

fn connect(service: &mut Service, key: Option<Key>) -> (TcpStream, Arc<Endpoint>) {
    let mut socket = TcpStream::connect(service.address().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut opening = ClientOpening::new("tracker", key, system_random, SessionLimits::TRUSTED);
    let endpoint = until(service, || {
        socket.write_all(&opening.take_output()).unwrap();
        let bytes = read(&mut socket);
        (!bytes.is_empty()).then(|| opening.receive(&bytes).unwrap())?.map(anyfn_protocol::Opened::endpoint)
    });
    (socket, endpoint)
}

fn send(socket: &mut TcpStream, endpoint: &Arc<Endpoint>) {
    endpoint.send_output(|bytes| match socket.write(bytes) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(_) => bytes.len(),
    });
}

fn function(
    service: &mut Service,
    socket: &mut TcpStream,
    endpoint: &Arc<Endpoint>,
    name: &str,
) -> anyfn::PackedFunc {
    let mut found = endpoint.start_lookup(name).unwrap();
    until(service, || {
        send(socket, endpoint);
        endpoint.receive(&read(socket)).unwrap();
        found.take()
    })
    .unwrap()
    .get::<anyfn::PackedFunc>()
    .unwrap()
}

#[test]
fn a_client_that_does_not_read_disturbs_nobody() {
    let journal = std::env::temp_dir().join(format!("anyfn-service-{}", std::process::id()));
    let options = Options {
        host: "127.0.0.1".into(),
        port: 0,
        key_file: None,
        keys: None,
        journal: journal.clone(),
        config: Config::default(),
    };
    let mut service = Service::start(options).unwrap();
    let (mut deaf, flood) = connect(&mut service, None);
    let summary = function(&mut service, &mut deaf, &flood, "tracker.summary");
    let begin = Instant::now();
    let mut sent = 0;
    // It calls until neither end accepts more bytes.
    while flood.send_output(|_| 0) < 1 << 20 && begin.elapsed() < Duration::from_secs(10) {
        for _ in 0..1000 {
            if flood.start(&summary, ()).is_ok() {
                sent += 1;
            }
        }
        send(&mut deaf, &flood);
        service.turn(Duration::ZERO).unwrap();
    }
    assert!(sent >= 1000);
    let (mut socket, endpoint) = connect(&mut service, None);
    let summary = function(&mut service, &mut socket, &endpoint, "tracker.summary");
    let mut call = endpoint.start(&summary, ()).unwrap();
    let begin = Instant::now();
    let answer = until(&mut service, || {
        send(&mut socket, &endpoint);
        endpoint.receive(&read(&mut socket)).unwrap();
        call.take()
    });
    assert!(answer.unwrap().get::<&str>().unwrap().contains("\"devices\":[]"));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // Everything but the functions of the tracker is refused.
    let mut found = endpoint.start_lookup("ffi.ModuleLoadFromFile").unwrap();
    let refused = until(&mut service, || {
        send(&mut socket, &endpoint);
        endpoint.receive(&read(&mut socket)).unwrap();
        found.take()
    });
    assert_eq!(refused.unwrap_err().kind(), "PermissionError");
    std::fs::remove_file(journal).unwrap();
}

#[test]
fn without_a_key_only_this_machine_is_served() {
    let journal = std::env::temp_dir().join(format!("anyfn-open-{}", std::process::id()));
    let options = Options {
        host: "0.0.0.0".into(),
        port: 0,
        key_file: None,
        keys: None,
        journal,
        config: Config::default(),
    };
    let error = Service::start(options).map(drop).unwrap_err();
    assert!(error.message().contains("reached from other machines"), "{error}");
}

/// A key that loses a grant loses it at once, and not when its connection ends.
#[test]
fn changed_grants_apply_to_connections() {
    let journal = std::env::temp_dir().join(format!("anyfn-grants-{}", std::process::id()));
    let keys = journal.with_extension("keys");
    let (alice, bob) = (generate_key("alice").unwrap(), generate_key("bob").unwrap());
    let write = |functions: &str| {
        let (a, b) = (alice.secret().to_text(), bob.secret().to_text());
        let text = format!(
            r#"{{"keys": {{"alice": {{"secret": "{a}", "functions": [{functions}]}},
                "bob": {{"secret": "{b}", "functions": ["tracker.*"]}}}}}}"#
        );
        std::fs::write(&keys, text).unwrap();
        std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    };
    write(r#""tracker.summary""#);
    let options = Options {
        host: "127.0.0.1".into(),
        port: 0,
        key_file: None,
        keys: Some(keys.clone()),
        journal: journal.clone(),
        config: Config::default(),
    };
    let mut service = Service::start(options).unwrap();
    let (mut hers, endpoint) = connect(&mut service, Some(alice.clone()));
    function(&mut service, &mut hers, &endpoint, "tracker.summary");
    let (mut his, other) = connect(&mut service, Some(bob.clone()));
    write("");
    // The connection is closed.
    until(&mut service, || match hers.read(&mut [0; 4096]) {
        Ok(0) => Some(()),
        Ok(_) => None,
        Err(error) => (error.kind() != ErrorKind::WouldBlock).then_some(()),
    });
    function(&mut service, &mut his, &other, "tracker.request");
    std::fs::remove_file(journal).unwrap();
    std::fs::remove_file(keys).unwrap();
}
