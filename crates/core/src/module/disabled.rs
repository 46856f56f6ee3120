//! Replacement for modules in builds without the standard library, which have none.

use core::ffi::{CStr, c_void};

use anyfn::Result;
use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObjectHandle, TVMFFITypeMetadata};

const TEXT: &str = "library modules are not available in this build of the runtime";

/// Returns an error, because this build has no modules.
///
/// # Safety
/// There are no obligations; the signature is that of the real function.
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

/// Registers a global function with `set`.
pub(crate) fn register(_name: &[u8], overrides: bool, set: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    set(overrides)
}

/// Registers a part of a type with `add`.
pub(crate) fn part_of_type(
    _type_index: i32,
    _same: impl FnOnce() -> Option<bool>,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    add()
}

/// Registers a field with `add`.
pub(crate) fn field(_type_index: i32, _new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    add()
}

/// Registers a type's metadata with `set`.
pub(crate) fn whole_type(
    _type_index: i32,
    _new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    set()
}

/// Registers no functions.
pub(crate) fn register_globals() -> Result<()> {
    Ok(())
}

/// Kind of the object that holds a lease.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A function created from an address.
    Function,
    /// A tensor whose deleter is an address.
    Tensor,
    /// An object of another language, with its deleter.
    Opaque,
}

/// An empty lease: without libraries there is nothing to keep mapped.
pub(crate) struct Lease;

impl Lease {
    /// Returns a lease that keeps nothing.
    pub(crate) fn of(_kind: Kind, _addresses: &[*const c_void]) -> Lease {
        Lease
    }

    /// Creates the object that holds the lease.
    pub(crate) fn explain(
        self,
        _code: *const c_void,
        make: impl FnOnce(Lease) -> anyfn::ObjectRef,
    ) -> anyfn::ObjectRef {
        make(self)
    }

    /// Returns false, because a lease holds nothing.
    pub(crate) fn is_held(&self) -> bool {
        false
    }
}

/// Returns false, because there are no plugins.
pub(crate) fn is_code_of_plugin(_address: usize) -> bool {
    false
}

/// Returns `None`, because there are no plugins.
pub(crate) fn take_over(_old: usize, _new: usize) -> Option<bool> {
    None
}
