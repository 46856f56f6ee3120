//! The class `Module`: calling a module directly calls its entry function, and a module finds its functions by name.
//!
//! `module.name` and `module["name"]` are how users spell calls, so an instance keeps the functions that it has found. This is
//! correct for libraries only, whose functions never change. The functions of other modules are looked up each time.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::ptr;

use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};
use crate::types::{self, Class};
use crate::{error, object, packed};

/// Memory layout of an instance of `Module`.
#[repr(C)]
struct Layout {
    object: object::Layout,
    /// Function through which Python calls the module. It is NULL until the entry function is
    /// known, and until then Python calls [`call`].
    vectorcall: Option<ffi::vectorcallfunc>,
    /// Owned reference to a `PackedFunc` object for the module's entry function, or NULL until the entry
    /// function is known. The object belongs to this module alone; no other code receives it.
    entry: *mut PyObject,
    /// Functions that were found last as attributes.
    attributes: Recent,
    /// Functions that were found last as items.
    items: Recent,
    /// Dictionary from name to function of all functions that were found: an owned reference, or NULL if there are none.
    found: *mut PyObject,
}

/// Functions that were found last, with their names. The names are compared by address, because those in Python code are
/// interned strings.
#[repr(C)]
struct Recent([Found; RECENT]);

const RECENT: usize = 8;

/// A function and its name: owned references, or NULL.
#[repr(C)]
struct Found {
    name: *mut PyObject,
    function: *mut PyObject,
}

impl Recent {
    const EMPTY: Recent =
        Recent([const { Found { name: ptr::null_mut(), function: ptr::null_mut() } }; RECENT]);

    #[inline(always)]
    fn index(name: *mut PyObject) -> usize {
        // Python aligns objects to 16 bytes.
        (name.addr() >> 4) % RECENT
    }

    /// Returns the function that was found last under a name.
    #[inline(always)]
    fn get(&self, name: *mut PyObject) -> Option<Own> {
        let slot = &self.0[Recent::index(name)];
        if !ptr::eq(slot.name, name) {
            return None;
        }
        // SAFETY: the slot owns a reference to the function, or is empty.
        unsafe { Obj::from_nullable(slot.function) }.map(Obj::to_own)
    }

    /// Stores a function. Returns the entry that it replaces.
    fn set(&mut self, name: Obj<'_>, function: Obj<'_>) -> Found {
        let new = Found { name: name.to_own().into_ptr(), function: function.to_own().into_ptr() };
        std::mem::replace(&mut self.0[Recent::index(name.as_ptr())], new)
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        for owned in [self.name, self.function] {
            // SAFETY: the entry owned the reference, or the pointer is NULL; the GIL is held.
            drop(unsafe { Own::from_nullable(owned) });
        }
    }
}

/// The class `Module`, to which the Python code of the package adds its methods.
pub(crate) static CLASS: Global = Global::new();

