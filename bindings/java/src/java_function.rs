//! Native function objects that call Java, and native objects that keep Java objects alive.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use anyfn::abi::{
    TVMFFIFunctionCell, TVMFFIObject, TVMFFISafeCallType, kTVMFFIFunction,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Error, ObjectRef};

use crate::entry::{Failure, Res};
use crate::sys::{Env, Obj};
use crate::thread;

/// A native function object that refers to a Java object.
#[repr(C)]
pub(crate) struct JavaFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    /// Global reference: to an instance of `org.anyfn.Callback` if `is_function`, otherwise to the object that is kept alive.
    pub(crate) target: Obj,
    /// True if the object is a function that native code may call. Otherwise it only keeps an object alive, such as the exception of
    /// a native error.
    pub(crate) is_function: bool,
}

/// The `safe_call` of all these objects. `callback.rs`, which depends on this module, sets it.
static SAFE_CALL: OnceLock<TVMFFISafeCallType> = OnceLock::new();

/// Sets the `safe_call` of all objects that this module makes.
pub(crate) fn init(safe_call: TVMFFISafeCallType) {
    // A later class loader passes the same function.
    let _ = SAFE_CALL.set(safe_call);
}

/// Returns the failure of a function of JNI that had no memory.
pub(crate) fn out_of_memory(env: Env) -> Failure {
    // SAFETY: may be called at any time.
    if unsafe { env.exception_check() } != 0 {
        return Failure::Pending;
    }
    Failure::Error(Error::new("MemoryError", "the Java VM has no memory for a reference"))
}

/// Makes a native object that keeps a Java object alive.
pub(crate) fn keep(env: Env, object: Obj) -> Res<ObjectRef> {
    make(env, object, false).ok_or_else(|| out_of_memory(env))
}

/// Number of these objects, which keep a class loader alive.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Returns the number of native objects that refer to Java objects.
pub(crate) fn live() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

/// Makes a native object that refers to a Java object. Returns `None` if there is no memory; then an exception may be pending.
pub(crate) fn make(env: Env, target: Obj, is_function: bool) -> Option<ObjectRef> {
    let safe_call = *SAFE_CALL.get()?;
    // SAFETY: the caller passes a valid reference.
    let target = unsafe { env.new_global_ref(target) };
    if target.is_null() {
        return None;
    }
    let function = Box::into_raw(Box::new(JavaFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: 0,
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call, cpp_call: ptr::null_mut() },
        target,
        is_function,
    }));
    LIVE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    unsafe { ObjectRef::from_owned_or_null(function.cast()) }
}

/// Returns the object at an address if this library made it.
///
/// # Safety
/// The address must be that of a live object, which the caller keeps alive.
pub(crate) unsafe fn from_handle<'a>(handle: *mut TVMFFIObject) -> Option<&'a JavaFunction> {
    // SAFETY: guaranteed by the caller.
    let header = unsafe { &*handle };
    let ours = header
        .deleter
        .is_some_and(|deleter| ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)));
    // SAFETY: only this module makes objects with this deleter, and the caller keeps the object alive.
    ours.then(|| unsafe { &*handle.cast() })
}

/// Deleter of the objects. Depending on `flags`, it releases the Java object, frees the memory, or both. May run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let function: *mut JavaFunction = object.cast();
    if flags & STRONG != 0
        && let Some(env) = thread::env()
    {
        // SAFETY: no strong reference is left, and the memory still exists.
        let target = unsafe { (*function).target };
        // SAFETY: the reference was made by `make`, and is deleted once. JNI allows this while an exception is pending.
        unsafe { env.delete_global_ref(target) };
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: the pointer comes from `Box`.
        drop(unsafe { Box::from_raw(function) });
    }
}
