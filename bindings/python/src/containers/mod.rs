//! The Python classes Array, List, Map and Dict, written as C slots.
//!
//! An instance holds a handle, like every other [`crate::object`]; none of the content is copied. Items become
//! Python objects when they are read. Items are compared with Python's equality; keys are found by the rules of the
//! ABI (see [`keys`]).
//!
//! - [`slots`][]: functions that CPython calls.
//! - [`lower`][]: conversion of Python containers to native ones.
//! - [`sequence`], [`list`]: Array and List.
//! - [`mapping`], [`dict`], [`keys`], [`views`]: Map and Dict.
//! - [`iter`][]: iterators.
//! - [`compare`][]: equality, order and hash.
//! - [`text`][]: repr.
//! - [`deep`][]: conversion of nested containers to Python containers.
//! - [`shared`][]: containers that occur more than once.
//! - [`collect`][]: garbage collection.
//!
//! Invariant: no lock of a container is held while Python code runs. The operations of the crate `anyfn` release removed
//! items after they unlock the container; items are converted to native values before it is locked,
//! and to Python values after it is unlocked.

pub(crate) mod collect;
mod compare;
mod deep;
mod dict;
mod iter;
mod keys;
mod list;
mod lower;
mod mapping;
mod sequence;
mod shared;
mod slots;
mod text;
mod views;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use anyfn::abi::{kTVMFFIArray, kTVMFFIDLTensorPtr, kTVMFFIDict, kTVMFFIInt, kTVMFFIList, kTVMFFIMap};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef};

use crate::lent::Loans;
use crate::py::{self, Global, Obj, Own, Raised, Res};
use crate::{error, gil, lift, object};

pub(crate) use deep::to_python;
pub(crate) use lower::{lower_mapping, lower_sequence};
pub(crate) use shared::Memo;

/// The class `Array`.
pub(crate) static ARRAY: Global = Global::new();
/// The class `List`.
pub(crate) static LIST: Global = Global::new();
/// The class `Map`.
pub(crate) static MAP: Global = Global::new();
/// The class `Dict`.
pub(crate) static DICT: Global = Global::new();

/// Returns the names and classes of containers and views, for the module `anyfn._core`.
pub(crate) fn classes() -> impl Iterator<Item = (&'static std::ffi::CStr, &'static Global)> {
    CLASSES.into_iter().chain(views::classes())
}

const CLASSES: [(&std::ffi::CStr, &Global); 4] =
    [(c"Array", &ARRAY), (c"List", &LIST), (c"Map", &MAP), (c"Dict", &DICT)];

/// Makes the classes of containers, iterators and views, and registers the containers for their types.
pub(crate) fn init() -> Res<()> {
    if ARRAY.try_get().is_some() {
        return Ok(());
    }
    iter::init()?;
    views::init()?;
    ARRAY.set(sequence::make_array_class()?);
    LIST.set(list::make_class()?);
    MAP.set(mapping::make_map_class()?);
    DICT.set(dict::make_class()?);
    for (index, class) in
        [(kTVMFFIArray, &ARRAY), (kTVMFFIList, &LIST), (kTVMFFIMap, &MAP), (kTVMFFIDict, &DICT)]
    {
        object::register(index.into(), class.get())?;
    }
    Ok(())
}

/// A native container borrowed from its Python object, which keeps the container alive while the borrow exists.
struct Ref<'a, T>(ManuallyDrop<T>, gil::Use, PhantomData<&'a ()>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Native container type: `Array`, `List`, `Map` or `Dict`.
trait Container: Sized {
    /// Name of the type in Python.
    const NAME: &'static str;
    fn from_object(object: ObjectRef) -> Result<Self, ObjectRef>;
    fn into_object(self) -> ObjectRef;
}

macro_rules! containers {
    ($($name:ident)*) => { $(
        impl Container for $name {
            const NAME: &'static str = stringify!($name);
            #[inline(always)]
            fn from_object(object: ObjectRef) -> Result<Self, ObjectRef> {
                $name::try_from_object(object)
            }
            #[inline(always)]
            fn into_object(self) -> ObjectRef {
                $name::into_object(self)
            }
        }
    )* };
}
containers!(Array List Map Dict);

/// Borrows the native container of `object`, which must be an instance of the container's class. Raises `TypeError`
/// if its native object is not a `T`.
#[inline(always)]
fn borrow<T: Container>(object: Obj<'_>) -> Res<Ref<'_, T>> {
    // SAFETY: the instance holds a reference to its handle; the borrowed one is never dropped.
    let handle = unsafe { ObjectRef::from_owned_or_null(object::handle_unchecked(object).cast()) };
    match handle.map(T::from_object) {
        Some(Ok(container)) => Ok(Ref(ManuallyDrop::new(container), gil::Use::begin(), PhantomData)),
        other => {
            // This reference is borrowed, so it must not be released.
            std::mem::forget(other);
            py::raise(
                py::exceptions::type_error(),
                &format!("expected a native {} in an instance of its class", T::NAME),
            )
        }
    }
}

/// Borrows the native container of an object. Returns `None` if the object is not an instance of `class`.
fn borrow_if<'a, T: Container>(object: Obj<'a>, class: &Global) -> Option<Ref<'a, T>> {
    if !object.is_instance_of(class.ptr()) {
        return None;
    }
    match borrow(object) {
        Ok(container) => Some(container),
        Err(Raised) => {
            py::clear_error();
            None
        }
    }
}

/// Makes the Python object of a container.
fn wrap<T: Container>(container: T) -> Res<Own> {
    object::wrap(container.into_object())
}

/// Converts the result of a native function: an error is raised as a Python exception.
#[inline]
fn native<T>(result: anyfn::Result<T>) -> Res<T> {
    result.map_err(error::raise)
}

/// Converts an item of a container to a Python object.
#[inline(always)]
fn lift_item(item: &Any) -> Res<Own> {
    let raw = raw(item);
    if raw.type_index == kTVMFFIInt { py::int(bits(item) as i64) } else { lift_other(item) }
}

#[inline(never)]
fn lift_other(item: &Any) -> Res<Own> {
    if raw(item).type_index == kTVMFFIDLTensorPtr {
        // Other code may have stored a borrowed tensor there, which raises an exception.
        return lift::lift_owned(*raw(item));
    }
    // A string is copied and an object gets its own reference first, so `item` is not used while Python code runs.
    lift::lift_view(raw(item), &mut Loans::new())
}

/// Borrows the raw bytes of a value.
#[inline(always)]
fn raw(item: &Any) -> &anyfn::abi::TVMFFIAny {
    // SAFETY: `Any` is transparent over this struct.
    unsafe { &*std::ptr::from_ref(item).cast() }
}

/// Returns the eight payload bytes of a value.
#[inline(always)]
fn bits(item: &Any) -> u64 {
    // SAFETY: all bytes of a value are initialised.
    unsafe { raw(item).bits() }
}

/// Returns an empty vector with memory for `count` items, or raises `MemoryError`.
fn reserved<T>(count: usize) -> Res<Vec<T>> {
    let mut items = Vec::new();
    match items.try_reserve_exact(count) {
        Ok(()) => Ok(items),
        Err(_) => {
            py::raise(py::exceptions::memory_error(), &format!("no memory for a container of {count} items"))
        }
    }
}
