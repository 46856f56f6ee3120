//! Conversion of Python values to owned native values, which may outlive a call.
//!
//! The functions of this file call each other, because the items of a container are converted like the container. The
//! conversion of an item can run Python code, which may change the container that is being read. So only an index is kept
//! between items, an item is held by a reference while it is converted, and a dict that changes its size causes an error.

use std::ptr;

use anyfn::abi::{kTVMFFIBool, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIFloat};
use anyfn::{Any, Array, ArrayBuilder, Map};
use pyo3_ffi as ffi;

use crate::ability::{self, Ability};
use crate::at::At;
use crate::convert::{self, ToNative};
use crate::loops::{Pace, each, push, reserved};
use crate::memo::Memo;
use crate::py::{self, Obj, Own, Raised, Res, builtins, names, raw};
use crate::scalars::{bad_text, exact_i64, exact_int, int, native_bytes, native_string, plain, true_ptr};
use crate::{error, ndarray, object, python_function, words};

/// Converts a Python object to an owned native value, which may outlive the call.
#[inline]
pub(crate) fn lower_owned(arg: Obj<'_>, at: &At<'_>) -> Res<Any> {
    if arg.is_none() {
        return Ok(Any::NONE);
    }
    let class = arg.type_ptr();
    if class == &raw mut ffi::PyLong_Type {
        return int(arg);
    }
    lower_owned_rest(arg, at)
}

#[inline(never)]
fn lower_owned_rest(arg: Obj<'_>, at: &At<'_>) -> Res<Any> {
    let class = arg.type_ptr();
    let flags = arg.type_flags();
    let is = |flag| flags & flag != 0;
    if class == &raw mut ffi::PyBool_Type {
        return Ok(plain(kTVMFFIBool, u64::from(arg.is(true_ptr()))));
    }
    if class == &raw mut ffi::PyFloat_Type {
        return Ok(plain(kTVMFFIFloat, arg.float()?.to_bits()));
    }
    if is(ffi::Py_TPFLAGS_UNICODE_SUBCLASS) {
        return native_string(arg).or_else(|Raised| bad_text(at));
    }
    let is_list = is(ffi::Py_TPFLAGS_LIST_SUBCLASS);
    if is_list || is(ffi::Py_TPFLAGS_TUPLE_SUBCLASS) {
        return lower_sequence(arg, is_list, at);
    }
    if is(ffi::Py_TPFLAGS_DICT_SUBCLASS) {
        return lower_mapping(arg, at);
    }
    if object::handle_of(arg).is_some() {
        return match object::reference_of(arg) {
            Some(object) => Ok(object.into()),
            None => at.raise(py::exceptions::value_error(), &object::uninitialised_message(arg)),
        };
    }
    if is(ffi::Py_TPFLAGS_BYTES_SUBCLASS) {
        return native_bytes(arg);
    }
    if is(ffi::Py_TPFLAGS_LONG_SUBCLASS) {
        return int(arg);
    }
    if arg.is_float() {
        return Ok(plain(kTVMFFIFloat, arg.float()?.to_bits()));
    }
    if ndarray::is_array(arg) {
        return ndarray::tensor(arg, at).map(Any::from);
    }
    if ptr::eq(class.cast(), words::DTYPE.ptr()) {
        return Ok(plain(kTVMFFIDataType, words::bits(arg)));
    }
    if ptr::eq(class.cast(), words::DEVICE.ptr()) {
        return Ok(plain(kTVMFFIDevice, words::bits(arg)));
    }
    if is(ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS) {
        return Ok(error::of_exception(arg).into_object().into());
    }
    if python_function::is_plain_function(class) {
        return python_function::function_object(arg);
    }
    if let Some(converter) = convert::to_native(arg)? {
        return lower_converted(arg, &converter, at);
    }
    match ability::of(arg, at)? {
        Ability::Native(value) => Ok(value),
        Ability::Python(object) => lower_owned(object.obj(), at),
        Ability::Nested(object) => py::nested(|| lower_owned(object.obj(), at)),
    }
}

