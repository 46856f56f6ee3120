//! The current context of a thread.

use core::ptr;

use crate::api::{self, Api, Raw};

/// The current context of a thread, which is restored on drop.
pub(crate) struct Current {
    api: &'static Api,
    is_pushed: bool,
}

impl Current {
    /// Makes a context the current one of this thread, unless it is that already.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    #[inline]
    pub(crate) fn enter(api: &'static Api, context: Raw) -> Result<Current, i32> {
        let mut now = ptr::null_mut();
        // SAFETY: writes the current context, or NULL.
        let code = unsafe { (api.cuCtxGetCurrent)(&raw mut now) };
        if code == api::SUCCESS && now == context {
            return Ok(Current { api, is_pushed: false });
        }
        // SAFETY: callers pass the primary context of a device, which lives until the process ends.
        match unsafe { (api.cuCtxPushCurrent_v2)(context) } {
            api::SUCCESS => Ok(Current { api, is_pushed: true }),
            code => Err(code),
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.is_pushed {
            let mut context = ptr::null_mut();
            // SAFETY: this thread has pushed the context.
            unsafe { (self.api.cuCtxPopCurrent_v2)(&raw mut context) };
        }
    }
}