const NAME: &CStr = c"anyfn.Module";

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let members = vec![
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(Layout, vectorcall) as isize,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let class = Class {
        name: NAME,
        size: size_of::<Layout>(),
        base_for_others: true,
        flags: py::raw::HAVE_VECTORCALL,
        base: Some(object::BUILTIN.get()),
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_call, call as *mut c_void),
            (ffi::Py_tp_getattro, get_attribute as *mut c_void),
            (ffi::Py_mp_subscript, get_item as *mut c_void),
            // The table lives as long as the class: for the lifetime of the process.
            (ffi::Py_tp_members, members.leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

/// Calls a module whose entry function has not been stored, as in the first call.
unsafe extern "C" fn call(module: *mut PyObject, args: *mut PyObject, names: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes a valid object and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(module) };
    let Ok(entry) = entry_of(object) else { return ptr::null_mut() };
    // SAFETY: Python passes a tuple, and a dictionary or NULL.
    unsafe { ffi::PyObject_Call(entry.as_ptr(), args, names) }
}

/// Returns the entry function of a module. If the module is a library, also stores the function in the
/// instance, because the entry function of a library never changes.
fn entry_of(module: Obj<'_>) -> Res<Own> {
    let layout: *mut Layout = module.as_ptr().cast();
    let entry = module.attr(py::intern(c"entry_func")?.obj())?;
    let is_library = is_library(module)?;
    // SAFETY: the object is an instance of `Module`, and the GIL is held.
    let is_new = unsafe { (*layout).entry.is_null() };
    if is_new && entry.obj().is_instance_of(packed::CLASS.ptr()) && is_library {
        // SAFETY: the object is an instance of `Module`, and the GIL is held; the field is NULL, so no reference is lost.
        unsafe { (*layout).entry = entry.obj().to_own().into_ptr() };
        // SAFETY: the object is an instance of `Module`, and the GIL is held.
        unsafe { (*layout).vectorcall = Some(call_entry) };
    }
    Ok(entry)
}

/// Calls the stored entry function of a module.
unsafe extern "C" fn call_entry(
    module: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the object is an instance of `Module`, which keeps its entry until it is destroyed.
    let entry = unsafe { (*module.cast::<Layout>()).entry };
    // SAFETY: the entry is a `PackedFunc`, and the arguments come from Python.
    unsafe { packed::call_as_it_is(entry, args, nargsf, names) }
}

/// Implements `module.name`. If the class has no such attribute, calls the method `_find_attribute`, which returns a function
/// or a class of the library.
unsafe extern "C" fn get_attribute(module: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    let layout: *mut Layout = module.cast();
    // SAFETY: the object is an instance of `Module`, and the GIL is held.
    if let Some(function) = unsafe { &(*layout).attributes }.get(name) {
        return function.into_ptr();
    }
    // SAFETY: Python passes a valid object and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(module) };
    // SAFETY: the name is valid, too.
    let name: Obj<'_> = unsafe { Obj::from_ptr(name) };
    error::catch(|| {
        // SAFETY: both objects are valid; the result is a new reference, or NULL with an exception set.
        match py::unsafe_new_ref!(py::raw::PyObject_GenericGetAttr(this.as_ptr(), name.as_ptr())) {
            Err(Raised) if py::error_is(py::exceptions::attribute_error()) => {}
            other => return other,
        }
        py::clear_error();
        find(this, name, c"_find_attribute", |layout| &mut layout.attributes)
    })
}

/// Implements `module["name"]`. The method `_find_item` finds the function.
unsafe extern "C" fn get_item(module: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    let layout: *mut Layout = module.cast();
    // SAFETY: the object is an instance of `Module`, and the GIL is held.
    if let Some(function) = unsafe { &(*layout).items }.get(name) {
        return function.into_ptr();
    }
    // SAFETY: Python passes a valid object and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(module) };
    // SAFETY: the key is valid, too.
    let name: Obj<'_> = unsafe { Obj::from_ptr(name) };
    error::catch(|| find(this, name, c"_find_item", |layout| &mut layout.items))
}

/// Returns what a module contains under a name: a function that was found before, or else the result of the method `method`.
/// A function of a library is stored, and one that was found before is stored in `recent`, too.
fn find(
    module: Obj<'_>,
    name: Obj<'_>,
    method: &'static CStr,
    recent: fn(&mut Layout) -> &mut Recent,
) -> Res<Own> {
    let layout: *mut Layout = module.as_ptr().cast();
    // Attributes of derived classes and their instances may change, and strings of other classes compare in other ways.
    let is_plain =
        ptr::eq(module.type_ptr().cast(), CLASS.ptr()) && name.type_ptr() == &raw mut ffi::PyUnicode_Type;
    if !is_plain {
        return module.attr(py::intern(method)?.obj())?.obj().call(&[name]);
    }
    // SAFETY: the object is an instance of `Module`, and the GIL is held.
    let found = unsafe { (*layout).found };
    // SAFETY: the instance owns the dictionary, or the pointer is NULL.
    let found: Option<Obj<'_>> = unsafe { Obj::from_nullable(found) };
    if let Some(function) = found.and_then(|found| py::dict_get(found, name)) {
        // SAFETY: the object is an instance of `Module`, and the GIL is held; no code runs meanwhile.
        let old = recent(unsafe { &mut *layout }).set(name, function.obj());
        drop(old);
        return Ok(function);
    }
    let result = module.attr(py::intern(method)?.obj())?.obj().call(&[name])?;
    let is_function = ptr::eq(result.obj().type_ptr().cast(), packed::CLASS.ptr());
    if is_function && is_library(module)? {
        // SAFETY: the object is an instance of `Module`, and the GIL is held.
        let mut found = unsafe { (*layout).found };
        if found.is_null() {
            found = py::dict()?.into_ptr();
            // SAFETY: still an instance of `Module`. Making a dictionary may run the garbage collector, but no code that finds functions.
            unsafe { (*layout).found = found };
        }
        // SAFETY: the instance owns the dictionary, to which a reference is held while it changes.
        let found = unsafe { Obj::from_ptr(found) }.to_own();
        // A function that another thread has found meanwhile is replaced.
        py::dict_set(found.obj(), name, result.obj())?;
    }
    Ok(result)
}

/// Returns true if the functions of a module never change.
fn is_library(module: Obj<'_>) -> Res<bool> {
    let kind = module.attr(py::intern(c"kind")?.obj())?;
    Ok(kind.obj().to_text()? == "library")
}

/// Releases the functions that a module has found, so that only those that are in use elsewhere remain. `module` must be
/// an instance of `Module`.
pub(crate) fn forget(module: Obj<'_>) {
    let layout: *mut Layout = module.as_ptr().cast();
    // The references are released after they have been removed from the instance, because a release may run code.
    // SAFETY: the object is an instance of `Module`, and the GIL is held.
    let attributes = unsafe { std::mem::replace(&mut (*layout).attributes, Recent::EMPTY) };
    // SAFETY: this is another field of that instance.
    let items = unsafe { std::mem::replace(&mut (*layout).items, Recent::EMPTY) };
    // SAFETY: this is the last field of that instance that holds functions.
    let found = unsafe { std::mem::replace(&mut (*layout).found, ptr::null_mut()) };
    drop((attributes, items));
    // SAFETY: the instance owned the reference, or the pointer is NULL.
    drop(unsafe { Own::from_nullable(found) });
}

unsafe extern "C" fn dealloc(module: *mut PyObject) {
    // SAFETY: Python passes an instance that is no longer in use, and holds the GIL.
    forget(unsafe { Obj::from_ptr(module) });
    // SAFETY: this is an instance that is no longer in use.
    let entry = unsafe { (*module.cast::<Layout>()).entry };
    // SAFETY: the instance owns the object, or the pointer is NULL.
    drop(unsafe { Own::from_nullable(entry) });
    // SAFETY: the remaining content is that of the base class.
    unsafe { object::dealloc(module) };
}
