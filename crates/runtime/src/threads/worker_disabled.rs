//! Platforms without threads, such as WebAssembly.

use core::ffi::CStr;
use std::io;

/// Returns an error: there are no threads.
pub(super) fn spawn(_name: &'static CStr, _body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
