//! What types tell about themselves: fields, methods, attributes.
//!
//! A type of any language describes its objects in the process's table of types: where each field lies, the functions
//! that read and set it, and flags that say what printing, comparing and saving do with it. Here that is read without
//! knowing the type.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{ObjectRef, reflection::TypeInfo};
//!
//! fn names_of_fields(object: &ObjectRef) -> Vec<&'static str> {
//!     TypeInfo::of(object).fields().map(|field| field.name()).collect()
//! }
//! ```

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIFieldGetter, TVMFFIFieldSetter, TVMFFIMethodInfo, TVMFFIObject,
    TVMFFIObjectCreator, TVMFFIObjectHandle, kTVMFFIFieldFlagBitMaskDefaultFromFactory,
    kTVMFFIFieldFlagBitMaskHasDefault, kTVMFFIFieldFlagBitMaskIsStaticMethod, kTVMFFIFieldFlagBitMaskWritable,
    kTVMFFIFieldFlagBitSetterIsFunctionObj, kTVMFFIObject,
};

pub use crate::fields::FieldVisitor;

use crate::json::Json;
use crate::making::Making;
use crate::shared::{SharedField, SharedMetadata, SharedType};
use crate::signature::schema_of;
use crate::string::text_of;
use crate::{Any, AnyView, Error, ObjectRef, OpaquePtr, PackedFunc, Result, Schema, record, types};

