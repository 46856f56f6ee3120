//! Calls, and the global functions.

use core::cell::RefCell;
use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;

use std::ffi::CString;
use std::vec::Vec;

use anyfn::__private::trampoline;
use anyfn::abi::classic::{TVMByteArray, TVMFunctionHandle, TVMValue};
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFunctionCall, TVMFFIFunctionGetGlobal, TVMFFIFunctionSetGlobal,
    TVMFFIObjectHandle, kTVMFFIFunction,
};
use anyfn::{Any, Error, ObjectRef, Result, registry};

use crate::handle::{self, give, text, write, wrong};
use crate::lowered::FEW;
use crate::{returned, value};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncCall(
    func: TVMFunctionHandle,
    arg_values: *mut TVMValue,
    type_codes: *mut c_int,
    num_args: c_int,
    ret_val: *mut TVMValue,
    ret_type_code: *mut c_int,
) -> c_int {
    trampoline(|| {
        let len = num_args as usize;
        let is_missing = num_args != 0 && (arg_values.is_null() || type_codes.is_null());
        if is_missing || num_args < 0 || ret_val.is_null() || ret_type_code.is_null() || func.is_null() {
            return Err(wrong_call(func, arg_values, type_codes, num_args, ret_val));
        }
        let mut few = [const { MaybeUninit::<TVMFFIAny>::uninit() }; FEW];
        let mut many = Vec::new();
        let views: *mut TVMFFIAny = if len <= FEW {
            few.as_mut_ptr().cast()
        } else if many.try_reserve_exact(len).is_ok() {
            many.as_mut_ptr()
        } else {
            anyfn::bail!("MemoryError", "cannot allocate memory for {len} arguments");
        };
        for at in 0..len {
            // SAFETY: by the API, there are as many values.
            let value = unsafe { *arg_values.wrapping_add(at) };
            // SAFETY: by the API, there are as many type codes.
            let code = unsafe { *type_codes.wrapping_add(at) };
            let view = views.wrapping_add(at);
            if let Some(type_index) = value::type_of_number(code) {
                // SAFETY: numbers occupy all eight bytes.
                let bits = unsafe { value.v_int64 };
                // SAFETY: there is room for as many views.
                unsafe { view.write(TVMFFIAny::from_bits(type_index, bits.cast_unsigned())) };
                continue;
            }
            // SAFETY: there is room for as many views, and by the API, the value is valid for the call.
            unsafe { write_other(view, value, code, at) }?;
        }
        let mut out = TVMFFIAny::NONE;
        // SAFETY: the views are valid, `out` is writable, and by the API `func` is the handle of a function.
        if unsafe { TVMFFIFunctionCall(func, views, num_args, &mut out) } != 0 {
            return Err(Error::take_raised());
        }
        let Some(code) = value::code_of_plain(out.type_index) else {
            // SAFETY: on success the result is an owned value.
            let (value, code) = returned::give(unsafe { Any::from_raw(out) })?;
            // SAFETY: by the API, the result is writable.
            unsafe { ret_val.write(value) };
            // SAFETY: by the API, the result is writable.
            unsafe { ret_type_code.write(code) };
            return Ok(());
        };
        // SAFETY: all eight bytes of a value are initialised.
        let bits = unsafe { out.value.v_int64 };
        // SAFETY: by the API, the result is writable.
        unsafe { ret_val.write(TVMValue { v_int64: bits }) };
        // SAFETY: by the API, the result is writable.
        unsafe { ret_type_code.write(code) };
        Ok(())
    })
}

/// Converts an argument that is not a number.
///
/// # Safety
/// `view` must be writable, and `value` valid for as long as the view is used.
#[inline(never)]
unsafe fn write_other(view: *mut TVMFFIAny, value: TVMValue, code: c_int, at: usize) -> Result<()> {
    // SAFETY: the caller guarantees the value.
    let converted = unsafe { value::view_of_other(value, code) }.map_err(|reason| refused(at, &reason))?;
    // SAFETY: the caller guarantees the place.
    unsafe { view.write(converted) };
    Ok(())
}

#[cold]
fn refused(at: usize, reason: &str) -> Error {
    Error::untraced("TypeError", &std::format!("TVMFuncCall: argument {at} of the call: {reason}"))
}

