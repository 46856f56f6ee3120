//! Native members of the Python class `Tensor`: the properties that describe a tensor, and its exports to array libraries.
//!
//! The class is written in Python, with documentation and types. [`add_members`] replaces the members that are listed
//! here by descriptors that call native code directly. An export that native code does not support calls the function
//! that it has replaced.

use std::ffi::{CString, c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Res, names};
use crate::{dlpack, error, tensor, tensor_array};

/// Method flags for functions that take their arguments as an array. [`METH_FASTCALL`] has been part of the stable ABI
/// since Python 3.10, and its value has not changed since 3.7.
const METH_FASTCALL: c_int = 0x80;

type Fastcall =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t, *mut PyObject) -> *mut PyObject;
type Property = fn(Obj<'_>) -> Res<Own>;

/// Functions that native members have replaced.
static NUMPY: Global = Global::new();
static DLPACK: Global = Global::new();

/// Replaces members of the class `Tensor` by native descriptors with the same documentation.
pub(crate) fn add_members(class: Obj<'_>) -> Res<()> {
    let properties: [(&[u8], Property); 7] = [
        (b"shape", tensor::shape),
        (b"strides", tensor::strides),
        (b"dtype", tensor::dtype),
        (b"device", tensor::device),
        (b"data_ptr", tensor::data_ptr),
        (b"ndim", tensor::ndim),
        (b"read_only", tensor::read_only),
    ];
    for (name, get) in properties {
        let name = py::string(name)?;
        let doc = doc_of(class.attr(name.obj())?.obj())?;
        let definition = Box::leak(Box::new(ffi::PyGetSetDef {
            name: text(&name.obj().to_text()?).into_raw(),
            get: Some(get_property),
            set: None,
            doc: text(&doc).into_raw(),
            closure: get as *mut c_void,
        }));
        // SAFETY: the class and the definition, which lives as long as the process, are valid; the result is a new
        // reference, or NULL with an exception set.
        let descriptor = py::unsafe_new_ref!(ffi::PyDescr_NewGetSet(class.as_ptr().cast(), definition))?;
        class.set_attr(name.obj(), descriptor.obj())?;
    }
    NUMPY.set(class.attr(names::NUMPY.get())?);
    DLPACK.set(class.attr(names::DLPACK.get())?);
    let no_arguments = ffi::METH_NOARGS;
    // SAFETY: this only changes the type; CPython calls the function with the signature that the flags declare.
    let to_dlpack = unsafe { std::mem::transmute::<Fastcall, ffi::PyCFunction>(to_dlpack) };
    let arguments = "($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)";
    for (name, code, flags, arguments) in [
        (names::NUMPY.get(), to_numpy as ffi::PyCFunction, no_arguments, "($self, /)"),
        (names::DLPACK_DEVICE.get(), dlpack_device, no_arguments, "($self, /)"),
        (names::DLPACK.get(), to_dlpack, METH_FASTCALL | ffi::METH_KEYWORDS, arguments),
    ] {
        let text_of_name = name.to_text()?;
        let doc = doc_of(class.attr(name)?.obj())?;
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: text(&text_of_name).into_raw(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: code },
            ml_flags: flags,
            // CPython reads the signature from the part before the dashes.
            ml_doc: text(&format!("{text_of_name}{arguments}\n--\n\n{doc}")).into_raw(),
        }));
        // SAFETY: the class and the definition, which lives as long as the process, are valid; the result is a new
        // reference, or NULL with an exception set.
        let descriptor = py::unsafe_new_ref!(ffi::PyDescr_NewMethod(class.as_ptr().cast(), definition))?;
        class.set_attr(name, descriptor.obj())?;
    }
    Ok(())
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Returns the documentation of a member; empty if it has none.
fn doc_of(member: Obj<'_>) -> Res<String> {
    let doc = member.attr_opt(names::DOC.get())?;
    match doc.filter(|doc| !doc.obj().is_none()) {
        Some(doc) => doc.obj().to_text(),
        None => Ok(String::new()),
    }
}

unsafe extern "C" fn get_property(this: *mut PyObject, get: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance of `Tensor` and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: this is the closure of a descriptor made by `add_members`.
    let get = unsafe { std::mem::transmute::<*mut c_void, Property>(get) };
    error::catch(|| get(this))
}

unsafe extern "C" fn dlpack_device(this: *mut PyObject, _none: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance of `Tensor` and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    error::catch(|| tensor::dlpack_device(this))
}

unsafe extern "C" fn to_numpy(this: *mut PyObject, _none: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance of `Tensor` and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    error::catch(|| match tensor_array::share(this)? {
        Some(array) => Ok(array),
        None => NUMPY.get().call(&[this]),
    })
}

unsafe extern "C" fn to_dlpack(
    this: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes an instance of `Tensor` and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: Python passes a tuple of names, or NULL if there are no named arguments.
    let kwnames: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
    let count = count as usize + kwnames.map_or(0, Obj::tuple_len);
    let args: &[Obj<'_>] = if count == 0 {
        &[]
    } else {
        // SAFETY: Python passes the positional arguments and one more for each name; `Obj` is transparent over the pointer.
        unsafe { std::slice::from_raw_parts(args.cast(), count) }
    };
    error::catch(|| {
        if let Some(is_versioned) = plain_request(args, kwnames)
            && dlpack::is_host(tensor::content(this)?.device.device_type)
            && (is_versioned || !tensor::is_read_only(this))
        {
            return dlpack::to_capsule(this, is_versioned, false);
        }
        let mut all = vec![this.to_own()];
        all.extend(args.iter().map(|arg| arg.to_own()));
        match kwnames {
            Some(names) => DLPACK.get().call_with(all, names),
            None => DLPACK.get().call_with(all, py::tuple(Vec::new())?.obj()),
        }
    })
}

/// Returns whether the arguments of `__dlpack__` request a versioned capsule. Returns `None` for positional or unknown
/// arguments, for a copy, and for an export to a device.
fn plain_request(args: &[Obj<'_>], kwnames: Option<Obj<'_>>) -> Option<bool> {
    let mut is_versioned = false;
    let named = kwnames.map_or(0, Obj::tuple_len);
    if args.len() > named {
        return None;
    }
    for (index, value) in args.iter().enumerate() {
        let name = py::tuple_get(kwnames?, index)?;
        if name.is(names::MAX_VERSION.ptr()) {
            if !value.is_none() {
                is_versioned = major(*value)? >= 1;
            }
        } else if name.is(names::STREAM.ptr()) {
            // The elements of a tensor in host memory are not written by streams.
        } else if name.is(names::DL_DEVICE.ptr()) || name.is(names::COPY.ptr()) {
            if !value.is_none() {
                return None;
            }
        } else {
            return None;
        }
    }
    Some(is_versioned)
}

/// Returns the major version in a tuple such as `(1, 0)`, or `None` for any other object.
fn major(version: Obj<'_>) -> Option<i64> {
    if !ptr::eq(version.type_ptr(), &raw const ffi::PyTuple_Type) {
        return None;
    }
    let major = py::tuple_get(version, 0)?;
    if !ptr::eq(major.type_ptr(), &raw const ffi::PyLong_Type) {
        return None;
    }
    major.int().ok()
}