/// A type of the process's table. Lives as long as the process.
#[derive(Clone, Copy)]
pub struct TypeInfo(&'static SharedType);

impl TypeInfo {
    /// The type with an index; `None` if there is none.
    pub fn from_index(type_index: i32) -> Option<TypeInfo> {
        types::info(type_index).map(TypeInfo)
    }

    /// The type with a key; `None` if there is none.
    pub fn from_key(key: &str) -> Option<TypeInfo> {
        types::type_index_of(key).and_then(TypeInfo::from_index)
    }

    /// The type of an object.
    ///
    /// # Panics
    /// Never: every object's type is in the table.
    pub fn of(object: &ObjectRef) -> TypeInfo {
        TypeInfo::from_index(object.type_index()).expect("the table has the type of every object")
    }

    /// Index of the type.
    pub fn index(self) -> i32 {
        self.0.type_index
    }

    /// Key of the type.
    pub fn key(self) -> &'static str {
        // SAFETY: lives as long as the type, for ever.
        unsafe { text_of(&self.0.type_key) }
    }

    /// Hash of the key, the same in every process.
    pub fn key_hash(self) -> u64 {
        self.0.type_key_hash
    }

    /// Documentation of the type; empty if there is none.
    pub fn doc(self) -> &'static str {
        // SAFETY: texts of metadata live for ever.
        self.0.metadata().map_or("", |metadata| unsafe { text_of(&metadata.doc) })
    }

    /// Whether the type has registered what concerns it as a whole.
    pub fn has_metadata(self) -> bool {
        self.0.metadata().is_some()
    }

    /// How structural equality and hash treat objects of the type: `kTVMFFISEqHashKind*`.
    pub fn structural_kind(self) -> i32 {
        self.0.metadata().map_or(0, |metadata| metadata.structural_eq_hash_kind)
    }

    /// The types that this one descends from, the root first, and then the type itself.
    pub fn lineage(self) -> impl DoubleEndedIterator<Item = TypeInfo> {
        let ancestors = (0..self.0.type_depth as usize).map(move |depth| {
            // SAFETY: the array has as many elements as the type has ancestors.
            let ancestor = unsafe { self.0.type_ancestors.add(depth) };
            // SAFETY: an element of the array, which lives for ever.
            let ancestor = unsafe { *ancestor };
            // SAFETY: types live for ever.
            TypeInfo(unsafe { &*ancestor })
        });
        ancestors.chain(core::iter::once(self))
    }

    /// The type that this one derives from.
    pub fn parent(self) -> Option<TypeInfo> {
        self.lineage().nth_back(1)
    }

    /// Whether the type is `base` or derived from it.
    pub fn is_a(self, base: TypeInfo) -> bool {
        types::is_instance(self.index(), base.index())
    }

    /// The fields that the type itself adds.
    pub fn own_fields(self) -> impl ExactSizeIterator<Item = Field> + DoubleEndedIterator {
        self.0.fields().iter().map(Field)
    }

    /// All fields, the parent's first.
    pub fn fields(self) -> impl DoubleEndedIterator<Item = Field> {
        self.lineage().flat_map(TypeInfo::own_fields)
    }

    /// The field of a name; that of the type itself before one of an ancestor.
    pub fn field(self, name: &str) -> Option<Field> {
        self.lineage().rev().find_map(|info| info.own_fields().find(|field| field.name() == name))
    }

    /// The methods that the type itself adds.
    pub fn own_methods(self) -> impl ExactSizeIterator<Item = Method> + DoubleEndedIterator {
        self.0.methods().iter().map(Method)
    }

    /// All methods, the parent's first; one that is registered again comes once more.
    pub fn methods(self) -> impl DoubleEndedIterator<Item = Method> {
        self.lineage().flat_map(TypeInfo::own_methods)
    }

    /// The method of a name; that of the type itself before one of an ancestor, and the last registered one.
    pub fn method(self, name: &str) -> Option<Method> {
        self.lineage().rev().find_map(|info| info.own_methods().rev().find(|method| method.name() == name))
    }

    /// Whether [`make`](Self::make) can make objects of the type.
    pub fn can_make(self) -> bool {
        self.creator().is_some() || self.attribute("__ffi_new__").is_some_and(|new| !new.is_none())
    }

    /// Makes an object of the type, by its own function; the caller sets the fields before anyone else sees it. The object
    /// may be a plain `ffi.Object` until all its fields are set.
    ///
    /// # Errors
    /// `RuntimeError` if the type has no function for that; `TypeError` if the function gives no object of the type, or one
    /// that others hold; that of the function.
    pub fn make(self) -> Result<ObjectRef> {
        if self.creator().is_some() {
            let _making = Making::begin();
            // Again: its library is not unmapped from here on.
            let Some(creator) = self.creator() else { return self.made(None, true) };
            let mut out: TVMFFIObjectHandle = core::ptr::null_mut();
            // SAFETY: the type's own function, called with a writable place.
            if unsafe { creator(&mut out) } != 0 {
                return Err(Error::take_raised());
            }
            // SAFETY: on success the result is an owned object.
            return self.made(unsafe { ObjectRef::from_owned_or_null(out) }, true);
        }
        let new = self.attribute("__ffi_new__").and_then(|new| new.get::<PackedFunc>().ok());
        let Some(new) = new else {
            crate::bail!(
                "RuntimeError",
                "Type `{}` does not support reflection creation (no native creator or __ffi_new__ type attr)",
                self.key()
            );
        };
        self.made(new.call(())?.into_object(), false)
    }

    fn creator(self) -> Option<TVMFFIObjectCreator> {
        self.0.metadata().and_then(SharedMetadata::creator)
    }

    /// What the type's own function has made: a new object, whose fields may be set. One that a creator has made is of its type
    /// once all its fields are set.
    fn made(self, object: Option<ObjectRef>, is_created: bool) -> Result<ObjectRef> {
        let is_own = |object: &ObjectRef| {
            object.is_instance(self.index()) || is_created && object.type_index() == kTVMFFIObject
        };
        match object {
            Some(object) if is_own(&object) && object.is_unique() => Ok(object),
            Some(object) if is_own(&object) => crate::bail!(
                "TypeError",
                "the function that makes objects of `{}` gave one that others hold",
                self.key()
            ),
            _ => crate::bail!("TypeError", "the function that makes objects of `{}` gave none", self.key()),
        }
    }

    /// What the type itself has registered under the name of an attribute, such as `__ffi_repr__`.
    pub fn attribute(self, name: &str) -> Option<Any> {
        // SAFETY: an entry that is set holds its value for ever.
        types::attribute(name, self.index()).map(|value| unsafe { AnyView::from_raw(*value) }.to_owned())
    }
}

/// A flag of ours beside those of the ABI: the place of the field holds a value of 16 bytes that does not change once it
/// is set.
pub(crate) const LENDS_VALUE: i64 = 1 << 62;
/// .. the address of an object, or NULL.
pub(crate) const LENDS_OBJECT: i64 = 1 << 61;

/// .. bytes that mean something to its own getter and setter only.
pub(crate) const OPAQUE: i64 = 1 << 60;
/// The setter converts values by code that this crate does not have, which may keep what it is given.
const RUNS_CODE: i64 = 1 << 59;
/// The setter is a function, but one that keeps nothing but what the field holds.
pub(crate) const STORES_ONLY: i64 = 1 << 58;

/// How a field of the Rust type `T` lies in its object.
///
/// Readers of objects believe it without a look, so only this crate makes one that says more than [`Lent::NOT`], and the one
/// of a type does not fit another type.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lent<T: ?Sized>(i64, PhantomData<*const T>);

