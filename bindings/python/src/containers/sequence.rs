//! The class `Array`, and the functions that it shares with `List`.

use std::ffi::{c_int, c_void};

use anyfn::{Any, Array, ArrayBuilder, List, Slice};
use pyo3_ffi as ffi;

use super::base::{ARRAY, LIST, borrow, borrow_if, lift_item, native, wrap};
use super::compare::{self, native_items};
use super::iter::{self, Cursor};
use super::slots::{Args, methods, slots};
use super::{lower, text};
use crate::at::At;
use crate::loops::{Pace, reserved};
use crate::py::{self, Obj, Own, Raised, Res, raw};
use crate::types::Class;
use crate::{collect, object, owned};

/// Makes the class `Array`.
pub(super) fn make_array_class() -> Res<Own> {
    let mut slots = shared_slots().to_vec();
    slots.extend([
        (ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
        (ffi::Py_tp_new, new as *mut c_void),
        (ffi::Py_tp_traverse, collect::traverse as *mut c_void),
        (ffi::Py_tp_clear, collect::clear as *mut c_void),
        (ffi::Py_tp_dealloc, collect::dealloc as *mut c_void),
        (ffi::Py_tp_iter, iterate as *mut c_void),
        (ffi::Py_tp_hash, compare::hash_array as *mut c_void),
        (ffi::Py_sq_length, len as *mut c_void),
        (ffi::Py_mp_length, len as *mut c_void),
        (ffi::Py_sq_item, item as *mut c_void),
        (ffi::Py_mp_subscript, subscript as *mut c_void),
        (ffi::Py_tp_methods, array_methods().leak().as_mut_ptr().cast()),
    ]);
    Class {
        name: c"anyfn.Array",
        size: size_of::<object::Layout>(),
        base_for_others: true,
        flags: ffi::Py_TPFLAGS_HAVE_GC,
        base: Some(object::BUILTIN.get()),
        slots: &slots,
    }
    .make()
}

const DOC: &std::ffi::CStr = c"Array(iterable=(), /)\n--\n\n\
An immutable sequence, shared by all languages.\n\n\
Behaves like a tuple. Slices and concatenations are Arrays. An Array equals lists and tuples of equal items.";

/// Type slots that the classes Array and List share.
pub(super) fn shared_slots() -> [(c_int, *mut c_void); 5] {
    [
        (ffi::Py_tp_repr, text::repr as *mut c_void),
        (ffi::Py_tp_richcompare, compare::compare_sequences as *mut c_void),
        (ffi::Py_sq_contains, contains as *mut c_void),
        (ffi::Py_nb_add, add as *mut c_void),
        (ffi::Py_sq_repeat, repeat as *mut c_void),
    ]
}

/// Returns the argument of a constructor that takes an optional iterable. Raises `TypeError` for any other arguments.
pub(super) fn iterable_argument<'a>(
    name: &str,
    args: Obj<'a>,
    kwargs: Option<Obj<'a>>,
) -> Res<Option<Obj<'a>>> {
    if kwargs.is_some_and(|kwargs| py::dict_len(kwargs) > 0) {
        return py::raise(py::exceptions::type_error(), &format!("{name}() takes no keyword arguments"));
    }
    let given = args.tuple_len();
    if given > 1 {
        let text = format!("{name}() takes at most 1 argument ({given} given)");
        return py::raise(py::exceptions::type_error(), &text);
    }
    Ok(py::tuple_get(args, 0))
}

/// Makes an Array from any iterable.
fn array_from(iterable: Obj<'_>) -> Res<Array> {
    if let Some(array) = borrow_if::<Array>(iterable, &ARRAY) {
        return Ok(array.clone());
    }
    let is_list = iterable.type_ptr() == &raw mut ffi::PyList_Type;
    if is_list || iterable.type_ptr() == &raw mut ffi::PyTuple_Type {
        return py::nested(|| owned::array_of(iterable, is_list, &At::Value));
    }
    array_of(lower::items_of(iterable, &At::Value)?)
}

/// Makes an Array that contains `values`.
fn array_of(values: Vec<Any>) -> Res<Array> {
    let mut array = native(ArrayBuilder::with_capacity(values.len()))?;
    for value in values {
        native(array.push(value))?;
    }
    Ok(array.finish())
}

/// Subscript of a sequence: an index or a slice.
pub(super) enum Key {
    /// An index, which counts from the end if it is negative.
    Index(i64),
    /// A slice of the sequence.
    Slice(Slice),
}

