//! What a call costs, counted.

use super::*;
use crate::establish::{self, Arrival};
use crate::keys::Key;
use anyfn::{IntoArgs, registry};
use anyfn_core as _;

/// Both sides of a session in this process; the second one serves.
fn session(key: Option<&Key>) -> (Arc<Connection>, Arc<Connection>) {
    let (here, there) = Socket::pair().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let wait = Duration::from_secs(60);
            let guest = Arrival::new(there, wait).unwrap().accept(key).unwrap();
            // Nothing is uploaded.
            guest.welcome(Policy::trusted(), std::env::temp_dir(), |_, _| {}).unwrap()
        });
        let client = establish::connect(here, key.cloned(), "test", Duration::from_secs(60)).unwrap();
        (client, served.join().unwrap())
    })
}

/// How often the sockets of both sides were read from, with success, and written to.
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
        .with_views(|views| client.call(&Target::Service(crate::service::code::GLOBAL), views))
        .unwrap();
    let (function, _) = found.get::<(PackedFunc, Option<String>)>().unwrap();
    let before = counts(&sides);
    for i in 0..100 {
        function.call((i, 2, 3)).unwrap();
    }
    let after = counts(&sides);
    let each: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    // Client: an answer and a call. Server: a call and an answer.
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
        .with_views(|views| client.call(&Target::Service(crate::service::code::GLOBAL), views))
        .unwrap();
    // As if it had come for a call that was given up meanwhile.
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

#[test]
fn a_silent_side_is_asked_and_given_up_when_it_does_not_answer() {
    let (client, server) = session(None);
    let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    // A client that wanted nothing for minutes: it asks, and waits for the answer from then on.
    client.has_heard.store(false, Ordering::Relaxed);
    lock(&client.state).heard = ago(200);
    client.look_around().unwrap();
    assert!(server.socket.poll(true, false, LOOK).unwrap(), "it has not asked");
    let asked = lock(&client.state).asked.expect("it does not know that it asked");
    client.look_around().unwrap();
    assert_eq!(lock(&client.state).asked, Some(asked), "it asks once");
    lock(&client.state).asked = Some(ago(ANSWER.as_secs() - 5));
    client.look_around().unwrap();
    // Any byte is an answer.
    client.has_heard.store(true, Ordering::Relaxed);
    client.look_around().unwrap();
    assert_eq!(lock(&client.state).asked, None);
    // No answer is none.
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