#[cold]
fn wrong_call(
    func: TVMFunctionHandle,
    values: *mut TVMValue,
    codes: *mut c_int,
    count: c_int,
    result: *mut TVMValue,
) -> Error {
    const THIS: &str = "TVMFuncCall";
    if count < 0 {
        return wrong(THIS, "num_args", &std::format!("expected 0 or more, got {count}"));
    }
    let name = match () {
        () if func.is_null() => "func",
        () if count > 0 && values.is_null() => "arg_values",
        () if count > 0 && codes.is_null() => "type_codes",
        () if result.is_null() => "ret_val",
        () => "ret_type_code",
    };
    Error::untraced("ValueError", &std::format!("{THIS}: argument `{name}` is NULL"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncFree(func: TVMFunctionHandle) -> c_int {
    // SAFETY: by the API, `func` is NULL or owned.
    trampoline(|| unsafe { handle::free("TVMFuncFree", "func", func, kTVMFFIFunction) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncGetGlobal(name: *const c_char, out: *mut TVMFunctionHandle) -> c_int {
    trampoline(|| {
        // SAFETY: by the API, `name` is a C string.
        let name = unsafe { text("TVMFuncGetGlobal", "name", name) }?;
        // SAFETY: by the API, `out` is writable.
        unsafe { give("TVMFuncGetGlobal", out, || global(name)) }
    })
}

/// Looks up a global function. A function that exists in the runtime of TVM 0.8 and has another name here is found under
/// both names.
fn global(name: &str) -> Result<Option<ObjectRef>> {
    let found = find(name)?;
    if found.is_some() {
        return Ok(found);
    }
    match OTHER_NAMES.binary_search_by_key(&name, |(classic, _)| classic) {
        Ok(at) => find(OTHER_NAMES[at].1),
        Err(_) => Ok(None),
    }
}

/// Names that global functions have in the runtime of TVM 0.8, sorted, and the names of these functions here.
const OTHER_NAMES: [(&str, &str); 14] = [
    ("runtime.Array", "ffi.Array"),
    ("runtime.ArrayGetItem", "ffi.ArrayGetItem"),
    ("runtime.ArraySize", "ffi.ArraySize"),
    ("runtime.Map", "ffi.Map"),
    ("runtime.MapCount", "ffi.MapCount"),
    ("runtime.MapGetItem", "ffi.MapGetItem"),
    ("runtime.MapSize", "ffi.MapSize"),
    ("runtime.ModuleGetSource", "ffi.ModuleInspectSource"),
    ("runtime.ModuleGetTypeKey", "ffi.ModuleGetKind"),
    ("runtime.ModuleLoadFromFile", "ffi.ModuleLoadFromFile"),
    ("runtime.ModuleSaveToFile", "ffi.ModuleWriteToFile"),
    ("runtime.ShapeTuple", "ffi.Shape"),
    ("runtime.String", "ffi.String"),
    ("runtime.SystemLib", "ffi.SystemLib"),
];

fn find(name: &str) -> Result<Option<ObjectRef>> {
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: the name is borrowed for the call, and `out` is writable.
    match unsafe { TVMFFIFunctionGetGlobal(&TVMFFIByteArray::from_slice(name.as_bytes()), &mut out) } {
        // SAFETY: the result is an owned function or NULL.
        0 => Ok(unsafe { ObjectRef::from_owned_or_null(out) }),
        _ => Err(Error::take_raised()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncRegisterGlobal(
    name: *const c_char,
    f: TVMFunctionHandle,
    override_: c_int,
) -> c_int {
    const THIS: &str = "TVMFuncRegisterGlobal";
    trampoline(|| {
        // SAFETY: by the API, `name` is a C string.
        let name = unsafe { text(THIS, "name", name) }?;
        // SAFETY: by the API, `f` is the handle of a function.
        let function = unsafe { handle::object(THIS, "f", f, kTVMFFIFunction) }?;
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        // SAFETY: name and function are borrowed for the call.
        match unsafe { TVMFFIFunctionSetGlobal(&name, function.as_handle(), override_) } {
            0 => Ok(()),
            _ => Err(Error::take_raised()),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncRemoveGlobal(name: *const c_char) -> c_int {
    trampoline(|| {
        // SAFETY: by the API, `name` is a C string.
        registry::remove(unsafe { text("TVMFuncRemoveGlobal", "name", name) }?).map(drop)
    })
}

/// Names of all global functions, as `TVMFuncListGlobalNames` returns them.
struct Names {
    _texts: Vec<CString>,
    addresses: Vec<*const c_char>,
}

std::thread_local! {
    static NAMES: RefCell<Names> =
        const { RefCell::new(Names { _texts: Vec::new(), addresses: Vec::new() }) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFuncListGlobalNames(
    out_size: *mut c_int,
    out_array: *mut *mut *const c_char,
) -> c_int {
    const THIS: &str = "TVMFuncListGlobalNames";
    trampoline(|| {
        // A name with a NUL character cannot be returned.
        let texts: Vec<CString> =
            registry::list()?.into_iter().filter_map(|name| CString::new(name).ok()).collect();
        let addresses: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let size = addresses.len() as c_int;
        let array = NAMES.try_with(|names| {
            let mut names = names.borrow_mut();
            *names = Names { _texts: texts, addresses };
            names.addresses.as_mut_ptr()
        });
        let Ok(array) = array else {
            anyfn::bail!("RuntimeError", "{THIS}: a thread that is ending cannot receive strings");
        };
        // SAFETY: by the API, `out_size` is writable.
        unsafe { write(THIS, "out_size", out_size, size) }?;
        // SAFETY: by the API, `out_array` is writable.
        unsafe { write(THIS, "out_array", out_array, array) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMByteArrayFree(arr: *mut TVMByteArray) -> c_int {
    trampoline(|| {
        if arr.is_null() || returned::is_returned(arr) {
            return Ok(());
        }
        Err(wrong(
            "TVMByteArrayFree",
            "arr",
            "this thread has not returned these bytes, or has returned others since",
        ))
    })
}
