//! Conversions between values and Rust types.

use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String as StdString, ToString};
use alloc::vec;

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, kTVMFFIAny, kTVMFFIBool, kTVMFFIByteArrayPtr, kTVMFFIBytes,
    kTVMFFIDLTensorPtr, kTVMFFIFloat, kTVMFFIInt, kTVMFFIObject, kTVMFFIObjectRValueRef, kTVMFFIRawStr,
    kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStr,
};

use crate::bigint;
use crate::representation::{Conversion, Lent};
use crate::schema::word;
use crate::string::bytes_of;
use crate::{
    Any, AnyView, Bytes, Error, Object, ObjectRef, Ref, Result, Schema, String, TypedPackedFunc, types,
};

/// A Rust type that can be read from a value: the type of an argument, result or element.
///
/// | Rust type | accepts |
/// |---|---|
/// | `i8`..`i128`, `u8`..`u128`, `isize`, `usize` | int (of any size) and bool that fit; else `OverflowError` |
/// | `f32`, `f64` | float, int, bool; `OverflowError` for an int beyond its range |
/// | `bool` | bool, int |
/// | `()` | None |
/// | `&str`, [`String`], std `String` | string |
/// | `&[u8]`, [`Bytes`] | bytes |
/// | `Option<T>` | None, or what `T` accepts |
/// | `Vec<T>`, tuples, [`crate::Array`], [`crate::List`] | Array and List of such elements |
/// | `HashMap<K, V>`, [`crate::Map`], [`crate::Dict`] | Map and Dict of such pairs |
/// | [`crate::DType`] | data type, or its name |
/// | [`crate::Device`] | device |
/// | [`crate::TensorView`] | tensor object or `DLTensor*`; [`crate::Tensor`]: tensor object |
/// | [`OpaquePtr`](crate::OpaquePtr) | opaque pointer, None |
/// | [`crate::PackedFunc`], [`crate::Module`], [`crate::Error`], [`Ref<T>`], `&T`, [`ObjectRef`] | such an object |
/// | [`Any`], [`AnyView`] | everything |
///
/// A user-defined type implements this trait by delegating to one of these types: to a tuple, a list or a string if it
/// is passed by value, or to the [`Ref`] of an [`Object`](crate::Object) that contains it if it is passed by reference.
/// [`value_type!`](crate::value_type) generates the two implementations, which look like this:
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, AnyView, FromArg, IntoAny, Mismatch, Schema, TypedPackedFunc};
///
/// #[derive(Debug, PartialEq)]
/// struct Celsius(f64);
///
/// impl FromArg for Celsius {
///     type Arg<'a> = Celsius;
///     fn schema() -> Schema {
///         <f64 as FromArg>::schema()
///     }
///     fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<Celsius, Mismatch> {
///         f64::from_arg(view).map(Celsius)
///     }
/// }
///
/// impl IntoAny for Celsius {
///     fn schema() -> Schema {
///         <f64 as IntoAny>::schema()
///     }
///     fn into_any(self) -> anyfn::Result<Any> {
///         self.0.into_any()
///     }
/// }
///
/// let warmer = TypedPackedFunc::from_fn(|t: Celsius, by: f64| Celsius(t.0 + by));
/// assert_eq!(warmer.as_packed().call((20.0, 1.5))?.get::<Celsius>()?, Celsius(21.5));
/// # Ok::<(), anyfn::Error>(())
/// ```
pub trait FromArg {
    /// The type that [`from_arg`](Self::from_arg) returns. It borrows from the value if possible.
    type Arg<'a>;

    /// True if every value can be read as this type, so that the elements of a container of this type need
    /// not be checked.
    const ALL: bool = false;

    /// Property of the conversion that specifies whether reading a value as this type can run code
    /// outside this crate. The type parameter of `Conversion` prevents an implementation from using
    /// the constant of another type.
    #[doc(hidden)]
    const CONVERSION: Conversion<Self> = Conversion::CUSTOM;

