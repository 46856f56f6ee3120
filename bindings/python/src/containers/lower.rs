//! Conversion of Python containers to native containers: they are *lowered*.
//!
//! The conversion of an item can run Python code, which may change the container that is being read. So only an index is kept
//! between items, an item is held by a reference while it is converted, and a dict that changes its size causes an error.

use anyfn::abi::{TVMFFIAny, kTVMFFIInt};
use anyfn::{Any, Array, ArrayBuilder, Dict, List, Map};
use pyo3_ffi as ffi;

use super::shared::{Memo, Pace, push};
use super::{DICT, MAP, borrow_if, keys, native, reserved};
use crate::lower::{At, lower_owned};
use crate::py::{self, Obj, Own, Res, names, raw};

/// Converts an item of a Python container to a native value. Python code that runs during the conversion may remove
/// the item from its container, so a reference is held meanwhile.
#[inline(always)]
pub(super) fn lower_item(value: Obj<'_>, at: &At<'_>) -> Res<Any> {
    match exact_int(value) {
        Some(value) => Ok(value),
        None => lower_held(value, at),
    }
}

/// Returns the native value of an object whose class is exactly `int`. Returns `None` for other classes and for ints
/// that do not fit in 64 bits.
#[inline(always)]
pub(super) fn exact_int(value: Obj<'_>) -> Option<Any> {
    let value = exact_i64(value)?;
    // SAFETY: an int owns nothing.
    Some(unsafe { Any::from_raw(TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) })
}

/// Returns the int that [`exact_int`] converts as an `i64`, under the same conditions.
#[inline(always)]
fn exact_i64(value: Obj<'_>) -> Option<i64> {
    if value.type_ptr() == &raw mut ffi::PyLong_Type { value.int().ok() } else { None }
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

/// Calls `each` with every item of a list or tuple and its index. If a list changes meanwhile, the loop continues to
/// the current end of the list.
#[inline(always)]
pub(super) fn each_item(
    items: Obj<'_>,
    is_list: bool,
    mut each: impl FnMut(usize, Obj<'_>) -> Res<()>,
) -> Res<()> {
    let (mut index, mut pace) = (0, Pace::new());
    loop {
        let item = if is_list {
            // SAFETY: `each` takes its own reference before Python code runs, which may change the list.
            unsafe { py::list_peek(items, index) }
        } else {
            py::tuple_get(items, index)
        };
        let Some(item) = item else { return Ok(()) };
        each(index, item)?;
        index += 1;
        pace.step()?;
    }
}

/// Makes an Array from a list or tuple. A list or tuple that occurs several times within a conversion is converted once.
pub(crate) fn lower_sequence(items: Obj<'_>, is_list: bool, at: &At<'_>) -> Res<Any> {
    let make = || py::nested(|| Ok(array_of(items, is_list, at)?.into_object().into()));
    match at.memo() {
        Some(memo) => memo.lower(items, make),
        None => make(),
    }
}

/// Makes an Array from a list or tuple.
pub(super) fn array_of(items: Obj<'_>, is_list: bool, at: &At<'_>) -> Res<Array> {
    let len = if is_list { py::list_len(items) } else { items.tuple_len() };
    let mut array = native(ArrayBuilder::with_capacity(len))?;
    let fresh;
    let memo = match at.memo() {
        Some(memo) => memo,
        None => {
            fresh = Memo::new();
            &fresh
        }
    };
    each_item(items, is_list, |index, item| match exact_i64(item) {
        Some(value) => native(array.push_int(value)),
        None => native(array.push(lower_held(item, &At::Item { of: at, memo, index })?)),
    })?;
    Ok(array.finish())
}

/// Converts the items of any iterable to native values.
pub(super) fn items_of(iterable: Obj<'_>, at: &At<'_>) -> Res<Vec<Any>> {
    if let Some(items) = super::compare::native_items(iterable)? {
        return Ok(items.into_vec());
    }
    let is_list = iterable.type_flags() & ffi::Py_TPFLAGS_LIST_SUBCLASS != 0;
    let is_exact =
        iterable.type_ptr() == &raw mut ffi::PyTuple_Type || iterable.type_ptr() == &raw mut ffi::PyList_Type;
    let memo = &Memo::new();
    py::nested(|| {
        if is_exact {
            let len = if is_list { py::list_len(iterable) } else { iterable.tuple_len() };
            let mut values = reserved(len)?;
            each_item(iterable, is_list, |index, item| {
                push(&mut values, lower_item(item, &At::Item { of: at, memo, index })?)
            })?;
            return Ok(values);
        }
        let mut values = expected(iterable)?;
        each(iterable, |index, item| {
            // An iterator may return the same list several times with different content.
            memo.clear();
            push(&mut values, lower_item(item, &At::Item { of: at, memo, index })?)
        })?;
        Ok(values)
    })
}

/// Returns an empty vector with memory for the items of an iterable. Only a range has a reliable length. The lengths
/// of other iterables are hints, for which no memory is allocated.
fn expected(iterable: Obj<'_>) -> Res<Vec<Any>> {
    if iterable.type_ptr() != &raw mut ffi::PyRange_Type {
        return Ok(Vec::new());
    }
    // SAFETY: the object is a range; the result is its length, or -1 with an exception set.
    let len = unsafe { raw::PyObject_Size(iterable.as_ptr()) };
    if len < 0 && !py::error_is(py::exceptions::overflow_error()) {
        return Err(py::Raised);
    }
    py::clear_error();
    reserved(usize::try_from(len).unwrap_or(usize::MAX))
}

/// Calls `each` with all items of an iterable and their indices.
pub(super) fn each(iterable: Obj<'_>, mut each: impl FnMut(usize, Obj<'_>) -> Res<()>) -> Res<()> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let iterator = py::unsafe_new_ref!(raw::PyObject_GetIter(iterable.as_ptr()))?;
    let (mut index, mut pace) = (0, Pace::new());
    loop {
        // SAFETY: the object is an iterator; the result is a new reference, or NULL at the end or with an exception set.
        let item = raw::run(|| unsafe { raw::PyIter_Next(iterator.as_ptr()) });
        // SAFETY: `PyIter_Next` returns a new reference or NULL.
        match unsafe { Own::from_nullable(item) } {
            Some(item) => each(index, item.obj())?,
            None if py::error_occurred() => return Err(py::Raised),
            None => return Ok(()),
        }
        index += 1;
        pace.step()?;
    }
}

