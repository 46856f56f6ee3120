//! Built-in types, whose values are saved as JSON nodes in a form that the file format defines.

use anyfn::abi::{
    kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIDict,
    kTVMFFIFloat, kTVMFFIInt, kTVMFFIList, kTVMFFIMap, kTVMFFINone, kTVMFFIShape, kTVMFFIStr, kTVMFFITensor,
};

macro_rules! builtins {
    ($($name:ident = $type_index:ident),* $(,)?) => {
        /// Built-in type whose saved form the JSON format defines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Builtin {
            $($name,)*
        }

        impl Builtin {
            /// Type indices of the built-in types, in the order of the variants of [`Builtin`].
            pub(super) const TYPE_INDICES: &[i32] = &[$($type_index),*];

            /// Returns the built-in type with this type index; `None` for other types, including small
            /// strings and small bytes values.
            #[inline]
            pub(super) fn of(type_index: i32) -> Option<Builtin> {
                match type_index {
                    $($type_index => Some(Builtin::$name),)*
                    _ => None,
                }
            }
        }
    };
}

builtins! {
    None = kTVMFFINone,
    Int = kTVMFFIInt,
    Bool = kTVMFFIBool,
    Float = kTVMFFIFloat,
    DType = kTVMFFIDataType,
    Device = kTVMFFIDevice,
    Str = kTVMFFIStr,
    Bytes = kTVMFFIBytes,
    Shape = kTVMFFIShape,
    Tensor = kTVMFFITensor,
    Array = kTVMFFIArray,
    Map = kTVMFFIMap,
    List = kTVMFFIList,
    Dict = kTVMFFIDict,
    BigInt = kTVMFFIBigInt,
}

impl Builtin {
    /// Returns true for Map and Dict, which are saved as a list of alternating keys and values.
    pub(super) fn is_mapping(self) -> bool {
        matches!(self, Builtin::Map | Builtin::Dict)
    }

    /// Returns true for List and Dict. Only these containers can contain themselves, because they are mutable.
    pub(super) fn is_mutable(self) -> bool {
        matches!(self, Builtin::List | Builtin::Dict)
    }
}
