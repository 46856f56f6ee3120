//! Interface to the destination of an upload.

use alloc::boxed::Box;

use anyfn::{Any, Result};

/// Destination of the bytes that an upload transfers.
pub trait Sink: Send {
    /// Appends the next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Completes the upload after all bytes have arrived, and returns the result of the call that requested
    /// it.
    fn finish(self: Box<Self>) -> Result<Any>;
}
