//! Functions created from a C function pointer and an optional context pointer.

use core::ffi::{c_int, c_void};
use core::ptr;

use anyfn::abi::{TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject, TVMFFISafeCallType, kTVMFFIFunction};
use anyfn::{ObjectRef, PackedFunc, Result, bail};

use crate::libraries::{Lease, LeaseKind};

type Deleter = unsafe extern "C" fn(*mut c_void);

/// Content of a function without a context pointer. Its `safe_call` receives the function object as the first argument.
#[repr(C)]
struct Plain {
    cell: TVMFFIFunctionCell,
}

/// Content of a function without a context pointer, with a lease on the library that contains its code. It is
/// used if that library can be unmapped or is still being opened.
#[repr(C)]
struct Leased {
    cell: TVMFFIFunctionCell,
    _lease: Lease,
}

/// Content of a function that has a context pointer, `data`, or a deleter for it.
#[repr(C)]
struct Closure {
    cell: TVMFFIFunctionCell,
    data: *mut c_void,
    call: TVMFFISafeCallType,
    deleter: Option<Deleter>,
    /// Lease on the libraries that contain the code of the function and of its deleter. It is dropped after
    /// the deleter has run.
    _lease: Lease,
}

// SAFETY: the ABI requires functions that can be called and released on any thread, with their data.
unsafe impl Send for Plain {}
// SAFETY: the ABI requires functions that can be called and released on any thread, with their data.
unsafe impl Send for Leased {}
// SAFETY: the ABI requires functions that can be called and released on any thread, with their data.
unsafe impl Send for Closure {}

impl Drop for Closure {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the creator of the function passed this deleter for its data; it is called once.
            unsafe { deleter(self.data) };
        }
    }
}

/// Calls the C function of a [`Closure`] with its context pointer. This is the `safe_call` of its function object.
unsafe extern "C" fn call_closure(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: `handle` is the function object; its content follows the header.
    let closure = unsafe { handle.cast::<TVMFFIObject>().add(1) }.cast::<Closure>();
    // SAFETY: the caller keeps the function alive for the call, and only objects created below have this cell.
    let closure = unsafe { &*closure };
    // SAFETY: the arguments are passed on unchanged; the creator guarantees that the function accepts them.
    unsafe { (closure.call)(closure.data, args, num_args, result) }
}

/// Creates a function that calls `safe_call(data, ..)`. If both `data` and `deleter` are NULL, `safe_call` receives the
/// function object in place of `data`. `deleter` is called with `data` when the function is released.
///
/// # Safety
/// `safe_call` must follow the ABI. Any thread may call `safe_call` and `deleter`.
pub(crate) unsafe fn create(
    data: *mut c_void,
    safe_call: Option<TVMFFISafeCallType>,
    deleter: Option<Deleter>,
) -> Result<ObjectRef> {
    let Some(call) = safe_call else {
        bail!("ValueError", "TVMFFIFunctionCreate: argument `safe_call` is NULL")
    };
    let cpp_call = ptr::null_mut();
    let last = deleter.map_or(ptr::null(), |deleter| deleter as *const c_void);
    let lease = Lease::of(LeaseKind::Function, &[last, call as *const c_void, data]);
    if data.is_null() && deleter.is_none() {
        if lease.is_held() {
            let cell = TVMFFIFunctionCell { safe_call: call, cpp_call };
            return Ok(lease.explain(call as *const c_void, |lease| {
                // SAFETY: the content begins with the cell of a function, for which the caller vouches.
                unsafe { anyfn::__private::new_object(kTVMFFIFunction, Leased { cell, _lease: lease }) }
            }));
        }
        let content = Plain { cell: TVMFFIFunctionCell { safe_call: call, cpp_call } };
        // SAFETY: the content is the cell of a function, for which the caller vouches.
        return Ok(unsafe { anyfn::__private::new_object(kTVMFFIFunction, content) });
    }
    let cell = TVMFFIFunctionCell { safe_call: call_closure, cpp_call };
    Ok(lease.explain(call as *const c_void, |lease| {
        let content = Closure { cell, data, call, deleter, _lease: lease };
        // SAFETY: the content begins with the cell of a function, whose code expects this content.
        unsafe { anyfn::__private::new_object(kTVMFFIFunction, content) }
    }))
}

/// Creates a function in the same way as [`create`], but returns it as a [`PackedFunc`].
///
/// # Safety
/// The requirements of [`create`] apply.
pub(crate) unsafe fn create_packed(
    data: *mut c_void,
    safe_call: Option<TVMFFISafeCallType>,
    deleter: Option<Deleter>,
) -> Result<PackedFunc> {
    // SAFETY: the caller guarantees the same requirements.
    let object = unsafe { create(data, safe_call, deleter) }?;
    PackedFunc::try_from_object(object).map_err(|_| {
        anyfn::Error::new("InternalError", "cannot create a function: the new object is not a function")
    })
}