/// Makes a Map from a dict.
pub(crate) fn lower_mapping(pairs: Obj<'_>, at: &At<'_>) -> Res<Any> {
    let make = || {
        py::nested(|| {
            let pairs = if is_exact_dict(pairs) { dict_pairs(pairs, at)? } else { mapping_pairs(pairs, at)? };
            Ok(native(Map::<Any, Any>::from_vec(pairs))?.into_object().into())
        })
    };
    match at.memo() {
        Some(memo) => memo.lower(pairs, make),
        None => make(),
    }
}

fn is_exact_dict(object: Obj<'_>) -> bool {
    object.type_ptr() == &raw mut ffi::PyDict_Type
}

/// Converts the pairs of a dict to native values.
fn dict_pairs(dict: Obj<'_>, at: &At<'_>) -> Res<Vec<(Any, Any)>> {
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
fn mapping_pairs(mapping: Obj<'_>, at: &At<'_>) -> Res<Vec<(Any, Any)>> {
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
        push(&mut pairs, (keys::lower_key(key, at)?, lowered))
    })?;
    Ok(pairs)
}

/// Converts to native values the pairs of `source`, which may be any object from which a `dict` can be made, followed
/// by the keyword arguments `named`.
pub(super) fn pairs_of(
    source: Option<Obj<'_>>,
    named: &[(Obj<'_>, Obj<'_>)],
    at: &At<'_>,
) -> Res<Vec<(Any, Any)>> {
    let mut pairs = match source {
        None => Vec::new(),
        Some(source) => py::nested(|| match native_pairs(source)? {
            Some(pairs) => Ok(pairs),
            None if is_exact_dict(source) => dict_pairs(source, at),
            None if source.attr_opt(names::KEYS.get())?.is_some() => mapping_pairs(source, at),
            None => listed_pairs(source, at),
        })?,
    };
    let memo = Memo::new();
    for (key, value) in named {
        let lowered = lower_item(*value, &At::Entry { of: at, memo: &memo, key: *key })?;
        push(&mut pairs, (lower_item(*key, at)?, lowered))?;
    }
    Ok(pairs)
}

/// Returns the pairs of a Map or Dict, or `None` for any other object.
pub(super) fn native_pairs(object: Obj<'_>) -> Res<Option<Vec<(Any, Any)>>> {
    if let Some(map) = borrow_if::<Map>(object, &MAP) {
        let mut pairs = reserved(map.len())?;
        pairs.extend(map.iter_any().map(|(key, value)| (key.clone(), value.clone())));
        return Ok(Some(pairs));
    }
    match borrow_if::<Dict>(object, &DICT) {
        Some(dict) => native(dict.try_snapshot()).map(Some),
        None => Ok(None),
    }
}

/// Converts the pairs that an iterable returns to native values. Raises an exception for an item that is not a pair
/// of key and value.
fn listed_pairs(source: Obj<'_>, at: &At<'_>) -> Res<Vec<(Any, Any)>> {
    let mut pairs = Vec::new();
    let memo = &Memo::new();
    each(source, |index, pair| {
        memo.clear();
        // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let pair = match py::unsafe_new_ref!(raw::PySequence_Tuple(pair.as_ptr())) {
            Err(raised) if !py::error_is(py::exceptions::type_error()) => return Err(raised),
            Err(py::Raised) => {
                py::clear_error();
                let text = format!("cannot convert item #{index} to a pair of key and value");
                return at.raise(py::exceptions::type_error(), &text);
            }
            Ok(pair) => pair,
        };
        let (Some(key), Some(value), 2) =
            (py::tuple_get(pair.obj(), 0), py::tuple_get(pair.obj(), 1), pair.obj().tuple_len())
        else {
            let text = format!("item #{index} has length {}; 2 is required", pair.obj().tuple_len());
            return at.raise(py::exceptions::value_error(), &text);
        };
        let lowered = lower_item(value, &At::Entry { of: at, memo, key })?;
        push(&mut pairs, (keys::lower_key(key, at)?, lowered))
    })?;
    Ok(pairs)
}

/// Makes a List that contains `values`.
pub(super) fn list_of(values: Vec<Any>) -> Res<List> {
    native(List::from_vec(values))
}
