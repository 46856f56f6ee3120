//! Conversions between Rust collections, tuples and slices on one side and containers such as Array and Map
//! on the other.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use anyfn_abi::{TVMFFIAny, kTVMFFIArray};

use super::check::{in_sequence, of_key, of_value};
use super::convert::{mapping, sequence};
use super::{Array, Dict, List, Map, Value};
use crate::{Any, AnyView, DType, Device, FromArg, IntoAny, IntoArg, Mismatch, Result, Schema, Shape, String};

/// Calls `then` with the elements of the Array in `view`, or with a snapshot of the elements of the
/// List in `view`.
fn with_items<C: FromArg + ?Sized, R>(
    view: &AnyView<'_>,
    then: impl FnOnce(&[Any]) -> Result<R, Mismatch>,
) -> Result<R, Mismatch> {
    let object = sequence::<C>(view)?;
    if object.type_index() == kTVMFFIArray {
        return then(Array::<Any>::from_object_unchecked(object).as_slice());
    }
    then(&List::<Any>::from_object_unchecked(object).snapshot())
}

/// Converts `item`, the element at `index` of a container of type `C`, to a `T`.
#[inline]
fn element<C: FromArg + ?Sized, T: Value>(index: usize, item: &Any) -> Result<T, Mismatch> {
    T::from_arg(item.view_ref()).map_err(|mismatch| in_sequence(C::schema, "Array", index, mismatch))
}

impl<T: Value> FromArg for Vec<T> {
    type Arg<'a> = Vec<T>;
    fn schema() -> Schema {
        Schema::of("ffi.Array", vec![<T as FromArg>::schema()])
    }
    fn from_arg(view: &AnyView<'_>) -> Result<Vec<T>, Mismatch> {
        with_items::<Self, _>(view, |items| {
            items.iter().enumerate().map(|(index, item)| element::<Self, T>(index, item)).collect()
        })
    }
}

impl<T: Value, const N: usize> FromArg for [T; N] {
    type Arg<'a> = [T; N];
    fn schema() -> Schema {
        Schema::of("Tuple", (0..N).map(|_| <T as FromArg>::schema()).collect())
    }
    fn from_arg(view: &AnyView<'_>) -> Result<[T; N], Mismatch> {
        let items = Vec::<T>::from_arg(view).map_err(|mismatch| {
            let (expected, got) = (<Self as FromArg>::schema().to_string(), mismatch.got().to_string());
            mismatch.inside("", expected, got)
        })?;
        <[T; N]>::try_from(items).map_err(|items| wrong_size::<Self>(items.len()))
    }
}

#[cold]
fn wrong_size<C: FromArg + ?Sized>(size: usize) -> Mismatch {
    Mismatch::new("TypeError", C::schema().to_string(), format!("Array[size={size}]"))
}

/// Creates an Array from the values of an iterator.
fn into_array<T: IntoAny>(items: impl IntoIterator<Item = T>) -> Result<Any> {
    Array::<Any>::try_from_iter(items).map(Any::from)
}

fn array_of(element: Schema) -> Schema {
    Schema::of("ffi.Array", vec![element])
}

impl<T: IntoAny> IntoAny for Vec<T> {
    fn schema() -> Schema {
        array_of(T::schema())
    }
    fn into_any(self) -> Result<Any> {
        into_array(self)
    }
}

impl<T: IntoAny + Clone> IntoAny for &Vec<T> {
    fn schema() -> Schema {
        array_of(T::schema())
    }
    fn into_any(self) -> Result<Any> {
        into_array(self.iter().cloned())
    }
}

impl<T: IntoAny, const N: usize> IntoAny for [T; N] {
    fn schema() -> Schema {
        Schema::of("Tuple", (0..N).map(|_| T::schema()).collect())
    }
    fn into_any(self) -> Result<Any> {
        into_array(self)
    }
}

impl<T: IntoAny + Clone, const N: usize> IntoAny for &[T; N] {
    fn schema() -> Schema {
        <[T; N]>::schema()
    }
    fn into_any(self) -> Result<Any> {
        into_array(self.iter().cloned())
    }
}

/// Implements `IntoArg` for a type that is converted into an owned value.
macro_rules! by_value {
    ([$($generics:tt)*] $ty:ty) => {
        // SAFETY: the value is owned.
        unsafe impl<$($generics)*> IntoArg for $ty {
            const OWNED: bool = true;
            #[inline]
            fn into_arg(self) -> Result<TVMFFIAny> {
                Ok(self.into_any()?.into_raw())
            }
        }
    };
}

/// Implements the conversion of slices to Arrays, except for `&[u8]`, which is converted to bytes.
macro_rules! slices {
    ($($ty:ty),*) => { $(
        impl IntoAny for &[$ty] {
            fn schema() -> Schema {
                array_of(<$ty as IntoAny>::schema())
            }
            fn into_any(self) -> Result<Any> {
                into_array(self.iter().cloned())
            }
        }

        by_value!([] &[$ty]);
    )* };
}

slices!(
    i8,
    i16,
    i32,
    i64,
    isize,
    u16,
    u32,
    u64,
    usize,
    f32,
    f64,
    bool,
    Any,
    String,
    &str,
    alloc::string::String,
    DType,
    Device,
    crate::ObjectRef,
    crate::PackedFunc,
    crate::Tensor
);
by_value!([T: IntoAny] Vec<T>);
by_value!([T: IntoAny + Clone] &Vec<T>);
by_value!([T: IntoAny, const N: usize] [T; N]);

