//! The classes `Object` and `BuiltinObject`: their slots, and the attributes and methods of all objects.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use anyfn::ObjectRef;
use anyfn::reflection::TypeInfo;
use pyo3_ffi as ffi;

use crate::py::{self, Obj, Own, PyObject, Raised, Res};
use crate::record::{self, Record};
use crate::types::{self, Class};
use crate::{construct, error, gil, object, plan};

const DOC: &CStr = c"A reference to an object of a native type, which it keeps alive. Two references to the same object are equal.

`register_object` registers a class for a type. Another type gets a class automatically if it has fields or methods;
otherwise its objects are instances of the class of its nearest ancestor. Constructing an instance of a class whose type
has no constructor raises `TypeError`.";

pub(crate) fn init() -> Res<()> {
    if object::CLASS.try_get().is_some() {
        return Ok(());
    }
    let class = Class {
        name: c"anyfn._core.Object",
        size: size_of::<object::Layout>(),
        base_for_others: true,
        flags: 0,
        base: None,
        slots: &[
            (ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
            (ffi::Py_tp_new, construct::new as *mut c_void),
            (ffi::Py_tp_init, construct::init as *mut c_void),
            (ffi::Py_tp_dealloc, object::dealloc as *mut c_void),
            (ffi::Py_tp_hash, hash as *mut c_void),
            (ffi::Py_tp_richcompare, compare as *mut c_void),
            (ffi::Py_tp_repr, repr as *mut c_void),
            (ffi::Py_tp_setattro, set_attribute as *mut c_void),
            (ffi::Py_tp_getset, attributes().leak().as_mut_ptr().cast()),
            (ffi::Py_tp_methods, methods().leak().as_mut_ptr().cast()),
        ],
    };
    object::CLASS.set(class.make()?);
    let builtin = Class {
        name: c"anyfn._core.BuiltinObject",
        base: Some(object::CLASS.get()),
        slots: &[(ffi::Py_tp_new, types::not_constructible as *mut c_void)],
        ..class
    };
    object::BUILTIN.set(builtin.make()?);
    Ok(())
}

fn attributes() -> Vec<ffi::PyGetSetDef> {
    let attribute = |name: &'static CStr, doc: &'static CStr, get| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set: None,
        doc: doc.as_ptr(),
        closure: ptr::null_mut(),
    };
    vec![
        attribute(c"type_key", c"Type key of the native type, such as `ffi.Array`.", get_type_key),
        attribute(c"type_index", c"Type index of the native type in this process.", get_type_index),
        ffi::PyGetSetDef::default(),
    ]
}

fn methods() -> Vec<ffi::PyMethodDef> {
    let same_as = ffi::PyMethodDef {
        ml_name: c"same_as".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: same_as },
        ml_flags: ffi::METH_O,
        ml_doc: c"Returns True if the argument refers to the same native object.".as_ptr(),
    };
    // SAFETY: this only changes the type; CPython calls the function with the signature that the flags declare.
    let init_handle = unsafe { std::mem::transmute::<Fastcall, ffi::PyCFunction>(construct::init_handle) };
    let init_handle = ffi::PyMethodDef {
        ml_name: c"__init_handle_by_constructor__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: init_handle },
        ml_flags: METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: c"Creates the native object of this instance by calling a function; once, in `__init__`."
            .as_ptr(),
    };
    vec![same_as, init_handle, ffi::PyMethodDef::zeroed()]
}

type Fastcall =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t, *mut PyObject) -> *mut PyObject;

/// Method flag for functions that take their arguments as an array. The flag has been part of the stable ABI
/// since Python 3.10, and its value has not changed since 3.7.
const METH_FASTCALL: c_int = 0x80;

/// Raises the error of [`object::uninitialised`] and returns NULL, for use in a C function.
#[cold]
fn uninitialised_c(object: Obj<'_>) -> *mut PyObject {
    let Err(Raised) = object::uninitialised::<()>(object) else { return ptr::null_mut() };
    ptr::null_mut()
}

unsafe extern "C" fn get_type_key(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match object::reference_of(object) {
        Some(object) => object::to_c(py::string(object.type_key().as_bytes())),
        None => uninitialised_c(object),
    }
}

unsafe extern "C" fn get_type_index(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match object::reference_of(object) {
        Some(object) => object::to_c(py::int(object.type_index().into())),
        None => uninitialised_c(object),
    }
}

