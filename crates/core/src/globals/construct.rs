//! Constructors that are made of what a type tells of its fields.

use core::ffi::c_void;
use core::ptr;

use alloc::vec::Vec;

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIFieldSetter, TVMFFIObjectHandle, TVMFFITypeInfo,
    kTVMFFIFieldFlagBitMaskDefaultFromFactory, kTVMFFIFieldFlagBitMaskHasDefault,
    kTVMFFIFieldFlagBitMaskInitOff, kTVMFFIFieldFlagBitMaskKwOnly, kTVMFFIFieldFlagBitSetterIsFunctionObj,
    kTVMFFIFunction, kTVMFFINone,
};
use anyfn::{Any, AnyView, Args, Error, ObjectRef, PackedFunc, Result, bail};

use crate::{attributes, type_table};

/// Registers them.
pub(super) fn register() -> Result<()> {
    super::typed("ffi._RegisterFFIInit", &["type_index"], register_init)
}

/// Gives a type the constructor that follows from its fields, under the attribute `__ffi_init__`.
pub(crate) fn register_init(type_index: i32) -> Result<()> {
    type_table::info_or_error(type_index)?;
    let init = PackedFunc::new(move |args| construct(type_index, args));
    let view = AnyView::from(init.as_object());
    // SAFETY: a valid value, of which the column takes a reference.
    unsafe { attributes::set(type_index, b"__ffi_init__", view.as_raw()) }
}

/// A field's text as registered.
fn text(array: &TVMFFIByteArray) -> &'static str {
    // SAFETY: texts of registered fields live for ever.
    core::str::from_utf8(unsafe { array.as_slice() }).unwrap_or("")
}

fn has(field: &TVMFFIFieldInfo, flag: i64) -> bool {
    field.flags & flag != 0
}

