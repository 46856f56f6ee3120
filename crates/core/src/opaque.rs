//! Objects that hold a foreign pointer.

use core::ffi::c_void;

use anyfn::abi::{TVMFFIOpaqueObjectCell, kTVMFFIOpaquePyObject};
use anyfn::{ObjectRef, Result, bail};

use crate::libraries::{Lease, LeaseKind};

#[repr(C)]
struct Opaque {
    cell: TVMFFIOpaqueObjectCell,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Lease on the library that contains the code of `deleter`. It is dropped after `deleter` has run.
    _lease: Lease,
}

// SAFETY: the ABI requires a deleter that can be called on any thread; nothing else uses the handle here.
unsafe impl Send for Opaque {}

impl Drop for Opaque {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the creator of the object passed this function for its handle; it is called once.
            unsafe { deleter(self.cell.handle) };
        }
    }
}

/// Creates an object that holds `handle`. When the object is released, `deleter` is called with the handle.
pub(crate) fn create(
    handle: *mut c_void,
    type_index: i32,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Result<ObjectRef> {
    if type_index != kTVMFFIOpaquePyObject {
        bail!("RuntimeError", "Only kTVMFFIOpaquePyObject is supported for now");
    }
    let address = deleter.map_or(core::ptr::null(), |deleter| deleter as *const c_void);
    let lease = Lease::of(LeaseKind::Opaque, &[address, handle]);
    Ok(lease.explain(address, |lease| {
        let content = Opaque { cell: TVMFFIOpaqueObjectCell { handle }, deleter, _lease: lease };
        // SAFETY: the cell of an opaque object directly follows the header.
        unsafe { anyfn::__private::new_object(type_index, content) }
    }))
}
