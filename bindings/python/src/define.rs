//! Object types that are defined in Python: `@anyfn.object("my.Pair")`.
//!
//! The Python part reads the class statement; here the type is registered with its fields, and instances are made.
//! What concerns the type ([`Layout`]) lives for ever; names, defaults and factories belong to the class, as an object
//! of the class `Constructor` that is its `__constructor__`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIObject, TVMFFITypeGetOrAllocIndex, TVMFFITypeMetadata,
    TVMFFITypeRegisterField, TVMFFITypeRegisterMetadata, kTVMFFIAny, kTVMFFIFieldFlagBitMaskWritable,
    kTVMFFIFieldFlagBitSetterIsFunctionObj, kTVMFFINone, kTVMFFIObject,
};
use anyfn::{Any, ObjectRef, PackedFunc, Signature};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::lower::lower_owned;
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::record::{self, Field, Kind, Layout};
use crate::types::{self, Class};
use crate::{construct, error, lift, object};

/// What makes the instances of one class.
struct Plan {
    layout: &'static Layout,
    /// The class; only compared.
    class: *mut PyObject,
    /// Interned name of each field.
    names: Vec<Own>,
    defaults: Vec<Fallback>,
    /// Whether the class has a `__post_init__`.
    post_init: bool,
    /// Whether the class has an `__init__` of its own, which may set the fields after this constructor.
    own_init: bool,
}

/// What a field gets that is not passed.
enum Fallback {
    Required,
    Value(Any),
    /// What this returns.
    Factory(Own),
}

/// Memory of a `Constructor`.
#[repr(C)]
struct Holder {
    base: PyObject,
    /// Owned.
    plan: *mut Plan,
}

/// The class `Constructor`.
pub(crate) static CLASS: Global = Global::new();

