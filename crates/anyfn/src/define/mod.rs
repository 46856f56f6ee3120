//! Object types that Rust code defines: what `#[derive(Object)]` expands to, and what it tells the table of types.
//!
//! A derived type tells of its fields and methods when it is first used. Each field has two small C functions, made of its Rust type
//! ([`FieldValue`]), through which every language reads it and through which constructors set it. See [`partial`] for how
//! an object is made of values that come one by one.

mod digest;
pub(crate) mod index;
pub(crate) mod method;
mod partial;
pub(crate) mod value;

use core::ffi::c_void;
use core::ptr;

use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIFieldGetter, TVMFFIFieldInfo, TVMFFIFieldSetter,
    TVMFFIObject, TVMFFIObjectCreator, TVMFFISafeCallType, TVMFFITypeMetadata, TVMFFITypeRegisterAttr,
    TVMFFITypeRegisterField, TVMFFITypeRegisterMetadata, kTVMFFIBool,
    kTVMFFIFieldFlagBitMaskDefaultFromFactory, kTVMFFIFieldFlagBitMaskHasDefault,
    kTVMFFIFieldFlagBitMaskWritable, kTVMFFIInt, kTVMFFIRawStr,
};

use crate::object::ObjectBox;
use crate::{Any, AnyView, Error, Literal, Object, OpaquePtr, PackedFunc, Result, Schema};

pub use digest::{Digest, FieldType, Fixed, OfBuild, OfType};
pub use index::{
    CONTENT_AT_RUN_TIME, CONTENT_ATTRIBUTE, CONTENT_HIDDEN, CONTENT_OF_FIELDS, TypeIndex, claim_key,
};
pub use value::FieldValue;

/// What the derive macro tells of a type.
///
/// # Safety
/// The functions must do what they say, for the fields in [`Definition::fields`] and those of the parent.
pub unsafe trait Define: Object {
    /// The definition.
    const DEFINITION: &'static Definition;
    /// Number of fields that are told of, the parent's included.
    const COUNT: usize;

    /// Whether the fields that are not told of have something to begin with.
    const PREPARES: bool;

    /// Whether all fields are told of, so that an object with the same ones is a copy.
    const IS_TOLD: bool;

    /// Adds to the digest what the memory of a value consists of, besides the parent and the told fields' schemas.
    fn digest(digest: &mut Digest);

    /// Where the index of the type is kept.
    fn index() -> &'static TypeIndex;

    /// Makes sure that the parent is registered.
    ///
    /// # Errors
    /// Why it cannot be.
    fn define_parent() -> core::result::Result<(), StdString> {
        Ok(())
    }

    /// Writes the fields that are not told of, in new memory; only if [`PREPARES`](Self::PREPARES).
    ///
    /// # Safety
    /// `this` must be the memory of a value, none of whose fields is set.
    unsafe fn prepare(this: *mut Self);

    /// Drops the fields that are not told of, and of the others those that are set.
    ///
    /// # Safety
    /// `this` must have been prepared; `is_set` must say which fields are set.
    unsafe fn drop_partial(this: *mut Self, is_set: &dyn Fn(usize) -> bool);
}

/// What a type tells of itself.
pub struct Definition {
    /// Documentation.
    pub doc: &'static str,
    /// `kTVMFFISEqHashKind*`.
    pub structural_kind: i32,
    /// The fields that the type adds to its parent's.
    pub fields: &'static [FieldDef],
    /// Makes an object whose fields are still to be set; none if the type has no constructor.
    pub creator: Option<TVMFFIObjectCreator>,
    /// Whether no type may derive from it.
    pub is_final: bool,
    /// Whether nothing but its key is told of the type.
    pub is_opaque: bool,
    /// Number of type indices that are kept for derived types.
    pub child_slots: i32,
}

