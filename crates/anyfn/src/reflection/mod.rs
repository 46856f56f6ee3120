//! Reflection of object types: fields, methods, attributes.
//!
//! A type of any language describes its objects in the type table of the process: the offset of each field, the
//! functions that read and set it, and flags for printing, comparison and serialisation. This module reads the table
//! without static knowledge of the type.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{ObjectRef, reflection::TypeInfo};
//!
//! fn names_of_fields(object: &ObjectRef) -> Vec<&'static str> {
//!     TypeInfo::of(object).fields().map(|field| field.name()).collect()
//! }
//! ```

mod fields;

use core::ffi::c_void;
use core::mem::ManuallyDrop;

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIFieldGetter, TVMFFIFieldSetter, TVMFFIMethodInfo, TVMFFIObject,
    TVMFFIObjectCreator, TVMFFIObjectHandle, kTVMFFIBool, kTVMFFIFieldFlagBitMaskDefaultFromFactory,
    kTVMFFIFieldFlagBitMaskHasDefault, kTVMFFIFieldFlagBitMaskIsStaticMethod, kTVMFFIFieldFlagBitMaskWritable,
    kTVMFFIFieldFlagBitSetterIsFunctionObj, kTVMFFIFloat, kTVMFFIInt, kTVMFFIObject,
};

pub use fields::FieldVisitor;

#[doc(hidden)]
pub use crate::representation::{Conversion, Lent};

use crate::json::Json;
use crate::making::Making;
use crate::representation::{
    LENDS, LENDS_FLOAT, LENDS_INT, LENDS_OBJECT, LENDS_VALUE, OPAQUE, RUNS_CODE, STORES_ONLY,
};
use crate::shared::{SharedField, SharedMetadata, SharedType};
use crate::signature::schema_of;
use crate::string::text_of;
use crate::{Any, AnyView, Error, ObjectRef, OpaquePtr, PackedFunc, Result, Schema, record, types};

