//! Tests of connections, which also count the read and write system calls of a remote call.

use super::*;
use crate::establish::{self, Arrival};
use crate::keys::{Key, generate_key};
use crate::policy::Policy;
use anyfn::{AnyView, IntoArgs, registry};
use anyfn_loader as _;
use anyfn_protocol::endpoint::{Service, Target, WaiterEntry};
use anyfn_protocol::frame::{FrameKind, Frames, write_message};
use anyfn_protocol::sink::Sink;
use anyfn_protocol::{ClientOpening, ServerOpening, code};

/// Returns the client's end and the server's end of a session within this process, after the handshake.
fn session(key: Option<&Key>) -> (Connection, Connection) {
    let (here, there) = Socket::pair().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let wait = Duration::from_secs(60);
            let guest = Arrival::new(there, wait).unwrap().accept(key).unwrap();
            // No test uploads anything.
            guest.welcome(Policy::trusted(), std::env::temp_dir(), |_, _| {}).unwrap()
        });
        let client = establish::connect(here, key.cloned(), "test", Duration::from_secs(60), None).unwrap();
        (client, served.join().unwrap())
    })
}

/// Returns the number of successful reads and the number of writes on the socket of the client, and
/// then the same numbers for the server.
fn counts(sides: &(Connection, Connection)) -> [u64; 4] {
    let [a, b] =
        [&sides.0, &sides.1].map(|side| side.line.socket.calls.each_ref().map(|n| n.load(Ordering::Relaxed)));
    [a[0], a[1], b[0], b[1]]
}

fn check(key: Option<&Key>) {
    let nop = PackedFunc::new(|_| Ok(Any::NONE));
    registry::register("test.counted.nop").overriding().set(&nop).unwrap();
    let sides = session(key);
    let server = sides.1.clone();
    let served = std::thread::spawn(move || server.serve());
    let client = &sides.0;
    let found = ("test.counted.nop",)
        .with_views(|views| client.endpoint().call(&Target::Service(anyfn_protocol::code::GLOBAL), views))
        .unwrap();
    let (function, _) = found.get::<(PackedFunc, Option<String>)>().unwrap();
    let before = counts(&sides);
    for i in 0..100 {
        function.call((i, 2, 3)).unwrap();
    }
    let after = counts(&sides);
    let each: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    // The client reads an answer and writes a call; the server reads a call and writes an answer.
    assert_eq!(each, [100; 4], "reads and writes of the client, of the server");
    drop((function, found));
    client.close();
    served.join().unwrap();
}

#[test]
fn a_result_that_nobody_takes_is_given_back() {
    let (client, server, _) = reading(1);
    let entry = WaiterEntry::new(client.endpoint(), None).unwrap();
    let id = entry.id();
    dispatch(&client, FrameKind::Return, id, &functions(1), None);
    // The call is abandoned after its result has arrived.
    let (done, left) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(entry);
            done.send(()).unwrap();
        });
        left.recv_timeout(Duration::from_secs(30)).expect("it waits for the lock that it holds");
    });
    assert_eq!(outcome((&client, &server), id).1, [1]);
}

/// Makes the client dispatch a message as if the message had arrived from the peer. `interrupt` is
/// the state of the thread that reads.
fn dispatch(client: &Connection, kind: FrameKind, id: u64, payload: &[u8], interrupt: Option<&dyn Interrupt>) {
    let mut bytes = Vec::new();
    write_message(kind, id, payload, |header, part| {
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(part);
        Ok::<(), ()>(())
    })
    .unwrap();
    let endpoint = client.endpoint();
    let mut input = endpoint.input();
    for part in bytes.chunks(1024) {
        input.room()[..part.len()].copy_from_slice(part);
        input.received(part.len()).unwrap();
    }
    assert!(endpoint.hand_out(&mut input, interrupt).unwrap());
}

/// Returns both ends of a session, and the state of a thread that reads at the first end and waits for the
/// call `id`. No such thread actually runs.
fn reading(id: u64) -> (Connection, Connection, Reading) {
    let (client, server) = session(None);
    let origin = client.line.origin;
    (client, server, Reading { id, deadline: None, origin, given_up: Cell::new(None) })
}

