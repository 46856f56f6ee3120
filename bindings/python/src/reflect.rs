//! Descriptions of types for the Python code of the package, and copies of objects with changes to some fields.

use anyfn::abi::kTVMFFIFieldFlagBitMaskHasDefault;
use anyfn::reflection::{Field, Method, TypeInfo};
use anyfn::{AnyView, PackedFunc};

use crate::at::At;
use crate::owned::lower_owned;
use crate::py::{self, Obj, Own, Raised, Res, names};
use crate::record::record_of;
use crate::{error, gil, lift, object, packed, plan};

fn text(text: &str) -> Res<Own> {
    py::string(text.as_bytes())
}

/// Describes a type as `(key, index, parent, doc, structural, fields, methods)`, or returns None if no type has this
/// index. `parent` is the index of the parent type, or -1. Each field is `(owner, name, schema, doc, flags,
/// default)`, each method `(owner, name, doc, static, function)`. Fields and methods of ancestors come first, and
/// `owner` is the index of the type that adds the field or method.
pub(crate) fn type_info(index: i32) -> Res<Own> {
    let Some(info) = TypeInfo::from_index(index) else { return Ok(py::none()) };
    let (mut fields, mut methods) = (Vec::new(), Vec::new());
    for owner in info.lineage() {
        for field in owner.own_fields() {
            fields.push(describe_field(owner, field)?);
        }
        for method in owner.own_methods() {
            methods.push(describe_method(owner, method)?);
        }
    }
    py::tuple(vec![
        text(info.key())?,
        py::int(info.index().into())?,
        py::int(info.parent().map_or(-1, TypeInfo::index).into())?,
        text(info.doc())?,
        py::int(info.structural_kind().into())?,
        py::list(fields)?,
        py::list(methods)?,
    ])
}

fn describe_field(owner: TypeInfo, field: Field) -> Res<Own> {
    let default = match field.factory().map_err(error::raise)? {
        Some(factory) => packed::wrap(factory.into_object(), None, false)?,
        None if field.has(kTVMFFIFieldFlagBitMaskHasDefault) => {
            let default = field.default().map_err(error::raise)?;
            default.map_or_else(|| Ok(py::none()), lift::lift_owned)?
        }
        None => py::none(),
    };
    py::tuple(vec![
        py::int(owner.index().into())?,
        text(field.name())?,
        text(&anyfn::__private::field_schema(field.metadata()))?,
        text(field.doc())?,
        py::int(field.flags())?,
        default,
    ])
}

fn describe_method(owner: TypeInfo, method: Method) -> Res<Own> {
    let made = method.function().map_err(error::raise)?;
    py::tuple(vec![
        py::int(owner.index().into())?,
        text(method.name())?,
        text(method.doc())?,
        py::boolean(method.is_static()),
        packed::wrap(made.into_object(), None, false)?,
    ])
}

/// Makes a copy of an object. `changes` is a dictionary that maps the names of fields to new
/// values. All other fields of the copy keep their values.
pub(crate) fn replace(this: Obj<'_>, changes: Obj<'_>) -> Res<Own> {
    let Some(old) = object::reference_of(this) else {
        let message = format!("replace: expected an object with fields but got {}", this.class_name());
        return py::raise(py::exceptions::type_error(), &message);
    };
    let info = TypeInfo::of(&old);
    let copy = info.lineage().last().and_then(|info| info.attribute("__ffi_shallow_copy__"));
    let Some(copy) = copy.and_then(|copy| copy.get::<PackedFunc>().ok()) else {
        let message = format!(
            "cannot copy an object of type {}: its type has no copy function (`__ffi_shallow_copy__`)",
            info.key()
        );
        return py::raise(py::exceptions::type_error(), &message);
    };
    let view = [AnyView::from(&old)];
    let made = gil::counted(|| copy.call_views(&view)).map_err(error::raise)?.into_object();
    let Some(made) = made.filter(|made| made.is_unique() && made.type_index() == old.type_index()) else {
        return py::raise(
            py::exceptions::type_error(),
            "the copy function of the type did not return a new object of the same type",
        );
    };
    let class = this.class_name();
    let mut position = 0;
    while let Some((name, value)) = py::dict_next(changes, &mut position) {
        let name = name.obj().to_text()?;
        if let Some(record) = record_of(info.index())
            && let Some(at) = record.fields.iter().position(|field| field.name == name)
        {
            record.set(&made, at, value.obj())?;
            continue;
        }
        let Some(field) = info.field(&name) else {
            let near = anyfn::__private::nearest(&name, info.fields().map(Field::name));
            let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            let message = format!("{class} has no field '{name}'{near}");
            return py::raise(py::exceptions::attribute_error(), &message);
        };
        let value = lower_owned(value.obj(), &At::Field { class: &class, name: &name })?;
        // SAFETY: this is a field of the object's type, and the object is not shared yet.
        gil::counted(|| unsafe { field.set_unchecked(&made, &value.as_view()) }).map_err(error::raise)?;
    }
    let made = object::wrap_as(this.type_ptr(), made)?;
    if let Some(constructor) = this.class().attr_opt(names::CONSTRUCTOR.get())? {
        plan::finish(made.obj(), constructor.obj()).map_err(|Raised| Raised)?;
    }
    Ok(made)
}
