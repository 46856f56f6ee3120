//! Tests with hostile clients and servers. Each attack must end in an error or have no effect, and the next
//! client must be served.

mod hand;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyfn::{Any, PackedFunc, TensorView, registry};
use anyfn_loader as _;
use anyfn_random::Random;
use anyfn_reflect as _;
use anyfn_rpc::CALLS_MAX;
use anyfn_rpc::policy::Policy;
use anyfn_runtime as _;
use hand::random::{Functions, damage, send_frames};
use hand::*;

/// Allocator that counts the currently allocated bytes and their maximum.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: memory comes from the system's allocator and returns to it with the same layout; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's guarantees about `layout` are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `memory` came from `alloc` with this `layout`, and so from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn register(name: &str, function: PackedFunc) {
    registry::register(name).overriding().set(&function).unwrap();
}

fn policy() -> Policy {
    Policy {
        functions: vec!["test.attack.*".into()],
        upload: true,
        memory_bytes: 1 << 20,
        store_bytes: 1 << 20,
        message_bytes: 4 << 20,
        ..Policy::closed()
    }
}

fn register_all() {
    register("test.attack.echo", PackedFunc::new(|args| args.get::<Any>(0)));
    register("test.attack.count", PackedFunc::new(|args| Any::new(args.len())));
    register(
        "test.attack.wait",
        PackedFunc::new(|args| {
            args.get::<PackedFunc>(0)?.call(())?;
            loop {
                anyfn::check_signals()?;
                std::thread::sleep(Duration::from_millis(1));
            }
            #[allow(unreachable_code, reason = "the type of the result")]
            Any::new(())
        }),
    );
    register("test.attack.apply", PackedFunc::new(|args| args.get::<PackedFunc>(0)?.call((1,))));
    register(
        "test.attack.lend",
        PackedFunc::new(|args| {
            let memory = anyfn::Tensor::from_slice(&[4096], &[7_u8; 4096])?;
            let view: TensorView<'_> = memory.view();
            args.get::<PackedFunc>(0)?.call((view,))
        }),
    );
}

/// Starts a server and returns a client that has performed handshake and greeting.
fn session() -> (Line, Server) {
    register_all();
    greeted(policy())
}

/// Checks that the server still answers in a session, and then ends the session.
fn part(mut line: Line, server: Server) {
    assert!(line.serves(1 << 40));
    line.send(&frame(BYE, 0, 0, b"well"));
    assert!(server.join().unwrap().contains("well"));
}

/// Waits until the server has ended the session, and returns the reason.
fn ended(mut line: Line, server: Server) -> String {
    line.drain();
    let why = server.join().unwrap();
    check_text(&why);
    why
}

// R1

#[test]
fn without_the_key_there_is_no_session() {
    // With a wrong key, no answer reveals which part was wrong.
    let (mut stream, server) = serve(policy(), Some(ALICE));
    let first = preface_of("alice");
    stream.write_all(&first).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    let mut noise = initiator([8; 32], &[&first[..], &answer].concat());
    let mut message = [0; 256];
    let size = noise.write_message(&[], &mut message).unwrap();
    stream.write_all(&short(&message[..size])).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert!(server.join().unwrap().contains("key"));
    // The client sends its greeting without encryption.
    let (mut stream, server) = serve(policy(), Some(ALICE));
    stream.write_all(&first).unwrap();
    stream.read_exact(&mut answer).unwrap();
    stream.write_all(&frame(HELLO, 0, 0, b"")).unwrap();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    server.join().unwrap();
}

#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let (stream, server) = serve(policy(), Some(ALICE));
    let copy = stream.try_clone().unwrap();
    // Records what the client sends. The same key exchange and greeting are sent again later.
    let mut line = Line::greet_with_key(stream);
    line.send(&frame(BYE, 0, 0, b""));
    drop((line, copy));
    server.join().unwrap();
    let first = preface_of("alice");
    let prologue = [&first[..], ACCEPTED].concat();
    let mut noise = initiator([7; 32], &prologue);
    let mut message = [0; 256];
    let size = noise.write_message(&[], &mut message).unwrap();
    let exchange = short(&message[..size]);
    let mut recorded: Option<Vec<u8>> = None;
    let mut noise = Some(noise);
    for round in 0..2 {
        let (mut stream, server) = serve(policy(), Some(ALICE));
        stream.write_all(&[&first[..], &exchange].concat()).unwrap();
        let mut reply = [0; 12 + 2 + 48];
        stream.read_exact(&mut reply).unwrap();
        if let Some(mut noise) = noise.take() {
            noise.read_message(&reply[14..], &mut message).unwrap();
            let state = noise.into_stateless_transport_mode().unwrap();
            let mut out = [0; 16 + 16];
            state.write_message(0, &frame(HELLO, 0, 0, b""), &mut out).unwrap();
            recorded = Some(short(&out));
        }
        stream.write_all(recorded.as_ref().unwrap()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        // The first one is the genuine client, which is welcomed. The second one sends the same bytes and gets nothing.
        assert_eq!(rest.is_empty(), round == 1, "round {round}: {rest:?}");
        server.join().unwrap();
    }
}

