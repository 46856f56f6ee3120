//! Exports for values, and the copies of borrowed tensors that native code keeps.

use core::ffi::c_int;

use anyfn::abi::{
    DLTensor, TVMFFIAny, TVMFFIAnyViewToOwnedAny, TVMFFIBigIntFromByteArray, TVMFFIBigIntGetContentByteArray,
    TVMFFIByteArray, TVMFFIBytesFromByteArray, TVMFFIEnvRegisterCAPI, TVMFFIObjectHandle,
    TVMFFIStringFromByteArray,
};
use anyfn::{Error, Tensor, TensorView};

use crate::host::host_is_lent;

// The offsets that the package uses (`lib/memory.js`).
const _: () = {
    assert!(size_of::<TVMFFIAny>() == 16 && core::mem::offset_of!(TVMFFIAny, value) == 8);
    assert!(size_of::<anyfn::abi::TVMFFIObject>() == 24);
    assert!(core::mem::offset_of!(anyfn::abi::TVMFFIObject, type_index) == 8);
    assert!(size_of::<DLTensor>() == 40 && core::mem::offset_of!(DLTensor, byte_offset) == 32);
};

/// Kinds of values that [`anyfn_web_make`] makes from bytes.
const MAKERS: [unsafe extern "C" fn(*const TVMFFIByteArray, *mut TVMFFIAny) -> c_int; 3] =
    [TVMFFIStringFromByteArray, TVMFFIBytesFromByteArray, TVMFFIBigIntFromByteArray];

/// Stores the error that a failed function has raised.
///
/// # Safety
/// `out` must be writable.
unsafe fn finish(code: c_int, out: *mut TVMFFIAny) -> c_int {
    if code != 0 {
        // SAFETY: guaranteed by the caller; a function that fails stores nothing.
        unsafe { crate::store(Err(Error::take_raised()), out) };
    }
    code
}

/// Makes a string (kind 0), bytes (1) or an integer beyond 64 bits (2) from bytes.
///
/// # Safety
/// The bytes must be readable, and `out` must be writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_make(kind: usize, data: *const u8, size: usize, out: *mut TVMFFIAny) -> c_int {
    let content = TVMFFIByteArray { data: data.cast(), size };
    let Some(make) = MAKERS.get(kind) else { return -1 };
    // SAFETY: guaranteed by the caller.
    let code = unsafe { make(&content, out) };
    // SAFETY: guaranteed by the caller.
    unsafe { finish(code, out) }
}

/// Stores the 64-bit words of an integer, which borrow from the value.
///
/// # Safety
/// The value must be valid, and `out` must be writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_words(value: *const TVMFFIAny, out: *mut TVMFFIByteArray) {
    // SAFETY: guaranteed by the caller.
    let words = unsafe { TVMFFIBigIntGetContentByteArray(value) };
    // SAFETY: guaranteed by the caller.
    unsafe { out.write(words) };
}

/// Makes an owned value of a borrowed one.
///
/// # Safety
/// The value must be valid, and `out` must be writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_own(value: *const TVMFFIAny, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: guaranteed by the caller.
    let code = unsafe { TVMFFIAnyViewToOwnedAny(value, out) };
    // SAFETY: guaranteed by the caller.
    unsafe { finish(code, out) }
}

/// Registers the function that makes tensors of typed arrays that native code keeps.
pub(crate) fn register_tensor_owner() {
    // SAFETY: the runtime copies the name and calls the function with the type that the function of this name has.
    if unsafe { TVMFFIEnvRegisterCAPI(c"AnyfnTensorOwner".as_ptr(), own_view as *mut _) } != 0 {
        drop(Error::take_raised());
    }
}

/// Makes a tensor of a typed array that a call in progress has lent and that native code is about to keep: a copy, because the memory
/// is that of the call. For any other borrowed tensor, `out` stays unchanged.
unsafe extern "C" fn own_view(view: *mut DLTensor, out: *mut TVMFFIObjectHandle) -> c_int {
    if host_is_lent(view) == 0 {
        return 0;
    }
    // SAFETY: the runtime passes a valid view.
    let dl = unsafe { &*view };
    // SAFETY: the view is valid during this call.
    let borrowed = unsafe { TensorView::from_dl(dl) };
    let copy = || {
        let copy = Tensor::zeros(borrowed.dtype(), borrowed.shape())?;
        copy.set_bytes(&borrowed.to_bytes()?)?;
        Ok::<_, Error>(copy)
    };
    match copy() {
        Ok(copy) => {
            // SAFETY: the runtime passes a writable pointer.
            unsafe { out.write(copy.into_object().into_handle()) };
            0
        }
        Err(error) => {
            error.raise();
            -1
        }
    }
}
