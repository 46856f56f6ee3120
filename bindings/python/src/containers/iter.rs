//! Iterators over containers.
//!
//! An iterator over an Array or Map reads the object itself, which does not change. An iterator over a List or Dict
//! reads a snapshot that is taken when the iterator is made.

use std::ffi::c_void;
use std::mem;
use std::vec;

use anyfn::abi::kTVMFFIInt;
use anyfn::{Any, Array, Map, MapCursor};
use pyo3_ffi as ffi;

use super::base::{bits, lift_item, raw};
use super::slots::{methods, slots};
use crate::py::{self, Global, Obj, Own, PyObject, Res};
use crate::types::{self, Class};

/// Part of each key-value pair that an iterator or view returns.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum PairPart {
    /// The key only.
    Keys,
    /// The value only.
    Values,
    /// A tuple of key and value.
    Items,
}

/// State of an iterator: the container or snapshot that it reads, and its position.
pub(super) enum Cursor {
    /// An Array, with the index of the next item.
    Array(Array, usize),
    /// An Array that is read backwards, with the number of items left.
    Backwards(Array, usize),
    /// Remaining values of a snapshot of a List.
    Values(vec::IntoIter<Any>),
    /// A Map, with the position of the next pair and the number of pairs left.
    Map(Map, MapCursor, usize, PairPart),
    /// Remaining pairs of a snapshot of a mapping.
    Pairs(vec::IntoIter<(Any, Any)>, PairPart),
    /// State after the end of the iteration.
    Done,
}

/// Native value or pair of values that an iterator returns next.
enum Step {
    Int(i64),
    One(Any),
    Two(Any, Any),
    /// Key or value to return, and the other half of the same pair. The other half is not returned; it is
    /// released once the iterator's state is no longer borrowed.
    Other(Any, Any),
}

#[repr(C)]
struct Layout {
    base: PyObject,
    state: Cursor,
}

/// Python class of the iterators over containers.
static CLASS: Global = Global::new();

pub(super) fn init() -> Res<()> {
    let class = Class {
        name: c"anyfn._core.Iterator",
        size: size_of::<Layout>(),
        base_for_others: false,
        flags: 0,
        base: None,
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_iter, itself as *mut c_void),
            (ffi::Py_tp_iternext, next as *mut c_void),
            (ffi::Py_tp_methods, list_methods().leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

/// Makes an iterator object with the initial state `state`.
pub(super) fn make(state: Cursor) -> Res<Own> {
    let own = types::allocate(CLASS.ptr().cast())?;
    // SAFETY: the instance is new and not shared.
    let place = unsafe { &raw mut (*own.as_ptr().cast::<Layout>()).state };
    // SAFETY: `place` is valid for writes. Nothing is dropped, since the previous content is uninitialised.
    unsafe { place.write(state) };
    Ok(own)
}

/// Borrows the state of an iterator object. The borrow must end before Python code may run.
fn state<'a>(object: Obj<'a>) -> &'a mut Cursor {
    // SAFETY: only called for instances; the GIL is held, and each caller ends the borrow before Python code runs.
    unsafe { &mut (*object.as_ptr().cast::<Layout>()).state }
}

impl Cursor {
    #[inline(always)]
    fn advance(&mut self) -> Option<Step> {
        match self {
            Cursor::Array(array, next) => {
                let item = array.as_slice().get(*next)?;
                *next += 1;
                Some(Step::of(item))
            }
            Cursor::Backwards(array, left) => {
                *left = left.checked_sub(1)?;
                array.as_slice().get(*left).map(Step::of)
            }
            Cursor::Values(values) => values.next().map(Step::One),
            Cursor::Map(map, place, left, what) => {
                let (key, value) = map.next_pair(place)?;
                *left = left.saturating_sub(1);
                Some(match what {
                    PairPart::Keys => Step::of(key),
                    PairPart::Values => Step::of(value),
                    PairPart::Items => Step::Two(key.clone(), value.clone()),
                })
            }
            Cursor::Pairs(pairs, what) => {
                let (key, value) = pairs.next()?;
                Some(match what {
                    PairPart::Keys => Step::Other(key, value),
                    PairPart::Values => Step::Other(value, key),
                    PairPart::Items => Step::Two(key, value),
                })
            }
            Cursor::Done => None,
        }
    }

    fn left(&self) -> usize {
        match self {
            Cursor::Array(array, next) => array.len().saturating_sub(*next),
            Cursor::Backwards(_, left) | Cursor::Map(_, _, left, _) => *left,
            Cursor::Values(values) => values.len(),
            Cursor::Pairs(pairs, _) => pairs.len(),
            Cursor::Done => 0,
        }
    }
}

impl Step {
    #[inline(always)]
    fn of(item: &Any) -> Step {
        if raw(item).type_index == kTVMFFIInt { Step::Int(bits(item) as i64) } else { Step::One(item.clone()) }
    }
}

slots! {
    fn itself(object: obj) -> Own {
        Ok(object.to_own())
    }

    fn next(object: obj) -> Option<Own> {
        let Some(step) = state(object).advance() else {
            // Releasing the content of the iterator may run Python code, so the new position is set before.
            drop(mem::replace(state(object), Cursor::Done));
            return Ok(None);
        };
        match step {
            Step::Int(value) => py::int(value),
            Step::One(value) => lift_item(&value),
            // Releasing the unused half may run Python code, which may use this iterator.
            Step::Other(value, other) => {
                drop(other);
                lift_item(&value)
            }
            Step::Two(key, value) => py::pair(lift_item(&key)?, lift_item(&value)?),
        }
        .map(Some)
    }
}

methods! { list_methods;
    c"__length_hint__($self, /)\n--\n\nReturns the number of remaining items."
    fn __length_hint__(object, args) {
        args.none()?;
        py::int(state(object).left() as i64)
    }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: this is an instance that is no longer in use.
    let place = unsafe { &raw mut (*object.cast::<Layout>()).state };
    // SAFETY: the position was initialised when the instance was made, and is dropped once.
    unsafe { place.drop_in_place() };
    // SAFETY: this is the end of the destructor.
    unsafe { types::free(object) };
}
