//! The record of kernels and copies for the timeline of a profile.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyfn::Device;
use anyfn::abi::kDLCUDA;
use anyfn_driver::{Work, is_work_recorded};

use crate::api::{self, Raw};
use crate::event::CuEvent;
use crate::process::is_forked;
use crate::system::{CuDevice, System};

/// A kernel or copy that was queued during a recording.
struct Recorded {
    start: CuEvent,
    end: CuEvent,
    device: i32,
    stream: usize,
    name: String,
}

/// Point at which the clocks of a device and the host are compared.
struct Base {
    device: i32,
    event: CuEvent,
    time: Instant,
}

#[derive(Default)]
struct Record {
    bases: Vec<Base>,
    work: Vec<Recorded>,
}

static RECORD: Mutex<Record> = Mutex::new(Record { bases: Vec::new(), work: Vec::new() });
/// Maximum number of kernels and copies that are recorded, each of which holds two events of the driver.
const COMMANDS: usize = 1 << 16;

/// A kernel or copy that is about to be queued. It has events if work is recorded.
pub(crate) struct Command {
    start: Option<CuEvent>,
    system: &'static System,
    device: &'static CuDevice,
    stream: Raw,
}

impl Command {
    #[inline]
    pub(crate) fn new(system: &'static System, device: &'static CuDevice, stream: Raw) -> Command {
        let mut command = Command { start: None, system, device, stream };
        if is_work_recorded() {
            command.begin();
        }
        command
    }

    fn event(&self) -> Option<CuEvent> {
        let context = self.device.opened(&self.system.api).ok()?.context();
        CuEvent::create(&self.system.api, context, api::EVENT_DEFAULT).ok()
    }

    #[cold]
    fn begin(&mut self) {
        let event = || self.event();
        let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
        if record.bases.iter().all(|base| base.device != self.device.index) {
            // The work before it delays the event, so the clock of the host is read after waiting for it.
            let Some(base) = event() else { return };
            if base.record(self.stream).is_err() || base.wait().is_err() {
                return;
            }
            record.bases.push(Base { device: self.device.index, event: base, time: Instant::now() });
        }
        drop(record);
        self.start = event().filter(|event| event.record(self.stream).is_ok());
    }

    /// Records the kernel or copy, which was queued.
    #[inline]
    pub(crate) fn queued(self, name: &dyn Fn() -> String) {
        if self.start.is_some() {
            self.record(name());
        }
    }

    #[cold]
    fn record(self, name: String) {
        let Some(end) = self.event() else { return };
        let Some(start) = self.start else { return };
        if end.record(self.stream).is_err() {
            return;
        }
        let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
        if record.work.len() < COMMANDS {
            let (device, stream) = (self.device.index, self.stream.addr());
            record.work.push(Recorded { start, end, device, stream, name });
        }
    }
}

/// Waits for the recorded work, and returns when it ran.
pub(crate) fn take() -> Vec<Work> {
    if is_forked() {
        return Vec::new();
    }
    let Record { bases, work } = std::mem::take(&mut *RECORD.lock().unwrap_or_else(PoisonError::into_inner));
    let timed = work.into_iter().filter_map(|Recorded { start, end, device, stream, name }| {
        end.wait().ok()?;
        let base = bases.iter().find(|base| base.device == device)?;
        let (before, time) = (base.event.until(&start).ok()?, start.until(&end).ok()?);
        Some(Work {
            device: Device::new(kDLCUDA, device),
            stream,
            name: name
                .strip_prefix("launch the kernel ")
                .map_or(name.clone(), |name| name.trim_matches('`').to_owned()),
            start: base.time + Duration::from_nanos(before),
            time: Duration::from_nanos(time),
        })
    });
    timed.collect()
}
