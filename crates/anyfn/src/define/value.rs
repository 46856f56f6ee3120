//! Rust types that fields of objects can have.

use core::any::TypeId;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicU8, AtomicU16, AtomicU32, Ordering,
};

use alloc::string::ToString;

use anyfn_abi::{
    kTVMFFIAny, kTVMFFIArray, kTVMFFIBool, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIDict, kTVMFFIError,
    kTVMFFIFloat, kTVMFFIFunction, kTVMFFIInt, kTVMFFIList, kTVMFFIMap, kTVMFFIModule, kTVMFFINone,
    kTVMFFIObject, kTVMFFIShape, kTVMFFITensor,
};

use crate::atomic64::AtomicI64;
use crate::representation::Lent;
use crate::{Any, AnyView, Cell, FromArg, IntoAny, Mismatch, Result, Schema};

/// A Rust type that a field of an object can have.
///
/// It is implemented for every type that functions can take and return, if it is `Clone`, `Send` and `Sync`. A field
/// of such a type is set while its object is constructed and does not change later. Fields of type
/// [`Cell`](crate::Cell) and of the atomic types can be set at any time, by every language.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field that other languages see",
    note = "a field needs a type that functions take and return (`FromArg`, `IntoAny`, `Clone`), a `Cell` of one, or an \
            atomic number",
    note = "leave the field out with `#[field(skip)]`"
)]
pub trait FieldValue: Sized + Send + Sync + 'static {
    /// True if a field of this type may be set at any time.
    const WRITABLE: bool = false;

    /// Memory representation of a field of this type. It specifies whether readers can borrow the value of a
    /// field that does not change after construction.
    #[doc(hidden)]
    const LENT: Lent<Self> = Lent::NOT;

    /// Returns the description of the type for signatures and error messages.
    fn schema() -> Schema;

    /// Returns the static type index of the field: the type index of its values, `kTVMFFIObject`
    /// for values of a user-defined object type, or -1 if neither applies.
    fn static_type_index() -> i32;

    /// Returns the value of the field in the form that other languages read.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    fn read(&self) -> Result<Any>;

    /// Converts a value into the initial content of the field.
    ///
    /// # Errors
    /// Returns the [`Mismatch`] between the expected type and `value`.
    fn make(value: &AnyView<'_>) -> Result<Self, Mismatch>;

    /// Returns a copy of the field's content, for a copy of the object.
    fn copied(&self) -> Self;

    /// Sets a field that is [writable](Self::WRITABLE).
    ///
    /// # Errors
    /// Returns the errors of [`make`](Self::make).
    fn write(&self, value: &AnyView<'_>) -> Result<(), Mismatch> {
        Err(Mismatch::new("AttributeError", "a field that can be set".into(), value.type_key().into()))
    }
}

impl<T> FieldValue for T
where
    T: Clone + IntoAny + for<'a> FromArg<Arg<'a> = T> + Send + Sync + 'static,
{
    const LENT: Lent<T> = <T as IntoAny>::LENT.set_by(&<T as FromArg>::CONVERSION);

    fn schema() -> Schema {
        <T as FromArg>::schema()
    }

    fn static_type_index() -> i32 {
        static_type_index_of::<T>()
    }

    #[inline]
    fn read(&self) -> Result<Any> {
        self.clone().into_any()
    }

    #[inline]
    fn make(value: &AnyView<'_>) -> Result<T, Mismatch> {
        T::from_arg(value)
    }

    fn copied(&self) -> T {
        self.clone()
    }
}

