//! Pass that requests entry points for functions. An entry point takes packed arguments.

use anyfn::{Any, Ref, Result};
use anyfn_ir::func::{ENTRY, PACKED_ENTRY, PrimFunc};

/// Requests an entry point for a function by setting its attribute [`ENTRY`]. The entry point takes packed
/// arguments, checks the conditions on which the function relies, and calls the function. A function that
/// already has the attribute is unchanged.
///
/// Without this pass, code generators generate the plain function only, whose caller is responsible for its arguments.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn make_packed_api(func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
    if func.attrs.get_any(ENTRY)?.is_some() {
        return Ok(func.clone());
    }
    PrimFunc::with_attr(func.clone(), ENTRY.into(), Any::new(PACKED_ENTRY)?)
}