/// Type info of an object type. Its data lives for the lifetime of the process.
#[derive(Clone, Copy)]
pub struct TypeInfo(&'static SharedType);

impl TypeInfo {
    /// Returns the type with the index `type_index`; `None` if no type has this index.
    pub fn from_index(type_index: i32) -> Option<TypeInfo> {
        types::info(type_index).map(TypeInfo)
    }

    /// Returns the type with the key `key`; `None` if no type has this key.
    pub fn from_key(key: &str) -> Option<TypeInfo> {
        types::type_index_of(key).and_then(TypeInfo::from_index)
    }

    /// Returns the type of an object.
    ///
    /// # Panics
    /// Never panics: the table contains the type of every object.
    pub fn of(object: &ObjectRef) -> TypeInfo {
        TypeInfo::from_index(object.type_index()).expect("the table has the type of every object")
    }

    /// Returns the index of the type.
    pub fn index(self) -> i32 {
        self.0.type_index
    }

    /// Returns the key of the type.
    pub fn key(self) -> &'static str {
        // SAFETY: the key lives as long as the type, for the lifetime of the process.
        unsafe { text_of(&self.0.type_key) }
    }

    /// Returns the hash of the key, which is the same in every process.
    pub fn key_hash(self) -> u64 {
        self.0.type_key_hash
    }

    /// Returns the documentation of the type; empty if the type has none.
    pub fn doc(self) -> &'static str {
        // SAFETY: strings of metadata live for the lifetime of the process.
        self.0.metadata().map_or("", |metadata| unsafe { text_of(&metadata.doc) })
    }

    /// Returns true if the type has registered metadata.
    pub fn has_metadata(self) -> bool {
        self.0.metadata().is_some()
    }

    /// Returns the kind of structural equality and hash for objects of the type, one of the
    /// constants `kTVMFFISEqHashKind*`; 0 if the type has no metadata.
    pub fn structural_kind(self) -> i32 {
        self.0.metadata().map_or(0, |metadata| metadata.structural_eq_hash_kind)
    }

    /// Iterates over the ancestors of the type, the root first, and then the type itself.
    pub fn lineage(self) -> impl DoubleEndedIterator<Item = TypeInfo> {
        let ancestors = (0..self.0.type_depth as usize).map(move |depth| {
            // SAFETY: the array has as many elements as the type has ancestors.
            let ancestor = unsafe { self.0.type_ancestors.add(depth) };
            // SAFETY: this is an element of the array, which lives for the lifetime of the process.
            let ancestor = unsafe { *ancestor };
            // SAFETY: types live for the lifetime of the process.
            TypeInfo(unsafe { &*ancestor })
        });
        ancestors.chain(core::iter::once(self))
    }

    /// Returns the parent type; `None` for a root type.
    pub fn parent(self) -> Option<TypeInfo> {
        self.lineage().nth_back(1)
    }

    /// Returns true if the type is `base` or derived from it.
    pub fn is_a(self, base: TypeInfo) -> bool {
        types::is_instance(self.index(), base.index())
    }

    /// Iterates over the fields of this type, without those of its ancestors.
    pub fn own_fields(self) -> impl ExactSizeIterator<Item = Field> + DoubleEndedIterator {
        self.0.fields().iter().map(Field)
    }

    /// Iterates over all fields, those of the ancestors first.
    pub fn fields(self) -> impl DoubleEndedIterator<Item = Field> {
        self.lineage().flat_map(TypeInfo::own_fields)
    }

    /// Returns the field called `name`. A field of the type itself takes precedence over a field of an ancestor.
    pub fn field(self, name: &str) -> Option<Field> {
        self.lineage().rev().find_map(|info| info.own_fields().find(|field| field.name() == name))
    }

    /// Iterates over the methods of this type, without those of its ancestors.
    pub fn own_methods(self) -> impl ExactSizeIterator<Item = Method> + DoubleEndedIterator {
        self.0.methods().iter().map(Method)
    }

    /// Iterates over all methods, those of the ancestors first. A method that was registered several times occurs
    /// several times.
    pub fn methods(self) -> impl DoubleEndedIterator<Item = Method> {
        self.lineage().flat_map(TypeInfo::own_methods)
    }

    /// Returns the method called `name`. A method of the type itself takes precedence over a method of an ancestor.
    /// Within a type, the method that was registered last takes precedence.
    pub fn method(self, name: &str) -> Option<Method> {
        self.lineage().rev().find_map(|info| info.own_methods().rev().find(|method| method.name() == name))
    }

    /// Returns true if [`make`](Self::make) can create objects of the type.
    pub fn can_make(self) -> bool {
        self.creator().is_some() || self.attribute("__ffi_new__").is_some_and(|new| !new.is_none())
    }

    /// Creates an object of the type with the type's creator, or with the function in its attribute `__ffi_new__` if it
    /// has no creator.
    ///
    /// The caller must set the fields before other code can access the object. Until all of them are set, the type of
    /// the object may be `ffi.Object`.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the type has neither a creator nor the attribute, `TypeError` if the result is not a
    /// new object of the type with a single reference, and otherwise the error of the function.
    pub fn make(self) -> Result<ObjectRef> {
        if self.creator().is_some() {
            let _making = Making::begin();
            // The creator is read again: from here on its library is not unmapped.
            let Some(creator) = self.creator() else { return self.made(None, true) };
            let mut out: TVMFFIObjectHandle = core::ptr::null_mut();
            // SAFETY: this is the type's own creator, called with a writable location.
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

    /// Checks an object that a creator or the function in `__ffi_new__` returned. No other reference to the
    /// object may exist, because its fields are set next. An object from a creator may still be a plain
    /// `ffi.Object`: it gets its type once all its fields are set.
    fn made(self, object: Option<ObjectRef>, is_created: bool) -> Result<ObjectRef> {
        let is_own = |object: &ObjectRef| {
            object.is_instance(self.index()) || is_created && object.type_index() == kTVMFFIObject
        };
        match object {
            Some(object) if is_own(&object) && object.is_unique() => Ok(object),
            Some(object) if is_own(&object) => crate::bail!(
                "TypeError",
                "the creator of `{}` returned an object that has other references",
                self.key()
            ),
            _ => crate::bail!("TypeError", "the creator of `{}` returned no object of this type", self.key()),
        }
    }

    /// Returns the value that this type, not an ancestor, has registered for an attribute such as `__ffi_repr__`.
    pub fn attribute(self, name: &str) -> Option<Any> {
        // SAFETY: an entry that is set holds its value for the lifetime of the process.
        types::attribute(name, self.index()).map(|value| unsafe { AnyView::from_raw(*value) }.to_owned())
    }
}

/// A reflected field of a type. Its data lives for the lifetime of the process.
#[derive(Clone, Copy)]
pub struct Field(&'static SharedField);

impl Field {
    /// Returns the name of the field.
    pub fn name(self) -> &'static str {
        // SAFETY: strings of registered fields live for the lifetime of the process.
        unsafe { text_of(&self.0.name) }
    }

    /// Returns the documentation of the field; empty if it has none.
    pub fn doc(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the string for the lifetime of the process.
        unsafe { text_of(&self.0.doc) }
    }

    /// Returns the metadata of the field, a JSON object in which the key `type_schema` describes
    /// the field's type. The string is empty if there is no metadata.
    pub fn metadata(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the string for the lifetime of the process.
        unsafe { text_of(&self.0.metadata) }
    }

    /// Returns the type of the field; `Any` if its metadata does not state the type.
    pub fn schema(self) -> Schema {
        let told = Json::parse(self.metadata());
        let told = told.as_ref().and_then(|told| told.get("type_schema")).and_then(Json::text);
        told.and_then(Json::parse).map_or_else(|| Schema::plain("Any"), |schema| schema_of(&schema))
    }

    /// Returns the flags of the field, a combination of `kTVMFFIFieldFlagBit*`.
    pub fn flags(self) -> i64 {
        self.0.flags
    }

    /// Returns true if the field has at least one of the flags in `flags`.
    pub fn has(self, flags: i64) -> bool {
        self.0.flags & flags != 0
    }

    /// Returns the offset of the field in bytes, counted from the beginning of the object's header.
    pub fn offset(self) -> i64 {
        self.0.offset
    }

    /// Returns the size of the field in bytes.
    pub fn size(self) -> i64 {
        self.0.size
    }

    /// Returns the type index that all values of the field have; -1 (`kTVMFFIAny`) if it is not
    /// known statically.
    pub fn static_type_index(self) -> i32 {
        self.0.field_static_type_index
    }

    /// Returns true if the field can be set at any time.
    pub fn is_writable(self) -> bool {
        self.has(kTVMFFIFieldFlagBitMaskWritable) && !self.0.setter().is_null()
    }

    /// Returns true if the field can be set, either at any time or only while its object is
    /// constructed.
    pub fn is_settable(self) -> bool {
        !self.0.setter().is_null()
    }

    /// Returns true if setting the field runs code that may keep a reference to the value. Such
    /// code is a conversion outside this crate, or a setter that is a function object without the
    /// flag `STORES_ONLY`. Setters in C are trusted to keep references only in the field.
    #[doc(hidden)]
    pub fn runs_own_code(self) -> bool {
        let is_function = self.has(kTVMFFIFieldFlagBitSetterIsFunctionObj) && !self.has(STORES_ONLY);
        is_function || self.has(RUNS_CODE)
    }

    /// Returns the default of the field; `None` if the field has no default. If a factory function
    /// creates the default, each call of this function calls the factory.
    ///
    /// # Errors
    /// Returns the error of the factory function.
    pub fn default(self) -> Result<Option<Any>> {
        if !self.has(kTVMFFIFieldFlagBitMaskHasDefault) {
            return Ok(None);
        }
        // SAFETY: the default is valid and lives for the lifetime of the process.
        let default = unsafe { AnyView::from_raw(self.0.default_value_or_factory) };
        if self.has(kTVMFFIFieldFlagBitMaskDefaultFromFactory) {
            return default.get::<PackedFunc>()?.call(()).map(Some);
        }
        Ok(Some(default.to_owned()))
    }

    /// Returns the factory function that creates the default; `None` if the field has no factory.
    ///
    /// # Errors
    /// Returns `TypeError` if the type has registered a factory that is not a function.
    pub fn factory(self) -> Result<Option<PackedFunc>> {
        if !self.has(kTVMFFIFieldFlagBitMaskDefaultFromFactory) {
            return Ok(None);
        }
        // SAFETY: the default is valid and lives for the lifetime of the process.
        unsafe { AnyView::from_raw(self.0.default_value_or_factory) }.get::<PackedFunc>().map(Some)
    }

    /// Returns true if the field in `object` stores a reference to `value`, either as an address or as a
    /// 16-byte value. The object then owns one of the references to `value`.
    ///
    /// # Safety
    /// `object` must be of the type that has the field or of a derived type, and no other thread may set the field
    /// during the call.
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
            Err(_) => crate::bail!("InternalError", "field `{}` has a negative offset", self.name()),
        }
    }

    /// Returns the current getter of the field. The getter changes when the library that defines
    /// the type is unmapped or loaded again.
    #[doc(hidden)]
    #[inline]
    pub fn getter(self) -> Option<TVMFFIFieldGetter> {
        self.0.getter()
    }

    /// Returns the current setter of the field: a `TVMFFIFieldSetter`, a function object if the field's flags state so,
    /// or NULL.
    #[doc(hidden)]
    #[inline]
    pub fn setter(self) -> *mut c_void {
        self.0.setter()
    }

    /// Returns the value of the field in `object`, whose type is not checked.
    ///
    /// # Errors
    /// Returns the error of the getter.
    ///
    /// # Safety
    /// `object` must be of the type that has the field or of a derived type.
    #[inline]
    pub unsafe fn get_unchecked(self, object: &ObjectRef) -> Result<Any> {
        let Some(getter) = self.getter() else {
            crate::bail!("AttributeError", "field `{}` cannot be read: it has no getter", self.name());
        };
        let mut value = TVMFFIAny::NONE;
        // SAFETY: the field is at its offset in each object of its type, and the result location holds nothing.
        if unsafe { getter(self.place(object)?, &mut value) } != 0 {
            return Err(Error::take_raised());
        }
        // SAFETY: on success the result is an owned value.
        Ok(unsafe { Any::from_raw(value) })
    }

    /// Returns the value of a read-only field without adding a reference. Returns `None` if the
    /// field is writable, is not set, or stores its value in a form that cannot be borrowed.
    ///
    /// # Safety
    /// The requirements of `get_unchecked` apply, and the result may be used only while the object is alive.
    #[inline]
    pub unsafe fn lend_unchecked(self, object: &ObjectRef) -> Option<ManuallyDrop<Any>> {
        if !self.has(LENDS) {
            return None;
        }
        let place = object.as_handle().wrapping_byte_add(self.0.offset as usize);
        let value = if self.has(LENDS_VALUE) {
            // SAFETY: the flag guarantees that the field is such a value, and the field is in this object.
            unsafe { record::lend(place.cast()) }?
        } else if !self.has(LENDS_OBJECT) {
            // SAFETY: one of the other flags is set, which guarantees that the field is such a number.
            unsafe { self.number(place) }
        } else {
            // SAFETY: the flag guarantees that the field is the address of an object, or NULL.
            let handle = unsafe { *place.cast::<TVMFFIObjectHandle>() };
            if handle.is_null() {
                TVMFFIAny::NONE
            } else {
                // SAFETY: the flag guarantees that the field is the address of an object, which `object` keeps alive.
                let type_index = unsafe { (*handle.cast::<TVMFFIObject>()).type_index };
                let value = TVMFFIAnyValue::from_obj(handle.cast());
                TVMFFIAny { type_index, small_str_len: 0, value }
            }
        };
        // SAFETY: the result is a copy of a value that the object owns, and it is never dropped.
        Some(ManuallyDrop::new(unsafe { Any::from_raw(value) }))
    }

    /// Reads a number that is stored at `place`.
    ///
    /// # Safety
    /// The field must have one of the flags `LENDS_INT`, `LENDS_FLOAT` and `LENDS_BOOL`, and `place` must be its address
    /// in a live object.
    #[inline]
    unsafe fn number(self, place: *const c_void) -> TVMFFIAny {
        let (type_index, bits) = if self.has(LENDS_INT) {
            // SAFETY: the flag guarantees that the field is an `i64`.
            (kTVMFFIInt, unsafe { *place.cast::<u64>() })
        } else if self.has(LENDS_FLOAT) {
            // SAFETY: the flag guarantees that the field is an `f64`.
            (kTVMFFIFloat, unsafe { *place.cast::<u64>() })
        } else {
            // SAFETY: the caller guarantees the flag of a field that is a `bool`.
            (kTVMFFIBool, u64::from(unsafe { *place.cast::<bool>() }))
        };
        TVMFFIAny::from_bits(type_index, bits)
    }

    /// Reads the field of `object` into `value`, which must not own an object before the call.
    ///
    /// This does the same as [`Field::get_unchecked`], but does not move the value, which would cost more than reading
    /// it.
    ///
    /// # Errors
    /// Returns the error of the getter; the location then holds nothing.
    ///
    /// # Safety
    /// The requirements of `get_unchecked` apply.
    #[inline]
    pub unsafe fn get_into_unchecked(self, object: &ObjectRef, value: &mut Any) -> Result<()> {
        debug_assert!(value.as_object().is_none());
        let Some(getter) = self.getter() else {
            crate::bail!("AttributeError", "field `{}` cannot be read: it has no getter", self.name());
        };
        let result: *mut TVMFFIAny = core::ptr::from_mut(value).cast();
        // SAFETY: the field is at its offset in each object of its type. The result location is transparent over the
        // struct and holds nothing.
        if unsafe { getter(self.place(object)?, result) } != 0 {
            *value = Any::NONE;
            return Err(Error::take_raised());
        }
        Ok(())
    }

    /// Sets the field in `object`, whose type is not checked, even if the field is read-only.
    ///
    /// Read-only fields are set while their object is constructed.
    ///
    /// # Errors
    /// Returns the error of the setter if the field does not accept the value.
    ///
    /// # Safety
    /// `object` must be of the type that has the field or of a derived type. If the field is not
    /// [writable](Self::is_writable), no other code may have access to the object yet.
    pub unsafe fn set_unchecked(self, object: &ObjectRef, value: &AnyView<'_>) -> Result<()> {
        let setter = self.0.setter();
        if setter.is_null() {
            crate::bail!("TypeError", "field `{}` cannot be set: it has no setter", self.name());
        }
        let place = self.place(object)?;
        if self.has(kTVMFFIFieldFlagBitSetterIsFunctionObj) {
            // SAFETY: the flag guarantees that the setter is a function object, which the type keeps alive.
            let setter = unsafe { ObjectRef::from_borrowed_or_null(setter) };
            let Some(setter) = setter.and_then(|object| PackedFunc::try_from_object(object).ok()) else {
                crate::bail!("InternalError", "the setter of field `{}` is not a function", self.name());
            };
            // SAFETY: this is the address of the field, which the setter of the field expects.
            let place = unsafe { OpaquePtr::from_ptr(place) };
            return setter.call((place, *value)).map(drop);
        }
        // SAFETY: without the flag the setter is a C function of this type.
        let setter = unsafe { core::mem::transmute::<*mut c_void, TVMFFIFieldSetter>(setter) };
        // SAFETY: the field is at its offset in each object of its type, and the caller guarantees that it may be set.
        match unsafe { setter(place, value.as_raw()) } {
            0 => Ok(()),
            _ => Err(Error::take_raised()),
        }
    }
}

