//! Conversion of values between the classic API and the ABI, in both directions. Nothing is copied.

use core::ffi::{CStr, c_int, c_void};

use std::format;
use std::string::String as StdString;

use anyfn::abi::classic::{
    TVMByteArray, TVMValue, kDLDevice, kTVMArgFloat, kTVMArgInt, kTVMArgUInt, kTVMBytes, kTVMDLTensorHandle,
    kTVMDataType, kTVMModuleHandle, kTVMNDArrayHandle, kTVMNullptr, kTVMObjectHandle, kTVMObjectRValueRefArg,
    kTVMOpaqueHandle, kTVMPackedFuncHandle, kTVMStr,
};
use anyfn::abi::{
    DLDevice, TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIObject, kDLHexagon, kTVMFFIBool,
    kTVMFFIByteArrayPtr, kTVMFFIBytes, kTVMFFIDLTensorPtr, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIFloat,
    kTVMFFIFunction, kTVMFFIInt, kTVMFFIModule, kTVMFFINone, kTVMFFIObject, kTVMFFIObjectRValueRef,
    kTVMFFIOpaquePtr, kTVMFFIRawStr, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
    kTVMFFITensor,
};

use crate::handle;

/// Converts a value of the classic API to a view, or returns the reason why that is impossible.
///
/// # Safety
/// The member of `value` that `code` selects must be valid for as long as the view is used.
#[inline]
pub(crate) unsafe fn view(value: TVMValue, code: c_int) -> Result<TVMFFIAny, StdString> {
    match type_of_number(code) {
        Some(type_index) => {
            // SAFETY: numbers occupy all eight bytes.
            let bits = unsafe { value.v_int64 };
            Ok(TVMFFIAny::from_bits(type_index, bits.cast_unsigned()))
        }
        // SAFETY: the caller guarantees the value.
        None => unsafe { view_of_other(value, code) },
    }
}

/// Returns the type index of numbers with a type code; `None` for other values. Loops over arguments convert numbers in
/// place, because a value that passes through the result of a function is written to memory twice.
#[inline(always)]
pub(crate) fn type_of_number(code: c_int) -> Option<i32> {
    match code {
        kTVMArgInt | kTVMArgUInt => Some(kTVMFFIInt),
        kTVMArgFloat => Some(kTVMFFIFloat),
        _ => None,
    }
}

/// Converts a value that is not a number.
///
/// # Safety
/// The requirement of [`view`] applies.
#[inline(never)]
pub(crate) unsafe fn view_of_other(value: TVMValue, code: c_int) -> Result<TVMFFIAny, StdString> {
    // SAFETY: each type code below that uses it selects a pointer.
    let address = || unsafe { value.v_handle };
    let known = |type_index| Ok(pointer(type_index, address()));
    match code {
        kTVMNullptr => Ok(TVMFFIAny::NONE),
        kTVMDataType => {
            // SAFETY: the type code selects this member.
            let dtype = unsafe { value.v_type };
            let mut any = TVMFFIAny::from_bits(kTVMFFIDataType, 0);
            any.value.v_dtype = dtype;
            Ok(any)
        }
        kDLDevice => {
            // SAFETY: the type code selects this member.
            let device = unsafe { value.v_device };
            let mut any = TVMFFIAny::from_bits(kTVMFFIDevice, 0);
            any.value.v_device = device_of(device)?;
            Ok(any)
        }
        // Without an address they are None, as a function that expects a value then says.
        kTVMOpaqueHandle | kTVMDLTensorHandle | kTVMObjectHandle | kTVMModuleHandle | kTVMPackedFuncHandle
        | kTVMNDArrayHandle
            if address().is_null() =>
        {
            Ok(TVMFFIAny::NONE)
        }
        kTVMOpaqueHandle => known(kTVMFFIOpaquePtr),
        kTVMDLTensorHandle => known(kTVMFFIDLTensorPtr),
        // SAFETY: the type code selects an object.
        kTVMObjectHandle => unsafe { object(address(), kTVMFFIObject) },
        // SAFETY: the type code selects an object.
        kTVMModuleHandle => unsafe { object(address(), kTVMFFIModule) },
        // SAFETY: the type code selects an object.
        kTVMPackedFuncHandle => unsafe { object(address(), kTVMFFIFunction) },
        // SAFETY: the type code selects the content of a tensor object.
        kTVMNDArrayHandle => unsafe { object(handle::of_array(address().cast()).cast(), kTVMFFITensor) },
        kTVMStr | kTVMBytes | kTVMObjectRValueRefArg if address().is_null() => {
            Err("its address is NULL".into())
        }
        kTVMStr => known(kTVMFFIRawStr),
        kTVMBytes => known(kTVMFFIByteArrayPtr),
        kTVMObjectRValueRefArg => {
            // SAFETY: the type code selects the address of a variable, which is not NULL.
            let moved = unsafe { *address().cast::<*mut c_void>() };
            if moved.is_null() {
                return Ok(TVMFFIAny::NONE);
            }
            // SAFETY: the variable holds an object.
            unsafe { object(moved, kTVMFFIObject) }?;
            known(kTVMFFIObjectRValueRef)
        }
        _ => Err(format!("unknown type code {code}")),
    }
}