#[test]
fn a_changed_preface_breaks_the_key_exchange() {
    // An attacker on the way changes the offered versions, so that the server might choose an old one.
    let (mut stream, server) = serve(policy(), Some(ALICE));
    let honest = preface_of("alice");
    let mut changed = honest.clone();
    changed[8] = 0;
    stream.write_all(&changed).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    let mut noise = initiator([7; 32], &[&honest[..], &answer].concat());
    let mut message = [0; 256];
    let size = noise.write_message(&[], &mut message).unwrap();
    stream.write_all(&short(&message[..size])).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    server.join().unwrap();
}

/// Connects to a fake server, which sends `answer` after the client's first bytes. Returns the client's
/// error.
fn connect_to(key: Option<&str>, answer: Vec<u8>) -> anyfn::Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 16];
        let _ = stream.read(&mut first).unwrap();
        stream.write_all(&answer).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let connect = registry::get("rpc.connect").unwrap();
    let error = connect.call(("127.0.0.1", port, key, 5.0)).unwrap_err();
    server.join().unwrap();
    check_text(&error.to_string());
    error
}

#[test]
fn a_client_with_a_key_does_not_speak_in_the_clear() {
    for answer in [
        ACCEPTED.to_vec(),
        [ACCEPTED, &frame(WELCOME, 0, 0, b"")].concat(),
        [ACCEPTED, &short(&[1; 48])].concat(),
        b"anyfnRPC\x01\x03\0\0".to_vec(),
        b"anyfnRPC\x01\x02\0\0".to_vec(),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ] {
        let error = connect_to(Some(ALICE), answer.clone());
        assert!(matches!(error.kind(), "PermissionError" | "ConnectionError"), "{answer:?}: {error}");
        assert!(!error.to_string().contains("BwcH"), "{error}");
    }
    // Control characters in a server's reason do not reach the terminal.
    let error = connect_to(None, b"anyfnRPC\x01\x04\x08\x00no\x1b[31m!".to_vec());
    assert!(error.message().contains("no[31m!"), "{error}");
}

// R2

#[test]
fn lengths_that_are_only_claimed_end_the_session() {
    for length in [0x4_0001_u32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        let (mut line, server) = session();
        let mut bytes = frame(CALL, 0, 1, b"");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        line.send(&bytes);
        assert!(ended(line, server).contains("a frame of at most"), "{length:#x}");
    }
    for bytes in [
        frame(0, 0, 1, b""),
        frame(QUEUED, 0, 0, &[1, 0, 0, 0]),
        frame(13, 0, 1, b""),
        frame(255, 0, 1, b""),
        frame(PING, 1, 1, b""),
        frame(CALL, 2, 1, b""),
        [&frame(PING, 0, 1, b"")[..6], &[1; 10]].concat(),
        frame(HELLO, 0, 0, b""),
        frame(WELCOME, 0, 0, b""),
        frame(DATA, 0, 1, b"short"),
        frame(RELEASE, 0, 0, b"short"),
    ] {
        let (mut line, server) = session();
        line.send(&bytes);
        ended(line, server);
    }
}

