//! Arrays, which are tensor objects. Their handle is the address of the `DLTensor` in the object.

use core::ffi::{c_int, c_void};
use core::ptr;

use anyfn::__private::trampoline;
use anyfn::abi::classic::{TVMArrayHandle, TVMStreamHandle, tvm_index_t};
use anyfn::abi::{
    DLDevice, DLManagedTensor, TVMFFIObjectHandle, TVMFFITensorFromDLPack, TVMFFITensorToDLPack, kTVMFFITensor,
};
use anyfn::{DType, Error, ObjectRef, OpaquePtr, Result, Tensor, registry};

use crate::device;
use crate::handle::{self, extents, tensor, write};

/// Writes the handle of a new array.
///
/// # Safety
/// `out` must be NULL or writable.
unsafe fn give(this: &str, out: *mut TVMArrayHandle, make: impl FnOnce() -> Result<ObjectRef>) -> Result<()> {
    if out.is_null() {
        anyfn::bail!("ValueError", "{this}: argument `out` is NULL");
    }
    let object = make()?.into_handle();
    // SAFETY: the object is a tensor.
    let handle = unsafe { handle::array_of(object) };
    // SAFETY: the caller guarantees the place.
    unsafe { out.write(handle) };
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayAlloc(
    shape: *const tvm_index_t,
    ndim: c_int,
    dtype_code: c_int,
    dtype_bits: c_int,
    dtype_lanes: c_int,
    device_type: c_int,
    device_id: c_int,
    out: *mut TVMArrayHandle,
) -> c_int {
    const THIS: &str = "TVMArrayAlloc";
    trampoline(|| {
        // SAFETY: by the API, there are `ndim` extents.
        let shape = unsafe { extents(THIS, shape, ndim) }?;
        let (Ok(code), Ok(bits), Ok(lanes)) =
            (u8::try_from(dtype_code), u8::try_from(dtype_bits), u16::try_from(dtype_lanes))
        else {
            anyfn::bail!(
                "ValueError",
                "{THIS}: no data type has the code {dtype_code}, {dtype_bits} bits and {dtype_lanes} lanes"
            );
        };
        let device = device::of(THIS, DLDevice { device_type, device_id })?;
        // SAFETY: by the API, `out` is writable.
        unsafe {
            give(THIS, out, || {
                Tensor::empty(DType::new(code, bits, lanes), shape, device).map(Tensor::into_object)
            })
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayFree(handle: TVMArrayHandle) -> c_int {
    trampoline(|| {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: by the API, the handle is owned.
        unsafe { handle::free("TVMArrayFree", "handle", handle::of_array(handle).cast(), kTVMFFITensor) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayCopyFromBytes(
    handle: TVMArrayHandle,
    data: *mut c_void,
    nbytes: usize,
) -> c_int {
    // SAFETY: the function has the same requirements.
    unsafe { copy_bytes("TVMArrayCopyFromBytes", "runtime.TVMTensorCopyFromBytes", handle, data, nbytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayCopyToBytes(
    handle: TVMArrayHandle,
    data: *mut c_void,
    nbytes: usize,
) -> c_int {
    // SAFETY: the function has the same requirements.
    unsafe { copy_bytes("TVMArrayCopyToBytes", "runtime.TVMTensorCopyToBytes", handle, data, nbytes) }
}

/// Calls the function `name` of the runtime, which copies between an array and memory.
///
/// # Safety
/// `handle` must be that of an array, and `data` point to `nbytes` bytes for the function.
unsafe fn copy_bytes(
    this: &str,
    name: &str,
    handle: TVMArrayHandle,
    data: *mut c_void,
    nbytes: usize,
) -> c_int {
    trampoline(|| {
        // SAFETY: by the API, this is the handle of an array.
        let array = unsafe { tensor(this, "handle", handle) }?;
        // SAFETY: by the API, `data` points to as many bytes.
        let copy = unsafe { registry::get_unsafe(name) }?;
        // SAFETY: by the API, `data` points to as many bytes.
        let data = unsafe { OpaquePtr::from_ptr(data) };
        copy.call((&array, data, nbytes))?.get::<()>()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayCopyFromTo(
    from: TVMArrayHandle,
    to: TVMArrayHandle,
    stream: TVMStreamHandle,
) -> c_int {
    const THIS: &str = "TVMArrayCopyFromTo";
    // SAFETY: by the API, both are handles of arrays or other DLPack tensors.
    trampoline(|| unsafe { device::copy(THIS, from, to, stream) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayFromDLPack(from: *mut DLManagedTensor, out: *mut TVMArrayHandle) -> c_int {
    trampoline(|| {
        let make = || {
            let mut object: TVMFFIObjectHandle = ptr::null_mut();
            // SAFETY: by the API, `from` is a DLPack tensor; `object` is writable.
            let code = unsafe { TVMFFITensorFromDLPack(from, 0, 0, &mut object) };
            // SAFETY: on success the result is an owned tensor.
            match unsafe { ObjectRef::from_owned_or_null(object) } {
                Some(object) if code == 0 => Ok(object),
                _ => Err(Error::take_raised()),
            }
        };
        // SAFETY: by the API, `out` is writable.
        unsafe { give("TVMArrayFromDLPack", out, make) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayToDLPack(from: TVMArrayHandle, out: *mut *mut DLManagedTensor) -> c_int {
    trampoline(|| {
        // SAFETY: by the API, this is the handle of an array.
        let array = unsafe { tensor("TVMArrayToDLPack", "from", from) }?;
        // SAFETY: the handle is valid, and by the API `out` is writable.
        match unsafe { TVMFFITensorToDLPack(array.as_object().as_handle(), out) } {
            0 => Ok(()),
            _ => Err(Error::take_raised()),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMDLManagedTensorCallDeleter(dltensor: *mut DLManagedTensor) {
    // SAFETY: by the API, this is NULL or a DLPack tensor that the caller owns.
    let deleter = unsafe { dltensor.as_ref() }.and_then(|tensor| tensor.deleter);
    if let Some(deleter) = deleter {
        // SAFETY: the deleter is that of the tensor, which the caller owns.
        unsafe { deleter(dltensor) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMArrayGetTypeIndex(handle: TVMArrayHandle, out_tindex: *mut u32) -> c_int {
    const THIS: &str = "TVMArrayGetTypeIndex";
    trampoline(|| {
        // SAFETY: by the API, this is the handle of an array.
        let array = unsafe { tensor(THIS, "handle", handle) }?;
        // SAFETY: by the API, `out_tindex` is writable.
        unsafe { write(THIS, "out_tindex", out_tindex, array.as_object().type_index().cast_unsigned()) }
    })
}
