//! `ffi.*` functions of modules.

/// Registers them; nothing in a build without modules.
pub(crate) fn register() -> anyfn::Result<()> {
    crate::module::register_globals()
}