/// The types that are defined in Python, by index: the parent's index, and the layout once it is known.
static DEFINED: Mutex<BTreeMap<i32, (i32, Option<&'static Layout>)>> = Mutex::new(BTreeMap::new());

pub(crate) fn init() -> Res<()> {
    let class = Class {
        name: c"anyfn._core.Constructor",
        size: size_of::<Holder>(),
        base_for_others: false,
        flags: 0,
        base: None,
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

unsafe extern "C" fn dealloc(holder: *mut PyObject) {
    // SAFETY: an instance of `Constructor`.
    let plan = unsafe { (*holder.cast::<Holder>()).plan };
    if !plan.is_null() {
        // SAFETY: made by `Box`, owned by the instance.
        drop(unsafe { Box::from_raw(plan) });
    }
    // SAFETY: the end of the destructor.
    unsafe { types::free(holder) };
}

/// The plan of a constructor, if it is one of a class that is defined in Python.
#[inline]
fn plan_of<'a>(constructor: Obj<'a>) -> Option<&'a Plan> {
    if !ptr::eq(constructor.type_ptr().cast(), CLASS.ptr()) {
        return None;
    }
    // SAFETY: an instance of `Constructor`.
    let plan = unsafe { (*constructor.as_ptr().cast::<Holder>()).plan };
    // SAFETY: NULL or owned by the constructor, which lives as long.
    unsafe { plan.as_ref() }
}

// ---- Making instances

/// Makes the native object of an instance whose class has such a constructor; `None` if it has another one.
#[inline]
pub(crate) fn make(constructor: Obj<'_>, args: Obj<'_>, kwargs: Option<Obj<'_>>) -> Res<Option<ObjectRef>> {
    let Some(plan) = plan_of(constructor) else { return Ok(None) };
    plan.make(args, kwargs).map(Some)
}

/// Calls `__post_init__`, if there is one.
#[inline]
pub(crate) fn finish(this: Obj<'_>, constructor: Obj<'_>) -> Res<()> {
    match plan_of(constructor) {
        Some(plan) if plan.post_init || !ptr::eq(this.type_ptr().cast(), plan.class) => post_init(this),
        _ => Ok(()),
    }
}

#[cold]
fn post_init(this: Obj<'_>) -> Res<()> {
    match this.attr_opt(names::POST_INIT.get())? {
        Some(method) => method.obj().call(&[]).map(drop),
        None => Ok(()),
    }
}

/// Fields that the fast way of [`Plan::make`] handles.
const INLINE: usize = 16;

impl Plan {
    fn make(&self, args: Obj<'_>, kwargs: Option<Obj<'_>>) -> Res<ObjectRef> {
        let mut inline = [None; INLINE];
        let mut more = Vec::new();
        let given: &mut [Option<Obj<'_>>] = match inline.get_mut(..self.names.len()) {
            Some(given) => given,
            None => {
                more.resize(self.names.len(), None);
                &mut more
            }
        };
        // Converting a value may run code that changes the dictionary.
        let _kept = kwargs.map_or_else(Vec::new, values);
        // An `__init__` of the class's own may set the fields afterwards.
        let fits = self.arrange(args, kwargs, given) || (self.own_init && is_empty(args, kwargs));
        if !fits {
            return self.explain(args, kwargs);
        }
        let object = record::make(self.layout).ok_or(Raised).or_else(|Raised| out_of_memory())?;
        for (index, value) in given.iter().enumerate() {
            match value {
                Some(value) => self.set(&object, index, *value)?,
                None => self.set_default(&object, index)?,
            }
        }
        Ok(object)
    }

    /// Puts arguments in the order of the fields; `false` if they do not fit.
    fn arrange<'a>(&self, args: Obj<'a>, kwargs: Option<Obj<'a>>, given: &mut [Option<Obj<'a>>]) -> bool {
        let count = args.tuple_len();
        if count > given.len() {
            return false;
        }
        for (index, slot) in given.iter_mut().enumerate().take(count) {
            *slot = py::tuple_get(args, index);
        }
        if let Some(kwargs) = kwargs {
            let mut position = 0;
            while let Some((name, value)) = py::dict_next(kwargs, &mut position) {
                let place = self.names.iter().position(|known| name.is(known.as_ptr()));
                // A name that is not interned: made at run time.
                let place =
                    place.or_else(|| self.names.iter().position(|known| py::same_text(known.obj(), name)));
                match place {
                    Some(place) if given[place].is_none() => given[place] = Some(value),
                    _ => return false,
                }
            }
        }
        let is_missing = |(value, default): (&Option<Obj<'_>>, &Fallback)| {
            value.is_none() && matches!(default, Fallback::Required)
        };
        !given.iter().zip(&self.defaults).any(is_missing)
    }

    /// Raises the error for arguments that do not fit.
    #[cold]
    fn explain<T>(&self, args: Obj<'_>, kwargs: Option<Obj<'_>>) -> Res<T> {
        let mut named = Vec::new();
        let mut position = 0;
        while let Some((name, _)) = kwargs.and_then(|kwargs| py::dict_next(kwargs, &mut position)) {
            named.push(name.to_text()?);
        }
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let fields = &self.layout.fields;
        let arg_names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let optional =
            fields.iter().zip(&self.defaults).filter(|(_, default)| !matches!(default, Fallback::Required));
        let optional: Vec<&str> = optional.map(|(field, _)| field.name.as_str()).collect();
        // Any value will do as a default here.
        let defaults: Vec<String> = optional.iter().map(|name| format!("{name:?}:0")).collect();
        let signature = format!("{{\"arg_names\":{arg_names:?},\"arg_defaults\":{{{}}}}}", defaults.join(","));
        let class = &self.layout.class;
        let error = match Signature::parse(&signature) {
            Ok(signature) => signature.arrange(class, args.tuple_len(), &named).err(),
            Err(error) => Some(error),
        };
        let message = error.as_ref().map_or("the arguments do not fit", |error| error.message());
        py::raise(py::exceptions::type_error(), message)
    }

    #[inline]
    fn set(&self, object: &ObjectRef, index: usize, value: Obj<'_>) -> Res<()> {
        let value = accept(self.layout, index, value)?;
        // SAFETY: the object has this layout.
        let slot = unsafe { record::slot(object.as_handle().cast(), index) };
        // SAFETY: as above, and the field takes the value.
        unsafe { record::write(slot, value) };
        Ok(())
    }

    fn set_default(&self, object: &ObjectRef, index: usize) -> Res<()> {
        match &self.defaults[index] {
            Fallback::Required => Ok(()),
            Fallback::Value(value) => {
                // SAFETY: the object has this layout.
                let slot = unsafe { record::slot(object.as_handle().cast(), index) };
                // SAFETY: as above, and the field takes the value.
                unsafe { record::write(slot, value.clone()) };
                Ok(())
            }
            Fallback::Factory(factory) => self.set(object, index, factory.obj().call(&[])?.obj()),
        }
    }
}

