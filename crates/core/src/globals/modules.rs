//! `ffi.*` functions of modules.

/// Registers the global functions of modules. In a build without modules, no function is registered.
pub(crate) fn register() -> anyfn::Result<()> {
    crate::module::register_globals()
}
