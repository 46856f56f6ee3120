//! Object types defined in Rust: the expansion of `#[derive(Object)]`, and the registration in the type table.
//!
//! A derived type registers its fields and methods when it is first used. Each field has two small C functions,
//! instantiated for its Rust type ([`FieldValue`]): the getter, through which every language reads the field, and the
//! setter, through which constructors set it. See [`partial`] for the construction of an object whose field values
//! arrive one by one.

mod digest;
pub(crate) mod index;
pub(crate) mod method;
mod partial;
pub(crate) mod value;

use core::ffi::c_void;
use core::ptr;

use alloc::format;
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
use crate::reflection::TypeInfo;
use crate::{Any, AnyView, Error, Literal, Mismatch, Object, OpaquePtr, PackedFunc, Result, Schema};

pub use digest::{Digest, FieldType, Fixed, OfBuild, OfType};
pub use index::{
    CONTENT_AT_RUN_TIME, CONTENT_ATTRIBUTE, CONTENT_HIDDEN, CONTENT_OF_FIELDS, TypeIndex, claim_key,
};
pub use value::FieldValue;

/// Information that the derive macro generates about a type.
///
/// # Safety
/// Each function must do what its documentation says, for the fields in [`Definition::fields`] and those of the
/// parent.
pub unsafe trait Define: Object {
    /// Description of the type for the type table.
    const DEFINITION: &'static Definition;
    /// Number of reflected fields, including those of the parent.
    const COUNT: usize;

    /// True if every field that is not reflected has an initial value, so that objects can be constructed field by
    /// field.
    const PREPARES: bool;

    /// True if all fields are reflected, including those of the parent. A copy of the reflected
    /// fields is then a copy of the object.
    const IS_TOLD: bool;

    /// Adds to the digest everything that determines the layout of the type, except the parent and the schemas of the
    /// reflected fields.
    fn digest(digest: &mut Digest);

    /// Returns the static variable that holds the index of this type.
    fn index() -> &'static TypeIndex;

    /// Registers the parent type if it is not registered yet.
    ///
    /// # Errors
    /// Returns the reason why the parent cannot be registered.
    fn define_parent() -> core::result::Result<(), StdString> {
        Ok(())
    }

    /// Initialises the fields that are not reflected, in the new memory at `this`. Called only if
    /// [`PREPARES`](Self::PREPARES) is true.
    ///
    /// # Safety
    /// `this` must point to the memory of a value of which no field is set.
    unsafe fn prepare(this: *mut Self);

    /// Drops the fields that are not reflected, and the reflected fields for which `is_set` returns true.
    ///
    /// # Safety
    /// - `this` must have been prepared.
    /// - `is_set` must return true exactly for the indices of the reflected fields that are set.
    unsafe fn drop_partial(this: *mut Self, is_set: &dyn Fn(usize) -> bool);
}

/// Description of a type, for its registration in the type table.
pub struct Definition {
    /// Documentation of the type.
    pub doc: &'static str,
    /// Kind of structural equality and hash: one of `kTVMFFISEqHashKind*`.
    pub structural_kind: i32,
    /// The reflected fields that the type adds to those of its parent.
    pub fields: &'static [FieldDef],
    /// Function that creates an object without setting its fields; `None` if the type has no constructor.
    pub creator: Option<TVMFFIObjectCreator>,
    /// True if no type may derive from this type.
    pub is_final: bool,
    /// True if only the key of the type is registered, without fields and metadata.
    pub is_opaque: bool,
    /// Number of type indices after the type's own index that are reserved for derived types.
    pub child_slots: i32,
}

/// A reflected field of a type.
pub struct FieldDef {
    /// Name of the field.
    pub name: &'static str,
    /// Documentation of the field.
    pub doc: &'static str,
    /// Flags of the field, a combination of `kTVMFFIFieldFlagBit*`. Flags that follow from other members of this struct
    /// are omitted.
    pub flags: i64,
    /// Offset of the field from the header of the object, in bytes.
    pub offset: usize,
    /// Size of the field in bytes.
    pub size: usize,
    /// Alignment of the field in bytes.
    pub alignment: usize,
    /// Function that reads the field.
    pub getter: TVMFFIFieldGetter,
    /// Function that sets the field.
    pub setter: TVMFFIFieldSetter,
    /// True if the field may be set at any time.
    pub writable: bool,
    /// Function that returns the schema of the field's type.
    pub schema: fn() -> Schema,
    /// Function that returns the static type index of the field; see
    /// [`FieldValue::static_type_index`].
    pub static_type_index: fn() -> i32,
    /// Default value of the field, which is used if no value is given.
    pub default: FieldDefault,
}

/// The default of a field.
pub enum FieldDefault {
    /// No default: a value must be given.
    None,
    /// A constant default.
    Value(Literal),
    /// A C function that is called for each object and returns the default. It ignores its arguments.
    Factory(TVMFFISafeCallType),
}

/// Returns the offset of an object's content from its header, in bytes.
pub const fn content_offset<T: Object>() -> usize {
    core::mem::offset_of!(ObjectBox<T>, content)
}

