//! The library of a vendor or loader, which is opened at run time.

use core::ffi::{CStr, c_void};
use std::ffi::CString;

/// Library of an interface to devices.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Name of the library in messages, such as `the OpenCL loader`.
    pub what: &'static str,
    /// Names under which the library is looked for, in this order.
    pub names: &'static [&'static str],
    /// Environment variable that names another library to open instead.
    pub variable: &'static str,
}

impl Library {
    /// Opens the library, which stays open until the process ends. Returns its name and its handle.
    ///
    /// # Errors
    /// Returns the names that were tried, and why each could not be opened.
    pub fn open(&self) -> Result<(String, *mut c_void), String> {
        let chosen = std::env::var(self.variable).ok().filter(|name| !name.is_empty());
        let names: Vec<&str> = match &chosen {
            Some(name) => vec![name],
            None => self.names.to_vec(),
        };
        let mut reasons = Vec::new();
        for name in names {
            match open(name) {
                Ok(handle) => return Ok((name.to_owned(), handle)),
                Err(reason) => reasons.push(reason),
            }
        }
        let by = chosen.map_or_else(String::new, |_| format!(", which {} names", self.variable));
        Err(format!("{} cannot be opened{by}: {}", self.what, reasons.join("; ")))
    }
}

/// Opens a library for the calling crate only.
fn open(name: &str) -> Result<*mut c_void, String> {
    let text = CString::new(name).map_err(|_| format!("{name:?} contains a NUL character"))?;
    // SAFETY: `text` is a C string. The user or the system chooses the library, whose constructors may run.
    let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(dl_error(name)) } else { Ok(handle) }
}

/// Looks up a function of an open library; `None` if the library does not have it.
///
/// # Safety
/// `handle` must come from [`Library::open`].
#[must_use]
pub unsafe fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, by this function's contract, and `name` is a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn dl_error(name: &str) -> String {
    // SAFETY: `dlerror` may be called at any time.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{name} cannot be opened");
    }
    // SAFETY: the string is valid until the next call on this thread, and it is copied immediately.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
