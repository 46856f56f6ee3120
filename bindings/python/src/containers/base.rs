//! Python classes of the containers, and access to the native container of an instance.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use anyfn::abi::{kTVMFFIDLTensorPtr, kTVMFFIInt};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef};

use crate::lift::{lift_borrowed, lift_owned};
use crate::py::{self, Global, Obj, Own, Raised, Res};
use crate::{classes, error, gil, object};

/// The class `Array`.
pub(super) static ARRAY: Global = Global::new();
/// The class `List`.
pub(super) static LIST: Global = Global::new();
/// The class `Map`.
pub(super) static MAP: Global = Global::new();
/// The class `Dict`.
pub(super) static DICT: Global = Global::new();

/// Names and Python classes of the container types.
pub(super) const CLASSES: [(&std::ffi::CStr, &Global); 4] =
    [(c"Array", &ARRAY), (c"List", &LIST), (c"Map", &MAP), (c"Dict", &DICT)];

/// A native container borrowed from its Python object, which keeps the container alive while the borrow exists.
pub(super) struct Ref<'a, T>(ManuallyDrop<T>, gil::Use, PhantomData<&'a ()>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Native container type: `Array`, `List`, `Map` or `Dict`.
pub(super) trait Container: Sized {
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

/// Borrows the native container of `object`, which must be an instance of the container's class.
/// Raises `TypeError` if the native object of `object` is not a `T`.
#[inline(always)]
pub(super) fn borrow<T: Container>(object: Obj<'_>) -> Res<Ref<'_, T>> {
    // SAFETY: the instance holds a reference to its handle; the borrowed one is never dropped.
    let handle = unsafe { ObjectRef::from_owned_or_null(object::handle_unchecked(object).cast()) };
    match handle.map(T::from_object) {
        Some(Ok(container)) => Ok(Ref(ManuallyDrop::new(container), gil::Use::begin(), PhantomData)),
        other => {
            // This reference is borrowed, so it must not be released.
            std::mem::forget(other);
            py::raise(
                py::exceptions::type_error(),
                &format!("expected an instance that represents a native {}", T::NAME),
            )
        }
    }
}

/// Borrows the native container of an object. Returns `None` if the object is not an instance of
/// `class` or has no native container of the type `T`.
pub(super) fn borrow_if<'a, T: Container>(object: Obj<'a>, class: &Global) -> Option<Ref<'a, T>> {
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
pub(super) fn wrap<T: Container>(container: T) -> Res<Own> {
    classes::wrap(container.into_object())
}

/// Converts the result of a native function. An error is raised as a Python exception.
#[inline]
pub(super) fn native<T>(result: anyfn::Result<T>) -> Res<T> {
    result.map_err(error::raise)
}

/// Converts an item of a container to a Python object.
#[inline(always)]
pub(super) fn lift_item(item: &Any) -> Res<Own> {
    let raw = raw(item);
    if raw.type_index == kTVMFFIInt { py::int(bits(item) as i64) } else { lift_other(item) }
}

#[inline(never)]
fn lift_other(item: &Any) -> Res<Own> {
    if raw(item).type_index == kTVMFFIDLTensorPtr {
        // Other code may have stored a borrowed tensor there, which raises an exception.
        return lift_owned(item.clone());
    }
    // A string is copied and an object gets its own reference first, so `item` is not used while Python code runs.
    lift_borrowed(raw(item))
}

/// Borrows the raw bytes of a value.
#[inline(always)]
pub(super) fn raw(item: &Any) -> &anyfn::abi::TVMFFIAny {
    // SAFETY: `Any` is transparent over this struct.
    unsafe { &*std::ptr::from_ref(item).cast() }
}

/// Returns the eight payload bytes of a value.
#[inline(always)]
pub(super) fn bits(item: &Any) -> u64 {
    // SAFETY: all bytes of a value are initialised.
    unsafe { raw(item).bits() }
}