/// The values of a dictionary, kept.
fn values(kwargs: Obj<'_>) -> Vec<Own> {
    let mut kept = Vec::with_capacity(py::dict_len(kwargs));
    let mut position = 0;
    while let Some((_, value)) = py::dict_next(kwargs, &mut position) {
        kept.push(value.to_own());
    }
    kept
}

/// Whether a call has no arguments.
fn is_empty(args: Obj<'_>, kwargs: Option<Obj<'_>>) -> bool {
    args.tuple_len() == 0 && kwargs.is_none_or(|kwargs| py::dict_len(kwargs) == 0)
}

/// A Python value as the value of a field.
#[inline]
fn accept(layout: &Layout, index: usize, value: Obj<'_>) -> Res<Any> {
    let field = &layout.fields[index];
    let at = At::Field { class: &layout.class, name: &field.name };
    let lowered = lower_owned(value, &at)?;
    match field.kind.accept(lowered) {
        Ok(value) => Ok(value),
        Err(_) => at.raise(
            py::exceptions::type_error(),
            &format!("expected {} but got {}", field.shown, value.class_name()),
        ),
    }
}

#[cold]
fn out_of_memory<T>() -> Res<T> {
    py::raise(py::exceptions::memory_error(), "out of memory")
}

/// Gives an instance a native object with the defaults, when its `__init__` sets a field before there is one. Nothing
/// happens if its class is not defined in Python.
#[cold]
pub(crate) fn begin(this: Obj<'_>) -> Res<()> {
    let Some(constructor) = this.class().attr_opt(names::CONSTRUCTOR.get())? else { return Ok(()) };
    let Some(plan) = plan_of(constructor.obj()) else { return Ok(()) };
    let object = record::make(plan.layout).ok_or(Raised).or_else(|Raised| out_of_memory())?;
    for index in 0..plan.defaults.len() {
        plan.set_default(&object, index)?;
    }
    if object::handle_unchecked(this).is_null() {
        object::set_handle(this, object);
    }
    Ok(())
}

// ---- Attributes

/// Raises the error for a field of which native code says that it has no value; other errors stay as they are.
#[cold]
pub(crate) fn explain_unset(this: Obj<'_>, name: &str) -> Res<()> {
    let handle = object::handle_unchecked(this);
    if record::layout_of(handle).is_none() {
        return Ok(());
    }
    let message = format!("field '{name}' of {} has not been set", this.class_name());
    py::raise(py::exceptions::attribute_error(), &message)
}

/// Sets a field from Python, if the object's type is defined in Python; `false` if not.
#[inline]
pub(crate) fn set_field(handle: *mut TVMFFIObject, at: *mut c_void, value: Obj<'_>) -> Res<bool> {
    let Some(layout) = record::layout_of(handle) else { return Ok(false) };
    let index = (at.addr() - handle.addr() - record::offset(0)) / size_of::<TVMFFIAny>();
    let value = accept(layout, index, value)?;
    // SAFETY: the instance keeps the object alive, and the field takes the value.
    unsafe { record::write(at.cast(), value) };
    Ok(true)
}

