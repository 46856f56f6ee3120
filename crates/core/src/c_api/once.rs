//! Exported functions that initialise a handle once, and release it.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::__private::trampoline;

use super::null;
use crate::once;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIHandleInitOnce(
    handle_addr: *mut *mut c_void,
    init_func: Option<unsafe extern "C" fn(result: *mut *mut c_void) -> c_int>,
) -> c_int {
    const THIS: &str = "TVMFFIHandleInitOnce";
    let mut own_code = 0;
    let code = trampoline(|| {
        if handle_addr.is_null() {
            return Err(null(THIS, "handle_addr"));
        }
        let Some(init) = init_func else { return Err(null(THIS, "init_func")) };
        // SAFETY: the ABI requires a location that only these functions change.
        let cell = unsafe { AtomicPtr::from_ptr(handle_addr) };
        // SAFETY: the ABI requires a location that only these functions change; the function comes from the caller.
        own_code = unsafe { once::init(cell, init) }?;
        Ok(())
    });
    if code == 0 { own_code } else { code }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIHandleDeinitOnce(
    handle_addr: *mut *mut c_void,
    deinit_func: Option<unsafe extern "C" fn(handle: *mut c_void) -> c_int>,
) -> c_int {
    const THIS: &str = "TVMFFIHandleDeinitOnce";
    let mut own_code = 0;
    let code = trampoline(|| {
        if handle_addr.is_null() {
            return Err(null(THIS, "handle_addr"));
        }
        let Some(deinit) = deinit_func else { return Err(null(THIS, "deinit_func")) };
        // SAFETY: the ABI requires a location that only these functions change.
        let handle = unsafe { AtomicPtr::from_ptr(handle_addr) }.swap(ptr::null_mut(), Ordering::AcqRel);
        if !handle.is_null() {
            // SAFETY: the function comes from the caller and is called once, with the handle that was created.
            own_code = unsafe { deinit(handle) };
        }
        Ok(())
    });
    if code == 0 { own_code } else { code }
}
