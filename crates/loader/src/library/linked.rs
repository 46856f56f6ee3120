//! Symbols of libraries that are linked into the process. The constructors of these libraries register each
//! symbol by name.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

use std::ffi::CString;

use anyfn::__private::SortedMap;
use anyfn::Result;
use anyfn_core::loader::Mutex;

/// Registered address of a symbol of a linked library.
#[derive(Clone, Copy, PartialEq)]
struct Address(NonNull<c_void>);

// SAFETY: the address is only passed on; its user must know what lies there.
unsafe impl Send for Address {}

static SYMBOLS: Mutex<SortedMap<CString, Address>> = Mutex::new(SortedMap::new());
/// Registers the address of a symbol of a library that is linked into the process. If the name was registered
/// before, the new address replaces the old one.
pub(crate) fn register_system_lib_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    let Some(symbol) = NonNull::new(symbol).map(Address) else {
        anyfn::bail!("ValueError", "the system library's symbol {} is NULL", name.to_string_lossy());
    };
    let old = SYMBOLS.lock().insert(name.to_owned(), symbol);
    if old.is_some_and(|old| old != symbol) {
        eprintln!("warning: system library symbol {} is registered again", name.to_string_lossy());
    }
    Ok(())
}

/// Returns the address of the symbol that is registered under `name`, or `None` if no such symbol
/// is registered.
pub(crate) fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    SYMBOLS.lock().get(name).map(|address| address.0)
}

/// Returns the names of all registered symbols.
pub(crate) fn symbols() -> Vec<CString> {
    SYMBOLS.lock().keys().cloned().collect()
}
