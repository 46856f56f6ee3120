//! Native function objects that call JavaScript functions, and native objects that keep JavaScript values alive.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use anyfn::ObjectRef;
use anyfn::abi::{
    TVMFFIFunctionCell, TVMFFIObject, TVMFFISafeCallType, kTVMFFIFunction,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};

use crate::env::{Env, Ref, Value};
use crate::shared::Shared;

/// A native function object that refers to a JavaScript value.
#[repr(C)]
pub(crate) struct JsFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    /// Environment of the value.
    pub(crate) shared: Arc<Shared>,
    /// Reference to the value; the environment owns its memory.
    pub(crate) value: Ref,
    /// True if integers are passed to the function as bigints.
    pub(crate) big: bool,
    /// True if the value is a function that native code may call. Otherwise the object only keeps a value alive, such as the
    /// exception of a native error.
    pub(crate) is_function: bool,
}

/// The `safe_call` of all these objects. `callback.rs`, which depends on this module, sets it.
static SAFE_CALL: OnceLock<TVMFFISafeCallType> = OnceLock::new();

/// Sets the `safe_call` of all objects that this module makes.
pub(crate) fn init(safe_call: TVMFFISafeCallType) {
    // A later environment passes the same function.
    let _ = SAFE_CALL.set(safe_call);
}

/// Makes a native object that refers to a JavaScript value.
pub(crate) fn make(
    env: Env,
    shared: &Arc<Shared>,
    value: Value,
    big: bool,
    is_function: bool,
) -> Option<ObjectRef> {
    let value = env.strong(value).ok()?;
    let function = Box::into_raw(Box::new(JsFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: 0,
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call: *SAFE_CALL.get()?, cpp_call: ptr::null_mut() },
        shared: shared.clone(),
        value,
        big,
        is_function,
    }));
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    unsafe { ObjectRef::from_owned_or_null(function.cast()) }
}

/// Returns the object at an address if this module made it.
pub(crate) fn from_handle<'a>(handle: *mut TVMFFIObject) -> Option<&'a JsFunction> {
    // SAFETY: the caller has a valid object.
    let header = unsafe { &*handle };
    let ours = header
        .deleter
        .is_some_and(|deleter| ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)));
    // SAFETY: only this module makes objects with this deleter, and the caller keeps the object alive.
    ours.then(|| unsafe { &*handle.cast() })
}

/// Deleter of the objects. Depending on `flags`, it releases the JavaScript value, frees the memory, or both. May run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let function: *mut JsFunction = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, and the memory still exists.
        let content = unsafe { &*function };
        match content.shared.here() {
            // SAFETY: this is the thread of the environment, which has not ended.
            Some((env, _)) => unsafe { Env::from_raw(env) }.delete(content.value),
            None => content.shared.delete_later(content.value),
        }
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: the pointer comes from `Box`.
        drop(unsafe { Box::from_raw(function) });
    }
}
