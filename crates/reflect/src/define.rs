//! Registration of built-in types whose object layout the ABI defines.

use core::ffi::{c_int, c_void};

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldGetter, TVMFFIFieldInfo, TVMFFIFieldSetter, TVMFFIMethodInfo,
    TVMFFIObject, TVMFFIObjectCreator, TVMFFIObjectHandle, TVMFFITypeMetadata, TVMFFITypeRegisterAttr,
    TVMFFITypeRegisterField, TVMFFITypeRegisterMetadata, TVMFFITypeRegisterMethod, kTVMFFIAny,
    kTVMFFIFieldFlagBitMaskIsStaticMethod, kTVMFFIInt, kTVMFFIOpaquePtr,
};
use anyfn::{Any, AnyView, Error, FromArg, Object, ObjectRef, PackedFunc, Ref, Result, String, bail};

/// Getter and setter of a field, and the metadata that states its type.
pub(crate) type Access = (TVMFFIFieldGetter, TVMFFIFieldSetter, &'static str);

/// Access to a field that contains an [`Any`].
pub(crate) const VALUE: Access = (get_any, set_any, ANY_SCHEMA);
/// Access to a field that contains a string as an [`Any`].
pub(crate) const TEXT: Access = (get_any, set_text, r#"{"type_schema":"{\"type\":\"ffi.String\"}"}"#);
/// Access to a field that contains an object reference or null. Its setter always fails.
pub(crate) const OBJECT: Access = (get_object, refuse, OPTIONAL_OBJECT_SCHEMA);
/// Access to a field that contains a 32-bit integer.
pub(crate) const I32: Access = (get_i32, set_i32, INT_SCHEMA);
/// Access to a field that contains a 64-bit integer.
pub(crate) const I64: Access = (get_i64, set_i64, INT_SCHEMA);

/// Metadata of a field that may hold any value.
pub(crate) const ANY_SCHEMA: &str = r#"{"type_schema":"{\"type\":\"Any\"}"}"#;
const INT_SCHEMA: &str = r#"{"type_schema":"{\"type\":\"int\"}"}"#;
/// Metadata of a field that holds an object or None.
pub(crate) const OPTIONAL_OBJECT_SCHEMA: &str =
    r#"{"type_schema":"{\"type\":\"Optional\",\"args\":[{\"type\":\"ffi.Object\"}]}"}"#;

/// Type index of a type that is being registered.
pub(crate) struct Type(pub(crate) i32);

fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::take_raised()) }
}

impl Type {
    /// Adds a read-only field. The field also has a setter, which is used only while an object is
    /// constructed.
    ///
    /// # Safety
    /// Every object of the type must have, at the offset `place.0` from the end of its header, the data that the
    /// functions in `access` read and write.
    pub(crate) unsafe fn field(
        &self,
        texts: (&str, &str),
        place: (usize, usize),
        access: Access,
        static_type: i32,
    ) -> Result<()> {
        // SAFETY: the caller guarantees the offset.
        unsafe { self.field_with_flags(texts, place, access, static_type, 0) }
    }