/// Converts an object with the converter of its class.
#[cold]
fn lower_converted(arg: Obj<'_>, converter: &ToNative, at: &At<'_>) -> Res<Any> {
    py::nested(|| {
        let made = converter.call(arg)?;
        if made.obj().is(arg.as_ptr()) {
            let message = format!("the converter of {} returned its own argument", arg.class_name());
            return at.raise(py::exceptions::type_error(), &message);
        }
        let lowered = lower_owned(made.obj(), at)?;
        if !anyfn::is_instance(lowered.type_index(), converter.promised) {
            let message = format!(
                "expected an object of type `{}` from the converter of {} but got {}",
                anyfn::type_key(converter.promised),
                arg.class_name(),
                made.obj().class_name()
            );
            return at.raise(py::exceptions::type_error(), &message);
        }
        Ok(lowered)
    })
}

// ---- Containers

/// Converts an item of a Python container to a native value. Python code that runs during the conversion may remove
/// the item from its container, so a reference is held meanwhile.
#[inline(always)]
pub(crate) fn lower_item(value: Obj<'_>, at: &At<'_>) -> Res<Any> {
    match exact_int(value) {
        Some(value) => Ok(value),
        None => lower_held(value, at),
    }
}

#[inline(never)]
fn lower_held(value: Obj<'_>, at: &At<'_>) -> Res<Any> {
    let held = value.to_own();
    lower_owned(held.obj(), at)
}

/// Converts an item of a Python container to a native value. The caller must hold a reference to the item.
#[inline(always)]
fn lower_kept(value: &Own, at: &At<'_>) -> Res<Any> {
    match exact_int(value.obj()) {
        Some(value) => Ok(value),
        None => lower_owned(value.obj(), at),
    }
}

/// Makes an Array from a list or tuple. A list or tuple that occurs several times within a conversion is converted once.
fn lower_sequence(items: Obj<'_>, is_list: bool, at: &At<'_>) -> Res<Any> {
    let make = || py::nested(|| Ok(array_of(items, is_list, at)?.into_object().into()));
    match at.memo() {
        Some(memo) => memo.lower(items, make),
        None => make(),
    }
}

/// Makes an Array from a list or tuple.
pub(crate) fn array_of(items: Obj<'_>, is_list: bool, at: &At<'_>) -> Res<Array> {
    let len = if is_list { py::list_len(items) } else { items.tuple_len() };
    let mut array = ArrayBuilder::with_capacity(len).map_err(error::raise)?;
    let fresh;
    let memo = match at.memo() {
        Some(memo) => memo,
        None => {
            fresh = Memo::new();
            &fresh
        }
    };
    let (mut index, mut pace) = (0, Pace::new());
    loop {
        let ints = push_ints(&mut array, items, is_list, index);
        index += ints;
        pace.steps(ints as u32)?;
        // SAFETY: a reference is taken before Python code runs, which may change the list.
        let item = if is_list { unsafe { py::list_peek(items, index) } } else { py::tuple_get(items, index) };
        let Some(item) = item else { return Ok(array.finish()) };
        let pushed = match exact_i64(item) {
            Some(value) => array.push_int(value),
            None => array.push(lower_held(item, &At::Item { of: at, memo, index })?),
        };
        pushed.map_err(error::raise)?;
        index += 1;
        pace.step()?;
    }
}

/// Appends the items of a list or tuple from `index` on to an array, as long as they are small ints, whose conversion runs no
/// code. Returns their number, which is at most [`Pace::STEPS`].
#[inline]
fn push_ints(array: &mut ArrayBuilder, items: Obj<'_>, is_list: bool, index: usize) -> usize {
    // SAFETY: no Python code runs in this function.
    let items = if is_list { unsafe { builtins::list_items(items) } } else { builtins::tuple_items(items) };
    let Some(rest) = items.and_then(|items| items.get(index..)) else { return 0 };
    let (mut rest, layout) = (rest.iter(), builtins::int_layout());
    array.push_ints(Pace::STEPS as usize, || {
        // SAFETY: the list or tuple keeps its items alive while no Python code runs.
        let item: Obj<'_> = unsafe { Obj::from_nullable(*rest.next()?) }?;
        if item.type_ptr() == &raw mut ffi::PyLong_Type { builtins::read_int(item, layout) } else { None }
    })
}