fn pointer(type_index: i32, address: *mut c_void) -> TVMFFIAny {
    TVMFFIAny { type_index, small_str_len: 0, value: TVMFFIAnyValue::from_ptr(address) }
}

/// # Safety
/// `address` must be the address of an object.
unsafe fn object(address: *mut c_void, expected: i32) -> Result<TVMFFIAny, StdString> {
    // SAFETY: the caller guarantees the address.
    let type_index = unsafe { handle::type_index(address, expected) }?;
    Ok(pointer(type_index, address))
}

/// Converts a value to one of the classic API, or returns the reason why that is impossible. Handles and strings are
/// those of the value: an owned value stays the owner. `bytes` is the place for the description of bytes.
///
/// # Safety
/// `value` must be a valid value, and stay at its address for as long as the result is used.
#[inline]
pub(crate) unsafe fn lower(
    value: *const TVMFFIAny,
    bytes: *mut TVMByteArray,
) -> Result<(TVMValue, c_int), StdString> {
    // SAFETY: the caller guarantees the value.
    let any = unsafe { &*value };
    match code_of_plain(any.type_index) {
        Some(code) => {
            // SAFETY: all eight bytes are initialised.
            let bits = unsafe { any.value.v_int64 };
            Ok((TVMValue { v_int64: bits }, code))
        }
        // SAFETY: the caller guarantees the value and the place.
        None => unsafe { lower_other(value, bytes) },
    }
}

/// Returns the type code of numbers and None with a type index; `None` for other values.
#[inline(always)]
pub(crate) fn code_of_plain(type_index: i32) -> Option<c_int> {
    match type_index {
        kTVMFFINone => Some(kTVMNullptr),
        kTVMFFIInt | kTVMFFIBool => Some(kTVMArgInt),
        kTVMFFIFloat => Some(kTVMArgFloat),
        _ => None,
    }
}

