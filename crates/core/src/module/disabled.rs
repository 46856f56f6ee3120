//! Replacements for the functions of modules, for builds without the standard library. Such builds have no modules.

use core::ffi::{CStr, c_void};

use anyfn::Result;
use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObjectHandle, TVMFFITypeMetadata};

const TEXT: &str = "library modules are not available in this build of the runtime";

/// Returns an error, because this build has no modules.
///
/// # Safety
/// There are no obligations; the function is unsafe because the one that it replaces is.
pub(crate) unsafe fn lookup_from_imports(
    _library_ctx: TVMFFIObjectHandle,
    _name: &CStr,
) -> Result<TVMFFIObjectHandle> {
    anyfn::bail!("RuntimeError", "{TEXT}")
}

/// Returns an error, because this build has no modules.
pub(crate) fn register_context_symbol(_name: &CStr, _symbol: *mut c_void) -> Result<()> {
    anyfn::bail!("RuntimeError", "{TEXT}")
}

/// Returns an error, because this build has no modules.
pub(crate) fn register_system_lib_symbol(_name: &CStr, _symbol: *mut c_void) -> Result<()> {
    anyfn::bail!("RuntimeError", "{TEXT}")
}

/// Registers a global function by calling `set`.
pub(crate) fn register(_name: &[u8], overrides: bool, set: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    set(overrides)
}

/// Registers a field, method or attribute of a type by calling `add`.
pub(crate) fn part_of_type(
    _type_index: i32,
    _same: impl FnOnce() -> Option<bool>,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    add()
}

/// Registers a field of a type by calling `add`.
pub(crate) fn field(_type_index: i32, _new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    add()
}

/// Registers the metadata of a type by calling `set`.
pub(crate) fn whole_type(
    _type_index: i32,
    _new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    set()
}

/// Does nothing, because this build has no functions of modules.
pub(crate) fn register_globals() -> Result<()> {
    Ok(())
}

/// Kind of an object that would hold a lease in a build with modules.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A function that was created from the address of its code.
    Function,
    /// A tensor whose memory the code at an address releases.
    Tensor,
    /// An object of another language, with its deleter.
    Opaque,
}

/// Lease without content. In this build no library can be unmapped, so none needs to be kept mapped.
pub(crate) struct Lease;

impl Lease {
    /// Returns a lease that keeps no library mapped.
    pub(crate) fn of(_kind: Kind, _addresses: &[*const c_void]) -> Lease {
        Lease
    }

    /// Creates an object by calling `make` with this lease.
    pub(crate) fn explain(
        self,
        _code: *const c_void,
        make: impl FnOnce(Lease) -> anyfn::ObjectRef,
    ) -> anyfn::ObjectRef {
        make(self)
    }

    /// Returns false, because the lease keeps no library mapped.
    pub(crate) fn is_held(&self) -> bool {
        false
    }
}

/// Returns false, because this build cannot load plugins.
pub(crate) fn is_code_of_plugin(_address: usize) -> bool {
    false
}

/// Returns `None`, because this build cannot load plugins.
pub(crate) fn take_over(_old: usize, _new: usize) -> Option<bool> {
    None
}
