//! The Python function `get_global_func`, which looks up global functions.
//!
//! It takes keyword arguments and is public itself, so that a look-up runs no Python code.

use std::ffi::{CStr, c_int};
use std::ptr;

use anyfn::registry;
use pyo3_ffi as ffi;

use crate::py::{self, Obj, Own, PyObject, Res, names};
use crate::{error, packed, place};

/// Method flag for functions that take their arguments as an array. The flag has been part of the stable ABI
/// since Python 3.10, and its value has not changed since 3.7.
const METH_FASTCALL: c_int = 0x80;

type Fastcall =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t, *mut PyObject) -> *mut PyObject;

const DOC: &CStr = c"get_global_func(name, allow_missing=False)
--

Returns the global function with the given name.

If the function does not exist, raises ``ValueError``, or returns ``None`` with ``allow_missing``.";

/// Creates the Python function.
pub(crate) fn make() -> Res<Own> {
    // SAFETY: this only changes the type; CPython calls the function with the signature that the flags declare.
    let code = unsafe { std::mem::transmute::<Fastcall, ffi::PyCFunction>(call) };
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"get_global_func".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: code },
        ml_flags: METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: DOC.as_ptr(),
    }));
    let module = py::string(b"anyfn")?;
    // SAFETY: the definition lives as long as the process, and the name of the module is a string; the result is a new
    // reference, or NULL with an exception set.
    py::unsafe_new_ref!(ffi::PyCFunction_NewEx(definition, ptr::null_mut(), module.as_ptr()))
}

unsafe extern "C" fn call(
    _this: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes a tuple of names, or NULL if there are no named arguments.
    let kwnames: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
    let positional = count as usize;
    let count = positional + kwnames.map_or(0, Obj::tuple_len);
    let args: &[Obj<'_>] = if count == 0 {
        &[]
    } else {
        // SAFETY: Python passes the positional arguments and one more for each name; `Obj` is transparent over the pointer.
        unsafe { std::slice::from_raw_parts(args.cast(), count) }
    };
    let body = || {
        let (name, allow_missing) = arguments(&args[..positional], &args[positional..], kwnames)?;
        get(name, allow_missing)
    };
    if anyfn::has_ledger() {
        return place::noted(|| error::catch(body));
    }
    error::catch(body)
}

/// Assigns arguments to the parameters `name` and `allow_missing`.
fn arguments<'a>(
    positional: &[Obj<'a>],
    named: &[Obj<'a>],
    kwnames: Option<Obj<'_>>,
) -> Res<(Obj<'a>, Option<Obj<'a>>)> {
    let error = |message: &str| py::raise(py::exceptions::type_error(), message);
    if positional.len() > 2 {
        return error(&format!("get_global_func() takes 1 or 2 arguments but got {}", positional.len()));
    }
    let mut found = [positional.first().copied(), positional.get(1).copied()];
    for (index, value) in named.iter().enumerate() {
        let Some(name) = kwnames.and_then(|names| py::tuple_get(names, index)) else { break };
        let is = |known: Obj<'_>| name.is(known.as_ptr()) || py::same_text(name, known);
        let slot = if is(names::KEY.get()) {
            0
        } else if is(names::ALLOW_MISSING.get()) {
            1
        } else {
            let name = name.to_text()?;
            return error(&format!("get_global_func() has no parameter '{name}'"));
        };
        if found[slot].replace(*value).is_some() {
            let name = name.to_text()?;
            return error(&format!("get_global_func() got several values for the argument '{name}'"));
        }
    }
    match found {
        [Some(name), allow_missing] => Ok((name, allow_missing)),
        [None, _] => error("get_global_func() requires the argument 'name'"),
    }
}

fn get(name: Obj<'_>, allow_missing: Option<Obj<'_>>) -> Res<Own> {
    let key = py::str_argument(name)?;
    // SAFETY: Python code passes addresses only through `ctypes`, and must then meet the requirements of the function.
    let found = match unsafe { registry::find_unsafe(key) } {
        Some(found) => found,
        None if allow_missing.map_or(Ok(false), Obj::is_true)? => return Ok(py::none()),
        None => registry::get(key).map_err(error::raise)?,
    };
    let wrapped = packed::wrap(found.into_object(), None, false)?;
    packed::set_key(wrapped.obj(), name);
    Ok(wrapped)
}
