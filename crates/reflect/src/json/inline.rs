//! Values that are stored inline in a field instead of in a separate node.

use anyfn::abi::{kTVMFFIBool, kTVMFFIDataType, kTVMFFIFloat, kTVMFFIInt, kTVMFFINone};

/// Inline kind: the static type of a field that stores its values inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inline {
    None,
    Bool,
    Int,
    Float,
    DType,
}

impl Inline {
    const ALL: [(Inline, i32, &str); 5] = [
        (Inline::None, kTVMFFINone, "None"),
        (Inline::Bool, kTVMFFIBool, "bool"),
        (Inline::Int, kTVMFFIInt, "int"),
        (Inline::Float, kTVMFFIFloat, "float"),
        (Inline::DType, kTVMFFIDataType, "DataType"),
    ];

    /// Returns the inline kind for a type; `None` for a type whose values are stored in nodes.
    pub(super) fn of_type(type_index: i32) -> Option<Inline> {
        Self::ALL.iter().find(|(_, index, _)| *index == type_index).map(|(inline, ..)| *inline)
    }

    /// Returns the inline kind for the type with the key `key`.
    pub(super) fn of_key(key: &str) -> Option<Inline> {
        Self::ALL.iter().find(|(.., name)| *name == key).map(|(inline, ..)| *inline)
    }

    /// Returns the key of the type to which this inline kind belongs.
    pub(super) fn key(self) -> &'static str {
        Self::ALL.iter().find(|(inline, ..)| *inline == self).map_or("", |(.., key)| key)
    }
}
