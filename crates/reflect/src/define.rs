//! Registers the types of this crate, whose memory the ABI lays down.

use core::ffi::{c_int, c_void};

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldGetter, TVMFFIFieldInfo, TVMFFIFieldSetter, TVMFFIMethodInfo,
    TVMFFIObject, TVMFFITypeMetadata, TVMFFITypeRegisterAttr, TVMFFITypeRegisterField,
    TVMFFITypeRegisterMetadata, TVMFFITypeRegisterMethod, kTVMFFIAny, kTVMFFIFieldFlagBitMaskIsStaticMethod,
    kTVMFFIInt, kTVMFFIOpaquePtr,
};
use anyfn::{Any, AnyView, Error, FromArg, ObjectRef, PackedFunc, Result, String, bail};

/// The functions that read and set a field.
pub(crate) type Access = (TVMFFIFieldGetter, TVMFFIFieldSetter);

/// Those of a field that holds any value.
pub(crate) const VALUE: Access = (get_any, set_any);
/// Those of a field that holds a string as a value.
pub(crate) const TEXT: Access = (get_any, set_text);
/// Those of a field that is an object or nothing.
pub(crate) const OBJECT: Access = (get_object, refuse);
/// Those of a field of 32 bits.
pub(crate) const I32: Access = (get_i32, set_i32);
/// Those of a field of 64 bits.
pub(crate) const I64: Access = (get_i64, set_i64);

/// A type that is being registered.
pub(crate) struct Type(pub(crate) i32);

fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::take_raised()) }
}

impl Type {
    /// Adds a read-only field. It has a setter all the same: who makes an object sets its fields by them.
    ///
    /// # Safety
    /// Every object of the type must have at the offset, counted from the end of its header, what the functions read and
    /// write.
    pub(crate) unsafe fn field(
        &self,
        texts: (&str, &str),
        place: (usize, usize),
        access: Access,
        static_type: i32,
    ) -> Result<()> {
        // SAFETY: the caller guarantees the place.
        unsafe { self.field_with_flags(texts, place, access, static_type, 0) }
    }

    /// Adds a read-only field with these flags, as [`Type::field`].
    ///
    /// # Safety
    /// As [`Type::field`] asks for.
    pub(crate) unsafe fn field_with_flags(
        &self,
        (name, doc): (&str, &str),
        (offset, size): (usize, usize),
        (getter, setter): Access,
        static_type: i32,
        flags: i64,
    ) -> Result<()> {
        let info = TVMFFIFieldInfo {
            name: TVMFFIByteArray::from_slice(name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
            metadata: TVMFFIByteArray::EMPTY,
            flags,
            size: size as i64,
            alignment: size.min(align_of::<TVMFFIAny>()) as i64,
            offset: (size_of::<TVMFFIObject>() + offset) as i64,
            getter: Some(getter),
            setter: setter as *mut c_void,
            default_value_or_factory: TVMFFIAny::NONE,
            field_static_type_index: static_type,
        };
        // SAFETY: all is borrowed for the call, and the functions stay.
        check(unsafe { TVMFFITypeRegisterField(self.0, &info) })
    }

    /// Says how large the content is and how objects are compared.
    pub(crate) fn metadata(&self, doc: &str, size: usize, structural_kind: i64) -> Result<()> {
        let metadata = TVMFFITypeMetadata {
            doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
            creator: None,
            total_size: (size_of::<TVMFFIObject>() + size) as i32,
            structural_eq_hash_kind: structural_kind as i32,
        };
        // SAFETY: borrowed for the call.
        check(unsafe { TVMFFITypeRegisterMetadata(self.0, &metadata) })
    }

    /// Adds a method; a static one takes no object.
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
        // SAFETY: all is borrowed for the call.
        check(unsafe { TVMFFITypeRegisterMethod(self.0, &info) })
    }

    /// Sets an attribute of the type to a function.
    pub(crate) fn attribute(&self, name: &str, function: &PackedFunc) -> Result<()> {
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        // SAFETY: both are borrowed for the call.
        check(unsafe { TVMFFITypeRegisterAttr(self.0, &name, AnyView::from(function.as_object()).as_raw()) })
    }

