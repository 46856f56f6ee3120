//! Sessions over WebSocket: handshake, origins, hostile bytes, slow clients, and the same services as over the plain transport.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyfn::{PackedFunc, Ref, registry};
use anyfn_host::rpc::Session;
use anyfn_random::Random;

use crate::hand::*;
use crate::rig::*;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// Flag of the last frame of a message.
const LAST: u8 = 0x80;

fn request(more: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: board\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// Sends a request and returns the head of the answer; empty if the server closes the connection.
fn answer(stream: &mut UnixStream, request: &[u8]) -> String {
    let _ = stream.write_all(request);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Opens a WebSocket at a proxy, with the target of the request.
pub(crate) fn open_at(address: &str, target: &str) -> UnixStream {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut stream = dial(host, port.parse().unwrap());
    let head = answer(&mut stream, request("").replace("GET /", &format!("GET {target}")).as_bytes());
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

/// Encodes a binary message of a client.
pub(crate) fn masked(content: &[u8]) -> Vec<u8> {
    web(LAST | BINARY, MASK, content)
}

/// Reads until the peer closes the WebSocket, and returns the code and the reason.
pub(crate) fn closed_why(stream: &mut UnixStream) -> Option<(u16, String)> {
    let mut why = None;
    while let Some((first, content)) = read_web(stream) {
        if first == LAST | CLOSE && content.len() >= 2 {
            let code = u16::from_be_bytes([content[0], content[1]]);
            why = Some((code, String::from_utf8(content[2..].to_vec()).unwrap()));
        }
    }
    why
}

fn open(server: &Server) -> UnixStream {
    let mut stream = server.connect();
    let head = answer(&mut stream, request("").as_bytes());
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream
}

/// Encodes a frame. `first` is the kind, with the flag [`LAST`].
fn web(first: u8, mask: Option<[u8; 4]>, content: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match content.len() {
        length @ ..126 => out.push(masked | length as u8),
        length @ ..65536 => {
            out.push(masked | 126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(masked | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    if let Some(mask) = mask {
        out.extend(mask);
        out.extend(content.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    } else {
        out.extend(content);
    }
    out
}

const MASK: Option<[u8; 4]> = Some([0x11, 0xfe, 0, 7]);

/// Reads a frame of the server: its first byte and its content. Returns `None` at the end of the stream.
pub(crate) fn read_web(stream: &mut UnixStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    assert!(head[1] < 128, "frames of a server are not masked");
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).ok()?;
            u64::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length).ok()?;
            u64::from_be_bytes(length)
        }
        length => u64::from(length),
    };
    let mut content = vec![0; length as usize];
    stream.read_exact(&mut content).ok()?;
    Some((head[0], content))
}

/// Reads the contents of binary frames until `count` bytes have arrived.
fn read_binary(stream: &mut UnixStream, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        match read_web(stream) {
            Some((first, content)) if first == LAST | BINARY => all.extend(content),
            other => panic!("expected a binary frame, got {other:?}"),
        }
    }
    all
}

/// Reads until the server closes the WebSocket, and returns the code of its close frame, if it sends one.
fn closed(stream: &mut UnixStream) -> Option<u16> {
    let mut code = None;
    while let Some((first, content)) = read_web(stream) {
        if first == LAST | CLOSE && content.len() >= 2 {
            code = Some(u16::from_be_bytes([content[0], content[1]]));
        }
    }
    code
}

fn session(server: &Server, timeout: f64) -> anyfn::Result<Ref<Session>> {
    let url = format!("ws://{}:{}", server.host, server.port);
    let key = server.with_key.then_some(ALICE);
    registry::get("rpc.connect_url")?.call((&*url, key, timeout))?.get::<Ref<Session>>()
}

/// Uses a session in all ways: calls, callbacks, errors, tensors in both directions, large messages.
pub(crate) fn use_session(session: &Session) {
    let echo = session.get_function("testing.echo").unwrap();
    assert_eq!(echo.call((7,)).unwrap().get::<i64>().unwrap(), 7);
    let text = "x".repeat(3 << 20);
    assert_eq!(echo.call((&*text,)).unwrap().get::<String>().unwrap(), text);
    let apply = session.get_function("testing.apply").unwrap();
    let twice = PackedFunc::new(|args| anyfn::Any::new(2 * args.get::<i64>(0)?));
    assert_eq!(apply.call((twice, 21)).unwrap().get::<i64>().unwrap(), 42);
    let fails = PackedFunc::new(|_| anyfn::bail!("KeyError", "no such board"));
    let error = apply.call((fails, 0)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("KeyError", "no such board"));
    assert!(session.get_function("secret.thing").unwrap_err().message().contains("--allow"));
    let values: Vec<f32> = (0..1 << 20).map(|at| at as f32).collect();
    let here = anyfn::Tensor::from_slice(&[1024, 1024], &values).unwrap();
    let there = session.allocate([1024, 1024].into(), "float32".try_into().unwrap(), None).unwrap();
    let there = there.get::<Ref<anyfn_host::rpc::RemoteTensor>>().unwrap();
    there.write(here.view(), None).unwrap();
    let back = anyfn::Tensor::zeros("float32".try_into().unwrap(), &[1024, 1024]).unwrap();
    there.read(back.view(), None).unwrap();
    assert!(*back.read::<f32>().unwrap() == values[..]);
}

#[test]
fn a_session_over_websocket_is_a_session() {
    for server in [Server::open(GRANTED), Server::with_key(GRANTED)] {
        let one = session(&server, 20.0).unwrap();
        use_session(&one);
        // Both transports at the same time.
        assert_eq!(
            server.session(20.0).unwrap().function_names().unwrap().type_key(),
            one.function_names().unwrap().type_key()
        );
        one.close();
        drop(one);
        server.wait_until_quiet();
        assert!(server.ends().iter().all(|why| !why.contains("signal")), "{:?}", server.ends());
        server.finish();
    }
}

#[test]
fn a_wrong_key_is_told_as_over_the_plain_transport() {
    let server = Server::with_key(GRANTED);
    let url = format!("ws://{}:{}", server.host, server.port);
    let connect = registry::get("rpc.connect_url").unwrap();
    let wrong = ALICE.replace("Bwc", "Cwc");
    let plain = registry::get("rpc.connect").unwrap();
    let error = connect.call((&*url, &*wrong, 20.0)).unwrap_err();
    let expected = plain.call((&*server.host, server.port, &*wrong, 20.0)).unwrap_err();
    let reason = |error: &anyfn::Error| error.message().split_once(": ").unwrap().1.to_owned();
    assert_eq!(
        (error.kind(), reason(&error)),
        (expected.kind(), reason(&expected).replace(&format!("{}: ", server.port), ""))
    );
    let error = connect.call((&*url, None::<&str>, 20.0)).unwrap_err();
    assert_eq!(error.kind(), "PermissionError");
    server.finish();
}

#[test]
fn pages_need_a_permission_and_programs_do_not() {
    let words = ["--allow-origin", "https://good.example", "--allow-origin", "http://localhost:8080"];
    let server = Server::open(&[GRANTED, &words].concat());
    for (origin, status) in [
        ("https://good.example", "101"),
        ("http://localhost:8080", "101"),
        ("https://evil.example", "403"),
        ("https://good.example.evil.example", "403"),
        ("http://good.example", "403"),
        ("null", "403"),
    ] {
        let head = answer(&mut server.connect(), request(&format!("Origin: {origin}\r\n")).as_bytes());
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {head}");
    }
    let head = answer(&mut server.connect(), request("").as_bytes());
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let is_logged =
        server.log().iter().any(|line| line.to_string().contains("--allow-origin https://evil.example"));
    assert!(is_logged, "{:?}", server.log());
    server.finish();
    // Without the option, no page may connect.
    let server = Server::open(GRANTED);
    let head = answer(&mut server.connect(), request("Origin: https://good.example\r\n").as_bytes());
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    server.finish();
}

#[test]
fn requests_that_open_no_websocket_are_refused() {
    let server = Server::open(GRANTED);
    let good = request("");
    for wrong in [
        "GET / HTTP/1.1\r\nHost: board\r\n\r\n".to_owned(),
        good.replace("Upgrade: websocket\r\n", ""),
        good.replace("Version: 13", "Version: 8"),
        good.replace("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        good.replace("HTTP/1.1", "HTTP/1.0"),
        good.replace("GET /", "GE\0 /"),
    ] {
        let head = answer(&mut server.connect(), wrong.as_bytes());
        assert!(head.starts_with("HTTP/1.1 426 "), "{wrong:?}: {head}");
    }
    // Heads that never end, and other methods.
    let endless = format!("GET / HTTP/1.1\r\n{}", "X-Header: yes\r\n".repeat(20_000));
    assert!(!answer(&mut server.connect(), endless.as_bytes()).contains("101"));
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(200_000));
    assert!(!answer(&mut server.connect(), long.as_bytes()).contains("101"));
    for other in [&b"POST / HTTP/1.1\r\n\r\n"[..], b"HEAD / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"]
    {
        assert_eq!(answer(&mut server.connect(), other), "");
    }
    server.finish();
}

#[test]
fn frames_may_be_cut_anywhere_and_control_frames_come_in_between() {
    let server = Server::open(GRANTED);
    let mut stream = open(&server);
    // The greeting, one byte for each frame of one message, with a ping after each of them.
    for (at, byte) in PREFACE.iter().enumerate() {
        let kind = if at == 0 { BINARY } else { 0 };
        let last = if at + 1 == PREFACE.len() { LAST } else { 0 };
        stream.write_all(&web(last | kind, MASK, &[*byte])).unwrap();
        if last == 0 {
            stream.write_all(&web(LAST | PING, MASK, b"are you there")).unwrap();
            assert_eq!(read_web(&mut stream), Some((LAST | PONG, b"are you there".to_vec())));
        }
    }
    assert_eq!(read_binary(&mut stream, ACCEPTED.len()), ACCEPTED);
    // Many frames of the session in one message, empty messages, and unasked pongs.
    let all = [frame(HELLO, 0, 0, b"by hand"), frame(9, 0, 5, b""), frame(9, 0, 6, b"")].concat();
    stream
        .write_all(
            &[web(LAST | PONG, MASK, b""), web(LAST | BINARY, MASK, b""), web(LAST | BINARY, MASK, &all)]
                .concat(),
        )
        .unwrap();
    let expected = [frame(WELCOME, 0, 0, b""), frame(10, 0, 5, b""), frame(10, 0, 6, b"")].concat();
    assert_eq!(read_binary(&mut stream, expected.len()), expected);
    // A close frame is answered.
    stream.write_all(&web(LAST | CLOSE, MASK, &1000_u16.to_be_bytes())).unwrap();
    assert_eq!(closed(&mut stream), Some(1000));
    server.wait_until_quiet();
    server.finish();
}

#[test]
fn frames_that_break_the_rules_end_the_session() {
    let server = Server::open(GRANTED);
    let huge = [&[LAST | BINARY, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[1, 2, 3, 4]].concat();
    let large = [&[LAST | BINARY, 0xff][..], &(2_u64 << 20).to_be_bytes(), &[1, 2, 3, 4]].concat();
    let mut fragments = web(BINARY, MASK, &[0; 600_000]);
    fragments.extend(web(LAST, MASK, &[0; 600_000]));
    for (what, bytes, code) in [
        ("no mask", web(LAST | BINARY, None, PREFACE), Some(1002)),
        ("a reserved flag", web(LAST | BINARY | 0x40, MASK, PREFACE), Some(1002)),
        ("a kind that does not exist", web(LAST | 3, MASK, PREFACE), Some(1002)),
        ("text", web(LAST | TEXT, MASK, PREFACE), Some(1003)),
        ("a frame of 2^40 bytes", huge, Some(1009)),
        ("a frame of 2 MiB", large, Some(1009)),
        ("a message of 1.2 MB in fragments", fragments, Some(1009)),
        ("a continuation of nothing", web(LAST, MASK, PREFACE), Some(1002)),
        (
            "a message within a message",
            [web(BINARY, MASK, b"a"), web(LAST | BINARY, MASK, b"b")].concat(),
            Some(1002),
        ),
        ("a control frame in fragments", web(PING, MASK, b""), Some(1002)),
        ("a long control frame", web(LAST | PING, MASK, &[0; 200]), Some(1002)),
    ] {
        let mut stream = open(&server);
        let _ = stream.write_all(&bytes);
        assert_eq!(closed(&mut stream), code, "{what}");
    }
    // Frames that are valid, with bytes that are not of the protocol: the session ends, without an answer to them.
    let mut stream = open(&server);
    stream.write_all(&web(LAST | BINARY, MASK, b"GET / HTTP/1.1\r\n\r\n")).unwrap();
    assert_eq!(closed(&mut stream), Some(1000));
    server.wait_until_quiet();
    server.finish();
}

#[test]
fn clients_that_vanish_or_do_not_read_leave_nothing() {
    let server = Server::open(GRANTED);
    // At every stage of the handshake.
    let good = request("");
    for length in [1, 4, 30, good.len() - 1] {
        let mut stream = server.connect();
        stream.write_all(&good.as_bytes()[..length]).unwrap();
    }
    drop(open(&server));
    let mut stream = open(&server);
    stream.write_all(&web(LAST | BINARY, MASK, PREFACE)[..9]).unwrap();
    drop(stream);
    server.wait_until_quiet();
    // A client that floods with pings and does not read the answers: its own connection stops, and others are served.
    let stream = open(&server);
    let used = || server.children().iter().map(|pid| status(*pid, "VmRSS:")).sum::<u64>();
    let before = used();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let pings = web(LAST | PING, MASK, &[7; 100]).repeat(1000);
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < Duration::from_secs(3) {
        match (&stream).write(&pings) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    assert!(sent > 100_000);
    let grown = used().saturating_sub(before);
    assert!(grown < 30_000, "{grown} KiB");
    server.serves();
    drop(stream);
    server.wait_until_quiet();
    server.finish();
}

#[test]
fn random_damage_ends_only_its_own_session() {
    let server = Server::open(GRANTED);
    let (first, time, started) = (anyfn_random::seed(), anyfn_random::time(), Instant::now());
    let mut seed = first;
    while time.map_or(seed < first + 60, |time| started.elapsed() < time) {
        let mut random = Random::new(seed);
        let mut bytes = Vec::new();
        let honest = [PREFACE, &frame(HELLO, 0, 0, b"by hand"), &ask(1, INFO, &[])].concat();
        for part in honest.chunks(1 + random.below(20)) {
            bytes.extend(web(
                LAST | BINARY,
                Some([random.byte(), random.byte(), random.byte(), random.byte()]),
                part,
            ));
        }
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.byte(),
                1 => bytes.insert(at, random.byte()),
                _ => drop(bytes.remove(at)),
            }
        }
        let mut stream = if random.below(4) == 0 {
            // The request is damaged as well.
            let mut head = request("").into_bytes();
            let at = random.below(head.len());
            head[at] = random.byte();
            let mut stream = server.connect();
            stream.write_all(&head).unwrap();
            stream
        } else {
            open(&server)
        };
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        seed += 1;
    }
    server.wait_until_quiet();
    for why in server.ends() {
        assert!(!why.contains("signal") && !why.contains("101"), "{why}");
    }
    server.finish();
}
