//! `ffi.*` functions of containers.

/// Registers them.
pub(crate) fn register() -> anyfn::Result<()> {
    Ok(())
}