    /// Sets an attribute of the type to the address of a native function.
    ///
    /// # Safety
    /// The function must be of the type that the column's definition says.
    pub(crate) unsafe fn native(&self, name: &str, function: *mut c_void) -> Result<()> {
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        let mut value = TVMFFIAny::NONE;
        value.type_index = kTVMFFIOpaquePtr;
        value.value.v_ptr = function;
        // SAFETY: both are borrowed for the call.
        check(unsafe { TVMFFITypeRegisterAttr(self.0, &name, &value) })
    }
}

/// The static type of a field that is an integer.
pub(crate) const INT: i32 = kTVMFFIInt;
/// .. that may be anything.
pub(crate) const ANY: i32 = kTVMFFIAny;

/// Reads a field that is a value.
///
/// # Safety
/// `field` must point to a value, `out` must be writable.
unsafe extern "C" fn get_any(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds a value, as its registration says.
    let value = unsafe { &*field.cast::<Any>() };
    // SAFETY: the caller passes a place for the result.
    unsafe { out.write(value.clone().into_raw()) };
    0
}

/// Reads a field that is an object or nothing.
///
/// # Safety
/// `field` must point to one, `out` must be writable.
unsafe extern "C" fn get_object(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds a reference or nothing, as its registration says.
    let object = unsafe { &*field.cast::<Option<ObjectRef>>() };
    let value = object.clone().map_or(Any::NONE, Any::from);
    // SAFETY: the caller passes a place for the result.
    unsafe { out.write(value.into_raw()) };
    0
}

/// Reads a field of 32 bits.
///
/// # Safety
/// `field` must point to one, `out` must be writable.
unsafe extern "C" fn get_i32(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds such a number, as its registration says.
    let value = i64::from(unsafe { *field.cast::<i32>() });
    // SAFETY: the caller passes a place for the result.
    unsafe { out.write(TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) };
    0
}

/// Reads a field of 64 bits.
///
/// # Safety
/// `field` must point to one, `out` must be writable.
unsafe extern "C" fn get_i64(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field holds such a number, as its registration says.
    let value = unsafe { *field.cast::<i64>() };
    // SAFETY: the caller passes a place for the result.
    unsafe { out.write(TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) };
    0
}

/// Converts the value for a field.
///
/// # Safety
/// `value` must be a valid view.
unsafe fn converted<T: for<'a> FromArg<Arg<'a> = T>>(value: *const TVMFFIAny) -> Result<T> {
    // SAFETY: the caller guarantees a valid view.
    let value = unsafe { value.read() };
    // SAFETY: the caller guarantees that it stays valid for the call.
    unsafe { AnyView::from_raw(value) }.get::<T>()
}

/// Puts a value in place of that of a field.
///
/// # Safety
/// `field` must hold a value, and nobody else may use it meanwhile.
unsafe fn replace(field: *mut c_void, value: Any) {
    // SAFETY: the caller guarantees the field.
    drop(unsafe { field.cast::<Any>().replace(value) });
}

/// Sets a field that is a value.
///
/// # Safety
/// `field` must hold a value that nobody else uses, `value` must be a valid view.
unsafe extern "C" fn set_any(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<Any>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { replace(field, value) };
        Ok(())
    })
}

/// Sets a field that is a string.
///
/// # Safety
/// `field` must hold a value that nobody else uses, `value` must be a valid view.
unsafe extern "C" fn set_text(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<String>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { replace(field, value.into()) };
        Ok(())
    })
}

/// Sets a field of 32 bits.
///
/// # Safety
/// `field` must hold one that nobody else uses, `value` must be a valid view.
unsafe extern "C" fn set_i32(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<i32>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { field.cast::<i32>().write(value) };
        Ok(())
    })
}

/// Sets a field of 64 bits.
///
/// # Safety
/// `field` must hold one that nobody else uses, `value` must be a valid view.
unsafe extern "C" fn set_i64(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees the view.
        let value = unsafe { converted::<i64>(value) }?;
        // SAFETY: the caller guarantees the field.
        unsafe { field.cast::<i64>().write(value) };
        Ok(())
    })
}

/// The setter of a field that only the code of its type sets, which relies on the type of the object in it.
pub(crate) unsafe extern "C" fn refuse(_field: *mut c_void, _value: *const TVMFFIAny) -> c_int {
    trampoline(|| bail!("TypeError", "cannot set the field: only its own type makes objects that have it"))
}
