//! Tests sessions with an attacker between client and server, who changes single bytes of the
//! handshake or whole records of the session. With a key, the server must admit only clients that
//! hold the key, accept no changed data, and end each session that was tampered with.

mod hand;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyfn::{Any, Error, PackedFunc, Ref, Shape, Tensor, registry};
use anyfn_loader as _;
use anyfn_reflect as _;
use anyfn_rpc::Session;
use anyfn_rpc::policy::Policy;
use anyfn_runtime as _;
use hand::*;

/// Handshake timeout of both ends in tests in which the handshake cannot complete.
const SHORT: Duration = Duration::from_millis(500);

fn policy() -> Policy {
    Policy { functions: vec!["test.middle.*".into()], ..Policy::closed() }
}

fn register_all() {
    let add = PackedFunc::new(|args| Any::new(args.get::<i64>(0)? + args.get::<i64>(1)?));
    registry::register("test.middle.add").overriding().set(&add).unwrap();
}

fn connect(port: u16, key: Option<&str>, seconds: f64) -> Result<Ref<Session>, Error> {
    registry::get("rpc.connect").unwrap().call(("127.0.0.1", port, key, seconds))?.get::<Ref<Session>>()
}

/// Direction of the bytes on a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    ToServer,
    ToClient,
}

/// Function with which the attacker changes the bytes that flow in one direction. It returns the bytes to
/// pass on.
type Meddle = Box<dyn FnMut(&[u8]) -> Vec<u8> + Send>;

/// Applies `meddle` to the bytes from one socket and writes the result to another, until one end closes the
/// connection.
fn pump(mut from: impl Read, mut to: impl Write, mut meddle: Meddle, passed: &AtomicUsize) {
    let mut bytes = [0; 65536];
    loop {
        let count = match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let out = meddle(&bytes[..count]);
        passed.fetch_add(out.len(), Ordering::Relaxed);
        if to.write_all(&out).is_err() {
            return;
        }
    }
}

/// Server and an attacker between the server and its client. The attacker changes the bytes that
/// pass through the connection.
struct Middle {
    port: u16,
    pumps: JoinHandle<()>,
    server: Server,
    /// Number of bytes that were passed on to the client.
    to_client: Arc<AtomicUsize>,
}

impl Middle {
    /// Starts a server for one client. The attacker applies `meddle` to the bytes in the direction
    /// `way`; the bytes in the other direction pass unchanged.
    fn new(key: Option<&str>, wait: Duration, way: Way, meddle: Meddle) -> Middle {
        let (there, server) = serve_within(policy(), key, wait);
        there.set_read_timeout(None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let to_client = Arc::new(AtomicUsize::new(0));
        let passed = to_client.clone();
        let pumps = std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            client.set_nodelay(true).unwrap();
            let as_it_is: Meddle = Box::new(<[u8]>::to_vec);
            let (up, down) = if way == Way::ToServer { (meddle, as_it_is) } else { (as_it_is, meddle) };
            let (client_too, there_too) = (client.try_clone().unwrap(), there.try_clone().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pump(&client, &there, up, &AtomicUsize::new(0));
                    close(&client, &there);
                });
                pump(&there_too, &client_too, down, &passed);
                close(&client_too, &there_too);
            });
        });
        Middle { port, pumps, server, to_client }
    }

    /// Waits for all threads. Returns the reason why the server ended its session, and the number
    /// of bytes that were passed on to the client.
    fn end(self) -> (String, usize) {
        self.pumps.join().unwrap();
        let why = self.server.join().expect("the server has fallen");
        check_text(&why);
        (why, self.to_client.load(Ordering::Relaxed))
    }
}