/// Converts a value that is neither a number nor None.
///
/// # Safety
/// The requirements of [`lower`] apply.
#[inline(never)]
pub(crate) unsafe fn lower_other(
    value: *const TVMFFIAny,
    bytes: *mut TVMByteArray,
) -> Result<(TVMValue, c_int), StdString> {
    // SAFETY: the caller guarantees the value.
    let any = unsafe { &*value };
    let type_index = any.type_index;
    // SAFETY: each type below that uses it has a pointer.
    let address = || unsafe { any.value.v_ptr };
    let handle = |address: *mut c_void, code| {
        let mut value = TVMValue { v_int64: 0 };
        value.v_handle = address;
        Ok((value, code))
    };
    // The content of strings and bytes follows the header of their object.
    // SAFETY: the types below that use it are objects with this content.
    let cell = || unsafe { address().cast::<TVMFFIObject>().add(1) }.cast::<TVMFFIByteArray>();
    let inline = || (&raw const any.value.v_bytes).cast::<core::ffi::c_char>();
    match type_index {
        kTVMFFIOpaquePtr => handle(address(), kTVMOpaqueHandle),
        kTVMFFIDLTensorPtr => handle(address(), kTVMDLTensorHandle),
        kTVMFFIRawStr => handle(address(), kTVMStr),
        kTVMFFIByteArrayPtr => handle(address(), kTVMBytes),
        kTVMFFIObjectRValueRef => handle(address(), kTVMObjectRValueRefArg),
        kTVMFFIDataType => {
            // SAFETY: the type index selects this member.
            let dtype = unsafe { any.value.v_dtype };
            let mut value = TVMValue { v_int64: 0 };
            value.v_type = dtype;
            Ok((value, kTVMDataType))
        }
        kTVMFFIDevice => {
            // SAFETY: the type index selects this member.
            let device = unsafe { any.value.v_device };
            let device = DLDevice { device_type: classic_device_type(device.device_type)?, ..device };
            Ok((TVMValue { v_device: device }, kDLDevice))
        }
        kTVMFFISmallStr => {
            let length = any.small_str_len as usize;
            // SAFETY: the seven bytes of a small string and the zero after them are in the value.
            let text = unsafe { CStr::from_ptr(inline()) };
            whole(text.count_bytes() == length)?;
            handle(inline().cast_mut().cast(), kTVMStr)
        }
        kTVMFFIStr => {
            // SAFETY: this is a string object.
            let text = unsafe { &*cell() };
            // SAFETY: the content of a string object is followed by a zero.
            let length = unsafe { libc::strlen(text.data) };
            whole(length == text.size)?;
            handle(text.data.cast_mut().cast(), kTVMStr)
        }
        kTVMFFISmallBytes => {
            let array = TVMByteArray { data: inline(), size: any.small_str_len as usize };
            // SAFETY: the caller guarantees the place.
            unsafe { bytes.write(array) };
            handle(bytes.cast(), kTVMBytes)
        }
        // Both structs are an address and a length.
        kTVMFFIBytes => handle(cell().cast(), kTVMBytes),
        kTVMFFIFunction => handle(address(), kTVMPackedFuncHandle),
        kTVMFFIModule => handle(address(), kTVMModuleHandle),
        // SAFETY: this is a tensor object.
        kTVMFFITensor => handle(unsafe { handle::array_of(address()) }.cast(), kTVMNDArrayHandle),
        _ if type_index >= kTVMFFIStaticObjectBegin => handle(address(), kTVMObjectHandle),
        _ => Err(format!("a value of type `{}` has no type code", anyfn::type_key(type_index))),
    }
}

/// Returns an error if a string is not the whole one, because it contains a NUL character.
fn whole(is_whole: bool) -> Result<(), StdString> {
    match is_whole {
        true => Ok(()),
        false => Err("a string that contains a NUL character has no type code; pass bytes".into()),
    }
}

/// Device types of TVM 0.8 whose numbers DLPack has given to other devices since.
const MICRO_DEV: i32 = 13;
const HEXAGON: i32 = 14;
const LAST_IN_BOTH: i32 = 12;
const WEB_GPU: i32 = 15;
/// Distance between the device types of two sessions in TVM 0.8.
const SESSION: i32 = 128;

/// Converts a device of TVM 0.8.
pub(crate) fn device_of(device: DLDevice) -> Result<DLDevice, StdString> {
    let kind = match device.device_type % SESSION {
        HEXAGON => kDLHexagon,
        kind @ (..=LAST_IN_BOTH | WEB_GPU) => kind,
        MICRO_DEV => return Err("device type 13 (microcontroller) has no driver".into()),
        kind => return Err(format!("unknown device type {kind}")),
    };
    Ok(DLDevice { device_type: device.device_type - device.device_type % SESSION + kind, ..device })
}

/// Returns the number that a device type has in TVM 0.8.
fn classic_device_type(device_type: i32) -> Result<i32, StdString> {
    match device_type % SESSION {
        kDLHexagon => Ok(device_type - kDLHexagon + HEXAGON),
        ..=LAST_IN_BOTH | WEB_GPU => Ok(device_type),
        kind => Err(format!("device type {kind} does not exist in TVM 0.8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        let of = |device_type| device_of(DLDevice { device_type, device_id: 3 }).map(|d| d.device_type);
        for (classic, ours) in
            [(1, 1), (2, 2), (12, 12), (14, 16), (15, 15), (128 + 2, 128 + 2), (128 + 14, 128 + 16)]
        {
            assert_eq!(of(classic), Ok(ours));
            assert_eq!(classic_device_type(ours), Ok(classic));
        }
        assert!(of(13).is_err() && of(16).is_err() && of(99).is_err());
        // CUDA managed memory and oneAPI have no number in TVM 0.8.
        assert!(classic_device_type(13).is_err() && classic_device_type(14).is_err());
    }
}
