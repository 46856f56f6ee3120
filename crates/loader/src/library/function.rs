//! Function objects for the functions of libraries. A call of such an object jumps directly to the library's
//! code.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use anyfn::abi::{
    AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject,
    TVMFFISafeCallType, kTVMFFIFunction, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Error, ObjectRef, PackedFunc, Result};

use crate::classic;
use crate::compiled::Guard;
use crate::mapped::ledger;
use crate::object::AnyModule;

/// Memory layout of the function object for a library function. The ABI fixes all fields before `symbol`.
#[repr(C)]
struct LibraryFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    ext: &'static AnyfnFunctionExt,
    symbol: TVMFFISafeCallType,
    metadata: Option<TVMFFISafeCallType>,
    /// Additional argument checks, used only for code that the compiler of Apache TVM has generated.
    guard: Guard,
    /// Module that the function object keeps alive. It is dropped together with the object's content.
    module: Option<AnyModule>,
}

static EXT: AnyfnFunctionExt =
    AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 0, signature: Some(signature) };

/// Creates a function object that calls the function `symbol` of a library. `metadata` is the library's
/// function that returns the metadata of `symbol`, if the library has one.
///
/// # Safety
/// `symbol` and `metadata` must follow the calling convention of library functions and be code of `module`. If the
/// peer's compiler has generated the code, `compiled` must be the alignment in bytes that the code requires.
pub(crate) unsafe fn make(
    module: &AnyModule,
    symbol: TVMFFISafeCallType,
    metadata: Option<TVMFFISafeCallType>,
    compiled: Option<usize>,
) -> Result<PackedFunc> {
    let safe_call = if compiled.is_some() { call_guarded } else { call };
    // SAFETY: the caller guarantees the functions.
    unsafe { make_called_by(safe_call, module, symbol, metadata, compiled) }
}

/// Creates a function object that calls a function with the signature of TVM 0.8.
///
/// # Safety
/// `symbol` must be the address of such a function in the code of `module`.
pub(crate) unsafe fn make_classic(module: &AnyModule, symbol: NonNull<c_void>) -> Result<PackedFunc> {
    // SAFETY: the function is only called by `call_classic`, which converts it back.
    let symbol = unsafe { core::mem::transmute::<NonNull<c_void>, TVMFFISafeCallType>(symbol) };
    // SAFETY: the caller guarantees the function.
    unsafe { make_called_by(call_classic, module, symbol, None, None) }
}

/// Creates a function object whose calls are made by `safe_call`.
///
/// # Safety
/// `safe_call` must be one of the functions below, and the requirements of [`make`] or [`make_classic`] apply.
unsafe fn make_called_by(
    safe_call: TVMFFISafeCallType,
    module: &AnyModule,
    symbol: TVMFFISafeCallType,
    metadata: Option<TVMFFISafeCallType>,
    compiled: Option<usize>,
) -> Result<PackedFunc> {
    let raw = Box::into_raw(Box::new(LibraryFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: if metadata.is_some() { OBJECT_FLAG_FUNCTION_EXT } else { 0 },
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call, cpp_call: core::ptr::null_mut() },
        ext: &EXT,
        symbol,
        metadata,
        guard: Guard::new(compiled.unwrap_or(1)),
        module: Some(module.clone()),
    }));
    ledger::add(raw.cast_const().cast(), kTVMFFIFunction);
    // SAFETY: the object is new and has one reference, which passes to the result.
    let object = unsafe { ObjectRef::from_owned_or_null(raw.cast()) };
    match object.map(PackedFunc::try_from_object) {
        Some(Ok(function)) => Ok(function),
        _ => Err(Error::new("InternalError", "cannot create a function: the runtime returned no function")),
    }
}

/// Returns the address of the library function that a function object calls, or `None` if [`make`]
/// has not created the object.
pub(crate) fn symbol_of(function: &PackedFunc) -> Option<*const c_void> {
    let header = function.as_object().as_handle().cast::<TVMFFIObject>();
    // SAFETY: the cell of a function object directly follows the header, and the caller keeps the object alive.
    let cell = unsafe { header.add(1) }.cast::<TVMFFIFunctionCell>();
    // SAFETY: the cell of a function object directly follows the header, and the caller keeps the object alive.
    let called = unsafe { (*cell).safe_call };
    let is_called_by = |own: TVMFFISafeCallType| core::ptr::fn_addr_eq(called, own);
    let is_known =
        is_called_by(call) || is_called_by(call_guarded) || classic::ENABLED && is_called_by(call_classic);
    if !is_known {
        return None;
    }
    // SAFETY: only objects that `make` has created are called by these functions.
    Some(unsafe { (*header.cast::<LibraryFunction>()).symbol } as *const c_void)
}

unsafe extern "C" fn call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let symbol = unsafe { (*handle.cast::<LibraryFunction>()).symbol };
    // SAFETY: the caller passes what the convention requires; a library's functions receive no object.
    unsafe { symbol(core::ptr::null_mut(), args, count, result) }
}

unsafe extern "C" fn call_guarded(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    let this = handle.cast::<LibraryFunction>();
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let guard = unsafe { &(*this).guard };
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let symbol = unsafe { (*this).symbol };
    // SAFETY: the caller passes what the convention requires; only functions of such libraries are called this way.
    unsafe { guard.call(symbol, args, count, result) }
}

unsafe extern "C" fn call_classic(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let symbol = unsafe { (*handle.cast::<LibraryFunction>()).symbol };
    // SAFETY: only functions with the signature of TVM 0.8 are called this way; the caller passes what a call requires.
    unsafe { classic::call(symbol as *mut c_void, args, count, result) }
}

unsafe extern "C" fn signature(handle: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let metadata = unsafe { (*handle.cast::<LibraryFunction>()).metadata };
    match metadata {
        // SAFETY: this is a getter of the library convention; the caller passes a writable result.
        Some(metadata) => unsafe { metadata(core::ptr::null_mut(), core::ptr::null(), 0, result) },
        None => 0,
    }
}

unsafe extern "C" fn delete(handle: *mut c_void, flags: c_int) {
    let this: *mut LibraryFunction = handle.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, so nothing else uses the content.
        drop(unsafe { (*this).module.take() });
    }
    if flags & WEAK != 0 {
        ledger::remove(handle);
        // SAFETY: `Box` allocated the memory with this type; the rest of the content owns nothing.
        drop(unsafe { Box::from_raw(this) });
    }
}
