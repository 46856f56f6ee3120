//! Record of the work of devices, for the timelines of profiles.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyfn::Device;

/// A kernel or a copy that a device has executed.
#[derive(Clone, Debug)]
pub struct Work {
    /// Device that executed it.
    pub device: Device,
    /// Number that identifies the stream of the device: the address of its native handle.
    pub stream: usize,
    /// Name of the kernel, or description of the copy.
    pub name: String,
    /// Time at which the device began, on the clock of the host.
    pub start: Instant,
    /// Time that it took, by the clock of the device.
    pub time: Duration,
}

static IS_RECORDED: AtomicBool = AtomicBool::new(false);

/// Returns true while drivers record work for [`Driver::take_work`](crate::Driver::take_work).
#[inline]
pub fn is_work_recorded() -> bool {
    IS_RECORDED.load(Ordering::Relaxed)
}

/// Begins or ends the recording of work by the drivers that are linked with this copy of the crate. The runtime calls this function.
pub fn record_work(is_recorded: bool) {
    IS_RECORDED.store(is_recorded, Ordering::Relaxed);
}
