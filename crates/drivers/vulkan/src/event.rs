//! Events, and the time stamps of a device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::{Result, bail};
use anyfn_driver::unsupported;
use ash::vk;

use crate::logical::Logical;
use crate::stream::{Marker, Recording, Stream, Task};
use crate::system::is_forked;

/// Memory of time stamps.
struct Pool {
    logical: &'static Logical,
    handle: vk::QueryPool,
}

impl Pool {
    fn new(logical: &'static Logical, count: u32) -> Result<Arc<Pool>> {
        let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count);
        // SAFETY: the device is alive.
        let handle = unsafe { logical.api.create_query_pool(&info, None) }
            .map_err(|code| logical.device.error(code, "create a time stamp"))?;
        Ok(Arc::new(Pool { logical, handle }))
    }
}

/// Number of time stamps of a pool that several pieces of work share.
const SHARED: u32 = 2048;

/// A pool whose time stamps were partly given away, with the number of those.
#[derive(Default)]
pub(crate) struct Stamps(Mutex<Option<(Arc<Pool>, u32)>>);

/// Time stamps that a device writes: those of a pool from `first` on.
pub(crate) struct Query {
    pool: Arc<Pool>,
    first: u32,
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
        Ok(Some(Arc::new(Query { pool: Pool::new(logical, count)?, first: 0, count })))
    }

    /// Takes `count` time stamps from a pool that others use, too, because each pool costs memory. Otherwise as [`Query::new`].
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub(crate) fn shared(logical: &'static Logical, count: u32) -> Result<Option<Arc<Query>>> {
        if logical.device.time_bits == 0 {
            return Ok(None);
        }
        let mut stamps = logical.stamps.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (pool, first) = match stamps.take() {
            Some((pool, used)) if used + count <= SHARED => (pool, used),
            _ => (Pool::new(logical, SHARED.max(count))?, 0),
        };
        *stamps = Some((pool.clone(), first + count));
        Ok(Some(Arc::new(Query { pool, first, count })))
    }

    /// Makes the time stamps writable, before the first of them is written.
    pub(crate) fn reset(&self, recording: &Recording<'_>) {
        // SAFETY: the command buffer is being recorded, and the time stamps exist.
        unsafe {
            recording.api.cmd_reset_query_pool(recording.commands, self.pool.handle, self.first, self.count)
        };
    }

    /// Writes a time stamp once the work before it has finished.
    pub(crate) fn write(&self, recording: &Recording<'_>, index: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the command buffer is being recorded, and the time stamp was reset.
        unsafe {
            recording.api.cmd_write_timestamp(recording.commands, stage, self.pool.handle, self.first + index)
        };
    }

    /// Returns a time stamp, which the device has written, in steps of its clock.
    pub(crate) fn read(&self, index: u32) -> Result<u64> {
        let (mut value, Pool { logical, handle }) = ([0_u64], &*self.pool);
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the time stamp exists, and work that writes it was submitted.
        unsafe { logical.api.get_query_pool_results(*handle, self.first + index, &mut value, flags) }
            .map_err(|code| logical.device.error(code, "read a time stamp"))?;
        Ok(value[0])
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !is_forked() {
            // SAFETY: command buffers keep the time stamps that they write, so no work uses them.
            unsafe { self.logical.api.destroy_query_pool(self.handle, None) };
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

    /// Returns the time at which the event was reached, in steps of the clock of the device.
    pub(crate) fn time(&self) -> Result<u64> {
        let recorded = self.lock();
        let Some(recorded) = &*recorded else { bail!("ValueError", "an event has not been recorded yet") };
        match &recorded.time {
            Some(time) => time.read(0),
            None => unsupported("the device has no clock"),
        }
    }
}
