//! Tensors that borrow memory from the caller for the duration of one call.

use alloc::boxed::Box;
use core::ffi::c_void;

use anyfn::abi::{
    DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
    DLPackVersion, DLTensor,
};
use anyfn::{Result, Tensor, TensorView};

/// DLPack description of borrowed memory, with an owned copy of shape and strides.
struct BorrowedTensor {
    managed: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Option<Box<[i64]>>,
}

/// Creates a tensor that borrows the memory of `view`.
///
/// # Safety
/// The tensor and everything created from it must be dropped before the memory becomes invalid, which is no later than the end of
/// the call to which `view` was passed.
pub(crate) unsafe fn tensor(view: &TensorView<'_>) -> Result<Tensor> {
    let shape: Box<[i64]> = view.shape().into();
    let strides: Option<Box<[i64]>> = view.strides().map(Into::into);
    let dl = view.as_dl();
    let read_only = view.is_read_only() || view.host_region().is_some_and(|region| region.is_read_only());
    let mut loan = Box::new(BorrowedTensor {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: core::ptr::null_mut(),
            deleter: Some(end),
            flags: if read_only { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 },
            dl_tensor: DLTensor {
                data: dl.data,
                device: dl.device,
                ndim: dl.ndim,
                dtype: dl.dtype,
                shape: core::ptr::null_mut(),
                strides: core::ptr::null_mut(),
                byte_offset: dl.byte_offset,
            },
        },
        shape,
        strides,
    });
    loan.managed.dl_tensor.shape = loan.shape.as_mut_ptr();
    loan.managed.dl_tensor.strides =
        loan.strides.as_mut().map_or(core::ptr::null_mut(), |strides| strides.as_mut_ptr());
    let loan = Box::into_raw(loan);
    // SAFETY: `loan` is the address of a box that no other code owns; the field is projected without creating a reference.
    let managed = unsafe { &raw mut (*loan).managed };
    // SAFETY: `managed` is a field of that box, and no reference to it exists.
    unsafe { (*managed).manager_ctx = loan.cast() };
    // SAFETY: the description is complete. Its shape and strides live in the box until `end` runs, and the caller guarantees that
    // the memory outlives the tensor.
    let tensor = unsafe { Tensor::from_dlpack(managed) };
    if tensor.is_err() {
        // SAFETY: `from_dlpack` does not call `end` when it fails, so the box still exists, and no other code has its address.
        drop(unsafe { Box::from_raw(loan) });
    }
    tensor
}

unsafe extern "C" fn end(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the consumer of the description calls this once, with the address that it received from `tensor`, so `managed` is
    // live.
    let loan: *mut c_void = unsafe { (*managed).manager_ctx };
    // SAFETY: `manager_ctx` is the address of a `BorrowedTensor`, returned by `Box::into_raw`, and this is the only call with it.
    drop(unsafe { Box::from_raw(loan.cast::<BorrowedTensor>()) });
}