impl<T: ?Sized> Lent<T> {
    /// In its own way.
    pub const NOT: Lent<T> = Lent(OPAQUE | RUNS_CODE, PhantomData);
    /// As a value of 16 bytes that does not change once it is set.
    pub(crate) const VALUE: Lent<T> = Lent(LENDS_VALUE, PhantomData);
    /// As a reference to an object that does not change once it is set, or NULL.
    pub(crate) const OBJECT: Lent<T> = Lent(LENDS_OBJECT, PhantomData);

    /// The flags of such a field.
    pub const fn flags(&self) -> i64 {
        self.0
    }
}

impl<T> Lent<T> {
    /// Of a field whose setter converts values like this.
    pub(crate) const fn set_by(&self, conversion: &Conversion<T>) -> Lent<T> {
        Lent((self.0 & !RUNS_CODE) | conversion.0, PhantomData)
    }

    /// The same for an `Option`, if it has the size of what is in it.
    pub(crate) const fn optional(&self) -> Lent<Option<T>> {
        if self.0 == LENDS_OBJECT && size_of::<Option<T>>() == size_of::<T>() {
            Lent::OBJECT
        } else {
            Lent::NOT
        }
    }
}

/// Whether reading a value as the Rust type `T` runs code that this crate does not have.
///
/// That code may keep the value. Only this crate says of a type that it does not, and not of another type.
#[doc(hidden)]
#[derive(Debug)]
pub struct Conversion<T: ?Sized>(i64, PhantomData<*const T>);

impl<T: ?Sized> Conversion<T> {
    /// It does.
    pub const CUSTOM: Conversion<T> = Conversion(RUNS_CODE, PhantomData);
    /// It does not.
    pub(crate) const BUILT_IN: Conversion<T> = Conversion(0, PhantomData);

    /// That of a type which consists of such values.
    pub(crate) const fn within<U: ?Sized>(&self) -> Conversion<U> {
        Conversion(self.0, PhantomData)
    }

    /// That of a type which consists of both.
    pub(crate) const fn and<U: ?Sized, V: ?Sized>(&self, other: &Conversion<U>) -> Conversion<V> {
        Conversion(self.0 | other.0, PhantomData)
    }

    /// How a slot lies in an object that takes such values.
    pub(crate) const fn slot<U: ?Sized>(&self) -> Lent<U> {
        Lent(self.0, PhantomData)
    }
}

