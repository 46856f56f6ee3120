//! The clock of the times that cross between libraries.

use std::time::{Duration, Instant};

/// The same moment on two clocks: that of [`Instant`], which has no numbers, and `CLOCK_MONOTONIC`, whose times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    instant: Instant,
    ns: u64,
}

impl Clock {
    /// Reads both clocks.
    #[must_use]
    pub fn now() -> Clock {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the location is writable; every system has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        let ns = (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64);
        Clock { instant: Instant::now(), ns }
    }

    /// Converts a time to nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn to_ns(&self, time: Instant) -> u64 {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match time.checked_duration_since(self.instant) {
            Some(later) => self.ns.saturating_add(ns(later)),
            None => self.ns.saturating_sub(ns(self.instant - time)),
        }
    }

    /// Converts nanoseconds of `CLOCK_MONOTONIC` to a time. A time that the clock cannot represent becomes that of [`Clock::now`].
    #[must_use]
    pub fn to_instant(&self, ns: u64) -> Instant {
        let found = match ns.checked_sub(self.ns) {
            Some(later) => self.instant.checked_add(Duration::from_nanos(later)),
            None => self.instant.checked_sub(Duration::from_nanos(self.ns - ns)),
        };
        found.unwrap_or(self.instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_both_ways() {
        let earlier = Instant::now();
        let clock = Clock::now();
        let later = Instant::now() + Duration::from_secs(5);
        for time in [earlier, later] {
            assert_eq!(clock.to_instant(clock.to_ns(time)), time);
        }
        assert!(clock.to_ns(earlier) <= clock.to_ns(later) - 5_000_000_000);
        // Another reading of the clocks gives nearly the same time.
        let other = Clock::now();
        assert!(other.to_ns(earlier).abs_diff(clock.to_ns(earlier)) < 100_000_000);
    }
}
