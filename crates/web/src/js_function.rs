//! Function objects that call JavaScript functions, and objects that keep other JavaScript values alive.

use core::ffi::{c_int, c_void};
use core::ptr;

use anyfn::abi::{
    TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject, kTVMFFIFunction,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, Error, Map, ObjectRef};

use crate::host::{host_call, host_drop};

/// A function object that refers to a JavaScript value.
#[repr(C)]
struct JsFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    /// Number of the value in the table of the host.
    id: u32,
}

/// Makes an object that refers to the JavaScript value with a number. Returns its handle, which the caller owns.
#[unsafe(no_mangle)]
extern "C" fn anyfn_web_function(id: u32) -> *mut TVMFFIObject {
    let function = Box::into_raw(Box::new(JsFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: 0,
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call, cpp_call: ptr::null_mut() },
        id,
    }));
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    function.cast()
}

/// Returns the number of the JavaScript value to which an object refers, or -1.
///
/// # Safety
/// `handle` must be a live object.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn anyfn_web_id(handle: *const TVMFFIObject) -> i32 {
    // SAFETY: guaranteed by the caller.
    let header = unsafe { &*handle };
    let is_ours = header
        .deleter
        .is_some_and(|deleter| ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)));
    if !is_ours {
        return -1;
    }
    // SAFETY: only this file makes objects with this deleter.
    unsafe { (*handle.cast::<JsFunction>()).id as i32 }
}

/// Returns the number of the JavaScript value that was thrown, if an error was made of one, or -1.
///
/// # Safety
/// `handle` must be a live object.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_thrown(handle: *mut TVMFFIObject) -> i32 {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) };
    let context = object.and_then(|object| Error::try_from_object(object).ok()?.context());
    context.and_then(thrown).unwrap_or(-1)
}

/// Returns the number of the thrown value that the context of an error keeps.
fn thrown(context: ObjectRef) -> Option<i32> {
    let id_of = |object: &ObjectRef| {
        // SAFETY: the reference keeps the object alive.
        let id = unsafe { anyfn_web_id(object.as_handle().cast()) };
        (id >= 0).then_some(id)
    };
    // A walk over a graph wraps the context in an object that adds the access path.
    let context = if context.type_key() == "ffi.VisitErrorContext" {
        context.get_field("prev_error_context").ok()?.into_object()?
    } else {
        context
    };
    if let Some(id) = id_of(&context) {
        return Some(id);
    }
    // Native code that adds notes to an error puts its context into a map.
    let map = Map::<Any, Any>::try_from_object(context).ok()?;
    id_of(&map.get(&Any::new("exception").ok()?).ok()??.into_object()?)
}

/// The `safe_call` of all these objects.
unsafe extern "C" fn safe_call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the runtime passes the object that is called.
    let id = unsafe { (*handle.cast::<JsFunction>()).id };
    if host_call(id, args, num_args, result) == 0 {
        return 0;
    }
    // SAFETY: the host has stored an owned value, and the caller expects none from a call that fails.
    let stored = unsafe { Any::from_raw(result.replace(TVMFFIAny::NONE)) };
    let error = stored.into_object().and_then(|object| Error::try_from_object(object).ok());
    let error = error
        .unwrap_or_else(|| Error::new("InternalError", "a JavaScript function has failed without an error"));
    error.raise();
    -1
}

/// Deleter of the objects. Depending on `flags`, it releases the JavaScript value, frees the memory, or both.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let function: *mut JsFunction = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: the memory still exists.
        host_drop(unsafe { (*function).id });
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: the pointer comes from `Box`.
        drop(unsafe { Box::from_raw(function) });
    }
}
