//! Random frames for fuzz tests, either valid or slightly damaged.

use anyfn_random::Random;

use crate::hand::*;

/// Names of three server functions: one that calls its argument, one that returns its argument, and any other
/// function.
pub(crate) type Functions = [&'static str; 3];

/// Returns the encoding of a random value, which is usually small.
fn random_value(random: &mut Random, depth: usize) -> Vec<u8> {
    let any =
        |random: &mut Random| (0..random.below(4)).map(|_| random_value(random, depth + 1)).collect::<Vec<_>>();
    match random.below(if depth > 3 { 9 } else { 16 }) {
        0 => none(),
        1 => int(random.below(20) as i64),
        2 => int(random.number() as i64),
        3 => text("testing.echo"),
        4 => bytes(&random.number().to_le_bytes()),
        5 => shape(&[random.below(5) as i64, 4]),
        6 => yours(1 << 32 | random.below(6) as u64),
        7 => mine(random.below(4) as u64, 1 + random.below(2) as u8, "ffi.Function"),
        8 => dtype(random.below(4) as u8, 8, 1),
        9 => device(1, 0),
        10 => graph(r#"{"root_index":0,"nodes":[{"type":"int","data":1}]}"#),
        11 => array(&any(random)),
        // These kinds are refused in version 1. In version 2 a number may refer to no value.
        12 => kept(&array(&any(random))),
        13 => kept(&random_value(random, depth + 1)),
        14 => again(random.below(4) as u32),
        _ => {
            let pairs = any(random);
            let even = pairs.len() & !1;
            [&[12][..], &(even as u32 / 2).to_le_bytes(), &pairs[..even].concat()].concat()
        }
    }
}

/// Returns a random frame, either valid or slightly damaged, and a flag that is true if the frame's header is
/// undamaged.
fn random_frame(random: &mut Random, functions: &Functions) -> (Vec<u8>, bool) {
    let (id, small) = (random.below(12) as u64, random.below(6) as u64);
    let args: Vec<Vec<u8>> = (0..random.below(4)).map(|_| random_value(random, 0)).collect();
    let handle = 1 << 32 | small;
    let mut out = match random.below(12) {
        0 => ask(id, 1 + random.below(19) as u16, &args),
        1 => ask(id, EMPTY, &[shape(&[8, small as i64]), dtype(2, 32, 1), device(1, 0)]),
        2 => ask(id, WRITE, &[int(handle as i64), int(small as i64), int(8)]),
        3 => ask(id, READ, &[int(handle as i64), int(small as i64), int(8)]),
        4 => data(id, 0, &[1; 8][..1 + random.below(8)]),
        5 => ask(id, GLOBAL, &[text(functions[random.below(3)])]),
        6 | 7 => call(id, random.below(4) as u64, small as u16, handle, &args),
        8 if random.below(4) == 0 => release(handle, 1),
        9 => frame(RETURN, 0, random.below(5) as u64, &random_value(random, 0)),
        10 => frame(ERROR, 0, random.below(5) as u64, &error("ValueError", "no")),
        _ => frame([CANCEL, PING, PONG][random.below(3)], 0, id, b""),
    };
    // One in four frames is damaged, mostly in its payload.
    let mut whole = true;
    if random.below(4) == 0 {
        for _ in 0..1 + random.below(3) {
            let from = if random.below(30) == 0 { 0 } else { 16 };
            if from < out.len() {
                let at = from + random.below(out.len() - from);
                out[at] = if random.below(2) == 0 { random.byte() } else { out[at] ^ 1 << random.below(8) };
                whole &= at >= 16;
            }
        }
    }
    (out, whole)
}

/// Looks up `functions` at the server, creates a tensor there, and sends up to a hundred random frames.
/// Returns the number of frames.
pub(crate) fn send_frames(random: &mut Random, line: &mut Line, functions: &Functions) -> usize {
    for (id, name) in (1..).zip(functions) {
        line.global(id, name);
    }
    line.empty(4, 64);
    for count in 1..=100 {
        let (bytes, whole) = random_frame(random, functions);
        // After a damaged header, the server may wait for bytes that never arrive.
        if line.try_send(&bytes).is_err() || !whole {
            return count;
        }
        // Only sometimes is the answer to a ping awaited, so that several frames may arrive at once.
        if random.below(2) == 0 && !line.serves(1 << 50) {
            return count;
        }
    }
    100
}

/// Damages bytes by one to three changes, each of which replaces a byte, inserts bytes or truncates the end.
pub(crate) fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.byte()),
            2 => bytes.extend((0..random.below(64)).map(|_| random.byte())),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if random.below(2) == 0 { random.byte() } else { *byte ^ 1 << random.below(8) };
                }
            }
        }
    }
}
