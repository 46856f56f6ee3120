//! Inline values: values that a saved graph stores directly in a field instead of in a separate node. They
//! are None, booleans, integers, floats and data types.

use anyfn::abi::{kTVMFFIBool, kTVMFFIDataType, kTVMFFIFloat, kTVMFFIInt, kTVMFFINone};

/// Type of an inline value, that is, of a value that is stored directly in a field instead of in a separate
/// node.
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

    /// Returns the [`Inline`] type with this type index; `None` for types whose values are stored in nodes.
    pub(super) fn of_type(type_index: i32) -> Option<Inline> {
        Self::ALL.iter().find(|(_, index, _)| *index == type_index).map(|(inline, ..)| *inline)
    }

    /// Returns the [`Inline`] type with the type key `key`; `None` for types whose values are stored in
    /// nodes.
    pub(super) fn of_key(key: &str) -> Option<Inline> {
        Self::ALL.iter().find(|(.., name)| *name == key).map(|(inline, ..)| *inline)
    }

    /// Returns the type key of values of this type.
    pub(super) fn key(self) -> &'static str {
        Self::ALL.iter().find(|(inline, ..)| *inline == self).map_or("", |(.., key)| key)
    }
}