/// Converts the result of a default expression to a value.
///
/// # Errors
/// Returns `MemoryError` if memory allocation fails.
pub fn default_value<F: FieldValue>(value: &F) -> Result<Any> {
    value.read()
}

/// Returns the C function that computes a default by calling the closure `_make`, which must capture nothing.
pub const fn factory<F: Fn() -> Result<Any> + Copy + 'static>(_make: F) -> TVMFFISafeCallType {
    call_factory::<F>
}

/// Calls the closure of type `F` to compute a default, and writes the default to `result`. The closure captures
/// nothing.
///
/// # Safety
/// The arguments must be those of a call as the ABI defines it, and a value of `F` must exist.
unsafe extern "C" fn call_factory<F: Fn() -> Result<Any> + Copy + 'static>(
    _handle: *mut c_void,
    _args: *const TVMFFIAny,
    _num_args: i32,
    result: *mut TVMFFIAny,
) -> core::ffi::c_int {
    const { assert!(size_of::<F>() == 0, "the default of a field captures nothing") };
    crate::panics::trampoline(|| {
        // SAFETY: `F` is zero-sized, and `factory` was called with a value of `F`, which is `Copy`.
        let make: &F = unsafe { ptr::NonNull::dangling().as_ref() };
        let value = make()?;
        // SAFETY: the caller passes a writable result that holds no value.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

/// Attribute of a type whose objects need a larger alignment than those of other types. Its value is that alignment
/// in bytes.
pub const ALIGN_ATTRIBUTE: &str = "__anyfn_align__";

/// Registers the fields and metadata of a type in the type table. When the library is loaded again, the
/// addresses of functions such as getters and setters have changed, and the same fields are registered again.
///
/// An entry that the table refuses is ignored, because it is already registered by another library with the same type.
/// `factories` is the result of the function [`factories`], which the caller calls beforehand because it may wait and
/// this function must not.
fn tell<T: Define>(type_index: i32, factories: Option<&PackedFunc>) {
    let definition = T::DEFINITION;
    if definition.is_opaque {
        return;
    }
    for field in definition.fields {
        ignore(field.register(type_index, factories));
    }
    // Registered before the metadata, which specifies how objects are created.
    if align_of::<ObjectBox<T>>() > align_of::<u128>() {
        let value = TVMFFIAnyValue { v_int64: align_of::<ObjectBox<T>>() as i64 };
        let name = TVMFFIByteArray::from_slice(ALIGN_ATTRIBUTE.as_bytes());
        let align = crate::convert::plain(kTVMFFIInt, value);
        // SAFETY: the name and the value are borrowed for the call.
        ignore(checked(unsafe { TVMFFITypeRegisterAttr(type_index, &name, align.as_raw()) }));
    }
    let metadata = TVMFFITypeMetadata {
        doc: TVMFFIByteArray::from_slice(definition.doc.as_bytes()),
        creator: definition.creator,
        total_size: size_of::<ObjectBox<T>>() as i32,
        structural_eq_hash_kind: definition.structural_kind,
    };
    // SAFETY: the metadata is borrowed for the call, and its creator is what the ABI requires.
    ignore(checked(unsafe { TVMFFITypeRegisterMetadata(type_index, &metadata) }));
    const FINAL: &str = "__ffi_type_final__";
    if crate::types::attribute(FINAL, type_index).is_none() {
        let name = TVMFFIByteArray::from_slice(FINAL.as_bytes());
        let is_final =
            crate::convert::plain(kTVMFFIBool, TVMFFIAnyValue { v_int64: definition.is_final.into() });
        // SAFETY: the name and the value are borrowed for the call.
        ignore(checked(unsafe { TVMFFITypeRegisterAttr(type_index, &name, is_final.as_raw()) }));
    }
}

/// Registers the methods and the constructor of a type. Must be called only after other threads can
/// see the type index, because this function calls runtime functions that may use the type.
fn finish<T: Define>(type_index: i32) {
    method::tell::<T>(type_index);
    if T::DEFINITION.is_opaque || T::DEFINITION.creator.is_none() {
        return;
    }
    // Other implementations of the ABI may lack these functions. Objects are then created only by the functions that
    // return them.
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

/// Returns the runtime's function that creates factories of default values. These factories do not
/// keep this library mapped. Returns `None` if the runtime is another implementation of the ABI,
/// which lacks this function.
///
/// Such a runtime also stores the address of a default string, whereas the anyfn runtime copies the string.
///
/// The first use of the registry defines all types of the executable, so this must not be called while a type is being
/// defined.
fn factories() -> Option<PackedFunc> {
    // SAFETY: `FieldDef::register` passes it the address of a default factory of the type that it requires.
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
        crate::text::quote(&schema, &mut metadata);
        metadata.push('}');
        let mut flags = self.flags;
        if self.writable {
            flags |= kTVMFFIFieldFlagBitMaskWritable;
        }
        // The table must not keep an object of this library, which may be unmapped earlier. Strings are therefore
        // passed as C strings, which the table copies.
        let mut text = Vec::new();
        let mut factory = None;
        let default = match &self.default {
            FieldDefault::None => TVMFFIAny::NONE,
            FieldDefault::Value(Literal::Str(value)) if !value.contains('\0') => {
                text.extend_from_slice(value.as_bytes());
                text.push(0);
                let mut c_str = text.as_ptr().cast();
                if factories.is_none() {
                    c_str = text.clone().leak().as_ptr().cast();
                }
                TVMFFIAny {
                    type_index: kTVMFFIRawStr,
                    small_str_len: 0,
                    value: TVMFFIAnyValue::from_c_str(c_str),
                }
            }
            FieldDefault::Value(value) => *value.to_any()?.as_raw(),
            FieldDefault::Factory(make) => {
                flags |= kTVMFFIFieldFlagBitMaskDefaultFromFactory;
                let made = match factories {
                    Some(factories) => {
                        // SAFETY: `make` is the address of a default factory in this library.
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
        // SAFETY: everything in `info` is borrowed for the call, and getter and setter are what the ABI requires.
        checked(unsafe { TVMFFITypeRegisterField(type_index, &info) })
    }
}

/// Returns the object that contains the field at the address `place`. The second element of the result is true
/// if the object is still under construction.
///
/// # Safety
/// `place` must be the field at `OFFSET` of a live object.
#[inline(always)]
unsafe fn object_of<const OFFSET: usize>(place: *mut c_void) -> (*mut TVMFFIObject, bool) {
    let object: *mut TVMFFIObject = place.wrapping_byte_sub(OFFSET).cast();
    // SAFETY: the caller guarantees a live object.
    (object, partial::is_partial(unsafe { (*object).type_index }))
}

/// Getter of the reflected field with the index `INDEX`, at the offset `OFFSET` in bytes from the header.
///
/// # Safety
/// The requirements are those of the ABI: `place` must be that field of a live object of the type, and `result` must
/// be writable.
pub unsafe extern "C" fn get<F: FieldValue, const OFFSET: usize, const INDEX: usize>(
    place: *mut c_void,
    result: *mut TVMFFIAny,
) -> core::ffi::c_int {
    crate::panics::trampoline(|| {
        // SAFETY: the caller guarantees the field.
        let (object, is_partial) = unsafe { object_of::<OFFSET>(place) };
        // SAFETY: the object is partial, so it has the record of its fields.
        if is_partial && !unsafe { partial::is_set(object, INDEX) } {
            return Err(unset());
        }
        // SAFETY: the field is set and lives as long as the object, which the caller keeps alive.
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

/// Setter of the reflected field with the index `INDEX`, at the offset `OFFSET` in bytes from the header.
///
/// # Safety
/// The requirements are those of the ABI: `place` must be that field of a live object of the type, and `value` a
/// valid view. Unless the field is writable, no other code may have access to the object.
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
        // SAFETY: the caller keeps the object alive.
        let wrong = |mismatch| unsafe { wrong_value(object, OFFSET, mismatch) };
        // SAFETY: the object is partial, so it has the record of its fields.
        if is_partial && !unsafe { partial::is_set(object, INDEX) } {
            let made = F::make(&view).map_err(wrong)?;
            // SAFETY: this is the memory of the field, which holds no value yet.
            unsafe { field.write(made) };
            // SAFETY: the field has just been set for the first time.
            unsafe { partial::mark(object, INDEX) };
        } else if F::WRITABLE {
            // SAFETY: the field is set and lives as long as the object, which the caller keeps alive.
            unsafe { &*field }.write(&view).map_err(wrong)?;
        } else {
            let made = F::make(&view).map_err(wrong)?;
            // SAFETY: the field is set, and the caller guarantees that no other code has access to the object.
            drop(unsafe { field.replace(made) });
        }
        Ok(())
    })
}

/// Returns the error for a value that a field does not accept. `offset` is the offset of the field in the object.
///
/// # Safety
/// `object` must be a live object of a type with reflected fields. It may be under construction.
#[cold]
#[inline(never)]
unsafe fn wrong_value(object: *mut TVMFFIObject, offset: usize, mismatch: Mismatch) -> Error {
    // SAFETY: the caller guarantees a live object.
    let mut type_index = unsafe { (*object).type_index };
    if partial::is_partial(type_index) {
        // SAFETY: the object is under construction.
        type_index = unsafe { partial::final_type(object) };
    }
    let info = TypeInfo::from_index(type_index);
    let field = info.and_then(|info| info.fields().find(|field| field.offset() == offset as i64));
    match (info, field) {
        (Some(info), Some(field)) => {
            mismatch.into_error(&format!("field '{}' of {}", field.name(), info.key()))
        }
        // The table refused the field, because another library has registered the type.
        _ => mismatch.into_error("a field"),
    }
}

/// Creates an object of the type `T` with none of its reflected fields set, and writes the object
/// to `result`.
///
/// # Safety
/// The requirement is that of the ABI: `result` must be writable.
pub unsafe extern "C" fn create<T: Define>(result: *mut *mut c_void) -> core::ffi::c_int {
    crate::panics::trampoline(|| {
        let object = partial::create::<T>()?;
        // SAFETY: the caller guarantees the result.
        unsafe { ptr::write(result, object.into_handle()) };
        Ok(())
    })
}
