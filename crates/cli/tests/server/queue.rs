//! Tests that waiting clients receive their position in the queue, and that no key can fill the queue alone.

use std::io::ErrorKind;
use std::time::Duration;

use anyfn_host::rpc::keys::generate_key;

use crate::hand::*;
use crate::rig::*;

#[test]
fn who_waits_is_told_its_place() {
    let server = Server::with_key(&[GRANTED, &["--exclusive"]].concat());
    let first = server.line();
    // The library reports the position when it times out. On a busy machine it may time out before it reaches the queue.
    let mut seconds = 1.0;
    loop {
        let error = server.session(seconds).map(drop).unwrap_err();
        assert_eq!(error.kind(), "TimeoutError");
        if error.message().contains("position 1 of its queue") {
            break;
        }
        seconds *= 2.0;
        assert!(seconds < SOON.as_secs_f64(), "{error}");
    }
    let mut waiting = Vec::new();
    for place in 1..=2_u32 {
        let mut line = Line::open_with_key(server.connect());
        line.send(&frame(HELLO, 0, 0, b"by hand"));
        // The server may still count the client above.
        let mut told = line.receive().unwrap();
        while told != (QUEUED, 0, 0, place.to_le_bytes().to_vec()) {
            assert_eq!(told.0, QUEUED);
            told = line.receive().unwrap();
        }
        waiting.push(line);
    }
    drop(first);
    let [mut second, mut third] = <[Line; 2]>::try_from(waiting).ok().unwrap();
    assert_eq!(second.receive().unwrap().0, WELCOME);
    assert_eq!(third.receive(), Some((QUEUED, 0, 0, vec![1, 0, 0, 0])));
    drop(second);
    assert_eq!(third.receive().unwrap().0, WELCOME);
    third.global(1, "testing.concat");
    drop(third);
    server.finish();
}

#[test]
fn a_key_that_fills_the_queue_lets_others_in() {
    let bob = generate_key("bob").unwrap();
    let keys = format!(
        "{{\"keys\": {{\"alice\": {{\"secret\": \"{}\", \"functions\": [\"testing.*\"]}}, \"bob\": {{\"secret\": \"{}\", \
         \"functions\": [\"testing.*\"]}}}}}}",
        ALICE.rsplit(':').next().unwrap(),
        bob.secret().to_text()
    );
    let server = Server::start(&[LOADS, &["--exclusive", "--queue", "3"]].concat(), Some(("--keys", &keys)));
    let first = server.line();
    let mut waiting: Vec<Line> = (0..3_u32)
        .map(|place| {
            let mut line = Line::open_with_key(server.connect());
            line.send(&frame(HELLO, 0, 0, b"by hand"));
            assert_eq!(line.receive(), Some((QUEUED, 0, 0, (place + 1).to_le_bytes().to_vec())));
            line
        })
        .collect();
    // One more client with the same key is refused.
    let mut late = Line::open_with_key(server.connect());
    late.send(&frame(HELLO, 0, 0, b"by hand"));
    let (kind, _, _, why) = late.receive().unwrap();
    assert_eq!(
        (kind, &*String::from_utf8(why).unwrap()),
        (BYE, "too many clients wait for this server; try again later")
    );
    // A client with another key is not refused: the last client in the queue has to leave.
    let (host, port, key) = (server.host.clone(), server.port, bob.to_text());
    let of_bob = std::thread::spawn(move || {
        let connect = anyfn::registry::get("rpc.connect").unwrap();
        connect.call((&*host, port, &*key, 30.0)).map(drop)
    });
    let (kind, _, _, why) = waiting.pop().unwrap().receive().unwrap();
    assert_eq!(kind, BYE);
    assert!(String::from_utf8(why).unwrap().contains("clients with other keys"));
    for line in &mut waiting {
        line.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let nothing = std::io::Read::read(&mut line.stream, &mut [0]).unwrap_err();
        assert!(matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    }
    drop((first, waiting, late));
    of_bob.join().unwrap().unwrap();
    server.finish();
}
