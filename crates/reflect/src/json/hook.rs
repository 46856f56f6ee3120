//! Hooks for saving and loading: `__data_to_json__` and `__data_from_json__`.

use core::ffi::c_void;

use anyfn::abi::TVMFFIAny;
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Result};

use crate::column::{Hook, expected};
use crate::guard::Nested;

/// Signature of a native hook, which takes one `TVMFFIAny` and returns another.
type Native = unsafe extern "C" fn(value: TVMFFIAny) -> TVMFFIAny;

/// Returns the hook that a type has itself registered under `name`, or `None` if the type has
/// registered no hook under this name.
pub(super) fn of(info: TypeInfo, name: &str) -> Option<Hook> {
    Hook::from_value(&info.attribute(name)?.as_view())
}

/// Calls a saving or loading hook with `value` and returns its result.
///
/// # Errors
/// Returns the error of the hook; `RecursionError` if hooks that save or load in turn are nested too deeply.
pub(super) fn call(hook: &Hook, value: &Any) -> Result<Any> {
    let _nested = Nested::enter()?;
    match hook {
        Hook::Function(function) => function.call((value,)),
        Hook::Native(code) => {
            // SAFETY: by the definition of the column, an opaque pointer in it is such a function.
            let code = unsafe { core::mem::transmute::<*mut c_void, Native>(*code) };
            // SAFETY: called with a valid value, which it borrows.
            let raw = unsafe { code(*value.as_raw()) };
            // SAFETY: a hook returns an owned value, which is an error if it fails.
            expected(unsafe { Any::from_raw(raw) })
        }
    }
}
