//! Objects that are one of a few named ones: types derived from `ffi.Enum`, wherever they are registered.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Dict, Result};

/// By what an object of such a type is saved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Str,
}

/// By what objects of a type are saved, if they are such.
pub(super) fn kind_of(info: TypeInfo) -> Option<Kind> {
    info.lineage().rev().find_map(|info| match info.key() {
        "ffi.IntEnum" => Some(Kind::Int),
        "ffi.Enum" => Some(Kind::Str),
        _ => None,
    })
}

/// The object of a type with an index: an int or a name.
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