/// A method of a type. Its data lives for the lifetime of the process.
#[derive(Clone, Copy)]
pub struct Method(&'static TVMFFIMethodInfo);

impl Method {
    /// Returns the name of the method.
    pub fn name(self) -> &'static str {
        // SAFETY: strings of registered methods live for the lifetime of the process.
        unsafe { text_of(&self.0.name) }
    }

    /// Returns the documentation of the method; empty if it has none.
    pub fn doc(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the string for the lifetime of the process.
        unsafe { text_of(&self.0.doc) }
    }

    /// Returns the metadata of the method, a JSON object in which the key `type_schema` describes
    /// the signature. The string is empty if there is no metadata.
    pub fn metadata(self) -> &'static str {
        // SAFETY: the table keeps its own copy of the string for the lifetime of the process.
        unsafe { text_of(&self.0.metadata) }
    }

    /// Returns true if the method is static, which means that it is called without an object.
    pub fn is_static(self) -> bool {
        self.0.flags & kTVMFFIFieldFlagBitMaskIsStaticMethod != 0
    }

    /// Returns the function that implements the method. Unless the method is static, the first
    /// argument of the function is the object.
    ///
    /// # Errors
    /// Returns `TypeError` if the type has registered a value that is not a function as the method.
    pub fn function(self) -> Result<PackedFunc> {
        // SAFETY: a registered method lives for the lifetime of the process.
        unsafe { AnyView::from_raw(self.0.method) }.get::<PackedFunc>()
    }
}
