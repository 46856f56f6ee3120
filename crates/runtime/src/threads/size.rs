//! How many threads a parallel launch has.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cgroup;

/// No machine has more; larger numbers are mistakes.
pub(super) const THREADS_MAX: usize = 1 << 12;

/// What [`super::set_num_threads`] says; 0 for automatic.
static SET: AtomicUsize = AtomicUsize::new(0);
/// What was found by itself; 0 before that.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Sets the number, or has it found again with 0.
pub(super) fn set(threads: usize) {
    SET.store(threads.min(THREADS_MAX), Ordering::Relaxed);
    FOUND.store(0, Ordering::Relaxed);
}

/// The number, at least 1.
pub(super) fn get() -> usize {
    let set = SET.load(Ordering::Relaxed);
    if set > 0 {
        return set;
    }
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            let asked = std::env::var("ANYFN_NUM_THREADS").ok();
            let found = choose(asked.as_deref(), affinity(), cgroup::quota(Path::new("/")));
            FOUND.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// The number that the environment asks for, else what this process may use: the processors of its affinity mask, and no
/// more than its share of processor time, rounded up.
fn choose(asked: Option<&str>, processors: usize, quota: Option<f64>) -> usize {
    if let Some(text) = asked.filter(|text| !text.trim().is_empty()) {
        match text.trim().parse::<usize>() {
            Ok(n) if (1..=THREADS_MAX).contains(&n) => return n,
            _ => std::eprintln!(
                "anyfn: warning: ANYFN_NUM_THREADS must be a number from 1 to {THREADS_MAX}, got \"{}\"; it is ignored",
                text.escape_debug()
            ),
        }
    }
    let share = quota.map_or(usize::MAX, |quota| quota.ceil() as usize);
    processors.min(share).clamp(1, THREADS_MAX)
}

/// How many processors this process may run on.
fn affinity() -> usize {
    #[cfg(target_os = "linux")]
    {
        let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: the set is writable and as large as is said.
        let code = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
        if code == 0 {
            // SAFETY: zeroed, and filled on success; any bits are a set.
            let set = unsafe { set.assume_init() };
            // SAFETY: only counts the bits.
            let count = unsafe { libc::CPU_COUNT(&set) };
            if count > 0 {
                return count as usize;
            }
        }
    }
    // Also for machines with more processors than the set has room for.
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_first_then_the_smallest_limit() {
        assert_eq!(choose(Some("3"), 8, Some(0.5)), 3);
        assert_eq!(choose(Some(" 3 "), 1, None), 3);
        assert_eq!(choose(None, 8, None), 8);
        assert_eq!(choose(None, 8, Some(2.5)), 3);
        assert_eq!(choose(None, 2, Some(64.0)), 2);
        assert_eq!(choose(None, 8, Some(0.01)), 1);
        assert_eq!(choose(Some(""), 8, None), 8);
    }

    #[test]
    fn what_is_no_number_is_ignored() {
        for wrong in ["0", "-1", "many", "99999999", "1.5"] {
            assert_eq!(choose(Some(wrong), 4, None), 4, "{wrong}");
        }
    }

    #[test]
    fn this_process_may_use_a_processor() {
        assert!(affinity() >= 1);
    }
}
