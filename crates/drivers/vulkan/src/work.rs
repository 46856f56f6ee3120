//! The record of work for the timeline of a profile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyfn::abi::kDLVulkan;
use anyfn::{Device, Result};
use anyfn_runtime::device::{Work, is_work_recorded};

use crate::event::{Event, Query};
use crate::stream::{Marker, Recording, Stream, Task};
use crate::system::is_forked;

/// Work that was submitted during a recording.
struct Recorded {
    query: Arc<Query>,
    marker: Marker,
    device: i32,
    name: String,
}

/// A moment on the clocks of the host and of a device.
#[derive(Clone, Copy)]
struct Moment {
    device: i32,
    host: Instant,
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
const PIECES: usize = 1 << 12;

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
        let Some(query) = Query::new(stream.logical, 2)? else { return Ok(None) };
        // The clocks of host and device have no common zero, so the first work of a recording measures their difference.
        let is_known = record().moments.iter().any(|moment| moment.device == device);
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
        let mut record = record();
        if record.work.len() < PIECES {
            record.work.push(Recorded { query: self.query, marker, device: self.device, name: self.name });
        }
    }
}

/// Waits for the recorded work, and returns when it ran.
pub(crate) fn take() -> Vec<Work> {
    if is_forked() {
        return Vec::new();
    }
    let Record { work, moments } = std::mem::take(&mut *record());
    let work = work.into_iter().filter_map(|Recorded { query, marker, device, name }| {
        marker.wait("wait for recorded work").ok()?;
        let (start, end) = (query.read(0).ok()?, query.read(1).ok()?);
        let moment = moments.iter().find(|moment| moment.device == device)?;
        let since = Duration::from_nanos(start.saturating_sub(moment.time));
        Some(Work {
            device: Device::new(kDLVulkan, device),
            stream: marker.stream_number(),
            name,
            start: moment.host + since,
            time: Duration::from_nanos(end.saturating_sub(start)),
        })
    });
    work.collect()
}
