//! Views of the current keys, values or pairs of a Map or Dict.

use std::ffi::c_void;

use anyfn::{Map, MapCursor};
use pyo3_ffi as ffi;

use super::base::native;
use super::iter::{self, Cursor, PairPart};
use super::keys::{Mapping, mapping_of};
use super::slots::{methods, slots};
use super::{compare, text};
use crate::py::{self, Global, Obj, Own, PyObject, Res, raw};
use crate::types::{self, Class};

#[repr(C)]
struct Layout {
    base: PyObject,
    /// Owned reference to the Map or Dict whose keys, values or pairs the view shows.
    mapping: *mut PyObject,
}

/// Classes of views, indexed by [`PairPart`].
static CLASSES: [Global; 3] = [const { Global::new() }; 3];

/// Returns the names and classes of the views of mappings (keys, values, items), to be added to the
/// module `anyfn._core`.
pub(crate) fn classes() -> [(&'static std::ffi::CStr, &'static Global); 3] {
    [(c"KeysView", &CLASSES[0]), (c"ValuesView", &CLASSES[1]), (c"ItemsView", &CLASSES[2])]
}

pub(super) fn init() -> Res<()> {
    for (at, name) in
        [c"anyfn._core.KeysView", c"anyfn._core.ValuesView", c"anyfn._core.ItemsView"].iter().enumerate()
    {
        let mut slots = vec![
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_repr, repr as *mut c_void),
            (ffi::Py_tp_iter, iterate as *mut c_void),
            (ffi::Py_sq_length, len as *mut c_void),
            (ffi::Py_sq_contains, contains as *mut c_void),
            (ffi::Py_tp_methods, view_methods().leak().as_mut_ptr().cast()),
        ];
        if at != 1 {
            slots.extend([
                (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
                (ffi::Py_tp_richcompare, compare_sets as *mut c_void),
                (ffi::Py_nb_and, and as *mut c_void),
                (ffi::Py_nb_or, or as *mut c_void),
                (ffi::Py_nb_xor, xor as *mut c_void),
                (ffi::Py_nb_subtract, subtract as *mut c_void),
            ]);
        }
        let class = Class {
            name,
            size: size_of::<Layout>(),
            base_for_others: false,
            flags: 0,
            base: None,
            slots: &slots,
        };
        CLASSES[at].set(class.make()?);
    }
    Ok(())
}

/// Makes a view of the keys, values or pairs of a Map or Dict; `what` selects among them.
pub(super) fn make(mapping: Obj<'_>, what: PairPart) -> Res<Own> {
    let own = types::allocate(CLASSES[what as usize].ptr().cast())?;
    // SAFETY: the instance is new and not shared.
    unsafe { (*own.as_ptr().cast::<Layout>()).mapping = mapping.to_own().into_ptr() };
    Ok(own)
}

/// Returns the Map or Dict whose keys, values or pairs a view contains.
fn mapping<'a>(view: Obj<'a>) -> Obj<'a> {
    // SAFETY: only called for instances.
    let mapping = unsafe { (*view.as_ptr().cast::<Layout>()).mapping };
    // SAFETY: the view owns a reference to the object.
    unsafe { Obj::from_ptr(mapping) }
}

fn what(view: Obj<'_>) -> PairPart {
    if view.class().is(CLASSES[0].ptr()) {
        PairPart::Keys
    } else if view.class().is(CLASSES[1].ptr()) {
        PairPart::Values
    } else {
        PairPart::Items
    }
}

/// Makes an iterator over the keys, values or pairs of a Map or Dict.
pub(super) fn iterate_over(this: Obj<'_>, what: PairPart) -> Res<Own> {
    iter::make(match mapping_of(this)? {
        Mapping::Map(map) => Cursor::Map(Map::clone(&map), MapCursor::default(), map.len(), what),
        Mapping::Dict(dict) => Cursor::Pairs(native(dict.try_snapshot())?.into_iter(), what),
    })
}

/// Makes an iterator over the keys, values or pairs of a Map or Dict, newest pair first.
pub(super) fn iterate_back(this: Obj<'_>, what: PairPart) -> Res<Own> {
    let mut pairs = mapping_of(this)?.pairs()?;
    pairs.reverse();
    iter::make(Cursor::Pairs(pairs.into_iter(), what))
}

/// Makes a set of the items of an iterable.
fn set_of(iterable: Obj<'_>) -> Res<Own> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    py::unsafe_new_ref!(raw::PySet_New(iterable.as_ptr()))
}