/// All fields of a type, those of its ancestors first.
fn all_fields(info: &'static TVMFFITypeInfo) -> Vec<&'static TVMFFIFieldInfo> {
    type_table::lineage(info).flat_map(type_table::fields).collect()
}

/// Makes an object of arguments by position, then by name behind the keyword sentinel.
fn construct(type_index: i32, args: Args<'_>) -> Result<Any> {
    let info = type_table::info_or_error(type_index)?;
    let key = text(&info.type_key);
    let fields = all_fields(info);
    let (by_position, by_name) = split(key, args.as_slice())?;
    let mut values: Vec<Option<&AnyView<'_>>> = Vec::new();
    values.resize(fields.len(), None);
    for (at, value) in positions(&fields).zip(by_position) {
        values[at] = Some(value);
    }
    let takes = positions(&fields).count();
    if by_position.len() > takes {
        let given = by_position.len();
        bail!(
            "TypeError",
            "{key}.__ffi_init__() takes at most {takes} positional argument(s), but {given} were given"
        );
    }
    for pair in by_name.chunks_exact(2) {
        let Ok(name) = pair[0].get::<&str>() else {
            bail!("TypeError", "Cannot convert from type `{}` to `str`", pair[0].type_key());
        };
        let known = fields.iter().position(|field| text(&field.name) == name);
        match known.filter(|at| !has(fields[*at], kTVMFFIFieldFlagBitMaskInitOff)) {
            None => bail!("TypeError", "{key}.__ffi_init__() got an unexpected keyword argument '{name}'"),
            Some(at) if values[at].is_some() => {
                bail!("TypeError", "{key}.__ffi_init__() got multiple values for argument '{name}'")
            }
            Some(at) => values[at] = Some(&pair[1]),
        }
    }
    let object = new_object(info)?;
    for (field, value) in fields.iter().zip(values) {
        match value {
            Some(value) => set_field(&object, field, value).map_err(|error| in_field(&error, key, field))?,
            None => set_default(&object, field, key)?,
        }
    }
    Any::new(object)
}

/// Indices of the fields that are arguments by position: required ones before those with a default.
fn positions(fields: &[&'static TVMFFIFieldInfo]) -> impl Iterator<Item = usize> {
    let off = kTVMFFIFieldFlagBitMaskInitOff | kTVMFFIFieldFlagBitMaskKwOnly;
    let select = |defaults: bool| {
        let fits = move |field: &TVMFFIFieldInfo| {
            !has(field, off) && has(field, kTVMFFIFieldFlagBitMaskHasDefault) == defaults
        };
        fields.iter().enumerate().filter(move |(_, field)| fits(field)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    select(false).into_iter().chain(select(true))
}

/// Splits arguments at the keyword sentinel.
fn split<'a>(key: &str, args: &'a [AnyView<'a>]) -> Result<(&'a [AnyView<'a>], &'a [AnyView<'a>])> {
    let sentinel = super::kwargs()?;
    let at = args.iter().position(|arg| arg.as_object().is_some_and(|object| object.ptr_eq(&sentinel)));
    let Some(at) = at else { return Ok((args, &[])) };
    let by_name = &args[at + 1..];
    if !by_name.len().is_multiple_of(2) {
        bail!("TypeError", "{key}.__ffi_init__() KWARGS requires an even number of key-value arguments");
    }
    Ok((&args[..at], by_name))
}

/// Makes an object whose fields are still to be set.
pub(crate) fn new_object(info: &'static TVMFFITypeInfo) -> Result<ObjectRef> {
    let key = text(&info.type_key);
    if let Some(new) = attributes::get(info.type_index, b"__ffi_new__")
        && new.type_index == kTVMFFIFunction
    {
        let made = function(new)?.call(())?;
        return made
            .into_object()
            .ok_or_else(|| anyfn::error!("TypeError", "__ffi_new__ of {key} gave no object"));
    }
    // SAFETY: NULL, or metadata that lives for ever.
    let Some(creator) = unsafe { info.metadata.as_ref() }.and_then(|metadata| metadata.creator) else {
        bail!("TypeError", "type `{key}` cannot be constructed: it has no creator and no __ffi_new__");
    };
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: the type's own function, called with a writable place.
    if unsafe { creator(&mut out) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned object.
    let object = unsafe { ObjectRef::from_owned_or_null(out) };
    object.ok_or_else(|| anyfn::error!("TypeError", "the creator of {key} gave no object"))
}

/// The function in a value that lives for ever.
fn function(value: &TVMFFIAny) -> Result<PackedFunc> {
    // SAFETY: values of columns and fields are valid and live for ever.
    unsafe { AnyView::from_raw(*value) }.get::<PackedFunc>()
}

/// Says which field an error is about; the kind and the trace stay.
#[cold]
fn in_field(error: &Error, key: &str, field: &TVMFFIFieldInfo) -> Error {
    let message = alloc::format!("{key}.__ffi_init__() field '{}':\n  {}", text(&field.name), error.message());
    let (kind, trace) = (error.kind().as_bytes(), error.backtrace());
    let cause = error.cause().map(Error::into_object);
    let renamed = Error::try_from_texts(kind, message.as_bytes(), trace.as_bytes(), cause, error.context());
    renamed.unwrap_or_else(|| error.clone())
}

fn set_default(object: &ObjectRef, field: &TVMFFIFieldInfo, key: &str) -> Result<()> {
    if !has(field, kTVMFFIFieldFlagBitMaskHasDefault) {
        if has(field, kTVMFFIFieldFlagBitMaskInitOff) {
            return Ok(());
        }
        let only = if has(field, kTVMFFIFieldFlagBitMaskKwOnly) { "keyword-only " } else { "" };
        bail!("TypeError", "{key}.__ffi_init__() missing required {only}argument: '{}'", text(&field.name));
    }
    let default = &field.default_value_or_factory;
    if has(field, kTVMFFIFieldFlagBitMaskDefaultFromFactory) {
        let made = function(default)?.call(())?;
        return set_field(object, field, &made.as_view());
    }
    // SAFETY: the default is valid and lives for ever.
    set_field(object, field, &unsafe { AnyView::from_raw(*default) })
}

fn set_field(object: &ObjectRef, field: &TVMFFIFieldInfo, value: &AnyView<'_>) -> Result<()> {
    let Ok(offset) = usize::try_from(field.offset) else {
        bail!("InternalError", "field `{}` lies before its object", text(&field.name));
    };
    if field.setter.is_null() {
        bail!("TypeError", "field `{}` cannot be set", text(&field.name));
    }
    let address: *mut c_void = object.as_handle().wrapping_byte_add(offset);
    if has(field, kTVMFFIFieldFlagBitSetterIsFunctionObj) {
        // SAFETY: the flag says that the setter is a function object, which the type keeps.
        let setter = unsafe { ObjectRef::from_borrowed_or_null(field.setter) };
        let setter = setter.and_then(|object| PackedFunc::try_from_object(object).ok());
        let Some(setter) = setter else {
            bail!("InternalError", "the setter of field `{}` is no function", text(&field.name));
        };
        return setter.call((address, *value)).map(drop);
    }
    // SAFETY: without the flag the setter is a C function of this type.
    let setter = unsafe { core::mem::transmute::<*mut c_void, TVMFFIFieldSetter>(field.setter) };
    // SAFETY: the field lies at its offset in an object of its type, which nobody else has seen yet.
    match unsafe { setter(address, value.as_raw()) } {
        0 => Ok(()),
        _ => Err(Error::take_raised()),
    }
}

const _: () = assert!(kTVMFFINone == 0);
