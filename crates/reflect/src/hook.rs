//! Hooks of types: functions registered as attributes, such as `__ffi_repr__`.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, PackedFunc};

/// Returns the value that a type has registered for the attribute `name`. If the type has
/// registered none, returns the value of the nearest ancestor that has registered one.
pub fn attribute(info: TypeInfo, name: &str) -> Option<Any> {
    info.lineage().rev().find_map(|info| info.attribute(name))
}

/// Returns the value that [`attribute`] finds, if the value is a packed function. Returns `None`
/// for other values, such as the address of a native function.
pub fn function(info: TypeInfo, name: &str) -> Option<PackedFunc> {
    attribute(info, name)?.get::<PackedFunc>().ok()
}