    /// Adds a read-only field as [`Type::field`] does, with the given flags.
    ///
    /// # Safety
    /// The requirements of [`Type::field`] apply.
    pub(crate) unsafe fn field_with_flags(
        &self,
        (name, doc): (&str, &str),
        (offset, size): (usize, usize),
        (getter, setter, schema): Access,
        static_type: i32,
        flags: i64,
    ) -> Result<()> {
        let info = TVMFFIFieldInfo {
            name: TVMFFIByteArray::from_slice(name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
            metadata: TVMFFIByteArray::from_slice(schema.as_bytes()),
            flags,
            size: size as i64,
            alignment: size.min(align_of::<TVMFFIAny>()) as i64,
            offset: (size_of::<TVMFFIObject>() + offset) as i64,
            getter: Some(getter),
            setter: setter as *mut c_void,
            default_value_or_factory: TVMFFIAny::NONE,
            field_static_type_index: static_type,
        };
        // SAFETY: the description is borrowed for the call, and the accessors are never unloaded.
        check(unsafe { TVMFFITypeRegisterField(self.0, &info) })
    }

    /// Registers the documentation of the type, the size of its content in bytes, and its structural kind.
    pub(crate) fn metadata(&self, doc: &str, size: usize, structural_kind: i64) -> Result<()> {
        self.metadata_with(doc, size, structural_kind, None)
    }

    /// Registers what [`Type::metadata`] does, and the function that creates objects of the type, whose fields are then set.
    pub(crate) fn metadata_with(
        &self,
        doc: &str,
        size: usize,
        structural_kind: i64,
        creator: Option<TVMFFIObjectCreator>,
    ) -> Result<()> {
        let metadata = TVMFFITypeMetadata {
            doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
            creator,
            total_size: (size_of::<TVMFFIObject>() + size) as i32,
            structural_eq_hash_kind: structural_kind as i32,
        };
        // SAFETY: the metadata is borrowed for the call.
        check(unsafe { TVMFFITypeRegisterMetadata(self.0, &metadata) })
    }

    /// Adds a method to the type. A method receives the object as its first argument unless `is_static` is true.
    pub(crate) fn method(&self, name: &str, is_static: bool, function: &PackedFunc) -> Result<()> {
        let metadata = function.signature();
        let info = TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(name.as_bytes()),
            doc: TVMFFIByteArray::EMPTY,
            metadata: metadata
                .as_ref()
                .map_or(TVMFFIByteArray::EMPTY, |text| TVMFFIByteArray::from_slice(text.as_bytes())),
            flags: if is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
            method: *AnyView::from(function.as_object()).as_raw(),
        };
        // SAFETY: the description is borrowed for the call.
        check(unsafe { TVMFFITypeRegisterMethod(self.0, &info) })
    }

    /// Sets an attribute of the type to a function.
    pub(crate) fn attribute(&self, name: &str, function: &PackedFunc) -> Result<()> {
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        // SAFETY: name and value are borrowed for the call.
        check(unsafe { TVMFFITypeRegisterAttr(self.0, &name, AnyView::from(function.as_object()).as_raw()) })
    }

    /// Sets an attribute of the type to the address of a native function.
    ///
    /// # Safety
    /// The function must have the signature that the definition of the attribute requires.
    pub(crate) unsafe fn native(&self, name: &str, function: *mut c_void) -> Result<()> {
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        let mut value = TVMFFIAny::NONE;
        value.type_index = kTVMFFIOpaquePtr;
        value.value.v_ptr = function;
        // SAFETY: name and value are borrowed for the call.
        check(unsafe { TVMFFITypeRegisterAttr(self.0, &name, &value) })
    }
}

/// Creates an object of the type `T` with its default content.
///
/// # Safety
/// `result` must be writable.
pub(crate) unsafe extern "C" fn create<T: Object + Default>(result: *mut TVMFFIObjectHandle) -> c_int {
    trampoline(|| {
        let object = Ref::new(T::default()).into_object();
        // SAFETY: the caller guarantees a writable result.
        unsafe { result.write(object.into_handle()) };
        Ok(())
    })
}

/// Static type index of an integer field.
pub(crate) const INT: i32 = kTVMFFIInt;
/// Static type index of a field that may hold any value.
pub(crate) const ANY: i32 = kTVMFFIAny;

/// Getter of a field that contains an [`Any`].
///
/// # Safety
/// `field` must point to a value, `out` must be writable.
unsafe extern "C" fn get_any(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds a value, as registered.
    let value = unsafe { &*field.cast::<Any>() };
    // SAFETY: the caller passes a location for the result.
    unsafe { out.write(value.clone().into_raw()) };
    0
}

