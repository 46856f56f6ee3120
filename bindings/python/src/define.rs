//! Object types defined in Python: `@anyfn.object("my.Pair")`.
//!
//! The Python code reads the class statement; this module defines the type with its fields, through `ffi.TypeDefine` as in
//! every language. A [`Record`] contains what Python needs to set fields without a call, and a [`Plan`] makes instances.

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIMethodInfo, TVMFFITypeRegisterAttr, TVMFFITypeRegisterMethod,
    kTVMFFIFieldFlagBitMaskInitOff as INIT_OFF, kTVMFFIFieldFlagBitMaskIsStaticMethod,
    kTVMFFIFieldFlagBitMaskKwOnly as KW_ONLY, kTVMFFIFieldFlagBitMaskWritable as WRITABLE, kTVMFFIObject,
};
use anyfn::record::{FieldKind, Maker, SLOTS_ATTRIBUTE};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, AnyView, Array, Map, registry};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::owned::lower_owned;
use crate::plan::{self, Fallback, Passed, Plan, plan_of};
use crate::py::{self, Obj, Own, Raised, Res, names};
use crate::record::{Record, keep, record_of};
use crate::{classes, error, gil, object, packed, python_function};

fn fail<T>(message: &str) -> Res<T> {
    py::raise(py::exceptions::type_error(), message)
}

/// Returns the index and key of the type for which a class is registered. For a class that is not
/// registered, uses its nearest registered base. Returns None if no such base exists. Called from
/// the Python code of the package.
pub(crate) fn type_of(class: Obj<'_>) -> Res<Own> {
    match classes::type_of_class(class)? {
        Some(index) => {
            let key = anyfn::type_key(i32::try_from(index).unwrap_or(-1));
            py::pair(py::int(index)?, py::string(key.as_bytes())?)
        }
        None => Ok(py::none()),
    }
}

// ---- Definition of a type

/// Returns the index of the parent type of a new class: the type of the nearest base that is
/// registered for a type, or `ffi.Object` if no such base exists.
fn parent_of(class: Obj<'_>) -> Res<i32> {
    let order = class.attr(names::MRO.get())?;
    for index in 1..order.obj().tuple_len() {
        let Some(base) = py::tuple_get(order.obj(), index) else { break };
        if base.is_subclass_of(object::CLASS.ptr())
            && let Some(known) = classes::type_of_class(base)?
        {
            return Ok(i32::try_from(known).unwrap_or(kTVMFFIObject));
        }
    }
    Ok(kTVMFFIObject)
}

/// A field as declared in the class statement.
struct FieldSpec<'a> {
    name: String,
    /// Type of the field as a JSON schema, as in signatures.
    schema: String,
    /// Type of the field as shown in messages.
    shown: String,
    doc: String,
    /// Combination of `kTVMFFIFieldFlagBit*` flags.
    flags: i64,
    /// Kind of the field's default: 0 for no default, 1 for a value, 2 for a factory that makes the value.
    state: i64,
    default: Obj<'a>,
}

impl<'a> FieldSpec<'a> {
    fn read(item: Obj<'a>) -> Res<FieldSpec<'a>> {
        let part =
            |part| py::tuple_get(item, part).ok_or(Raised).or_else(|Raised| fail("invalid field description"));
        let int = |value: Obj<'_>| {
            value.int().map_err(|_| Raised).or_else(|Raised| fail("invalid field description"))
        };
        Ok(FieldSpec {
            name: part(0)?.to_text()?,
            schema: part(1)?.to_text()?,
            shown: part(2)?.to_text()?,
            doc: part(3)?.to_text()?,
            flags: int(part(4)?)?,
            state: int(part(5)?)?,
            default: part(6)?,
        })
    }
}

/// Returns, for each field of the parent type, the default and the way in which the constructor
/// takes the field. Both come from the constructor of the nearest base if that base defined the
/// parent type, and otherwise from the reflected fields.
fn inherited(parent: &Record, class: Obj<'_>) -> Res<(Vec<Fallback>, Vec<Passed>)> {
    let base = class.attr_opt(names::CONSTRUCTOR.get())?;
    if let Some(base) = base.as_ref().and_then(|base| plan_of(base.obj()))
        && base.record.type_index == parent.type_index
    {
        return Ok((base.defaults.iter().map(Fallback::copy).collect(), base.passed.clone()));
    }
    let mut defaults = Vec::new();
    for field in &parent.fields {
        // A value made by a factory belongs to one object, so the factory is called for each object.
        let default = match field.info.factory().map_err(error::raise)? {
            Some(factory) => Fallback::Factory(packed::wrap(factory.into_object(), None, false)?),
            None => match field.info.default().map_err(error::raise)? {
                Some(value) => Fallback::Value(value),
                None => Fallback::Required,
            },
        };
        defaults.push(default);
    }
    Ok((defaults, parent.fields.iter().map(|field| passed(field.info.flags())).collect()))
}

