//! Equality, order and hash, in Python's way.
//!
//! Sequences compare item by item, with each other and with lists and tuples; mappings by keys, found as the ABI has
//! it, and values. Python code that compares items may run and change what is compared: Arrays and Maps stay as they
//! are, of Lists and Dicts the items of one moment are compared, of Python's lists those that are there at each step.

use anyfn::abi::{kTVMFFIBool, kTVMFFIInt, kTVMFFINone, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr};
use anyfn::{Any, Array, List};
use pyo3_ffi as ffi;

use super::keys::Mapping;
use super::slots::slots;
use super::{ARRAY, DICT, LIST, MAP, Ref, borrow_if, lift_item, native, raw};
use crate::object;
use crate::py::{self, Obj, Own, Res};

/// The items of an Array or List.
pub(super) enum Items<'a> {
    /// Those of an Array, which do not change.
    Array(Ref<'a, Array>),
    /// Those of a List at one moment.
    List(Vec<Any>),
}

impl Items<'_> {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Any] {
        match self {
            Items::Array(array) => array.as_slice(),
            Items::List(items) => items,
        }
    }

    pub(super) fn into_vec(self) -> Vec<Any> {
        match self {
            Items::Array(array) => array.as_slice().to_vec(),
            Items::List(items) => items,
        }
    }
}