/// Getter of a field that contains an object reference or null.
///
/// # Safety
/// `field` must point to an object reference or null, `out` must be writable.
unsafe extern "C" fn get_object(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds a reference or null, as registered.
    let object = unsafe { &*field.cast::<Option<ObjectRef>>() };
    let value = object.clone().map_or(Any::NONE, Any::from);
    // SAFETY: the caller passes a location for the result.
    unsafe { out.write(value.into_raw()) };
    0
}

/// Getter of a field that contains a 32-bit integer.
///
/// # Safety
/// `field` must point to a 32-bit integer, `out` must be writable.
unsafe extern "C" fn get_i32(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds such a number, as registered.
    let value = i64::from(unsafe { *field.cast::<i32>() });
    // SAFETY: the caller passes a location for the result.
    unsafe { out.write(TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) };
    0
}

/// Getter of a field that contains a 64-bit integer.
///
/// # Safety
/// `field` must point to a 64-bit integer, `out` must be writable.
unsafe extern "C" fn get_i64(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds such a number, as registered.
    let value = unsafe { *field.cast::<i64>() };
    // SAFETY: the caller passes a location for the result.
    unsafe { out.write(TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) };
    0
}

/// Converts a value to the Rust type `T` of a field.
///
/// # Safety
/// `value` must be a valid view.
pub(crate) unsafe fn converted<T: for<'a> FromArg<Arg<'a> = T>>(value: *const TVMFFIAny) -> Result<T> {
    // SAFETY: the caller guarantees a valid view.
    let value = unsafe { value.read() };
    // SAFETY: the caller guarantees that the view stays valid for the call.
    unsafe { AnyView::from_raw(value) }.get::<T>()
}

/// Overwrites the [`Any`] in a field and drops the previous value.
///
/// # Safety
/// `field` must hold a value, and no other code may use it meanwhile.
unsafe fn replace(field: *mut c_void, value: Any) {
    // SAFETY: the caller guarantees the field.
    drop(unsafe { field.cast::<Any>().replace(value) });
}

/// Setter of a field that contains an [`Any`].
///
/// # Safety
/// `field` must hold a value that no other code uses, `value` must be a valid view.
pub(crate) unsafe extern "C" fn set_any(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<Any>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { replace(field, value) };
        Ok(())
    })
}

/// Setter of a field that contains a string as an [`Any`].
///
/// # Safety
/// `field` must hold a value that no other code uses, `value` must be a valid view.
unsafe extern "C" fn set_text(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<String>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { replace(field, value.into()) };
        Ok(())
    })
}

/// Setter of a field that contains a reference to an object of the type `T`, or null.
///
/// # Safety
/// `field` must hold a reference or null that no other code uses, `value` must be a valid view.
pub(crate) unsafe extern "C" fn set_reference<T: Object>(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<Option<Ref<T>>>(value) }?;
        // SAFETY: the caller guarantees the field.
        drop(unsafe { field.cast::<Option<ObjectRef>>().replace(value.map(Ref::into_object)) });
        Ok(())
    })
}

/// Setter of a field that contains a 32-bit integer.
///
/// # Safety
/// `field` must point to a 32-bit integer that no other code uses, `value` must be a valid view.
unsafe extern "C" fn set_i32(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<i32>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { field.cast::<i32>().write(value) };
        Ok(())
    })
}

/// Setter of a field that contains a 64-bit integer.
///
/// # Safety
/// `field` must point to a 64-bit integer that no other code uses, `value` must be a valid view.
unsafe extern "C" fn set_i64(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<i64>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { field.cast::<i64>().write(value) };
        Ok(())
    })
}

/// Setter that always fails, for fields whose object must have a certain type. Only the code of the type
/// itself sets such fields.
pub(crate) unsafe extern "C" fn refuse(_field: *mut c_void, _value: *const TVMFFIAny) -> c_int {
    trampoline(|| bail!("TypeError", "cannot set the field: only the code of its type sets it"))
}
