//! Tests of connections, which also count the read and write system calls of a remote call.

use super::*;
use crate::establish::{self, Arrival};
use crate::keys::Key;
use anyfn::{IntoArgs, registry};
use anyfn_loader as _;

/// Returns the client's end and the server's end of a session within this process, after the handshake.
fn session(key: Option<&Key>) -> (Arc<Connection>, Arc<Connection>) {
    let (here, there) = Socket::pair().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let wait = Duration::from_secs(60);
            let guest = Arrival::new(there, wait).unwrap().accept(key).unwrap();
            // No test uploads anything.
            guest.welcome(Policy::trusted(), std::env::temp_dir(), |_, _| {}).unwrap()
        });
        let client = establish::connect(here, key.cloned(), "test", Duration::from_secs(60)).unwrap();
        (client, served.join().unwrap())
    })
}

/// Returns the numbers of successful reads and of writes on the sockets of both ends.
fn counts(sides: &(Arc<Connection>, Arc<Connection>)) -> [u64; 4] {
    let [a, b] =
        [&sides.0, &sides.1].map(|side| side.socket.calls.each_ref().map(|n| n.load(Ordering::Relaxed)));
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
        .with_views(|views| client.call(&Target::Service(crate::code::GLOBAL), views))
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
    registry::register("test.left.nop").overriding().set(&PackedFunc::new(|_| Ok(Any::NONE))).unwrap();
    let (client, server) = session(None);
    let served = std::thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    let found = ("test.left.nop",)
        .with_views(|views| client.call(&Target::Service(crate::code::GLOBAL), views))
        .unwrap();
    // As if it had arrived for a call that was abandoned meanwhile.
    let id = 1 << 40;
    lock(&client.state).waiters.insert(id, Waiter { outcome: Some(Ok(found)), ..Waiter::default() });
    let (done, left) = std::sync::mpsc::channel();
    let leaving = client.clone();
    std::thread::spawn(move || {
        leaving.leave(lock(&leaving.state), id);
        done.send(()).unwrap();
    });
    left.recv_timeout(Duration::from_secs(30)).expect("it waits for the lock that it holds");
    assert_eq!(lock(&client.state).releases.len(), 1);
    client.close();
    served.join().unwrap();
}

/// Returns both ends of a session, and the state of a thread that reads at the first end and waits for the
/// call `id`. No such thread actually runs.
fn reading(id: u64) -> (Arc<Connection>, Arc<Connection>, Reading) {
    let (client, server) = session(None);
    (client, server, Reading { id, deadline: None, given_up: Cell::new(None) })
}

#[test]
fn bytes_for_a_call_that_unwound_are_thrown_away() {
    let (client, _server, reading) = reading(7);
    let mut memory = vec![0_u8; 64];
    let data = |at: u64| [&at.to_le_bytes()[..], &[9; 32]].concat();
    let id = 7;
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _entry = WaiterEntry::new(&client, id, Some(&mut memory)).unwrap();
        client.dispatch(FrameKind::Data, id, &data(0), Some(&reading)).unwrap();
        panic!("while it waits");
    }));
    assert!(unwound.is_err());
    assert_eq!(memory, [[9; 32], [0; 32]].concat());
    // The memory belongs to another owner now.
    client.dispatch(FrameKind::Data, id, &data(32), Some(&reading)).unwrap();
    assert_eq!(memory, [[9; 32], [0; 32]].concat());
    assert!(lock(&client.state).waiters.is_empty());
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

/// Returns the outcome of the call `id`, if available, and the handles that the client has released.
fn outcome(client: &Arc<Connection>, id: u64) -> (Option<Result<Any>>, Vec<u64>) {
    let mut state = lock(&client.state);
    let outcome = state.waiters.get_mut(&id).and_then(|waiter| waiter.outcome.take());
    let mut given = std::mem::take(&mut state.releases);
    given.sort_unstable();
    assert!(given.iter().all(|(_, count)| *count == 1));
    (outcome, given.into_iter().map(|(handle, _)| handle).collect())
}