#[test]
fn bytes_for_a_call_that_unwound_are_thrown_away() {
    let (client, _server, reading) = reading(1);
    let mut memory = vec![0_u8; 64];
    let data = |at: u64| [&at.to_le_bytes()[..], &[9; 32]].concat();
    let id = 1;
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let entry = WaiterEntry::new(client.endpoint(), Some(&mut memory)).unwrap();
        assert_eq!(entry.id(), id);
        dispatch(&client, FrameKind::Data, id, &data(0), Some(&reading));
        panic!("while it waits");
    }));
    assert!(unwound.is_err());
    assert_eq!(memory, [[9; 32], [0; 32]].concat());
    // The memory belongs to another owner now.
    dispatch(&client, FrameKind::Data, id, &data(32), Some(&reading));
    assert_eq!(memory, [[9; 32], [0; 32]].concat());
    let Step::Done(Err(error)) = client.endpoint().table().step(id, None) else { panic!("the entry exists") };
    assert_eq!(error.kind(), "InternalError");
}

/// Returns the serialised result of a call: an array of `count` functions of the peer, with a thousand small
/// values before each.
fn functions(count: u64) -> Vec<u8> {
    let key = b"ffi.Function";
    let mut out = [&[10][..], &(1001 * count as u32).to_le_bytes()].concat();
    for handle in 1..=count {
        out.extend([0; 1000]);
        out.push(16);
        out.extend(handle.to_le_bytes());
        out.push(1);
        out.extend((key.len() as u32).to_le_bytes());
        out.extend(key);
    }
    out
}

/// Returns the outcome of the call `id`, if available, and the handles that the client has
/// released, in ascending order. The handles are read from the socket of `server`, from which no
/// other code reads.
fn outcome((client, server): (&Connection, &Connection), id: u64) -> (Option<Result<Any>>, Vec<u64>) {
    let outcome = match client.endpoint().table().step(id, None) {
        Step::Done(outcome) => Some(outcome),
        _ => None,
    };
    // Any message takes the releases along.
    client.endpoint().cancel(u64::MAX).unwrap();
    let (mut frames, mut given) = (Frames::new(1 << 20), Vec::new());
    loop {
        let count = server.line.socket.read(frames.room(), true).unwrap();
        frames.filled(count);
        while let Some(message) = frames.next().unwrap() {
            if message.kind == FrameKind::Cancel {
                given.sort_unstable();
                return (outcome, given);
            }
            assert_eq!(message.kind, FrameKind::Release);
            for one in message.payload.chunks(16) {
                let (handle, times) = one.split_first_chunk::<8>().unwrap();
                assert_eq!(times, 1_u64.to_le_bytes());
                given.push(u64::from_le_bytes(*handle));
            }
        }
    }
}

/// Number of handles in a result. So few releases are not sent immediately, but with the next
/// message.
const COUNT: u64 = 63;

#[test]
fn a_result_is_not_read_to_its_end_when_time_is_over() {
    let (client, server, mut reading) = reading(1);
    let _entries = [1, 2].map(|id| {
        let entry = WaiterEntry::new(client.endpoint(), None).unwrap();
        assert_eq!(entry.id(), id);
        entry
    });
    let sides = (&client, &server);
    reading.deadline = Some(Duration::ZERO);
    dispatch(&client, FrameKind::Return, 1, &functions(COUNT), Some(&reading));
    let (own, given) = outcome(sides, 1);
    assert_eq!(own.unwrap().unwrap_err().kind(), "TimeoutError");
    // Handles of the values that were read, and of those that were not.
    assert_eq!(given, (1..=COUNT).collect::<Vec<_>>());
    assert!(reading.given_up.take().is_none(), "it has its outcome");
    // A result for another call is read nevertheless, and the reading thread stops waiting afterwards.
    dispatch(&client, FrameKind::Return, 2, &functions(COUNT), Some(&reading));
    let (other, given) = outcome(sides, 2);
    assert_eq!(
        (other.unwrap().unwrap().get::<anyfn::Array>().unwrap().len(), given),
        (1001 * COUNT as usize, vec![])
    );
    assert_eq!(reading.given_up.take().unwrap().kind(), "TimeoutError");
}

