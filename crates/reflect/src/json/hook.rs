//! Hooks for saving and loading: `__data_to_json__` and `__data_from_json__`.

use core::ffi::c_void;

use anyfn::abi::{TVMFFIAny, kTVMFFIError, kTVMFFIOpaquePtr};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Error, OpaquePtr, PackedFunc, Result};

use crate::guard::Nested;

/// Hook that a type has registered: a packed function, or the address of a native function that takes and returns a
/// value in registers.
pub(super) enum Hook {
    Function(PackedFunc),
    Native(*mut c_void),
}

type Native = unsafe extern "C" fn(value: TVMFFIAny) -> TVMFFIAny;

impl Hook {
    /// Returns the hook that a type has registered under a name.
    pub(super) fn of(info: TypeInfo, name: &str) -> Option<Hook> {
        let hook = info.attribute(name)?;
        if hook.type_index() == kTVMFFIOpaquePtr {
            return hook.get::<OpaquePtr>().ok().map(|code| Hook::Native(code.as_ptr()));
        }
        hook.get::<PackedFunc>().ok().map(Hook::Function)
    }

    /// Calls the hook with `value`.
    ///
    /// # Errors
    /// Returns the error of the hook; `RecursionError` if hooks that save or load in turn are nested too deeply.
    pub(super) fn call(&self, value: &Any) -> Result<Any> {
        let _nested = Nested::enter()?;
        match self {
            Hook::Function(function) => function.call((value,)),
            Hook::Native(code) => {
                // SAFETY: by the definition of the column, an opaque pointer in it is such a function.
                let code = unsafe { core::mem::transmute::<*mut c_void, Native>(*code) };
                // SAFETY: called with a valid value, which it borrows.
                let raw = unsafe { code(*value.as_view().as_raw()) };
                // SAFETY: a hook returns an owned value, which is an error if it fails.
                let result = unsafe { Any::from_raw(raw) };
                match result.type_index() {
                    kTVMFFIError => Err(result.get::<Error>()?),
                    _ => Ok(result),
                }
            }
        }
    }
}
