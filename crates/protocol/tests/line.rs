//! Serial lines that lose, change and repeat bytes, and that are cut.

use std::time::Duration;

use anyfn_core as _;

use anyfn_protocol::line::{Line, LineEvent};
use anyfn_random::Random;

/// Moves the output of `from` to `to` over a line that damages a byte in `one_in`, and returns what happened there.
fn carry(from: &mut Line, to: &mut Line, random: &mut Random, one_in: usize) -> Vec<LineEvent> {
    let mut bytes = Vec::new();
    for byte in from.take_output() {
        match random.below(one_in * 3) {
            0 => {}
            1 => bytes.push(byte ^ 1 << random.below(8)),
            2 => bytes.extend([byte, byte]),
            _ => bytes.push(byte),
        }
    }
    to.receive(&bytes)
}

#[test]
fn every_byte_arrives_over_a_bad_line() {
    let mut random = Random::from_env();
    for one_in in [20_000, 1_000, 200] {
        let (mut client, mut server) = (Line::client(1), Line::server());
        let sent: Vec<u8> = (0..20_000).map(|_| random.below(4) as u8).collect();
        let back: Vec<u8> = sent.iter().map(|byte| byte ^ 3).collect();
        client.send(&sent);
        let (mut there, mut here) = (Vec::new(), Vec::new());
        let mut began = 0;
        for step in 0_u64.. {
            assert!(step < 20_000, "nothing arrives any more: {} and {} of 20000", there.len(), here.len());
            let events = carry(&mut client, &mut server, &mut random, one_in);
            began += events.len();
            if !events.is_empty() && there.is_empty() {
                server.send(&back);
            }
            there.extend(server.take_received());
            assert_eq!(carry(&mut server, &mut client, &mut random, one_in), []);
            here.extend(client.take_received());
            if there.len() == sent.len() && here.len() == back.len() && client.unsent() + server.unsent() == 0 {
                break;
            }
            let now = Duration::from_millis(50 * step);
            client.tick(now);
            server.tick(now);
        }
        assert!(there == sent && here == back && began == 1);
        if one_in == 200 {
            assert!(client.errors() + server.errors() > 0);
        }
    }
}

#[test]
fn a_line_that_was_cut_is_usable_again() {
    let mut server = Line::server();
    let mut cut = Line::client(1);
    assert_eq!(server.receive(&cut.take_output()), [LineEvent::Began]);
    cut.receive(&server.take_output());
    cut.send(&[7; 1000]);
    let bytes = cut.take_output();
    server.receive(&bytes[..300]);
    assert_eq!(server.take_received(), [7; 224]);

    // The next client begins in the middle of a packet of the first.
    let mut client = Line::client(2);
    client.send(b"hello");
    assert_eq!(server.receive(&client.take_output()), [LineEvent::Began]);
    assert_eq!(client.receive(&server.take_output()), []);
    server.receive(&client.take_output());
    assert_eq!(server.take_received(), b"hello");

    // The first learns that its session is over; a server that has restarted knows neither.
    cut.tick(Duration::from_secs(1));
    server.receive(&cut.take_output());
    assert_eq!(cut.receive(&server.take_output()), [LineEvent::Lost]);
    let mut restarted = Line::server();
    client.send(b"again");
    restarted.receive(&client.take_output());
    assert_eq!(restarted.take_received(), b"");
    assert_eq!(client.receive(&restarted.take_output()), [LineEvent::Lost]);
}

#[test]
fn noise_takes_no_memory() {
    let mut server = Line::server();
    let mut random = Random::from_env();
    for _ in 0..1000 {
        let noise: Vec<u8> = (0..1000).map(|_| random.below(256) as u8).collect();
        assert_eq!(server.receive(&noise), []);
        assert_eq!(server.receive(&[5; 1000]), []);
        assert!(server.take_output().is_empty() && server.take_received().is_empty());
    }
    assert!(server.errors() > 1000);
}

/// A program that takes nothing, because it waits to send, is sent no more than it has room for.
#[test]
fn bytes_that_nobody_takes_are_sent_again_later() {
    let (mut client, mut server) = (Line::client(1), Line::server());
    let sent: Vec<u8> = (0..50_000_u32).map(|at| (at / 7) as u8).collect();
    client.send(&sent);
    let mut turn = |server: &mut Line, step: u64| {
        client.tick(Duration::from_millis(50 * step));
        server.receive(&client.take_output());
        client.receive(&server.take_output());
        client.unsent()
    };
    for step in 0..500 {
        assert!(turn(&mut server, step) > 44_000);
    }
    let mut there = server.take_received();
    assert!((4096..4096 + 224).contains(&there.len()), "{}", there.len());
    for step in 500..1500 {
        turn(&mut server, step);
        there.extend(server.take_received());
    }
    assert!(there == sent, "{} of {} bytes", there.len(), sent.len());
}
