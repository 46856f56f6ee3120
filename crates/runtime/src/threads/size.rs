//! The number of threads of a parallel launch.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "cgroup")]
use crate::cgroup::processor_quota;

/// Maximum number of threads. A larger number is reduced to this value by [`set`], and ignored in
/// `ANYFN_NUM_THREADS`.
pub(super) const THREADS_MAX: usize = 1 << 12;

/// Number of threads that [`super::set_num_threads`] has set; 0 if the number is determined automatically.
static SET: AtomicUsize = AtomicUsize::new(0);
/// Automatically determined number of threads; 0 if it has not been determined yet.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Returns `None`: limits of control groups are not read without the feature `cgroup`.
#[cfg(not(feature = "cgroup"))]
fn processor_quota() -> Option<f64> {
    None
}

/// Sets the number of threads. If `threads` is 0, the number is determined automatically again.
pub(super) fn set(threads: usize) {
    SET.store(threads.min(THREADS_MAX), Ordering::Relaxed);
    FOUND.store(0, Ordering::Relaxed);
}

/// Returns the number of threads of a parallel launch, at least 1.
pub(super) fn get() -> usize {
    let set = SET.load(Ordering::Relaxed);
    if set > 0 {
        return set;
    }
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            let asked = std::env::var_os("ANYFN_NUM_THREADS").map(|text| text.to_string_lossy().into_owned());
            let asked = asked.as_deref().filter(|text| !text.trim().is_empty());
            let number = asked.and_then(number);
            if let (Some(text), None) = (asked, number) {
                warn(text);
            }
            let found = number.unwrap_or_else(|| choose(affinity(), processor_quota()));
            FOUND.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// Parses the value of the environment variable `ANYFN_NUM_THREADS`. Returns `None` unless it is a number
/// from 1 to [`THREADS_MAX`].
fn number(asked: &str) -> Option<usize> {
    asked.trim().parse().ok().filter(|number| (1..=THREADS_MAX).contains(number))
}

/// Warns once in the process that `ANYFN_NUM_THREADS` is ignored.
fn warn(asked: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        std::eprintln!(
            "anyfn: warning: ANYFN_NUM_THREADS must be a number from 1 to {THREADS_MAX}, got \"{}\"; it is ignored",
            asked.as_bytes().escape_ascii()
        );
    });
}

/// Returns the number of threads that this process should use: `processors` or `quota`, whichever
/// is smaller. `processors` is the number of processors in the affinity mask of the process.
/// `quota` is the CPU quota of the process as a number of processors, and is rounded up.
fn choose(processors: usize, quota: Option<f64>) -> usize {
    let share = quota.map_or(usize::MAX, |quota| quota.ceil() as usize);
    processors.min(share).clamp(1, THREADS_MAX)
}

/// Returns the number of processors that this process may use at a time: the number in its affinity
/// mask or its CPU quota, whichever is smaller. The quota is rounded down. The result is at least
/// 1.
pub(crate) fn processors() -> usize {
    processor_quota().map_or(usize::MAX, |quota| quota as usize).clamp(1, affinity())
}

/// Returns the number of processors on which this process may run.
fn affinity() -> usize {
    #[cfg(target_os = "linux")]
    {
        let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: the set is writable and has the given size.
        let code = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
        if code == 0 {
            // SAFETY: zeroed, and filled on success; any bits are a valid set.
            let set = unsafe { set.assume_init() };
            // SAFETY: `CPU_COUNT` only counts the bits.
            let count = unsafe { libc::CPU_COUNT(&set) };
            if count > 0 {
                return count as usize;
            }
        }
    }
    #[cfg(unix)]
    {
        // Also reached on machines with more processors than fit into the set.
        // SAFETY: the function only reads a setting of the system.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(count).unwrap_or(0).max(1)
    }
    #[cfg(not(unix))]
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        assert_eq!(choose(8, None), 8);
        assert_eq!(choose(8, Some(2.5)), 3);
        assert_eq!(choose(2, Some(64.0)), 2);
        assert_eq!(choose(8, Some(0.01)), 1);
        assert_eq!(choose(1 << 20, None), THREADS_MAX);
    }

    #[test]
    fn the_environment_asks_for_a_number() {
        assert_eq!((number("3"), number(" 3 "), number("4096")), (Some(3), Some(3), Some(4096)));
        for wrong in ["0", "-1", "-5", "many", "4097", "99999999", "18446744073709551617", "1.5", "3 4", ""] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    /// Tests that [`affinity`] counts the processors of the affinity mask. The test uses a new
    /// thread, because it changes the mask.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_affinity_mask_is_counted() {
        let counted = std::thread::spawn(|| {
            let mut all = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
            let size = size_of::<libc::cpu_set_t>();
            // SAFETY: the set is writable and has the given size.
            assert_eq!(unsafe { libc::sched_getaffinity(0, size, all.as_mut_ptr()) }, 0);
            // SAFETY: zeroed, and filled on success.
            let all = unsafe { all.assume_init() };
            // SAFETY: the numbers are in the range of the set.
            let is_set = |processor: usize| unsafe { libc::CPU_ISSET(processor, &all) };
            let processors: Vec<usize> = (0..8 * size).filter(|processor| is_set(*processor)).collect();
            let mut some = all;
            let mut counted = vec![(affinity(), processors.len())];
            for (taken, processor) in processors.iter().enumerate().skip(1) {
                // SAFETY: the number is in the range of the set.
                unsafe { libc::CPU_CLR(*processor, &mut some) };
                // SAFETY: the set has the given size, and contains at least one processor.
                assert_eq!(unsafe { libc::sched_setaffinity(0, size, &some) }, 0);
                counted.push((affinity(), processors.len() - taken));
            }
            counted
        });
        let counted = counted.join().unwrap();
        assert!(counted.iter().all(|(found, expected)| found == expected), "{counted:?}");
        assert_eq!(counted.last().unwrap().0, 1);
    }
}
