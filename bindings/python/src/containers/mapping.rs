//! The class `Map`, and the functions that it shares with `Dict`.

use std::ffi::{c_int, c_void};

use anyfn::{Any, Dict, Map};
use pyo3_ffi as ffi;

use super::base::{DICT, MAP, borrow, borrow_if, lift_item, native, wrap};
use super::iter::PairPart;
use super::keys::{Mapping, mapping_of, native_mapping};
use super::slots::{Args, methods, slots};
use super::views::{iterate_back, iterate_over};
use super::{compare, lower, text, views};
use crate::at::At;
use crate::py::{self, Obj, Own, Res};
use crate::types::Class;
use crate::{collect, object};

/// Makes the class `Map`.
pub(super) fn make_map_class() -> Res<Own> {
    let mut slots = shared_slots().to_vec();
    slots.extend([
        (ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
        (ffi::Py_tp_new, new as *mut c_void),
        (ffi::Py_tp_traverse, collect::traverse as *mut c_void),
        (ffi::Py_tp_clear, collect::clear as *mut c_void),
        (ffi::Py_tp_dealloc, collect::dealloc as *mut c_void),
        (ffi::Py_tp_hash, compare::hash_map as *mut c_void),
        (ffi::Py_mp_subscript, subscript as *mut c_void),
        (ffi::Py_tp_methods, map_methods().leak().as_mut_ptr().cast()),
    ]);
    Class {
        name: c"anyfn.Map",
        size: size_of::<object::Layout>(),
        base_for_others: true,
        flags: ffi::Py_TPFLAGS_HAVE_GC,
        base: Some(object::BUILTIN.get()),
        slots: &slots,
    }
    .make()
}

const DOC: &std::ffi::CStr = c"Map(mapping_or_pairs=(), /, **kwargs)\n--\n\n\
An immutable mapping in insertion order, shared by all languages.\n\n\
Behaves like a read-only dict, except that 1, 1.0 and True are three distinct keys, as in all languages.";

/// Type slots that the classes Map and Dict share.
pub(super) fn shared_slots() -> [(c_int, *mut c_void); 7] {
    [
        (ffi::Py_tp_repr, text::repr as *mut c_void),
        (ffi::Py_tp_richcompare, compare::compare_mappings as *mut c_void),
        (ffi::Py_tp_iter, iterate as *mut c_void),
        (ffi::Py_mp_length, len as *mut c_void),
        (ffi::Py_sq_length, len as *mut c_void),
        (ffi::Py_sq_contains, contains as *mut c_void),
        (ffi::Py_nb_or, or as *mut c_void),
    ]
}

/// Converts the arguments of a constructor to pairs. `name` is the name of the class, for messages.
pub(super) fn constructor_pairs(name: &str, args: Obj<'_>, kwargs: Option<Obj<'_>>) -> Res<Vec<(Any, Any)>> {
    let given = args.tuple_len();
    if given > 1 {
        let text = format!("{name}() takes at most 1 positional argument ({given} given)");
        return py::raise(py::exceptions::type_error(), &text);
    }
    let mut pairs = lower::pairs_of(py::tuple_get(args, 0), &[], &At::Value)?;
    if let Some(kwargs) = kwargs {
        pairs.extend(lower::pairs_of(Some(kwargs), &[], &At::Value)?);
    }
    Ok(pairs)
}

/// Raises `KeyError` for a missing key.
#[cold]
pub(super) fn missing<T>(key: Obj<'_>) -> Res<T> {
    // The key is wrapped in a tuple, so that a key that is a tuple remains one argument.
    let argument = py::tuple(vec![key.to_own()])?;
    // SAFETY: the class and the tuple are valid, and the GIL is held.
    unsafe { py::raw::PyErr_SetObject(py::exceptions::key_error(), argument.as_ptr()) };
    Err(py::Raised)
}

/// Returns true if an object is a dict, Map or Dict, and so can be an operand of `|`.
fn is_mapping(object: Obj<'_>) -> bool {
    object.type_flags() & ffi::Py_TPFLAGS_DICT_SUBCLASS != 0
        || object.is_instance_of(MAP.ptr())
        || object.is_instance_of(DICT.ptr())
}

slots! {
    fn new(class: obj, args: obj, kwargs: opt) -> Own {
        let only = py::tuple_get(args, 0).filter(|_| args.tuple_len() == 1 && kwargs.is_none());
        let map = match only.and_then(|only| borrow_if::<Map>(only, &MAP)) {
            Some(map) => Map::clone(&map),
            None => native(Map::from_vec(constructor_pairs("Map", args, kwargs)?))?,
        };
        object::wrap_as(class.as_ptr().cast(), map.into_object())
    }

    fn len(this: obj) -> usize {
        Ok(mapping_of(this)?.len())
    }

    fn subscript(this: obj, key: obj) -> Own {
        let map = Mapping::Map(borrow(this)?);
        match map.find(key)? {
            Some(value) => lift_item(&value),
            None => missing(key),
        }
    }

    fn contains(this: obj, key: obj) -> bool {
        Ok(mapping_of(this)?.find(key)?.is_some())
    }

    fn iterate(this: obj) -> Own {
        iterate_over(this, PairPart::Keys)
    }

    fn or(left: obj, right: obj) -> Own {
        if !is_mapping(left) || !is_mapping(right) {
            return Ok(py::not_implemented());
        }
        // The result has the type of the left operand, or of the right operand if the left one is a Python dict.
        let ours = |object: Obj<'_>| native_mapping(object).is_some();
        let like = if ours(left) { left } else { right };
        let mut pairs = lower::pairs_of(Some(left), &[], &At::Value)?;
        pairs.extend(lower::pairs_of(Some(right), &[], &At::Value)?);
        if like.is_instance_of(DICT.ptr()) {
            wrap(native(Dict::from_vec(pairs))?)
        } else {
            wrap(native(Map::from_vec(pairs))?)
        }
    }
}

/// Implements `get(key, default=None)`: returns the value of a key, or the default if the key is absent.
pub(super) fn get(this: Obj<'_>, args: &Args<'_>) -> Res<Own> {
    let values = args.positional(1, 2)?;
    match mapping_of(this)?.find(values[0])? {
        Some(value) => lift_item(&value),
        None => Ok(values.get(1).map_or_else(py::none, |value| value.to_own())),
    }
}

/// Implements `__reduce__`: returns the class and a list of pairs, from which pickle and copy recreate the
/// container.
pub(super) fn reduce(this: Obj<'_>) -> Res<Own> {
    let pairs = mapping_of(this)?.pairs()?;
    let pairs = pairs.iter().map(|(key, value)| py::pair(lift_item(key)?, lift_item(value)?));
    let arguments = py::tuple(vec![py::list(pairs.collect::<Res<Vec<Own>>>()?)?])?;
    py::pair(this.class().to_own(), arguments)
}

methods! { map_methods;
    c"get($self, key, default=None, /)\n--\n\nReturns the value of a key, or `default` if the key is absent."
    fn get(this, args) { get(this, &args) }

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

    c"copy($self, /)\n--\n\nReturns the Map itself, which is immutable."
    fn copy(this, args) {
        args.none()?;
        Ok(this.to_own())
    }

    c"__copy__($self, /)\n--\n\nReturns the Map itself, which is immutable."
    fn __copy__(this, args) {
        args.none()?;
        Ok(this.to_own())
    }

    c"__reversed__($self, /)\n--\n\nReturns an iterator over the keys in reverse insertion order."
    fn __reversed__(this, args) {
        args.none()?;
        iterate_back(this, PairPart::Keys)
    }

    c"__reduce__($self, /)\n--\n\nReturns the class and its arguments, for pickle."
    fn __reduce__(this, args) {
        args.none()?;
        reduce(this)
    }
}
