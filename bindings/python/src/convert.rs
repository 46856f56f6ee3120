//! User-defined conversions of values: `anyfn.register_converter`.
//!
//! An instance of a Python class with a converter is passed as the result of the converter. An object of a native
//! type with a converter is returned as the result of that converter. Without registered converters, the cost is one
//! comparison in the conversion of less common values. This module has the tables.
//! [`crate::owned`] applies the converters to native values, and [`crate::classes`] applies those to Python values.

use std::cell::Cell;

use anyfn::ObjectRef;
use pyo3_ffi as ffi;

use crate::object;
use crate::py::{self, Global, Obj, Own, Res};

thread_local! {
    /// Number of converters to native values that are running on this thread. While at least one
    /// runs, native objects are not converted to Python values.
    static LOWERING: Cell<usize> = const { Cell::new(0) };
}

/// Dictionary of the converters to native values. It maps a class to a pair: the converter
/// function, and the index of the type that the function's result must have. None instead of the
/// pair marks a removed converter.
static TO_NATIVE: Global = Global::new();
/// Dictionary of the converters to Python values. It maps the Python class of a native type to the
/// function that converts an object of the type. None instead of the function marks a removed
/// converter.
static FROM_NATIVE: Global = Global::new();

/// Registers a converter of instances of `class` to native values. `entry` is a pair of the
/// converter function and the index of the type that the function's result must have, or None to
/// remove the converter.
pub(crate) fn set_to_native(class: Obj<'_>, entry: Obj<'_>) -> Res<()> {
    if TO_NATIVE.try_get().is_none() {
        TO_NATIVE.set(py::dict()?);
    }
    py::dict_set(TO_NATIVE.get(), class, entry)
}

/// Converter of the instances of a class to native values.
pub(crate) struct ToNative {
    function: Own,
    /// Index of the type that the result of the converter must have.
    pub(crate) promised: i32,
}

impl ToNative {
    /// Calls the converter with `arg` and returns the Python object whose native value is used as
    /// the native value of `arg`.
    pub(crate) fn call(&self, arg: Obj<'_>) -> Res<Own> {
        lowering(|| self.function.obj().call(&[arg]))
    }
}

/// Returns the converter for an instance, or `None` if no converter to native values is registered
/// for the instance's class or one of its bases.
#[inline]
pub(crate) fn to_native(arg: Obj<'_>) -> Res<Option<ToNative>> {
    if TO_NATIVE.try_get().is_none() { Ok(None) } else { find(arg) }
}

#[cold]
fn find(arg: Obj<'_>) -> Res<Option<ToNative>> {
    let order = arg.class().attr(py::names::MRO.get())?;
    for index in 0..order.obj().tuple_len() {
        let Some(class) = py::tuple_item(order.obj(), index) else { break };
        let entry = py::dict_get(TO_NATIVE.get(), class.obj());
        if let Some(entry) = entry.filter(|entry| !entry.obj().is_none()) {
            let (Some(function), Some(index)) =
                (py::tuple_item(entry.obj(), 0), py::tuple_item(entry.obj(), 1))
            else {
                return py::raise(
                    py::exceptions::type_error(),
                    "expected a converter and the index of its type",
                );
            };
            let promised = index.obj().int().ok().and_then(|index| i32::try_from(index).ok()).unwrap_or(-1);
            return Ok(Some(ToNative { function, promised }));
        }
    }
    Ok(None)
}

fn lowering<T>(body: impl FnOnce() -> T) -> T {
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            LOWERING.set(LOWERING.get() - 1);
        }
    }
    LOWERING.set(LOWERING.get() + 1);
    let _ended = Ended;
    body()
}

/// Stores `function` as the converter of native objects whose Python class is `class`. None removes the converter. The
/// caller must clear the cache of classes: see [`crate::classes::set_from_native`].
pub(crate) fn set_from_native(class: Obj<'_>, function: Obj<'_>) -> Res<()> {
    if FROM_NATIVE.try_get().is_none() {
        FROM_NATIVE.set(py::dict()?);
    }
    py::dict_set(FROM_NATIVE.get(), class, function)
}

/// Returns true if a converter to Python values is registered for native objects whose Python class is `class`.
pub(crate) fn is_converted(class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: the table of classes or the module keeps the class alive.
    let class: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
    FROM_NATIVE
        .try_get()
        .is_some_and(|known| py::dict_get(known, class).is_some_and(|function| !function.obj().is_none()))
}

/// Converts a native object with the converter of `class`, its Python class. While a converter to native
/// values runs on this thread, returns the object as an instance of `class` instead.
#[cold]
pub(crate) fn from_native(class: *mut ffi::PyTypeObject, object: ObjectRef) -> Res<Own> {
    let made = object::wrap_as(class, object)?;
    // SAFETY: the table of classes or the module keeps the class alive.
    let class: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
    match py::dict_get(FROM_NATIVE.get(), class) {
        Some(function) if LOWERING.get() == 0 && !function.obj().is_none() => {
            py::nested(|| function.obj().call(&[made.obj()]))
        }
        _ => Ok(made),
    }
}
