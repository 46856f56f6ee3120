//! Tests a server with many concurrent clients, each of which calls, uploads, cancels and vanishes.
//! No client may starve, and no session may remain.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyfn_random::Random;

use crate::boundaries::Client;
use crate::hand::*;
use crate::rig::*;

/// Statistics that a client collects about its sessions.
#[derive(Default)]
struct Got {
    sessions: u64,
    calls: u64,
    /// Longest time that the client waited for a session.
    waited: Duration,
    /// Longest time that a short call took.
    longest_call: Duration,
}

/// Minimum number of sessions that each client must have had before the test ends.
const SESSIONS: u64 = 6;

fn one_session(server: &Server, random: &mut Random, got: &mut Got) {
    let started = Instant::now();
    let mut line = server.line();
    got.waited = got.waited.max(started.elapsed());
    got.sessions += 1;
    let concat = line.global(1, "testing.concat");
    for _ in 0..10 {
        let started = Instant::now();
        line.send(&call(2, 0, 0, concat, &[text("a"), text("b")]));
        assert_eq!(line.answer(2).unwrap(), text("ab"));
        got.longest_call = got.longest_call.max(started.elapsed());
        got.calls += 1;
    }
    let kind = random.below(6);
    match kind {
        // A tensor is written and read back.
        0 | 1 => {
            let (tensor, byte) = (line.empty(3, 65536) as i64, random.byte());
            line.send(&ask(4, WRITE, &[int(tensor), int(0), int(65536)]));
            line.send(&data(4, 0, &[byte; 65536]));
            line.answer(4).unwrap();
            line.send(&ask(5, READ, &[int(tensor), int(0), int(65536)]));
            let (kind, _, _, payload) = line.receive().unwrap();
            assert!(kind == DATA && payload[8..].iter().all(|other| *other == byte));
            line.answer(5).unwrap();
            got.calls += 2;
        }
        2 => {
            let content: Vec<u8> = (0..20_000).flat_map(|_| random.number().to_le_bytes()).collect();
            let digest = put(&mut line, 3, &content);
            if random.below(2) == 0 {
                line.send(&ask(4, REMOVE, &[text(&digest)]));
                line.answer(4).unwrap();
            }
            got.calls += 1;
        }
        3 => {
            let sleep = line.global(3, "testing.sleep");
            line.send(&call(4, 0, 0, sleep, &[float(60.0), bool(true)]));
            line.send(&frame(CANCEL, 0, 4, b""));
            line.answer(4).unwrap_err();
            got.calls += 1;
        }
        // The client vanishes without a message, during an upload or during a call.
        4 => {
            line.send(&ask(3, PUT, &[text(&"0".repeat(64)), int(500_000)]));
            return line.send(&data(3, 0, &[1; 100_000]));
        }
        _ => {
            let sleep = line.global(3, "testing.sleep");
            return line.send(&call(4, 0, 0, sleep, &[float(60.0), bool(true)]));
        }
    }
    line.send(&frame(BYE, 0, 0, b"well"));
    line.drain();
}

fn many(clients: usize, time: Duration, server: Server) {
    let over = AtomicBool::new(false);
    let killed = AtomicU64::new(0);
    let sessions: Vec<AtomicU64> = (0..clients).map(|_| AtomicU64::new(0)).collect();
    let mut memory = Vec::new();
    let mut all: Vec<Got> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..clients)
            .map(|number| {
                let (server, over, had) = (&server, &over, &sessions[number]);
                scope.spawn(move || {
                    let (mut random, mut got) = (Random::new(number as u64), Got::default());
                    while !over.load(Ordering::Relaxed) {
                        one_session(server, &mut random, &mut got);
                        had.store(got.sessions, Ordering::Relaxed);
                    }
                    got
                })
            })
            .collect();
        // One more client is a process that is killed, at one boundary after the other.
        let killer = scope.spawn(|| {
            let mut at = 0;
            while !over.load(Ordering::Relaxed) {
                match Client::start(&server, at, &[]) {
                    Some(client) => client.signal(libc::SIGKILL),
                    None => at = 0,
                }
                at += 1;
                killed.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        for part in 1..=10 {
            std::thread::sleep(time / 10);
            if [1, 5, 10].contains(&part) {
                memory.push(server.memory());
            }
        }
        // On a slow machine it takes longer until each client has had several sessions. The check below finds starved clients.
        let late = Instant::now() + 4 * SOON;
        while sessions.iter().any(|had| had.load(Ordering::Relaxed) < SESSIONS) && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Ordering::Relaxed);
        killer.join().unwrap();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    all.sort_by_key(|got| got.calls);
    let (least, middle, most) = (&all[0], &all[clients / 2], &all[clients - 1]);
    let sessions: u64 = all.iter().map(|got| got.sessions).sum();
    let waited = all.iter().map(|got| got.waited).max().unwrap();
    let longest = all.iter().map(|got| got.longest_call).max().unwrap();
    println!(
        "{clients} clients, {time:?}: {sessions} sessions; calls of a client {} to {}, in the middle {}; longest wait for a \
         session {waited:.2?}, for a call {longest:.2?}; {} clients killed; memory of the listener {memory:?} KiB",
        least.calls,
        most.calls,
        middle.calls,
        killed.load(Ordering::Relaxed),
    );
    // Each client has had its sessions, and no client has made much fewer calls than the others.
    assert!(least.sessions >= SESSIONS && least.calls * 3 >= middle.calls, "a client was starved");
    assert!(memory[2] < memory[0] + 4096, "the listener has grown: {memory:?} KiB");
    for why in server.ends() {
        assert!(["closed", "status 1"].iter().any(|end| why.contains(end)), "{why}");
    }
    server.wait_until_quiet();
    println!("left: {} processes, {} folders", server.children().len(), server.folders().len());
    server.finish();
}

#[test]
fn many_clients() {
    // There are fewer sessions than clients, so clients wait in the queue.
    if is_soak() {
        many(50, Duration::from_secs(60), Server::with_key(&[GRANTED, &["--max-sessions", "12"]].concat()));
    } else {
        many(8, Duration::from_secs(4), Server::open(&[GRANTED, &["--max-sessions", "4"]].concat()));
    }
}