/// Reads a subscript as an index or a slice. `name` is the name of the class, for messages.
#[inline(always)]
pub(super) fn key_of(key: Obj<'_>, name: &str) -> Res<Key> {
    if key.type_ptr() == &raw mut ffi::PyLong_Type
        && let Ok(index) = key.int()
    {
        return Ok(Key::Index(index));
    }
    other_key_of(key, name)
}

#[cold]
fn other_key_of(key: Obj<'_>, name: &str) -> Res<Key> {
    if key.type_ptr() == &raw mut ffi::PySlice_Type {
        let (mut start, mut stop, mut step) = (0, 0, 0);
        // SAFETY: the object is a slice and the pointers are writable; indices that are not ints may run Python code.
        py::check(raw::run(|| unsafe { raw::PySlice_Unpack(key.as_ptr(), &mut start, &mut stop, &mut step) }))?;
        return native(Slice::new(start as i64, stop as i64, step as i64)).map(Key::Slice);
    }
    // SAFETY: the object and the class are valid; the call may run Python code.
    let index = raw::run(|| unsafe { raw::PyNumber_AsSsize_t(key.as_ptr(), py::exceptions::index_error()) });
    if index == -1 && py::error_occurred() {
        if !py::error_is(py::exceptions::type_error()) {
            return Err(Raised);
        }
        py::clear_error();
        return py::raise(
            py::exceptions::type_error(),
            &format!("{name} indices must be integers or slices, not {}", key.class_name()),
        );
    }
    Ok(Key::Index(index as i64))
}

/// Raises `IndexError` for an index that is out of range.
#[cold]
pub(super) fn out_of_range<T>(index: i64, name: &str, len: usize) -> Res<T> {
    let plural = if len == 1 { "" } else { "s" };
    py::raise(
        py::exceptions::index_error(),
        &format!("index {index} is out of range: the {name} has {len} element{plural}"),
    )
}

#[inline(always)]
fn item_at(array: &Array, index: i64) -> Res<Own> {
    let items = array.as_slice();
    let at = if index < 0 { index.wrapping_add(items.len() as i64) } else { index };
    match usize::try_from(at).ok().and_then(|at| items.get(at)) {
        Some(item) => lift_item(item),
        None => out_of_range(index, "Array", items.len()),
    }
}

/// Makes a container of `items`: a List if `like` is a List, and otherwise an Array.
fn same_kind(like: Obj<'_>, items: Vec<Any>) -> Res<Own> {
    if like.is_instance_of(LIST.ptr()) { wrap(lower::list_of(items)?) } else { wrap(array_of(items)?) }
}

/// Returns `items` repeated `times` times, or raises `MemoryError`.
pub(super) fn repeated(items: &[Any], times: ffi::Py_ssize_t) -> Res<Vec<Any>> {
    let times = usize::try_from(times).unwrap_or(0);
    let mut values = reserved(items.len().saturating_mul(times))?;
    let mut pace = Pace::new();
    if !items.is_empty() {
        for _ in 0..times {
            for item in items {
                values.push(item.clone());
                pace.step()?;
            }
        }
    }
    Ok(values)
}

