//! Tests that clients with a key are served while clients without a key flood the server with connections.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::hand::*;
use crate::rig::*;

/// Number of clients that flood the server.
const CLIENTS: usize = 8;

/// Number of connections that a client of the flood keeps open.
const KEPT: usize = 24;

/// Minimum number of key exchanges that the flood causes before the test ends.
const HANDSHAKES: usize = 400;

/// Number of ways in which clients of the flood end their connections.
const KINDS: usize = 4;

/// Connects to the server repeatedly until `over` is true. Increments `exchanges` for each handshake in which
/// the server has answered the key exchange.
fn flood(server: &Server, number: usize, recorded: &[u8], over: &AtomicBool, exchanges: &AtomicUsize) {
    let mut kept: Vec<UnixStream> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let mut stream = server.connect();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        if stream.write_all(recorded).is_err() {
            continue;
        }
        if number.is_multiple_of(KINDS) {
            // The client disconnects at once, so the server does work for no client.
            continue;
        }
        // The acceptance, and the server's part of the key exchange.
        let has_answered = stream.read_exact(&mut [0; 12 + 2 + 48]).is_ok();
        exchanges.fetch_add(usize::from(has_answered), Ordering::Relaxed);
        match number % KINDS {
            1 => drop(stream.shutdown(Shutdown::Both)),
            // A record that is not encrypted with any key.
            2 => drop(stream.write_all(&short(&[7; 40]))),
            // The client keeps as many connections as it can.
            _ => {
                kept.push(stream);
                if kept.len() > KEPT {
                    kept.remove(0);
                }
            }
        }
    }
}

/// Returns the bytes that a genuine client sends before the server answers the key exchange. An attacker can
/// replay them.
fn recorded_handshake() -> Vec<u8> {
    let first = preface_of("alice");
    let mut noise = initiator([7; 32], &[&first[..], ACCEPTED].concat());
    [&first[..], &exchange(&mut noise)].concat()
}

#[test]
fn of_key_exchanges() {
    let server = Server::with_key(GRANTED);
    let mut served = server.line();
    let recorded = recorded_handshake();
    let (over, exchanges) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut sessions, mut processes) = (0_u64, 0);
    let (mut let_in, mut answered) = (Duration::ZERO, Duration::ZERO);
    std::thread::scope(|scope| {
        // Ends the flood even if the test fails.
        let _over = Set(&over);
        for number in 0..CLIENTS {
            let (server, recorded, over, exchanges) = (&server, &recorded, &over, &exchanges);
            scope.spawn(move || flood(server, number, recorded, over, exchanges));
        }
        let started = Instant::now();
        while exchanges.load(Ordering::Relaxed) < HANDSHAKES || sessions < 5 {
            let made = exchanges.load(Ordering::Relaxed);
            assert!(started.elapsed() < 4 * SOON, "{made} handshakes, {sessions} sessions");
            let asked = Instant::now();
            server.serves();
            sessions += 1;
            let_in = let_in.max(asked.elapsed());
            let asked = Instant::now();
            assert!(served.serves(sessions));
            answered = answered.max(asked.elapsed());
            processes = processes.max(server.children().len());
        }
    });
    println!(
        "{} key exchanges; {sessions} clients with the key were let in, after {let_in:.2?} at most; a session was answered after \
         {answered:.2?} at most; {processes} processes at most",
        exchanges.load(Ordering::Relaxed),
    );
    // 16 processes whose clients have proved no key, two whose clients are served, and those that are just being ended.
    assert!(processes <= 40, "{processes} processes");
    drop(served);
    server.finish();
}

/// Guard that sets a flag when it is dropped.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
