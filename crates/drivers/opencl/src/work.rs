//! The record of commands for the timeline of a profile.

use core::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyfn::Device;
use anyfn::abi::kDLOpenCL;
use anyfn_driver::{Work, is_work_recorded};

use crate::api::{self, Raw};
use crate::event::ClEvent;
use crate::process::is_forked;
use crate::system::{ClDevice, System};

/// A command that was queued during a recording.
struct Recorded {
    event: ClEvent,
    /// Time on the clock of the host before the command was queued.
    queued: Instant,
    device: i32,
    stream: usize,
    name: String,
}

static RECORDED: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());
/// Maximum number of commands that are recorded, each of which holds an event of the driver.
const COMMANDS: usize = 1 << 16;

/// A command that is about to be queued. It has an event if commands are recorded.
pub(crate) struct Command<'a> {
    event: Raw,
    since: Option<Instant>,
    system: &'static System,
    device: &'a ClDevice,
    queue: Raw,
}

impl<'a> Command<'a> {
    #[inline]
    pub(crate) fn new(system: &'static System, device: &'a ClDevice, queue: Raw) -> Command<'a> {
        let since = is_work_recorded().then(Instant::now);
        Command { event: ptr::null_mut(), since, system, device, queue }
    }

    /// Returns the location for the event of the command; NULL if commands are not recorded.
    #[inline]
    pub(crate) fn event(&mut self) -> *mut Raw {
        if self.since.is_some() { &raw mut self.event } else { ptr::null_mut() }
    }

    /// Records the command, unless queueing it has failed.
    #[inline]
    pub(crate) fn queued(self, name: impl FnOnce() -> String) {
        if !self.event.is_null() {
            self.record(name());
        }
    }

    #[cold]
    fn record(self, name: String) {
        let Some(queued) = self.since else { return };
        let event = ClEvent { event: self.event, api: &self.system.api };
        let (device, stream) = (self.device.index, self.queue.addr());
        let mut all = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < COMMANDS {
            all.push(Recorded { event, queued, device, stream, name });
        }
    }
}

/// Waits for the recorded commands, and returns when they ran.
pub(crate) fn take() -> Vec<Work> {
    if is_forked() {
        return Vec::new();
    }
    let all = std::mem::take(&mut *RECORDED.lock().unwrap_or_else(PoisonError::into_inner));
    let work = all.into_iter().filter_map(|Recorded { event, queued, device, stream, name }| {
        // SAFETY: the list has one event, which is alive.
        if unsafe { (event.api.clWaitForEvents)(1, &raw const event.event) } != api::SUCCESS {
            return None;
        }
        let time = |which| event.time(which).ok();
        let (start, end) = (time(api::PROFILING_COMMAND_START)?, time(api::PROFILING_COMMAND_END)?);
        // The clocks of host and device have no common zero, but both have seen the command being queued.
        let waited = start.saturating_sub(time(api::PROFILING_COMMAND_QUEUED)?);
        Some(Work {
            device: Device::new(kDLOpenCL, device),
            stream,
            name,
            start: queued + Duration::from_nanos(waited),
            time: Duration::from_nanos(end.saturating_sub(start)),
        })
    });
    work.collect()
}
