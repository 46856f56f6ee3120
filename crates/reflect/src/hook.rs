//! Hooks of types: functions registered as attributes, such as `__ffi_repr__`.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, PackedFunc};

/// Returns the attribute `name` of a type. If the type has not registered it, returns the attribute of the
/// nearest ancestor that has registered it.
pub fn attribute(info: TypeInfo, name: &str) -> Option<Any> {
    info.lineage().rev().find_map(|info| info.attribute(name))
}

/// Returns the attribute that [`attribute`] finds, if it is a packed function. Returns `None` for other
/// values, such as the address of a native function.
pub fn function(info: TypeInfo, name: &str) -> Option<PackedFunc> {
    attribute(info, name)?.get::<PackedFunc>().ok()
}
