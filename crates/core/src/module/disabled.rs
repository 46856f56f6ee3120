//! Without the standard library there are no modules.

use core::ffi::{CStr, c_void};

use anyfn::Result;
use anyfn::abi::{TVMFFIFieldInfo, TVMFFIObjectHandle, TVMFFITypeMetadata};

const TEXT: &str = "library modules are not available in this build of the runtime";

/// Always an error.
///
/// # Safety
/// None; the signature is that of the real one.
pub(crate) unsafe fn lookup_from_imports(
    _library_ctx: TVMFFIObjectHandle,
    _name: &CStr,
) -> Result<TVMFFIObjectHandle> {
    anyfn::bail!("RuntimeError", "{TEXT}")
}

/// Always an error.
pub(crate) fn register_context_symbol(_name: &CStr, _symbol: *mut c_void) -> Result<()> {
    anyfn::bail!("RuntimeError", "{TEXT}")
}

/// Always an error.
pub(crate) fn register_system_lib_symbol(_name: &CStr, _symbol: *mut c_void) -> Result<()> {
    anyfn::bail!("RuntimeError", "{TEXT}")
}

/// Registers by `set`.
pub(crate) fn register(_name: &[u8], overrides: bool, set: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    set(overrides)
}

/// Registers by `add`.
pub(crate) fn part_of_type(
    _type_index: i32,
    _same: impl FnOnce() -> Option<bool>,
    add: impl FnOnce() -> Result<()>,
) -> Result<()> {
    add()
}

/// Registers by `add`.
pub(crate) fn field(_type_index: i32, _new: &TVMFFIFieldInfo, add: impl FnOnce() -> Result<()>) -> Result<()> {
    add()
}

/// Registers by `set`.
pub(crate) fn whole_type(
    _type_index: i32,
    _new: &TVMFFITypeMetadata,
    set: impl FnOnce() -> Result<()>,
) -> Result<()> {
    set()
}

/// Registers nothing.
pub(crate) fn register_globals() -> Result<()> {
    Ok(())
}

/// What holds a lease.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A function made of an address.
    Function,
    /// A tensor whose deleter is an address.
    Tensor,
    /// An object of another language with its deleter.
    Opaque,
}

/// Without libraries there is nothing to keep.
pub(crate) struct Lease;

impl Lease {
    /// Keeps nothing.
    pub(crate) fn of(_kind: Kind, _addresses: &[*const c_void]) -> Lease {
        Lease
    }

    /// Makes the object that holds it.
    pub(crate) fn explain(
        self,
        _code: *const c_void,
        make: impl FnOnce(Lease) -> anyfn::ObjectRef,
    ) -> anyfn::ObjectRef {
        make(self)
    }

    /// It holds nothing.
    pub(crate) fn is_held(&self) -> bool {
        false
    }
}

/// There are no plugins.
pub(crate) fn is_code_of_plugin(_address: usize) -> bool {
    false
}

/// There are no plugins.
pub(crate) fn take_over(_old: usize, _new: usize) -> Option<bool> {
    None
}
