//! Tests of a real server with handshakes and frames that are nearly valid.
//!
//! `ANYFN_FUZZ_SECONDS` sets the duration of each test, `ANYFN_FUZZ_SEED` its first seed.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use anyfn_random::Random;

use crate::hand::*;
use crate::random::{Functions, damage, send_frames};
use crate::rig::*;

const FUNCTIONS: Functions = ["testing.apply", "testing.echo", "testing.count"];

/// Calls `round` repeatedly for the configured time, or `count` times if no time is configured. Each call
/// receives a random generator and its seed. Returns the number of calls.
fn rounds(count: u64, mut round: impl FnMut(&mut Random, u64)) -> u64 {
    let (first, time, started) = (anyfn_random::seed(), anyfn_random::time(), Instant::now());
    let mut seed = first;
    while time.map_or(seed < first + count, |time| started.elapsed() < time) {
        round(&mut Random::new(seed), seed);
        seed += 1;
    }
    seed - first
}

/// Ends the server, and checks that no session process crashed and that the sessions released all resources.
fn finish(server: Server) {
    for why in server.ends() {
        assert!(!why.contains("signal"), "{why}");
    }
    server.finish();
}

fn handshakes(server: Server) {
    let mut welcomed = 0;
    let count = rounds(150, |random, seed| {
        let mut stream = server.connect();
        let honest = if server.with_key { preface_of("alice") } else { PREFACE.to_vec() };
        let mut first = honest.clone();
        if random.below(2) == 0 {
            damage(random, &mut first);
        }
        let mut changed = first != honest;
        stream.write_all(&first).unwrap();
        if changed {
            // Further bytes, in case the server continues to read. They do not match the changed first bytes.
            let mut more: Vec<u8> = (0..random.below(200)).map(|_| random.byte()).collect();
            if random.below(2) == 0 {
                let prologue = [&honest[..], ACCEPTED].concat();
                more = exchange(&mut initiator([7; 32], &prologue));
            }
            let _ = stream.write_all(&more);
        } else {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            let honest = frame(HELLO, 0, 0, b"by hand");
            let mut greeting = honest.clone();
            if random.below(2) == 0 {
                damage(random, &mut greeting);
            }
            let mut line = if server.with_key {
                let mut noise = initiator([7; 32], &[&first[..], &answer].concat());
                let honest = exchange(&mut noise);
                let mut message = honest.clone();
                if random.below(2) == 0 {
                    damage(random, &mut message);
                }
                let _ = stream.write_all(&message);
                changed = message != honest;
                (!changed).then(|| Line::sealed(stream.try_clone().unwrap(), noise))
            } else {
                Some(Line::plain(stream.try_clone().unwrap()))
            };
            if let Some(line) = &mut line {
                let _ = line.try_send(&greeting);
                if greeting == honest {
                    assert_eq!(line.receive(), Some((WELCOME, 0, 0, Vec::new())), "seed {seed}");
                    welcomed += 1;
                }
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let started = Instant::now();
        let _ = stream.read_to_end(&mut rest);
        assert!(started.elapsed() < SOON, "it hangs: seed {seed}");
        if server.with_key && changed {
            // At most a refusal, or an acceptance and the server's half of the key exchange. Nothing that requires a proved key
            // arrives.
            assert!(rest.len() <= 12 + 50, "{rest:?}: seed {seed}");
        }
        if seed % 50 == 0 {
            server.serves();
        }
    });
    println!("{count} handshakes, {welcomed} welcomed");
    assert!(welcomed > count / 20 && welcomed < count);
    finish(server);
}

#[test]
fn handshakes_without_a_key() {
    handshakes(Server::open(GRANTED));
}

#[test]
fn handshakes_with_a_key() {
    handshakes(Server::with_key(GRANTED));
}

fn frames(server: Server) {
    let (mut frames, mut results) = (0, 0);
    let count = rounds(40, |random, seed| {
        let mut line = server.line();
        frames += send_frames(random, &mut line, &FUNCTIONS);
        let started = Instant::now();
        let _ = line.stream.shutdown(Shutdown::Write);
        line.drain();
        assert!(started.elapsed() < SOON, "it hangs: seed {seed}");
        results += line.returns;
        if seed % 50 == 0 {
            server.serves();
        }
    });
    println!("{frames} frames in {count} sessions, {results} results");
    assert!(results > frames / 20);
    finish(server);
}

const MODEST: &[&str] = &["--limit", "memory_bytes=1000000", "--limit", "store_bytes=1000000"];

#[test]
fn frames_without_a_key() {
    frames(Server::open(&[GRANTED, MODEST].concat()));
}

#[test]
fn frames_with_a_key() {
    frames(Server::with_key(&[GRANTED, MODEST].concat()));
}
