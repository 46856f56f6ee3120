//! Compares the JSON reader with serde_json by the accepted inputs and by speed. ADR 9 refers to
//! both tests.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyfn::{Any, Array, registry};
use anyfn_core as _;
use anyfn_reflect::json::{LoadOptions, SaveOptions, from_json, to_json};
use serde_json::Value;

#[test]
fn values_that_serde_json_refuses() {
    let deep = "[".repeat(1000) + &"]".repeat(1000);
    let parse = registry::get("ffi.json.Parse").unwrap();
    for text in ["NaN", "[-Infinity]", deep.as_str()] {
        parse.call((text,)).unwrap();
        serde_json::from_str::<Value>(text).unwrap_err();
    }
}

/// Prints the time that loading a graph takes, and the time that serde_json takes to parse the same JSON to a
/// `Value`. Run it with `cargo test -p anyfn-reflect --release --test serde -- --ignored --nocapture`.
#[test]
#[ignore = "measures; for a release build"]
fn time_beside_serde_json() {
    let mut items = Vec::new();
    for number in 0..20_000i64 {
        items.push(Any::new(number).unwrap());
        items.push(Any::new(number as f64 / 3.0).unwrap());
        items.push(Any::new(format!("item {number}").as_str()).unwrap());
    }
    let graph = Any::new(Array::<Any>::try_from_iter(items).unwrap()).unwrap();
    let text = to_json(&graph, &SaveOptions::default()).unwrap();
    let text: &str = &text;
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..20 {
        let start = Instant::now();
        black_box(from_json(black_box(text), &LoadOptions::default()).unwrap());
        ours = ours.min(start.elapsed());
        let start = Instant::now();
        black_box(serde_json::from_str::<Value>(black_box(text)).unwrap());
        theirs = theirs.min(start.elapsed());
    }
    let per_byte = |time: Duration| time.as_nanos() as f64 / text.len() as f64;
    println!(
        "{} bytes: load a graph {:.2} ns per byte, parse by serde_json {:.2} ns per byte, ratio {:.2}",
        text.len(),
        per_byte(ours),
        per_byte(theirs),
        per_byte(ours) / per_byte(theirs)
    );
}