/// Converts an object whose class is exactly `list`, `tuple` or `dict`, or a class of functions. Returns `None` for other
/// objects.
#[inline]
pub(crate) fn lower_exact(arg: Obj<'_>, at: &At<'_>) -> Option<Res<Any>> {
    let class = arg.type_ptr();
    if class == &raw mut ffi::PyList_Type {
        Some(lower_sequence(arg, true, at))
    } else if class == &raw mut ffi::PyTuple_Type {
        Some(lower_sequence(arg, false, at))
    } else if class == &raw mut ffi::PyDict_Type {
        Some(lower_mapping(arg, at))
    } else if python_function::is_plain_function(class) {
        Some(python_function::function_object(arg))
    } else {
        None
    }
}

/// Returns true if [`lower_exact`] converts objects of a class.
#[inline]
pub(crate) fn is_exact(class: *mut ffi::PyTypeObject) -> bool {
    class == &raw mut ffi::PyList_Type
        || class == &raw mut ffi::PyTuple_Type
        || class == &raw mut ffi::PyDict_Type
        || python_function::is_plain_function(class)
}

/// Makes a Map from a dict.
fn lower_mapping(pairs: Obj<'_>, at: &At<'_>) -> Res<Any> {
    let make = || {
        py::nested(|| {
            let pairs = if is_exact_dict(pairs) { dict_pairs(pairs, at)? } else { mapping_pairs(pairs, at)? };
            Ok(Map::<Any, Any>::from_vec(pairs).map_err(error::raise)?.into_object().into())
        })
    };
    match at.memo() {
        Some(memo) => memo.lower(pairs, make),
        None => make(),
    }
}

/// Returns true if the class of an object is exactly `dict`.
pub(crate) fn is_exact_dict(object: Obj<'_>) -> bool {
    object.type_ptr() == &raw mut ffi::PyDict_Type
}

/// Converts the pairs of a dict to native values.
pub(crate) fn dict_pairs(dict: Obj<'_>, at: &At<'_>) -> Res<Vec<(Any, Any)>> {
    let len = py::dict_len(dict);
    let mut pairs = reserved(len)?;
    let (mut position, mut pace) = (0, Pace::new());
    let fresh;
    let memo = match at.memo() {
        Some(memo) => memo,
        None => {
            fresh = Memo::new();
            &fresh
        }
    };
    while let Some((key, value)) = py::dict_next(dict, &mut position) {
        let lowered = lower_kept(&value, &At::Entry { of: at, memo, key: key.obj() })?;
        push(&mut pairs, (lower_kept(&key, &At::Key { of: at, memo })?, lowered))?;
        pace.step()?;
        if py::dict_len(dict) != len {
            return py::raise(
                py::exceptions::runtime_error(),
                "dictionary changed size while it was converted",
            );
        }
    }
    Ok(pairs)
}

/// Converts the pairs of an object with the methods `keys` and `__getitem__` to native values.
pub(crate) fn mapping_pairs(mapping: Obj<'_>, at: &At<'_>) -> Res<Vec<(Any, Any)>> {
    let keys = mapping.attr(names::KEYS.get())?.obj().call(&[])?;
    let mut pairs = Vec::new();
    let fresh;
    let memo = match at.memo() {
        Some(memo) => memo,
        None => {
            fresh = Memo::new();
            &fresh
        }
    };
    each(keys.obj(), |_, key| {
        if at.memo().is_none() {
            memo.clear();
        }
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let value = py::unsafe_new_ref!(raw::PyObject_GetItem(mapping.as_ptr(), key.as_ptr()))?;
        let lowered = lower_kept(&value, &At::Entry { of: at, memo, key })?;
        push(&mut pairs, (lower_key(key, at)?, lowered))
    })?;
    Ok(pairs)
}

/// Converts a key to a native value. Raises the exception of `hash(key)` if the key is not hashable in Python.
#[inline(always)]
pub(crate) fn lower_key(key: Obj<'_>, at: &At<'_>) -> Res<Any> {
    if let Some(key) = exact_int(key) {
        return Ok(key);
    }
    lower_other(key, at)
}

#[inline(never)]
fn lower_other(key: Obj<'_>, at: &At<'_>) -> Res<Any> {
    let held = key.to_own();
    if key.type_ptr() != &raw mut ffi::PyUnicode_Type {
        py::hash(key)?;
    }
    let fresh = Memo::new();
    lower_owned(held.obj(), &At::Key { of: at, memo: at.memo().unwrap_or(&fresh) })
}
