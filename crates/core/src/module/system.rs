//! Libraries that are linked into the process, whose constructors register each symbol by name.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

use std::borrow::ToOwned;
use std::collections::HashMap;
use std::ffi::CString;
use std::vec::Vec;

use anyfn::{Module, Result};

use super::library::{Code, IMPORT_TREE, LibraryModule};
use super::load;
use crate::sys::Mutex;

/// Address of a symbol that was registered.
#[derive(Clone, Copy, PartialEq)]
struct Address(NonNull<c_void>);

// SAFETY: the address is only passed on; its user must know what lies there.
unsafe impl Send for Address {}

static SYMBOLS: Mutex<Option<HashMap<CString, Address>>> = Mutex::new(None);
static MODULES: Mutex<Option<HashMap<std::string::String, Module>>> = Mutex::new(None);

/// Registers the address of a symbol of a linked library. If the name was registered before, the new address replaces
/// the old one.
pub(crate) fn register_system_lib_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    let Some(symbol) = NonNull::new(symbol).map(Address) else {
        anyfn::bail!("ValueError", "the system library's symbol {} is NULL", name.to_string_lossy());
    };
    let old = SYMBOLS.lock().get_or_insert_default().insert(name.to_owned(), symbol);
    if old.is_some_and(|old| old != symbol) {
        std::eprintln!("warning: system library symbol {} is registered again", name.to_string_lossy());
    }
    Ok(())
}

/// Returns the address of the symbol that is registered under `name`.
pub(super) fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    SYMBOLS.lock().as_ref()?.get(name).map(|address| address.0)
}

/// Returns the names of all registered symbols.
pub(super) fn symbols() -> Vec<CString> {
    SYMBOLS.lock().iter().flat_map(HashMap::keys).cloned().collect()
}

/// Returns the module of the linked libraries whose symbols have the prefix `prefix`. All calls with the same prefix
/// return the same module, which is never released.
pub(crate) fn system_lib(prefix: &str) -> Result<Module> {
    if let Some(known) = MODULES.lock().get_or_insert_default().get(prefix) {
        return Ok(known.clone());
    }
    let code = Code::System(prefix.to_owned());
    let import_tree = code.data(IMPORT_TREE);
    // SAFETY: code that registers symbols promises that they follow the convention; their code does not run before
    // this.
    let library = unsafe { LibraryModule::create(code) }?;
    // SAFETY: code that registers symbols promises that they follow the convention; their code does not run before
    // this.
    let module = unsafe { load::with_imports(&library, import_tree, None) }?;
    // If two threads get here at the same time, the module of the first one stays.
    Ok(MODULES.lock().get_or_insert_default().entry(prefix.to_owned()).or_insert(module).clone())
}