    /// Returns the description of the type for signatures and error messages.
    fn schema() -> Schema;

    /// Reads a value.
    ///
    /// # Errors
    /// Returns the [`Mismatch`] between the expected type and the value in `view`.
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<Self::Arg<'a>, Mismatch>;
}

/// A Rust type that can be converted into a value: the type of a result, an element or an owned argument.
pub trait IntoAny {
    /// Memory representation of a field of this type. It specifies whether readers can borrow the
    /// field's value instead of calling the getter. The type parameter of `Lent` prevents an
    /// implementation from using the constant of another type.
    ///
    /// ```compile_fail,E0326
    /// use anyfn::{Any, IntoAny, ObjectRef, Schema, reflection::Lent};
    /// struct Number(u64);
    /// impl IntoAny for Number {
    ///     const LENT: Lent<ObjectRef> = <ObjectRef as IntoAny>::LENT;
    ///     fn schema() -> Schema {
    ///         Schema::plain("int")
    ///     }
    ///     fn into_any(self) -> anyfn::Result<Any> {
    ///         self.0.into_any()
    ///     }
    /// }
    /// ```
    #[doc(hidden)]
    const LENT: Lent<Self> = Lent::NOT;

    /// Returns the description of the type for signatures.
    fn schema() -> Schema;

    /// Converts `self` into an owned value.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails, and the error of a `Result` that is `Err`.
    fn into_any(self) -> Result<Any>;
}

/// Reason why a value cannot be converted to a Rust type.
#[derive(Debug)]
pub struct Mismatch(Box<Detail>);

#[derive(Debug)]
struct Detail {
    kind: &'static str,
    expected: StdString,
    got: StdString,
    path: StdString,
    /// True if `got` is a complete explanation, so that messages do not mention `expected`.
    explained: bool,
}

impl Mismatch {
    /// Creates the mismatch between the expected type `T` and the value in `view`, which has another type.
    #[inline]
    pub fn of_type<T: FromArg + ?Sized>(view: &AnyView<'_>) -> Mismatch {
        Self::of_schema(T::schema, view)
    }

    /// Creates the mismatch that [`of_type`](Self::of_type) returns. This function is not generic, so that all
    /// types share its code.
    #[cold]
    #[inline(never)]
    fn of_schema(schema: fn() -> Schema, view: &AnyView<'_>) -> Mismatch {
        let borrows = (kTVMFFIDLTensorPtr..=kTVMFFIByteArrayPtr).contains(&view.type_index());
        let null = if borrows && view.bits() == 0 { " that is NULL" } else { "" };
        Self::new("TypeError", schema().to_string(), format!("{}{null}", word(view.type_key())))
    }

    /// Creates a mismatch with the kind of the error to raise and descriptions of the expected type and the
    /// actual value.
    #[cold]
    pub fn new(kind: &'static str, expected: StdString, got: StdString) -> Mismatch {
        Mismatch(Box::new(Detail { kind, expected, got, path: StdString::new(), explained: false }))
    }

    /// Creates the mismatch for an invalid value of an accepted type, such as an unknown name. The
    /// error has the kind `ValueError` and the message `reason`.
    #[cold]
    pub fn invalid(expected: StdString, reason: StdString) -> Mismatch {
        let (kind, path) = ("ValueError", StdString::new());
        Mismatch(Box::new(Detail { kind, expected, got: reason, path, explained: true }))
    }

    /// Returns true if [`Mismatch::invalid`] created the mismatch. [`Mismatch::got`] is then the reason.
    pub(crate) fn is_explained(&self) -> bool {
        self.0.explained
    }

    #[cold]
    fn out_of_range(range: fn() -> StdString, got: i64) -> Mismatch {
        Self::new("OverflowError", range(), format!("int {got}"))
    }

