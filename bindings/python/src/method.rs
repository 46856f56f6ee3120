//! Methods of native types as methods of their Python classes: `point.norm()`.
//!
//! A method is a descriptor of a class that Python can call without binding it to the instance first: Python passes
//! the instance as the first argument, and no bound method is created.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use anyfn::reflection::TypeInfo;
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Res, names, raw};
use crate::types::{self, Class};
use crate::{classes, error, packed, python_function};

/// Memory layout of an instance of `Method`, the descriptor through which a Python class offers a method of a
/// native type.
#[repr(C)]
struct Layout {
    base: PyObject,
    vectorcall: ffi::vectorcallfunc,
    /// Owned reference to the function that implements the method, an instance of `PackedFunc`. It takes the object as
    /// its first argument.
    function: *mut PyObject,
}

/// Flag of classes whose instances Python may call with the instance as the first argument, in place of the bound method
/// that `__get__` would return. Its value has not changed since Python 3.8.
const METHOD_DESCRIPTOR: u64 = 1 << 17;

static CLASS: Global = Global::new();

pub(crate) fn init() -> Res<()> {
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
        name: c"anyfn._core.Method",
        size: size_of::<Layout>(),
        base_for_others: false,
        flags: raw::HAVE_VECTORCALL | METHOD_DESCRIPTOR | ffi::Py_TPFLAGS_HAVE_GC,
        base: None,
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_traverse, traverse as *mut c_void),
            (ffi::Py_tp_descr_get, get as *mut c_void),
            (ffi::Py_tp_call, raw::PyVectorcall_Call as *mut c_void),
            // The table lives as long as the class: for the lifetime of the process.
            (ffi::Py_tp_members, members.leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

unsafe extern "C" fn dealloc(method: *mut PyObject) {
    // SAFETY: the object is an instance that the collector tracks.
    unsafe { ffi::PyObject_GC_UnTrack(method.cast()) };
    // SAFETY: the object is an instance of `Method`.
    let function = unsafe { (*method.cast::<Layout>()).function };
    // SAFETY: the pointer is NULL or the reference that the instance owned.
    drop(unsafe { Own::from_nullable(function) });
    // SAFETY: this is the end of the destructor.
    unsafe { types::free(method) };
}

/// Implements `method(object, *args)`: calls the function that implements the method.
unsafe extern "C" fn call(
    method: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the object is an instance of `Method`.
    let function = unsafe { (*method.cast::<Layout>()).function };
    // SAFETY: the function is an instance of `PackedFunc` that the method owns, and the caller keeps the method alive; the
    // arguments are those that Python passes to this function.
    unsafe { packed::call_as_it_is(function, args, nargsf, kwnames) }
}

unsafe extern "C" fn traverse(method: *mut PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the object is an instance of `Method`.
    let function = unsafe { (*method.cast::<Layout>()).function };
    if function.is_null() {
        return 0;
    }
    // SAFETY: this is the collector's own function, called with a reference that the instance owns.
    unsafe { visit(function, arg) }
}

/// Implements `__get__`: returns the function itself if accessed through the class, and a bound method if accessed
/// through an instance.
unsafe extern "C" fn get(method: *mut PyObject, this: *mut PyObject, _class: *mut PyObject) -> *mut PyObject {
    // SAFETY: the object is an instance of `Method`.
    let function = unsafe { (*method.cast::<Layout>()).function };
    // SAFETY: the instance owns the function from the moment that it becomes an attribute of a class.
    let function: Obj<'_> = unsafe { Obj::from_ptr(function) };
    // SAFETY: the pointer is an instance of the class, or NULL.
    let this: Option<Obj<'_>> = unsafe { Obj::from_nullable(this) };
    match this.filter(|this| !this.is_none()) {
        None => function.to_own().into_ptr(),
        Some(this) => error::catch(|| python_function::PLAIN[1].get().call(&[function, this])),
    }
}

/// Adds an attribute to a class for each method that a type itself registers. An existing attribute
/// of the same name is replaced only if the class inherits it from the class of an ancestor of the
/// type.
pub(crate) fn add(class: Obj<'_>, info: TypeInfo) -> Res<()> {
    let mut seen = Vec::new();
    // The most recently registered method of a name takes precedence.
    for method in info.own_methods().rev() {
        if seen.contains(&method.name()) {
            continue;
        }
        seen.push(method.name());
        let name = py::string(method.name().as_bytes())?;
        if class.attr_opt(name.obj())?.is_some() && !overrides(class, info, name.obj())? {
            continue;
        }
        let Ok(made) = method.function() else { continue };
        let function = packed::wrap(made.into_object(), None, false)?;
        function.obj().set_attr(names::NAME.get(), name.obj())?;
        if !method.doc().is_empty() {
            let doc = py::intern(c"__doc__")?;
            function.obj().set_attr(doc.obj(), py::string(method.doc().as_bytes())?.obj())?;
        }
        // A function that is an attribute of a class is not bound to instances.
        let member = if method.is_static() { function } else { bind(function)? };
        class.set_attr(name.obj(), member.obj())?;
    }
    Ok(())
}

/// Returns true if the method `name` of the type `info` overrides the attribute of that name of
/// `class`, that is, if `class` inherits the attribute from a class that represents an ancestor of
/// the type.
fn overrides(class: Obj<'_>, info: TypeInfo, name: Obj<'_>) -> Res<bool> {
    let order = class.attr(names::MRO.get())?;
    let dict = py::intern(c"__dict__")?;
    let contains = py::intern(c"__contains__")?;
    for index in 0..order.obj().tuple_len() {
        let Some(base) = py::tuple_get(order.obj(), index) else { break };
        let has = base.attr(dict.obj())?.obj().attr(contains.obj())?.obj().call(&[name])?;
        if has.obj().is_true()? {
            let owner = classes::own_type(base).and_then(TypeInfo::from_index);
            return Ok(owner.is_some_and(|owner| owner.index() != info.index() && info.is_a(owner)));
        }
    }
    Ok(false)
}

fn bind(function: Own) -> Res<Own> {
    let method = types::allocate(CLASS.ptr().cast())?;
    // SAFETY: the instance is new and not shared.
    let layout = unsafe { &mut *method.as_ptr().cast::<Layout>() };
    layout.vectorcall = call;
    layout.function = function.into_ptr();
    Ok(method)
}