/// `__setattr__`: an instance of a class that is defined in Python has the attributes that its class knows.
///
/// # Safety
/// Called by Python with valid objects, the last of which may be NULL.
pub(crate) unsafe extern "C" fn set_attribute(
    this: *mut PyObject,
    name: *mut PyObject,
    value: *mut PyObject,
) -> c_int {
    // SAFETY: Python passes a valid object and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: as above.
    let key: Obj<'_> = unsafe { Obj::from_ptr(name) };
    let mut handle = object::handle_unchecked(object);
    if handle.is_null() {
        if begin(object).is_err() {
            return -1;
        }
        handle = object::handle_unchecked(object);
    }
    if !handle.is_null() && record::layout_of(handle).is_some() {
        match object.class().attr_opt(key) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let Err(Raised) = unknown(object, key, handle) else { return -1 };
                return -1;
            }
            Err(Raised) => return -1,
        }
    }
    // SAFETY: as Python called this function.
    unsafe { py::raw::PyObject_GenericSetAttr(this, name, value) }
}

#[cold]
fn unknown(object: Obj<'_>, name: Obj<'_>, handle: *mut TVMFFIObject) -> Res<()> {
    let (class, name) = (object.class_name(), name.to_text()?);
    let fields = record::layout_of(handle).map_or(&[][..], |layout| &layout.fields);
    let near = anyfn::__private::nearest(&name, fields.iter().map(|field| field.name.as_str()));
    let hint = near.map_or_else(
        || String::from("; fields are declared in the class, and __slots__ declares what only Python keeps"),
        |near| format!("; did you mean '{near}'?"),
    );
    py::raise(py::exceptions::attribute_error(), &format!("{class} has no field '{name}'{hint}"))
}

/// Levels of objects within objects that `repr` shows.
const SHOWN_DEPTH: usize = 20;

/// `repr`: `Pair(a=1, b=2)`.
pub(crate) fn repr(this: Obj<'_>, layout: &Layout) -> Res<Own> {
    thread_local! {
        /// The objects that this thread is writing, the outermost first.
        static WRITING: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    struct Written;
    impl Drop for Written {
        fn drop(&mut self) {
            WRITING.with_borrow_mut(Vec::pop);
        }
    }
    let class = this.class_name();
    let handle = object::handle_unchecked(this);
    let begun = WRITING.with_borrow_mut(|writing| {
        let goes = writing.len() < SHOWN_DEPTH && !writing.contains(&handle.addr());
        if goes {
            writing.push(handle.addr());
        }
        goes
    });
    if !begun {
        return py::string(format!("{class}(...)").as_bytes());
    }
    let _written = Written;
    let mut text = format!("{class}(");
    for (index, field) in layout.fields.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { ", " });
        text.push_str(&field.name);
        text.push('=');
        // SAFETY: the instance keeps the object alive, and it has this layout.
        let slot = unsafe { record::slot(handle, index) };
        // SAFETY: as above.
        let Some(value) = (unsafe { record::read(slot) }) else {
            text.push_str("<not set>");
            continue;
        };
        let value = lift::lift_owned(value.into_raw())?;
        // SAFETY: a valid object, the lock is held; a new reference or an exception.
        let shown = py::new_ref!(py::raw::PyObject_Repr(value.as_ptr()))?;
        text.push_str(&String::from_utf8_lossy(shown.obj().str_bytes()?));
    }
    text.push(')');
    py::string(text.as_bytes())
}

// ---- Defining a type

fn fail<T>(message: &str) -> Res<T> {
    py::raise(py::exceptions::type_error(), message)
}

