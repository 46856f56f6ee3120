//! Functions for the package: global functions, objects, types and their fields, errors.

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIMethodInfo, TVMFFITypeRegisterMethod, kTVMFFIFieldFlagBitMaskIsStaticMethod,
};
use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, Error, Fallback, ObjectRef, PackedFunc, Signature, Source, registry};

use crate::entry::{Export, arg, entry};
use crate::env::{Res, Value};
use crate::state::Js;
use crate::{calls, error};

/// Functions that this module adds to the exports.
pub(crate) const EXPORTS: &[Export] = &[
    ("getGlobal", get_global),
    ("requireGlobal", require_global),
    ("findGlobal", find_global),
    ("moduleFunction", module_function),
    ("setGlobal", set_global),
    ("removeGlobal", remove_global),
    ("listGlobals", list_globals),
    ("wrapFunction", wrap_function),
    ("release", release),
    ("sweep", sweep),
    ("live", live),
    ("isAlive", is_alive),
    ("address", address),
    ("typeIndex", type_index),
    ("typeKey", type_key),
    ("typeInfo", type_info),
    ("isInstance", is_instance),
    ("getField", get_field),
    ("setField", set_field),
    ("addMethod", add_method),
    ("typeAttribute", type_attribute),
    ("errorTexts", error_texts),
    ("errorCause", error_cause),
    ("signature", signature),
    ("arrange", arrange),
];

fn int(js: Js<'_>, args: &[Value], index: usize) -> Res<i32> {
    Ok(js.env.number(arg(js, args, index)?)? as i32)
}

fn text(js: Js<'_>, args: &[Value], index: usize) -> Res<String> {
    js.env.to_text(arg(js, args, index)?)
}

fn object(js: Js<'_>, args: &[Value]) -> Res<ObjectRef> {
    js.object_at(arg(js, args, 0)?)
}

fn done<T>(js: Js<'_>, result: Result<T, Error>) -> Res<T> {
    result.map_err(|error| js.throw(error))
}

entry! {
    /// `getGlobal(name)`: returns a global function, or undefined.
    fn get_global(js: Js<'_>, args: &[Value]) {
        match registry::find(&text(js, args, 0)?) {
            Some(function) => js.wrap(function.into_object()),
            None => js.env.undefined(),
        }
    }
}

entry! {
    /// `findGlobal(name)`: as `getGlobal`, and calls of the function that is returned are faster.
    fn find_global(js: Js<'_>, args: &[Value]) {
        match registry::find(&text(js, args, 0)?) {
            Some(function) => js.wrap_as(function.into_object(), Some(calls::call_direct)),
            None => js.env.undefined(),
        }
    }
}

entry! {
    /// `requireGlobal(name)`: as `findGlobal`, and throws if there is no such function.
    fn require_global(js: Js<'_>, args: &[Value]) {
        let function = done(js, registry::get(&text(js, args, 0)?))?;
        js.wrap_as(function.into_object(), Some(calls::call_direct))
    }
}

entry! {
    /// `moduleFunction(slot, name, imports)`: returns a function of a module, or null. Its calls are as fast as those of `findGlobal`.
    fn module_function(js: Js<'_>, args: &[Value]) {
        let (module, name) = (object(js, args)?, text(js, args, 1)?);
        let imports = js.lower_owned(arg(js, args, 2)?)?;
        let find = done(js, registry::get("ffi.ModuleGetFunction"))?;
        let found: Any = done(js, find.call((module, name.as_str(), &imports)))?;
        match found.into_object() {
            Some(function) => js.lift_function(function, Some(calls::call_direct)),
            None => js.env.null(),
        }
    }
}

entry! {
    /// `setGlobal(name, function, override)`: registers a global function.
    fn set_global(js: Js<'_>, args: &[Value]) {
        let name = text(js, args, 0)?;
        let function = js.lower_owned(arg(js, args, 1)?)?;
        let function = done(js, function.get::<PackedFunc>())?;
        let registration = registry::register(&name);
        let registration = if js.env.is_true(arg(js, args, 2)?) { registration.overriding() } else { registration };
        done(js, registration.set(&function))?;
        js.env.undefined()
    }
}

entry! {
    /// `removeGlobal(name)`: returns true if the global function existed.
    fn remove_global(js: Js<'_>, args: &[Value]) {
        let removed = done(js, registry::remove(&text(js, args, 0)?))?;
        js.env.boolean(removed)
    }
}

entry! {
    /// `listGlobals()`: returns the names of all global functions.
    fn list_globals(js: Js<'_>, _args: &[Value]) {
        let names = done(js, registry::list())?;
        js.env.array_of(names, |name| js.env.string(name.as_bytes()))
    }
}

