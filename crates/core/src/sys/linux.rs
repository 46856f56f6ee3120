//! The files that the process is made of.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;

/// The file that holds an address, as an absolute path where it can be found.
pub(crate) fn file_of(address: *const c_void) -> Option<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; `info` is writable.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` has filled it, as it says by its result.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the name is a C string that lives as long as the file is loaded, which it is now.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    match std::fs::canonicalize(&name) {
        Ok(path) => Some(path.to_string_lossy().into_owned()),
        Err(_) => Some(name),
    }
}

/// Addresses of a symbol in all loaded files that export it, each once.
pub(crate) fn symbols_named(name: &CStr) -> Vec<*const c_void> {
    let mut found = Vec::new();
    for file in loaded_files() {
        let path = if file.is_empty() { core::ptr::null() } else { file.as_ptr() };
        // SAFETY: a valid C string or NULL (the program); with NOLOAD nothing is loaded and no code runs.
        let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: a valid handle and a C string.
        let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) }.cast_const();
        // SAFETY: gives back what `dlopen` counted; the file stays loaded by whoever loaded it.
        unsafe { libc::dlclose(handle) };
        if !symbol.is_null() && !found.contains(&symbol) {
            found.push(symbol);
        }
    }
    found
}

/// Names of all loaded files as the loader knows them; the program's is empty.
fn loaded_files() -> Vec<CString> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the caller below passes this very vector.
        let out = unsafe { &mut *out.cast::<Vec<CString>>() };
        // SAFETY: the loader passes a valid struct.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: a C string that is valid during the visit.
            out.push(unsafe { CStr::from_ptr(name) }.into());
        }
        0
    }
    let mut files = Vec::new();
    // SAFETY: `visit` gets the vector, which outlives the call, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut files).cast()) };
    files
}
