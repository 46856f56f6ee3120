//! Interface to the destinations of uploads.

use anyfn::{Any, Result};

/// Destination of the bytes of an upload.
pub(crate) trait Sink: Send {
    /// Appends the next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Completes the upload after all bytes have arrived, and returns the result of its call.
    fn finish(self: Box<Self>) -> Result<Any>;
}