fn defined<T>(body: impl FnOnce(&mut BTreeMap<i32, (i32, Option<&'static Layout>)>) -> T) -> T {
    body(&mut DEFINED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The index for a class's type with this key; the type is registered if it is new, without fields as yet.
pub(crate) fn type_for(class: Obj<'_>, key: &str) -> Res<i32> {
    let order = class.attr(names::MRO.get())?;
    let mut parent = kTVMFFIObject;
    for index in 1..order.obj().tuple_len() {
        let Some(base) = py::tuple_get(order.obj(), index) else { break };
        if base.is_subclass_of(object::CLASS.ptr())
            && let Some(known) = object::type_of_class(base)?
        {
            parent = i32::try_from(known).unwrap_or(kTVMFFIObject);
            break;
        }
    }
    let has_layout = defined(|types| types.get(&parent).is_some_and(|(_, layout)| layout.is_some()));
    if parent != kTVMFFIObject && !has_layout {
        return fail(&format!(
            "the parent type '{}' is not defined in Python, so it cannot be extended here",
            anyfn::type_key(parent)
        ));
    }
    if let Some(index) = anyfn::type_index_of(key) {
        return match defined(|types| types.get(&index).copied()) {
            Some((same, _)) if same == parent => Ok(index),
            Some((other, _)) => fail(&format!(
                "type '{key}' is defined already, with the parent '{}' instead of '{}'; choose another key",
                anyfn::type_key(other),
                anyfn::type_key(parent)
            )),
            None => fail(&format!(
                "type '{key}' is defined by native code; anyfn.register_object gives it a class, or choose another key"
            )),
        };
    }
    let name = TVMFFIByteArray::from_slice(key.as_bytes());
    // SAFETY: the key is borrowed for the call; the depth follows from the parent.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&name, -1, -1, 0, 1, parent) };
    if index < 0 {
        return Err(error::raise_from_native(-1));
    }
    defined(|types| types.insert(index, (parent, None)));
    Ok(index)
}

/// Defines the fields of a type and makes its class's constructor.
///
/// `fields` is a list of `(name, kind, shown, metadata, state, default)`: the kind as in [`kind`], the type as messages
/// show it, JSON for the table of types, and whether there is no default (0), a value (1) or a factory (2).
pub(crate) fn define(class: Obj<'_>, index: i32, fields: Obj<'_>, frozen: bool) -> Res<Own> {
    let Some((parent, known)) = defined(|types| types.get(&index).copied()) else {
        return fail("this type is not defined in Python");
    };
    let above = defined(|types| types.get(&parent).and_then(|(_, layout)| *layout));
    let mut all: Vec<Field> = above.map_or_else(Vec::new, |above| above.fields.clone());
    let inherited = all.len();
    let base = class.attr_opt(names::CONSTRUCTOR.get())?;
    let mut defaults: Vec<Fallback> = match base.as_ref().and_then(|base| plan_of(base.obj())) {
        Some(base) if base.defaults.len() == inherited => base.defaults.iter().map(Fallback::copy).collect(),
        _ => all.iter().map(|_| Fallback::Required).collect(),
    };
    let class_name = class.attr(names::NAME.get())?.obj().to_text()?;
    if let Some(above) = above
        && above.fields.iter().any(|field| field.writable == frozen)
    {
        // As for data classes: who has a frozen object may rely on it.
        let (own, other) = if frozen { ("frozen", "is not") } else { ("not frozen", "is") };
        return fail(&format!("{class_name} is {own} but its parent {} {other}", above.class));
    }
    let (mut told, mut values) = (Vec::new(), Vec::new());
    for at in 0..py::list_len(fields) {
        let Some(item) = py::list_get(fields, at) else { break };
        let part = |part| py::tuple_get(item, part).ok_or(Raised).or_else(|Raised| fail("bad field"));
        let field = Field {
            name: part(0)?.to_text()?,
            kind: kind(part(1)?)?,
            shown: part(2)?.to_text()?,
            writable: !frozen,
        };
        let place = match all.iter().position(|known| known.name == field.name) {
            Some(place) if place < inherited && all[place].kind == field.kind => place,
            Some(_) => {
                return fail(&format!(
                    "field '{}' of {class_name}: the parent declares it as {}",
                    field.name,
                    all.iter().find(|known| known.name == field.name).map_or("", |known| known.shown.as_str())
                ));
            }
            None => {
                told.push(part(3)?.to_text()?);
                all.push(field);
                defaults.push(Fallback::Required);
                all.len() - 1
            }
        };
        values.push((place, part(4)?, part(5)?));
    }
    let layout = Layout { type_index: index, parent, class: class_name, fields: all, inherited };
    for (place, state, value) in values {
        defaults[place] = match state.int() {
            Ok(0) => Fallback::Required,
            Ok(1) => Fallback::Value(accept(&layout, place, value)?),
            _ => Fallback::Factory(value.to_own()),
        };
    }
    let mut optional: Option<&str> = None;
    for (field, default) in layout.fields.iter().zip(&defaults) {
        match (default, optional) {
            (Fallback::Required, Some(before)) => {
                let (name, class) = (&field.name, &layout.class);
                return fail(&format!(
                    "field '{name}' of {class} without a default follows '{before}', which has one"
                ));
            }
            (Fallback::Required, None) => {}
            _ => optional = Some(&field.name),
        }
    }
    let names = layout.fields.iter().map(|field| intern(&field.name)).collect::<Res<Vec<Own>>>()?;
    let layout = match known {
        Some(known) if known.fields == layout.fields => known,
        Some(known) => return fail(&changed(known, &layout)),
        None => register(layout, &told)?,
    };
    let post_init = class.attr_opt(names::POST_INIT.get())?.is_some();
    let init = class.attr(names::INIT.get())?;
    let own_init = !init.obj().is(object::CLASS.get().attr(names::INIT.get())?.as_ptr());
    let plan = Plan { layout, class: class.as_ptr(), names, defaults, post_init, own_init };
    let holder = types::allocate(CLASS.ptr().cast())?;
    // SAFETY: a new instance of `Constructor` that nobody else knows.
    unsafe { (*holder.as_ptr().cast::<Holder>()).plan = Box::into_raw(Box::new(plan)) };
    Ok(holder)
}

impl Fallback {
    fn copy(&self) -> Fallback {
        match self {
            Fallback::Required => Fallback::Required,
            Fallback::Value(value) => Fallback::Value(value.clone()),
            Fallback::Factory(factory) => Fallback::Factory(factory.obj().to_own()),
        }
    }
}

#[cold]
fn changed(known: &Layout, new: &Layout) -> String {
    let show = |layout: &Layout| {
        let fields = layout.fields.iter().map(|field| {
            format!("{}: {}{}", field.name, field.shown, if field.writable { "" } else { " (frozen)" })
        });
        fields.collect::<Vec<String>>().join(", ")
    };
    format!(
        "type '{}' is defined already, with the fields ({}) instead of ({}); a type lives as long as the process, so \
         choose another key or start again",
        anyfn::type_key(known.type_index),
        show(known),
        show(new)
    )
}

fn intern(text: &str) -> Res<Own> {
    let mut name = py::string(text.as_bytes())?.into_ptr();
    // SAFETY: a new string, whose reference is exchanged for one to the interned string.
    unsafe { ffi::PyUnicode_InternInPlace(&mut name) };
    // SAFETY: never NULL.
    unsafe { Own::from_result(name) }
}

/// Tells the table of types of the fields. `told` is the JSON of each field that the parent does not have.
fn register(layout: Layout, told: &[String]) -> Res<&'static Layout> {
    let layout: &'static Layout = Box::leak(Box::new(layout));
    for (index, metadata) in (layout.inherited..).zip(told) {
        let field = &layout.fields[index];
        let set = move |args: anyfn::Args<'_>| record::set_field(layout, index, &args);
        // The table keeps a reference of its own.
        let setter = field.writable.then(|| PackedFunc::new(set));
        let flags = if field.writable {
            kTVMFFIFieldFlagBitMaskWritable | kTVMFFIFieldFlagBitSetterIsFunctionObj
        } else {
            0
        };
        let info = TVMFFIFieldInfo {
            name: TVMFFIByteArray::from_slice(field.name.as_bytes()),
            doc: TVMFFIByteArray::EMPTY,
            metadata: TVMFFIByteArray::from_slice(metadata.as_bytes()),
            flags,
            size: size_of::<TVMFFIAny>() as i64,
            alignment: align_of::<TVMFFIAny>() as i64,
            offset: record::offset(index) as i64,
            getter: Some(record::get_field),
            setter: setter.as_ref().map_or(ptr::null_mut(), |setter| setter.as_object().as_handle()),
            default_value_or_factory: TVMFFIAny::NONE,
            field_static_type_index: kTVMFFIAny,
        };
        // SAFETY: all is borrowed for the call.
        if unsafe { TVMFFITypeRegisterField(layout.type_index, &info) } != 0 {
            return Err(error::raise_from_native(-1));
        }
    }
    let metadata = TVMFFITypeMetadata {
        doc: TVMFFIByteArray::EMPTY,
        creator: None,
        total_size: record::size(layout) as i32,
        structural_eq_hash_kind: 0,
    };
    // SAFETY: borrowed for the call.
    if unsafe { TVMFFITypeRegisterMetadata(layout.type_index, &metadata) } != 0 {
        return Err(error::raise_from_native(-1));
    }
    defined(|types| types.insert(layout.type_index, (layout.parent, Some(layout))));
    Ok(layout)
}

/// What a field takes, as the Python part says it: `(name, number, (kind, ..))`.
fn kind(told: Obj<'_>) -> Res<Kind> {
    let part = |part| py::tuple_get(told, part).ok_or(Raised).or_else(|Raised| fail("bad kind of field"));
    let index = i32::try_from(part(1)?.int().unwrap_or(kTVMFFINone.into())).unwrap_or(kTVMFFINone);
    Ok(match part(0)?.to_text()?.as_str() {
        "Any" => Kind::Any,
        "int" => Kind::Int,
        "float" => Kind::Float,
        "bool" => Kind::Bool,
        "str" => Kind::Str,
        "bytes" => Kind::Bytes,
        "object" => Kind::Object(index),
        "Union" => {
            let kinds = part(2)?;
            let kinds = (0..kinds.tuple_len()).filter_map(|at| py::tuple_get(kinds, at));
            Kind::Union(kinds.map(kind).collect::<Res<Vec<Kind>>>()?)
        }
        _ => Kind::Exactly(index),
    })
}

/// Whether an instance has been made already: then its class's constructor is not called again.
#[cold]
pub(crate) fn made_already(this: Obj<'_>) -> Res<()> {
    if record::layout_of(object::handle_unchecked(this)).is_none() {
        return Ok(());
    }
    let message = format!("{} object is initialised already", this.class_name());
    py::raise(py::exceptions::runtime_error(), &message)
}

/// The type of a class, for the Python part: its index and key, or None.
pub(crate) fn type_of(class: Obj<'_>) -> Res<Own> {
    match object::type_of_class(class)? {
        Some(index) => {
            let key = anyfn::type_key(i32::try_from(index).unwrap_or(-1));
            py::pair(py::int(index)?, py::string(key.as_bytes())?)
        }
        None => Ok(py::none()),
    }
}

/// Raises that an instance has no native object yet, unless setting a field makes one.
pub(crate) fn ensure(this: Obj<'_>) -> Res<()> {
    begin(this)?;
    if object::handle_unchecked(this).is_null() { construct::uninitialised(this, None) } else { Ok(()) }
}
