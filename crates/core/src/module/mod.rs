//! Library modules: not written yet.

use core::ffi::{CStr, c_void};

use anyfn::Result;
use anyfn::abi::TVMFFIObjectHandle;

/// Looks a function up in the imports of a library, then among the global functions; the handle is borrowed.
///
/// # Safety
/// `library_ctx` must be NULL or what the loader has written into a library's context slot.
pub(crate) unsafe fn lookup_from_imports(library_ctx: TVMFFIObjectHandle, name: &CStr) -> Result<TVMFFIObjectHandle> {
    let _ = (library_ctx, name);
    anyfn::bail!("RuntimeError", "library modules are not available")
}

/// Makes each library loaded from now on get `symbol` in its pointer variable `name`.
pub(crate) fn register_context_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    let _ = (name, symbol);
    anyfn::bail!("RuntimeError", "library modules are not available")
}

/// Registers a symbol of a statically linked library.
pub(crate) fn register_system_lib_symbol(name: &CStr, symbol: *mut c_void) -> Result<()> {
    let _ = (name, symbol);
    anyfn::bail!("RuntimeError", "library modules are not available")
}
