//! Events of queues.

use core::ffi::c_void;

use crate::api::{self, Api, Raw, info, number};
use crate::process::is_forked;

/// An event of a queue.
pub(crate) struct ClEvent {
    pub(crate) event: Raw,
    pub(crate) api: &'static Api,
}

// SAFETY: OpenCL permits the use of events on any thread.
unsafe impl Send for ClEvent {}

impl Drop for ClEvent {
    fn drop(&mut self) {
        if !is_forked() {
            // SAFETY: this value owns the event.
            unsafe { (self.api.clReleaseEvent)(self.event) };
        }
    }
}

impl ClEvent {
    /// Returns one of the times of the event, in nanoseconds of the clock of the device.
    ///
    /// # Errors
    /// Returns the error code of OpenCL.
    pub(crate) fn time(&self, which: u32) -> Result<u64, i32> {
        // SAFETY: the event is alive; `info` passes memory of the size that it passes.
        let answer = info(|size, value: *mut c_void, written| unsafe {
            (self.api.clGetEventProfilingInfo)(self.event, which, size, value, written)
        });
        answer.map(|bytes| number(&bytes))
    }

    /// Returns true if the commands before the event have finished.
    pub(crate) fn is_complete(&self) -> bool {
        // SAFETY: the event is alive; `info` passes memory of the size that it passes.
        let status = info(|size, value: *mut c_void, written| unsafe {
            (self.api.clGetEventInfo)(self.event, api::EVENT_COMMAND_EXECUTION_STATUS, size, value, written)
        });
        status.is_ok_and(|status| number(&status) == api::COMPLETE)
    }
}