fn close(client: &TcpStream, server: &UnixStream) {
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// Returns a function that replaces the byte at the offset `at` of the stream by the result of `to`
/// for this byte.
fn change(at: usize, to: impl Fn(u8) -> u8 + Send + 'static) -> Meddle {
    let mut passed = 0;
    Box::new(move |bytes| {
        let mut out = bytes.to_vec();
        if let Some(byte) = at.checked_sub(passed).and_then(|at| out.get_mut(at)) {
            *byte = to(*byte);
        }
        passed += bytes.len();
        out
    })
}

/// Number of bytes that a server sends before the client has proved that it holds the key: the server's reply to the
/// client's first bytes, and the server's key-exchange message.
const BEFORE_PROOF: usize = 12 + 2 + 48;

/// Number of bytes that a client with the key `alice` sends before its greeting.
const BEFORE_GREETING: usize = 11 + 5 + 2 + 48;

/// Tests that a changed handshake causes an error at the client. Returns the number of bytes that
/// the server has sent to the client.
fn fails(way: Way, at: usize, meddle: Meddle) -> usize {
    let middle = Middle::new(Some(ALICE), SHORT, way, meddle);
    let error = connect(middle.port, Some(ALICE), SHORT.as_secs_f64())
        .map(drop)
        .expect_err("a changed handshake is accepted");
    assert!(
        matches!(error.kind(), "PermissionError" | "ConnectionError" | "TimeoutError"),
        "{way:?}, byte {at}: {error}"
    );
    check_text(error.message());
    let (_, sent) = middle.end();
    sent
}

#[test]
fn each_byte_of_a_handshake_counts() {
    register_all();
    // Without a change the session works, so the failures below are due to the changes.
    let middle = Middle::new(Some(ALICE), Duration::from_secs(30), Way::ToServer, Box::new(<[u8]>::to_vec));
    let session = connect(middle.port, Some(ALICE), 30.0).unwrap();
    let add = session.get_function("test.middle.add").unwrap();
    assert_eq!(add.call((20, 22)).unwrap().get::<i64>().unwrap(), 42);
    session.close();
    drop((add, session));
    middle.end();
    // The first record of a client is its greeting: length, frame header, name of the program, and authentication tag.
    let greeting = 2 + 16 + 10 + 16;
    for at in 0..BEFORE_GREETING + greeting {
        let sent = fails(Way::ToServer, at, change(at, move |byte| byte ^ 1 << (at % 8)));
        assert!(sent <= BEFORE_PROOF, "byte {at} is changed, and the client is welcomed with {sent} bytes");
    }
    // The last record is a welcome, which the server sends to a genuine client. The client detects that it was changed.
    let welcome = 2 + 16 + 8 + 16;
    for at in 0..BEFORE_PROOF + welcome {
        fails(Way::ToClient, at, change(at, move |byte| byte ^ 1 << (at % 8)));
    }
}

#[test]
fn a_key_keeps_versions_from_being_lowered() {
    // Offsets of the versions in the client's first bytes (8: the oldest, 9: the newest), and in the answer.
    for (way, at, version) in [
        (Way::ToServer, 9, 1),
        (Way::ToServer, 8, 2),
        (Way::ToServer, 8, 0),
        (Way::ToServer, 9, 255),
        (Way::ToClient, 8, 1),
        (Way::ToClient, 8, 0),
        (Way::ToClient, 8, 3),
    ] {
        let sent = fails(way, at, change(at, move |_| version));
        assert!(sent <= BEFORE_PROOF, "version {version} at {at}: the client is welcomed");
    }
    // A client with a key seems to have none, and a server with keys seems to require none.
    let sent = fails(Way::ToServer, 10, change(10, |_| 0));
    assert!(sent <= BEFORE_PROOF);
    for status in 0..=5 {
        if status > 0 {
            fails(Way::ToClient, 9, change(9, move |_| status));
        }
    }
}

#[test]
fn keys_where_there_are_none_and_none_where_there_are() {
    let as_it_is = || -> Meddle { Box::new(<[u8]>::to_vec) };
    let other = "alice:CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg";
    let cases = [
        (None, Some(ALICE), "without keys"),
        (Some(ALICE), None, "requires a key"),
        (Some(ALICE), Some(other), "does not accept the key"),
    ];
    for (of_server, of_client, expected) in cases {
        let middle = Middle::new(of_server, Duration::from_secs(30), Way::ToServer, as_it_is());
        let error = connect(middle.port, of_client, 30.0).map(drop).unwrap_err();
        assert_eq!(error.kind(), "PermissionError", "{error}");
        assert!(error.message().contains(expected), "{error}");
        let (_, sent) = middle.end();
        assert!(sent <= 12, "{sent} bytes for a client that has no key");
    }
}

/// Change that the attacker makes to one record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Twice,
    LeftOut,
    /// The record is sent after its successor.
    Late,
    /// The record is one byte shorter, and its length prefix is adjusted.
    Shorter,
    /// The record is replaced by the record with the same number from an earlier session with the
    /// same key.
    OfAnother,
    /// The record is replaced by the record with the same number from the opposite direction of an
    /// earlier session.
    Reflected,
}

