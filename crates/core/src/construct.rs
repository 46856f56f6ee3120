//! Constructors and shallow copies that are generated from the reflected fields of a type.

use core::fmt;

use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::{FunctionDef, functions, quote};
use anyfn::abi::{
    kTVMFFIBool, kTVMFFIFieldFlagBitMaskDefaultFromFactory, kTVMFFIFieldFlagBitMaskHasDefault,
    kTVMFFIFieldFlagBitMaskInitOff, kTVMFFIFieldFlagBitMaskKwOnly, kTVMFFIFloat, kTVMFFIInt, kTVMFFINone,
};
use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, AnyView, Args, Error, ObjectRef, PackedFunc, Result, bail};

use crate::{attributes, sentinel, type_table};

/// The global functions that this file implements.
pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi._RegisterFFIInit" ["type_index"] => register_init,
    "anyfn.RegisterFieldCopy" ["type_index"] => register_copy,
    "ffi.MakeObjectFromPackedArgs" [] => from_packed_args,
};

/// Registers a function that makes shallow copies of the objects of a type, under the attribute
/// `__ffi_shallow_copy__`. The objects must consist of their reflected fields only.
fn register_copy(type_index: i32) -> Result<()> {
    type_info(type_index)?;
    let copy = PackedFunc::new(move |args| copy_fields(type_index, &args.get::<ObjectRef>(0)?));
    let view = AnyView::from(copy.as_object());
    // SAFETY: the value is valid, and the column takes a reference to it.
    unsafe { attributes::set(type_index, b"__ffi_shallow_copy__", view.as_raw()) }
}

/// Creates an object of a type and sets all its reflected fields to the values of these fields in
/// the object `from`.
fn copy_fields(type_index: i32, from: &ObjectRef) -> Result<Any> {
    let info = type_info(type_index)?;
    if !from.is_instance(type_index) {
        let (key, got) = (info.key(), from.type_key());
        bail!("TypeError", "__ffi_shallow_copy__ of `{key}`: expected an object of this type but got `{got}`");
    }
    let object = new_object(info)?;
    for field in info.fields() {
        // SAFETY: the field belongs to the object's type.
        let value = unsafe { field.get_unchecked(from) }?;
        // SAFETY: the field belongs to the type of the new object, and nothing else refers to the object.
        unsafe { field.set_unchecked(&object, &value.as_view()) }?;
    }
    Any::new(object)
}

/// Generates a constructor from the reflected fields of a type and registers it under the attribute `__ffi_init__`.
pub(crate) fn register_init(type_index: i32) -> Result<()> {
    type_table::info_or_error(type_index)?;
    let init = PackedFunc::described(move |args| construct(type_index, args), move || describe(type_index));
    let view = AnyView::from(init.as_object());
    // SAFETY: the value is valid, and the column takes a reference to it.
    unsafe { attributes::set(type_index, b"__ffi_init__", view.as_raw()) }
}

/// Returns the signature of the constructor that [`register_init`] generates, as JSON (see `docs/signature.md`).
/// Keyword-only parameters come last.
fn describe(type_index: i32) -> String {
    let Some(info) = TypeInfo::from_index(type_index) else { return String::new() };
    let fields: Vec<Field> = info.fields().collect();
    let is_by_name =
        |field: &Field| field.has(kTVMFFIFieldFlagBitMaskKwOnly) && !field.has(kTVMFFIFieldFlagBitMaskInitOff);
    let by_position = positions(&fields).map(|at| fields[at]);
    let taken: Vec<Field> = by_position.chain(fields.iter().copied().filter(is_by_name)).collect();
    let mut schema = String::from("{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[{\"type\":");
    quote(info.key(), &mut schema);
    schema.push_str("}],\"params\":");
    list(&mut schema, '[', ']', taken.iter(), |field, out| field.schema().write_json(out));
    schema.push_str("}}");
    let mut json = String::from("{\"type_schema\":");
    quote(&schema, &mut json);
    json.push_str(",\"name\":");
    quote(info.key(), &mut json);
    json.push_str(",\"takes_names\":true,\"arg_names\":");
    let name = |field: &Field, out: &mut String| quote(field.name(), out);
    list(&mut json, '[', ']', taken.iter(), name);
    let is_optional = |field: &&Field| field.has(kTVMFFIFieldFlagBitMaskHasDefault);
    let constants = taken.iter().filter(is_optional).filter_map(|field| Some((field, constant(field)?)));
    json.push_str(",\"arg_defaults\":");
    list(&mut json, '{', '}', constants, |(field, text), out| {
        quote(field.name(), out);
        out.push(':');
        out.push_str(&text);
    });
    json.push_str(",\"arg_optional\":");
    let others = taken.iter().filter(is_optional).filter(|field| constant(field).is_none());
    list(&mut json, '[', ']', others, name);
    json.push_str(",\"keyword_only\":");
    list(&mut json, '[', ']', taken.iter().filter(|field| is_by_name(field)), name);
    if !info.doc().is_empty() {
        json.push_str(",\"doc\":");
        quote(info.doc(), &mut json);
    }
    json.push('}');
    json
}