    /// Returns the kind of the error to raise, such as `TypeError` or `OverflowError`.
    pub fn kind(&self) -> &'static str {
        self.0.kind
    }

    /// Returns a description of the expected type, such as `Array<int>`.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// Returns a description of the actual value, such as `str`.
    pub fn got(&self) -> &str {
        &self.0.got
    }

    /// Returns the path to the mismatch inside the value, such as `[3].key`. It is empty if the value itself
    /// does not match.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Converts the mismatch of an element into the mismatch of its container. `step` is the path
    /// from the container to the element, such as `[3]`; `expected` and `got` describe the
    /// container.
    #[must_use]
    pub fn inside(mut self, step: &str, expected: StdString, got: StdString) -> Mismatch {
        self.0.path.insert_str(0, step);
        self.0.expected = expected;
        self.0.got = got;
        self.0.explained = false;
        self
    }

    /// Converts the mismatch into an error whose message begins with `subject`, the value that does not match, such as
    /// `element 3 of the List`.
    #[cold]
    #[inline(never)]
    pub(crate) fn into_error(self, subject: &str) -> Error {
        Error::untraced(self.kind(), &format!("{subject}: {self}"))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_explained() {
            f.write_str(self.got())?;
        } else {
            write!(f, "expected `{}` but got `{}`", self.expected(), self.got())?;
        }
        if self.path().is_empty() { Ok(()) } else { write!(f, " at {}", self.path()) }
    }
}

impl core::error::Error for Mismatch {}

/// Converts a mismatch into an error without a backtrace, because a backtrace would begin with a
/// line of this crate.
impl From<Mismatch> for Error {
    #[cold]
    fn from(mismatch: Mismatch) -> Error {
        Error::untraced(mismatch.kind(), &mismatch.to_string())
    }
}

#[inline]
fn int_of(view: &AnyView<'_>) -> Option<i64> {
    // SAFETY: the value of an int or bool is in `v_int64`.
    matches!(view.type_index(), kTVMFFIInt | kTVMFFIBool).then(|| unsafe { view.as_raw().value.v_int64 })
}

/// Creates a value of a type that is not an object type, such as int.
#[inline]
pub(crate) fn plain(type_index: i32, value: TVMFFIAnyValue) -> Any {
    // SAFETY: the function is called only with types that own nothing, and with the union member of that type.
    unsafe { Any::from_raw(TVMFFIAny { type_index, small_str_len: 0, value }) }
}

/// Expands to a function that describes the range of an integer type in error messages.
macro_rules! range_of {
    ($ty:ty) => {
        || format!("{} ({} to {})", stringify!($ty), <$ty>::MIN, <$ty>::MAX)
    };
}

macro_rules! integers {
    ($($ty:ident => $lent:ident;)*) => { $(
        impl FromArg for $ty {
            type Arg<'a> = $ty;
            fn schema() -> Schema {
                Schema::plain("int")
            }
            #[inline]
            fn from_arg(view: &AnyView<'_>) -> Result<$ty, Mismatch> {
                // Other values, of which bools are the most frequent, are read elsewhere: a comparison with one number is
                // the shortest code.
                if view.type_index() != kTVMFFIInt {
                    return bigint::narrow::<$ty>(view, range_of!($ty)).map(|value| value as $ty);
                }
                // SAFETY: the value of an int is in `v_int64`.
                let value = unsafe { view.as_raw().value.v_int64 };
                $ty::try_from(value).map_err(|_| Mismatch::out_of_range(range_of!($ty), value))
            }
        }

        impl IntoAny for $ty {
            const LENT: Lent<Self> = Lent::$lent;
            fn schema() -> Schema {
                Schema::plain("int")
            }
            #[inline]
            fn into_any(self) -> Result<Any> {
                match i64::try_from(self) {
                    Ok(value) => Ok(plain(kTVMFFIInt, TVMFFIAnyValue { v_int64: value })),
                    // Only unsigned types and `i128` reach this branch.
                    Err(_) => bigint::make(self as u128, if i128::try_from(self).is_ok_and(i128::is_negative) { u64::MAX } else { 0 }),
                }
            }
        }
    )* };
}

