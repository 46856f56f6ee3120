//! Where a worker wakes.
//!
//! The system may put a thread that is woken behind the one that wakes it, on the same processor, since the others are idle
//! with a delay or only spin; and it may leave it there for longer than a job takes, which then takes the time of one thread.
//! So a launch keeps the workers that it wakes off its own processor. A worker that has come may run anywhere again: what its
//! tasks start inherits nothing.

use core::ffi::c_int;

pub(super) use imp::{Mask, Thread, here, this_thread};

/// A worker that waits to be woken.
pub(super) struct Sleeper {
    thread: Thread,
    /// The processor that it is kept off, and where it may run otherwise.
    kept: Option<(c_int, Mask)>,
}

impl Sleeper {
    pub(super) fn new(thread: Thread) -> Sleeper {
        Sleeper { thread, kept: None }
    }

    pub(super) fn is(&self, thread: Thread) -> bool {
        self.thread == thread
    }

    /// Has it wake on another processor, if it may.
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
            // It may have been kept off another one.
            imp::set(self.thread, &mask);
        }
    }

    /// The worker has come; called by itself.
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

    /// The number of this thread.
    pub(in crate::threads) fn this_thread() -> Thread {
        // SAFETY: asks only.
        unsafe { libc::gettid() }
    }

    /// The processor of this thread; negative if it is not known.
    pub(in crate::threads) fn here() -> c_int {
        // SAFETY: asks only.
        unsafe { libc::sched_getcpu() }
    }

    /// Where a thread may run. None on machines with more processors than a mask has room for, too.
    pub(super) fn get(thread: Thread) -> Option<Mask> {
        let mut mask = MaybeUninit::<Mask>::zeroed();
        // SAFETY: the mask is writable and as large as is said.
        let code = unsafe { libc::sched_getaffinity(thread, size_of::<Mask>(), mask.as_mut_ptr()) };
        // SAFETY: zeroed, and any bits are a mask.
        (code == 0).then(|| unsafe { mask.assume_init() })
    }

    pub(super) fn set(thread: Thread, mask: &Mask) -> bool {
        // SAFETY: the mask is as large as is said.
        unsafe { libc::sched_setaffinity(thread, size_of::<Mask>(), mask) == 0 }
    }

    /// The mask without a processor that is in it, if others are.
    pub(super) fn without(mask: &Mask, processor: c_int) -> Option<Mask> {
        let number = usize::try_from(processor).ok().filter(|number| *number < 8 * size_of::<Mask>())?;
        let mut others = *mask;
        // SAFETY: the number is one that a mask has room for.
        if !unsafe { libc::CPU_ISSET(number, mask) } {
            return None;
        }
        // SAFETY: the number is one that a mask has room for, and `others` is a mask of our own.
        unsafe { libc::CPU_CLR(number, &mut others) };
        // SAFETY: only counts the bits.
        (unsafe { libc::CPU_COUNT(&others) } > 0).then_some(others)
    }
}

/// Nothing is known of places.
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

/// Where this thread may run.
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
            // SAFETY: compares bits.
            assert!(unsafe { libc::CPU_EQUAL(&before, &mask().unwrap()) });
        })
        .join()
        .unwrap();
    }
}
