//! The file that contains this runtime, and the symbols that it exports.

use std::sync::OnceLock;

use anyfn::abi::TVMFFIFunctionCall;

use super::Origin;
use crate::classic;

/// Returns the file that contains the code of this runtime: a library or the main program.
pub(crate) fn runtime() -> Option<&'static Origin> {
    static RUNTIME: OnceLock<Option<Origin>> = OnceLock::new();
    RUNTIME.get_or_init(|| super::origin((TVMFFIFunctionCall as *const ()).cast())).as_ref()
}

/// Returns true if `name` has the prefix of a symbol of the runtime, such as `TVMFFI`.
pub(crate) fn is_runtime_symbol(name: &str) -> bool {
    name.starts_with("TVMFFI")
        || name.starts_with("TVMBackend")
        || name.starts_with("anyfn_")
        || classic::is_symbol(name)
}
