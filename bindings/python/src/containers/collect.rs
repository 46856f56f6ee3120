//! Garbage collection of cycles that go through containers and functions: what Python's collector is told.
//!
//! A List that holds a function of Python which holds the List is a cycle, one part of which Python does not see. So an
//! instance shows the collector the Python objects behind its native object, provided that it is the only owner of all
//! that lies between: then they live exactly as long as it does.
//!
//! The collector asks several times in one run and relies on the answers: an object shown at first and not later would
//! be cleared although it is in use. Why that cannot happen is argued in `docs/adr/0005-*`; the code below relies on
//!
//! - [`unique`]: no counted reference but the owner's, so no thread can make one without having a borrowed one;
//! - [`gil::any_in_progress`]: no use in progress, so no native code has a borrowed one.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use anyfn::abi::{
    TVMFFIObject, kTVMFFIArray, kTVMFFIDict, kTVMFFIFunction, kTVMFFIList, kTVMFFIMap, kTVMFFIOpaquePyObject,
    kTVMFFIStaticObjectBegin,
};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef};
use pyo3_ffi as ffi;

use super::raw;
use crate::py::{Obj, PyObject};
use crate::{callback, error, gil, object};

/// How deep containers within containers are looked at.
const DEPTH_MAX: u32 = 50;

/// What the collector wants to be called with; a result other than 0 ends the walk.
struct Visitor {
    visit: ffi::visitproc,
    arg: *mut c_void,
}

impl Visitor {
    fn visit(&self, object: *mut PyObject) -> c_int {
        // SAFETY: the collector's own function and argument, a valid object, and the lock is held.
        unsafe { (self.visit)(object, self.arg) }
    }

    /// Shows the Python objects that an owner of `handle` keeps alive by it alone.
    fn walk(&self, handle: *mut TVMFFIObject, depth: u32) -> c_int {
        let Some(object) = borrow(handle).filter(|object| unique(object)) else { return 0 };
        if depth >= DEPTH_MAX {
            return 0;
        }
        match object.type_index() {
            kTVMFFIFunction => {
                callback::python_callable(handle).map_or(0, |callable| self.visit(callable.as_ptr()))
            }
            kTVMFFIOpaquePyObject => {
                error::own_opaque_object(handle).map_or(0, |object| self.visit(object.as_ptr()))
            }
            kTVMFFIArray => match as_ref::<Array>(&object) {
                Some(array) => self.walk_all(array.as_slice().iter(), depth),
                None => 0,
            },
            kTVMFFIList => match as_ref::<List>(&object) {
                // SAFETY: nobody but the owner knows the List, and the owner's thread is here.
                Some(list) => self.walk_all(unsafe { list.as_slice_unlocked() }.iter(), depth),
                None => 0,
            },
            kTVMFFIMap => match as_ref::<Map>(&object) {
                Some(map) => self.walk_all(map.iter_any().flat_map(<[&Any; 2]>::from), depth),
                None => 0,
            },
            kTVMFFIDict => match as_ref::<Dict>(&object) {
                // SAFETY: nobody but the owner knows the Dict, and the owner's thread is here.
                Some(dict) => self.walk_all(unsafe { dict.iter_unlocked() }.flat_map(<[&Any; 2]>::from), depth),
                None => 0,
            },
            _ => 0,
        }
    }

    fn walk_all<'a>(&self, items: impl Iterator<Item = &'a Any>, depth: u32) -> c_int {
        for item in items {
            if raw(item).type_index < kTVMFFIStaticObjectBegin {
                continue;
            }
            // SAFETY: objects have their value in `v_obj`.
            let handle = unsafe { raw(item).value.v_obj };
            match self.walk(handle, depth + 1) {
                0 => {}
                stop => return stop,
            }
        }
        0
    }
}

/// An object that its owner keeps; nothing is counted, so that counts say who else does.
fn borrow(handle: *mut TVMFFIObject) -> Option<ManuallyDrop<ObjectRef>> {
    // SAFETY: NULL or a valid object, whose reference stays with its owner.
    unsafe { ObjectRef::from_owned_or_null(handle.cast()) }.map(ManuallyDrop::new)
}

/// Whether there is one reference and no weak one.
fn unique(object: &ObjectRef) -> bool {
    object.is_unique()
}

/// A container object as its type.
fn as_ref<T: super::Container>(object: &ObjectRef) -> Option<ManuallyDrop<T>> {
    let borrowed = borrow(object.as_handle().cast())?;
    match T::from_object(ManuallyDrop::into_inner(borrowed)) {
        Ok(container) => Some(ManuallyDrop::new(container)),
        Err(object) => {
            std::mem::forget(object);
            None
        }
    }
}

/// Shows the collector what an instance keeps alive: `tp_traverse` of classes whose instances have a handle.
///
/// # Safety
/// Called by Python's collector with an instance.
pub(crate) unsafe extern "C" fn traverse(
    object: *mut PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    let visitor = Visitor { visit, arg };
    // SAFETY: an instance; those of heap types hold a reference to their class.
    let class = unsafe { ffi::Py_TYPE(object) };
    match visitor.visit(class.cast()) {
        0 if gil::any_in_progress() => 0,
        // SAFETY: an instance, and the lock is held.
        0 => visitor.walk(object::handle_unchecked(unsafe { Obj::from_ptr(object) }), 0),
        stop => stop,
    }
}

/// Breaks a cycle that nothing else uses: `tp_clear` of the classes of containers. The instance is empty then.
pub(super) unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: Python passes an instance and holds the lock.
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

/// Whether the function behind an instance is known to that instance only, so that it may be broken up.
pub(crate) fn owns_function(object: Obj<'_>) -> bool {
    borrow(object::handle_unchecked(object)).is_some_and(|function| unique(&function))
        && !gil::any_in_progress()
}

/// Gives the handle back, for classes that take part in garbage collection.
///
/// # Safety
/// Called by Python as the destructor of an instance.
pub(super) unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: a valid object, tracked or not: the collector must not see it any more.
    unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    // SAFETY: the rest is what the base class has.
    unsafe { object::dealloc(object) };
}
