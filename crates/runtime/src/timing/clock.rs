//! The clock of the host: that of the standard library, or, in a WebAssembly module, one that its host sets.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(super) use std::{thread::sleep, time::Instant};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use of_host::set_clock;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(super) use of_host::{Instant, sleep};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod of_host {
    use std::ops::Add;
    use std::sync::OnceLock;
    use std::time::Duration;

    static CLOCK: OnceLock<fn() -> Duration> = OnceLock::new();

    /// Sets the function that returns the time since a fixed time. The time must never decrease. Before the first call, the clock
    /// stands still; later calls have no effect.
    pub fn set_clock(now: fn() -> Duration) {
        let _ = CLOCK.set(now);
    }

    /// Time of the clock, with the interface of [`std::time::Instant`].
    #[derive(Clone, Copy)]
    pub(in crate::timing) struct Instant(Duration);

    impl Instant {
        pub(in crate::timing) fn now() -> Instant {
            Instant(CLOCK.get().map_or(Duration::ZERO, |now| now()))
        }

        pub(in crate::timing) fn elapsed(&self) -> Duration {
            Instant::now().0.saturating_sub(self.0)
        }

        pub(in crate::timing) fn saturating_duration_since(&self, earlier: Instant) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Instant;

        fn add(self, time: Duration) -> Instant {
            Instant(self.0.saturating_add(time))
        }
    }

    /// Waits. A thread of a page cannot sleep, so it runs until the time has passed, or not at all without a clock.
    pub(in crate::timing) fn sleep(time: Duration) {
        if CLOCK.get().is_some() {
            let start = Instant::now();
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
        }
    }
}