slots! {
    fn new(class: obj, args: obj, kwargs: opt) -> Own {
        let array = match iterable_argument("Array", args, kwargs)? {
            Some(iterable) => array_from(iterable)?,
            None => array_of(Vec::new())?,
        };
        object::wrap_as(class.as_ptr().cast(), array.into_object())
    }

    fn len(this: obj) -> usize {
        Ok(borrow::<Array>(this)?.len())
    }

    fn item(this: obj, index: size) -> Own {
        // Python has added the length to a negative index; if it is still negative, it is out of range.
        let array = borrow::<Array>(this)?;
        if index < 0 { out_of_range(index as i64, "Array", array.len()) } else { item_at(&array, index as i64) }
    }

    fn subscript(this: obj, key: obj) -> Own {
        let array = borrow::<Array>(this)?;
        match key_of(key, "Array")? {
            Key::Index(index) => item_at(&array, index),
            Key::Slice(slice) => wrap(native(array.slice(slice))?),
        }
    }

    fn iterate(this: obj) -> Own {
        iter::make(Cursor::Array(Array::clone(&*borrow(this)?), 0))
    }

    fn contains(this: obj, value: obj) -> bool {
        let Some(items) = native_items(this)? else { return compare::no_container(this) };
        for item in items.as_slice() {
            if compare::item_equals(item, value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn add(left: obj, right: obj) -> Own {
        // One operand is an Array or List; the other one may be a list or tuple.
        let is_ours = |object: Obj<'_>| {
            object.is_instance_of(ARRAY.ptr()) || object.is_instance_of(LIST.ptr())
        };
        let (Some(_), Some(_)) = (compare::Other::of(left)?, compare::Other::of(right)?) else {
            return Ok(py::not_implemented());
        };
        let mut items = lower::items_of(left, &At::Value)?;
        let more = lower::items_of(right, &At::Value)?;
        if items.try_reserve_exact(more.len()).is_err() {
            return py::raise(py::exceptions::memory_error(), "cannot allocate memory for the concatenation");
        }
        items.extend(more);
        same_kind(if is_ours(left) { left } else { right }, items)
    }

    fn repeat(this: obj, times: size) -> Own {
        let Some(items) = native_items(this)? else { return compare::no_container(this) };
        same_kind(this, repeated(items.as_slice(), times)?)
    }
}

/// Implements `index(value, start, stop)`: returns the index of the first item in the range that equals a value.
pub(super) fn index_of(this: Obj<'_>, args: &Args<'_>) -> Res<Own> {
    let values = args.positional(1, 3)?;
    let Some(items) = native_items(this)? else { return compare::no_container(this) };
    let items = items.as_slice();
    let bound = |at: usize, otherwise: i64| match values.get(at) {
        None => Ok(otherwise),
        Some(value) => {
            // SAFETY: the object is valid; an int that is too large is clipped, and the call may run Python code.
            let bound = raw::run(|| unsafe { raw::PyNumber_AsSsize_t(value.as_ptr(), std::ptr::null_mut()) });
            if bound == -1 && py::error_occurred() { Err(Raised) } else { Ok(bound as i64) }
        }
    };
    let slice = native(Slice::new(bound(1, 0)?, bound(2, i64::MAX)?, 1))?;
    for at in slice.indices(items.len()) {
        if compare::item_equals(&items[at], values[0])? {
            return py::int(at as i64);
        }
    }
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let text = py::unsafe_new_ref!(raw::PyObject_Repr(values[0].as_ptr()))?;
    let text = text.obj().to_text()?;
    py::raise(py::exceptions::value_error(), &format!("{text} is not in the {}", this.class_name()))
}

/// Implements `count(value)`: returns the number of items that equal a value.
pub(super) fn count_of(this: Obj<'_>, args: &Args<'_>) -> Res<Own> {
    let value = args.one()?;
    let Some(items) = native_items(this)? else { return compare::no_container(this) };
    let mut count = 0;
    for item in items.as_slice() {
        count += i64::from(compare::item_equals(item, value)?);
    }
    py::int(count)
}

/// Implements `__reduce__`: returns the class and a list of items, from which pickle and copy recreate the
/// container.
pub(super) fn reduce(this: Obj<'_>) -> Res<Own> {
    let Some(items) = native_items(this)? else { return compare::no_container(this) };
    let items = items.as_slice().iter().map(lift_item).collect::<Res<Vec<Own>>>()?;
    let arguments = py::tuple(vec![py::list(items)?])?;
    py::pair(this.class().to_own(), arguments)
}

methods! { array_methods;
    c"index($self, value, start=0, stop=9223372036854775807, /)\n--\n\nReturns the index of the first item that equals `value`, or raises ValueError."
    fn index(this, args) { index_of(this, &args) }

    c"count($self, value, /)\n--\n\nReturns the number of items that equal `value`."
    fn count(this, args) { count_of(this, &args) }

    c"__reversed__($self, /)\n--\n\nReturns an iterator over the items, last item first."
    fn __reversed__(this, args) {
        args.none()?;
        let array = Array::clone(&*borrow(this)?);
        let len = array.len();
        iter::make(Cursor::Backwards(array, len))
    }

    c"__copy__($self, /)\n--\n\nReturns the Array itself, which is immutable."
    fn __copy__(this, args) {
        args.none()?;
        Ok(this.to_own())
    }

    c"__reduce__($self, /)\n--\n\nReturns the class and its arguments, for pickle."
    fn __reduce__(this, args) {
        args.none()?;
        reduce(this)
    }
}

/// Returns a snapshot of the items of a List.
pub(super) fn snapshot(list: &List) -> Res<Vec<Any>> {
    native(list.try_snapshot())
}
