//! Exports for memory and calls.

use core::alloc::Layout;
use core::ffi::c_int;
use core::{ptr, slice, str};
use std::alloc::{alloc, dealloc};

use anyfn::abi::{TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject};
use anyfn::{Any, Error, ObjectRef, registry};

/// Alignment of the memory that [`anyfn_web_alloc`] returns, which is that of tensors.
const ALIGNMENT: usize = 64;

/// Allocates memory. Returns NULL if no memory is left.
#[unsafe(no_mangle)]
extern "C" fn anyfn_web_alloc(size: usize) -> *mut u8 {
    match Layout::from_size_align(size.max(1), ALIGNMENT) {
        // SAFETY: the layout is not empty.
        Ok(layout) => unsafe { alloc(layout) },
        Err(_) => ptr::null_mut(),
    }
}

/// Frees memory of [`anyfn_web_alloc`].
///
/// # Safety
/// The memory must have been allocated with this size, and must not be used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_free(memory: *mut u8, size: usize) {
    if let Ok(layout) = Layout::from_size_align(size.max(1), ALIGNMENT) {
        // SAFETY: guaranteed by the caller.
        unsafe { dealloc(memory, layout) };
    }
}

/// Adds a reference to an object.
///
/// # Safety
/// `handle` must be a live object.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_retain(handle: *mut TVMFFIObject) {
    // SAFETY: guaranteed by the caller.
    if let Some(object) = unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) } {
        object.into_handle();
    }
}

/// Releases a reference to an object.
///
/// # Safety
/// The caller must own the reference.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_release(handle: *mut TVMFFIObject) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { ObjectRef::from_owned_or_null(handle.cast()) });
}

/// Releases a number of owned values, which become None.
///
/// # Safety
/// The values must be valid, and the caller must own them.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_drop(values: *mut TVMFFIAny, count: usize) {
    for index in 0..count {
        // SAFETY: the caller guarantees this number of values.
        let place = unsafe { values.add(index) };
        // SAFETY: the caller guarantees a valid value, and None may take its place.
        let value = unsafe { place.replace(TVMFFIAny::NONE) };
        // SAFETY: the value is owned, and was replaced.
        drop(unsafe { Any::from_raw(value) });
    }
}

/// Calls a function with owned values, and releases them. Stores an owned value and returns 0, or stores an error object and returns -1.
///
/// # Safety
/// `function` must be a live function object, the values must be valid, and `result` must be writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_call(
    function: *mut TVMFFIObject,
    args: *mut TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // The callee may release the last other reference.
    // SAFETY: guaranteed by the caller.
    let kept = unsafe { ObjectRef::from_borrowed_or_null(function.cast()) };
    // SAFETY: a function object has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.add(1) }.cast();
    // SAFETY: the object is alive, and its cell never changes.
    let safe_call = unsafe { (*cell).safe_call };
    // SAFETY: guaranteed by the caller.
    unsafe { result.write(TVMFFIAny::NONE) };
    // SAFETY: guaranteed by the caller.
    let code = unsafe { safe_call(function.cast(), args, count, result) };
    if code != 0 {
        // SAFETY: `result` is writable, and a call that fails leaves no value there.
        unsafe { crate::store(Err(Error::take_raised()), result) };
    }
    // SAFETY: the caller owns the values.
    unsafe { anyfn_web_drop(args, count as usize) };
    drop(kept);
    code
}

/// Returns a new reference to the global function with a name, or NULL.
///
/// # Safety
/// The text must be readable.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_global(name: *const u8, size: usize) -> *mut TVMFFIObject {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { slice::from_raw_parts(name, size) };
    let found = str::from_utf8(name).ok().and_then(registry::find);
    found.map_or(ptr::null_mut(), |function| function.into_object().into_handle().cast())
}