fn passed(flags: i64) -> Passed {
    match flags {
        flags if flags & INIT_OFF != 0 => Passed::Not,
        flags if flags & KW_ONLY != 0 => Passed::ByName,
        _ => Passed::ByPosition,
    }
}

/// Defines an object type for a Python class, and makes the class's constructor.
///
/// `fields` is a list of `(name, schema, shown, doc, flags, state, default)`: `schema` is JSON as in signatures, `shown`
/// is the type as shown in messages, and `state` is the kind of default: 0 for none, 1 for a value, 2 for a factory.
pub(crate) fn define(
    class: Obj<'_>,
    key: &str,
    fields: Obj<'_>,
    frozen: bool,
    doc: &str,
    structural: i64,
) -> Res<Own> {
    let class_name = class.attr(names::NAME.get())?.obj().to_text()?;
    let parent_index = parent_of(class)?;
    let made;
    let parent = match record_of(parent_index) {
        Some(parent) => parent,
        None => {
            let name = String::from(anyfn::type_key(parent_index));
            made = Record::of(parent_index, name, &[])
                .ok_or(Raised)
                .or_else(|Raised| fail("invalid parent type"))?;
            &made
        }
    };
    check_known(key)?;
    let above = parent.fields.iter().filter(|field| field.kind.is_some());
    if above.clone().any(|field| field.is_writable() == frozen) {
        // As for data classes, the owner of a frozen object may rely on it being frozen.
        let (own, other) = if frozen { ("frozen", "is not") } else { ("not frozen", "is") };
        return fail(&format!("{class_name} is {own} but its parent {} {other}", parent.class));
    }
    let (mut defaults, mut passing) = inherited(parent, class)?;
    // A field may have the type that is being defined. Until the type exists, any object is accepted for it.
    let find = |name: &str| if name == key { Some(kTVMFFIObject) } else { anyfn::type_index_of(name) };
    let (mut own, mut shown) = (Vec::new(), Vec::new());
    for at in 0..py::list_len(fields) {
        let Some(item) = py::list_get(fields, at) else { break };
        let told = FieldSpec::read(item.obj())?;
        let at = At::Field { class: &class_name, name: &told.name };
        let kind = FieldKind::parse(&told.schema, &find).map_err(error::raise)?;
        let default = match told.state {
            0 => Fallback::Required,
            1 => match kind.accept(lower_owned(told.default, &at)?) {
                Ok(value) => Fallback::Value(value),
                Err(_) => {
                    let got = told.default.class_name();
                    return at.raise(
                        py::exceptions::type_error(),
                        &format!("expected {} but got {got}", told.shown),
                    );
                }
            },
            _ => Fallback::Factory(told.default.to_own()),
        };
        match parent.fields.iter().position(|known| known.name == told.name) {
            Some(place) if parent.fields[place].kind.is_none() || parent.fields[place].kind == Some(kind) => {
                // The field is declared again: only its default and the way of passing it change.
                defaults[place] = default;
                passing[place] = passed(told.flags);
                continue;
            }
            Some(place) => {
                return fail(&format!(
                    "field '{}' of {class_name}: the parent declares it as {}",
                    told.name, parent.fields[place].shown
                ));
            }
            None => {}
        }
        own.push(tell(&told, &default, frozen)?);
        shown.push((told.name, told.shown));
        defaults.push(default);
        passing.push(passed(told.flags));
    }
    check_order(&class_name, parent, &shown, &defaults, &passing)?;
    let index = type_define(key, parent_index, own, doc, structural)?;
    let record = match record_of(index) {
        Some(record) => record,
        None => {
            let record = Record::of(index, class_name, &shown).ok_or(Raised);
            keep(record.or_else(|Raised| fail("cannot find the defined type"))?)
        }
    };
    let names = record.fields.iter().map(|field| intern(field.name)).collect::<Res<Vec<Own>>>()?;
    let post_init = class.attr_opt(names::POST_INIT.get())?.is_some();
    let init = class.attr(names::INIT.get())?;
    let own_init = !init.obj().is(object::CLASS.get().attr(names::INIT.get())?.as_ptr());
    let Some(maker) = Maker::of(index) else {
        return fail("the type does not describe how its objects are constructed");
    };
    let positional = (0..passing.len()).filter(|index| passing[*index] == Passed::ByPosition).collect();
    let class = class.as_ptr();
    let plan = Plan { record, maker, class, names, defaults, passed: passing, positional, post_init, own_init };
    plan::hold(plan)
}

