//! `ffi.*` functions of modules.

/// Registers the functions of modules; in a build without modules there are none.
pub(crate) fn register() -> anyfn::Result<()> {
    crate::module::register_globals()
}
