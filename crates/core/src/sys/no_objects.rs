//! Queries about loaded files, for platforms on which the loaded files are unknown.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_void};

/// Returns `None`, because the loaded files are unknown.
pub(crate) fn file_of(_address: *const c_void) -> Option<String> {
    None
}

/// Returns an empty list, because the loaded files are unknown.
pub(crate) fn symbols_named(_name: &CStr) -> Vec<*const c_void> {
    Vec::new()
}