/// Checks a type key for a new Python class. Raises `TypeError` if native code has already defined
/// a type with this key. The key of a type that Python code has defined is accepted.
fn check_known(key: &str) -> Res<()> {
    let Some(index) = anyfn::type_index_of(key) else { return Ok(()) };
    let Some(info) = TypeInfo::from_index(index) else { return Ok(()) };
    if info.attribute(SLOTS_ATTRIBUTE).is_none() {
        return fail(&format!(
            "type '{key}' is defined by native code; anyfn.register_object gives it a class, or choose another key"
        ));
    }
    Ok(())
}

/// Raises `TypeError` if a positional constructor argument without a default follows one that has a
/// default.
fn check_order(
    class: &str,
    parent: &Record,
    own: &[(String, String)],
    defaults: &[Fallback],
    passing: &[Passed],
) -> Res<()> {
    let names = parent.fields.iter().map(|field| field.name).chain(own.iter().map(|(name, _)| name.as_str()));
    let mut optional: Option<&str> = None;
    for ((name, default), passed) in names.zip(defaults).zip(passing) {
        match (default, optional) {
            _ if *passed != Passed::ByPosition => {}
            (Fallback::Required, Some(before)) => {
                return fail(&format!(
                    "field '{name}' of {class} without a default follows '{before}', which has one"
                ));
            }
            (Fallback::Required, None) => {}
            _ => optional = Some(name),
        }
    }
    Ok(())
}

/// Describes a field as the `Map` that `ffi.TypeDefine` takes.
fn tell(told: &FieldSpec<'_>, default: &Fallback, frozen: bool) -> Res<Any> {
    let text = |text: &str| Any::from(anyfn::String::from(text));
    let flags = told.flags | if frozen { 0 } else { WRITABLE };
    let mut pairs = vec![
        ("name", text(&told.name)),
        ("type", text(&told.schema)),
        ("shown", text(&told.shown)),
        ("doc", text(&told.doc)),
        ("flags", Any::new(flags).map_err(error::raise)?),
    ];
    match default {
        Fallback::Required => {}
        Fallback::Value(value) => pairs.push(("default", value.clone())),
        Fallback::Factory(factory) => {
            pairs.push(("default_factory", python_function::function_object(factory.obj())?));
        }
    }
    Map::<Any, Any>::try_from_iter(pairs).map(Any::from).map_err(error::raise)
}

fn type_define(key: &str, parent: i32, fields: Vec<Any>, doc: &str, structural: i64) -> Res<i32> {
    let define = || -> anyfn::Result<i32> {
        let doc = Any::from(anyfn::String::from(doc));
        let options = [("doc", doc), ("structural", Any::new(structural)?)];
        let args = [
            Any::from(anyfn::String::from(key)),
            Any::new(parent)?,
            Array::<Any>::try_from_iter(fields)?.into(),
            Map::<Any, Any>::try_from_iter(options)?.into(),
        ];
        let views = args.each_ref().map(Any::as_view);
        let views: &[AnyView<'_>] = &views;
        registry::get("ffi.TypeDefine")?.call_views(views)?.get::<i32>()
    };
    gil::counted(define).map_err(error::raise)
}

/// Registers a Python function as a method of a type.
pub(crate) fn add_method(index: i32, name: &str, function: Obj<'_>, doc: &str, is_static: bool) -> Res<()> {
    let function = python_function::function_object(function)?;
    let info = TVMFFIMethodInfo {
        name: TVMFFIByteArray::from_slice(name.as_bytes()),
        doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
        metadata: TVMFFIByteArray::EMPTY,
        flags: if is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
        method: *function.as_raw(),
    };
    // SAFETY: everything is borrowed for the call; the type keeps a reference to the function.
    if unsafe { TVMFFITypeRegisterMethod(index, &info) } != 0 {
        return Err(error::raise_from_native(-1));
    }
    Ok(())
}

/// Prefix of type attributes that Python code must not register. They are reserved for the runtime and native
/// code, whose memory safety depends on the values of these attributes.
const RESERVED: &str = "__anyfn_";

/// Registers a value as an attribute of a type. Each attribute of a type can be registered once.
pub(crate) fn add_attribute(index: i32, name: &str, value: Obj<'_>) -> Res<()> {
    if name.starts_with(RESERVED) {
        let message = format!("expected an attribute that does not begin with `{RESERVED}`, got `{name}`");
        return py::raise(py::exceptions::value_error(), &message);
    }
    let value = lower_owned(value, &At::Value)?;
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: everything is borrowed for the call; the type keeps a reference to the value.
    if unsafe { TVMFFITypeRegisterAttr(index, &name, value.as_raw()) } != 0 {
        return Err(error::raise_from_native(-1));
    }
    Ok(())
}

fn intern(text: &str) -> Res<Own> {
    let mut name = py::string(text.as_bytes())?.into_ptr();
    // SAFETY: this is a new string, whose reference is exchanged for one to the interned string.
    unsafe { ffi::PyUnicode_InternInPlace(&mut name) };
    // SAFETY: the pointer is never NULL.
    unsafe { Own::from_result(name) }
}