#[test]
fn a_result_that_nobody_waits_for_is_not_read_to_its_end() {
    let (client, server, reading) = reading(1);
    dispatch(&client, FrameKind::Return, 9, &functions(COUNT), Some(&reading));
    assert_eq!(outcome((&client, &server), 9).1, (1..=COUNT).collect::<Vec<_>>());
    // A result of a connection that is over is not read either.
    let entry = WaiterEntry::new(client.endpoint(), None).unwrap();
    client.endpoint().end(error!("ConnectionError", "it is over"));
    dispatch(&client, FrameKind::Return, 1, &functions(COUNT), Some(&reading));
    let Step::Done(result) = client.endpoint().table().step(1, None) else { panic!("no outcome") };
    assert_eq!(result.unwrap_err().message(), "it is over");
    drop(entry);
}

#[test]
fn a_service_that_panics_gives_an_error() {
    struct Panics;
    impl Service for Panics {
        fn call(&self, _: &Arc<Endpoint>, _: u64, _: u16, _: &[AnyView<'_>]) -> Result<Any> {
            panic!("a mistake");
        }
        fn upload(&self, _: &Endpoint, _: u16, _: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
            Ok(None)
        }
    }
    let limits = Policy::trusted().session_limits();
    let (here, there) = Socket::pair().unwrap();
    let mut opening = ClientOpening::new("test", None, |_| Ok(()), limits.clone());
    let mut guest = ServerOpening::new("client");
    guest.receive(&opening.take_output()).unwrap();
    guest.accept(None, |_| Ok(())).unwrap();
    opening.receive(&guest.take_output()).unwrap();
    guest.receive(&opening.take_output()).unwrap();
    let (opened, welcome) = guest.welcome(limits, Some(Box::new(Panics))).unwrap();
    let server = Connection::new(Socket::new(there).unwrap(), opened, None);
    let client = Connection::new(Socket::new(here).unwrap(), opening.receive(&welcome).unwrap().unwrap(), None);
    let served = std::thread::spawn(move || server.serve());
    for _ in 0..3 {
        let error = client.endpoint().call(&Target::Service(code::INFO), &[]).unwrap_err();
        assert_eq!((error.kind(), error.message()), ("InternalError", "a service of the session panicked"));
    }
    client.close();
    served.join().unwrap();
}

#[test]
fn a_silent_side_is_asked_and_given_up_when_it_does_not_answer() {
    let (client, server) = session(None);
    let endpoint = client.endpoint();
    let look = |seconds| endpoint.check_silence(Duration::from_secs(seconds));
    let pings = || {
        endpoint.flush_replies().unwrap();
        let mut frames = Frames::new(1 << 20);
        if let Ok(count) = server.line.socket.read(frames.room(), false) {
            frames.filled(count);
        }
        let mut pings = 0;
        while let Some(message) = frames.next().unwrap() {
            assert_eq!(message.kind, FrameKind::Ping);
            pings += 1;
        }
        pings
    };
    // A client that was idle for minutes asks the peer, and waits for the answer from then on.
    endpoint.note_heard();
    look(10).unwrap();
    assert_eq!(pings(), 0);
    look(210).unwrap();
    assert_eq!(pings(), 1);
    look(220).unwrap();
    assert_eq!(pings(), 0, "it asks once");
    // Any byte counts as an answer.
    endpoint.note_heard();
    look(224).unwrap();
    look(228).unwrap();
    assert_eq!(pings(), 0);
    // Without an answer the connection fails.
    look(240).unwrap();
    assert_eq!(pings(), 1);
    look(255).unwrap();
    let error = look(284).unwrap_err();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().ends_with("no answer for 60 seconds"), "{}", error.message());
}

#[test]
fn a_call_is_one_write_and_one_read_on_each_side() {
    check(None);
}

#[test]
fn with_a_key_too() {
    check(Some(&generate_key("tester").unwrap()));
}
