//! Functions that compiled code calls, by symbol or through variables that the loader fills.

use core::ffi::{c_char, c_int, c_void};

use std::ffi::CString;

use anyfn::__private::{CLASSIC_SYMBOL, CONTEXT_SYMBOLS, ContextSymbol, entry, trampoline};
use anyfn::abi::classic::TVMFunctionHandle;
use anyfn::abi::{TVMFFIEnvModLookupFromImports, TVMFFIEnvModRegisterSystemLibSymbol, TVMFFIEnvRegisterCAPI};
use anyfn::{Error, Result};

use crate::error::TVMAPISetLastError;
use crate::function::TVMFuncCall;
use crate::handle::{text, wrong};

fn done(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::take_raised()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendGetFuncFromEnv(
    mod_node: *mut c_void,
    func_name: *const c_char,
    out: *mut TVMFunctionHandle,
) -> c_int {
    // SAFETY: the function of the ABI has the same contract.
    trampoline(|| done(unsafe { TVMFFIEnvModLookupFromImports(mod_node, func_name, out) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendRegisterSystemLibSymbol(name: *const c_char, ptr: *mut c_void) -> c_int {
    const THIS: &str = "TVMBackendRegisterSystemLibSymbol";
    trampoline(|| {
        // SAFETY: by the API, this is a C string.
        let name = unsafe { text(THIS, "name", name) }?;
        let Ok(name) = CString::new([CLASSIC_SYMBOL, name].concat()) else {
            return Err(wrong(THIS, "name", "it contains a NUL character"));
        };
        // SAFETY: the function of the ABI has the same contract.
        done(unsafe { TVMFFIEnvModRegisterSystemLibSymbol(name.as_ptr(), ptr) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendRegisterEnvCAPI(name: *const c_char, ptr: *mut c_void) -> c_int {
    // SAFETY: the function of the ABI has the same contract.
    trampoline(|| done(unsafe { TVMFFIEnvRegisterCAPI(name, ptr) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMBackendRunOnce(
    handle: *mut *mut c_void,
    f: Option<unsafe extern "C" fn(cdata: *mut c_void) -> c_int>,
    cdata: *mut c_void,
    _nbytes: c_int,
) -> c_int {
    // SAFETY: by the API, this is NULL or a variable of the caller, which no other thread uses.
    let (Some(handle), Some(f)) = (unsafe { handle.as_mut() }, f) else {
        return trampoline(|| {
            anyfn::bail!("ValueError", "TVMBackendRunOnce: argument `handle` or `f` is NULL")
        });
    };
    if !handle.is_null() {
        return 0;
    }
    *handle = core::ptr::without_provenance_mut(1);
    // SAFETY: by the API, the function may be called with `cdata`.
    unsafe { f(cdata) }
}

macro_rules! slot {
    ($name:literal, $function:ident) => {
        entry!(CONTEXT_SYMBOLS: ContextSymbol = {
            // SAFETY: compiled code calls the variable of this name with this function's signature, and the function
            // is never unloaded.
            unsafe { ContextSymbol::new($name, || $function as *mut c_void) }
        });
    };
}

slot!(c"__TVMFuncCall", TVMFuncCall);
slot!(c"__TVMAPISetLastError", TVMAPISetLastError);
slot!(c"__TVMBackendGetFuncFromEnv", TVMBackendGetFuncFromEnv);