/// Converts both operands of a set operation to sets.
fn sets(left: Obj<'_>, right: Obj<'_>) -> Res<(Own, Own)> {
    Ok((set_of(left)?, set_of(right)?))
}

slots! {
    fn iterate(view: obj) -> Own {
        iterate_over(mapping(view), what(view))
    }

    fn len(view: obj) -> usize {
        Ok(mapping_of(mapping(view))?.len())
    }

    fn contains(view: obj, value: obj) -> bool {
        let mapping = mapping_of(mapping(view))?;
        match what(view) {
            PairPart::Keys => Ok(mapping.find(value)?.is_some()),
            PairPart::Values => {
                for (_, candidate) in mapping.pairs()? {
                    if compare::item_equals(&candidate, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            PairPart::Items => {
                if value.type_flags() & ffi::Py_TPFLAGS_TUPLE_SUBCLASS == 0 || value.tuple_len() != 2 {
                    return Ok(false);
                }
                let (Some(key), Some(value)) = (py::tuple_get(value, 0), py::tuple_get(value, 1)) else {
                    return Ok(false);
                };
                match mapping.find(key)? {
                    Some(found) => compare::item_equals(&found, value),
                    None => Ok(false),
                }
            }
        }
    }

    fn repr(view: obj) -> Own {
        // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let listed = py::unsafe_new_ref!(raw::PySequence_List(view.as_ptr()))?;
        text::write_listed(&view.class_name(), listed.obj())
    }

    fn and(left: obj, right: obj) -> Own {
        let (left, right) = sets(left, right)?;
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        py::unsafe_new_ref!(raw::PyNumber_And(left.as_ptr(), right.as_ptr()))
    }

    fn or(left: obj, right: obj) -> Own {
        let (left, right) = sets(left, right)?;
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        py::unsafe_new_ref!(raw::PyNumber_Or(left.as_ptr(), right.as_ptr()))
    }

    fn xor(left: obj, right: obj) -> Own {
        let (left, right) = sets(left, right)?;
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        py::unsafe_new_ref!(raw::PyNumber_Xor(left.as_ptr(), right.as_ptr()))
    }

    fn subtract(left: obj, right: obj) -> Own {
        let (left, right) = sets(left, right)?;
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        py::unsafe_new_ref!(raw::PyNumber_Subtract(left.as_ptr(), right.as_ptr()))
    }

    fn compare_sets(left: obj, right: obj, operation: int) -> Own {
        if !is_set(right) {
            return Ok(py::not_implemented());
        }
        let (left, right) = sets(left, right)?;
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        py::unsafe_new_ref!(raw::PyObject_RichCompare(left.as_ptr(), right.as_ptr(), operation))
    }
}

/// Returns true if an object is a set, a frozenset, or a view of the keys or pairs of a Map, Dict or dict.
fn is_set(object: Obj<'_>) -> bool {
    let class = object.type_ptr();
    let is = |class: *mut ffi::PyTypeObject| object.is_instance_of(class.cast());
    class.cast() == CLASSES[0].ptr()
        || class.cast() == CLASSES[2].ptr()
        || is(&raw mut ffi::PySet_Type)
        || is(&raw mut ffi::PyFrozenSet_Type)
        || is(&raw mut ffi::PyDictKeys_Type)
        || is(&raw mut ffi::PyDictItems_Type)
}

methods! { view_methods;
    c"__reversed__($self, /)\n--\n\nReturns an iterator over the view in reverse insertion order."
    fn __reversed__(view, args) {
        args.none()?;
        iterate_back(mapping(view), what(view))
    }

    c"isdisjoint($self, other, /)\n--\n\nReturns True if the view and `other` have no elements in common."
    fn isdisjoint(view, args) {
        let own = set_of(view)?;
        let other = set_of(args.one()?)?;
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let both = py::unsafe_new_ref!(raw::PyNumber_And(own.as_ptr(), other.as_ptr()))?;
        Ok(py::boolean(!both.obj().is_true()?))
    }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: this is an instance that is no longer in use.
    let mapping = unsafe { (*object.cast::<Layout>()).mapping };
    // SAFETY: the view owns the object, or the pointer is NULL because its construction failed.
    drop(unsafe { Own::from_nullable(mapping) });
    // SAFETY: this is the end of the destructor.
    unsafe { types::free(object) };
}
