//! Frames that are valid, or nearly so, from pseudo-random numbers.

use crate::hand::*;

/// Names of the functions that are looked up: one that calls its argument, one that returns it, and any other.
pub(crate) type Functions = [&'static str; 3];

/// Generator of pseudo-random numbers, which are the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a value, mostly a small one.
    fn value(&mut self, depth: usize) -> Vec<u8> {
        let any =
            |random: &mut Random| (0..random.below(4)).map(|_| random.value(depth + 1)).collect::<Vec<_>>();
        match self.below(if depth > 3 { 9 } else { 16 }) {
            0 => none(),
            1 => int(self.below(20) as i64),
            2 => int(self.next() as i64),
            3 => text("testing.echo"),
            4 => bytes(&self.next().to_le_bytes()),
            5 => shape(&[self.below(5) as i64, 4]),
            6 => yours(1 << 32 | self.below(6) as u64),
            7 => mine(self.below(4) as u64, 1 + self.below(2) as u8, "ffi.Function"),
            8 => dtype(self.below(4) as u8, 8, 1),
            9 => device(1, 0),
            10 => graph(r#"{"root_index":0,"nodes":[{"type":"int","data":1}]}"#),
            11 => array(&any(self)),
            // These kinds are refused in version 1. In version 2 a number may refer to no value.
            12 => kept(&array(&any(self))),
            13 => kept(&self.value(depth + 1)),
            14 => again(self.below(4) as u32),
            _ => {
                let pairs = any(self);
                let even = pairs.len() & !1;
                [&[12][..], &(even as u32 / 2).to_le_bytes(), &pairs[..even].concat()].concat()
            }
        }
    }

    /// Returns a frame that is valid, or nearly so, and true if its header is unchanged.
    fn frame(&mut self, functions: &Functions) -> (Vec<u8>, bool) {
        let (id, small) = (self.below(12) as u64, self.below(6) as u64);
        let args: Vec<Vec<u8>> = (0..self.below(4)).map(|_| self.value(0)).collect();
        let handle = 1 << 32 | small;
        let mut out = match self.below(12) {
            0 => ask(id, 1 + self.below(19) as u16, &args),
            1 => ask(id, EMPTY, &[shape(&[8, small as i64]), dtype(2, 32, 1), device(1, 0)]),
            2 => ask(id, WRITE, &[int(handle as i64), int(small as i64), int(8)]),
            3 => ask(id, READ, &[int(handle as i64), int(small as i64), int(8)]),
            4 => data(id, 0, &[1; 8][..1 + self.below(8)]),
            5 => ask(id, GLOBAL, &[text(functions[self.below(3)])]),
            6 | 7 => call(id, self.below(4) as u64, small as u16, handle, &args),
            8 if self.below(4) == 0 => release(handle, 1),
            9 => frame(RETURN, 0, self.below(5) as u64, &self.value(0)),
            10 => frame(ERROR, 0, self.below(5) as u64, &error("ValueError", "no")),
            _ => frame([CANCEL, PING, PONG][self.below(3)], 0, id, b""),
        };
        // One in four frames is damaged, mostly in its payload.
        let mut whole = true;
        if self.below(4) == 0 {
            for _ in 0..1 + self.below(3) {
                let from = if self.below(30) == 0 { 0 } else { 16 };
                if from < out.len() {
                    let at = from + self.below(out.len() - from);
                    out[at] = if self.below(2) == 0 { self.next() as u8 } else { out[at] ^ 1 << self.below(8) };
                    whole &= at >= 16;
                }
            }
        }
        (out, whole)
    }

    /// Looks functions up, creates a tensor, and sends up to a hundred frames. Returns the number of frames.
    pub(crate) fn frames(&mut self, line: &mut Line, functions: &Functions) -> usize {
        for (id, name) in (1..).zip(functions) {
            line.global(id, name);
        }
        line.empty(4, 64);
        for count in 1..=100 {
            let (bytes, whole) = self.frame(functions);
            // After a damaged header, the server may wait for bytes that never arrive.
            if line.try_send(&bytes).is_err() || !whole {
                return count;
            }
            // Only sometimes is the answer to a ping awaited, so that several frames may arrive at once.
            if self.below(2) == 0 && !line.serves(1 << 50) {
                return count;
            }
        }
        100
    }
}

/// Makes up to three changes: changes or adds bytes, or truncates them.
pub(crate) fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => bytes.extend((0..random.below(64)).map(|_| random.next() as u8)),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte =
                        if random.below(2) == 0 { random.next() as u8 } else { *byte ^ 1 << random.below(8) };
                }
            }
        }
    }
}