unsafe extern "C" fn same_as(object: *mut PyObject, other: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: Python passes a valid object of any class.
    let other: Obj<'_> = unsafe { Obj::from_ptr(other) };
    let handle = object::handle_unchecked(object);
    if handle.is_null() {
        return uninitialised_c(object);
    }
    py::boolean(object::handle_of(other) == Some(handle)).into_ptr()
}

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let handle = object::handle_unchecked(object);
    if let Some(native) = object::reference_of(object) {
        let info = TypeInfo::of(&native);
        let prints_itself = info.attribute("__ffi_repr__").is_some();
        if !prints_itself && let Some(record) = record::record_of_object(handle) {
            return error::catch(|| record::repr(object, record));
        }
        if prints_itself || info.fields().next().is_some() {
            return error::catch(|| print(native));
        }
    }
    let class = object.class_name();
    let text = match object::reference_of(object) {
        Some(native) => format!("<anyfn.{class} of type {} at {:p}>", native.type_key(), native.as_handle()),
        None => format!("<anyfn.{class}, not initialised>"),
    };
    object::to_c(py::string(text.as_bytes()))
}

/// Returns the string representation of a native object, which is the same in all languages.
fn print(object: ObjectRef) -> Res<Own> {
    let text = gil::counted(|| {
        let printed = anyfn::global!("ffi.ReprPrint")?.call((&object,))?;
        printed.get::<anyfn::String>()
    });
    py::string(text.map_err(error::raise)?.as_bytes())
}

unsafe extern "C" fn hash(object: *mut PyObject) -> ffi::Py_hash_t {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let address = object::handle_unchecked(object).addr();
    if address == 0 {
        uninitialised_c(object);
        return -1;
    }
    // Objects are aligned, so the low bits carry no information. The result cannot be -1, which is reserved for errors.
    (address >> 4) as ffi::Py_hash_t
}

unsafe extern "C" fn compare(left: *mut PyObject, right: *mut PyObject, operation: c_int) -> *mut PyObject {
    // SAFETY: Python passes valid objects and holds the GIL.
    let left: Obj<'_> = unsafe { Obj::from_ptr(left) };
    // SAFETY: Python passes a valid object of any class.
    let right: Obj<'_> = unsafe { Obj::from_ptr(right) };
    let (Some(a), Some(b)) = (object::handle_of(left), object::handle_of(right)) else {
        return py::not_implemented().into_ptr();
    };
    if a.is_null() || b.is_null() {
        // Python then compares the instances themselves.
        return py::not_implemented().into_ptr();
    }
    match operation {
        ffi::Py_EQ => py::boolean(a == b).into_ptr(),
        ffi::Py_NE => py::boolean(a != b).into_ptr(),
        _ => py::not_implemented().into_ptr(),
    }
}

/// Implements `__setattr__`: sets an attribute. If the class is defined in Python, raises an exception for an
/// attribute that the class does not declare.
unsafe extern "C" fn set_attribute(this: *mut PyObject, name: *mut PyObject, value: *mut PyObject) -> c_int {
    // SAFETY: Python passes a valid object and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: Python passes a string and holds the GIL.
    let key: Obj<'_> = unsafe { Obj::from_ptr(name) };
    let mut handle = object::handle_unchecked(object);
    if handle.is_null() {
        if plan::begin(object).is_err() {
            return -1;
        }
        handle = object::handle_unchecked(object);
    }
    if !handle.is_null()
        && let Some(record) = record::record_of_object(handle)
    {
        match object.class().attr_opt(key) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let Err(Raised) = unknown(object, key, record) else { return -1 };
                return -1;
            }
            Err(Raised) => return -1,
        }
    }
    // SAFETY: Python passes a valid instance and name, and a value or NULL, and holds the GIL.
    unsafe { py::raw::PyObject_GenericSetAttr(this, name, value) }
}

#[cold]
fn unknown(object: Obj<'_>, name: Obj<'_>, record: &Record) -> Res<()> {
    let (class, name) = (object.class_name(), name.to_text()?);
    let near = anyfn::__private::nearest(&name, record.fields.iter().map(|field| field.name));
    let hint = near.map_or_else(
        || String::from("; fields are declared in the class, and __slots__ declares what only Python keeps"),
        |near| format!("; did you mean '{near}'?"),
    );
    py::raise(py::exceptions::attribute_error(), &format!("{class} has no field '{name}'{hint}"))
}
