//! Queries about the files that are loaded into the process, on Linux.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;

/// Returns the path of the loaded file that contains an address; `None` if the address is in no file. The path is
/// absolute if it can be resolved.
pub(crate) fn file_of(address: *const c_void) -> Option<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` accepts any address; `info` is writable.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` has filled it, as its result shows.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the name is a C string that lives as long as the file is loaded, and the file is loaded now.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    match std::fs::canonicalize(&name) {
        Ok(path) => Some(path.to_string_lossy().into_owned()),
        Err(_) => Some(name),
    }
}

/// Returns the addresses at which loaded files export a symbol called `name`, without duplicates.
pub(crate) fn symbols_named(name: &CStr) -> Vec<*const c_void> {
    let mut found = Vec::new();
    for file in loaded_files() {
        let path = if file.is_empty() { core::ptr::null() } else { file.as_ptr() };
        // SAFETY: the path is a valid C string, or NULL for the program; with `RTLD_NOLOAD` nothing is loaded and no
        // code runs.
        let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: the handle is valid, and the name is a C string.
        let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) }.cast_const();
        // SAFETY: releases the reference that `dlopen` counted; the other references keep the file loaded.
        unsafe { libc::dlclose(handle) };
        if !symbol.is_null() && !found.contains(&symbol) {
            found.push(symbol);
        }
    }
    found
}

/// Returns the names of all loaded files as the dynamic loader stores them; the name of the main program is
/// empty.
fn loaded_files() -> Vec<CString> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the call below passes this vector.
        let out = unsafe { &mut *out.cast::<Vec<CString>>() };
        // SAFETY: the loader passes a valid struct.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: the name is a C string that is valid during the visit.
            out.push(unsafe { CStr::from_ptr(name) }.into());
        }
        0
    }
    let mut files = Vec::new();
    // SAFETY: `visit` receives the vector, which outlives the call, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut files).cast()) };
    files
}