#[test]
fn silence_is_not_waited_for() {
    for sent in [&b""[..], b"anyfn", PREFACE, &[PREFACE, b"\xff\xff\x03\x00"].concat()] {
        let (mut stream, server) = serve_within(policy(), None, Duration::from_millis(500));
        let started = Instant::now();
        stream.write_all(sent).unwrap();
        assert!(server.join().unwrap().contains("within the time"));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn many_small_frames_take_no_memory() {
    let (mut line, server) = session();
    let before = LIVE.load(Ordering::Relaxed);
    let pings = frame(PING, 0, 1, b"").repeat(256);
    for round in 0..400_u64 {
        line.send(&pings);
        for _ in 0..256 {
            assert_eq!(line.receive().unwrap().0, PONG);
        }
        line.send(&data(round, 0, b""));
        line.send(&frame(CANCEL, 0, round, b""));
        line.send(&frame(RETURN, 0, round, &none()));
    }
    assert!(LIVE.load(Ordering::Relaxed) < before + (64 << 20));
    part(line, server);
    // A client that sends requests without end and reads nothing is disconnected.
    let (mut line, server) = session();
    line.stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    for _ in 0..4000 {
        if line.try_send(&pings).is_err() {
            break;
        }
    }
    drop(line);
    server.join().unwrap();
}

// R3

#[test]
fn memory_is_taken_for_what_has_come_only() {
    let (mut line, server) = session();
    let count = line.global(1, "test.attack.count");
    let head = call(2, 0, 0, count, &[])[16..].to_vec();
    let head = &head[..head.len() - 4];
    // Each of 60 arrays claims as many elements as there are bytes after it.
    let mut payload = head.to_vec();
    payload.extend_from_slice(&1_u32.to_le_bytes());
    let body = 3 << 20;
    for level in 0..60 {
        payload.push(10);
        payload.extend_from_slice(&(body as u32 - level).to_le_bytes());
    }
    payload.resize(payload.len() + body, 255);
    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    let before = LIVE.load(Ordering::Relaxed);
    for piece in payload.chunks(1 << 18) {
        line.send(&frame(CALL, 1, 2, piece));
    }
    line.send(&frame(CALL, 0, 2, b""));
    assert_eq!(line.answer(2).unwrap_err().0, "ValueError");
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(taken < 256 << 20, "{taken} bytes for a message of {}", payload.len());
    // Lengths that are larger than the message.
    for (id, tag) in [(3, 5), (4, 6), (5, 9), (6, 10), (7, 11), (8, 12), (9, 13), (10, 14), (11, 15)] {
        for claim in [1_u32, 0x7fff_ffff, 0xffff_ffff] {
            let bytes = [&[tag][..], &claim.to_le_bytes()].concat();
            line.send(&call(id, 0, 0, count, &[bytes]));
            assert_eq!(line.answer(id).unwrap_err().0, "ValueError", "tag {tag}");
        }
    }
    // Values that are nested too deeply, and a value of an unknown kind.
    let deep = (0..64).fold(none(), |inner, _| array(&[inner]));
    line.send(&call(12, 0, 0, count, &[deep]));
    assert!(line.answer(12).unwrap_err().1.contains("nested deeper"));
    line.send(&call(13, 0, 0, count, &[vec![18]]));
    assert!(line.answer(13).unwrap_err().1.contains("kind 18"));
    part(line, server);
    // A message in parts that exceeds the agreed length.
    let (mut line, server) = session();
    for _ in 0..20 {
        if line.try_send(&frame(CALL, 1, 2, &[0; 1 << 18])).is_err() {
            break;
        }
    }
    assert!(ended(line, server).contains("fragmented"));
}

#[test]
fn hostile_references_are_errors() {
    register_all();
    let (mut line, server) = greeted_2(policy());
    let count = line.global(1, "test.attack.count");
    let list = |items: &[Vec<u8>]| {
        let mut out = array(items);
        out[0] = 11;
        out
    };
    let cases = [
        // References to no value, to a later value, and to an incomplete value, which would contain itself.
        (again(0), "kept value 0"),
        (array(&[again(0), kept(&list(&[]))]), "kept value 0"),
        (kept(&list(&[again(0)])), "kept value 0"),
        (array(&[kept(&list(&[])), again(1)]), "kept value 1"),
        (array(&[kept(&list(&[])), again(u32::MAX)]), "kept value 4294967295"),
        // Handles, numbers, strings and kept values cannot be kept.
        (kept(&mine(1, 1, "ffi.Function")), "kind 16"),
        (kept(&yours(1 << 32)), "kind 17"),
        (kept(&int(1)), "kind 3"),
        (kept(&text("x")), "kind 5"),
        (kept(&kept(&list(&[]))), "kind 18"),
        (array(&[kept(&list(&[])), kept(&again(0))]), "kind 19"),
        (vec![18], "ends within"),
        (vec![19, 0, 0], "ends within"),
    ];
    for (id, (case, part)) in (2..).zip(cases) {
        line.send(&call(id, 0, 0, count, &[case]));
        let (kind, message) = line.answer(id).unwrap_err();
        assert!(kind == "ValueError" && message.contains(part), "{kind}: {message}");
    }
    // A value that was kept for one message does not exist in the next.
    line.send(&call(40, 0, 0, count, &[kept(&list(&[]))]));
    line.answer(40).unwrap();
    line.send(&call(41, 0, 0, count, &[again(0)]));
    assert!(line.answer(41).unwrap_err().1.contains("kept value 0"));
    // The nesting limit includes the value behind a reference: 40 levels in 40 others are too deep.
    let deep = |inner: Vec<u8>| (0..40).fold(inner, |inner, _| array(&[inner]));
    line.send(&call(42, 0, 0, count, &[kept(&deep(none())), deep(again(0))]));
    assert!(line.answer(42).unwrap_err().1.contains("nested deeper"));
    line.send(&call(
        43,
        0,
        0,
        count,
        &[kept(&deep(none())), (0..23).fold(again(0), |inner, _| array(&[inner]))],
    ));
    assert_eq!(line.answer(43).unwrap(), int(2));
    part(line, server);
}

#[test]
fn a_small_message_takes_little_memory_however_often_it_refers() {
    register_all();
    let (mut line, server) = greeted_2(policy());
    let (count, echo) = (line.global(1, "test.attack.count"), line.global(2, "test.attack.echo"));
    // A graph that expands to a tree of 2^60 leaves.
    let mut body = vec![kept(&array(&[none(), none()]))];
    body.extend((0..58).map(|number| kept(&array(&[again(number), again(number)]))));
    body.push(array(&[again(58), again(58)]));
    let bomb = array(&body);
    line.send(&call(3, 0, 0, echo, std::slice::from_ref(&bomb)));
    assert_eq!(line.answer(3).unwrap(), bomb);
    // Three MiB of references to a single value.
    let many = array(&[vec![kept(&array(&[]))], vec![again(0); 600_000]].concat());
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let payload = call(4, 0, 0, count, &[many])[16..].to_vec();
    for piece in payload.chunks(1 << 18) {
        line.send(&frame(CALL, 1, 4, piece));
    }
    line.send(&frame(CALL, 0, 4, b""));
    assert_eq!(line.answer(4).unwrap(), int(1));
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(taken < 16 * payload.len(), "{taken} bytes for a message of {}", payload.len());
    part(line, server);
}

#[test]
fn a_client_of_version_1_gets_a_tree_within_the_limit() {
    let bomb = PackedFunc::new(|args| {
        (0..args.get::<usize>(0)?).try_fold(Any::NONE, |value, _| Any::new(vec![value.clone(), value]))
    });
    register("test.attack.bomb", bomb);
    let (mut line, server) = session();
    let bomb = line.global(1, "test.attack.bomb");
    line.send(&call(2, 0, 0, bomb, &[int(2)]));
    assert_eq!(line.answer(2).unwrap(), array(&[array(&[none(), none()]), array(&[none(), none()])]));
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    line.send(&call(3, 0, 0, bomb, &[int(60)]));
    let (kind, message) = line.answer(3).unwrap_err();
    assert!(kind == "ValueError" && message.contains("more than 4194304 bytes"), "{kind}: {message}");
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(taken < 64 << 20, "{taken} bytes for a message of at most 4 MiB");
    part(line, server);
}

#[test]
fn hostile_graphs_are_errors() {
    let (mut line, server) = session();
    let echo = line.global(1, "test.attack.echo");
    // A chain of a hundred thousand nested arrays is a valid value, which is built and released without a
    // deep stack.
    let mut chain = String::from(r#"{"root_index":100000,"nodes":[{"type":"None"}"#);
    for index in 0..100_000 {
        chain.push_str(&format!(r#",{{"type":"ffi.Array","data":[{index}]}}"#));
    }
    chain.push_str("]}");
    let cases = [
        "",
        "{",
        "[]",
        "null",
        r#"{"root_index":0,"nodes":[]}"#,
        r#"{"root_index":-1,"nodes":[{"type":"None"}]}"#,
        r#"{"root_index":0,"nodes":[{"type":"ffi.Array","data":[7]}]}"#,
        r#"{"root_index":0,"nodes":[{"type":"rpc.Session","data":{"peer":0}}]}"#,
        r#"{"root_index":0,"nodes":[{"type":"ffi.Function","data":"system"}]}"#,
        r#"{"root_index":0,"nodes":[{"type":"ffi.Module","data":"x"}]}"#,
        r#"{"root_index":0,"nodes":[{"type":"ffi.OpaquePtr","data":4096}]}"#,
        r#"{"root_index":0,"nodes":[{"type":"no.such.type","data":{"#,
    ];
    for (id, case) in (2..).zip(cases) {
        line.send(&call(id, 0, 0, echo, &[graph(case)]));
        assert!(line.answer(id).is_err(), "{case}");
    }
    let count = line.global(50, "test.attack.count");
    for piece in call(51, 0, 0, count, &[graph(&chain)])[16..].chunks(1 << 18) {
        line.send(&frame(CALL, 1, 51, piece));
    }
    line.send(&frame(CALL, 0, 51, b""));
    let _ = line.answer(51);
    part(line, server);
}

#[test]
fn a_call_that_looks_hears_that_it_is_cancelled() {
    let (mut line, server) = session();
    let wait = line.global(1, "test.attack.wait");
    line.send(&call(2, 0, 0, wait, &[mine(1, 1, "ffi.Function")]));
    // The call is running: it has called back.
    assert_eq!(line.receive().unwrap().0, CALL);
    line.send(&frame(RETURN, 0, 1, &none()));
    assert!(line.serves(3));
    line.send(&frame(CANCEL, 0, 2, b""));
    assert_eq!(line.answer(2).unwrap_err().0, "CancelledError");
    part(line, server);
}

// R4, R6

#[test]
fn handles_that_are_forged_or_stale_name_nothing() {
    let (mut line, server) = session();
    let echo = line.global(1, "test.attack.echo");
    let tensor = line.empty(2, 16);
    let (mut id, mut errors) = (10, Vec::new());
    for handle in [0, 1, 2, u64::MAX, 1 << 32, 1 << 62, echo + 1000, echo ^ (1 << 32), echo | 1 << 62, 1 << 63]
    {
        line.send(&call(id, 0, 0, handle, &[]));
        errors.push(line.answer(id).unwrap_err());
        line.send(&call(id + 1, 0, 0, echo, &[yours(handle)]));
        errors.push(line.answer(id + 1).unwrap_err());
        for (at, code) in
            [MODULE_FUNCTION, MODULE_NAMES, WRITE, READ, TIME, TEXT, FIELD, COPY].iter().enumerate()
        {
            line.send(&ask(id + 2 + at as u64, *code, &[int(handle as i64), int(0), int(1)]));
            errors.push(line.answer(id + 2 + at as u64).unwrap_err());
        }
        id += 10;
    }
    assert!(
        errors.iter().all(|(kind, _)| kind == "ValueError" || kind == "TypeError" || kind == "OverflowError")
    );
    // A valid handle of an object of another kind.
    line.send(&call(500, 0, 0, tensor, &[]));
    assert!(line.answer(500).unwrap_err().1.contains("is a tensor, not a function"));
    for code in [READ, WRITE] {
        line.send(&ask(501, code, &[int(echo as i64), int(0), int(1)]));
        assert!(line.answer(501).unwrap_err().1.contains("is a function, not a tensor"));
    }
    line.send(&ask(502, MODULE_NAMES, &[int(tensor as i64)]));
    assert_eq!(line.answer(502).unwrap_err().0, "TypeError");
    // The tensor is freed, and its slot is used again.
    line.send(&release(tensor, 1));
    let again = line.empty(503, 16);
    assert_eq!(again as u32, tensor as u32);
    assert_ne!(again, tensor);
    line.send(&ask(504, READ, &[int(tensor as i64), int(0), int(1)]));
    assert!(line.answer(504).unwrap_err().1.contains("does not exist in this session"));
    part(line, server);
}

#[test]
fn giving_back_too_much_ends_the_session() {
    for (count, times) in [(1, 2), (2, 1), (u64::MAX, 1)] {
        let (mut line, server) = session();
        let tensor = line.empty(1, 16);
        for _ in 0..times {
            line.send(&release(tensor, count));
        }
        assert!(ended(line, server).contains("cannot release handle"));
    }
    // An object that a call in progress uses lives until the call ends.
    let (mut line, server) = session();
    let apply = line.global(1, "test.attack.apply");
    line.send(&call(2, 0, 0, apply, &[mine(1, 1, "ffi.Function")]));
    assert_eq!(line.receive().unwrap().0, CALL);
    line.send(&release(apply, 1));
    line.send(&frame(RETURN, 0, 1, &int(5)));
    assert_eq!(line.answer(2).unwrap(), int(5));
    part(line, server);
}

#[test]
fn lent_memory_is_not_used_after_the_call() {
    let (mut line, server) = session();
    let lend = line.global(1, "test.attack.lend");
    line.send(&call(2, 0, 0, lend, &[mine(1, 1, "ffi.Function")]));
    let (kind, _, id, payload) = line.receive().unwrap();
    assert_eq!((kind, id), (CALL, 1));
    let lent = u64::from_le_bytes(payload[24..32].try_into().unwrap());
    // The client releases the borrowed tensor, but may use it until the call ends. Passing it on is refused,
    // and a transfer into it is left unfinished.
    line.send(&release(lent, 1));
    line.send(&release(lent, 1));
    line.send(&ask(3, READ, &[int(lent as i64), int(4095), int(1)]));
    assert_eq!(line.receive(), Some((DATA, 0, 3, [&[0; 8][..], &[7]].concat())));
    assert_eq!(line.answer(3).unwrap(), none());
    line.send(&call(4, 0, 0, lend, &[yours(lent)]));
    assert!(line.answer(4).unwrap_err().1.contains("borrowed"));
    line.send(&ask(5, WRITE, &[int(lent as i64), int(0), int(4096)]));
    line.send(&data(5, 0, &[1; 100]));
    line.send(&frame(RETURN, 0, 1, &int(9)));
    let mut answers = [false; 2];
    while answers != [true; 2] {
        match line.receive().unwrap() {
            (RETURN, 0, 2, value) => {
                assert_eq!(value, int(9));
                answers[0] = true;
            }
            (ERROR, 0, 5, payload) => {
                assert!(error_of(&payload).1.contains("has ended"));
                answers[1] = true;
            }
            (RELEASE, ..) => {}
            other => panic!("{other:?}"),
        }
    }
    line.send(&data(5, 100, &[1; 100]));
    line.send(&ask(6, READ, &[int(lent as i64), int(0), int(1)]));
    assert!(line.answer(6).unwrap_err().1.contains("does not exist in this session"));
    part(line, server);
}

// R5, R14

#[test]
fn parts_lie_within_their_tensor() {
    let (mut line, server) = session();
    let tensor = line.empty(1, 16) as i64;
    for (first, count) in [
        (0, 17),
        (16, 1),
        (17, 0),
        (1, i64::MAX),
        (i64::MAX, 1),
        (i64::MAX, i64::MAX),
        (-1, 1),
        (0, -1),
        (i64::MIN, 2),
    ] {
        for code in [READ, WRITE] {
            line.send(&ask(2, code, &[int(tensor), int(first), int(count)]));
            assert!(line.answer(2).is_err(), "{first} {count}");
        }
    }
    // More data than announced, data out of order, and data of no announced transfer.
    for (at, length) in [(0, 9), (1, 1), (u64::MAX, 8)] {
        line.send(&ask(3, WRITE, &[int(tensor), int(0), int(8)]));
        line.send(&data(3, at, &vec![1; length]));
        assert!(line.answer(3).unwrap_err().1.contains("at an unexpected offset"));
    }
    line.send(&data(99, 0, &[1; 8]));
    // Shapes whose size overflows or is invalid.
    let huge = 1_i64 << 62;
    for extents in [&[huge, huge][..], &[huge, 0, huge], &[-1], &[i64::MIN], &[1 << 21], &[1; 65]] {
        line.send(&ask(4, EMPTY, &[shape(extents), dtype(1, 8, 1), device(1, 0)]));
        assert!(line.answer(4).is_err(), "{extents:?}");
    }
    for (code, bits, lanes) in [(3, 64, 1), (1, 0, 1), (1, 8, 0), (2, 64, 65535)] {
        line.send(&ask(5, EMPTY, &[shape(&[1 << 10]), dtype(code, bits, lanes), device(1, 0)]));
        assert!(line.answer(5).is_err(), "{code} {bits} {lanes}");
    }
    for (kind, number) in [(2, 0), (0, 0), (-1, 0), (i32::MAX, i32::MIN)] {
        line.send(&ask(6, EMPTY, &[shape(&[1]), dtype(1, 8, 1), device(kind, number)]));
        assert_eq!(line.answer(6).unwrap_err().0, "PermissionError");
    }
    // Copies between tensors of different sizes.
    let other = line.empty(7, 8) as i64;
    line.send(&ask(8, COPY, &[int(tensor), int(other)]));
    assert!(line.answer(8).is_err());
    part(line, server);
}

#[test]
fn new_memory_holds_nothing_of_the_old() {
    let (mut line, server) = session();
    for round in 0..50 {
        let tensor = line.empty(1, 4096);
        line.send(&ask(2, READ, &[int(tensor as i64), int(0), int(4096)]));
        assert_eq!(line.receive().unwrap().3[8..], [0; 4096], "round {round}");
        line.answer(2).unwrap();
        line.send(&ask(3, WRITE, &[int(tensor as i64), int(0), int(4096)]));
        line.send(&data(3, 0, &[0xaa; 4096]));
        line.answer(3).unwrap();
        line.send(&release(tensor, 1));
    }
    part(line, server);
}

// R8

/// Tests that a function that takes raw addresses cannot be looked up, even if the function is
/// granted by its name or by a pattern that matches all functions.
#[test]
fn functions_that_trust_addresses_are_never_granted() {
    const OURS: &str = "test.attack.poke";
    register_all();
    let poke = anyfn::Unsafe(|_place: anyfn::OpaquePtr| ());
    registry::register(OURS).overriding().set_body_typed(poke).unwrap();
    let names = [OURS, "runtime.TVMTensorCopyToBytes", "ffi.FunctionFromExternC", "ffi.MakeFieldSetter"];
    for (functions, is_wide) in [(vec!["*".to_string()], true), (names.map(String::from).to_vec(), false)] {
        let (mut line, server) = greeted(Policy { functions, ..Policy::trusted() });
        line.send(&ask(1, NAMES, &[]));
        let listed = String::from_utf8_lossy(&line.answer(1).unwrap()).into_owned();
        assert_eq!(listed.contains("test.attack.echo"), is_wide, "{listed}");
        for (id, name) in (2..).zip(names) {
            // SAFETY: the obligations of `find_unsafe` concern calls of the function, and the function is not called.
            assert!(unsafe { registry::find_unsafe(name) }.is_some(), "{name}");
            line.send(&ask(id, GLOBAL, &[text(name)]));
            let (kind, message) = line.answer(id).unwrap_err();
            assert_eq!(kind, "PermissionError", "{name}");
            assert!(message.contains("trusts the addresses"), "{message}");
            assert!(!listed.contains(name), "{name} in {listed}");
        }
        part(line, server);
    }
}

#[test]
fn no_function_is_there_without_a_grant() {
    register_all();
    let (mut line, server) = greeted(Policy::closed());
    for (id, name) in (1..).zip(registry::list().unwrap()) {
        line.send(&ask(id, GLOBAL, &[text(&name)]));
        assert_eq!(line.answer(id).unwrap_err().0, "PermissionError", "{name}");
    }
    line.send(&ask(1 << 30, NAMES, &[]));
    assert_eq!(line.answer(1 << 30).unwrap(), array(&[]));
    for code in [HAS, PUT, FILES, REMOVE, LOAD] {
        line.send(&ask(2 << 30, code, &[text(&"0".repeat(64)), int(1)]));
        assert_eq!(line.answer(2 << 30).unwrap_err().0, "PermissionError", "{code}");
    }
    part(line, server);
    // A file can be named only by its digest (R7).
    let (mut line, server) = session();
    for name in ["../x", "/etc/passwd", "", "0", "C:x", "\\\\?\\x", "x\0y", &"A".repeat(64), &"g".repeat(64)] {
        line.send(&ask(1, PUT, &[text(name), int(1)]));
        assert_eq!(line.answer(1).unwrap_err().0, "ValueError", "{name}");
        line.send(&ask(2, LOAD, &[text(name)]));
        assert_eq!(line.answer(2).unwrap_err().0, "ValueError", "{name}");
    }
    part(line, server);
}

// R9

#[test]
fn nesting_is_counted_here_not_believed() {
    register_all();
    let (mut line, server) = greeted(Policy { calls: 4096, ..policy() });
    let apply = line.global(1, "test.attack.apply");
    // Each call belongs to the previous callback, and claims to be at depth 0.
    let mut id = 10;
    let mut parent = 0;
    let refused = loop {
        line.send(&call(id, parent, 0, apply, &[mine(1, 1, "ffi.Function")]));
        let answer = loop {
            match line.receive().unwrap() {
                (RELEASE, ..) => {}
                answer => break answer,
            }
        };
        match answer {
            (CALL, _, callback, _) => parent = callback,
            (ERROR, _, of, payload) => {
                assert_eq!(of, id);
                break error_of(&payload);
            }
            other => panic!("{other:?}"),
        }
        id += 1;
        assert!(id < 10 + 2 * u64::from(CALLS_MAX), "no end");
    };
    assert!(refused.0 == "RecursionError", "{refused:?}");
    drop(line);
    server.join().unwrap();
    let (mut line, server) = session();
    let apply = line.global(1, "test.attack.apply");
    line.send(&call(2, 0, CALLS_MAX, apply, &[none()]));
    assert_eq!(line.answer(2).unwrap_err().0, "RecursionError");
    // A call whose parent does not exist runs like any other.
    let count = line.global(3, "test.attack.count");
    line.send(&call(4, 77, 3, count, &[none()]));
    assert_eq!(line.answer(4).unwrap(), int(1));
    part(line, server);
}

#[test]
fn two_answers_to_one_call_do_no_harm() {
    let (mut line, server) = session();
    let apply = line.global(1, "test.attack.apply");
    line.send(&call(2, 0, 0, apply, &[mine(1, 1, "ffi.Function")]));
    assert_eq!(line.receive().unwrap().0, CALL);
    // All answers are sent in one write, so that they arrive before the server reads the first.
    let value = mine(5, 1, "ffi.Function");
    line.send(
        &[frame(RETURN, 0, 1, &value), frame(RETURN, 0, 1, &value), frame(RETURN, 0, 1, &value)].concat(),
    );
    assert_eq!(line.answer(2).unwrap(), yours(5));
    part(line, server);
}

// R13

#[test]
fn texts_show_no_addresses_and_give_no_orders() {
    let (mut line, server) = session();
    let echo = line.global(1, "test.attack.echo");
    let tensor = line.empty(2, 16);
    for (id, handle) in [(3, echo), (4, tensor)] {
        line.send(&ask(id, TEXT, &[int(handle as i64)]));
        let answer = line.answer(id).unwrap();
        check_text(std::str::from_utf8(&answer[5..]).unwrap());
    }
    line.send(&ask(5, GLOBAL, &[text("\x1b]0;title\x07\r\n")]));
    assert_eq!(line.answer(5).unwrap_err().0, "PermissionError");
    line.send(&ask(6, GLOBAL, &[text(&"x".repeat(1 << 16))]));
    assert!(line.answer(6).unwrap_err().1.len() < 200);
    // Here the server returns a string from the client: the error that its function received from the client.
    let apply = line.global(7, "test.attack.apply");
    line.send(&call(8, 0, 0, apply, &[mine(1, 1, "ffi.Function")]));
    assert_eq!(line.receive().unwrap().0, CALL);
    line.send(&frame(ERROR, 0, 1, &error("Value\x1b[1mError", "red \x1b[31m text\r\u{9b}2J\nnext")));
    let (kind, message) = line.answer(8).unwrap_err();
    assert_eq!((&*kind, &*message), (r"Value\u{1b}[1mError", "red \\u{1b}[31m text\\r\\u{9b}2J\nnext"));
    part(line, server);
}

// R15

#[test]
fn there_is_only_so_much() {
    let policy = Policy { handles: 10, calls: 8, ..policy() };
    register_all();
    let (mut line, server) = greeted(policy);
    let tensors: Vec<u64> = (1..=10).map(|id| line.empty(id, 16)).collect();
    line.send(&ask(20, EMPTY, &[shape(&[1]), dtype(1, 8, 1), device(1, 0)]));
    assert_eq!(line.answer(20).unwrap_err().0, "PermissionError");
    line.send(&release(tensors[9], 1));
    line.send(&ask(21, EMPTY, &[shape(&[1 << 20]), dtype(1, 8, 1), device(1, 0)]));
    assert_eq!(line.answer(21).unwrap_err().0, "MemoryError");
    // Transfers that begin but never end count as calls in progress.
    for id in 30..38 {
        line.send(&ask(id, WRITE, &[int(tensors[0] as i64), int(0), int(16)]));
    }
    line.send(&ask(38, INFO, &[]));
    assert!(line.answer(38).unwrap_err().1.contains("in progress"));
    for id in 30..38 {
        line.send(&frame(CANCEL, 0, id, b""));
        assert_eq!(line.answer(id).unwrap_err().0, "InterruptedError");
    }
    // Files that are being uploaded count, and small ones count as a page.
    let digest = |byte: u8| format!("{byte:064x}");
    line.send(&ask(40, PUT, &[text(&digest(1)), int(600_000)]));
    line.send(&ask(41, PUT, &[text(&digest(2)), int(600_000)]));
    assert_eq!(line.answer(41).unwrap_err().0, "PermissionError");
    line.send(&frame(CANCEL, 0, 40, b""));
    assert_eq!(line.answer(40).unwrap_err().0, "InterruptedError");
    line.send(&ask(42, PUT, &[text(&digest(3)), int(4)]));
    line.send(&data(42, 0, b"what"));
    assert!(line.answer(42).unwrap_err().1.contains("digest"));
    line.send(&ask(43, FILES, &[]));
    assert_eq!(line.answer(43).unwrap(), [12, 0, 0, 0, 0]);
    part(line, server);
}

// Everything else

/// Runs all other tests of this program a second time, in encrypted sessions.
#[test]
fn all_of_it_with_a_key() {
    again_with_a_key("all_of_it_with_a_key", 20);
}

/// Returns a random seed, and a function that decides from the number of completed steps whether the test
/// continues. `ANYFN_FUZZ_SECONDS` sets the duration, `ANYFN_RPC_FUZZ` the number of steps (by default
/// `most`), and `ANYFN_FUZZ_SEED` the seed.
fn fuzzing(most: usize) -> (u64, impl Fn(usize) -> bool) {
    let most = anyfn_random::setting("ANYFN_RPC_FUZZ", most as u64) as usize;
    let (seed, time, started) = (anyfn_random::seed(), anyfn_random::time(), Instant::now());
    (seed, move |done| time.map_or(done < most, |time| started.elapsed() < time))
}

#[test]
fn whatever_comes_first_the_server_does_not_fall() {
    let (seed, goes_on) = fuzzing(1_000);
    let (mut random, mut rounds, mut answers) = (Random::new(seed), 0, 0);
    while goes_on(rounds) {
        rounds += 1;
        let with_key = random.below(2) == 0;
        let (mut stream, server) = serve(policy(), with_key.then_some(ALICE));
        let mut first = if with_key { preface_of("alice") } else { PREFACE.to_vec() };
        let mut second = match with_key {
            true => exchange(&mut initiator([7; 32], &[&first[..], ACCEPTED].concat())),
            false => frame(HELLO, 0, 0, b"by hand"),
        };
        match random.below(4) {
            0 => damage(&mut random, &mut first),
            1 => damage(&mut random, &mut second),
            _ => {}
        }
        if random.below(4) == 0 {
            second = (0..random.below(300)).map(|_| random.byte()).collect();
        }
        let third: Vec<u8> = (0..random.below(100)).map(|_| random.byte()).collect();
        for part in [first, second, third] {
            let _ = stream.write_all(&part);
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        // With a key, nothing follows the server's half of the key exchange, because the client has not proved its key.
        assert!(!with_key || rest.len() <= 12 + 50, "{rest:?}: seed {seed}, round {rounds}");
        answers += usize::from(!rest.is_empty());
        let why =
            server.join().unwrap_or_else(|_| panic!("the server has fallen: seed {seed}, round {rounds}"));
        check_text(&why);
    }
    assert!(answers > rounds / 4, "{answers} answers in {rounds} rounds");
}

const FUNCTIONS: Functions = ["test.attack.apply", "test.attack.echo", "test.attack.lend"];

#[test]
fn whatever_comes_the_server_does_not_fall() {
    register_all();
    let (seed, goes_on) = fuzzing(20_000);
    let (mut random, mut frames, mut sessions, mut returns) = (Random::new(seed), 0, 0, 0);
    while goes_on(frames) {
        let (mut line, server) = if sessions % 2 == 0 { session() } else { greeted_2(policy()) };
        frames += send_frames(&mut random, &mut line, &FUNCTIONS);
        let _ = line.stream.shutdown(std::net::Shutdown::Write);
        line.drain();
        let started = Instant::now();
        server.join().unwrap_or_else(|_| panic!("the server has fallen: seed {seed}, session {sessions}"));
        assert!(started.elapsed() < Duration::from_secs(20), "it hangs: seed {seed}, session {sessions}");
        returns += line.returns;
        sessions += 1;
    }
    // The server has executed calls, not only refused them.
    assert!(returns > frames / 20, "{returns} results for {frames} frames in {sessions} sessions");
    let (line, server) = session();
    part(line, server);
}
