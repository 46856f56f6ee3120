//! Conversions between Rust types and containers.

use alloc::string::ToString;
use alloc::vec;

use anyfn_abi::{TVMFFIAny, kTVMFFIArray, kTVMFFIDict, kTVMFFIList, kTVMFFIMap};

use super::{Array, Dict, List, Map};
use crate::convert::take_object;
use crate::representation::{Conversion, Lent};
use crate::{Any, AnyView, FromArg, IntoAny, IntoArg, Mismatch, ObjectRef, Result, Schema};

#[inline]
fn is_sequence(index: i32) -> bool {
    matches!(index, kTVMFFIArray | kTVMFFIList)
}

/// Creates the mismatch for a container whose elements could not be copied because memory allocation failed.
#[cold]
fn short_of_memory(schema: fn() -> Schema, error: &crate::Error) -> Mismatch {
    Mismatch::new("MemoryError", schema().to_string(), error.message().to_string())
}

/// Returns the Array or List in `view`. For other values, returns a mismatch whose expected type is `C`.
pub(super) fn sequence<C: FromArg + ?Sized>(view: &AnyView<'_>) -> Result<ObjectRef, Mismatch> {
    take_object(view, is_sequence).ok_or_else(|| Mismatch::of_type::<C>(view))
}

impl<T: FromArg> FromArg for Array<T> {
    type Arg<'a> = Array<T>;
    const CONVERSION: Conversion<Self> = T::CONVERSION.within();
    fn schema() -> Schema {
        Schema::of("ffi.Array", vec![T::schema()])
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Array<T>, Mismatch> {
        let object = sequence::<Self>(view)?;
        let array = if object.type_index() == kTVMFFIArray {
            Array::from_object_unchecked(object)
        } else {
            let items = List::<Any>::from_object_unchecked(object).snapshot();
            Array::from_values(items.into_iter())
                .map_err(|error| short_of_memory(<Self as FromArg>::schema, &error))?
        };
        array.check().map(|()| array)
    }
}

impl<T: FromArg> FromArg for List<T> {
    type Arg<'a> = List<T>;
    const CONVERSION: Conversion<Self> = T::CONVERSION.within();
    fn schema() -> Schema {
        Schema::of("ffi.List", vec![T::schema()])
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<List<T>, Mismatch> {
        let object = sequence::<Self>(view)?;
        let list = if object.type_index() == kTVMFFIList {
            List::from_object_unchecked(object)
        } else {
            let array = Array::<Any>::from_object_unchecked(object);
            List::from_values(array.as_slice().iter().cloned())
                .map_err(|error| short_of_memory(<Self as FromArg>::schema, &error))?
        };
        list.check().map(|()| list)
    }
}

#[inline]
fn is_mapping(index: i32) -> bool {
    matches!(index, kTVMFFIMap | kTVMFFIDict)
}

/// Returns the Map or Dict in `view`. For other values, returns a mismatch whose expected type is `C`.
pub(super) fn mapping<C: FromArg + ?Sized>(view: &AnyView<'_>) -> Result<ObjectRef, Mismatch> {
    take_object(view, is_mapping).ok_or_else(|| Mismatch::of_type::<C>(view))
}

impl<K: FromArg, V: FromArg> FromArg for Map<K, V> {
    type Arg<'a> = Map<K, V>;
    const CONVERSION: Conversion<Self> = K::CONVERSION.and(&V::CONVERSION);
    fn schema() -> Schema {
        Schema::of("ffi.Map", vec![K::schema(), V::schema()])
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Map<K, V>, Mismatch> {
        let object = mapping::<Self>(view)?;
        let map = if object.type_index() == kTVMFFIMap {
            Map::from_object_unchecked(object)
        } else {
            let pairs = Dict::<Any, Any>::from_object_unchecked(object).snapshot();
            Map::from_values(pairs).map_err(|error| short_of_memory(<Self as FromArg>::schema, &error))?
        };
        map.check().map(|()| map)
    }
}

impl<K: FromArg, V: FromArg> FromArg for Dict<K, V> {
    type Arg<'a> = Dict<K, V>;
    const CONVERSION: Conversion<Self> = K::CONVERSION.and(&V::CONVERSION);
    fn schema() -> Schema {
        Schema::of("ffi.Dict", vec![K::schema(), V::schema()])
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Dict<K, V>, Mismatch> {
        let object = mapping::<Self>(view)?;
        let dict = if object.type_index() == kTVMFFIDict {
            Dict::from_object_unchecked(object)
        } else {
            let map = Map::<Any, Any>::from_object_unchecked(object);
            let pairs = map.iter_any().map(|(key, value)| (key.clone(), value.clone())).collect();
            Dict::from_values(pairs).map_err(|error| short_of_memory(<Self as FromArg>::schema, &error))?
        };
        dict.check().map(|()| dict)
    }
}

/// Implements the conversions of a container type into values and arguments.
macro_rules! container {
    ($name:ident<$($param:ident),*>, $key:literal) => {
        impl<$($param: FromArg),*> IntoAny for $name<$($param),*> {
            const LENT: Lent<Self> = Lent::OBJECT;
            fn schema() -> Schema {
                Schema::of($key, vec![$($param::schema()),*])
            }
            #[inline]
            fn into_any(self) -> Result<Any> {
                Ok(self.into_object().into())
            }
        }

        impl<$($param),*> From<$name<$($param),*>> for Any {
            #[inline]
            fn from(container: $name<$($param),*>) -> Any {
                container.into_object().into()
            }
        }

        // SAFETY: the reference moves into the value, which is owned.
        unsafe impl<$($param),*> IntoArg for $name<$($param),*> {
            const OWNED: bool = true;
            #[inline]
            fn into_arg(self) -> Result<TVMFFIAny> {
                Ok(Any::from(self).into_raw())
            }
        }

        // SAFETY: the result is a view of an object that the borrow keeps alive.
        unsafe impl<$($param),*> IntoArg for &$name<$($param),*> {
            const OWNED: bool = false;
            #[inline]
            fn into_arg(self) -> Result<TVMFFIAny> {
                Ok(*AnyView::from(self.as_object()).as_raw())
            }
        }
    };
}

container!(Array<T>, "ffi.Array");
container!(List<T>, "ffi.List");
container!(Map<K, V>, "ffi.Map");
container!(Dict<K, V>, "ffi.Dict");
