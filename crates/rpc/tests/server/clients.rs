//! Tests that clients which misbehave do not prevent the next client from being served.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyfn_rpc::keys::{Key, Keys, Limits, generate_key};
use anyfn_rpc::policy::Policy;
use anyfn_rpc::server::{Access, SessionState};

use crate::rig::{Client, Rig, wait_for};

#[test]
fn a_session_has_its_own_process_and_folder() {
    let rig = Rig::new(|config, _| config.environment = vec![("MORE".into(), "1".into())]);
    let (mut one, mut two) = (rig.client(), rig.client());
    assert_ne!(one.ask("pid"), two.ask("pid"));
    assert_ne!(one.ask("folder"), two.ask("folder"));
    assert!(one.ask("folder").starts_with(rig.root().to_str().unwrap()));
    assert_eq!(one.ask("write 100"), "ok");
    // A process inherits its two connections (it opened descriptor 5 itself), no blocked signals and few environment variables.
    assert_eq!(one.ask("descriptors"), "[0, 1, 2, 3, 4, 5]");
    assert!(one.ask("signals").contains("SigBlk:\t0000000000000000"), "{}", one.ask("signals"));
    let variables = one.ask("environment");
    assert!(
        variables.contains("MORE=1") && variables.contains("PATH=") && !variables.contains("CARGO"),
        "{variables}"
    );
    let (mine, session) = (one.ask("limit Max core"), one.ask("pid"));
    assert!(mine.contains(" 0 "), "{mine}");
    let infos = rig.server.sessions();
    let pids: Vec<String> = infos.iter().map(|info| info.pid.to_string()).collect();
    assert!(
        pids.contains(&session) && infos.iter().all(|info| info.state == SessionState::Active),
        "{infos:?}"
    );
    drop(one);
    let end = rig.ended("closed");
    assert_eq!(end["detail"]["status"], 0);
    assert!(end["detail"]["memory_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(two.ask("echo still"), "still");
    rig.finish();
}

#[test]
fn clients_that_close() {
    let rig = Rig::new(|_, _| ());
    for round in 0..50 {
        let mut client = rig.connect();
        match round % 3 {
            0 => (),
            1 => client.say("-"),
            _ => drop(TcpStream::connect(rig.server.address()).unwrap().shutdown(Shutdown::Write)),
        }
    }
    rig.serves();
    // A connection that is closed before its process could greet is a session as well, and ends.
    wait_for(|| rig.server.sessions().is_empty().then_some(()), || format!("{:?}", rig.server.sessions()));
    rig.finish();
}

#[test]
fn silent_clients() {
    let rig = Rig::new(|config, _| config.handshake = Duration::from_secs(2));
    let silent: Vec<Client> = (0..300).map(|_| rig.connect()).collect();
    rig.serves();
    assert!(rig.server.sessions().len() <= 1, "silent clients cost no process");
    // The connections are closed after a while.
    for mut client in silent {
        assert_eq!(client.hear(), None);
    }
    rig.finish();
}

#[test]
fn half_open_clients() {
    let rig = Rig::new(|config, _| {
        config.handshake = Duration::from_secs(5);
        config.half_open = 8;
    });
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..400 {
        let mut stream = TcpStream::connect(rig.server.address()).unwrap();
        let _ = stream.write_all(b"x");
        half.push(stream);
    }
    for _ in 0..3 {
        rig.serves();
    }
    // Sessions that must end count until they have ended.
    wait_for(
        || (rig.server.sessions().len() <= 12).then_some(()),
        || format!("{} sessions", rig.server.sessions().len()),
    );
    rig.ended("another client needed its slot");
    drop(half);
    rig.finish();
}

#[test]
fn a_slow_client_is_let_go() {
    let rig = Rig::new(|config, _| config.handshake = Duration::from_millis(700));
    let mut client = rig.connect();
    client.say("alice");
    let mut stream = TcpStream::connect(rig.server.address()).unwrap();
    stream.write_all(b"no end of the line").unwrap();
    rig.ended("did not prove its key in time");
    assert_eq!(Client::new(stream).hear(), None);
    rig.finish();
}

#[test]
fn no_descriptors_left() {
    let rig = Rig::new(|_, _| ());
    let mut served = rig.client();
    let sockets: Vec<_> = (0..8).map(|_| unconnected()).collect();
    let mut filled = Vec::new();
    let old = limit_descriptors(64);
    while let Ok(file) = std::fs::File::open("/dev/null") {
        filled.push(file);
    }
    for socket in &sockets {
        connect(socket, rig.server.address().port());
    }
    assert_eq!(served.ask("echo still"), "still");
    std::thread::sleep(Duration::from_millis(300));
    drop(filled);
    limit_descriptors(old);
    rig.logged("failed", |detail| detail["what"] == "accept");
    // Clients that connected in the meantime are served.
    for socket in sockets {
        let mut client = Client::new(socket);
        client.say("-");
        assert_eq!(client.hear().as_deref(), Some("go"));
    }
    rig.finish();
}

fn unconnected() -> TcpStream {
    use std::os::fd::FromRawFd;
    // SAFETY: `socket` takes only numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(socket >= 0);
    // SAFETY: `socket` has just created the descriptor, and no other code uses it.
    unsafe { TcpStream::from_raw_fd(socket) }
}

fn connect(socket: &TcpStream, port: u16) {
    use std::os::fd::AsRawFd;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `connect` reads `size` bytes of `address`, which is on this stack.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(result, 0);
}

/// Sets the limit on open descriptors of this process and returns the previous limit.
fn limit_descriptors(most: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `getrlimit` writes to `limit`, which is on this stack.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let old = limit.rlim_cur;
    limit.rlim_cur = most;
    // SAFETY: `setrlimit` reads `limit`, which is on this stack.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    old
}

#[test]
fn keys() {
    let alice = generate_key("alice").unwrap();
    let bob = generate_key("bob").unwrap();
    let rig = Rig::new(|config, _| {
        let keys = Keys::one(&alice, Policy::closed(), Limits { process_bytes: 1 << 30, ..Limits::DEFAULT });
        config.access = Access::Keys(keys);
    });
    let said = |line: &str| {
        let mut client = rig.connect();
        client.say(line);
        client.hear()
    };
    let right = format!("alice {}", alice.secret().to_text());
    assert_eq!(said(&right).as_deref(), Some("go"));
    assert_eq!(said("-").as_deref(), Some("refused this server requires a key"));
    // An unknown key and a wrong secret look the same.
    assert_eq!(said(&format!("bob {}", bob.secret().to_text())), None);
    assert_eq!(said(&format!("alice {}", bob.secret().to_text())), None);
    assert_eq!(said("\u{1b}[2J x"), None);
    rig.logged("hello", |detail| detail["key"] == "bob" && detail["unknown"] == true);
    rig.logged("session", |detail| detail["event"] == "denied");
    let text = std::fs::read_to_string(rig.root().join("log")).unwrap();
    for key in [alice, bob] {
        assert!(!text.contains(&key.secret().to_text()), "the log has a secret");
    }
    rig.server.stop();
}

#[test]
fn an_exclusive_server_serves_one_after_the_other() {
    let rig = Rig::new(|config, _| {
        config.sessions = 1;
        config.queue = 3;
        config.hung = Duration::from_secs(4);
    });
    let mut first = rig.client();
    let mut waiting = Vec::new();
    for place in 1..=3 {
        let mut client = rig.connect();
        client.say("-");
        assert_eq!(client.hear(), Some(format!("queued {place}")));
        waiting.push(client);
    }
    let mut late = rig.connect();
    late.say("-");
    assert_eq!(late.hear().as_deref(), Some("refused too many clients wait for this server; try again later"));
    // The second client disconnects while it waits, and the third moves up.
    let mut third = waiting.pop().unwrap();
    drop(waiting.pop());
    assert_eq!(third.hear().as_deref(), Some("queued 2"));
    // A client that waits for longer than the limit of hung processes is not ended as hung.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(first.ask("echo first"), "first");
    // The slot of a session that crashes goes to the next client.
    first.say("signal 4");
    let mut second = waiting.pop().unwrap();
    assert_eq!(second.hear().as_deref(), Some("go"));
    assert_eq!(third.hear().as_deref(), Some("queued 1"));
    assert_eq!(second.ask("echo second"), "second");
    drop(second);
    assert_eq!(third.hear().as_deref(), Some("go"));
    rig.ended("signal 4");
    drop(third);
    rig.finish();
}

#[test]
fn a_key_has_its_own_share() {
    let (alice, bob) = (generate_key("alice").unwrap(), generate_key("bob").unwrap());
    let rig = Rig::new(|config, root| {
        let entry = |key: &Key| format!("{{\"secret\": \"{}\", \"sessions\": 1}}", key.secret().to_text());
        write_keys(root, &format!("{{\"keys\": {{\"alice\": {}, \"bob\": {}}}}}", entry(&alice), entry(&bob)));
        config.access = Access::File(root.join("keys"), Policy::closed(), Limits::DEFAULT);
    });
    let say = |key: &Key| {
        let mut client = rig.connect();
        client.say(&format!("{} {}", key.name(), key.secret().to_text()));
        client
    };
    let mut one = say(&alice);
    assert_eq!(one.hear().as_deref(), Some("go"));
    let mut two = say(&alice);
    assert_eq!(two.hear().as_deref(), Some("queued 1"));
    let mut other = say(&bob);
    assert_eq!(other.hear().as_deref(), Some("go"));
    // Removing a key from the file ends its sessions. An invalid file changes nothing.
    write_keys(rig.root(), "{");
    rig.logged("failed", |detail| detail["what"] == "keys");
    assert_eq!(one.ask("echo still"), "still");
    write_keys(
        rig.root(),
        &format!("{{\"keys\": {{\"bob\": {{\"secret\": \"{}\"}}}}}}", bob.secret().to_text()),
    );
    rig.ended("revoked");
    assert_eq!(one.hear(), None);
    assert_eq!(two.hear(), None);
    assert_eq!(other.ask("echo still"), "still");
    assert_eq!(say(&alice).hear(), None);
    rig.server.stop();
}

fn write_keys(root: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = root.join("keys.new");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(path, root.join("keys")).unwrap();
}