entry! {
    /// `wrapFunction(function, big)`: makes a native function that calls a JavaScript function, and its wrapper.
    fn wrap_function(js: Js<'_>, args: &[Value]) {
        let big = js.env.is_true(arg(js, args, 1)?);
        match js.callback(arg(js, args, 0)?, big)?.into_object() {
            Some(function) => js.wrap(function),
            None => js.env.undefined(),
        }
    }
}

entry! {
    /// `release(slot)`: releases the object of a slot. Does nothing if it was released.
    fn release(js: Js<'_>, args: &[Value]) {
        let slot = js.env.number(arg(js, args, 0)?)?;
        let index = js.state.slots.borrow().get(slot).map(|(index, _)| index);
        if let Some(index) = index {
            js.release(index);
        }
        js.env.undefined()
    }
}

entry! {
    /// `sweep(limit)`: releases objects whose wrappers are gone, among at most `limit` objects.
    fn sweep(js: Js<'_>, args: &[Value]) {
        let limit = js.env.number(arg(js, args, 0)?)?;
        js.sweep(limit as usize);
        js.env.undefined()
    }
}

entry! {
    /// `live()`: returns the number of slots in use.
    fn live(js: Js<'_>, _args: &[Value]) {
        let live = js.state.slots.borrow().live();
        js.env.double(live as f64)
    }
}

entry! {
    /// `isAlive(slot)`: returns true if the slot was not released.
    fn is_alive(js: Js<'_>, args: &[Value]) {
        let slot = js.env.number(arg(js, args, 0)?)?;
        let alive = js.state.slots.borrow().get(slot).is_some();
        js.env.boolean(alive)
    }
}

entry! {
    /// `address(slot)`: returns the address of an object, which identifies it.
    fn address(js: Js<'_>, args: &[Value]) {
        let object = object(js, args)?;
        js.env.bigint_unsigned(object.as_handle().addr() as u64)
    }
}

entry! {
    /// `typeIndex(key)`: returns the index of a type, or -1.
    fn type_index(js: Js<'_>, args: &[Value]) {
        let index = TypeInfo::from_key(&text(js, args, 0)?).map_or(-1, TypeInfo::index);
        js.env.int32(index)
    }
}

entry! {
    /// `typeKey(index)`: returns the key of a type.
    fn type_key(js: Js<'_>, args: &[Value]) {
        js.env.string(anyfn::type_key(int(js, args, 0)?).as_bytes())
    }
}

entry! {
    /// `typeInfo(index)`: returns `[key, parent, doc, fields, methods]`, or undefined. A field is `[name, doc, writable, schema]`, a
    /// method `[name, doc, isStatic, function]`.
    fn type_info(js: Js<'_>, args: &[Value]) {
        let Some(info) = TypeInfo::from_index(int(js, args, 0)?) else { return js.env.undefined() };
        let string = |text: &str| js.env.string(text.as_bytes());
        let fields = js.env.array_of(info.own_fields(), |field| {
            let schema = field.schema().to_string();
            js.env.array(&[
                string(field.name())?,
                string(field.doc())?,
                js.env.boolean(field.is_writable())?,
                string(&schema)?,
            ])
        })?;
        let methods = js.env.array_of(info.own_methods(), |method| {
            let function = match method.function() {
                Ok(function) => js.lift_object(function.into_object())?,
                Err(_) => js.env.undefined()?,
            };
            js.env.array(&[
                string(method.name())?,
                string(method.doc())?,
                js.env.boolean(method.is_static())?,
                function,
            ])
        })?;
        let parent = js.env.int32(info.parent().map_or(-1, TypeInfo::index))?;
        js.env.array(&[string(info.key())?, parent, string(info.doc())?, fields, methods])
    }
}

entry! {
    /// `isInstance(index, parent)`: returns true if a type is or derives from another one.
    fn is_instance(js: Js<'_>, args: &[Value]) {
        let is = anyfn::is_instance(int(js, args, 0)?, int(js, args, 1)?);
        js.env.boolean(is)
    }
}

/// Returns the field at a position of the type with an index, of which the object must be an instance.
fn field_of(js: Js<'_>, object: &ObjectRef, args: &[Value]) -> Res<Field> {
    let (index, position) = (int(js, args, 1)?, int(js, args, 2)?);
    let field =
        TypeInfo::from_index(index).and_then(|info| info.own_fields().nth(usize::try_from(position).ok()?));
    match field {
        Some(field) if anyfn::is_instance(object.type_index(), index) => Ok(field),
        _ => js.env.type_error(&format!("an object of type {} has no such field", object.type_key())),
    }
}

entry! {
    /// `getField(slot, typeIndex, position, big)`: reads a field.
    fn get_field(js: Js<'_>, args: &[Value]) {
        let object = object(js, args)?;
        let field = field_of(js, &object, args)?;
        // SAFETY: the object is an instance of the field's type.
        let value = done(js, unsafe { field.get_unchecked(&object) })?;
        js.lift_owned(value, js.env.is_true(arg(js, args, 3)?))
    }
}