/// Implements the conversions of tuples, which correspond to Arrays with the same number of elements.
macro_rules! tuples {
    ($( ($count:literal: $($name:ident $index:tt),*) )*) => { $(
        impl<$($name: Value),*> FromArg for ($($name,)*) {
            type Arg<'a> = ($($name,)*);
            fn schema() -> Schema {
                Schema::of("Tuple", vec![$(<$name as FromArg>::schema()),*])
            }
            fn from_arg(view: &AnyView<'_>) -> Result<Self, Mismatch> {
                with_items::<Self, _>(view, |items| {
                    if items.len() != $count {
                        return Err(wrong_size::<Self>(items.len()));
                    }
                    Ok(($(element::<Self, $name>($index, &items[$index])?,)*))
                })
            }
        }

        impl<$($name: IntoAny),*> IntoAny for ($($name,)*) {
            fn schema() -> Schema {
                Schema::of("Tuple", vec![$($name::schema()),*])
            }
            fn into_any(self) -> Result<Any> {
                into_array([$(self.$index.into_any()?),*])
            }
        }

        by_value!([$($name: IntoAny),*] ($($name,)*));
    )* };
}

tuples! {
    (1: A 0)
    (2: A 0, B 1)
    (3: A 0, B 1, C 2)
    (4: A 0, B 1, C 2, D 3)
    (5: A 0, B 1, C 2, D 3, E 4)
    (6: A 0, B 1, C 2, D 3, E 4, F 5)
    (7: A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

/// Converts each pair of the Map in `view`, or of a snapshot of the Dict in `view`, and passes it
/// to `put`.
fn read_pairs<C: FromArg, K: Value, V: Value>(
    view: &AnyView<'_>,
    mut put: impl FnMut(K, V),
) -> Result<(), Mismatch> {
    let mut read = |key: &Any, value: &Any| {
        let k = K::from_arg(key.view_ref()).map_err(|mismatch| of_key(C::schema, "Map", mismatch))?;
        let v = V::from_arg(value.view_ref()).map_err(|mismatch| of_value(C::schema, "Map", key, mismatch))?;
        put(k, v);
        Ok(())
    };
    let object = mapping::<C>(view)?;
    if object.type_index() == anyfn_abi::kTVMFFIMap {
        return Map::<Any, Any>::from_object_unchecked(object)
            .iter_any()
            .try_for_each(|(key, value)| read(key, value));
    }
    Dict::<Any, Any>::from_object_unchecked(object)
        .snapshot()
        .iter()
        .try_for_each(|(key, value)| read(key, value))
}

/// Implements the conversion of Maps and Dicts to mapping types of Rust.
macro_rules! mappings {
    ($( [$($bound:path),*] [$($extra:ident: $default:path)?] $ty:ty; )*) => { $(
        impl<K: Value $(+ $bound)*, V: Value $(, $extra: $default)?> FromArg for $ty {
            type Arg<'a> = $ty;
            fn schema() -> Schema {
                Schema::of("ffi.Map", vec![<K as FromArg>::schema(), <V as FromArg>::schema()])
            }
            fn from_arg(view: &AnyView<'_>) -> Result<Self, Mismatch> {
                let mut map = <$ty>::default();
                read_pairs::<Self, K, V>(view, |key, value| {
                    map.insert(key, value);
                })?;
                Ok(map)
            }
        }
    )* };
}

mappings! {
    [Ord] [] BTreeMap<K, V>;
}

impl<K: IntoAny, V: IntoAny> IntoAny for BTreeMap<K, V> {
    fn schema() -> Schema {
        Schema::of("ffi.Map", vec![K::schema(), V::schema()])
    }
    fn into_any(self) -> Result<Any> {
        Map::<Any, Any>::try_from_iter(self).map(Any::from)
    }
}

by_value!([K: IntoAny, V: IntoAny] BTreeMap<K, V>);

#[cfg(feature = "std")]
mod hash_map {
    use core::hash::{BuildHasher, Hash};
    use std::collections::HashMap;

    use super::*;

    mappings! {
        [Eq, Hash] [S: DefaultHasher] HashMap<K, V, S>;
    }

    /// A `BuildHasher` that has a default value, as a new `HashMap` requires.
    pub trait DefaultHasher: BuildHasher + Default {}
    impl<S: BuildHasher + Default> DefaultHasher for S {}

    impl<K: IntoAny, V: IntoAny, S> IntoAny for HashMap<K, V, S> {
        fn schema() -> Schema {
            Schema::of("ffi.Map", vec![K::schema(), V::schema()])
        }
        fn into_any(self) -> Result<Any> {
            Map::<Any, Any>::try_from_iter(self).map(Any::from)
        }
    }

    by_value!([K: IntoAny, V: IntoAny, S] HashMap<K, V, S>);
}

impl FromArg for Shape {
    type Arg<'a> = Shape;
    fn schema() -> Schema {
        Schema::plain("ffi.Shape")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Shape, Mismatch> {
        if let Some(object) = crate::convert::take_object(view, |index| index == anyfn_abi::kTVMFFIShape) {
            return Shape::try_from_object(object).map_err(|_| Mismatch::of_type::<Self>(view));
        }
        with_items::<Self, _>(view, |items| {
            let extents = items
                .iter()
                .enumerate()
                .map(|(index, item)| element::<Self, i64>(index, item))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Shape::from(&extents[..]))
        })
    }
}

impl IntoAny for Shape {
    fn schema() -> Schema {
        <Shape as FromArg>::schema()
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(self.into_object().into())
    }
}

impl From<Shape> for Any {
    #[inline]
    fn from(shape: Shape) -> Any {
        shape.into_object().into()
    }
}

crate::args::object_arg!(Shape);
