//! Tests the protocol that `docs/rpc.md` specifies. Each test states the exact bytes of an exchange.

mod hand;

use std::io::{Read, Write};
use std::time::Duration;

use anyfn::{Error, PackedFunc, registry};
use anyfn_loader as _;
use anyfn_reflect as _;
use anyfn_rpc::policy::Policy;
use anyfn_runtime as _;
use blake2::{Blake2s256, Digest};
use hand::*;

fn register(name: &str, function: PackedFunc) {
    registry::register(name).overriding().set(&function).unwrap();
}

fn policy() -> Policy {
    Policy { functions: vec!["test.wire.*".into()], upload: true, ..Policy::closed() }
}

/// Registers the two functions that these tests call. One adds integers, and fails if it receives
/// no arguments. The other calls its argument with 20 and 22.
fn register_all() {
    register(
        "test.wire.add",
        PackedFunc::new(|args| {
            if args.as_slice().is_empty() {
                return Err(Error::untraced("ValueError", "nothing to add"));
            }
            let mut sum = 0_i64;
            for index in 0..args.len() {
                sum += args.get::<i64>(index)?;
            }
            anyfn::Any::new(sum)
        }),
    );
    register("test.wire.apply", PackedFunc::new(|args| args.get::<PackedFunc>(0)?.call((20, 22))));
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Session without a key as a list of steps: the bytes that the client sends, and the bytes that it receives
/// in reply.
const SESSION: [(&str, &str); 6] = [
    ("616e79666e525043 01 01 00", "616e79666e525043 01 00 0000"),
    ("05000000 01 00 0000 0000000000000000  6d696e6521", "00000000 02 00 0000 0000000000000000"),
    (
        "23000000 03 00 0000 0100000000000000  0000000000000000 0000 01 0100 01000000
            05 0d000000 746573742e776972652e616464",
        "20000000 04 00 0000 0100000000000000  0a 02000000
            10 0100000001000000 01 0c000000 6666692e46756e6374696f6e
            00",
    ),
    (
        "29000000 03 00 0000 0200000000000000  0000000000000000 0000 00 0100000001000000 02000000
            03 2800000000000000  03 0200000000000000",
        "09000000 04 00 0000 0200000000000000  03 2a00000000000000",
    ),
    (
        "17000000 03 00 0000 0300000000000000  0000000000000000 0000 00 0100000001000000 00000000",
        "24000000 05 00 0000 0300000000000000
            0a000000 56616c75654572726f72  0e000000 6e6f7468696e6720746f20616464  00000000",
    ),
    (
        "10000000 07 00 0000 0000000000000000  0100000001000000 0100000000000000
         00000000 09 00 0000 0400000000000000",
        "00000000 0a 00 0000 0400000000000000",
    ),
];

/// Performs the exchange [`SESSION`] with a server and checks each reply. The bytes of each step
/// are sent in pieces of up to `part` bytes.
fn exchange(part: usize) {
    let (mut stream, server) = serve(policy(), None);
    for (number, (sent, expected)) in SESSION.iter().enumerate() {
        let (sent, expected) = (unhex(sent), unhex(expected));
        for piece in sent.chunks(part) {
            stream.write_all(piece).unwrap();
            // The pause lets the server read most pieces separately.
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut got = vec![0; expected.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, expected, "step {number} in parts of {part}");
    }
    stream.write_all(&unhex("04000000 0b 00 0000 0000000000000000  646f6e65")).unwrap();
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert_eq!(got, b"");
    assert!(server.join().unwrap().contains("done"));
}

#[test]
fn a_session_without_a_key_is_these_bytes() {
    register_all();
    exchange(usize::MAX);
}

#[test]
fn bytes_may_be_cut_anywhere() {
    register_all();
    (1..58).for_each(exchange);
}

#[test]
fn a_callback_is_a_call_within_a_call() {
    register_all();
    let (stream, server) = serve(policy(), None);
    let mut line = Line::greet(stream);
    let apply = line.global(1, "test.wire.apply");
    line.send(&call(2, 0, 0, apply, &[mine(7, 1, "ffi.Function")]));
    // The server's first call: number 1, within call 2, depth 1, of the client's handle 7 with 20 and 22.
    let payload =
        unhex("0200000000000000 0100 00 0700000000000000 02000000  03 1400000000000000  03 1600000000000000");
    assert_eq!(line.receive(), Some((CALL, 0, 1, payload)));
    // A call within the callback.
    let add = {
        line.send(&frame(
            CALL,
            0,
            3,
            &[&unhex("0100000000000000 0200 01 0100 01000000")[..], &text("test.wire.add")].concat(),
        ));
        let answer = line.answer(3).unwrap();
        u64::from_le_bytes(answer[6..14].try_into().unwrap())
    };
    line.send(&call(4, 1, 2, add, &[int(20), int(22)]));
    assert_eq!(line.answer(4).unwrap(), int(42));
    line.send(&frame(RETURN, 0, 1, &int(42)));
    // The function is released before the result is sent: handle 7, received once.
    let (kind, flags, id, payload) = line.receive().unwrap();
    assert_eq!((kind, flags, id), (RELEASE, 0, 0));
    assert_eq!(payload, unhex("0700000000000000 0100000000000000"));
    assert_eq!(line.receive(), Some((RETURN, 0, 2, int(42))));
    // An error of the callback is the error of the call.
    line.send(&call(5, 0, 0, apply, &[mine(8, 1, "ffi.Function")]));
    let (kind, _, id, _) = line.receive().unwrap();
    assert_eq!((kind, id), (CALL, 2));
    line.send(&frame(ERROR, 0, 2, &error("KeyError", "not here")));
    assert_eq!(line.answer(5).unwrap_err(), ("KeyError".into(), "not here".into()));
    drop(line);
    server.join().unwrap();
}

#[test]
fn bytes_go_up_and_down_in_parts() {
    let (stream, server) = serve(policy(), None);
    let mut line = Line::greet(stream);
    line.send(&ask(1, EMPTY, &[shape(&[2, 3]), dtype(0, 16, 1), device(1, 0)]));
    let expected = [
        &[16][..],
        &0x1_0000_0001_u64.to_le_bytes(),
        &[3, 10, 0, 0, 0],
        b"ffi.Tensor",
        &unhex("02000000 0200000000000000 0300000000000000  00 10 0100  01000000 00000000"),
    ];
    assert_eq!(line.answer(1).unwrap(), expected.concat());
    let tensor = 0x1_0000_0001;
    line.send(&ask(2, WRITE, &[int(tensor), int(2), int(8)]));
    line.send(&data(2, 0, b"abc"));
    line.send(&data(2, 3, b"defgh"));
    assert_eq!(line.answer(2).unwrap(), none());
    line.send(&ask(3, READ, &[int(tensor), int(1), int(10)]));
    assert_eq!(line.receive(), Some((DATA, 0, 3, [&[0; 8][..], b"\0abcdefgh\0"].concat())));
    assert_eq!(line.receive(), Some((RETURN, 0, 3, none())));
    // A transfer of nothing has no parts.
    line.send(&ask(4, WRITE, &[int(tensor), int(12), int(0)]));
    assert_eq!(line.answer(4).unwrap(), none());
    line.send(&ask(5, READ, &[int(tensor), int(12), int(0)]));
    assert_eq!(line.receive(), Some((RETURN, 0, 5, none())));
    // A transfer that is cancelled.
    line.send(&ask(6, WRITE, &[int(tensor), int(0), int(12)]));
    line.send(&data(6, 0, b"abc"));
    line.send(&frame(CANCEL, 0, 6, b""));
    assert_eq!(line.answer(6).unwrap_err().0, "InterruptedError");
    line.send(&data(6, 3, b"defghijkl"));
    assert!(line.serves(7));
    // Files, by the digest of their content.
    let digest: String = Blake2s256::digest(b"a file").iter().map(|byte| format!("{byte:02x}")).collect();
    line.send(&ask(8, HAS, &[array(&[text(&digest)])]));
    assert_eq!(line.answer(8).unwrap(), [10, 1, 0, 0, 0, 1]);
    line.send(&ask(9, PUT, &[text(&digest), int(6)]));
    line.send(&data(9, 0, b"a file"));
    assert_eq!(line.answer(9).unwrap(), none());
    line.send(&ask(10, HAS, &[array(&[text(&digest)])]));
    assert_eq!(line.answer(10).unwrap(), [10, 1, 0, 0, 0, 2]);
    line.send(&ask(11, FILES, &[]));
    let expected = [&[12, 1, 0, 0, 0][..], &text(&digest), &int(6)].concat();
    assert_eq!(line.answer(11).unwrap(), expected);
    line.send(&ask(12, REMOVE, &[text(&digest)]));
    assert_eq!(line.answer(12).unwrap(), [2]);
    drop(line);
    server.join().unwrap();
}

#[test]
fn messages_may_come_in_frames_that_alternate() {
    register_all();
    let (stream, server) = serve(policy(), None);
    let mut line = Line::greet(stream);
    let add = line.global(1, "test.wire.add");
    let payload_of = |id: u64, value: i64| call(id, 0, 0, add, &[int(value), int(1)])[16..].to_vec();
    let (first, second) = (payload_of(2, 10), payload_of(3, 20));
    line.send(&frame(CALL, 1, 2, &first[..5]));
    line.send(&frame(CALL, 1, 3, &second[..30]));
    line.send(&frame(CALL, 1, 2, b""));
    line.send(&frame(CALL, 0, 3, &second[30..]));
    assert_eq!(line.answer(3).unwrap(), int(21));
    line.send(&frame(CALL, 0, 2, &first[5..]));
    assert_eq!(line.answer(2).unwrap(), int(11));
    drop(line);
    server.join().unwrap();
}

#[test]
fn a_key_encrypts_the_same_messages() {
    register_all();
    let (stream, server) = serve(policy(), Some(ALICE));
    let mut line = Line::greet_with_key(stream);
    let add = line.global(1, "test.wire.add");
    line.send(&call(2, 0, 0, add, &[int(20), int(22)]));
    assert_eq!(line.answer(2).unwrap(), int(42));
    let tensor = line.empty(3, 300_000);
    line.send(&ask(4, WRITE, &[int(tensor as i64), int(0), int(200_000)]));
    line.send(&data(4, 0, &[9; 200_000]));
    assert_eq!(line.answer(4).unwrap(), none());
    line.send(&ask(5, READ, &[int(tensor as i64), int(199_999), int(2)]));
    assert_eq!(line.receive(), Some((DATA, 0, 5, [&[0; 8][..], &[9, 0]].concat())));
    line.send(&frame(BYE, 0, 0, b"done"));
    line.drain();
    assert!(server.join().unwrap().contains("done"));
}

#[test]
fn refusals_are_these_bytes() {
    let cases: [(&[u8], Option<&str>, &[u8]); 5] = [
        (PREFACE, Some(ALICE), b"anyfnRPC\x01\x02\0\0"),
        (b"anyfnRPC\x01\x01\x05alice", None, b"anyfnRPC\x01\x03\0\0"),
        (b"anyfnRPC\x03\x09\x00", None, b"anyfnRPC\x02\x01\0\0"),
        (b"anyfnRPC\x00\x00\x00", Some(ALICE), b"anyfnRPC\x02\x01\0\0"),
        (b"GET / HTTP/1.1\r\n\r\n", None, b""),
    ];
    for (sent, key, expected) in cases {
        let (mut stream, server) = serve(policy(), key);
        stream.write_all(sent).unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert_eq!(got, expected, "{sent:?}");
        server.join().unwrap();
    }
    // The newest version that both ends support is chosen from a range of versions.
    let ranges: [(&[u8], &[u8]); 3] = [
        (b"anyfnRPC\x00\x09\x00", ACCEPTED_2),
        (b"anyfnRPC\x02\x02\x00", ACCEPTED_2),
        (b"anyfnRPC\x00\x01\x00", ACCEPTED),
    ];
    for (sent, expected) in ranges {
        let (mut stream, server) = serve(policy(), None);
        stream.write_all(sent).unwrap();
        let mut got = [0; 12];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, expected);
        drop(stream);
        server.join().unwrap();
    }
}

#[test]
fn a_value_that_is_met_again_is_sent_once() {
    register_all();
    register("test.wire.echo", PackedFunc::new(|args| args.get::<anyfn::Any>(0)));
    register(
        "test.wire.pair",
        PackedFunc::new(|args| anyfn::Any::new((args.get::<anyfn::Any>(0)?, args.get::<anyfn::Any>(0)?))),
    );
    let (stream, server) = serve(policy(), None);
    let mut line = Line::greet_2(stream);
    // The welcome contains the maximum length of a message to the server.
    assert_eq!(line.welcome, (policy().message_bytes as u64).to_le_bytes());
    let echo = line.global(1, "test.wire.echo");
    let shared = unhex("0b 02000000  12 0b 01000000 03 0700000000000000  13 00000000");
    line.send(&call(2, 0, 0, echo, std::slice::from_ref(&shared)));
    assert_eq!(line.answer(2).unwrap(), shared);
    // A value that is not shared is written as in version 1.
    let plain = unhex("0a 02000000  0b 00000000  0c 00000000");
    line.send(&call(3, 0, 0, echo, std::slice::from_ref(&plain)));
    assert_eq!(line.answer(3).unwrap(), plain);
    // Values are shared across the arguments of a call. A kept value gets its number when it is complete: the inner one is
    // number 0.
    let pair = line.global(4, "test.wire.pair");
    line.send(&call(5, 0, 0, pair, &[unhex("12 0a 01000000 12 0b 00000000"), unhex("13 00000000")]));
    assert_eq!(line.answer(5).unwrap(), unhex("0a 02000000  12 0a 01000000 0b 00000000  13 00000000"));
    line.send(&frame(BYE, 0, 0, b"done"));
    line.drain();
    assert!(server.join().unwrap().contains("done"));
}
