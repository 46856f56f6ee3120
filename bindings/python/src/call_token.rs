//! The class `CallToken`. Each instance represents a call that `call_async` makes on one of its threads.
//! [`crate::cancel`] tracks the calls in progress.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use pyo3_ffi as ffi;

use crate::cancel::{CANCELLED, Layout, RUNNING, Running, TOO_LATE};
use crate::py::{self, Global, Obj, Own, PyObject, Res};
use crate::types::{self, Class};
use crate::{error, function, object};

/// The Python class `CallToken`, from which the package derives the class of its asynchronous calls.
pub(crate) static CLASS: Global = Global::new();

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let method = |name: &'static CStr, function, flags, doc: &'static CStr| ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: flags,
        ml_doc: doc.as_ptr(),
    };
    let methods = vec![
        method(c"stop", stop, ffi::METH_O, c"stop(code): stops the call; 1: cancelled, 2: timed out."),
        method(c"stopped", stopped, ffi::METH_NOARGS, c"Returns True if the call was stopped."),
        method(c"run", run, ffi::METH_VARARGS, c"run(function, args, kwargs): calls a PackedFunc."),
        ffi::PyMethodDef::zeroed(),
    ];
    let class = Class {
        name: c"anyfn._core.CallToken",
        size: size_of::<Layout>(),
        base_for_others: true,
        flags: 0,
        base: None,
        slots: &[
            (ffi::Py_tp_new, new as *mut c_void),
            (ffi::Py_tp_dealloc, types::free as *mut c_void),
            // The table lives as long as the class: for the lifetime of the process.
            (ffi::Py_tp_methods, methods.leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

unsafe extern "C" fn new(
    class: *mut ffi::PyTypeObject,
    _args: *mut PyObject,
    _kwargs: *mut PyObject,
) -> *mut PyObject {
    object::to_c(types::allocate(class))
}

fn state<'a>(token: *mut PyObject) -> &'a AtomicI32 {
    // SAFETY: Python passes an instance, which it keeps alive during the call.
    unsafe { &(*token.cast::<Layout>()).state }
}

unsafe extern "C" fn stop(token: *mut PyObject, code: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes a valid object and holds the GIL.
    let code: Obj<'_> = unsafe { Obj::from_ptr(code) };
    let late = matches!(code.int(), Ok(code) if code == i64::from(TOO_LATE));
    py::clear_error();
    let code = if late { TOO_LATE } else { CANCELLED };
    // The first reason to stop the call is kept.
    let _ = state(token).compare_exchange(RUNNING, code, Ordering::Relaxed, Ordering::Relaxed);
    py::none().into_ptr()
}

unsafe extern "C" fn stopped(token: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    py::boolean(state(token).load(Ordering::Relaxed) != RUNNING).into_ptr()
}

unsafe extern "C" fn run(token: *mut PyObject, args: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes a tuple and holds the GIL.
    let args: Obj<'_> = unsafe { Obj::from_ptr(args) };
    error::catch(|| {
        let item = |index| match py::tuple_item(args, index) {
            Some(item) => Ok(item),
            None => py::raise(py::exceptions::type_error(), "expected a function, a tuple and a dict or None"),
        };
        let (callable, positional, named) = (item(0)?, item(1)?, item(2)?);
        let is = |object: &Own, flag| object.obj().type_flags() & flag != 0;
        if !is(&positional, ffi::Py_TPFLAGS_TUPLE_SUBCLASS)
            || !(named.obj().is_none() || is(&named, ffi::Py_TPFLAGS_DICT_SUBCLASS))
        {
            return py::raise(py::exceptions::type_error(), "expected a function, a tuple and a dict or None");
        }
        if state(token).load(Ordering::Relaxed) != RUNNING {
            return py::raise(
                py::exceptions::runtime_error(),
                "the call was cancelled or timed out before it began",
            );
        }
        let named = (!named.obj().is_none()).then_some(named);
        let names = match &named {
            // SAFETY: the object is valid; an exception is set if it is not iterable.
            Some(named) => Some(py::unsafe_new_ref!(py::raw::PySequence_Tuple(named.as_ptr()))?),
            None => None,
        };
        let mut all = Vec::with_capacity(positional.obj().tuple_len() + 1);
        // The callee may overwrite the word in front.
        all.push(ptr::null_mut());
        for index in 0..positional.obj().tuple_len() {
            // SAFETY: the object is a tuple and the index is within its size; the tuple keeps the item alive.
            all.push(unsafe { ffi::PyTuple_GetItem(positional.as_ptr(), index as isize) });
        }
        let count = all.len() - 1;
        // Other code may change the dictionary during the call.
        let mut held = Vec::new();
        if let (Some(names), Some(named)) = (&names, &named) {
            for index in 0..names.obj().tuple_len() {
                // SAFETY: the object is a tuple and the index is below its length; the tuple keeps the name alive.
                let name = unsafe { ffi::PyTuple_GetItem(names.as_ptr(), index as isize) };
                // SAFETY: the object is a dictionary and the key comes from it; the dictionary keeps the value alive.
                let value = unsafe { ffi::PyDict_GetItemWithError(named.as_ptr(), name) };
                if value.is_null() {
                    return py::raise(
                        py::exceptions::type_error(),
                        "the dict of named arguments changed during the call",
                    );
                }
                // SAFETY: the value is not NULL, and the dictionary keeps it alive until Python code runs.
                let value: Obj<'_> = unsafe { Obj::from_ptr(value) };
                all.push(value.as_ptr());
                held.push(value.to_own());
            }
        }
        // SAFETY: Python passes an instance and holds the GIL.
        let _running = Running::new(unsafe { Obj::from_ptr(token) }.to_own());
        let names = names.as_ref().map_or(ptr::null_mut(), Own::as_ptr);
        // SAFETY: there are `count` positional objects and one for each name, all kept alive by the tuple and by `held`.
        unsafe { function::call_released(callable.obj(), &all[1..], count, names) }
    })
}
