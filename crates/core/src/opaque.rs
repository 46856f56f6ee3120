//! Objects that hold a pointer of someone else.

use core::ffi::c_void;

use anyfn::abi::{TVMFFIOpaqueObjectCell, kTVMFFIOpaquePyObject};
use anyfn::{ObjectRef, Result, bail};

#[repr(C)]
struct Opaque {
    cell: TVMFFIOpaqueObjectCell,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: the ABI asks for a deleter that can be called on any thread; nothing else uses the handle here.
unsafe impl Send for Opaque {}

impl Drop for Opaque {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the maker of the object gave this function for its handle; it is called once.
            unsafe { deleter(self.cell.handle) };
        }
    }
}

/// Makes an object that holds `handle` and calls the deleter when it is released.
pub(crate) fn create(
    handle: *mut c_void,
    type_index: i32,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Result<ObjectRef> {
    if type_index != kTVMFFIOpaquePyObject {
        bail!("RuntimeError", "Only kTVMFFIOpaquePyObject is supported for now");
    }
    let content = Opaque { cell: TVMFFIOpaqueObjectCell { handle }, deleter };
    Ok(anyfn::__private::new_object(type_index, content))
}
