//! What types do themselves when they are saved and loaded: `__data_to_json__` and `__data_from_json__`.

use core::ffi::c_void;

use anyfn::abi::{TVMFFIAny, kTVMFFIError, kTVMFFIOpaquePtr};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Error, OpaquePtr, PackedFunc, Result};

use crate::guard::Nested;

/// A function of any language, or compiled code that takes and gives a value in registers.
pub(super) enum Hook {
    Function(PackedFunc),
    Native(*mut c_void),
}

type Native = unsafe extern "C" fn(value: TVMFFIAny) -> TVMFFIAny;

impl Hook {
    /// What a type has registered under a name.
    pub(super) fn of(info: TypeInfo, name: &str) -> Option<Hook> {
        let hook = info.attribute(name)?;
        if hook.type_index() == kTVMFFIOpaquePtr {
            return hook.get::<OpaquePtr>().ok().map(|code| Hook::Native(code.as_ptr()));
        }
        hook.get::<PackedFunc>().ok().map(Hook::Function)
    }

    /// Runs it.
    ///
    /// # Errors
    /// What it gives; `RecursionError` if it saves or loads in turn, too deep.
    pub(super) fn call(&self, value: &Any) -> Result<Any> {
        let _nested = Nested::enter()?;
        match self {
            Hook::Function(function) => function.call((value,)),
            Hook::Native(code) => {
                // SAFETY: an opaque pointer in this column is such a function by the column's definition.
                let code = unsafe { core::mem::transmute::<*mut c_void, Native>(*code) };
                // SAFETY: called with a valid value, which it borrows.
                let raw = unsafe { code(*value.as_view().as_raw()) };
                // SAFETY: a hook gives an owned value, an error for failure.
                let result = unsafe { Any::from_raw(raw) };
                match result.type_index() {
                    kTVMFFIError => Err(result.get::<Error>()?),
                    _ => Ok(result),
                }
            }
        }
    }
}