/// A field of a type. Lives as long as the process.
#[derive(Clone, Copy)]
pub struct Field(&'static SharedField);

impl Field {
    /// Name of the field.
    pub fn name(self) -> &'static str {
        // SAFETY: texts of registered fields live for ever.
        unsafe { text_of(&self.0.name) }
    }

    /// Documentation of the field; empty if there is none.
    pub fn doc(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the text for ever.
        unsafe { text_of(&self.0.doc) }
    }

    /// JSON, whose `type_schema` describes the type of the field; empty if there is none.
    pub fn metadata(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the text for ever.
        unsafe { text_of(&self.0.metadata) }
    }

    /// Type of the field; `Any` if it does not tell.
    pub fn schema(self) -> Schema {
        let told = Json::parse(self.metadata());
        let told = told.as_ref().and_then(|told| told.get("type_schema")).and_then(Json::text);
        told.and_then(Json::parse).map_or_else(|| Schema::plain("Any"), |schema| schema_of(&schema))
    }

    /// `kTVMFFIFieldFlagBit*`.
    pub fn flags(self) -> i64 {
        self.0.flags
    }

    /// Whether one of these flags is set.
    pub fn has(self, flags: i64) -> bool {
        self.0.flags & flags != 0
    }

    /// Where the field lies, in bytes from the header of its object.
    pub fn offset(self) -> i64 {
        self.0.offset
    }

    /// Number of bytes that the field has.
    pub fn size(self) -> i64 {
        self.0.size
    }

    /// Index of the type that all values of the field have; -1 if it may be any.
    pub fn static_type_index(self) -> i32 {
        self.0.field_static_type_index
    }

    /// Whether everybody may set the field at any time.
    pub fn is_writable(self) -> bool {
        self.has(kTVMFFIFieldFlagBitMaskWritable) && !self.0.setter().is_null()
    }

    /// Whether the field can be set at all: by everybody, or while its object is being made.
    pub fn is_settable(self) -> bool {
        !self.0.setter().is_null()
    }

    /// Whether setting the field runs code of its type that may keep the value: a setter that is a function, or the conversion of
    /// a Rust type outside of this crate. Setters in C are trusted to keep nothing but what the field holds.
    #[doc(hidden)]
    pub fn runs_own_code(self) -> bool {
        let is_function = self.has(kTVMFFIFieldFlagBitSetterIsFunctionObj) && !self.has(STORES_ONLY);
        is_function || self.has(RUNS_CODE)
    }

    /// What the field gets when nothing is given: a value, or that of a function, called anew each time.
    ///
    /// # Errors
    /// That of the function.
    pub fn default(self) -> Result<Option<Any>> {
        if !self.has(kTVMFFIFieldFlagBitMaskHasDefault) {
            return Ok(None);
        }
        // SAFETY: the default is valid and lives for ever.
        let default = unsafe { AnyView::from_raw(self.0.default_value_or_factory) };
        if self.has(kTVMFFIFieldFlagBitMaskDefaultFromFactory) {
            return default.get::<PackedFunc>()?.call(()).map(Some);
        }
        Ok(Some(default.to_owned()))
    }

    /// The function that makes what the field gets when nothing is given, if it has one.
    ///
    /// # Errors
    /// `TypeError` if the type has registered something else.
    pub fn factory(self) -> Result<Option<PackedFunc>> {
        if !self.has(kTVMFFIFieldFlagBitMaskDefaultFromFactory) {
            return Ok(None);
        }
        // SAFETY: the default is valid and lives for ever.
        unsafe { AnyView::from_raw(self.0.default_value_or_factory) }.get::<PackedFunc>().map(Some)
    }

    /// Whether the field's memory in an object is nothing but a reference to `value`, or a value that is it: then the
    /// object owns one of the references that `value` has.
    ///
    /// # Safety
    /// `object` must be of the type that has the field or of one derived from it, and nobody may set the field meanwhile.
    pub unsafe fn holds(self, object: &ObjectRef, value: &ObjectRef) -> bool {
        if self.has(OPAQUE) {
            return false;
        }
        let Ok(place) = self.place(object) else { return false };
        let words: *const usize = place.cast();
        let at = match self.0.size {
            8 => words,
            16 => words.wrapping_add(1),
            _ => return false,
        };
        if size_of::<usize>() != 8 || !at.is_aligned() {
            return false;
        }
        // SAFETY: the field has this many bytes in the object.
        let word = unsafe { at.read() };
        if self.0.size == 16 {
            // SAFETY: the field has this many bytes in the object.
            let kind = unsafe { words.cast::<i32>().read() };
            return word == value.as_handle().addr() && kind == value.type_index();
        }
        word == value.as_handle().addr()
    }

    #[inline]
    fn place(self, object: &ObjectRef) -> Result<*mut c_void> {
        match usize::try_from(self.0.offset) {
            Ok(offset) => Ok(object.as_handle().wrapping_byte_add(offset)),
            Err(_) => crate::bail!("InternalError", "field `{}` lies before its object", self.name()),
        }
    }

    /// The function that reads the field at this moment: another one takes its place when the library of the type is
    /// unmapped or loaded again.
    #[doc(hidden)]
    #[inline]
    pub fn getter(self) -> Option<TVMFFIFieldGetter> {
        self.0.getter()
    }

    /// What sets the field at this moment: a `TVMFFIFieldSetter`, a function object if the flag says so, or NULL.
    #[doc(hidden)]
    #[inline]
    pub fn setter(self) -> *mut c_void {
        self.0.setter()
    }

    /// Value of the field in an object of its type.
    ///
    /// # Errors
    /// That of the type's own function.
    ///
    /// # Safety
    /// The object must be of the type that has the field or of one derived from it.
    #[inline]
    pub unsafe fn get_unchecked(self, object: &ObjectRef) -> Result<Any> {
        let Some(getter) = self.getter() else {
            crate::bail!("AttributeError", "field `{}` cannot be read", self.name());
        };
        let mut value = TVMFFIAny::NONE;
        // SAFETY: the field lies at its offset in each object of its type; the result holds nothing.
        if unsafe { getter(self.place(object)?, &mut value) } != 0 {
            return Err(Error::take_raised());
        }
        // SAFETY: on success the result is an owned value.
        Ok(unsafe { Any::from_raw(value) })
    }

    /// Value of a field that never changes, as it lies in its object, without a reference of its own; `None` for other
    /// fields, and for those that have not been set.
    ///
    /// # Safety
    /// As `get_unchecked`; and the result may be used only as long as the object lives.
    #[inline]
    pub unsafe fn lend_unchecked(self, object: &ObjectRef) -> Option<ManuallyDrop<Any>> {
        if !self.has(LENDS_VALUE | LENDS_OBJECT) {
            return None;
        }
        let place = object.as_handle().wrapping_byte_add(self.0.offset as usize);
        let value = if self.has(LENDS_VALUE) {
            // SAFETY: by the flag the field is such a value, in this object.
            unsafe { record::lend(place.cast()) }?
        } else {
            // SAFETY: by the flag the field is the address of an object, or NULL.
            let handle = unsafe { *place.cast::<TVMFFIObjectHandle>() };
            if handle.is_null() {
                TVMFFIAny::NONE
            } else {
                // SAFETY: by the flag the field is the address of an object, which the object keeps alive.
                let type_index = unsafe { (*handle.cast::<TVMFFIObject>()).type_index };
                let value = TVMFFIAnyValue { v_obj: handle.cast() };
                TVMFFIAny { type_index, small_str_len: 0, value }
            }
        };
        // SAFETY: a copy that is never dropped, of a value that the object owns.
        Some(ManuallyDrop::new(unsafe { Any::from_raw(value) }))
    }

    /// As [`Field::get_unchecked`], into a place that holds nothing: the value is not moved, which would cost more than
    /// reading it.
    ///
    /// # Errors
    /// That of the type's own function; the place holds nothing then.
    ///
    /// # Safety
    /// As `get_unchecked`.
    #[inline]
    pub unsafe fn get_into_unchecked(self, object: &ObjectRef, value: &mut Any) -> Result<()> {
        debug_assert!(value.as_object().is_none());
        let Some(getter) = self.getter() else {
            crate::bail!("AttributeError", "field `{}` cannot be read", self.name());
        };
        let result: *mut TVMFFIAny = core::ptr::from_mut(value).cast();
        // SAFETY: the field lies at its offset in each object of its type; the result is transparent over the struct and
        // holds nothing.
        if unsafe { getter(self.place(object)?, result) } != 0 {
            *value = Any::NONE;
            return Err(Error::take_raised());
        }
        Ok(())
    }

    /// Sets the field in an object of its type. Also one that is read-only: while an object is being made, its maker
    /// sets all of them.
    ///
    /// # Errors
    /// That of the type's own function, for a value that the field does not take.
    ///
    /// # Safety
    /// The object must be of the type that has the field or of one derived from it, and if the field is not
    /// [writable](Self::is_writable), nobody else may know the object yet.
    pub unsafe fn set_unchecked(self, object: &ObjectRef, value: &AnyView<'_>) -> Result<()> {
        let setter = self.0.setter();
        if setter.is_null() {
            crate::bail!("TypeError", "field `{}` cannot be set", self.name());
        }
        let place = self.place(object)?;
        if self.has(kTVMFFIFieldFlagBitSetterIsFunctionObj) {
            // SAFETY: the flag says that the setter is a function object, which the type keeps.
            let setter = unsafe { ObjectRef::from_borrowed_or_null(setter) };
            let Some(setter) = setter.and_then(|object| PackedFunc::try_from_object(object).ok()) else {
                crate::bail!("InternalError", "the setter of field `{}` is no function", self.name());
            };
            // SAFETY: the place of the field, which the setter of the field asks for.
            let place = unsafe { OpaquePtr::from_ptr(place) };
            return setter.call((place, *value)).map(drop);
        }
        // SAFETY: without the flag the setter is a C function of this type.
        let setter = unsafe { core::mem::transmute::<*mut c_void, TVMFFIFieldSetter>(setter) };
        // SAFETY: the field lies at its offset in each object of its type, and the caller may set it.
        match unsafe { setter(place, value.as_raw()) } {
            0 => Ok(()),
            _ => Err(Error::take_raised()),
        }
    }
}

/// A method of a type. Lives as long as the process.
#[derive(Clone, Copy)]
pub struct Method(&'static TVMFFIMethodInfo);

impl Method {
    /// Name of the method.
    pub fn name(self) -> &'static str {
        // SAFETY: texts of registered methods live for ever.
        unsafe { text_of(&self.0.name) }
    }

    /// Documentation of the method; empty if there is none.
    pub fn doc(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the text for ever.
        unsafe { text_of(&self.0.doc) }
    }

    /// JSON, whose `type_schema` describes the signature; empty if there is none.
    pub fn metadata(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the text for ever.
        unsafe { text_of(&self.0.metadata) }
    }

    /// Whether it is called without an object.
    pub fn is_static(self) -> bool {
        self.0.flags & kTVMFFIFieldFlagBitMaskIsStaticMethod != 0
    }

    /// The function; unless it is static, its first argument is the object.
    ///
    /// # Errors
    /// `TypeError` if the type has registered something else.
    pub fn function(self) -> Result<PackedFunc> {
        // SAFETY: a registered method lives for ever.
        unsafe { AnyView::from_raw(self.0.method) }.get::<PackedFunc>()
    }
}
