//! Saving and loading of enumeration values, that is, objects of types derived from `ffi.Enum`. Any library
//! may define such types.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Dict, Result};

/// Key by which a file identifies an enumeration value: its number or its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnumIndex {
    Int,
    Str,
}

/// Returns the kind of key by which the values of an enumeration are saved; `None` if the type is not an
/// enumeration.
pub(super) fn kind_of(info: TypeInfo) -> Option<EnumIndex> {
    info.lineage().rev().find_map(|info| match info.key() {
        "ffi.IntEnum" => Some(EnumIndex::Int),
        "ffi.Enum" => Some(EnumIndex::Str),
        _ => None,
    })
}

/// Returns the enumeration value whose number or name is `index`.
pub(super) fn find(info: TypeInfo, index: &Any) -> Result<Any> {
    let state = info.attribute("__ffi_enum__").and_then(Any::into_object);
    let found = match state {
        Some(state) => state.get_field("indexes")?.get::<Dict>()?.get_any(index.as_view())?,
        None => None,
    };
    let shown = super::value::shown(index);
    found.ok_or_else(|| {
        let shown = shown.trim_matches('"');
        anyfn::error!("ValueError", "Enum `{}` has no instance with index {shown}", info.key())
    })
}
