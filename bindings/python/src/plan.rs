//! Construction of instances of classes that are defined in Python, as in `Pair(1, b=2)`.
//!
//! Names, defaults and factories belong to the class. They are in an object of the class `Constructor`, which is the
//! `__constructor__` of the class. Arguments are stored directly in the fields; the only call is the one that makes the object.

use std::ffi::c_void;
use std::ptr;

use anyfn::record::Maker;
use anyfn::{Any, ObjectRef, Signature};
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Res, names};
use crate::record::Record;
use crate::types::{self, Class};
use crate::{error, gil, object};

/// Description of how the constructor of a class makes instances of that class.
pub(crate) struct Plan {
    pub(crate) record: &'static Record,
    /// Function that makes an object of the class's type with no field set.
    pub(crate) maker: &'static Maker,
    /// Address of the class whose instances are made. It is compared and never dereferenced.
    pub(crate) class: *mut PyObject,
    /// Interned names of the class's fields, in the order of the fields.
    pub(crate) names: Vec<Own>,
    pub(crate) defaults: Vec<Fallback>,
    /// Way in which the constructor takes each field: by position, by name, or not at all.
    pub(crate) passed: Vec<Passed>,
    /// Indices of the fields that the constructor takes as positional arguments, in the order of the
    /// arguments.
    pub(crate) positional: Vec<usize>,
    /// True if the class has a method `__post_init__`.
    pub(crate) post_init: bool,
    /// True if the class defines `__init__`. A call without arguments is then always accepted,
    /// because `__init__` may set the fields afterwards.
    pub(crate) own_init: bool,
}

/// Way in which a constructor takes the value of a field: by position, by name, or not at all.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Passed {
    ByPosition,
    ByName,
    Not,
}

/// Default of a field, or [`Required`](Fallback::Required) for a field without a default.
pub(crate) enum Fallback {
    Required,
    Value(Any),
    /// Callable that returns the value of the field when called without arguments.
    Factory(Own),
}

impl Fallback {
    pub(crate) fn copy(&self) -> Fallback {
        match self {
            Fallback::Required => Fallback::Required,
            Fallback::Value(value) => Fallback::Value(value.clone()),
            Fallback::Factory(factory) => Fallback::Factory(factory.obj().to_own()),
        }
    }
}

/// Memory layout of an instance of the Python class `Constructor`.
#[repr(C)]
struct Holder {
    base: PyObject,
    /// Owned pointer from `Box` to the description of how instances are made, or NULL before the
    /// description is set.
    plan: *mut Plan,
}

/// The Python class `Constructor`. Each of its instances constructs objects of one class that is
/// defined in Python.
pub(crate) static CLASS: Global = Global::new();

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
    // SAFETY: the object is an instance of `Constructor`.
    let plan = unsafe { (*holder.cast::<Holder>()).plan };
    if !plan.is_null() {
        // SAFETY: the pointer comes from `Box` and is owned by the instance.
        drop(unsafe { Box::from_raw(plan) });
    }
    // SAFETY: this is the end of the destructor.
    unsafe { types::free(holder) };
}

/// Makes a `Constructor` object that owns the description of how instances are made.
pub(crate) fn hold(plan: Plan) -> Res<Own> {
    let holder = types::allocate(CLASS.ptr().cast())?;
    // SAFETY: the instance of `Constructor` is new and not shared.
    unsafe { (*holder.as_ptr().cast::<Holder>()).plan = Box::into_raw(Box::new(plan)) };
    Ok(holder)
}

/// Returns the [`Plan`] of a constructor. Returns `None` if the constructor does not belong to a class that is
/// defined in Python.
#[inline]
pub(crate) fn plan_of<'a>(constructor: Obj<'a>) -> Option<&'a Plan> {
    if !ptr::eq(constructor.type_ptr().cast(), CLASS.ptr()) {
        return None;
    }
    // SAFETY: the object is an instance of `Constructor`.
    let plan = unsafe { (*constructor.as_ptr().cast::<Holder>()).plan };
    // SAFETY: the pointer is NULL or owned by the constructor, which lives as long as the result.
    unsafe { plan.as_ref() }
}

