//! Functions of libraries that follow the library convention of TVM 0.8. The loader calls them through this module.

use core::ffi::{c_int, c_void};

use anyfn::__private::{PACKED_C_CALLS, PackedCCall, entry, trampoline};
use anyfn::abi::TVMFFIAny;
use anyfn::abi::classic::{
    TVMBackendPackedCFunc, TVMValue, kTVMBytes, kTVMDLTensorHandle, kTVMNullptr, kTVMObjectRValueRefArg,
    kTVMOpaqueHandle, kTVMStr,
};

use crate::{c_function, error, lowered, value};

entry!(PACKED_C_CALLS: PackedCCall = call);

/// Calls a function of a library.
///
/// # Safety
/// `function` must be the address of a `TVMBackendPackedCFunc`. `args` must point to `num_args` valid views for the call,
/// and `result` must be writable and hold None.
unsafe fn call(function: *mut c_void, args: *const TVMFFIAny, num_args: i32, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the caller guarantees the function.
    let function = unsafe { core::mem::transmute::<*mut c_void, TVMBackendPackedCFunc>(function) };
    trampoline(|| {
        let (mut out, mut out_code) = (TVMValue { v_int64: 0 }, kTVMNullptr);
        let body = |values: *mut TVMValue, codes: *mut c_int| {
            // SAFETY: by the library convention, the function may be called with these on any thread.
            let code = unsafe {
                function(values, codes, num_args, &raw mut out, &raw mut out_code, core::ptr::null_mut())
            };
            if code != 0 {
                return Err(error::of_failed(code));
            }
            Ok(())
        };
        // SAFETY: the caller guarantees the views.
        unsafe { lowered::with(args, num_args, body) }?;
        // SAFETY: by the library convention, the result is valid.
        let view = unsafe { value::view(out, out_code) };
        let view =
            view.map_err(|reason| anyfn::error!("TypeError", "the result of a compiled function: {reason}"))?;
        // A handle is owned by the caller, that is, by this function. These are not.
        let is_borrowed = matches!(
            out_code,
            kTVMStr | kTVMBytes | kTVMDLTensorHandle | kTVMOpaqueHandle | kTVMObjectRValueRefArg
        );
        let owned = if is_borrowed { c_function::owned(view)? } else { view };
        // SAFETY: the caller guarantees the place.
        unsafe { result.write(owned) };
        Ok(())
    })
}
