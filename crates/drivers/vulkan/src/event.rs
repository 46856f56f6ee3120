//! Events, and the time stamps of a device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::{Result, bail};
use anyfn_runtime::device::unsupported;
use ash::vk;

use crate::logical::Logical;
use crate::stream::{Marker, Recording, Stream, Task};
use crate::system::is_forked;

/// Time stamps that a device writes.
pub(crate) struct Query {
    logical: &'static Logical,
    pool: vk::QueryPool,
    count: u32,
}

impl Query {
    /// Creates `count` time stamps. Returns `None` if the device has no clock.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub(crate) fn new(logical: &'static Logical, count: u32) -> Result<Option<Arc<Query>>> {
        if logical.device.time_bits == 0 {
            return Ok(None);
        }
        let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count);
        // SAFETY: the device is alive.
        let pool = unsafe { logical.api.create_query_pool(&info, None) }
            .map_err(|code| logical.device.error(code, "create a time stamp"))?;
        Ok(Some(Arc::new(Query { logical, pool, count })))
    }

    /// Makes the time stamps writable, before the first of them is written.
    pub(crate) fn reset(&self, recording: &Recording<'_>) {
        // SAFETY: the command buffer is being recorded, and the time stamps exist.
        unsafe { recording.api.cmd_reset_query_pool(recording.commands, self.pool, 0, self.count) };
    }

    /// Writes a time stamp once the work before it has finished.
    pub(crate) fn write(&self, recording: &Recording<'_>, index: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the command buffer is being recorded, and the time stamp was reset.
        unsafe { recording.api.cmd_write_timestamp(recording.commands, stage, self.pool, index) };
    }

    /// Returns a time stamp, which the device has written, in nanoseconds of its clock.
    pub(crate) fn read(&self, index: u32) -> Result<u64> {
        let (mut value, device) = ([0_u64], self.logical.device);
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the time stamp exists, and work that writes it was submitted.
        unsafe { self.logical.api.get_query_pool_results(self.pool, index, &mut value, flags) }
            .map_err(|code| device.error(code, "read a time stamp"))?;
        let mask = if device.time_bits >= 64 { u64::MAX } else { (1 << device.time_bits) - 1 };
        Ok(((value[0] & mask) as f64 * f64::from(device.limits.period)) as u64)
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        if !is_forked() {
            // SAFETY: command buffers keep the time stamps that they write, so no work uses them.
            unsafe { self.logical.api.destroy_query_pool(self.pool, None) };
        }
    }
}

/// The last recording of an event.
struct Recorded {
    marker: Marker,
    time: Option<Arc<Query>>,
}

/// An event.
#[derive(Default)]
pub(crate) struct Event(Mutex<Option<Recorded>>);

impl Event {
    fn lock(&self) -> MutexGuard<'_, Option<Recorded>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the event in a stream.
    pub(crate) fn record(&self, stream: &Arc<Stream>) -> Result<()> {
        let time = Query::new(stream.logical, 1)?;
        let marker = stream.submit(Task::Event, |recording| {
            if let Some(time) = &time {
                time.reset(recording);
                time.write(recording, 0);
                recording.keep(time.clone());
            }
            Ok(())
        })?;
        let before = self.lock().replace(Recorded { marker, time });
        drop(before);
        Ok(())
    }

    /// Returns the point at which the event was recorded last; `None` if it was not.
    pub(crate) fn marker(&self) -> Option<Marker> {
        self.lock().as_ref().map(|recorded| recorded.marker.clone())
    }

    /// Returns the time at which the event was reached, in nanoseconds of the clock of the device.
    pub(crate) fn time(&self) -> Result<u64> {
        let recorded = self.lock();
        let Some(recorded) = &*recorded else { bail!("ValueError", "an event has not been recorded yet") };
        match &recorded.time {
            Some(time) => time.read(0),
            None => unsupported("the device has no clock"),
        }
    }
}
