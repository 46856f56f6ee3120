//! Adaptive polling: decides for each read from a socket whether to poll before the thread sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Maximum time that a read spends polling before its thread goes to sleep.
pub(crate) const POLL_TIME: Duration = Duration::from_micros(20);

/// Maximum backoff, that is, maximum number of reads that sleep without polling after a futile
/// poll. Also the number of consecutive successful polls after which one read sleeps without
/// polling.
const REST_MAX: u32 = 1024;

/// State that decides whether the next read polls before its thread sleeps. If the poll succeeds,
/// the thread does not sleep and need not be woken. If client and server run on different
/// processors, waking a thread takes longer than most calls.
///
/// Polling is futile if both ends share a processor; sleeping is just as fast then for short calls. Each futile poll doubles the
/// number of following reads that sleep immediately, so that the polls cost almost nothing. If polls succeed, one of many reads
/// sleeps nevertheless, because the system chooses a processor for a thread only when it wakes the thread.
///
/// One thread at a time changes it, the one that reads.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Number of reads, beginning with the next, that sleep without polling.
    rest: AtomicU32,
    /// Current backoff: value of `rest` after the most recent futile poll. Each futile poll doubles it, and
    /// each successful poll halves it.
    last_rest: AtomicU32,
    /// Number of consecutive successful polls.
    successes: AtomicU32,
}

fn get(number: &AtomicU32) -> u32 {
    number.load(Ordering::Relaxed)
}

fn set(number: &AtomicU32, value: u32) {
    number.store(value, Ordering::Relaxed);
}

impl Polling {
    /// Decides how the next read waits. Returns true if it polls first, false if its thread sleeps
    /// immediately.
    #[inline]
    pub(crate) fn polls_now(&self) -> bool {
        let rest = get(&self.rest);
        set(&self.rest, rest.saturating_sub(1));
        rest == 0
    }

    /// Records that bytes arrived during a poll.
    #[inline]
    pub(crate) fn succeeded(&self) {
        set(&self.last_rest, get(&self.last_rest) / 2);
        set(&self.successes, get(&self.successes) + 1);
        if get(&self.successes) == REST_MAX {
            set(&self.successes, 0);
            set(&self.rest, 1);
        }
    }

    /// Records a futile poll: no bytes arrived within [`POLL_TIME`].
    pub(crate) fn failed(&self) {
        set(&self.successes, 0);
        set(&self.last_rest, (2 * get(&self.last_rest)).clamp(1, REST_MAX));
        set(&self.rest, get(&self.last_rest));
    }

    /// Returns the number of reads, beginning with the next, that sleep without polling, and the number of
    /// consecutive successful polls.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (u32, u32) {
        (get(&self.rest), get(&self.successes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records a futile poll and returns the number of reads that then sleep without polling.
    fn rests(polling: &Polling) -> u32 {
        polling.failed();
        polling.rest.swap(0, Ordering::Relaxed)
    }

    #[test]
    fn futile_polls_become_rare() {
        let polling = Polling::default();
        let seen: Vec<u32> = (0..12).map(|_| rests(&polling)).collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        // If polling succeeds again, it soon resumes fully.
        for _ in 0..11 {
            polling.succeeded();
        }
        assert_eq!(get(&polling.rest), 0);
        assert_eq!(rests(&polling), 1);
    }

    #[test]
    fn one_of_many_successful_polls_is_followed_by_a_read_that_sleeps() {
        // The system chooses a processor for a thread only when it wakes it.
        let polling = Polling::default();
        let slept = (0..3 * REST_MAX)
            .filter(|_| {
                polling.succeeded();
                polling.rest.swap(0, Ordering::Relaxed) > 0
            })
            .count();
        assert_eq!(slept, 3);
    }

    #[test]
    fn a_read_sleeps_once_for_each_rest() {
        let polling = Polling::default();
        assert!(polling.polls_now());
        polling.failed();
        assert!(!polling.polls_now());
        assert!(polling.polls_now());
    }
}
