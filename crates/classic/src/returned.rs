//! Results of calls that the API returns without an owner: strings, data types and bytes. They belong to the thread until
//! its next result of this kind.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem;

use anyfn::abi::classic::{TVMByteArray, TVMValue};
use anyfn::abi::{
    TVMFFIAny, TVMFFIDataTypeToString, kTVMFFIBytes, kTVMFFIDataType, kTVMFFISmallBytes, kTVMFFISmallStr,
    kTVMFFIStr,
};
use anyfn::{Any, Error, Result};

use crate::value;

struct Returned {
    /// Owner of the string or bytes.
    value: UnsafeCell<Any>,
    /// Description of bytes that are in `value` itself.
    bytes: UnsafeCell<TVMByteArray>,
}

std::thread_local! {
    static RETURNED: Returned = const { Returned {
        value: UnsafeCell::new(Any::NONE),
        bytes: UnsafeCell::new(TVMByteArray { data: core::ptr::null(), size: 0 }),
    } };
}

/// Passes an owned value to the caller of a function of the API.
pub(crate) fn give(result: Any) -> Result<(TVMValue, c_int)> {
    let result = match result.type_index() {
        kTVMFFISmallStr | kTVMFFIStr | kTVMFFISmallBytes | kTVMFFIBytes => return keep(result),
        kTVMFFIDataType => return keep(dtype_text(&result)?),
        _ => result,
    };
    let mut unused = TVMByteArray { data: core::ptr::null(), size: 0 };
    // SAFETY: the value is valid, and for values other than bytes nothing refers to it or to `unused`.
    let lowered = unsafe { value::lower(result.as_raw(), &raw mut unused) };
    let lowered =
        lowered.map_err(|reason| anyfn::error!("TypeError", "the result cannot be returned: {reason}"))?;
    // The caller owns the reference now.
    mem::forget(result);
    Ok(lowered)
}

/// Keeps a value until the next one, and returns what describes it.
fn keep(result: Any) -> Result<(TVMValue, c_int)> {
    let kept = RETURNED.try_with(|returned| {
        // SAFETY: the cell is borrowed for this one operation, which runs no other code.
        let old = mem::replace(unsafe { &mut *returned.value.get() }, Any::NONE);
        // Releasing it may run code that calls functions of the API.
        drop(old);
        // SAFETY: the cell is borrowed for this one operation, which runs no other code.
        let old = mem::replace(unsafe { &mut *returned.value.get() }, result);
        let value: *const TVMFFIAny = returned.value.get().cast();
        // SAFETY: the value is valid, and stays at this address until the next result of this thread.
        let lowered = unsafe { value::lower(value, returned.bytes.get()) };
        drop(old);
        lowered
    });
    match kept {
        Ok(Ok(lowered)) => Ok(lowered),
        Ok(Err(reason)) => Err(anyfn::error!("TypeError", "the result cannot be returned: {reason}")),
        Err(_) => {
            Err(anyfn::error!("RuntimeError", "a thread that is ending cannot receive strings and bytes"))
        }
    }
}

fn dtype_text(dtype: &Any) -> Result<Any> {
    // SAFETY: the value is a data type.
    let dtype = unsafe { dtype.as_raw().value.v_dtype };
    let mut text = TVMFFIAny::NONE;
    // SAFETY: both addresses are valid.
    match unsafe { TVMFFIDataTypeToString(&dtype, &mut text) } {
        // SAFETY: on success the result is an owned value.
        0 => Ok(unsafe { Any::from_raw(text) }),
        _ => Err(Error::take_raised()),
    }
}

/// Returns true if `array` describes bytes that this thread has returned last.
pub(crate) fn is_returned(array: *mut TVMByteArray) -> bool {
    let is_it = |returned: &Returned| {
        if core::ptr::eq(returned.bytes.get(), array) {
            return true;
        }
        // SAFETY: the cell is borrowed for this one operation, which runs no other code.
        let value = unsafe { &*returned.value.get() };
        let cell = value.as_object().map(|object| object.as_handle().cast::<anyfn::abi::TVMFFIObject>());
        cell.is_some_and(|header| core::ptr::eq(header.wrapping_add(1).cast(), array))
    };
    RETURNED.try_with(is_it).unwrap_or(false)
}