integers! {
    i8 => NOT;
    i16 => NOT;
    i32 => NOT;
    i64 => INT;
    i128 => NOT;
    isize => NOT;
    u8 => NOT;
    u16 => NOT;
    u32 => NOT;
    u64 => NOT;
    usize => NOT;
}

impl FromArg for u128 {
    type Arg<'a> = u128;
    fn schema() -> Schema {
        Schema::plain("int")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<u128, Mismatch> {
        let Some(value) = int_of(view) else { return bigint::to_u128(view) };
        u128::try_from(value).map_err(|_| Mismatch::out_of_range(range_of!(u128), value))
    }
}

impl IntoAny for u128 {
    fn schema() -> Schema {
        Schema::plain("int")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        match i64::try_from(self) {
            Ok(value) => Ok(plain(kTVMFFIInt, TVMFFIAnyValue { v_int64: value })),
            Err(_) => bigint::make(self, 0),
        }
    }
}

macro_rules! floats {
    ($($ty:ident => $lent:ident;)*) => { $(
        impl FromArg for $ty {
            type Arg<'a> = $ty;
            fn schema() -> Schema {
                Schema::plain("float")
            }
            #[inline]
            fn from_arg(view: &AnyView<'_>) -> Result<$ty, Mismatch> {
                if view.type_index() == kTVMFFIFloat {
                    // SAFETY: the value of a float is in `v_float64`.
                    return Ok(unsafe { view.as_raw().value.v_float64 } as $ty);
                }
                match int_of(view) {
                    Some(value) => Ok(value as $ty),
                    None => bigint::to_float::<Self>(view, <$ty>::MAX as f64).map(|value| value as $ty),
                }
            }
        }

        impl IntoAny for $ty {
            const LENT: Lent<Self> = Lent::$lent;
            fn schema() -> Schema {
                Schema::plain("float")
            }
            #[inline]
            fn into_any(self) -> Result<Any> {
                Ok(plain(kTVMFFIFloat, TVMFFIAnyValue { v_float64: self.into() }))
            }
        }
    )* };
}

floats! {
    f32 => NOT;
    f64 => FLOAT;
}

impl FromArg for bool {
    type Arg<'a> = bool;
    fn schema() -> Schema {
        Schema::plain("bool")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<bool, Mismatch> {
        int_of(view).map(|value| value != 0).ok_or_else(|| Mismatch::of_type::<Self>(view))
    }
}

impl IntoAny for bool {
    const LENT: Lent<Self> = Lent::BOOL;
    fn schema() -> Schema {
        Schema::plain("bool")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(plain(kTVMFFIBool, TVMFFIAnyValue { v_int64: self.into() }))
    }
}

impl FromArg for () {
    type Arg<'a> = ();
    fn schema() -> Schema {
        Schema::plain("None")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<(), Mismatch> {
        if view.is_none() { Ok(()) } else { Err(Mismatch::of_type::<Self>(view)) }
    }
}

impl IntoAny for () {
    fn schema() -> Schema {
        Schema::plain("None")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(Any::NONE)
    }
}

impl<T: FromArg> FromArg for Option<T> {
    type Arg<'a> = Option<T::Arg<'a>>;
    const CONVERSION: Conversion<Self> = T::CONVERSION.within();
    fn schema() -> Schema {
        Schema::of("Optional", vec![T::schema()])
    }
    #[inline]
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<Self::Arg<'a>, Mismatch> {
        if view.is_none() {
            return Ok(None);
        }
        T::from_arg(view).map(Some).map_err(|inner| {
            let expected =
                if inner.kind() == "TypeError" { Self::schema().to_string() } else { inner.0.expected.clone() };
            Mismatch(Box::new(Detail { expected, ..*inner.0 }))
        })
    }
}

impl<T: IntoAny> IntoAny for Option<T> {
    const LENT: Lent<Self> = T::LENT.optional();
    fn schema() -> Schema {
        Schema::of("Optional", vec![T::schema()])
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        self.map_or(Ok(Any::NONE), T::into_any)
    }
}

impl<T: IntoAny, E: Into<Error>> IntoAny for Result<T, E> {
    fn schema() -> Schema {
        T::schema()
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        self.map_err(E::into)?.into_any()
    }
}

/// Returns the bytes of a string or bytes value with the type index `raw`, `small` or `object`; `None` for
/// other values.
#[inline]
fn borrowed_bytes<'a>(view: &'a AnyView<'_>, raw: i32, small: i32, object: i32) -> Option<&'a [u8]> {
    let index = view.type_index();
    if index == small || index == object {
        return Some(bytes_of(view));
    }
    if index != raw {
        return None;
    }
    if raw == kTVMFFIRawStr {
        // SAFETY: a raw string view holds a C string.
        let text = unsafe { view.as_raw().value.v_c_str };
        if text.is_null() {
            return None;
        }
        // SAFETY: the ABI guarantees that the string is NUL-terminated and lives as long as the view.
        return Some(unsafe { CStr::from_ptr(text) }.to_bytes());
    }
    // SAFETY: a byte array view holds the address of a byte array.
    let array = unsafe { view.as_raw().value.v_ptr }.cast::<TVMFFIByteArray>();
    // SAFETY: the pointer is NULL (against the ABI) or refers to an array that lives as long as the view.
    let array = unsafe { array.as_ref() }?;
    // SAFETY: the array and its bytes live as long as the view.
    Some(unsafe { array.as_slice() })
}

impl FromArg for &str {
    type Arg<'a> = &'a str;
    fn schema() -> Schema {
        Schema::plain("ffi.String")
    }
    #[inline]
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<&'a str, Mismatch> {
        match borrowed_bytes(view, kTVMFFIRawStr, kTVMFFISmallStr, kTVMFFIStr) {
            Some(bytes) => core::str::from_utf8(bytes).map_err(|error| {
                Mismatch::new(
                    "ValueError",
                    "str in UTF-8".to_string(),
                    format!("bytes that are not UTF-8: {error}"),
                )
            }),
            None => Err(Mismatch::of_type::<Self>(view)),
        }
    }
}

impl FromArg for &[u8] {
    type Arg<'a> = &'a [u8];
    fn schema() -> Schema {
        Schema::plain("ffi.Bytes")
    }
    #[inline]
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<&'a [u8], Mismatch> {
        borrowed_bytes(view, kTVMFFIByteArrayPtr, kTVMFFISmallBytes, kTVMFFIBytes)
            .ok_or_else(|| Mismatch::of_type::<Self>(view))
    }
}