#[test]
fn a_result_is_not_read_to_its_end_when_time_is_over() {
    // Fewer than are released immediately.
    let count = RELEASES as u64 - 1;
    let (client, _server, mut reading) = reading(7);
    let _entries = [7, 8].map(|id| WaiterEntry::new(&client, id, None).unwrap());
    reading.deadline = Some(Instant::now());
    client.dispatch(FrameKind::Return, 7, &functions(count), Some(&reading)).unwrap();
    let (own, given) = outcome(&client, 7);
    assert_eq!(own.unwrap().unwrap_err().kind(), "TimeoutError");
    // Handles of the values that were read, and of those that were not.
    assert_eq!(given, (1..=count).collect::<Vec<_>>());
    assert!(reading.given_up.take().is_none(), "it has its outcome");
    // A result for another call is read nevertheless, and the reading thread stops waiting afterwards.
    client.dispatch(FrameKind::Return, 8, &functions(count), Some(&reading)).unwrap();
    let (other, given) = outcome(&client, 8);
    assert_eq!(
        (other.unwrap().unwrap().get::<anyfn::Array>().unwrap().len(), given),
        (1001 * count as usize, vec![])
    );
    assert_eq!(reading.given_up.take().unwrap().kind(), "TimeoutError");
}

#[test]
fn a_result_that_nobody_waits_for_is_not_read_to_its_end() {
    let count = RELEASES as u64 - 1;
    let (client, _server, reading) = reading(7);
    client.dispatch(FrameKind::Return, 9, &functions(count), Some(&reading)).unwrap();
    assert_eq!(outcome(&client, 9).1, (1..=count).collect::<Vec<_>>());
    // A result of a connection that is over is not read either.
    let entry = WaiterEntry::new(&client, 7, None).unwrap();
    client.end(error!("ConnectionError", "it is over"));
    client.dispatch(FrameKind::Return, 7, &functions(count), Some(&reading)).unwrap();
    assert_eq!(outcome(&client, 7).0.unwrap().unwrap_err().message(), "it is over");
    drop(entry);
}

#[test]
fn a_service_that_panics_gives_an_error() {
    struct Panics;
    impl Service for Panics {
        fn call(&self, _: &Arc<Connection>, _: u64, _: u16, _: &[AnyView<'_>]) -> Result<Any> {
            panic!("a mistake");
        }
        fn upload(&self, _: &Connection, _: u16, _: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
            Ok(None)
        }
    }
    let (client, server) = session(None);
    let server = Arc::into_inner(server).unwrap();
    let server = Arc::new(Connection { service: Some(Box::new(Panics)), ..server });
    let served = std::thread::spawn(move || server.serve());
    for _ in 0..3 {
        let error = client.call(&Target::Service(crate::code::INFO), &[]).unwrap_err();
        assert_eq!((error.kind(), error.message()), ("InternalError", "a service of the session panicked"));
    }
    client.close();
    served.join().unwrap();
}

#[test]
fn a_silent_side_is_asked_and_given_up_when_it_does_not_answer() {
    let (client, server) = session(None);
    let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    // A client that was idle for minutes asks the peer, and waits for the answer from then on.
    client.has_heard.store(false, Ordering::Relaxed);
    lock(&client.state).heard = ago(200);
    client.look_around().unwrap();
    assert!(server.socket.poll(true, false, LOOK).unwrap(), "it has not asked");
    let asked = lock(&client.state).asked.expect("it does not know that it asked");
    client.look_around().unwrap();
    assert_eq!(lock(&client.state).asked, Some(asked), "it asks once");
    lock(&client.state).asked = Some(ago(ANSWER.as_secs() - 5));
    client.look_around().unwrap();
    // Any byte counts as an answer.
    client.has_heard.store(true, Ordering::Relaxed);
    client.look_around().unwrap();
    assert_eq!(lock(&client.state).asked, None);
    // Without an answer the connection fails.
    lock(&client.state).heard = ago(60);
    lock(&client.state).asked = Some(ago(ANSWER.as_secs() + 1));
    let error = client.look_around().unwrap_err();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().ends_with("no answer for 60 seconds"), "{}", error.message());
}

#[test]
fn a_call_is_one_write_and_one_read_on_each_side() {
    check(None);
}

#[test]
fn with_a_key_too() {
    check(Some(&Key::generate("tester").unwrap()));
}