/// Makes the native object of an instance from the arguments of the constructor. Returns `None` if the constructor
/// does not belong to a class that is defined in Python.
#[inline]
pub(crate) fn make(constructor: Obj<'_>, args: Obj<'_>, kwargs: Option<Obj<'_>>) -> Res<Option<ObjectRef>> {
    let Some(plan) = plan_of(constructor) else { return Ok(None) };
    plan.make(args, kwargs).map(Some)
}

/// Calls the method `__post_init__` of an instance, if the instance has one. Does nothing if the
/// class is not defined in Python.
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

/// Creates the native object of an instance and sets the object's fields to their default values.
/// This is necessary if the instance's `__init__` sets a field before the object exists. Does
/// nothing if the class is not defined in Python.
#[cold]
pub(crate) fn begin(this: Obj<'_>) -> Res<()> {
    let Some(constructor) = this.class().attr_opt(names::CONSTRUCTOR.get())? else { return Ok(()) };
    let Some(plan) = plan_of(constructor.obj()) else { return Ok(()) };
    let object = plan.default_object()?;
    if object::handle_unchecked(this).is_null() {
        object::set_handle(this, object);
    }
    Ok(())
}

/// Ensures that an instance has a native object. A missing object is created with default values if
/// the class is defined in Python, and is an error otherwise.
pub(crate) fn ensure(this: Obj<'_>) -> Res<()> {
    begin(this)?;
    if object::handle_unchecked(this).is_null() { object::uninitialised(this) } else { Ok(()) }
}

