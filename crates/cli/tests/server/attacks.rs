//! Runs attacks on a real server. After each attack, the server must still serve the next client.
//! The name of an attack begins with the number of its class, such as R1. Other modules test class
//! R8 (`grants`), class R15 (`limits`) and the rest of class R10 (`boundaries`).

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::hand::*;
use crate::rig::*;

type Attack = (&'static str, fn(&Server));

/// Attacks that are made both on servers with a key and on servers without one.
const ALL: &[Attack] = &[
    ("R2 lengths that are only claimed", claimed_lengths),
    ("R2 a byte at a time", a_byte_at_a_time),
    ("R2 a hundred thousand small frames", small_frames),
    ("R2 frames again, in another order, left out", frames_again),
    ("R3 more than there is", claimed_values),
    ("R3 deep values", deep_values),
    ("R3 a message without end", endless_message),
    ("R4 forged handles", forged_handles),
    ("R4 handles of another session", handles_of_others),
    ("R5 beyond a tensor", beyond_a_tensor),
    ("R5 impossible tensors", impossible_tensors),
    ("R6 given back twice", given_back_twice),
    ("R6 given back in use", given_back_in_use),
    ("R7 paths for digests", paths),
    ("R7 nothing but the file", only_the_file),
    ("R9 callbacks without end", callbacks_without_end),
    ("R13 texts of errors", texts_of_errors),
    ("R14 memory of others", memory_of_others),
];

const WITH_KEY: &[Attack] = &[
    ("R1 no key", no_key),
    ("R1 a wrong key, a name that nobody has", wrong_keys),
    ("R1 a handshake sent again", handshake_again),
    ("R1 another version", other_version),
    ("R1 encryption left out", no_encryption),
    ("R1 a changed record", changed_record),
    ("R1 records again, in another order, left out, sent back", records_again),
    ("R10 a handshake cut at each byte", handshake_cut_at_each_byte),
];

const WITHOUT_KEY: &[Attack] =
    &[("R1 a key for a server without", key_for_none), ("R10 cut at each byte", cut_at_each_byte)];

fn run(server: Server, attacks: &[&[Attack]]) {
    for (name, attack) in attacks.concat() {
        println!("{name}");
        attack(&server);
        server.serves();
    }
    // No process crashed: each has reported its end.
    for why in server.ends() {
        assert!(["closed", "status 1"].iter().any(|end| why.contains(end)), "{why}");
    }
    server.finish();
}

#[test]
fn at_a_server_without_a_key() {
    run(Server::open(GRANTED), &[WITHOUT_KEY, ALL]);
}

#[test]
fn at_a_server_with_a_key() {
    run(Server::with_key(GRANTED), &[WITH_KEY, ALL]);
}

/// Reads all remaining data until the connection is closed.
fn rest(mut stream: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Returns the number of sessions that have begun, according to the server's log.
fn begun(server: &Server) -> usize {
    server.log().iter().filter(|line| line["event"] == "begin").count()
}

// R1

fn no_key(server: &Server) {
    let before = begun(server);
    let mut stream = server.connect();
    stream.write_all(PREFACE).unwrap();
    assert_eq!(rest(stream), b"anyfnRPC\x01\x02\0\0");
    assert_eq!(begun(server), before);
}

fn key_for_none(server: &Server) {
    let mut stream = server.connect();
    stream.write_all(&preface_of("alice")).unwrap();
    assert_eq!(rest(stream), b"anyfnRPC\x01\x03\0\0");
}

fn wrong_keys(server: &Server) {
    let before = begun(server);
    let mut answers = Vec::new();
    for (name, secret) in [("alice", [8; 32]), ("bob", [7; 32]), ("alice", [0; 32])] {
        let first = preface_of(name);
        let mut stream = server.connect();
        stream.write_all(&first).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        let mut noise = initiator(secret, &[&first[..], &answer].concat());
        stream.write_all(&exchange(&mut noise)).unwrap();
        answers.push([&answer[..], &rest(stream)].concat());
    }
    // A wrong secret and an unknown name look the same.
    assert!(answers.iter().all(|answer| answer == ACCEPTED), "{answers:?}");
    assert_eq!(begun(server), before);
}

fn handshake_again(server: &Server) {
    let first = preface_of("alice");
    let mut noise = Some(initiator([7; 32], &[&first[..], ACCEPTED].concat()));
    let message = exchange(noise.as_mut().unwrap());
    let mut record = Vec::new();
    for round in 0..2 {
        let before = begun(server);
        let mut stream = server.connect();
        stream.write_all(&[&first[..], &message].concat()).unwrap();
        let mut reply = [0; 12 + 2 + 48];
        stream.read_exact(&mut reply).unwrap();
        if let Some(mut noise) = noise.take() {
            noise.read_message(&reply[14..], &mut [0; 256]).unwrap();
            let state = noise.into_stateless_transport_mode().unwrap();
            let mut out = [0; 16 + 16];
            state.write_message(0, &frame(HELLO, 0, 0, b""), &mut out).unwrap();
            record = short(&out);
        }
        stream.write_all(&record).unwrap();
        if round == 0 {
            // The genuine client is welcomed.
            stream.read_exact(&mut [0; 2 + 16 + 16]).unwrap();
        } else {
            // The client that replays the recorded bytes gets nothing.
            assert_eq!(rest(stream), b"");
        }
        assert_eq!(begun(server), before + 1 - round);
    }
}

fn other_version(server: &Server) {
    let before = begun(server);
    // The versions of this protocol are 1 and 2.
    for (from, to) in [(0, 0), (3, 255), (9, 1)] {
        let mut first = preface_of("alice");
        (first[8], first[9]) = (from, to);
        let mut stream = server.connect();
        stream.write_all(&first).unwrap();
        assert_eq!(rest(stream), b"anyfnRPC\x02\x01\0\0", "{from} to {to}");
    }
    // An attacker on the path has changed the versions, for instance to an older one, so the two ends
    // disagree on what was sent.
    for (said, heard) in [([1, 1], [0, 1]), ([1, 2], [1, 1]), ([2, 2], [1, 2]), ([1, 1], [1, 2])] {
        let mut honest = preface_of("alice");
        honest[8..10].copy_from_slice(&said);
        let mut changed = honest.clone();
        changed[8..10].copy_from_slice(&heard);
        let mut stream = server.connect();
        stream.write_all(&changed).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        let mut noise = initiator([7; 32], &[&honest[..], &answer].concat());
        stream.write_all(&exchange(&mut noise)).unwrap();
        assert_eq!(rest(stream), b"", "{said:?} became {heard:?}");
    }
    assert_eq!(begun(server), before);
}

fn no_encryption(server: &Server) {
    let before = begun(server);
    let mut stream = server.connect();
    stream.write_all(&preface_of("alice")).unwrap();
    stream.write_all(&frame(HELLO, 0, 0, b"")).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // Only the acceptance arrives, if it was not lost when the server closed the connection. It contains no secret.
    assert!(ACCEPTED.starts_with(&rest(stream)));
    assert_eq!(begun(server), before);
}

fn changed_record(server: &Server) {
    for at in [0, 1, 2, 10, 17] {
        let mut line = server.line();
        let mut record = short(&[3; 40]);
        record[at] ^= 1;
        line.stream.write_all(&record).unwrap();
        line.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(line.stream), b"");
    }
}

fn records_again(server: &Server) {
    let mut earlier = server.line();
    let of_another: Vec<Vec<u8>> = (1..=4).map(|id| earlier.seal(&ask(id, INFO, &[]))).collect();
    for order in [&[0, 0][..], &[0, 1, 0], &[1], &[1, 0], &[0, 2, 1], &[4], &[0, 5], &[6]] {
        let mut line = server.line();
        let mut records: Vec<Vec<u8>> = (1..=4).map(|id| line.seal(&ask(id, INFO, &[]))).collect();
        records.extend(of_another[..2].iter().cloned());
        // A record that the server has sent; it is encrypted with the key of the other direction.
        line.stream.write_all(&records[0]).unwrap();
        let mut size = [0; 2];
        line.stream.read_exact(&mut size).unwrap();
        let mut reflected = vec![0; u16::from_le_bytes(size).into()];
        line.stream.read_exact(&mut reflected).unwrap();
        records.push(short(&reflected));
        // The first record has been sent already.
        let (sent, genuine) = (&order[usize::from(order[0] == 0)..], 1);
        for at in sent {
            if line.stream.write_all(&records[*at]).is_err() {
                break;
            }
        }
        let _ = line.stream.shutdown(Shutdown::Write);
        let answers = rest(line.stream);
        // At most two records, which have the same size, are answered: those that have arrived in order.
        let most = (genuine + 1) * (reflected.len() + 2);
        assert!(answers.len() <= most, "{order:?}: {} bytes", answers.len());
    }
}

fn handshake_cut_at_each_byte(server: &Server) {
    let first = preface_of("alice");
    let before = begun(server);
    let mut noise = initiator([7; 32], &[&first[..], ACCEPTED].concat());
    let handshake = [&first[..], &exchange(&mut noise)].concat();
    for end in 0..=handshake.len() {
        let mut stream = server.connect();
        stream.write_all(&handshake[..end]).unwrap();
        if end % 2 == 0 {
            // The client disconnects at once, without reading.
            continue;
        }
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(rest(stream).len() <= 12 + 2 + 48);
    }
    assert_eq!(begun(server), before);
}

// R2

fn frames_again(server: &Server) {
    let mut line = server.line();
    let concat = line.global(1, "testing.concat");
    let again = call(2, 0, 0, concat, &[text("a"), text("b")]);
    for _ in 0..3 {
        line.send(&again);
        assert_eq!(line.answer(2).unwrap(), text("ab"));
    }
    // Parts of a transfer are repeated, reordered or omitted.
    let tensor = line.empty(3, 12) as i64;
    for order in [&[0, 0][..], &[1], &[0, 2], &[0, 1, 1], &[0, 1, 0]] {
        line.send(&ask(4, WRITE, &[int(tensor), int(0), int(12)]));
        order.iter().for_each(|at| line.send(&data(4, 4 * at, &[*at as u8 + 1; 4])));
        assert!(line.answer(4).unwrap_err().1.contains("at an unexpected offset"), "{order:?}");
    }
    // A call with the number of a running call, and a second greeting, end the session.
    let sleep = line.global(5, "testing.sleep");
    line.send(&call(6, 0, 0, sleep, &[float(600.0), bool(true)]).repeat(2));
    line.drain();
    let mut line = server.line();
    line.send(&frame(HELLO, 0, 0, b"again"));
    line.drain();
}

fn claimed_lengths(server: &Server) {
    for length in [0x4_0001_u32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        let mut line = server.line();
        let mut bytes = frame(CALL, 0, 1, b"");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        line.send(&bytes);
        line.drain();
    }
    // Invalid first bytes, and a name that is longer than allowed.
    for bytes in
        [&b"anyfnRPC\x01\x01\xff"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", &[0; 4096]]
    {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        assert_eq!(rest(stream), b"");
    }
}

fn a_byte_at_a_time(server: &Server) {
    let mut line = server.line();
    let concat = line.global(1, "testing.concat");
    for byte in call(2, 0, 0, concat, &[text("a"), text("b")]) {
        line.send(&[byte]);
    }
    assert_eq!(line.answer(2).unwrap(), text("ab"));
}

fn small_frames(server: &Server) {
    let mut line = server.line();
    let process = *server.children().last().unwrap();
    let before = status(process, "VmRSS:");
    let pings = frame(PING, 0, 1, b"").repeat(250);
    for round in 0..200_u64 {
        line.send(&pings);
        for _ in 0..250 {
            assert_eq!(line.receive().unwrap().0, PONG);
        }
        line.send(
            &[data(round, 0, b""), frame(CANCEL, 0, round, b""), frame(RETURN, 0, round, &none())]
                .concat()
                .repeat(80),
        );
    }
    let after = status(process, "VmRSS:");
    assert!(after < before + (32 << 10), "from {before} to {after} KiB");
}

// R3

fn claimed_values(server: &Server) {
    let mut line = server.line();
    let process = *server.children().last().unwrap();
    let before = status(process, "VmHWM:");
    let count = line.global(1, "testing.count");
    for tag in [5, 6, 9, 10, 11, 12, 13, 14, 15] {
        for claim in [1_u32, 0x7fff_ffff, 0xffff_ffff] {
            line.send(&call(2, 0, 0, count, &[[&[tag][..], &claim.to_le_bytes()].concat()]));
            assert_eq!(line.answer(2).unwrap_err().0, "ValueError", "tag {tag}");
        }
    }
    // The maximum number of arguments that can be encoded.
    let mut bytes = call(3, 0, 0, count, &[]);
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
    line.send(&bytes);
    assert_eq!(line.answer(3).unwrap_err().0, "ValueError");
    // Three mebibytes that claim sixty times that length.
    let mut payload = call(4, 0, 0, count, &[])[16..].to_vec();
    let end = payload.len();
    payload[end - 4..].copy_from_slice(&1_u32.to_le_bytes());
    for level in 0..60 {
        payload.push(10);
        payload.extend_from_slice(&((3_u32 << 20) - level).to_le_bytes());
    }
    payload.resize(payload.len() + (3 << 20), 255);
    for piece in payload.chunks(1 << 18) {
        line.send(&frame(CALL, 1, 4, piece));
    }
    line.send(&frame(CALL, 0, 4, b""));
    assert_eq!(line.answer(4).unwrap_err().0, "ValueError");
    let after = status(process, "VmHWM:");
    assert!(after < before + (256 << 10), "from {before} to {after} KiB");
}

fn deep_values(server: &Server) {
    let mut line = server.line();
    let count = line.global(1, "testing.count");
    let deep = (0..64).fold(none(), |inner, _| array(&[inner]));
    line.send(&call(2, 0, 0, count, &[deep]));
    assert!(line.answer(2).unwrap_err().1.contains("nested deeper"));
    // Ten thousand nested arrays.
    line.send(&call(3, 0, 0, count, &[[10, 1, 0, 0, 0].repeat(10_000)]));
    assert!(line.answer(3).unwrap_err().1.contains("nested deeper"));
    line.send(&call(4, 0, 0, count, &[graph(&"[".repeat(100_000))]));
    line.answer(4).unwrap_err();
}

fn endless_message(server: &Server) {
    let mut line = server.line();
    for _ in 0..2_000 {
        if line.try_send(&frame(CALL, 1, 2, &[0; 1 << 18])).is_err() {
            break;
        }
    }
    // The server accepts at most 64 MiB of it.
    assert!(line.try_send(&frame(PING, 0, 0, b"")).is_err() || line.receive().is_none_or(|last| last.0 == BYE));
}

// R4

fn forged_handles(server: &Server) {
    let mut line = server.line();
    let echo = line.global(1, "testing.echo");
    let tensor = line.empty(2, 16);
    let forged = [0, 1, u64::MAX, 1 << 32, 1 << 62, 1 << 63, echo + 1000, echo ^ 1 << 32, echo | 1 << 62];
    for handle in forged.into_iter().filter(|handle| ![echo, tensor].contains(handle)) {
        let mut requests = vec![call(3, 0, 0, handle, &[]), call(3, 0, 0, echo, &[yours(handle)])];
        for code in [MODULE_FUNCTION, MODULE_NAMES, WRITE, READ, TIME, TEXT, FIELD, COPY] {
            requests.push(ask(3, code, &[int(handle as i64), int(0), int(1)]));
        }
        for request in requests {
            line.send(&request);
            let (kind, message) = line.answer(3).unwrap_err();
            assert!(
                ["ValueError", "TypeError", "OverflowError"].contains(&&*kind),
                "{handle:#x}: {kind} {message}"
            );
        }
    }
    line.send(&call(4, 0, 0, tensor, &[]));
    assert!(line.answer(4).unwrap_err().1.contains("is a tensor, not a function"));
    for code in [READ, WRITE] {
        line.send(&ask(5, code, &[int(echo as i64), int(0), int(1)]));
        assert!(line.answer(5).unwrap_err().1.contains("is a function, not a tensor"));
    }
    line.send(&release(tensor, 1));
    assert_ne!(line.empty(6, 16), tensor);
    line.send(&ask(7, READ, &[int(tensor as i64), int(0), int(1)]));
    assert!(line.answer(7).unwrap_err().1.contains("does not exist in this session"));
}

fn handles_of_others(server: &Server) {
    let (mut one, mut two) = (server.line(), server.line());
    let handles: Vec<u64> = (1..=20).map(|id| one.empty(id, 64)).collect();
    one.send(&ask(30, WRITE, &[int(handles[0] as i64), int(0), int(64)]));
    one.send(&data(30, 0, &[0xaa; 64]));
    one.answer(30).unwrap();
    for handle in &handles {
        two.send(&ask(1, READ, &[int(*handle as i64), int(0), int(64)]));
        assert!(two.answer(1).unwrap_err().1.contains("does not exist in this session"));
    }
    // Releasing an object of another session ends this session, and not the other.
    two.send(&release(handles[0], 1));
    two.drain();
    one.send(&ask(31, READ, &[int(handles[0] as i64), int(0), int(64)]));
    assert_eq!(one.receive().unwrap().3[8..], [0xaa; 64]);
    one.answer(31).unwrap();
}

// R5

fn beyond_a_tensor(server: &Server) {
    let mut line = server.line();
    let tensor = line.empty(1, 16) as i64;
    let (min, max) = (i64::MIN, i64::MAX);
    for (first, count) in
        [(0, 17), (16, 1), (17, 0), (1, max), (max, 1), (max, max), (-1, 1), (0, -1), (min, 2), (0, min)]
    {
        for code in [READ, WRITE] {
            line.send(&ask(2, code, &[int(tensor), int(first), int(count)]));
            line.answer(2).unwrap_err();
        }
    }
    for (at, length) in [(0, 9), (1, 1), (u64::MAX, 8)] {
        line.send(&ask(3, WRITE, &[int(tensor), int(0), int(8)]));
        line.send(&data(3, at, &vec![1; length]));
        assert!(line.answer(3).unwrap_err().1.contains("at an unexpected offset"));
    }
    let other = line.empty(4, 8) as i64;
    for (from, to) in [(tensor, other), (other, tensor)] {
        line.send(&ask(5, COPY, &[int(from), int(to)]));
        line.answer(5).unwrap_err();
    }
}

fn impossible_tensors(server: &Server) {
    let mut line = server.line();
    let huge = 1_i64 << 62;
    for extents in [&[huge, huge][..], &[huge, 0, huge], &[-1], &[i64::MIN], &[i64::MAX], &[1; 65], &[1 << 40]]
    {
        line.send(&ask(1, EMPTY, &[shape(extents), dtype(1, 8, 1), device(1, 0)]));
        line.answer(1).unwrap_err();
    }
    for (code, bits, lanes) in [(3, 64, 1), (1, 0, 1), (1, 8, 0)] {
        line.send(&ask(2, EMPTY, &[shape(&[1 << 10]), dtype(code, bits, lanes), device(1, 0)]));
        line.answer(2).unwrap_err();
    }
    for (kind, number) in [(2, 0), (0, 0), (-1, 0), (i32::MAX, i32::MIN)] {
        line.send(&ask(3, EMPTY, &[shape(&[1]), dtype(1, 8, 1), device(kind, number)]));
        assert_eq!(line.answer(3).unwrap_err().0, "PermissionError");
    }
}

// R6

fn given_back_twice(server: &Server) {
    for (count, times) in [(1, 2), (2, 1), (u64::MAX, 1), (0, 1)] {
        let mut line = server.line();
        let tensor = line.empty(1, 16);
        for _ in 0..times {
            line.send(&release(tensor, count));
        }
        if count > 0 {
            line.drain();
        }
    }
}

fn given_back_in_use(server: &Server) {
    let mut line = server.line();
    let apply = line.global(1, "testing.apply");
    let tensor = line.empty(2, 1 << 20);
    line.send(&call(3, 0, 0, apply, &[mine(1, 1, "ffi.Function"), yours(tensor)]));
    let (kind, _, callback, _) = line.receive().unwrap();
    assert_eq!(kind, CALL);
    line.send(&release(apply, 1));
    // The callback has received the tensor once more, with the same handle.
    line.send(&[release(tensor, 1), frame(RETURN, 0, callback, &int(5))].concat());
    assert_eq!(line.answer(3).unwrap(), int(5));
    // An upload into a tensor that is released meanwhile.
    let tensor = line.empty(4, 1 << 20);
    line.send(&ask(5, WRITE, &[int(tensor as i64), int(0), int(1 << 20)]));
    line.send(&data(5, 0, &[1; 100_000]));
    line.send(&release(tensor, 1));
    for at in (100_000..1 << 20).step_by(100_000) {
        line.send(&data(5, at, &vec![1; 100_000.min((1 << 20) - at as usize)]));
    }
    let _ = line.answer(5);
}

// R7

fn paths(server: &Server) {
    let outside = || tree(&server.root).len();
    server.wait_until_quiet();
    let before = outside();
    let mut line = server.line();
    // This includes the folder of this session.
    let within = outside();
    assert!(within > before);
    let name = "0".repeat(63);
    for path in [
        "../x",
        "/etc/passwd",
        "",
        ".",
        "..",
        "0",
        "C:x",
        "\\\\?\\x",
        "//x/y",
        "x\0y",
        "~",
        "/dev/zero",
        "con",
        "%2e%2e%2f",
        &format!("{name}/"),
        &format!("{name}."),
        &format!("{name}\0"),
        &format!("{name}A"),
        &format!("../{}", &name[3..]),
        &"A".repeat(64),
        &"g".repeat(64),
        &"٣".repeat(32),
        &"0".repeat(65),
        &"0".repeat(1 << 17),
    ] {
        for (code, args) in
            [(PUT, vec![text(path), int(1)]), (LOAD, vec![text(path)]), (REMOVE, vec![text(path)])]
        {
            line.send(&ask(1, code, &args));
            let (kind, message) = line.answer(1).unwrap_err();
            assert_eq!(kind, "ValueError", "{path:?}: {message}");
        }
    }
    // A name with a claimed length of four gigabytes, of which nothing arrives.
    line.send(&ask(2, PUT, &[[&[5][..], &u32::MAX.to_le_bytes()].concat(), int(1)]));
    assert_eq!(line.answer(2).unwrap_err().0, "ValueError");
    // Files whose size is larger than allowed, or negative.
    for size in [1 << 31, 1 << 40, i64::MAX, -1, i64::MIN] {
        line.send(&ask(3, PUT, &[text(&"0".repeat(64)), int(size)]));
        line.answer(3).unwrap_err();
    }
    assert_eq!(outside(), within);
}

fn only_the_file(server: &Server) {
    use std::os::unix::fs::MetadataExt;
    server.wait_until_quiet();
    let mut line = server.line();
    let [folder] = <[_; 1]>::try_from(server.folders()).unwrap();
    let digest = put(&mut line, 1, b"no library");
    // The same file again, a file whose digest does not match its name, and an upload that is cancelled.
    line.send(&ask(2, PUT, &[text(&digest), int(10)]));
    line.send(&data(2, 0, b"no library"));
    line.answer(2).unwrap();
    line.send(&ask(3, PUT, &[text(&"0".repeat(64)), int(4)]));
    line.send(&data(3, 0, b"what"));
    assert!(line.answer(3).unwrap_err().1.contains("digest"));
    line.send(&ask(4, PUT, &[text(&"1".repeat(64)), int(4)]));
    line.send(&frame(CANCEL, 0, 4, b""));
    assert_eq!(line.answer(4).unwrap_err().0, "InterruptedError");
    let files: Vec<_> = tree(&folder).into_iter().filter(|path| !path.is_dir()).collect();
    let [file] = <[_; 1]>::try_from(files).unwrap();
    let metadata = std::fs::symlink_metadata(&file).unwrap();
    assert!(metadata.is_file() && metadata.mode() & 0o177 == 0 && metadata.nlink() == 1, "{metadata:?}");
    // A file that is not a library is not loaded, and the error does not contain its path.
    line.send(&ask(5, LOAD, &[text(&digest)]));
    let (_, why) = line.answer(5).unwrap_err();
    assert!(why.contains(&digest) && !why.contains(folder.to_str().unwrap()), "{why}");
    // A library that is written into the file after the check of its digest is not loaded either.
    std::fs::copy(plugin(), &file).unwrap();
    line.send(&ask(6, LOAD, &[text(&digest)]));
    let (_, why) = line.answer(6).unwrap_err();
    assert!(why.contains("no longer matches its digest"), "{why}");
}

// R9

fn callbacks_without_end(server: &Server) {
    let mut line = server.line();
    let apply = line.global(1, "testing.apply");
    let (mut id, mut parent) = (10, 0);
    // Each call claims to be at depth 0, but the server counts.
    let refused = loop {
        line.send(&call(id, parent, 0, apply, &[mine(1, 1, "ffi.Function")]));
        match line.receive().unwrap() {
            (CALL, _, callback, _) => (parent, id) = (callback, id + 1),
            (ERROR, _, _, payload) => break error_of(&payload),
            (RELEASE, ..) => {}
            other => panic!("{other:?}"),
        }
        assert!(id < 200, "no end");
    };
    // The limit is that of nesting or that of calls in progress, whichever is reached first.
    assert!(["RecursionError", "PermissionError"].contains(&&*refused.0), "{refused:?}");
    assert!(id > 40, "{id}");
}

// R10

fn cut_at_each_byte(server: &Server) {
    let session =
        [PREFACE, &frame(HELLO, 0, 0, b"me"), &ask(1, GLOBAL, &[text("testing.nop")]), &ask(2, INFO, &[])]
            .concat();
    for end in (0..40).chain((40..session.len()).step_by(5)) {
        let mut stream = server.connect();
        stream.write_all(&session[..end]).unwrap();
        if end % 2 == 0 {
            // The client disconnects at once, without reading the server's answer.
            continue;
        }
        stream.shutdown(Shutdown::Write).unwrap();
        rest(stream);
    }
}

// R13

fn texts_of_errors(server: &Server) {
    let mut line = server.line();
    let (echo, tensor) = (line.global(1, "testing.echo"), line.empty(2, 16));
    for handle in [echo, tensor] {
        line.send(&ask(3, TEXT, &[int(handle as i64)]));
        check_text(std::str::from_utf8(&line.answer(3).unwrap()[5..]).unwrap());
    }
    // Text from a client appears unescaped neither in errors nor in the log.
    for name in ["\x1b]0;title\x07\r\n", "\u{9b}2J", "a\nb", "\u{202e}abc"] {
        line.send(&ask(4, GLOBAL, &[text(name)]));
        assert_eq!(line.answer(4).unwrap_err().0, "PermissionError");
    }
    line.send(&ask(5, GLOBAL, &[text(&"x".repeat(1 << 16))]));
    assert!(line.answer(5).unwrap_err().1.len() < 200);
    // `answer` checks the texts of these errors.
    let raise = line.global(6, "testing.raise_error");
    for args in [vec![yours(tensor), yours(echo)], vec![text("\x1b[31m\u{9b}2J")], vec![]] {
        line.send(&call(7, 0, 0, raise, &args));
        line.answer(7).unwrap_err();
    }
    line.send(&frame(BYE, 0, 0, b"\x1b[2J good-bye\n\x07"));
    line.drain();
}

// R14

fn memory_of_others(server: &Server) {
    for _ in 0..3 {
        let mut line = server.line();
        for _ in 0..20 {
            let tensor = line.empty(1, 4096);
            line.send(&ask(2, READ, &[int(tensor as i64), int(0), int(4096)]));
            assert_eq!(line.receive().unwrap().3[8..], [0; 4096]);
            line.answer(2).unwrap();
            line.send(&ask(3, WRITE, &[int(tensor as i64), int(0), int(4096)]));
            line.send(&data(3, 0, &[0xaa; 4096]));
            line.answer(3).unwrap();
            line.send(&release(tensor, 1));
        }
    }
}
