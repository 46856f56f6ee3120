//! Calls that can be stopped: the calls that `call_async` makes on its threads.
//!
//! Each such call has a token ([`Layout`]). While the function runs, the thread's list `CURRENT` contains the token,
//! so native code that checks for signals on that thread learns that its call was cancelled or that its deadline has
//! passed. The check does not need the GIL, so a loop may check as often as it likes.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use anyfn::Error;
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};
use crate::types::{self, Class};
use crate::{error, function};

/// Memory layout of a token, an instance of `CallToken`.
#[repr(C)]
struct Layout {
    base: PyObject,
    /// State of the call: [`RUNNING`], and [`CANCELLED`] or [`TOO_LATE`] once the call is stopped.
    state: AtomicI32,
}

const RUNNING: i32 = 0;
const CANCELLED: i32 = 1;
const TOO_LATE: i32 = 2;

/// The class `CallToken`. The Python code of the package derives the class of its asynchronous calls from it.
pub(crate) static CLASS: Global = Global::new();

/// Function of the Python code that runs a coroutine to completion; [`finish`] calls it.
static FINISH: Global = Global::new();

thread_local! {
    /// Calls in progress on this thread that can be stopped, innermost last. An entry contains a number and an owned
    /// reference to the token of the call. Greenlets take turns on a thread, so calls end in any order and each call
    /// removes its own entry, at any position.
    static CURRENT: RefCell<Vec<(u64, *const Layout)>> = const { RefCell::new(Vec::new()) };
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Returns the token of the innermost call on this thread that can be stopped, or NULL if no such call is in progress.
fn innermost() -> *const Layout {
    let found = CURRENT.try_with(|calls| calls.borrow().last().map(|(_, token)| *token));
    found.ok().flatten().unwrap_or(ptr::null())
}

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

/// Sets the function that [`finish`] calls to run a coroutine to completion.
pub(crate) fn set_finish(function: Obj<'_>) {
    FINISH.set(function.to_own());
}

/// Returns true if a call that can be stopped is in progress on this thread.
pub(crate) fn is_running() -> bool {
    !innermost().is_null()
}

/// Checks if the innermost call on this thread was stopped, for native code that checks for signals. Returns `None`
/// if no call that can be stopped is in progress on this thread. Otherwise returns 0, or -1 with an error raised if
/// the call was stopped.
pub(crate) fn check() -> Option<c_int> {
    // SAFETY: the entry keeps the token alive.
    let token = unsafe { innermost().as_ref() }?;
    match token.state.load(Ordering::Relaxed) {
        RUNNING => Some(0),
        state => {
            let error = match state {
                TOO_LATE => Error::new("TimeoutError", "the deadline of the call has passed"),
                _ => Error::new("CancelledError", "the call was cancelled"),
            };
            error.raise();
            Some(-1)
        }
    }
}

/// Runs a coroutine that a Python function has returned to native code, and returns the coroutine's result. This
/// happens only on a thread that makes a call for an event loop, and the event loop runs the coroutine. Returns
/// `None` on all other threads, and for objects that are not coroutines.
#[cold]
pub(crate) fn finish(object: Obj<'_>) -> Res<Option<Own>> {
    let token = innermost();
    let Some(finish) = FINISH.try_get().filter(|_| !token.is_null()) else { return Ok(None) };
    // SAFETY: a token is a Python object, which its entry keeps alive.
    let token: Obj<'_> = unsafe { Obj::from_ptr(token.cast_mut().cast()) };
    let result = finish.call(&[token, object])?;
    // The function returns the token itself if the object is not a coroutine.
    Ok((!result.obj().is(token.as_ptr())).then_some(result))
}

unsafe extern "C" fn new(
    class: *mut ffi::PyTypeObject,
    _args: *mut PyObject,
    _kwargs: *mut PyObject,
) -> *mut PyObject {
    crate::object::to_c(types::allocate(class))
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

/// Guard that adds a token to the calls in progress on this thread, and removes it when dropped. It contains the
/// number of the entry.
struct Running(u64);

impl Running {
    fn new(token: Own) -> Running {
        let number = LAST.get() + 1;
        LAST.set(number);
        let token: *const Layout = token.into_ptr().cast();
        CURRENT.with_borrow_mut(|calls| calls.push((number, token)));
        Running(number)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = CURRENT.with_borrow_mut(|calls| {
            let place = calls.iter().rposition(|(number, _)| *number == self.0)?;
            Some(calls.remove(place).1)
        });
        // SAFETY: the entry owned this reference and has been removed; the GIL is held.
        drop(ended.and_then(|token| unsafe { Own::from_nullable(token.cast_mut().cast()) }));
    }
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
            return py::raise(py::exceptions::runtime_error(), "the call was given up before it began");
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
                    return py::raise(py::exceptions::type_error(), "the dict of named arguments changed");
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

/// Returns the token of the innermost call on this thread that can be stopped, or None. Called from the Python code
/// of the package.
pub(crate) fn current() -> Own {
    // SAFETY: the pointer is NULL or a Python object, which its entry keeps alive.
    match unsafe { Obj::from_nullable(innermost().cast_mut().cast()) } {
        Some(token) => token.to_own(),
        None => py::none(),
    }
}

/// Checks for signals as native code does. Meant for long-running Python functions that native code calls.
pub(crate) fn check_from_python() -> Res<Own> {
    match anyfn::check_signals() {
        Ok(()) => Ok(py::none()),
        Err(_) if py::error_occurred() => Err(Raised),
        Err(error) => Err(error::raise(error)),
    }
}
