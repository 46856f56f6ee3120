//! The class `Dict`: a mutable mapping.

use std::ffi::c_void;

use anyfn::{Any, Dict};
use pyo3_ffi as ffi;

use super::base::{borrow, lift_item, native, wrap};
use super::iter::PairPart;
use super::keys::{Mapping, with_hooks};
use super::lower;
use super::mapping::{self, missing};
use super::slots::{methods, slots};
use super::views::{self, iterate_back};
use crate::at::At;
use crate::memo::Memo;
use crate::owned::lower_item;
use crate::py::{self, Obj, Own, Res};
use crate::types::Class;
use crate::{collect, object};

/// Makes the class `Dict`.
pub(super) fn make_class() -> Res<Own> {
    let mut slots = mapping::shared_slots().to_vec();
    slots.extend([
        (ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
        (ffi::Py_tp_new, new as *mut c_void),
        (ffi::Py_tp_traverse, collect::traverse as *mut c_void),
        (ffi::Py_tp_clear, collect::clear as *mut c_void),
        (ffi::Py_tp_dealloc, collect::dealloc as *mut c_void),
        (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
        (ffi::Py_mp_subscript, subscript as *mut c_void),
        (ffi::Py_mp_ass_subscript, set_subscript as *mut c_void),
        (ffi::Py_nb_inplace_or, or_in_place as *mut c_void),
        (ffi::Py_tp_methods, dict_methods().leak().as_mut_ptr().cast()),
    ]);
    Class {
        name: c"anyfn.Dict",
        size: size_of::<object::Layout>(),
        base_for_others: true,
        flags: ffi::Py_TPFLAGS_HAVE_GC,
        base: Some(object::BUILTIN.get()),
        slots: &slots,
    }
    .make()
}

const DOC: &std::ffi::CStr = c"Dict(mapping_or_pairs=(), /, **kwargs)\n--\n\n\
A mutable mapping in insertion order, shared by all languages: a change is visible through every reference.\n\n\
Behaves like a dict, except that 1, 1.0 and True are three distinct keys, as in all languages. Each operation is\n\
atomic, also with respect to threads of other languages. Iteration covers the pairs that the Dict has when it begins.";

fn dict_of(this: Obj<'_>) -> Res<Mapping<'_>> {
    borrow(this).map(Mapping::Dict)
}

fn insert(dict: &Dict, key: Any, value: Any) -> Res<()> {
    let held = key.clone();
    let old = native(with_hooks(&held, || dict.insert(key, value)))?;
    drop(old);
    Ok(())
}

fn remove(dict: &Dict, key: &Any) -> Res<Option<Any>> {
    native(with_hooks(key, || dict.remove(key)))
}

fn set_all(this: Obj<'_>, pairs: Vec<(Any, Any)>) -> Res<()> {
    let mapping = dict_of(this)?;
    let dict = borrow::<Dict>(this)?;
    for (key, value) in pairs {
        insert(&dict, mapping.key_like(key)?, value)?;
    }
    Ok(())
}

slots! {
    fn new(class: obj, args: obj, kwargs: opt) -> Own {
        let pairs = mapping::constructor_pairs("Dict", args, kwargs)?;
        object::wrap_as(class.as_ptr().cast(), native(Dict::<Any, Any>::from_vec(pairs))?.into_object())
    }

    fn subscript(this: obj, key: obj) -> Own {
        match dict_of(this)?.find(key)? {
            Some(value) => lift_item(&value),
            None => missing(key),
        }
    }

    fn set_subscript(this: obj, key: obj, value: opt) -> () {
        let lowered = dict_of(this)?.key_for(key)?;
        let dict = borrow::<Dict>(this)?;
        match value {
            Some(value) => {
                let value = lower_item(value, &At::Entry { of: &At::Value, memo: &Memo::new(), key })?;
                insert(&dict, lowered, value)
            }
            None => match remove(&dict, &lowered)? {
                Some(_) => Ok(()),
                None => missing(key),
            },
        }
    }

    fn or_in_place(this: obj, other: obj) -> Own {
        set_all(this, lower::pairs_of(Some(other), &[], &At::Value)?)?;
        Ok(this.to_own())
    }
}

fn copy_of(this: Obj<'_>) -> Res<Own> {
    wrap(native(Dict::<Any, Any>::from_vec(dict_of(this)?.pairs()?))?)
}

methods! { dict_methods;
    c"get($self, key, default=None, /)\n--\n\nReturns the value of a key, or `default` if the key is absent."
    fn get(this, args) { mapping::get(this, &args) }

    c"keys($self, /)\n--\n\nReturns a view of the keys."
    fn keys(this, args) {
        args.none()?;
        views::make(this, PairPart::Keys)
    }

    c"values($self, /)\n--\n\nReturns a view of the values."
    fn values(this, args) {
        args.none()?;
        views::make(this, PairPart::Values)
    }

    c"items($self, /)\n--\n\nReturns a view of the pairs of keys and values."
    fn items(this, args) {
        args.none()?;
        views::make(this, PairPart::Items)
    }

    c"setdefault($self, key, default=None, /)\n--\n\nReturns the value of a key, which is first set to `default` if it is absent."
    fn setdefault(this, args) {
        let values = args.positional(1, 2)?;
        let key = dict_of(this)?.key_for(values[0])?;
        let value = match values.get(1) {
            Some(value) => lower_item(*value, &At::Value)?,
            None => Any::NONE,
        };
        let dict = borrow::<Dict>(this)?;
        let held = key.clone();
        lift_item(&native(with_hooks(&held, || dict.get_or_set(key, value)))?)
    }

    c"pop($self, key, default=<no default>, /)\n--\n\nRemoves a pair and returns its value. If the key is absent, returns `default` or raises KeyError."
    fn pop(this, args) {
        let values = args.positional(1, 2)?;
        let key = dict_of(this)?.key_for(values[0])?;
        match (remove(&*borrow::<Dict>(this)?, &key)?, values.get(1)) {
            (Some(value), _) => lift_item(&value),
            (None, Some(default)) => Ok(default.to_own()),
            (None, None) => missing(values[0]),
        }
    }

    c"popitem($self, /)\n--\n\nRemoves and returns the most recently inserted pair."
    fn popitem(this, args) {
        args.none()?;
        match borrow::<Dict>(this)?.pop_last() {
            Some((key, value)) => py::pair(lift_item(&key)?, lift_item(&value)?),
            None => py::raise(py::exceptions::key_error(), "popitem(): Dict is empty"),
        }
    }

    c"update($self, mapping_or_pairs=(), /, **kwargs)\n--\n\nInserts the pairs of another mapping and the keyword arguments."
    fn update(this, args) {
        let (values, named) = args.with_keywords(1)?;
        set_all(this, lower::pairs_of(values.first().copied(), &named, &At::Value)?)?;
        Ok(py::none())
    }

    c"clear($self, /)\n--\n\nRemoves all pairs."
    fn clear(this, args) {
        args.none()?;
        native(borrow::<Dict>(this)?.clear())?;
        Ok(py::none())
    }

    c"copy($self, /)\n--\n\nReturns a new Dict of the same pairs."
    fn copy(this, args) {
        args.none()?;
        copy_of(this)
    }

    c"__copy__($self, /)\n--\n\nReturns a new Dict of the same pairs."
    fn __copy__(this, args) {
        args.none()?;
        copy_of(this)
    }

    c"__reversed__($self, /)\n--\n\nReturns an iterator over the keys in reverse insertion order."
    fn __reversed__(this, args) {
        args.none()?;
        iterate_back(this, PairPart::Keys)
    }

    c"__reduce__($self, /)\n--\n\nReturns the class and its arguments, for pickle."
    fn __reduce__(this, args) {
        args.none()?;
        mapping::reduce(this)
    }
}
