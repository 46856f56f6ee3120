//! The record of work for the timeline of a profile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyfn::abi::kDLVulkan;
use anyfn::{Device, Result};
use anyfn_driver::{Work, is_work_recorded};

use crate::event::{Event, Query};
use crate::stream::{Marker, Recording, Stream, Task, stream_number};
use crate::system::{self, is_forked};

/// Work of a recording.
struct Recorded {
    time: Time,
    device: i32,
    name: String,
}

/// When work ran.
enum Time {
    /// Work that was submitted, and its time stamps.
    Stamps(Arc<Query>, Marker),
    /// A copy by the host, with the number of its stream.
    Host { stream: usize, start: Instant, time: Duration },
}

/// A moment on the clocks of the host and of a device.
#[derive(Clone, Copy)]
struct Moment {
    device: i32,
    host: Instant,
    /// Steps of the clock of the device.
    time: u64,
}

/// The recorded work, until [`take`].
#[derive(Default)]
struct Record {
    work: Vec<Recorded>,
    moments: Vec<Moment>,
}

static RECORD: Mutex<Record> = Mutex::new(Record { work: Vec::new(), moments: Vec::new() });
/// Maximum number of pieces of work that are recorded.
const PIECES: usize = 1 << 16;

fn record() -> std::sync::MutexGuard<'static, Record> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time stamps at the beginning and at the end of work.
pub(crate) struct Timer {
    query: Arc<Query>,
    device: i32,
    name: String,
}

impl Timer {
    /// Returns the time stamps of work, if work is recorded.
    #[inline]
    pub(crate) fn of(stream: &Arc<Stream>, task: Task<'_>) -> Result<Option<Timer>> {
        if !is_work_recorded() || matches!(task, Task::Event) { Ok(None) } else { Timer::new(stream, task) }
    }

    #[cold]
    fn new(stream: &Arc<Stream>, task: Task<'_>) -> Result<Option<Timer>> {
        let device = stream.logical.device.index;
        let (is_full, is_known) = {
            let record = record();
            (record.work.len() >= PIECES, record.moments.iter().any(|moment| moment.device == device))
        };
        if is_full {
            return Ok(None);
        }
        let Some(query) = Query::shared(stream.logical, 2)? else { return Ok(None) };
        // The clocks of host and device have no common zero, so the first work of a recording measures their difference.
        if !is_known {
            let event = Event::default();
            event.record(stream)?;
            stream.finish("measure the difference of clocks")?;
            let moment = Moment { device, host: Instant::now(), time: event.time()? };
            record().moments.push(moment);
        }
        Ok(Some(Timer { query, device, name: task.name() }))
    }

    /// Writes the time stamp of the beginning.
    pub(crate) fn begin(&self, recording: &mut Recording<'_>) {
        self.query.reset(recording);
        self.query.write(recording, 0);
        recording.keep(self.query.clone());
    }

    /// Writes the time stamp of the end.
    pub(crate) fn end(&self, recording: &mut Recording<'_>) {
        self.query.write(recording, 1);
    }

    /// Adds the work, which was submitted, to the record.
    pub(crate) fn submitted(self, marker: Marker) {
        add(Recorded { time: Time::Stamps(self.query, marker), device: self.device, name: self.name });
    }
}

fn add(work: Recorded) {
    let mut record = record();
    if record.work.len() < PIECES {
        record.work.push(work);
    }
}

/// Returns the time, if work is recorded.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    is_work_recorded().then(Instant::now)
}

/// Adds a copy by the host, which has finished, to the record. `start` is the result of [`now`] before the copy.
pub(crate) fn copied(stream: &Arc<Stream>, task: Task<'_>, start: Option<Instant>) {
    let Some(start) = start else { return };
    let time = Time::Host { stream: stream_number(stream), start, time: start.elapsed() };
    add(Recorded { time, device: stream.logical.device.index, name: task.name() });
}

/// Waits for the recorded work, and returns when it ran.
pub(crate) fn take() -> Vec<Work> {
    if is_forked() {
        return Vec::new();
    }
    let Record { work, moments } = std::mem::take(&mut *record());
    let work = work.into_iter().filter_map(|Recorded { time, device, name }| {
        let (stream, start, time) = match time {
            Time::Host { stream, start, time } => (stream, start, time),
            Time::Stamps(query, marker) => {
                marker.wait("wait for recorded work").ok()?;
                let (start, end) = (query.read(0).ok()?, query.read(1).ok()?);
                let moment = moments.iter().find(|moment| moment.device == device)?;
                let (_, known) = system::known(device)?;
                let since = Duration::from_nanos(known.nanoseconds(moment.time, start));
                let time = Duration::from_nanos(known.nanoseconds(start, end));
                (marker.stream_number(), moment.host + since, time)
            }
        };
        Some(Work { device: Device::new(kDLVulkan, device), stream, name, start, time })
    });
    work.collect()
}