impl FromArg for StdString {
    type Arg<'a> = StdString;
    fn schema() -> Schema {
        <&str as FromArg>::schema()
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<StdString, Mismatch> {
        <&str>::from_arg(view).map(ToString::to_string)
    }
}

impl FromArg for String {
    type Arg<'a> = String;
    fn schema() -> Schema {
        <&str as FromArg>::schema()
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<String, Mismatch> {
        match view.type_index() {
            kTVMFFISmallStr | kTVMFFIStr => Ok(String::from_any_unchecked(view.to_owned())),
            kTVMFFIRawStr => match view.to_owned() {
                // The string is NULL, or memory is exhausted.
                none if none.is_none() => Err(Mismatch::of_type::<Self>(view)),
                owned => Ok(String::from_any_unchecked(owned)),
            },
            _ => Err(Mismatch::of_type::<Self>(view)),
        }
    }
}

impl FromArg for Bytes {
    type Arg<'a> = Bytes;
    fn schema() -> Schema {
        <&[u8] as FromArg>::schema()
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Bytes, Mismatch> {
        match view.type_index() {
            kTVMFFISmallBytes | kTVMFFIBytes => Ok(Bytes::from_any_unchecked(view.to_owned())),
            kTVMFFIByteArrayPtr => match view.to_owned() {
                // The address is NULL, or memory is exhausted.
                none if none.is_none() => Err(Mismatch::of_type::<Self>(view)),
                owned => Ok(Bytes::from_any_unchecked(owned)),
            },
            _ => Err(Mismatch::of_type::<Self>(view)),
        }
    }
}

macro_rules! into_string {
    ($($ty:ty => $via:ident, $lent:ident;)*) => { $(
        impl IntoAny for $ty {
            const LENT: Lent<Self> = Lent::$lent;
            fn schema() -> Schema {
                <$via as FromArg>::schema()
            }
            #[inline]
            fn into_any(self) -> Result<Any> {
                Ok($via::from(self).into())
            }
        }
    )* };
}

into_string! {
    &str => String, NOT;
    StdString => String, NOT;
    String => String, VALUE;
    &[u8] => Bytes, NOT;
    Bytes => Bytes, VALUE;
}

impl FromArg for Any {
    type Arg<'a> = Any;
    const ALL: bool = true;
    const CONVERSION: Conversion<Self> = Conversion::BUILT_IN;
    fn schema() -> Schema {
        Schema::plain("Any")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Any, Mismatch> {
        Ok(view.to_owned())
    }
}

impl IntoAny for Any {
    const LENT: Lent<Self> = Lent::VALUE;
    fn schema() -> Schema {
        Schema::plain("Any")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(self)
    }
}

impl FromArg for AnyView<'_> {
    type Arg<'a> = AnyView<'a>;
    const ALL: bool = true;
    fn schema() -> Schema {
        Schema::plain("Any")
    }
    #[inline]
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<AnyView<'a>, Mismatch> {
        Ok(*view)
    }
}

impl IntoAny for AnyView<'_> {
    fn schema() -> Schema {
        Schema::plain("Any")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(self.to_owned())
    }
}

impl IntoAny for &Any {
    fn schema() -> Schema {
        Schema::plain("Any")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(self.clone())
    }
}

/// Returns a new reference to the object in a view if `accept` returns true for its type.
///
/// The object of an r-value reference is moved out of its slot.
#[inline]
pub(crate) fn take_object(view: &AnyView<'_>, accept: impl Fn(i32) -> bool) -> Option<ObjectRef> {
    if view.type_index() != kTVMFFIObjectRValueRef {
        return view.as_object().filter(|object| accept(object.type_index())).cloned();
    }
    let raw = view.as_raw();
    // SAFETY: an r-value reference holds the address of a slot that holds an object handle.
    let slot = unsafe { raw.value.v_ptr }.cast::<*mut core::ffi::c_void>();
    // SAFETY: the caller of the function keeps the slot alive for the call. Views may be shared among threads, so one
    // atomic operation empties the slot.
    let slot = unsafe { AtomicPtr::from_ptr(slot) };
    let handle = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the slot owned a reference to a valid object, which is moved out here, or was empty.
    let object = unsafe { ObjectRef::from_owned_or_null(handle) }?;
    if accept(object.type_index()) {
        return Some(object);
    }
    // The object was not accepted, so the caller keeps it.
    slot.store(object.into_handle(), Ordering::Release);
    None
}

impl FromArg for ObjectRef {
    type Arg<'a> = ObjectRef;
    const CONVERSION: Conversion<Self> = Conversion::BUILT_IN;
    fn schema() -> Schema {
        Schema::plain("ffi.Object")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<ObjectRef, Mismatch> {
        take_object(view, |_| true).ok_or_else(|| Mismatch::of_type::<Self>(view))
    }
}

impl IntoAny for ObjectRef {
    const LENT: Lent<Self> = Lent::OBJECT;
    fn schema() -> Schema {
        Schema::plain("ffi.Object")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(self.into())
    }
}

impl<T: Object> FromArg for Ref<T> {
    type Arg<'a> = Ref<T>;
    const CONVERSION: Conversion<Self> = Conversion::BUILT_IN;
    fn schema() -> Schema {
        Schema::plain(T::TYPE_KEY)
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Ref<T>, Mismatch> {
        take_object(view, |index| types::is_instance(index, T::type_index()))
            .and_then(|object| Ref::try_from_object(object).ok())
            .ok_or_else(|| Mismatch::of_type::<Self>(view))
    }
}

/// Conversion of the receiver of a method: if `fn add(&self, ..)` of `Counter` is registered as
/// `Counter::add`, its first argument must be an object of type `Counter`.
impl<T: Object> FromArg for &T {
    type Arg<'a> = &'a T;
    fn schema() -> Schema {
        Schema::plain(T::TYPE_KEY)
    }
    #[inline]
    fn from_arg<'a>(view: &'a AnyView<'_>) -> Result<&'a T, Mismatch> {
        view.as_object().and_then(Ref::<T>::content_of).ok_or_else(|| Mismatch::of_type::<Self>(view))
    }
}

impl<T: Object> IntoAny for Ref<T> {
    const LENT: Lent<Self> = Lent::OBJECT;
    fn schema() -> Schema {
        Schema::plain(T::TYPE_KEY)
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(self.into_object().into())
    }
}

impl<S: 'static> FromArg for TypedPackedFunc<S> {
    type Arg<'a> = TypedPackedFunc<S>;
    fn schema() -> Schema {
        Schema::plain("ffi.Function")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<Self, Mismatch> {
        crate::PackedFunc::from_arg(view).map(crate::PackedFunc::typed)
    }
}

impl<S> IntoAny for TypedPackedFunc<S> {
    fn schema() -> Schema {
        Schema::plain("ffi.Function")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        crate::PackedFunc::from(self).into_any()
    }
}

/// Implements the conversions of a type that wraps an [`ObjectRef`] with the type index `$index`.
macro_rules! object_wrapper {
    ($name:ident, $index:expr, $key:literal) => {
        impl $crate::FromArg for $name {
            type Arg<'a> = $name;
            const CONVERSION: $crate::representation::Conversion<Self> =
                $crate::representation::Conversion::BUILT_IN;
            fn schema() -> $crate::Schema {
                $crate::Schema::plain($key)
            }
            #[inline]
            fn from_arg(view: &$crate::AnyView<'_>) -> $crate::Result<$name, $crate::Mismatch> {
                $crate::convert::take_object(view, |index| $crate::is_instance(index, $index))
                    .and_then(|object| $name::try_from_object(object).ok())
                    .ok_or_else(|| $crate::Mismatch::of_type::<Self>(view))
            }
        }

        impl $crate::IntoAny for $name {
            const LENT: $crate::representation::Lent<Self> = $crate::representation::Lent::OBJECT;
            fn schema() -> $crate::Schema {
                $crate::Schema::plain($key)
            }
            #[inline]
            fn into_any(self) -> $crate::Result<$crate::Any> {
                Ok(self.into_object().into())
            }
        }

        impl From<$name> for $crate::Any {
            #[inline]
            fn from(value: $name) -> $crate::Any {
                value.into_object().into()
            }
        }

        $crate::args::object_arg!($name);
    };
}
pub(crate) use object_wrapper;

use crate::{PackedFunc, Tensor};
object_wrapper!(PackedFunc, anyfn_abi::kTVMFFIFunction, "ffi.Function");
object_wrapper!(Error, anyfn_abi::kTVMFFIError, "ffi.Error");
object_wrapper!(Tensor, anyfn_abi::kTVMFFITensor, "ffi.Tensor");

const _: () = assert!(kTVMFFIAny == -1 && kTVMFFIObject == 64);
