//! The class `List`: a mutable sequence.

use std::collections::HashMap;
use std::ffi::c_void;

use anyfn::{Any, List};
use pyo3_ffi as ffi;

use super::base::{borrow, lift_item, native, wrap};
use super::iter::{self, Cursor};
use super::sequence::{self, Key, key_of, out_of_range, snapshot};
use super::slots::{methods, slots};
use super::{compare, lower};
use crate::at::At;
use crate::loops::reserved;
use crate::owned::lower_item;
use crate::py::{self, Obj, Own, Res, names, raw};
use crate::types::Class;
use crate::{collect, object};

/// Makes the class `List`.
pub(super) fn make_class() -> Res<Own> {
    let mut slots = sequence::shared_slots().to_vec();
    slots.extend([
        (ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
        (ffi::Py_tp_new, new as *mut c_void),
        (ffi::Py_tp_traverse, collect::traverse as *mut c_void),
        (ffi::Py_tp_clear, collect::clear as *mut c_void),
        (ffi::Py_tp_dealloc, collect::dealloc as *mut c_void),
        (ffi::Py_tp_iter, iterate as *mut c_void),
        (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
        (ffi::Py_sq_length, len as *mut c_void),
        (ffi::Py_mp_length, len as *mut c_void),
        (ffi::Py_sq_item, item as *mut c_void),
        (ffi::Py_mp_subscript, subscript as *mut c_void),
        (ffi::Py_mp_ass_subscript, set_subscript as *mut c_void),
        (ffi::Py_nb_inplace_add, add_in_place as *mut c_void),
        (ffi::Py_sq_inplace_repeat, repeat_in_place as *mut c_void),
        (ffi::Py_tp_methods, list_methods().leak().as_mut_ptr().cast()),
    ]);
    Class {
        name: c"anyfn.List",
        size: size_of::<object::Layout>(),
        base_for_others: true,
        flags: ffi::Py_TPFLAGS_HAVE_GC,
        base: Some(object::BUILTIN.get()),
        slots: &slots,
    }
    .make()
}

const DOC: &std::ffi::CStr = c"List(iterable=(), /)\n--\n\n\
A mutable sequence, shared by all languages: a change is visible through every reference.\n\n\
Behaves like a list. Each operation is atomic, also with respect to threads of other languages. Iteration covers the\n\
items that the List has when it begins.";

fn item_at(list: &List, index: i64) -> Res<Own> {
    match list.at(index) {
        Some(item) => lift_item(&item),
        None => out_of_range(index, "List", list.len()),
    }
}

slots! {
    fn new(class: obj, args: obj, kwargs: opt) -> Own {
        let items = match sequence::iterable_argument("List", args, kwargs)? {
            Some(iterable) => lower::items_of(iterable, &At::Value)?,
            None => Vec::new(),
        };
        object::wrap_as(class.as_ptr().cast(), lower::list_of(items)?.into_object())
    }

    fn len(this: obj) -> usize {
        Ok(borrow::<List>(this)?.len())
    }

    fn item(this: obj, index: size) -> Own {
        // Python has added the length to a negative index; if it is still negative, it is out of range.
        let list = borrow::<List>(this)?;
        if index < 0 { out_of_range(index as i64, "List", list.len()) } else { item_at(&list, index as i64) }
    }

    fn subscript(this: obj, key: obj) -> Own {
        let list = borrow::<List>(this)?;
        match key_of(key, "List")? {
            Key::Index(index) => item_at(&list, index),
            Key::Slice(slice) => wrap(lower::list_of(native(list.slice(slice))?)?),
        }
    }

    fn set_subscript(this: obj, key: obj, value: opt) -> () {
        let list = borrow::<List>(this)?;
        match (key_of(key, "List")?, value) {
            (Key::Index(index), Some(value)) => {
                let value = lower_item(value, &At::Value)?;
                if list.set_at(index, value) { Ok(()) } else { out_of_range(index, "List", list.len()) }
            }
            (Key::Index(index), None) => match list.remove_at(index) {
                Some(_) => Ok(()),
                None => out_of_range(index, "List", list.len()),
            },
            (Key::Slice(slice), Some(values)) => {
                let values = lower::items_of(values, &At::Value)?;
                native(list.set_slice(slice, values))
            }
            (Key::Slice(slice), None) => native(list.remove_slice(slice)),
        }
    }

    fn iterate(this: obj) -> Own {
        iter::make(Cursor::Values(snapshot(&*borrow::<List>(this)?)?.into_iter()))
    }

    fn add_in_place(this: obj, values: obj) -> Own {
        let list = borrow::<List>(this)?;
        native(list.extend(lower::items_of(values, &At::Value)?))?;
        Ok(this.to_own())
    }

    fn repeat_in_place(this: obj, times: size) -> Own {
        let list = borrow::<List>(this)?;
        if times <= 0 {
            list.clear();
        } else {
            let more = sequence::repeated(&snapshot(&list)?, times - 1)?;
            native(list.extend(more))?;
        }
        Ok(this.to_own())
    }
}

/// Sorts a snapshot of the items and stores the result. Returns `None`, without storing it, if the
/// List has changed since the snapshot.
fn sort(list: &List, options: &[(&std::ffi::CStr, Obj<'_>)]) -> Res<Option<()>> {
    let items = snapshot(list)?;
    let objects = items.iter().map(lift_item).collect::<Res<Vec<Own>>>()?;
    // Equal addresses are equal values, so it does not matter which of them is found.
    let places: HashMap<_, _> = objects.iter().enumerate().map(|(at, object)| (object.as_ptr(), at)).collect();
    let sorted = py::list(objects)?;
    sorted.obj().attr(names::SORT.get())?.obj().call_named(options)?;
    let mut new: Vec<Any> = reserved(items.len())?;
    for at in 0..items.len() {
        let place = py::list_get(sorted.obj(), at).and_then(|object| places.get(&object.as_ptr()).copied());
        let Some(item) = place.and_then(|place| items.get(place)) else { return Ok(None) };
        new.push(item.clone());
    }
    Ok(native(list.replace_all(&items, new))?.then_some(()))
}

methods! { list_methods;
    c"append($self, value, /)\n--\n\nAppends a value to the end."
    fn append(this, args) {
        let value = lower_item(args.one()?, &At::Value)?;
        native(borrow::<List>(this)?.push(value))?;
        Ok(py::none())
    }

    c"extend($self, iterable, /)\n--\n\nAppends all values of an iterable in one atomic operation."
    fn extend(this, args) {
        let values = lower::items_of(args.one()?, &At::Value)?;
        native(borrow::<List>(this)?.extend(values))?;
        Ok(py::none())
    }

    c"insert($self, index, value, /)\n--\n\nInserts a value before the item at an index."
    fn insert(this, args) {
        let values = args.positional(2, 2)?;
        let Key::Index(index) = key_of(values[0], "List")? else {
            return py::raise(py::exceptions::type_error(), "'slice' object cannot be interpreted as an integer");
        };
        let value = lower_item(values[1], &At::Value)?;
        native(borrow::<List>(this)?.insert_at(index, value))?;
        Ok(py::none())
    }

    c"pop($self, index=-1, /)\n--\n\nRemoves and returns the item at an index."
    fn pop(this, args) {
        let index = match args.positional(0, 1)?.first() {
            None => -1,
            Some(index) => match key_of(*index, "List")? {
                Key::Index(index) => index,
                Key::Slice(_) => {
                    let text = "'slice' object cannot be interpreted as an integer";
                    return py::raise(py::exceptions::type_error(), text);
                }
            },
        };
        let list = borrow::<List>(this)?;
        match list.remove_at(index) {
            Some(item) => lift_item(&item),
            None if list.is_empty() => py::raise(py::exceptions::index_error(), "pop from empty List"),
            None => out_of_range(index, "List", list.len()),
        }
    }

    c"remove($self, value, /)\n--\n\nRemoves the first item that equals `value`, or raises ValueError."
    fn remove(this, args) {
        let value = args.one()?;
        let list = borrow::<List>(this)?;
        for (at, item) in snapshot(&list)?.iter().enumerate() {
            if compare::item_equals(item, value)? && list.remove_same(at, item) {
                return Ok(py::none());
            }
        }
        // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let text = py::unsafe_new_ref!(raw::PyObject_Repr(value.as_ptr()))?;
        py::raise(py::exceptions::value_error(), &format!("{} is not in the List", text.obj().to_text()?))
    }

    c"clear($self, /)\n--\n\nRemoves all items."
    fn clear(this, args) {
        args.none()?;
        borrow::<List>(this)?.clear();
        Ok(py::none())
    }

    c"reverse($self, /)\n--\n\nReverses the order of the items."
    fn reverse(this, args) {
        args.none()?;
        borrow::<List>(this)?.reverse();
        Ok(py::none())
    }

    c"sort($self, *, key=None, reverse=False)\n--\n\nSorts the items in place, as list.sort does."
    fn sort(this, args) {
        let [key, reverse] = args.only_keywords(["key", "reverse"])?;
        let options = [(c"key", key), (c"reverse", reverse)];
        let options: Vec<_> = options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        match sort(&*borrow::<List>(this)?, &options)? {
            Some(()) => Ok(py::none()),
            None => py::raise(py::exceptions::value_error(), "the List was changed while it was sorted"),
        }
    }

    c"copy($self, /)\n--\n\nReturns a new List of the same items."
    fn copy(this, args) {
        args.none()?;
        wrap(lower::list_of(snapshot(&*borrow::<List>(this)?)?)?)
    }

    c"index($self, value, start=0, stop=9223372036854775807, /)\n--\n\nReturns the index of the first item that equals `value`, or raises ValueError."
    fn index(this, args) { sequence::index_of(this, &args) }

    c"count($self, value, /)\n--\n\nReturns the number of items that equal `value`."
    fn count(this, args) { sequence::count_of(this, &args) }

    c"__reversed__($self, /)\n--\n\nReturns an iterator over a snapshot of the items, last item first."
    fn __reversed__(this, args) {
        args.none()?;
        let mut items = snapshot(&*borrow::<List>(this)?)?;
        items.reverse();
        iter::make(Cursor::Values(items.into_iter()))
    }

    c"__copy__($self, /)\n--\n\nReturns a new List of the same items."
    fn __copy__(this, args) {
        args.none()?;
        wrap(lower::list_of(snapshot(&*borrow::<List>(this)?)?)?)
    }

    c"__reduce__($self, /)\n--\n\nReturns the class and its arguments, for pickle."
    fn __reduce__(this, args) {
        args.none()?;
        sequence::reduce(this)
    }
}
