//! `anyfn rpc proxy`, with servers that wait there and clients that connect through it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyfn::{Ref, registry};
use anyfn_host::rpc::Session;

use crate::hand::*;
use crate::rig::*;
use crate::websocket::{closed_why, open_at, use_session};

struct Proxy {
    process: Child,
    address: String,
    log: Arc<Mutex<String>>,
}

impl Proxy {
    fn start(words: &[&str]) -> Proxy {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
        command.args(["rpc", "proxy", "--port", "0"]).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = dies_with_us(&mut command).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at ").expect("an address").to_owned();
        let (log, mut stderr) =
            (Arc::new(Mutex::new(String::new())), BufReader::new(process.stderr.take().unwrap()));
        let collected = log.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).unwrap_or(0) > 0 {
                collected.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        Proxy { process, address, log }
    }

    /// Waits until the log contains `what`, `count` times.
    fn logged(&self, what: &str, count: usize) {
        let log = || self.log.lock().unwrap().clone();
        wait_for(
            || (log().matches(what).count() >= count).then_some(()),
            || format!("no {count} times `{what}`: {}", log()),
        );
    }

    fn url(&self, name: &str) -> String {
        format!("ws://{}/{name}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Connects to a proxy at 127.0.0.1 from another loopback address.
fn socket_from(from: &str, port: &str) -> TcpStream {
    use std::os::fd::FromRawFd;
    let address = |ip: &str, port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(ip.parse::<std::net::Ipv4Addr>().unwrap()).to_be() },
        sin_zero: [0; 8],
    };
    let (from, to) = (address(from, 0), address("127.0.0.1", port.parse().unwrap()));
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: `socket` takes numbers; a negative result is checked below.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new, and nothing else owns it.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    // SAFETY: `bind` reads `size` bytes of the address, which is on this stack.
    assert_eq!(unsafe { libc::bind(fd, (&raw const from).cast(), size) }, 0);
    // SAFETY: `connect` reads `size` bytes of the address, which is on this stack.
    assert_eq!(unsafe { libc::connect(fd, (&raw const to).cast(), size) }, 0);
    stream
}

fn connect(url: &str, key: Option<&str>, timeout: f64) -> anyfn::Result<Ref<Session>> {
    registry::get("rpc.connect_url")?.call((url, key, timeout))?.get::<Ref<Session>>()
}

#[test]
fn a_server_that_only_opens_connections_is_used_through_a_proxy() {
    let proxy = Proxy::start(&[]);
    let url = proxy.url("board");
    let server = Server::with_key(&[GRANTED, &["--proxy", &url]].concat());
    let session = connect(&url, Some(ALICE), 20.0).unwrap();
    use_session(&session);
    // Several sessions at a time, each with a connection of its own.
    let others: Vec<_> = (0..3).map(|_| connect(&url, Some(ALICE), 20.0).unwrap()).collect();
    for other in &others {
        let echo = other.get_function("testing.echo").unwrap();
        assert_eq!(echo.call((5,)).unwrap().get::<i64>().unwrap(), 5);
    }
    proxy.logged("\"paired\"", 4);
    // Keys are those of the server; the proxy has none.
    let wrong = ALICE.replace("Bwc", "Cwc");
    assert_eq!(connect(&url, Some(&wrong), 20.0).err().unwrap().kind(), "PermissionError");
    assert_eq!(connect(&url, None, 20.0).err().unwrap().kind(), "PermissionError");
    session.close();
    drop((session, others));
    server.wait_until_quiet();
    // The proxy restarts at the same port, and the server finds it again.
    let port = proxy.address.rsplit(':').next().unwrap().to_owned();
    drop(proxy);
    assert!(connect(&url, Some(ALICE), 1.0).is_err());
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
    command.args(["rpc", "proxy", "--port", &port]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut again = dies_with_us(&mut command).spawn().unwrap();
    let session =
        wait_for(|| connect(&url, Some(ALICE), 5.0).ok(), || "the server does not return to the proxy".into());
    assert_eq!(session.get_function("testing.echo").unwrap().call((8,)).unwrap().get::<i64>().unwrap(), 8);
    drop(session);
    again.kill().unwrap();
    again.wait().unwrap();
    server.wait_until_quiet();
}

#[test]
fn both_ends_learn_when_the_other_one_goes() {
    let proxy = Proxy::start(&[]);
    let url = proxy.url("board");
    let server = Server::open(&[GRANTED, &["--proxy", &url]].concat());
    let session = connect(&url, None, 20.0).unwrap();
    let echo = session.get_function("testing.echo").unwrap();
    // The server is killed in the middle of the session.
    for pid in server.children() {
        signal(pid, libc::SIGKILL);
    }
    let error = wait_for(|| echo.call((1,)).err(), || "the call succeeds".into());
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().contains("disconnected"), "{}", error.message());
    // A client that goes ends its session at the server.
    let session = connect(&url, None, 20.0).unwrap();
    assert_eq!(server.children().len(), 1);
    session.close();
    drop(session);
    server.wait_until_quiet();
    proxy.logged("\"ended\"", 2);
    server.finish();
}

#[test]
fn clients_and_servers_beyond_the_limits_are_told_so() {
    let proxy = Proxy::start(&[
        "--max-waiting",
        "3",
        "--max-waiting-per-address",
        "2",
        "--allow-origin",
        "https://good.example",
    ]);
    let started = Instant::now();
    let error = connect(&proxy.url("nobody"), None, 30.0).err().unwrap();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().contains("no server waits under the name nobody"), "{}", error.message());
    assert!(started.elapsed() < SOON);
    let waiting: Vec<_> = (0..2).map(|_| open_at(&proxy.address, "/a?role=server")).collect();
    proxy.logged("\"waits\"", 2);
    let mut third = open_at(&proxy.address, "/b?role=server");
    assert_eq!(
        closed_why(&mut third),
        Some((4000, "too many servers of this address wait at this proxy".into()))
    );
    drop(waiting);
    proxy.logged("\"ended\"", 2);
    // The places are free again.
    let mut stream = open_at(&proxy.address, "/a?role=server");
    proxy.logged("\"waits\"", 3);
    // A server that speaks before its client.
    stream.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x']).unwrap();
    assert_eq!(
        closed_why(&mut stream),
        Some((4000, "a server must not send anything before its client does".into()))
    );
    for wrong in ["/", "/a/b", "/a?role=both"] {
        let mut stream = open_at(&proxy.address, wrong);
        assert_eq!(closed_why(&mut stream).unwrap().0, 4000, "{wrong}");
    }
    // Pages need a permission, and requests that are none are refused.
    for (bytes, status) in [
        (
            "GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: https://evil.example\r\n\r\n",
            "403",
        ),
        ("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "426"),
    ] {
        let mut stream = TcpStream::connect(&proxy.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, format!("HTTP/1.1 {status}").as_bytes());
    }
    // Connections that never send a request do not keep others out for longer than their time limit.
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(&proxy.address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(100));
    let server = wait_for(
        || std::panic::catch_unwind(|| open_at(&proxy.address, "/late?role=server")).ok(),
        || "the proxy serves nobody".into(),
    );
    proxy.logged("late", 1);
    drop((silent, server));
}

/// A client that sends no bytes of a session, or its request byte by byte, keeps no server from other clients.
#[test]
fn slow_clients_keep_no_server_from_others() {
    let proxy = Proxy::start(&[]);
    let url = proxy.url("board");
    let server = Server::open(&[GRANTED, &["--proxy", &url]].concat());
    proxy.logged("\"waits\"", 1);
    let mut silent = open_at(&proxy.address, "/board");
    let session = connect(&url, None, 5.0).unwrap();
    use_session(&session);
    session.close();
    let mut slow = TcpStream::connect(&proxy.address).unwrap();
    let started = Instant::now();
    while slow.write_all(b"G").is_ok() {
        assert!(started.elapsed() < Duration::from_secs(14), "a request may take more than ten seconds");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert_eq!(closed_why(&mut silent), Some((4000, "the client sent nothing for 10 seconds".into())));
    // Connections without a request leave room for other addresses.
    let many: Vec<_> = (0..40).map(|_| TcpStream::connect(&proxy.address).unwrap()).collect();
    proxy.logged("too many connections without a request", 24);
    let (host, port) = ("127.0.0.2", proxy.address.rsplit(':').next().unwrap());
    let other = socket_from(host, port);
    let mut answer = [0; 12];
    (&other).write_all(b"GET /board HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    other.set_read_timeout(Some(SOON)).unwrap();
    (&other).read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 426");
    drop((session, many));
    server.finish();
}

#[test]
fn a_server_without_a_key_uses_no_proxy_of_another_machine() {
    for (url, why) in [
        ("ws://proxy.example:9191/board", "everyone who reaches the proxy"),
        ("ws://127.0.0.1.example:9191/board", "everyone who reaches the proxy"),
        ("ws://127.0.0.1:9191/a/b", "expected the URL of a proxy and a name"),
        ("ws://127.0.0.1:9191/", "expected the URL of a proxy and a name"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
        let output = command.args(["rpc", "server", "--port", "0", "--proxy", url]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{url}: {said}");
    }
}

/// The bytes that a session with a key sends through a proxy contain nothing of what is called.
#[test]
fn a_proxy_sees_only_encrypted_bytes() {
    let proxy = Proxy::start(&[]);
    let url = proxy.url("spy");
    let mut server = open_at(&proxy.address, "/spy?role=server");
    let client = std::thread::spawn(move || connect(&url, Some(ALICE), 5.0).map(drop));
    // What the proxy passes on, which is what it has seen: the greeting with the name of the key, and no secret.
    let (first, content) = crate::websocket::read_web(&mut server).unwrap();
    assert_eq!((first, &content[..]), (0x82, &b"anyfnRPC\x01\x02\x05alice"[..]));
    let (_, exchange) = {
        server.write_all(&crate::websocket::masked(ACCEPTED)).unwrap();
        crate::websocket::read_web(&mut server).unwrap()
    };
    assert_eq!(exchange.len(), 50, "a message of the key exchange");
    // A proxy that answers in place of the server, without the key, is found out.
    server.write_all(&crate::websocket::masked(&short(&[9; 48]))).unwrap();
    let error = client.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), "PermissionError", "{}", error.message());
}
