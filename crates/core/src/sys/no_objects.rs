//! Fallback for platforms on which the loaded files are unknown.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_void};

/// Returns the file that contains an address.
pub(crate) fn file_of(_address: *const c_void) -> Option<String> {
    None
}

/// Returns the addresses of a symbol in all loaded files that export it.
pub(crate) fn symbols_named(_name: &CStr) -> Vec<*const c_void> {
    Vec::new()
}