/// A field of a type.
pub struct FieldDef {
    /// Name.
    pub name: &'static str,
    /// Documentation.
    pub doc: &'static str,
    /// `kTVMFFIFieldFlagBit*`, but those that follow from the others.
    pub flags: i64,
    /// Where it lies in an object.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub alignment: usize,
    /// Reads it.
    pub getter: TVMFFIFieldGetter,
    /// Sets it.
    pub setter: TVMFFIFieldSetter,
    /// Whether it may be set at any time.
    pub writable: bool,
    /// Describes its type.
    pub schema: fn() -> Schema,
    /// Index of the type that all its values have.
    pub static_type_index: fn() -> i32,
    /// What it gets when no value is given.
    pub default: FieldDefault,
}

/// The default of a field.
pub enum FieldDefault {
    /// A value must be given.
    None,
    /// A constant.
    Value(Literal),
    /// What the function gives, called anew each time; it does not use its arguments.
    Factory(TVMFFISafeCallType),
}

/// Where the content of an object lies, from its header on.
pub const fn content_offset<T: Object>() -> usize {
    core::mem::offset_of!(ObjectBox<T>, content)
}

/// Value of a default expression.
///
/// # Errors
/// `MemoryError` when memory is short.
pub fn default_value<F: FieldValue>(value: &F) -> Result<Any> {
    value.read()
}

/// A function that makes a default, of a closure that captures nothing.
pub const fn factory<F: Fn() -> Result<Any> + Copy + 'static>(_make: F) -> TVMFFISafeCallType {
    call_factory::<F>
}