impl<T: IntoAny + for<'a> FromArg<Arg<'a> = T> + 'static> FieldValue for Cell<T> {
    const WRITABLE: bool = true;
    const LENT: Lent<Self> = <T as FromArg>::CONVERSION.slot();

    fn schema() -> Schema {
        <T as FromArg>::schema()
    }

    fn static_type_index() -> i32 {
        static_type_index_of::<T>()
    }

    #[inline]
    fn read(&self) -> Result<Any> {
        Ok(self.any())
    }

    #[inline]
    fn make(value: &AnyView<'_>) -> Result<Self, Mismatch> {
        checked::<T>(value).map(Cell::of)
    }

    fn copied(&self) -> Self {
        self.clone()
    }

    #[inline]
    fn write(&self, value: &AnyView<'_>) -> Result<(), Mismatch> {
        drop(self.put(checked::<T>(value)?));
        Ok(())
    }
}

/// Converts a value to `T` and back, so that the result has the form that a field of type `T`
/// stores.
#[inline]
fn checked<T: IntoAny + for<'a> FromArg<Arg<'a> = T>>(value: &AnyView<'_>) -> Result<Any, Mismatch> {
    T::from_arg(value)?.into_any().map_err(|error| {
        Mismatch::new("MemoryError", <T as FromArg>::schema().to_string(), error.message().into())
    })
}

/// Returns the static type index of a field of type `T`; see [`FieldValue::static_type_index`].
pub(crate) fn static_type_index_of<T: FromArg + 'static>() -> i32 {
    // Some values of these types are objects: integers that do not fit in an `i64`.
    let large = [TypeId::of::<u64>(), TypeId::of::<usize>(), TypeId::of::<i128>(), TypeId::of::<u128>()];
    if large.contains(&TypeId::of::<T>()) { kTVMFFIAny } else { index_of(&T::schema()) }
}

/// Returns the type index that the stable ABI defines for fields with this schema.
fn index_of(schema: &Schema) -> i32 {
    match &*schema.origin {
        "None" => kTVMFFINone,
        "int" => kTVMFFIInt,
        "bool" => kTVMFFIBool,
        "float" => kTVMFFIFloat,
        "DataType" => kTVMFFIDataType,
        "Device" => kTVMFFIDevice,
        "ffi.Error" => kTVMFFIError,
        "ffi.Function" => kTVMFFIFunction,
        "ffi.Shape" => kTVMFFIShape,
        "ffi.Tensor" => kTVMFFITensor,
        "ffi.Array" => kTVMFFIArray,
        "ffi.Map" => kTVMFFIMap,
        "ffi.List" => kTVMFFIList,
        "ffi.Dict" => kTVMFFIDict,
        "ffi.Module" => kTVMFFIModule,
        "ffi.Object" => kTVMFFIObject,
        // The key of some other object type.
        key if key.contains('.') && !key.starts_with("ffi.") => kTVMFFIObject,
        // Some strings are stored in the value and others are objects.
        _ => kTVMFFIAny,
    }
}

macro_rules! atomics {
    ($($atomic:ident: $plain:ident => $index:ident),*) => { $(
        impl FieldValue for $atomic {
            const WRITABLE: bool = true;
            fn schema() -> Schema {
                <$plain as FromArg>::schema()
            }
            fn static_type_index() -> i32 {
                $index
            }
            #[inline]
            fn read(&self) -> Result<Any> {
                self.load(Ordering::Acquire).into_any()
            }
            #[inline]
            fn make(value: &AnyView<'_>) -> Result<Self, Mismatch> {
                $plain::from_arg(value).map($atomic::new)
            }
            fn copied(&self) -> Self {
                $atomic::new(self.load(Ordering::Acquire))
            }
            #[inline]
            fn write(&self, value: &AnyView<'_>) -> Result<(), Mismatch> {
                $plain::from_arg(value).map(|value| self.store(value, Ordering::Release))
            }
        }
    )* };
}

atomics! {
    AtomicBool: bool => kTVMFFIBool, AtomicI8: i8 => kTVMFFIInt, AtomicI16: i16 => kTVMFFIInt,
    AtomicI32: i32 => kTVMFFIInt, AtomicI64: i64 => kTVMFFIInt, AtomicU8: u8 => kTVMFFIInt,
    AtomicU16: u16 => kTVMFFIInt, AtomicU32: u32 => kTVMFFIInt
}
