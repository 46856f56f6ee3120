//! Handles, and checks of arguments that are common to all functions.

use core::ffi::{CStr, c_char, c_int, c_void};

use std::format;
use std::string::String as StdString;

use anyfn::abi::classic::tvm_index_t;
use anyfn::abi::{
    DLTensor, TVMFFIObject, TVMFFIObjectHandle, kTVMFFIObject, kTVMFFIStaticObjectBegin, kTVMFFITensor,
};
use anyfn::{Error, Module, ObjectRef, Result, Tensor};

/// Returns an error that names the function `this` and one of its arguments.
#[cold]
pub(crate) fn wrong(this: &str, argument: &str, reason: &str) -> Error {
    Error::untraced("TypeError", &format!("{this}: argument `{argument}`: {reason}"))
}

#[cold]
fn null(this: &str, argument: &str) -> Error {
    Error::untraced("ValueError", &format!("{this}: argument `{argument}` is NULL"))
}

/// Returns the address of the object that contains the `DLTensor` of an array.
#[inline]
pub(crate) fn of_array(array: *mut DLTensor) -> *mut TVMFFIObject {
    array.cast::<TVMFFIObject>().wrapping_sub(1)
}

/// Returns the handle of an array: the address of the `DLTensor` in a tensor object.
///
/// # Safety
/// `object` must be a tensor object.
#[inline]
pub(crate) unsafe fn array_of(object: *mut c_void) -> *mut DLTensor {
    // SAFETY: the content of a tensor object follows its header.
    unsafe { object.cast::<TVMFFIObject>().add(1) }.cast()
}

/// Returns the type index of the object at an address, or the reason why there is no object of the type `expected`.
/// Most objects that were released are recognised, because the memory allocator has overwritten their header.
///
/// # Safety
/// `address` must be the address of an object, or of other readable memory.
#[inline]
pub(crate) unsafe fn type_index(address: *mut c_void, expected: i32) -> Result<i32, StdString> {
    let header = address.cast::<TVMFFIObject>();
    if !header.is_aligned() {
        return Err("it is not the address of an object".into());
    }
    // SAFETY: the caller guarantees readable memory.
    let type_index = unsafe { (*header).type_index };
    let fits =
        if expected == kTVMFFIObject { type_index >= kTVMFFIStaticObjectBegin } else { type_index == expected };
    // SAFETY: the caller guarantees readable memory.
    if !fits || unsafe { (*header).combined_ref_count } & 0xffff_ffff == 0 {
        return Err(unlike(type_index, expected));
    }
    Ok(type_index)
}

#[cold]
fn unlike(type_index: i32, expected: i32) -> StdString {
    let expected = anyfn::type_key(expected);
    let is_object = type_index >= kTVMFFIStaticObjectBegin;
    match Some(anyfn::type_key(type_index)).filter(|key| is_object && !key.is_empty()) {
        Some(key) if key != expected && !key.starts_with('<') => format!("expected {expected}, got {key}"),
        _ => {
            format!("expected {expected}, got the address of something else, or of an object that was released")
        }
    }
}

/// Returns the object of a handle, borrowed.
///
/// # Safety
/// `handle` must be NULL or the address of an object, or of other readable memory.
pub(crate) unsafe fn object(
    this: &str,
    argument: &str,
    handle: *mut c_void,
    expected: i32,
) -> Result<ObjectRef> {
    if handle.is_null() {
        return Err(null(this, argument));
    }
    // SAFETY: the caller guarantees the handle.
    unsafe { type_index(handle, expected) }.map_err(|reason| wrong(this, argument, &reason))?;
    // SAFETY: the caller guarantees the handle, and the header is that of an object.
    unsafe { ObjectRef::from_borrowed_or_null(handle) }.ok_or_else(|| null(this, argument))
}

/// Returns the module of a handle, borrowed.
///
/// # Safety
/// The requirement of [`object`] applies.
pub(crate) unsafe fn module(this: &str, argument: &str, handle: *mut c_void) -> Result<Module> {
    // SAFETY: the caller guarantees the handle.
    let object = unsafe { object(this, argument, handle, anyfn::abi::kTVMFFIModule) }?;
    Module::try_from_object(object).map_err(|_| wrong(this, argument, "expected a module"))
}

/// Returns the tensor of an array handle, borrowed.
///
/// # Safety
/// `handle` must be NULL or the handle of an array, or the address of other readable memory with as much before it.
pub(crate) unsafe fn tensor(this: &str, argument: &str, handle: *mut DLTensor) -> Result<Tensor> {
    if handle.is_null() {
        return Err(null(this, argument));
    }
    // SAFETY: the caller guarantees the handle.
    let object = unsafe { object(this, argument, of_array(handle).cast(), kTVMFFITensor) }?;
    Tensor::try_from_object(object).map_err(|_| wrong(this, argument, "expected an array"))
}

/// Releases the reference of the caller to the object of a handle. NULL is ignored.
///
/// # Safety
/// `handle` must be NULL or an owned handle, or the address of other readable memory.
pub(crate) unsafe fn free(this: &str, argument: &str, handle: *mut c_void, expected: i32) -> Result<()> {
    if handle.is_null() {
        return Ok(());
    }
    // SAFETY: the caller guarantees the handle.
    unsafe { type_index(handle, expected) }.map_err(|reason| wrong(this, argument, &reason))?;
    // SAFETY: the caller owns a reference, which passes to the result.
    drop(unsafe { ObjectRef::from_owned_or_null(handle) });
    Ok(())
}

/// Returns a string argument.
///
/// # Safety
/// `text` must be NULL or a C string that is valid for `'a`.
pub(crate) unsafe fn text<'a>(this: &str, argument: &str, text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(null(this, argument));
    }
    // SAFETY: the caller guarantees a C string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| wrong(this, argument, "expected UTF-8"))
}

/// Writes a result.
///
/// # Safety
/// `out` must be NULL or writable.
pub(crate) unsafe fn write<T>(this: &str, argument: &str, out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(null(this, argument));
    }
    // SAFETY: the caller guarantees the place.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a handle as the result, or NULL, after checking that there is a place for it.
///
/// # Safety
/// `out` must be NULL or writable.
pub(crate) unsafe fn give(
    this: &str,
    out: *mut TVMFFIObjectHandle,
    object: impl FnOnce() -> Result<Option<ObjectRef>>,
) -> Result<()> {
    if out.is_null() {
        return Err(null(this, "out"));
    }
    let handle = object()?.map_or(core::ptr::null_mut(), ObjectRef::into_handle);
    // SAFETY: the caller guarantees the place.
    unsafe { out.write(handle) };
    Ok(())
}

/// Returns the extents of a shape argument.
///
/// # Safety
/// `shape` must be NULL or point to `ndim` extents that are valid for `'a`.
pub(crate) unsafe fn extents<'a>(this: &str, shape: *const tvm_index_t, ndim: c_int) -> Result<&'a [i64]> {
    let Ok(count) = usize::try_from(ndim) else {
        return Err(wrong(this, "ndim", &format!("expected 0 or more, got {ndim}")));
    };
    if count == 0 {
        return Ok(&[]);
    }
    if shape.is_null() {
        anyfn::bail!("ValueError", "{this}: argument `shape` is NULL");
    }
    // SAFETY: the caller guarantees the extents.
    Ok(unsafe { core::slice::from_raw_parts(shape, count) })
}
