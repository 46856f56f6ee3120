//! A tensor object for memory that a caller lends for the time of one call.

use std::ffi::c_void;

use anyfn::abi::{
    DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use anyfn::{Result, Tensor, TensorView};

/// The description, with its own copy of shape and strides.
struct Loan {
    managed: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Option<Box<[i64]>>,
}

/// A tensor of the memory that `view` shows. It must be gone before the caller's call returns.
pub(crate) fn tensor(view: &TensorView<'_>) -> Result<Tensor> {
    let shape: Box<[i64]> = view.shape().into();
    let strides: Option<Box<[i64]>> = view.strides().map(Into::into);
    let dl = view.as_dl();
    let mut loan = Box::new(Loan {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(end),
            flags: 0,
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
    // SAFETY: `loan` was made just now.
    let managed = unsafe { &raw mut (*loan).managed };
    // SAFETY: as above.
    unsafe { (*managed).manager_ctx = loan.cast() };
    // SAFETY: a valid description; the handle of the tensor is taken back before the memory goes (see `Scope`).
    let tensor = unsafe { Tensor::from_dlpack(managed) };
    if tensor.is_err() {
        // SAFETY: it stays with the caller on failure.
        drop(unsafe { Box::from_raw(loan) });
    }
    tensor
}

unsafe extern "C" fn end(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: called once, with the description made above.
    let loan: *mut c_void = unsafe { (*managed).manager_ctx };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(loan.cast::<Loan>()) });
}