/// Writes `items` to `out` as a JSON array or object: separated by commas, between the brackets
/// `open` and `close`.
fn list<T>(
    out: &mut String,
    open: char,
    close: char,
    items: impl Iterator<Item = T>,
    write: impl Fn(T, &mut String),
) {
    out.push(open);
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

/// Returns the default of a field as JSON, or `None` if the field has no default, a factory creates the
/// default, or JSON cannot represent it.
fn constant(field: &Field) -> Option<String> {
    if field.has(kTVMFFIFieldFlagBitMaskDefaultFromFactory) {
        return None;
    }
    let default = field.default().ok()??;
    let mut out = String::new();
    match default.type_index() {
        kTVMFFINone => out.push_str("null"),
        kTVMFFIBool => out.push_str(if default.get::<bool>().ok()? { "true" } else { "false" }),
        kTVMFFIInt => out = alloc::format!("{}", default.get::<i64>().ok()?),
        kTVMFFIFloat => out = alloc::format!("{:?}", default.get::<f64>().ok().filter(|x| x.is_finite())?),
        _ => quote(default.get::<&str>().ok()?, &mut out),
    }
    Some(out)
}

fn type_info(type_index: i32) -> Result<TypeInfo> {
    match TypeInfo::from_index(type_index) {
        Some(info) => Ok(info),
        None => bail!("InternalError", "Cannot find type info for type_index={type_index}"),
    }
}

/// Creates an object of a type. The arguments are positional arguments, optionally followed by the keyword
/// sentinel (a marker object) and by alternating names and values of named arguments.
fn construct(type_index: i32, args: Args<'_>) -> Result<Any> {
    let info = type_info(type_index)?;
    let key = info.key();
    let fields: Vec<Field> = info.fields().collect();
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
        let known = fields.iter().position(|field| field.name() == name);
        match known.filter(|at| !fields[*at].has(kTVMFFIFieldFlagBitMaskInitOff)) {
            None => bail!("TypeError", "{key}.__ffi_init__() got an unexpected keyword argument '{name}'"),
            Some(at) if values[at].is_some() => {
                bail!("TypeError", "{key}.__ffi_init__() got multiple values for argument '{name}'")
            }
            Some(at) => values[at] = Some(&pair[1]),
        }
    }
    make(info, "__ffi_init__()", fields.into_iter().zip(values))
}

/// Names for error messages: the type of the object to create, and the function that creates it.
#[derive(Clone, Copy)]
struct ConstructorName<'a> {
    info: TypeInfo,
    function: &'a str,
}

impl fmt::Display for ConstructorName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.function.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{}", self.info.key(), self.function)
    }
}

/// Creates an object of a type. Arguments: the key or index of the type, followed by alternating names and values of
/// its fields.
fn from_packed_args(args: Args<'_>) -> Result<Any> {
    let Some((first, pairs)) = args.as_slice().split_first().filter(|(_, pairs)| pairs.len().is_multiple_of(2))
    else {
        bail!(
            "TypeError",
            "ffi.MakeObjectFromPackedArgs: expected a type, followed by a name and a value for each field"
        );
    };
    let info = match first.get::<&str>() {
        Ok(key) => {
            TypeInfo::from_key(key).ok_or_else(|| anyfn::error!("TypeError", "Cannot find type `{key}`"))?
        }
        Err(_) => type_info(first.get::<i32>()?)?,
    };
    let key = info.key();
    let fields: Vec<Field> = info.fields().collect();
    let mut values: Vec<Option<&AnyView<'_>>> = Vec::new();
    values.resize(fields.len(), None);
    for pair in pairs.chunks_exact(2) {
        let name = pair[0].get::<&str>()?;
        // A field of the type itself takes precedence over one of an ancestor.
        let Some(at) = fields.iter().rposition(|field| field.name() == name) else {
            let is_given = |field: &str| {
                pairs.chunks_exact(2).any(|pair| pair[0].get::<&str>().is_ok_and(|given| given == field))
            };
            let open = fields.iter().map(|field| field.name()).filter(|field| !is_given(field));
            let near = anyfn::__private::nearest(name, open);
            let near = near.map_or_else(String::new, |near| alloc::format!("; did you mean `{near}`?"));
            bail!("TypeError", "Type `{key}` does not have field `{name}`{near}");
        };
        values[at] = Some(&pair[1]);
    }
    make(info, "", fields.into_iter().zip(values))
}