/// Encrypted records of earlier sessions, without the handshakes: one list for each direction.
type Recorded = Arc<Mutex<[Vec<Vec<u8>>; 2]>>;

/// Number of the record that the attacker changes. Record 0 is the greeting.
const RECORD: usize = 4;

/// Returns a function that changes one record of the stream after the handshake, as `fate`
/// specifies. If `fate` is `None`, the function changes nothing and appends the records to
/// `recorded`.
fn to_record(way: Way, fate: Option<Fate>, recorded: Recorded) -> Meddle {
    let mut head = if way == Way::ToServer { BEFORE_GREETING } else { BEFORE_PROOF };
    let (mut arrived, mut number, mut held) = (Vec::new(), 0, Vec::new());
    Box::new(move |bytes| {
        arrived.extend_from_slice(bytes);
        let mut out: Vec<u8> = arrived.drain(..head.min(arrived.len())).collect();
        head -= out.len();
        while head == 0
            && let Some(size) = arrived.first_chunk::<2>()
            && let size = 2 + usize::from(u16::from_le_bytes(*size))
            && size <= arrived.len()
        {
            let record: Vec<u8> = arrived.drain(..size).collect();
            let mut all = recorded.lock().unwrap();
            let [there, here] = match way {
                Way::ToServer => [0, 1],
                Way::ToClient => [1, 0],
            };
            let of_another = all[there].get(RECORD).cloned();
            let reflected = all[here].get(RECORD).cloned();
            if fate.is_none() {
                all[there].push(record.clone());
            }
            drop(all);
            match fate.filter(|_| number == RECORD) {
                None => out.extend(&record),
                Some(Fate::Twice) => out.extend([&record[..], &record].concat()),
                Some(Fate::LeftOut) => {}
                Some(Fate::Late) => held = record,
                Some(Fate::Shorter) => out.extend(short(&record[2..size - 1])),
                Some(Fate::OfAnother) => out.extend(of_another.expect("a recorded session")),
                Some(Fate::Reflected) => out.extend(reflected.expect("a recorded session")),
            }
            if number == RECORD + 1 {
                out.append(&mut held);
            }
            number += 1;
        }
        out
    })
}

/// Connects to a server, copies bytes to it and back, and calls a function 20 times. Checks the
/// received data. Returns the first error.
fn use_session(port: u16) -> Result<(), Error> {
    let session = connect(port, Some(ALICE), 30.0)?;
    let content: Vec<u8> = (0..600_000_u32).map(|index| (index % 251) as u8).collect();
    let here = Tensor::from_slice(&[600_000], &content)?;
    let there = session.allocate(Shape::from(&[600_000][..]), here.view().dtype(), None)?;
    let there = there.get::<Ref<anyfn_rpc::RemoteTensor>>()?;
    there.write(here.view(), None)?;
    let back = Tensor::from_slice(&[600_000], &vec![0_u8; 600_000])?;
    there.read(back.view(), None)?;
    assert!(back.read::<u8>()?.iter().eq(&content), "wrong bytes have arrived");
    let add = session.get_function("test.middle.add")?;
    for index in 0..20 {
        assert_eq!(add.call((index, 1))?.get::<i64>()?, index + 1);
    }
    session.close();
    Ok(())
}

#[test]
fn records_come_once_and_in_their_order() {
    register_all();
    let recorded = Recorded::default();
    for way in [Way::ToServer, Way::ToClient] {
        let meddle = to_record(way, None, recorded.clone());
        let middle = Middle::new(Some(ALICE), Duration::from_secs(30), way, meddle);
        use_session(middle.port).unwrap();
        middle.end();
    }
    let counts = recorded.lock().unwrap().each_ref().map(Vec::len);
    assert!(counts.iter().all(|count| *count > RECORD + 10), "{counts:?} records");
    for way in [Way::ToServer, Way::ToClient] {
        for fate in [Fate::Twice, Fate::LeftOut, Fate::Late, Fate::Shorter, Fate::OfAnother, Fate::Reflected] {
            let meddle = to_record(way, Some(fate), recorded.clone());
            let middle = Middle::new(Some(ALICE), Duration::from_secs(30), way, meddle);
            let error = use_session(middle.port).expect_err("a session that was meddled with goes on");
            assert_eq!(error.kind(), "ConnectionError", "{way:?} {fate:?}: {error}");
            let (why, _) = middle.end();
            if way == Way::ToServer {
                assert!(why.contains("bytes that the peer did not send"), "{fate:?}: {why}");
            } else {
                let told = error.message();
                assert!(told.contains("bytes that the peer did not send"), "{fate:?}: {told}");
            }
        }
    }
}

