//! `ffi.*` functions of modules.

/// Registers them.
pub(crate) fn register() -> anyfn::Result<()> {
    Ok(())
}