/// The items of an object, if it is an Array or List.
pub(super) fn native_items(object: Obj<'_>) -> Res<Option<Items<'_>>> {
    if let Some(array) = borrow_if::<Array>(object, &ARRAY) {
        return Ok(Some(Items::Array(array)));
    }
    match borrow_if::<List>(object, &LIST) {
        Some(list) => native(list.try_snapshot()).map(|items| Some(Items::List(items))),
        None => Ok(None),
    }
}

/// The mapping of an object, if it is a Map or Dict.
pub(super) fn native_mapping(object: Obj<'_>) -> Option<Mapping<'_>> {
    match borrow_if(object, &MAP) {
        Some(map) => Some(Mapping::Map(map)),
        None => borrow_if(object, &DICT).map(Mapping::Dict),
    }
}

/// What a sequence is compared with.
pub(super) enum Other<'a> {
    /// An Array or List.
    Native(Items<'a>),
    /// A list.
    List(Obj<'a>),
    /// A tuple.
    Tuple(Obj<'a>),
}

impl<'a> Other<'a> {
    pub(super) fn of(object: Obj<'a>) -> Res<Option<Other<'a>>> {
        let flags = object.type_flags();
        if flags & ffi::Py_TPFLAGS_LIST_SUBCLASS != 0 {
            return Ok(Some(Other::List(object)));
        }
        if flags & ffi::Py_TPFLAGS_TUPLE_SUBCLASS != 0 {
            return Ok(Some(Other::Tuple(object)));
        }
        native_items(object).map(|items| items.map(Other::Native))
    }

    fn len(&self) -> usize {
        match self {
            Other::Native(items) => items.as_slice().len(),
            Other::List(list) => py::list_len(*list),
            Other::Tuple(tuple) => tuple.tuple_len(),
        }
    }

    fn get(&self, at: usize) -> Res<Option<Own>> {
        match self {
            Other::Native(items) => items.as_slice().get(at).map(lift_item).transpose(),
            Other::List(list) => Ok(py::list_get(*list, at)),
            Other::Tuple(tuple) => Ok(py::tuple_get(*tuple, at).map(Obj::to_own)),
        }
    }

    /// Whether the item at a place equals another; `None` if there is none.
    fn equals(&self, at: usize, item: &Any) -> Res<Option<bool>> {
        match self {
            Other::Native(items) => items.as_slice().get(at).map(|other| items_equal(item, other)).transpose(),
            _ => self.get(at)?.map(|other| item_equals(item, other.obj())).transpose(),
        }
    }
}

/// Whether two items are equal.
pub(super) fn items_equal(left: &Any, right: &Any) -> Res<bool> {
    let (l, r) = (raw(left), raw(right));
    if l.type_index == r.type_index {
        match l.type_index {
            kTVMFFIInt | kTVMFFIBool | kTVMFFINone => return Ok(l.bits() == r.bits()),
            kTVMFFISmallStr | kTVMFFIStr => return Ok(left == right),
            index if index >= kTVMFFIStaticObjectBegin && l.bits() == r.bits() => return Ok(true),
            _ => {}
        }
    }
    py::equal(lift_item(left)?.obj(), lift_item(right)?.obj())
}

/// Whether an item equals a Python object, which the caller holds.
#[inline]
pub(super) fn item_equals(item: &Any, other: Obj<'_>) -> Res<bool> {
    if let (kTVMFFIInt, Some(other)) = (raw(item).type_index, super::lower::exact_int(other)) {
        return Ok(raw(item).bits() == raw(&other).bits());
    }
    py::equal(lift_item(item)?.obj(), other)
}

/// The result of a comparison of two objects that are equal (or of which one goes on where the other ends).
fn by_order(order: std::cmp::Ordering, operation: i32) -> Own {
    py::boolean(match operation {
        ffi::Py_LT => order.is_lt(),
        ffi::Py_LE => order.is_le(),
        ffi::Py_EQ => order.is_eq(),
        ffi::Py_NE => order.is_ne(),
        ffi::Py_GT => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn same_object(left: Obj<'_>, right: Obj<'_>) -> bool {
    object::handle_of(right).is_some_and(|right| right == object::handle_unchecked(left))
}

fn is_equality(operation: i32) -> bool {
    matches!(operation, ffi::Py_EQ | ffi::Py_NE)
}

fn compare_items(items: &[Any], other: &Other<'_>, operation: i32) -> Res<Own> {
    if is_equality(operation) && items.len() != other.len() {
        return Ok(py::boolean(operation == ffi::Py_NE));
    }
    let mut at = 0;
    let differing = loop {
        let Some(item) = items.get(at) else { break None };
        match other.equals(at, item)? {
            None => break None,
            Some(false) => break Some(item),
            Some(true) => at += 1,
        }
    };
    let Some(item) = differing else { return Ok(by_order(items.len().cmp(&other.len()), operation)) };
    if is_equality(operation) {
        return Ok(py::boolean(operation == ffi::Py_NE));
    }
    let item = lift_item(item)?;
    let Some(other) = other.get(at)? else { return Ok(by_order(std::cmp::Ordering::Greater, operation)) };
    // SAFETY: both are valid and the lock is held; a new reference or an exception.
    py::unsafe_new_ref!(py::raw::PyObject_RichCompare(item.as_ptr(), other.as_ptr(), operation))
}

/// Whether a mapping has the same keys as another object, with equal values; `None` if that is no mapping.
fn mappings_equal(left: &Mapping<'_>, right: Obj<'_>) -> Res<Option<bool>> {
    if let Some(other) = native_mapping(right) {
        if left.len() != other.len() {
            return Ok(Some(false));
        }
        for (key, value) in left.pairs()? {
            let key = other.key_like(key)?;
            match other.get(&key)? {
                Some(found) if items_equal(&value, &found)? => {}
                _ => return Ok(Some(false)),
            }
        }
        return Ok(Some(true));
    }
    if right.type_flags() & ffi::Py_TPFLAGS_DICT_SUBCLASS == 0 {
        return Ok(None);
    }
    let len = py::dict_len(right);
    if left.len() != len {
        return Ok(Some(false));
    }
    let mut position = 0;
    while let Some((key, value)) = py::dict_next(right, &mut position) {
        match left.find(key.obj())? {
            Some(found) if item_equals(&found, value.obj())? => {}
            _ => return Ok(Some(false)),
        }
        if py::dict_len(right) != len {
            return py::raise(py::exceptions::runtime_error(), "dictionary changed size while it was compared");
        }
    }
    Ok(Some(true))
}

/// Refuses an instance whose native object is none of its class.
#[cold]
fn no_container<T>(object: Obj<'_>) -> Res<T> {
    let text = format!("{} object has no native container", object.class_name());
    py::raise(py::exceptions::type_error(), &text)
}

slots! {
    pub(super) fn compare_sequences(left: obj, right: obj, operation: int) -> Own {
        if is_equality(operation) && same_object(left, right) {
            return Ok(py::boolean(operation == ffi::Py_EQ));
        }
        let (Some(items), Some(other)) = (native_items(left)?, Other::of(right)?) else {
            return Ok(py::not_implemented());
        };
        py::nested(|| compare_items(items.as_slice(), &other, operation))
    }

    pub(super) fn compare_mappings(left: obj, right: obj, operation: int) -> Own {
        if !is_equality(operation) {
            return Ok(py::not_implemented());
        }
        if same_object(left, right) {
            return Ok(py::boolean(operation == ffi::Py_EQ));
        }
        let Some(mapping) = native_mapping(left) else { return Ok(py::not_implemented()) };
        Ok(match py::nested(|| mappings_equal(&mapping, right))? {
            Some(equal) => py::boolean(equal == (operation == ffi::Py_EQ)),
            None => py::not_implemented(),
        })
    }

    /// As the tuple of the same items.
    pub(super) fn hash_array(object: obj) -> ffi::Py_hash_t {
        let Some(items) = native_items(object)? else { return no_container(object) };
        let items = py::nested(|| {
            let items = items.as_slice().iter().map(lift_item).collect::<Res<Vec<Own>>>()?;
            let items = py::tuple(items)?;
            py::hash(items.obj())
        })?;
        Ok(items)
    }

    /// As the frozen set of the pairs.
    pub(super) fn hash_map(object: obj) -> ffi::Py_hash_t {
        let Some(mapping) = native_mapping(object) else { return no_container(object) };
        py::nested(|| {
            let pairs = mapping.pairs()?;
            let pairs = pairs.iter().map(|(key, value)| py::pair(lift_item(key)?, lift_item(value)?));
            let pairs = py::list(pairs.collect::<Res<Vec<Own>>>()?)?;
            // SAFETY: a list, the lock is held; a new reference or an exception.
            let set = py::unsafe_new_ref!(py::raw::PyFrozenSet_New(pairs.as_ptr()))?;
            py::hash(set.obj())
        })
    }
}
