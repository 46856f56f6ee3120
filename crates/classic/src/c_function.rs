//! C functions as function objects, and their arguments and results.

use core::ffi::{c_int, c_void};
use core::ptr;

use std::boxed::Box;

use anyfn::__private::trampoline;
use anyfn::abi::classic::{
    TVMFunctionHandle, TVMPackedCFunc, TVMPackedCFuncFinalizer, TVMRetValueHandle, TVMValue, kTVMBytes,
    kTVMModuleHandle, kTVMNDArrayHandle, kTVMObjectHandle, kTVMObjectRValueRefArg, kTVMPackedFuncHandle,
    kTVMStr,
};
use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyViewToOwnedAny, TVMFFIFunctionCreate, TVMFFIObjectHandle, kTVMFFIFloat, kTVMFFIInt,
};
use anyfn::{Any, Error, ObjectRef, Result};

use crate::handle::{give, wrong};
use crate::value::{lower, view};
use crate::{error, lowered};

/// A C function with its resource.
struct CFunction {
    call: TVMPackedCFunc,
    resource: *mut c_void,
    finalizer: Option<TVMPackedCFuncFinalizer>,
    /// Function without a resource that calls the same code, which keeps the library of this code mapped.
    _code: Option<ObjectRef>,
}

impl Drop for CFunction {
    fn drop(&mut self) {
        if let Some(finalizer) = self.finalizer {
            // SAFETY: the creator of the function passed this function for its resource; it is called once.
            unsafe { finalizer(self.resource) };
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncCreateFromCFunc(
    func: Option<TVMPackedCFunc>,
    resource_handle: *mut c_void,
    fin: Option<TVMPackedCFuncFinalizer>,
    out: *mut TVMFunctionHandle,
) -> c_int {
    const THIS: &str = "TVMFuncCreateFromCFunc";
    trampoline(|| {
        let Some(call) = func else { anyfn::bail!("ValueError", "{THIS}: argument `func` is NULL") };
        let function = || {
            // The runtime finds the library of the code by its address.
            // SAFETY: `call_plain` calls its first argument, which is a function of this type.
            let code = unsafe { create(call as *mut c_void, call_plain, None) }?;
            if resource_handle.is_null() && fin.is_none() {
                return Ok(Some(code));
            }
            let function =
                Box::new(CFunction { call, resource: resource_handle, finalizer: fin, _code: Some(code) });
            let function = Box::into_raw(function).cast();
            // SAFETY: `call` and `delete` expect this as their first argument.
            let created = unsafe { create(function, call_with_resource, Some(delete)) };
            created.map(Some).inspect_err(|_| {
                // SAFETY: nothing else has the address.
                let mut function = unsafe { Box::from_raw(function.cast::<CFunction>()) };
                // After an error, the caller keeps the resource.
                function.finalizer = None;
            })
        };
        // SAFETY: by the API, `out` is writable.
        unsafe { give(THIS, out, function) }
    })
}

type SafeCall = unsafe extern "C" fn(*mut c_void, *const TVMFFIAny, i32, *mut TVMFFIAny) -> c_int;

/// # Safety
/// `safe_call` and `deleter` must accept `data` as their first argument, on any thread.
unsafe fn create(
    data: *mut c_void,
    safe_call: SafeCall,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Result<ObjectRef> {
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: the caller guarantees the functions, and `out` is writable.
    let code = unsafe { TVMFFIFunctionCreate(data, Some(safe_call), deleter, &mut out) };
    // SAFETY: on success the result is an owned function.
    match unsafe { ObjectRef::from_owned_or_null(out) } {
        Some(function) if code == 0 => Ok(function),
        _ => Err(Error::take_raised()),
    }
}

unsafe extern "C" fn delete(data: *mut c_void) {
    // SAFETY: `TVMFuncCreateFromCFunc` has created it by `Box`, and it is deleted once.
    drop(unsafe { Box::from_raw(data.cast::<CFunction>()) });
}

unsafe extern "C" fn call_plain(
    data: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: `TVMFuncCreateFromCFunc` passed the address of a function of this type.
    let call = unsafe { core::mem::transmute::<*mut c_void, TVMPackedCFunc>(data) };
    // SAFETY: the caller guarantees arguments and result.
    unsafe { run(call, ptr::null_mut(), args, num_args, result) }
}

unsafe extern "C" fn call_with_resource(
    data: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller keeps the function alive for the call.
    let function = unsafe { &*data.cast::<CFunction>() };
    // SAFETY: the caller guarantees arguments and result.
    unsafe { run(function.call, function.resource, args, num_args, result) }
}

/// # Safety
/// `args` must point to `num_args` valid views for the call, and `result` must be writable and hold None.
#[inline]
unsafe fn run(
    call: TVMPackedCFunc,
    resource: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    trampoline(|| {
        let body = |values: *mut TVMValue, codes: *mut c_int| {
            // SAFETY: by the API, the function may be called with these on any thread.
            match unsafe { call(values, codes, num_args, result.cast(), resource) } {
                0 => Ok(()),
                code => Err(failed(code, result)),
            }
        };
        // SAFETY: the caller guarantees the views.
        unsafe { lowered::with(args, num_args, body) }
    })
}

#[cold]
fn failed(code: c_int, result: *mut TVMFFIAny) -> Error {
    // A function that fails may have set its result before.
    // SAFETY: the result is that of the call, which is writable and holds an owned value.
    unsafe { replace(result, TVMFFIAny::NONE) };
    error::of_failed(code)
}

/// Replaces an owned value.
///
/// # Safety
/// `place` must be writable and hold an owned value.
#[inline]
unsafe fn replace(place: *mut TVMFFIAny, new: TVMFFIAny) {
    // SAFETY: the caller guarantees the place.
    let old = unsafe { place.replace(new) };
    // SAFETY: the caller guarantees an owned value.
    drop(unsafe { Any::from_raw(old) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMCFuncSetReturn(
    ret: TVMRetValueHandle,
    value: *mut TVMValue,
    type_code: *mut c_int,
    num_ret: c_int,
) -> c_int {
    const THIS: &str = "TVMCFuncSetReturn";
    trampoline(|| {
        if num_ret != 1 {
            return Err(wrong(THIS, "num_ret", &std::format!("expected 1, got {num_ret}")));
        }
        let nulls = [(ret.is_null(), "ret"), (value.is_null(), "value"), (type_code.is_null(), "type_code")];
        if let Some((_, name)) = nulls.iter().find(|(is_null, _)| *is_null) {
            anyfn::bail!("ValueError", "{THIS}: argument `{name}` is NULL");
        }
        // SAFETY: by the API, this is readable.
        let value = unsafe { *value };
        // SAFETY: by the API, this is readable.
        let code = unsafe { *type_code };
        // SAFETY: by the API, the value is valid for the call.
        let view = unsafe { view(value, code) }.map_err(|reason| wrong(THIS, "value", &reason))?;
        let owned = owned(view)?;
        // SAFETY: by the API, this is the handle that the C function has received, whose place holds an owned value.
        unsafe { replace(ret.cast(), owned) };
        Ok(())
    })
}

/// Creates an owned value from a view.
#[inline]
pub(crate) fn owned(view: TVMFFIAny) -> Result<TVMFFIAny> {
    if matches!(view.type_index, kTVMFFIInt | kTVMFFIFloat) {
        return Ok(view);
    }
    let mut owned = TVMFFIAny::NONE;
    // SAFETY: the callers pass valid views, and `owned` is writable.
    match unsafe { TVMFFIAnyViewToOwnedAny(&view, &mut owned) } {
        0 => Ok(owned),
        _ => Err(Error::take_raised()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMCbArgToReturn(value: *mut TVMValue, code: *mut c_int) -> c_int {
    const THIS: &str = "TVMCbArgToReturn";
    trampoline(|| {
        let nulls = [(value.is_null(), "value"), (code.is_null(), "code")];
        if let Some((_, name)) = nulls.iter().find(|(is_null, _)| *is_null) {
            anyfn::bail!("ValueError", "{THIS}: argument `{name}` is NULL");
        }
        // SAFETY: by the API, this is readable.
        let given = unsafe { *value };
        // SAFETY: by the API, this is readable.
        let given_code = unsafe { *code };
        match given_code {
            kTVMStr | kTVMBytes => {
                return Err(wrong(THIS, "code", "strings and bytes cannot be owned; copy them"));
            }
            kTVMObjectHandle
            | kTVMModuleHandle
            | kTVMPackedFuncHandle
            | kTVMNDArrayHandle
            | kTVMObjectRValueRefArg => {}
            // These are owned by nobody.
            _ => return Ok(()),
        }
        // SAFETY: by the API, the value is an argument, which is valid for the call.
        let view = unsafe { view(given, given_code) }.map_err(|reason| wrong(THIS, "value", &reason))?;
        let owned = owned(view)?;
        let mut unused = anyfn::abi::classic::TVMByteArray { data: ptr::null(), size: 0 };
        // SAFETY: the value is an object, to whose place nothing refers.
        let lowered = unsafe { lower(&owned, &raw mut unused) };
        let (lowered, lowered_code) = match lowered {
            Ok(lowered) => lowered,
            Err(reason) => {
                // SAFETY: the value is owned here.
                drop(unsafe { Any::from_raw(owned) });
                return Err(wrong(THIS, "value", &reason));
            }
        };
        // SAFETY: by the API, both are writable.
        unsafe { value.write(lowered) };
        // SAFETY: by the API, both are writable.
        unsafe { code.write(lowered_code) };
        Ok(())
    })
}
