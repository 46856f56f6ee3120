//! Pseudo-random numbers for tests, and environment variables that configure tests with random inputs.
//!
//! A test that generates its inputs uses [`Random`], whose numbers are the same in every run for the same seed. Tests of
//! damaged or otherwise random inputs take their seed from the environment variable `ANYFN_FUZZ_SEED` ([`seed`]) and
//! their duration from `ANYFN_FUZZ_SECONDS` ([`rounds`], [`time`]). Property tests of the crates use `proptest` instead,
//! which also reduces the inputs that fail.

use std::time::{Duration, Instant, UNIX_EPOCH};

/// Generator of pseudo-random numbers. The same seed gives the same numbers.
///
/// The algorithm is SplitMix64. Every seed is as good as any other, and the numbers of consecutive seeds are unrelated.
///
/// ```
/// use anyfn_random::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.number(), other.number());
/// assert!(one.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with the given seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Creates a generator with the seed that [`seed`] returns.
    pub fn from_env() -> Random {
        Random::new(seed())
    }

    /// Returns the next pseudo-random number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a random byte.
    pub fn byte(&mut self) -> u8 {
        self.number() as u8
    }

    /// Returns a random number that is less than `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// Returns true with a probability of `percent` percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element of `items`.
    ///
    /// # Panics
    /// Panics if `items` is empty.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// Returns the number in the environment variable `name`; `default` if it is not set.
///
/// # Panics
/// Panics if the value is not a number.
pub fn setting(name: &str, default: u64) -> u64 {
    read(name).unwrap_or(default)
}

fn read(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("expected a number in {name}, got {value:?}")))
}

/// Returns the seed for random inputs and prints it, so that a failed test can be repeated with the same
/// inputs.
///
/// This is the number in `ANYFN_FUZZ_SEED`. If it is not set, the seed is the current time for tests that run for a
/// requested duration (`ANYFN_FUZZ_SECONDS`), and otherwise 1.
///
/// # Panics
/// Panics if the value of one of the variables is not a number.
pub fn seed() -> u64 {
    let now = || UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
    let seed = read("ANYFN_FUZZ_SEED").unwrap_or_else(|| if time().is_some() { now() } else { 1 });
    eprintln!("ANYFN_FUZZ_SEED={seed}");
    seed
}

/// Returns the duration for which tests with random inputs should run, from the environment variable
/// `ANYFN_FUZZ_SECONDS`, or `None` if the variable is not set.
///
/// # Panics
/// Panics if the value of `ANYFN_FUZZ_SECONDS` is not a number.
pub fn time() -> Option<Duration> {
    read("ANYFN_FUZZ_SECONDS").map(Duration::from_secs)
}

/// Returns an iterator over the round numbers of a test, from 0. It yields at least `least` rounds,
/// and ends once the requested duration has passed: the duration from [`time`], or `seconds`
/// seconds by default.
///
/// # Panics
/// Panics if the value of `ANYFN_FUZZ_SECONDS` is not a number.
pub fn rounds(least: u64, seconds: u64) -> impl Iterator<Item = u64> {
    let end = Instant::now() + time().unwrap_or(Duration::from_secs(seconds));
    (0..).take_while(move |round| *round < least || Instant::now() < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_algorithm() {
        let mut random = Random::new(0);
        assert_eq!(
            [random.number(), random.number(), random.number()],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]
        );
    }

    #[test]
    fn numbers_are_within_their_bounds() {
        let mut random = Random::new(1);
        let mut counts = [0; 6];
        for _ in 0..6000 {
            counts[random.below(6)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(random.below(0), 0);
        assert!([3, 5].contains(&random.pick(&[3, 5])));
        assert!(random.chance(100) && !random.chance(0));
    }

    #[test]
    fn a_test_has_at_least_the_rounds_that_it_needs() {
        if time().is_none() {
            assert_eq!(rounds(5, 0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        }
    }
}
