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
