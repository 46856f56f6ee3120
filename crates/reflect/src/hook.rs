//! Hooks of types: functions registered as attributes, such as `__ffi_repr__`.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, PackedFunc};

/// Returns the attribute that the type, or its nearest ancestor that has one, has registered under a name.
pub fn attribute(info: TypeInfo, name: &str) -> Option<Any> {
    info.lineage().rev().find_map(|info| info.attribute(name))
}

/// Returns an attribute as [`attribute`] does if it is a function. Compiled code may register the address of a native
/// function instead, which does not count.
pub fn function(info: TypeInfo, name: &str) -> Option<PackedFunc> {
    attribute(info, name)?.get::<PackedFunc>().ok()
}
