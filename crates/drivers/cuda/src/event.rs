//! Events of streams.

use core::ptr;
use std::sync::Arc;

use crate::api::{self, Api, Raw};
use crate::context::Current;
use crate::process::is_forked;

/// An event of the driver, which its last owner destroys.
#[derive(Clone)]
pub(crate) struct CuEvent(Arc<Owned>);

struct Owned {
    event: Raw,
    api: &'static Api,
    /// Context of the event. Functions of events may fail in another one or in none.
    context: Raw,
}

// SAFETY: the driver permits the use of events on any thread, by several threads at a time.
unsafe impl Send for Owned {}
// SAFETY: several threads may use an event at a time.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if let Ok(_current) = Current::enter(self.api, self.context) {
            // SAFETY: this value owns the event.
            unsafe { (self.api.cuEventDestroy_v2)(self.event) };
        }
    }
}

impl CuEvent {
    /// Creates an event in a context.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    pub(crate) fn create(api: &'static Api, context: Raw, flags: u32) -> Result<CuEvent, i32> {
        let _current = Current::enter(api, context)?;
        let mut event = ptr::null_mut();
        // SAFETY: writes the handle of the event.
        match unsafe { (api.cuEventCreate)(&raw mut event, flags) } {
            api::SUCCESS => Ok(CuEvent(Arc::new(Owned { event, api, context }))),
            code => Err(code),
        }
    }

    fn enter(&self) -> Result<Current, i32> {
        Current::enter(self.0.api, self.0.context)
    }

    /// Returns the handle of the event.
    pub(crate) fn raw(&self) -> Raw {
        self.0.event
    }

    /// Records the event in a stream of the context.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    pub(crate) fn record(&self, stream: Raw) -> Result<(), i32> {
        let _current = self.enter()?;
        // SAFETY: the event is alive, and callers pass a live stream of the context.
        check(unsafe { (self.0.api.cuEventRecord)(self.0.event, stream) })
    }

    /// Waits until the work before the event has finished.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    pub(crate) fn wait(&self) -> Result<(), i32> {
        let _current = self.enter()?;
        // SAFETY: the event is alive.
        check(unsafe { (self.0.api.cuEventSynchronize)(self.0.event) })
    }

    /// Returns true if the work before the event has finished.
    pub(crate) fn is_complete(&self) -> bool {
        let Ok(_current) = self.enter() else { return false };
        // SAFETY: the event is alive.
        unsafe { (self.0.api.cuEventQuery)(self.0.event) == api::SUCCESS }
    }

    /// Returns the time from this event to a later one in nanoseconds.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    pub(crate) fn until(&self, end: &CuEvent) -> Result<u64, i32> {
        let _current = self.enter()?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events are alive.
        check(unsafe { (self.0.api.cuEventElapsedTime)(&raw mut milliseconds, self.raw(), end.raw()) })?;
        // Negative if the events were passed in the other order.
        Ok((f64::from(milliseconds) * 1e6).max(0.0) as u64)
    }
}

fn check(code: i32) -> Result<(), i32> {
    if code == api::SUCCESS { Ok(()) } else { Err(code) }
}
