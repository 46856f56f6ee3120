//! Exported functions that convert tensors from and to DLPack, and create views of tensors.

use core::ffi::c_int;

use anyfn::__private::trampoline;
use anyfn::abi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor, TVMFFIObjectHandle};

use super::{object, out, reference};
use crate::tensor::{self, Require};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITensorFromDLPack(
    from: *mut DLManagedTensor,
    require_alignment: i32,
    require_contiguous: i32,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITensorFromDLPack";
        // SAFETY: the ABI requires a valid tensor.
        unsafe { reference(THIS, "from", from) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        let require = Require { alignment: require_alignment, contiguous: require_contiguous != 0 };
        // SAFETY: the ABI requires a valid tensor.
        result.write(unsafe { tensor::from_managed(from, require) }?.into_handle());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITensorFromDLPackVersioned(
    from: *mut DLManagedTensorVersioned,
    require_alignment: i32,
    require_contiguous: i32,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITensorFromDLPackVersioned";
        // SAFETY: the ABI requires a valid tensor.
        unsafe { reference(THIS, "from", from) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        let require = Require { alignment: require_alignment, contiguous: require_contiguous != 0 };
        // SAFETY: the ABI requires a valid tensor.
        result.write(unsafe { tensor::from_versioned(from, require) }?.into_handle());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITensorToDLPack(
    from: TVMFFIObjectHandle,
    result: *mut *mut DLManagedTensor,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITensorToDLPack";
        // SAFETY: the ABI requires a valid handle.
        let from = unsafe { object(THIS, "from", from) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        result.write(tensor::to_managed(from)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITensorToDLPackVersioned(
    from: TVMFFIObjectHandle,
    result: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITensorToDLPackVersioned";
        // SAFETY: the ABI requires a valid handle.
        let from = unsafe { object(THIS, "from", from) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        result.write(tensor::to_versioned(from)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFITensorCreateUnsafeView(
    source: TVMFFIObjectHandle,
    prototype: *const DLTensor,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFITensorCreateUnsafeView";
        // SAFETY: the ABI requires a valid handle.
        let source = unsafe { object(THIS, "source", source) }?;
        // SAFETY: the ABI requires a valid struct.
        let prototype = unsafe { reference(THIS, "prototype", prototype) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        // SAFETY: the ABI requires a prototype with as many extents and strides as it declares.
        result.write(unsafe { tensor::view(source, prototype) }?.into_handle());
        Ok(())
    })
}
