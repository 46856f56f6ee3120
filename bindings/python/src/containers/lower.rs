//! Conversion of the arguments of container constructors to native values: iterables of items,
//! mappings, and iterables of pairs. [`crate::owned`] converts whole Python containers.

use anyfn::{Any, Dict, List, Map};
use pyo3_ffi as ffi;

use super::base::{DICT, MAP, borrow_if, native};
use super::compare::native_items;
use crate::at::At;
use crate::loops::{each, each_item, push, reserved};
use crate::memo::Memo;
use crate::owned::{dict_pairs, is_exact_dict, lower_item, lower_key, mapping_pairs};
use crate::py::{self, Obj, Res, names, raw};

/// Converts the items of any iterable to native values.
pub(super) fn items_of(iterable: Obj<'_>, at: &At<'_>) -> Res<Vec<Any>> {
    if let Some(items) = native_items(iterable)? {
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

/// Returns an empty vector with memory for the items of an iterable. Memory is reserved only for a
/// `range` object, because the lengths of other iterables are only hints.
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

/// Converts the pairs of `source`, followed by the keyword arguments `named`, to native values. `source` may be
/// any object from which a `dict` can be made.
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

/// Converts the pairs in an iterable to native values. Raises an exception for an item that is not a pair of
/// key and value.
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
        push(&mut pairs, (lower_key(key, at)?, lowered))
    })?;
    Ok(pairs)
}

/// Makes a List that contains `values`.
pub(super) fn list_of(values: Vec<Any>) -> Res<List> {
    native(List::from_vec(values))
}
