//! Conversions between typed and untyped object references, through the standard traits `From` and `TryFrom`.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{Array, ObjectRef, Shape};
//!
//! let object: ObjectRef = Array::from([1_i64, 2]).into();
//! assert_eq!(Array::<i64>::try_from(object.clone())?.len(), 2);
//! assert_eq!(Shape::try_from(object.clone())?, [1, 2]);
//! assert_eq!(Array::<anyfn::String>::try_from(object).unwrap_err().kind(), "TypeError");
//! # Ok::<(), anyfn::Error>(())
//! ```

use crate::{
    Any, Array, Dict, Error, FromArg, List, Map, Module, Object, ObjectRef, PackedFunc, Ref, Result, Shape,
    Tensor,
};

/// Implements the conversions between an object type and [`ObjectRef`]. The first brackets contain the type
/// parameters for the conversion to [`ObjectRef`], the second brackets those for the checked conversion back.
macro_rules! casts {
    ($( [$($any:tt)*] [$($checked:tt)*] $ty:ty; )*) => { $(
        impl<$($any)*> From<$ty> for ObjectRef {
            #[inline]
            fn from(object: $ty) -> ObjectRef {
                object.into_object()
            }
        }

        /// Converts the object in the same way as [`Any::get`], with the same errors. An Array is
        /// copied if a List is required, and a Map if a Dict is required, and vice versa.
        /// `try_from_object` never copies, and returns the object if it has another type.
        impl<$($checked)*> TryFrom<ObjectRef> for $ty {
            type Error = Error;
            fn try_from(object: ObjectRef) -> Result<$ty> {
                Any::from(object).get::<$ty>()
            }
        }
    )* };
}

casts! {
    [T] [T: FromArg] Array<T>;
    [T] [T: FromArg] List<T>;
    [K, V] [K: FromArg, V: FromArg] Map<K, V>;
    [K, V] [K: FromArg, V: FromArg] Dict<K, V>;
    [T: Object] [T: Object] Ref<T>;
    [] [] Error;
    [] [] Module;
    [] [] PackedFunc;
    [] [] Shape;
    [] [] Tensor;
}

impl<T: Object> From<Ref<T>> for Any {
    #[inline]
    fn from(object: Ref<T>) -> Any {
        object.into_object().into()
    }
}
