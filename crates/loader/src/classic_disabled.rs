//! The library convention of TVM 0.8 in builds without the feature `classic`: no library follows it.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;

use std::ffi::CString;
use std::string::String as StdString;

use anyfn::abi::TVMFFIAny;

use crate::import_tree::Tree;

pub(crate) const ENABLED: bool = false;

pub(crate) fn follows<'a>(
    _defined: impl Iterator<Item = &'a str>,
    _undefined: impl Iterator<Item = &'a str>,
) -> bool {
    false
}

pub(crate) fn is_symbol(_name: &str) -> bool {
    false
}

pub(crate) fn functions<'a>(_code: impl Iterator<Item = &'a str>) -> Vec<StdString> {
    Vec::new()
}

pub(crate) fn function(
    _functions: &[StdString],
    _name: &str,
    _find: impl Fn(&CStr) -> Option<NonNull<c_void>>,
) -> Option<NonNull<c_void>> {
    None
}

pub(crate) fn linked_name(_name: &str) -> Option<CString> {
    None
}

pub(crate) fn linked_functions(_symbols: &[CString], _prefix: &str) -> Vec<StdString> {
    Vec::new()
}

pub(crate) fn is_linked() -> bool {
    false
}

/// Returns -1.
///
/// # Safety
/// Any call is sound.
pub(crate) unsafe fn call(
    _function: *mut c_void,
    _args: *const TVMFFIAny,
    _count: i32,
    _result: *mut TVMFFIAny,
) -> c_int {
    -1
}

pub(crate) fn parse(_content: &[u8]) -> Result<Tree<'_>, StdString> {
    Err(StdString::new())
}
