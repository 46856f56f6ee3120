//! Exported functions that create, call and register function objects.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFunctionCell, TVMFFIMethodInfo, TVMFFIObject, TVMFFIObjectHandle,
    TVMFFISafeCallType, kTVMFFIFunction,
};
use anyfn::{ObjectRef, bail, observe};

use super::{bytes, null, object, out, reference};
use crate::function_table::Description;
use crate::{extern_function, libraries, registry};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIFunctionCreate(
    self_: *mut c_void,
    safe_call: Option<TVMFFISafeCallType>,
    deleter: Option<unsafe extern "C" fn(self_: *mut c_void)>,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out("TVMFFIFunctionCreate", "out", result) }?;
        // SAFETY: the ABI requires a function that can be called from any thread.
        result.write(unsafe { extern_function::create(self_, safe_call, deleter) }?.into_handle());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIFunctionGetGlobal(
    name: *const TVMFFIByteArray,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIFunctionGetGlobal";
        // SAFETY: the ABI requires a valid name.
        let name = unsafe { super::name(THIS, "name", name) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        result.write(registry::get(name).map_or(ptr::null_mut(), ObjectRef::into_handle));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIFunctionSetGlobal(
    name: *const TVMFFIByteArray,
    f: TVMFFIObjectHandle,
    allow_override: c_int,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIFunctionSetGlobal";
        // SAFETY: the ABI requires a valid name.
        let name = unsafe { super::new_name(THIS, "name", name) }?;
        // SAFETY: the ABI requires a valid handle.
        let function = unsafe { object(THIS, "f", f) }?;
        libraries::register_function(name, allow_override != 0, |overrides| {
            registry::set(name, function, Description::default(), overrides)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIFunctionSetGlobalFromMethodInfo(
    method_info: *const TVMFFIMethodInfo,
    allow_override: c_int,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIFunctionSetGlobalFromMethodInfo";
        // SAFETY: the ABI requires a valid struct.
        let info = unsafe { reference(THIS, "method_info", method_info) }?;
        // SAFETY: the ABI requires a valid struct, including its strings.
        let name = unsafe { super::new_name(THIS, "method_info.name", &info.name) }?;
        // SAFETY: the ABI requires a valid struct, including its strings.
        let doc = unsafe { bytes(THIS, "method_info.doc", &info.doc) }?;
        // SAFETY: the ABI requires a valid struct, including its strings.
        let metadata = unsafe { bytes(THIS, "method_info.metadata", &info.metadata) }?;
        if info.method.type_index != kTVMFFIFunction {
            bail!("TypeError", "{THIS}: argument `method_info.method` is not a function");
        }
        // SAFETY: the type index states that the value holds an object.
        let function = unsafe { info.method.value.v_obj };
        // SAFETY: the ABI requires a valid value.
        let function = unsafe { object(THIS, "method_info.method", function.cast()) }?;
        libraries::register_function(name, allow_override != 0, |overrides| {
            registry::set(name, function, Description { doc, metadata }, overrides)
        })
    })
}

/// Type index that an object must have for [`TVMFFIFunctionCall`] to call it directly. While no observer of
/// calls is set, this is the type index of functions; otherwise it is an index that no object has. So one
/// comparison checks both the type and the observer.
static PASSED_ON: AtomicI32 = AtomicI32::new(kTVMFFIFunction);

/// Sets whether calls that are made through `TVMFFIFunctionCall` are reported to the observer of
/// calls.
pub fn watch_calls(is_watched: bool) {
    const NO_TYPE: i32 = i32::MIN;
    PASSED_ON.store(if is_watched { NO_TYPE } else { kTVMFFIFunction }, Ordering::Relaxed);
}

/// Makes the calls that [`TVMFFIFunctionCall`] does not make directly. If `func` is a function, calls it and
/// reports the call to the observer of calls; otherwise raises an error.
///
/// This function has the same signature as `TVMFFIFunctionCall`, and its result is hidden from the optimiser. So
/// `TVMFFIFunctionCall` can end with a jump to it and needs no stack frame, which saves a sixth of the cost of a call.
#[cold]
#[inline(never)]
unsafe extern "C" fn unusual_call(
    func: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    let header = func.cast::<TVMFFIObject>();
    // SAFETY: the ABI requires a valid handle, and the type of an object does not change.
    let type_index = (!header.is_null()).then(|| unsafe { (*header).type_index });
    if type_index == Some(kTVMFFIFunction) {
        // SAFETY: the object is a function; the caller guarantees the rest.
        return unsafe { observe::call(observe::door::C, func, args, num_args, result) };
    }
    core::hint::black_box(trampoline(|| {
        const THIS: &str = "TVMFFIFunctionCall";
        let Some(other) = type_index else {
            return Err(null(THIS, "func"));
        };
        bail!("TypeError", "{THIS}: expected a function but got an object of type {other}")
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIFunctionCall(
    func: TVMFFIObjectHandle,
    args: *mut TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    let header = func.cast::<TVMFFIObject>();
    // SAFETY: the handle is not NULL, so it is valid as the ABI requires.
    if header.is_null() || unsafe { (*header).type_index } != PASSED_ON.load(Ordering::Relaxed) {
        // SAFETY: `unusual_call` accepts any handle that the ABI allows.
        return unsafe { unusual_call(func, args, num_args, result) };
    }
    // SAFETY: the cell of a function object directly follows the header.
    let cell = unsafe { header.add(1) }.cast::<TVMFFIFunctionCell>();
    // SAFETY: the cell of a function object directly follows the header; the caller keeps the function alive for the
    // call.
    let safe_call = unsafe { (*cell).safe_call };
    // SAFETY: the arguments are passed on unchanged.
    unsafe { safe_call(func, args, num_args, result) }
}