/// Tests a session without a key, whose frames are not authenticated. A frame that is repeated, late or
/// missing must not harm the server, and a transfer must not write to wrong offsets.
#[test]
fn plain_frames_again_and_in_another_order() {
    register_all();
    for order in [&[0, 0, 1, 2][..], &[1, 2, 1, 2], &[2, 1, 0]] {
        let (stream, server) = serve(policy(), None);
        let mut line = Line::greet(stream);
        let add = line.global(1, "test.middle.add");
        let frames: Vec<Vec<u8>> =
            (0..3).map(|index| call(10 + index, 0, 0, add, &[int(index as i64), int(1)])).collect();
        for at in order.iter().copied() {
            line.send(&frames[at]);
            // Each frame is answered as often as it arrives, because a frame does not prove its sender.
            assert_eq!(line.answer(10 + at as u64).unwrap(), int(at as i64 + 1));
        }
        line.send(&frame(BYE, 0, 0, b"well"));
        assert!(server.join().unwrap().contains("well"));
    }
    // Parts of a transfer are repeated, reordered or omitted.
    for order in [&[0, 0][..], &[1, 0], &[0, 2], &[0, 1, 1], &[0, 1, 0]] {
        let (stream, server) = serve(policy(), None);
        let mut line = Line::greet(stream);
        let tensor = line.empty(1, 12) as i64;
        line.send(&ask(2, WRITE, &[int(tensor), int(0), int(12)]));
        for at in order {
            line.send(&data(2, 4 * at, &[*at as u8 + 1; 4]));
        }
        let (kind, message) = line.answer(2).unwrap_err();
        assert!(kind == "ValueError" && message.contains("at an unexpected offset"), "{order:?}: {message}");
        line.send(&ask(3, READ, &[int(tensor), int(0), int(12)]));
        let (_, _, _, payload) = line.receive().unwrap();
        for (index, part) in payload[8..].chunks(4).enumerate() {
            assert!(part == [0; 4] || part == [index as u8 + 1; 4], "{order:?}: {payload:?}");
        }
        line.answer(3).unwrap();
        // The call of the transfer, sent again, is a new transfer.
        line.send(&ask(2, WRITE, &[int(tensor), int(0), int(4)]));
        line.send(&data(2, 0, &[9; 4]));
        assert_eq!(line.answer(2).unwrap(), none());
        line.send(&frame(BYE, 0, 0, b"well"));
        assert!(server.join().unwrap().contains("well"));
    }
    // The call of an announced transfer is sent again while it runs: there are two calls with one number.
    let (stream, server) = serve(policy(), None);
    let mut line = Line::greet(stream);
    let tensor = line.empty(1, 12) as i64;
    let write = ask(2, WRITE, &[int(tensor), int(0), int(12)]);
    line.send(&[&write[..], &write].concat());
    assert!(line.answer(2).unwrap_err().1.contains("two transfers have the same number"));
    line.send(&frame(BYE, 0, 0, b"well"));
    assert!(server.join().unwrap().contains("well"));
    // A handle that is released twice ends the session, and so does a second greeting.
    let greeting = frame(HELLO, 0, 0, b"again");
    for (bytes, expected) in [
        (vec![], "cannot release handle"),
        (greeting, "unexpected handshake message"),
        (PREFACE.repeat(3), "kind"),
    ] {
        let (stream, server) = serve(policy(), None);
        let mut line = Line::greet(stream);
        let twice = release(line.empty(1, 12), 1).repeat(2);
        line.send(if bytes.is_empty() { &twice } else { &bytes });
        line.drain();
        let why = server.join().unwrap();
        assert!(why.contains(expected), "{why}");
    }
}
