//! Choice of the processor on which a worker thread wakes.
//!
//! The system may queue a woken thread on the processor of the thread that wakes it, because the other
//! processors need time to wake up, or are occupied by spinning threads. The woken thread may wait there for
//! longer than a job takes, so that the job takes as long as with one thread. Therefore a launch excludes its
//! own processor from the affinity masks of the workers that it wakes. Once a worker is awake, it may run
//! anywhere again, so threads that its tasks start inherit no restriction.

use core::ffi::c_int;

pub(super) use imp::{Mask, Thread, here, this_thread};

/// A sleeping worker thread, with the affinity mask to restore once the worker has woken.
pub(super) struct Sleeper {
    thread: Thread,
    /// The processor that is excluded from the worker's affinity mask, and the original mask. `None` if no
    /// processor is excluded.
    kept: Option<(c_int, Mask)>,
}

impl Sleeper {
    pub(super) fn new(thread: Thread) -> Sleeper {
        Sleeper { thread, kept: None }
    }

    pub(super) fn is(&self, thread: Thread) -> bool {
        self.thread == thread
    }

    /// Excludes `processor` from the worker's affinity mask until the worker has woken. Has no effect if the
    /// mask contains no other processor.
    pub(super) fn keep_off(&mut self, processor: c_int) {
        if self.kept.as_ref().is_some_and(|(kept, _)| *kept == processor) {
            return;
        }
        let Some(mask) = self.kept.take().map(|(_, mask)| mask).or_else(|| imp::get(self.thread)) else {
            return;
        };
        if let Some(others) = imp::without(&mask, processor)
            && imp::set(self.thread, &others)
        {
            self.kept = Some((processor, mask));
        } else {
            // Another processor may have been excluded before.
            imp::set(self.thread, &mask);
        }
    }

    /// Restores the original affinity mask. The worker calls this function once it is awake.
    pub(super) fn run_anywhere(self) {
        if let Some((_, mask)) = self.kept {
            imp::set(self.thread, &mask);
        }
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod imp {
    use core::ffi::c_int;
    use core::mem::MaybeUninit;

    pub(in crate::threads) type Mask = libc::cpu_set_t;
    pub(in crate::threads) type Thread = libc::pid_t;

    /// Returns the thread ID of this thread.
    pub(in crate::threads) fn this_thread() -> Thread {
        // C libraries before glibc 2.30 have no function `gettid`.
        // SAFETY: the system call only returns a number, which fits into the type by definition.
        unsafe { libc::syscall(libc::SYS_gettid) as Thread }
    }

    /// Returns the index of the processor on which this thread runs; negative if it is not known.
    pub(in crate::threads) fn here() -> c_int {
        // SAFETY: `sched_getcpu` only returns a number.
        unsafe { libc::sched_getcpu() }
    }

    /// Returns the affinity mask of a thread. `None` if the system does not report it, for example because the machine
    /// has more processors than fit into a mask.
    pub(super) fn get(thread: Thread) -> Option<Mask> {
        let mut mask = MaybeUninit::<Mask>::zeroed();
        // SAFETY: the mask is writable and has the given size.
        let code = unsafe { libc::sched_getaffinity(thread, size_of::<Mask>(), mask.as_mut_ptr()) };
        // SAFETY: the mask was zeroed, and any bits are a valid mask.
        (code == 0).then(|| unsafe { mask.assume_init() })
    }

    pub(super) fn set(thread: Thread, mask: &Mask) -> bool {
        // SAFETY: the mask has the given size.
        unsafe { libc::sched_setaffinity(thread, size_of::<Mask>(), mask) == 0 }
    }

    /// Returns the affinity mask without `processor`. `None` if the mask does not contain `processor`, or contains no
    /// other processor.
    pub(super) fn without(mask: &Mask, processor: c_int) -> Option<Mask> {
        let number = usize::try_from(processor).ok().filter(|number| *number < 8 * size_of::<Mask>())?;
        let mut others = *mask;
        // SAFETY: the number is in the range of a mask.
        if !unsafe { libc::CPU_ISSET(number, mask) } {
            return None;
        }
        // SAFETY: the number is in the range of a mask, and `others` is a local mask.
        unsafe { libc::CPU_CLR(number, &mut others) };
        // SAFETY: `CPU_COUNT` only counts the bits.
        (unsafe { libc::CPU_COUNT(&others) } > 0).then_some(others)
    }
}

/// Stub for systems without control over the placement of threads.
#[cfg(not(all(target_os = "linux", not(loom))))]
mod imp {
    use core::ffi::c_int;

    pub(in crate::threads) type Mask = ();
    pub(in crate::threads) type Thread = ();

    pub(in crate::threads) fn this_thread() -> Thread {}

    pub(in crate::threads) fn here() -> c_int {
        -1
    }

    pub(super) fn get(_: Thread) -> Option<Mask> {
        None
    }

    pub(super) fn set(_: Thread, _: &Mask) -> bool {
        false
    }

    pub(super) fn without(_: &Mask, _: c_int) -> Option<Mask> {
        None
    }
}

/// Returns the affinity mask of this thread.
#[cfg(all(test, target_os = "linux", not(loom)))]
pub(super) fn mask() -> Option<Mask> {
    imp::get(0)
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_never_left_empty() {
        let all = mask().unwrap();
        let mine = here();
        assert!(imp::without(&all, -1).is_none() && imp::without(&all, c_int::MAX).is_none());
        let Some(others) = imp::without(&all, mine) else { return };
        assert!(imp::without(&others, mine).is_none(), "not in it any more");
    }

    #[test]
    fn what_was_kept_off_runs_anywhere_again() {
        std::thread::spawn(|| {
            let (thread, before) = (this_thread(), mask().unwrap());
            let mut sleeper = Sleeper::new(thread);
            for processor in [here(), -1, here(), here()] {
                sleeper.keep_off(processor);
            }
            sleeper.run_anywhere();
            // SAFETY: `CPU_EQUAL` only compares the bits.
            assert!(unsafe { libc::CPU_EQUAL(&before, &mask().unwrap()) });
        })
        .join()
        .unwrap();
    }
}
