//! What types do themselves: functions under the names of attributes, such as `__ffi_repr__`.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, PackedFunc};

/// What the type, or the nearest ancestor that says something, has registered under a name.
pub fn attribute(info: TypeInfo, name: &str) -> Option<Any> {
    info.lineage().rev().find_map(|info| info.attribute(name))
}

/// The same where only a function counts; compiled code may register the address of a native one instead.
pub fn function(info: TypeInfo, name: &str) -> Option<PackedFunc> {
    attribute(info, name)?.get::<PackedFunc>().ok()
}
