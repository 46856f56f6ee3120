//! Support for Python's garbage collector: reports the Python objects that native containers and functions keep
//! alive, so that the collector finds reference cycles that pass through them.
//!
//! A List may hold a Python function that holds the List. Python cannot see the native part of such a cycle. An
//! instance therefore reports the Python objects behind its native object to the collector, provided that it is the
//! only owner of every object in between: those objects then live exactly as long as the instance.
//!
//! The collector traverses an instance several times in one run and relies on consistent reports: an object that is
//! reported at first and not later would be cleared although it is in use. `docs/adr/0005-*` explains why that cannot happen. The code below
//! relies on two facts:
//!
//! - [`unique`]: the owner's reference is the only counted one, so a thread can make another reference only from a
//!   borrowed one.
//! - [`gil::any_in_progress`]: no use is in progress, so no native code has a borrowed reference.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use anyfn::abi::{
    TVMFFIObject, kTVMFFIArray, kTVMFFIDict, kTVMFFIFunction, kTVMFFIList, kTVMFFIMap, kTVMFFIOpaquePyObject,
    kTVMFFIStaticObjectBegin,
};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef};
use pyo3_ffi as ffi;

use crate::py::{Obj, PyObject};
use crate::{error, gil, object, python_function};

/// Maximum nesting depth to which containers are searched for Python objects.
const DEPTH_MAX: u32 = 50;

/// Callback of Python's garbage collector, and the argument to pass to it. If the callback returns a value other than
/// 0, the walk ends with that value.
struct Visitor {
    visit: ffi::visitproc,
    arg: *mut c_void,
}

impl Visitor {
    fn visit(&self, object: *mut PyObject) -> c_int {
        // SAFETY: these are the collector's own function and argument, the object is valid, and the GIL is held.
        unsafe { (self.visit)(object, self.arg) }
    }

    /// Reports the Python objects that the native object `handle` keeps alive, if that object has only one
    /// owner. Objects inside containers are reported under the same condition.
    fn walk(&self, handle: *mut TVMFFIObject, depth: u32) -> c_int {
        let Some(object) = borrow(handle).filter(|object| unique(object)) else { return 0 };
        if depth >= DEPTH_MAX {
            return 0;
        }
        match object.type_index() {
            kTVMFFIFunction => {
                python_function::python_callable(handle).map_or(0, |callable| self.visit(callable.as_ptr()))
            }
            kTVMFFIOpaquePyObject => {
                error::own_opaque_object(handle).map_or(0, |object| self.visit(object.as_ptr()))
            }
            kTVMFFIArray => match as_ref(&object, Array::<Any>::try_from_object) {
                Some(array) => self.walk_all(array.as_slice().iter(), depth),
                None => 0,
            },
            kTVMFFIList => match as_ref(&object, List::<Any>::try_from_object) {
                // SAFETY: only the owner has a reference to the List, and this is the owner's thread.
                Some(list) => self.walk_all(unsafe { list.as_slice_unlocked() }.iter(), depth),
                None => 0,
            },
            kTVMFFIMap => match as_ref(&object, Map::<Any, Any>::try_from_object) {
                Some(map) => self.walk_all(map.iter_any().flat_map(<[&Any; 2]>::from), depth),
                None => 0,
            },
            kTVMFFIDict => match as_ref(&object, Dict::<Any, Any>::try_from_object) {
                // SAFETY: only the owner has a reference to the Dict, and this is the owner's thread.
                Some(dict) => self.walk_all(unsafe { dict.iter_unlocked() }.flat_map(<[&Any; 2]>::from), depth),
                None => 0,
            },
            _ => 0,
        }
    }

    fn walk_all<'a>(&self, items: impl Iterator<Item = &'a Any>, depth: u32) -> c_int {
        for item in items {
            let value = *item.as_raw();
            if value.type_index < kTVMFFIStaticObjectBegin {
                continue;
            }
            // SAFETY: objects have their value in `v_obj`.
            let handle = unsafe { value.value.v_obj };
            match self.walk(handle, depth + 1) {
                0 => {}
                stop => return stop,
            }
        }
        0
    }
}

/// Borrows the object at `handle`, which its owner must keep alive. The reference count does not
/// change, so the count still shows whether the object has other owners.
fn borrow(handle: *mut TVMFFIObject) -> Option<ManuallyDrop<ObjectRef>> {
    // SAFETY: the pointer is NULL or a valid object, whose reference stays with its owner.
    unsafe { ObjectRef::from_owned_or_null(handle.cast()) }.map(ManuallyDrop::new)
}

/// Returns true if the object has one strong reference and no weak reference.
fn unique(object: &ObjectRef) -> bool {
    object.is_unique()
}

/// Borrows an object as a container of type `T`, using the conversion `from`. Returns `None` if the object has
/// another type.
fn as_ref<T>(
    object: &ObjectRef,
    from: impl FnOnce(ObjectRef) -> Result<T, ObjectRef>,
) -> Option<ManuallyDrop<T>> {
    let borrowed = borrow(object.as_handle().cast())?;
    match from(ManuallyDrop::into_inner(borrowed)) {
        Ok(container) => Some(ManuallyDrop::new(container)),
        Err(object) => {
            std::mem::forget(object);
            None
        }
    }
}

/// Implements `tp_traverse` for classes whose instances have a handle: reports to the collector the objects
/// that an instance keeps alive.
///
/// # Safety
/// Must be called by Python's collector with an instance.
pub(crate) unsafe extern "C" fn traverse(
    object: *mut PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    let visitor = Visitor { visit, arg };
    // SAFETY: the object is an instance; instances of heap types hold a reference to their class.
    let class = unsafe { ffi::Py_TYPE(object) };
    match visitor.visit(class.cast()) {
        0 if gil::any_in_progress() => 0,
        // SAFETY: the object is an instance, and the GIL is held.
        0 => visitor.walk(object::handle_unchecked(unsafe { Obj::from_ptr(object) }), 0),
        stop => stop,
    }
}

/// Implements `tp_clear` for the container classes: breaks an unreachable cycle by replacing the native
/// container of an instance with an empty one.
pub(crate) unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let handle = object::handle_unchecked(object);
    let Some(container) = borrow(handle).filter(|container| unique(container)) else { return 0 };
    if gil::any_in_progress() {
        return 0;
    }
    let empty = match container.type_index() {
        kTVMFFIArray => Array::<Any>::with_capacity(0).map(Array::into_object),
        kTVMFFIList => List::<Any>::with_capacity(0).map(List::into_object),
        kTVMFFIMap => Map::<Any, Any>::from_vec(Vec::new()).map(Map::into_object),
        kTVMFFIDict => Dict::<Any, Any>::from_vec(Vec::new()).map(Dict::into_object),
        _ => return 0,
    };
    if let Ok(empty) = empty {
        drop(object::replace(object, empty));
    }
    0
}

/// Returns true if `object`, a Python object, is the only owner of its native function and the function is not in
/// use. Only then may the function's Python object be removed ([`python_function::break_up`]).
pub(crate) fn owns_function(object: Obj<'_>) -> bool {
    borrow(object::handle_unchecked(object)).is_some_and(|function| unique(&function))
        && !gil::any_in_progress()
}

/// Implements `tp_dealloc` for classes that take part in garbage collection: releases the handle of an
/// instance.
///
/// # Safety
/// Must be called by Python, as the destructor of an instance.
pub(crate) unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the object is valid, tracked or not; the collector must not visit it any more.
    unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    // SAFETY: the remaining content is that of the base class.
    unsafe { object::dealloc(object) };
}