/// Returns the indices of the fields that are positional parameters, with the required parameters first.
fn positions(fields: &[Field]) -> impl Iterator<Item = usize> {
    let off = kTVMFFIFieldFlagBitMaskInitOff | kTVMFFIFieldFlagBitMaskKwOnly;
    let select = |defaults: bool| {
        let fits =
            move |field: &Field| !field.has(off) && field.has(kTVMFFIFieldFlagBitMaskHasDefault) == defaults;
        fields.iter().enumerate().filter(move |(_, field)| fits(field)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    select(false).into_iter().chain(select(true))
}

/// Splits the arguments of a constructor at the keyword sentinel, a marker object. The positional arguments
/// precede it; alternating names and values of named arguments follow it.
fn split<'a>(key: &str, args: &'a [AnyView<'a>]) -> Result<(&'a [AnyView<'a>], &'a [AnyView<'a>])> {
    let sentinel = sentinel::kwargs()?;
    let at = args.iter().position(|arg| arg.as_object().is_some_and(|object| object.ptr_eq(&sentinel)));
    let Some(at) = at else { return Ok((args, &[])) };
    let by_name = &args[at + 1..];
    if !by_name.len().is_multiple_of(2) {
        bail!("TypeError", "{key}.__ffi_init__() KWARGS requires an even number of key-value arguments");
    }
    Ok((&args[..at], by_name))
}

/// Creates an object of a type and sets `fields`. A field without a value receives its default. Error messages name
/// `function`.
fn make<'a>(
    info: TypeInfo,
    function: &str,
    fields: impl Iterator<Item = (Field, Option<&'a AnyView<'a>>)>,
) -> Result<Any> {
    let place = ConstructorName { info, function };
    let object = new_object(info)?;
    for (field, value) in fields {
        let default = if value.is_some() { None } else { default_of(field, place)? };
        let Some(value) = value.copied().or(default.as_ref().map(Any::as_view)) else { continue };
        // SAFETY: the field belongs to the type of the new object, and nothing else refers to the object.
        unsafe { field.set_unchecked(&object, &value) }.map_err(|error| in_field(&error, place, field))?;
    }
    // If its type requires all fields, the object becomes one of this type once they are set.
    if !anyfn::is_instance(object.type_index(), info.index()) {
        bail!(
            "TypeError",
            "{place} cannot construct the object: some of its fields have neither a value nor a default"
        );
    }
    Any::new(object)
}

/// Creates an object of a type. The caller must set its fields.
pub(crate) fn new_object(info: TypeInfo) -> Result<ObjectRef> {
    if !info.can_make() {
        bail!("TypeError", "type `{}` cannot be constructed: it has no creator and no __ffi_new__", info.key());
    }
    info.make()
}

/// Returns `error` with its message prefixed by the type, the function and the field. The kind, the
/// backtrace, the cause and the context are kept.
#[cold]
fn in_field(error: &Error, place: ConstructorName<'_>, field: Field) -> Error {
    let message = alloc::format!("{place} field '{}':\n  {}", field.name(), error.message());
    let (kind, trace) = (error.kind().as_bytes(), error.backtrace());
    let cause = error.cause().map(Error::into_object);
    let renamed = Error::try_from_texts(kind, message.as_bytes(), trace.as_bytes(), cause, error.context());
    renamed.unwrap_or_else(|| error.clone())
}

/// Returns the default of a field for which the caller passed no value. Returns `None` if the constructor has
/// no parameter for the field, and an error if the field is a required parameter.
fn default_of(field: Field, place: ConstructorName<'_>) -> Result<Option<Any>> {
    if let Some(default) = field.default()? {
        return Ok(Some(default));
    }
    if field.has(kTVMFFIFieldFlagBitMaskInitOff) {
        return Ok(None);
    }
    let only = if field.has(kTVMFFIFieldFlagBitMaskKwOnly) { "keyword-only " } else { "" };
    bail!("TypeError", "{place} missing required {only}argument: '{}'", field.name())
}