/// Maximum number of fields for which [`Plan::make`] keeps the arguments in an array on the stack.
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
        // The conversion of a value may run code that changes the dictionary.
        let _kept = kwargs.map_or_else(Vec::new, values);
        // A class's own `__init__` may set the fields afterwards.
        let fits = self.arrange(args, kwargs, given) || (self.own_init && is_empty(args, kwargs));
        if !fits {
            return self.explain(args, kwargs);
        }
        let object = self.allocate()?;
        for (index, value) in given.iter().enumerate() {
            match value {
                Some(value) => self.record.set(&object, index, *value)?,
                None => self.set_default(&object, index)?,
            }
        }
        Ok(object)
    }

    /// Allocates an object with no field set.
    fn allocate(&self) -> Res<ObjectRef> {
        let make = || self.maker.make();
        // Only a parent type of compiled code can release other objects meanwhile.
        let made = if self.maker.is_foreign() { gil::counted(make) } else { make() };
        made.map_err(error::raise)
    }

    /// Makes an object whose fields have their default values.
    pub(crate) fn default_object(&self) -> Res<ObjectRef> {
        let object = self.allocate()?;
        for index in 0..self.defaults.len() {
            self.set_default(&object, index)?;
        }
        Ok(object)
    }

    /// Writes the arguments of a call to `given`, in the order of the fields to which they belong.
    /// Returns false if the arguments do not match the fields.
    fn arrange<'a>(&self, args: Obj<'a>, kwargs: Option<Obj<'a>>, given: &mut [Option<Obj<'a>>]) -> bool {
        let count = args.tuple_len();
        if count > self.positional.len() {
            return false;
        }
        for (index, place) in self.positional.iter().enumerate().take(count) {
            given[*place] = py::tuple_get(args, index);
        }
        if let Some(kwargs) = kwargs {
            let mut position = 0;
            // SAFETY: no Python code runs in this function, and the caller has taken references to the values.
            while let Some((name, value)) = unsafe { py::dict_peek(kwargs, &mut position) } {
                let place = self.names.iter().position(|known| name.is(known.as_ptr()));
                // The name is not interned: it was made at run time.
                let place =
                    place.or_else(|| self.names.iter().position(|known| py::same_text(known.obj(), name)));
                match place {
                    Some(place) if given[place].is_none() && self.passed[place] != Passed::Not => {
                        given[place] = Some(value);
                    }
                    _ => return false,
                }
            }
        }
        let is_missing = |((value, default), passed): ((&Option<Obj<'_>>, &Fallback), &Passed)| {
            value.is_none() && matches!(default, Fallback::Required) && *passed != Passed::Not
        };
        !given.iter().zip(&self.defaults).zip(&self.passed).any(is_missing)
    }

    /// Raises `TypeError` for arguments that do not match the fields.
    #[cold]
    fn explain<T>(&self, args: Obj<'_>, kwargs: Option<Obj<'_>>) -> Res<T> {
        let mut named = Vec::new();
        let mut position = 0;
        while let Some((name, _)) = kwargs.and_then(|kwargs| py::dict_next(kwargs, &mut position)) {
            named.push(name.obj().to_text()?);
        }
        let message = self.mistake(args.tuple_len(), &named);
        py::raise(py::exceptions::type_error(), &message)
    }

    fn mistake(&self, positional: usize, named: &[String]) -> String {
        let class = &self.record.class;
        let name = |index: usize| self.record.fields[index].name;
        let passed = |how: Passed| {
            let fields = self.passed.iter().enumerate().filter(move |(_, passed)| **passed == how);
            fields.map(|(index, _)| index)
        };
        let by_name: Vec<usize> = passed(Passed::ByName).collect();
        let known: Vec<&str> = self.positional.iter().chain(&by_name).map(|index| name(*index)).collect();
        if let Some(unknown) = named.iter().find(|name| !known.contains(&name.as_str())) {
            // The positional fields come first.
            let is_open = |name: &&str| !named.iter().any(|given| given == name);
            let open = known.iter().copied().skip(positional.min(self.positional.len())).filter(is_open);
            // Names of one letter are not considered similar to each other.
            let near = anyfn::__private::nearest(unknown, open);
            let near = near.filter(|near| near.len() > 1 || unknown.len() > 1);
            let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            return format!("{class}() got an unexpected keyword argument '{unknown}'{near}");
        }
        let is_by_name = |given: &str| by_name.iter().any(|index| name(*index) == given);
        let is_optional = |index: usize| !matches!(self.defaults[index], Fallback::Required);
        let arg_names: Vec<&str> = self.positional.iter().map(|index| name(*index)).collect();
        let optional = self.positional.iter().filter(|index| is_optional(**index));
        // The value of the default does not matter here.
        let defaults: Vec<String> = optional.map(|index| format!("{:?}:0", name(*index))).collect();
        let signature = format!("{{\"arg_names\":{arg_names:?},\"arg_defaults\":{{{}}}}}", defaults.join(","));
        let others: Vec<&str> = named.iter().map(String::as_str).filter(|name| !is_by_name(name)).collect();
        let arranged = Signature::parse(&signature).map(|known| known.arrange(class, positional, &others));
        if let Ok(Err(error)) = arranged {
            return error.message().to_owned();
        }
        let is_missing =
            |index: &&usize| !is_optional(**index) && !named.iter().any(|given| given == name(**index));
        let missing: Vec<String> =
            by_name.iter().filter(is_missing).map(|index| format!("'{}'", name(*index))).collect();
        match missing.len() {
            0 => String::from("the arguments do not match the constructor"),
            1 => format!("{class}() missing 1 required keyword-only argument: {}", missing[0]),
            count => {
                format!("{class}() missing {count} required keyword-only arguments: {}", missing.join(", "))
            }
        }
    }

    fn set_default(&self, object: &ObjectRef, index: usize) -> Res<()> {
        match &self.defaults[index] {
            Fallback::Required => Ok(()),
            Fallback::Value(value) => self.record.put(object, index, value.clone()),
            Fallback::Factory(factory) => self.record.set(object, index, factory.obj().call(&[])?.obj()),
        }
    }
}

/// Returns owned references to the values of a dictionary.
fn values(kwargs: Obj<'_>) -> Vec<Own> {
    let mut kept = Vec::with_capacity(py::dict_len(kwargs));
    let mut position = 0;
    while let Some((_, value)) = py::dict_next(kwargs, &mut position) {
        kept.push(value);
    }
    kept
}

/// Returns true if a call has no arguments.
fn is_empty(args: Obj<'_>, kwargs: Option<Obj<'_>>) -> bool {
    args.tuple_len() == 0 && kwargs.is_none_or(|kwargs| py::dict_len(kwargs) == 0)
}