entry! {
    /// `setField(slot, typeIndex, position, value)`: sets a field.
    fn set_field(js: Js<'_>, args: &[Value]) {
        let object = object(js, args)?;
        let value = js.lower_owned(arg(js, args, 3)?)?;
        let field = field_of(js, &object, args)?;
        if !field.is_writable() {
            return js.env.type_error(&format!("the field '{}' of {} is read-only", field.name(), object.type_key()));
        }
        // SAFETY: the object is an instance of the field's type.
        done(js, unsafe { field.set_unchecked(&object, &value.as_view()) })?;
        js.env.undefined()
    }
}

entry! {
    /// `addMethod(typeIndex, name, function, doc, isStatic)`: registers a method of a type.
    fn add_method(js: Js<'_>, args: &[Value]) {
        let (name, doc) = (text(js, args, 1)?, text(js, args, 3)?);
        let function = js.lower_owned(arg(js, args, 2)?)?;
        let is_static = js.env.is_true(arg(js, args, 4)?);
        let info = TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
            metadata: TVMFFIByteArray::EMPTY,
            flags: if is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
            method: *function.as_raw(),
        };
        // SAFETY: everything is borrowed for the call; the type keeps a reference to the function.
        if unsafe { TVMFFITypeRegisterMethod(int(js, args, 0)?, &info) } != 0 {
            return Err(js.throw(Error::take_raised()));
        }
        js.env.undefined()
    }
}

entry! {
    /// `typeAttribute(index, name, big)`: returns an attribute of a type, or undefined.
    fn type_attribute(js: Js<'_>, args: &[Value]) {
        let Some(info) = TypeInfo::from_index(int(js, args, 0)?) else { return js.env.undefined() };
        match info.attribute(&text(js, args, 1)?) {
            Some(value) => js.lift_owned(value, js.env.is_true(arg(js, args, 2)?)),
            None => js.env.undefined(),
        }
    }
}

fn error_at(js: Js<'_>, args: &[Value]) -> Res<Error> {
    match Error::try_from_object(object(js, args)?) {
        Ok(error) => Ok(error),
        Err(_) => js.env.type_error("expected a native error"),
    }
}

entry! {
    /// `errorTexts(slot)`: returns `[kind, message, backtrace]` of a native error.
    fn error_texts(js: Js<'_>, args: &[Value]) {
        let texts = error::texts(js.env, &error_at(js, args)?)?;
        js.env.array(&texts)
    }
}

entry! {
    /// `errorCause(slot)`: returns the cause of a native error as an exception, or undefined.
    fn error_cause(js: Js<'_>, args: &[Value]) {
        match error_at(js, args)?.cause() {
            Some(cause) => js.lift_object(cause.into_object()),
            None => js.env.undefined(),
        }
    }
}

entry! {
    /// `signature(slot)`: returns the signature of a function as JSON, or undefined.
    fn signature(js: Js<'_>, args: &[Value]) {
        let function = done(js, Any::from(object(js, args)?).get::<PackedFunc>())?;
        match function.signature() {
            Some(text) => js.env.string(text.as_bytes()),
            None => js.env.undefined(),
        }
    }
}

entry! {
    /// `arrange(slot, args, names, values)`: returns the positional arguments of a call with named arguments; undefined if the function
    /// takes names itself or has no signature.
    fn arrange(js: Js<'_>, args: &[Value]) {
        let function = done(js, Any::from(object(js, args)?).get::<PackedFunc>())?;
        let Some(told) = function.signature() else { return js.env.undefined() };
        let signature = done(js, Signature::parse(&told))?;
        if signature.takes_names {
            return js.env.undefined();
        }
        let positional = js.env.elements(arg(js, args, 1)?)?;
        let names = js.env.elements(arg(js, args, 2)?)?;
        let names = names.into_iter().map(|name| js.env.to_text(name)).collect::<Res<Vec<String>>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let values = js.env.elements(arg(js, args, 3)?)?;
        let name = if signature.name.is_empty() { "function" } else { &signature.name };
        let sources = done(js, signature.arrange(name, positional.len(), &names))?;
        let params = signature.params.as_deref().unwrap_or_default();
        js.env.array_of(sources.into_iter().enumerate(), |(index, source)| match source {
            Source::Positional(from) => Ok(positional[from]),
            Source::Named(from) => arg(js, &values, from),
            Source::Default => match &params[index].default {
                Fallback::Value(value) => js.lift_owned(value.clone(), false),
                Fallback::Required | Fallback::Unknown => js.env.null(),
            },
        })
    }
}
