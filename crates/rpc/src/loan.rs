//! A tensor object for memory that a caller lends for the time of one call.

use std::ffi::c_void;

use anyfn::abi::{
    DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
    DLPackVersion, DLTensor,
};
use anyfn::{Result, Tensor, TensorView};

/// The description, with its own copy of shape and strides.
struct Loan {
    managed: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Option<Box<[i64]>>,
}

/// A tensor of the memory that `view` shows.
///
/// # Safety
/// The tensor and all that is made of it are gone before the memory is: at the end of the call that lends `view`.
pub(crate) unsafe fn tensor(view: &TensorView<'_>) -> Result<Tensor> {
    let shape: Box<[i64]> = view.shape().into();
    let strides: Option<Box<[i64]>> = view.strides().map(Into::into);
    let dl = view.as_dl();
    let read_only = view.is_read_only() || view.host_region().is_some_and(|region| region.is_read_only());
    let mut loan = Box::new(Loan {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(end),
            flags: if read_only { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 },
            dl_tensor: DLTensor {
                data: dl.data,
                device: dl.device,
                ndim: dl.ndim,
                dtype: dl.dtype,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: dl.byte_offset,
            },
        },
        shape,
        strides,
    });
    loan.managed.dl_tensor.shape = loan.shape.as_mut_ptr();
    loan.managed.dl_tensor.strides =
        loan.strides.as_mut().map_or(std::ptr::null_mut(), |strides| strides.as_mut_ptr());
    let loan = Box::into_raw(loan);
    // SAFETY: `loan` is the address of a box, which nobody else has; its field is projected without a reference.
    let managed = unsafe { &raw mut (*loan).managed };
    // SAFETY: `managed` is a field of that box, and no reference to it exists.
    unsafe { (*managed).manager_ctx = loan.cast() };
    // SAFETY: the description is complete, its shape and strides live in the box until `end`, and the memory lives as long as the tensor
    // does, as the caller guarantees.
    let tensor = unsafe { Tensor::from_dlpack(managed) };
    if tensor.is_err() {
        // SAFETY: where `from_dlpack` fails it has not called `end`, so the box is still there, and nobody else has its address.
        drop(unsafe { Box::from_raw(loan) });
    }
    tensor
}

unsafe extern "C" fn end(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: whoever took the description calls this once, with its address, which is the one that `tensor` has written there.
    let loan: *mut c_void = unsafe { (*managed).manager_ctx };
    // SAFETY: `manager_ctx` is the address that `Box::into_raw` gave for a `Loan`, and this is the only call with it.
    drop(unsafe { Box::from_raw(loan.cast::<Loan>()) });
}