/// # Safety
/// As the ABI says of calls; a value of `F` must exist.
unsafe extern "C" fn call_factory<F: Fn() -> Result<Any> + Copy + 'static>(
    _handle: *mut c_void,
    _args: *const TVMFFIAny,
    _num_args: i32,
    result: *mut TVMFFIAny,
) -> core::ffi::c_int {
    const { assert!(size_of::<F>() == 0, "the default of a field captures nothing") };
    crate::panics::trampoline(|| {
        // SAFETY: it has no bytes, and `factory` was called with one, which is `Copy`.
        let make: &F = unsafe { ptr::NonNull::dangling().as_ref() };
        let value = make()?;
        // SAFETY: the caller passes a writable result that holds nothing.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

/// Attribute of a type whose objects need a larger alignment than those of other types: that alignment in bytes.
pub const ALIGN_ATTRIBUTE: &str = "__anyfn_align__";

/// Tells the table of types about a type. May be done again: what is told is the same, but the functions may have moved.
///
/// What the table refuses it knows already, from another library with the same type. `factories` is what [`factories`]
/// gives; it is asked before, because it may wait and this must not.
fn tell<T: Define>(type_index: i32, factories: Option<&PackedFunc>) {
    let definition = T::DEFINITION;
    if definition.is_opaque {
        return;
    }
    for field in definition.fields {
        ignore(field.register(type_index, factories));
    }
    // Before the metadata, which says how objects are made.
    if align_of::<ObjectBox<T>>() > align_of::<u128>() {
        let value = TVMFFIAnyValue { v_int64: align_of::<ObjectBox<T>>() as i64 };
        let name = TVMFFIByteArray::from_slice(ALIGN_ATTRIBUTE.as_bytes());
        let align = crate::convert::plain(kTVMFFIInt, value);
        // SAFETY: the name and the value are borrowed for the call.
        ignore(checked(unsafe { TVMFFITypeRegisterAttr(type_index, &name, align.as_view().as_raw()) }));
    }
    let metadata = TVMFFITypeMetadata {
        doc: TVMFFIByteArray::from_slice(definition.doc.as_bytes()),
        creator: definition.creator,
        total_size: size_of::<ObjectBox<T>>() as i32,
        structural_eq_hash_kind: definition.structural_kind,
    };
    // SAFETY: the metadata is borrowed for the call; its creator is what the ABI says.
    ignore(checked(unsafe { TVMFFITypeRegisterMetadata(type_index, &metadata) }));
    const FINAL: &str = "__ffi_type_final__";
    if crate::types::attribute(FINAL, type_index).is_none() {
        let name = TVMFFIByteArray::from_slice(FINAL.as_bytes());
        let is_final =
            crate::convert::plain(kTVMFFIBool, TVMFFIAnyValue { v_int64: definition.is_final.into() });
        // SAFETY: the name and the value are borrowed for the call.
        ignore(checked(unsafe { TVMFFITypeRegisterAttr(type_index, &name, is_final.as_view().as_raw()) }));
    }
}

/// Gives a type its methods and its constructor. Uses functions of the runtime, so it is done when others may use the type.
fn finish<T: Define>(type_index: i32) {
    method::tell::<T>(type_index);
    if T::DEFINITION.is_opaque || T::DEFINITION.creator.is_none() {
        return;
    }
    // Other runtimes may not have these functions; then objects are made by functions only.
    let tell = |attribute: &str, function: &str| {
        if crate::types::attribute(attribute, type_index).is_none()
            && let Some(register) = crate::registry::find(function)
        {
            ignore(register.call((type_index,)));
        }
    };
    if !method::has_init::<T>() {
        tell("__ffi_init__", "ffi._RegisterFFIInit");
    }
    if T::IS_TOLD {
        tell("__ffi_shallow_copy__", "anyfn.RegisterFieldCopy");
    }
}

/// The function of our runtime that makes functions for defaults, which do not keep this library. Others have none; those
/// keep the address of a text that is a default, too, where ours copies it.
///
/// The first use of the registry defines all types of the program; so it must not come in the middle of defining one.
fn factories() -> Option<PackedFunc> {
    // SAFETY: `FieldDef::register` passes it the code of a function of the type that it asks for.
    unsafe { crate::registry::find_unsafe("anyfn.DefaultFactory") }
}

fn ignore<T>(result: Result<T>) {
    drop(result);
}

fn checked(code: core::ffi::c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::take_raised()) }
}

impl FieldDef {
    fn register(&self, type_index: i32, factories: Option<&PackedFunc>) -> Result<()> {
        let mut schema = StdString::new();
        (self.schema)().write_json(&mut schema);
        let mut metadata = StdString::from("{\"type_schema\":");
        crate::json::quote(&schema, &mut metadata);
        metadata.push('}');
        let mut flags = self.flags;
        if self.writable {
            flags |= kTVMFFIFieldFlagBitMaskWritable;
        }
        // What the table keeps must not be an object of this library, which may be unmapped before: texts are passed as
        // C strings, of which the table makes its own.
        let mut text = Vec::new();
        let mut factory = None;
        let default = match &self.default {
            FieldDefault::None => TVMFFIAny::NONE,
            FieldDefault::Value(Literal::Str(value)) if !value.contains('\0') => {
                text.extend_from_slice(value.as_bytes());
                text.push(0);
                let mut v_c_str = text.as_ptr().cast();
                if factories.is_none() {
                    v_c_str = text.clone().leak().as_ptr().cast();
                }
                TVMFFIAny { type_index: kTVMFFIRawStr, small_str_len: 0, value: TVMFFIAnyValue { v_c_str } }
            }
            FieldDefault::Value(value) => *value.to_any()?.as_view().as_raw(),
            FieldDefault::Factory(make) => {
                flags |= kTVMFFIFieldFlagBitMaskDefaultFromFactory;
                let made = match factories {
                    Some(factories) => {
                        // SAFETY: the code of such a function, in this library.
                        let call = unsafe { OpaquePtr::from_ptr(*make as *mut c_void) };
                        factories.call((type_index, self.name, call))?.get::<PackedFunc>()?
                    }
                    None => method::function_of(*make)?,
                };
                *AnyView::from(factory.insert(made).as_object()).as_raw()
            }
        };
        if !matches!(self.default, FieldDefault::None) {
            flags |= kTVMFFIFieldFlagBitMaskHasDefault;
        }
        let info = TVMFFIFieldInfo {
            name: TVMFFIByteArray::from_slice(self.name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(self.doc.as_bytes()),
            metadata: TVMFFIByteArray::from_slice(metadata.as_bytes()),
            flags,
            size: self.size as i64,
            alignment: self.alignment as i64,
            offset: self.offset as i64,
            getter: Some(self.getter),
            setter: self.setter as *mut c_void,
            default_value_or_factory: default,
            field_static_type_index: (self.static_type_index)(),
        };
        // SAFETY: all that the info shows is borrowed for the call; getter and setter are what the ABI says.
        checked(unsafe { TVMFFITypeRegisterField(type_index, &info) })
    }
}

/// The object that a field belongs to, and whether its constructor is not done yet.
///
/// # Safety
/// `place` must be the field at `OFFSET` of a live object.
#[inline(always)]
unsafe fn object_of<const OFFSET: usize>(place: *mut c_void) -> (*mut TVMFFIObject, bool) {
    let object: *mut TVMFFIObject = place.wrapping_byte_sub(OFFSET).cast();
    // SAFETY: the caller guarantees a live object.
    (object, partial::is_partial(unsafe { (*object).type_index }))
}

/// Getter of the field number `INDEX` at `OFFSET` from the header.
///
/// # Safety
/// As the ABI says: `place` must be that field of a live object of the type, `result` writable.
pub unsafe extern "C" fn get<F: FieldValue, const OFFSET: usize, const INDEX: usize>(
    place: *mut c_void,
    result: *mut TVMFFIAny,
) -> core::ffi::c_int {
    crate::panics::trampoline(|| {
        // SAFETY: the caller guarantees the field.
        let (object, is_partial) = unsafe { object_of::<OFFSET>(place) };
        // SAFETY: the object is partial, so what tells of its fields is there.
        if is_partial && !unsafe { partial::is_set(object, INDEX) } {
            return Err(unset());
        }
        // SAFETY: the field is set, and lives as long as the object, which the caller keeps.
        let value = unsafe { &*place.cast::<F>() }.read()?;
        // SAFETY: the caller guarantees the result.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

#[cold]
fn unset() -> Error {
    Error::new("AttributeError", "the field has not been set")
}

/// Setter of the field number `INDEX` at `OFFSET` from the header.
///
/// # Safety
/// As the ABI says: `place` must be that field of a live object of the type, `value` a valid view; unless the field is
/// writable, nobody else may know the object.
pub unsafe extern "C" fn set<F: FieldValue, const OFFSET: usize, const INDEX: usize>(
    place: *mut c_void,
    value: *const TVMFFIAny,
) -> core::ffi::c_int {
    crate::panics::trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { *value };
        // SAFETY: the caller guarantees the view.
        let view = unsafe { AnyView::from_raw(value) };
        // SAFETY: the caller guarantees the field.
        let (object, is_partial) = unsafe { object_of::<OFFSET>(place) };
        let field: *mut F = place.cast();
        // SAFETY: the object is partial, so what tells of its fields is there.
        if is_partial && !unsafe { partial::is_set(object, INDEX) } {
            let made = F::make(&view)?;
            // SAFETY: the memory of the field, which holds nothing yet.
            unsafe { field.write(made) };
            // SAFETY: it is set now, for the first time.
            unsafe { partial::mark(object, INDEX) };
        } else if F::WRITABLE {
            // SAFETY: the field is set, and lives as long as the object, which the caller keeps.
            unsafe { &*field }.write(&view)?;
        } else {
            let made = F::make(&view)?;
            // SAFETY: the field is set, and the caller says that nobody else knows the object.
            drop(unsafe { field.replace(made) });
        }
        Ok(())
    })
}

/// Creator of objects of a type.
///
/// # Safety
/// As the ABI says: `result` must be writable.
pub unsafe extern "C" fn create<T: Define>(result: *mut *mut c_void) -> core::ffi::c_int {
    crate::panics::trampoline(|| {
        let object = partial::create::<T>()?;
        // SAFETY: the caller guarantees the result.
        unsafe { ptr::write(result, object.into_handle()) };
        Ok(())
    })
}
