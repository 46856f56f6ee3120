//! Errors in both directions.
//!
//! A Python exception that leaves a callback becomes an error with its class name as kind, its text as message and its
//! traceback as trace; the exception object itself travels in the error's `extra_context`. Where that error comes back
//! to Python, the very same object is raised again, so class, arguments, cause and traceback survive, and
//! `KeyboardInterrupt` and `SystemExit` are still what they were.
//!
//! A native error becomes an exception of the built-in class that its kind names, or of a class derived from
//! `anyfn.Error`. The exception keeps the error in `__anyfn_error__`; raised through native code it is that error again.

use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIErrorCell, TVMFFIErrorMoveFromRaised, TVMFFIObject, TVMFFIObjectCreateOpaque,
    TVMFFIObjectHandle, TVMFFIOpaqueObjectCell, kTVMFFIError, kTVMFFIOpaquePyObject,
};
use anyfn::{Error, ObjectRef};
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::{gil, object};

/// Exception class of each kind that has been met: a dictionary.
static CLASSES: Global = Global::new();
/// `_class_of_kind` of the Python part, which makes the class of a new kind.
static CLASS_OF_KIND: Global = Global::new();

/// Kind that native code raises when it has stopped because a Python exception is set already.
const ALREADY_SET: &str = "EnvErrorAlreadySet";
/// Lines of a traceback that are kept, the most recent ones.
const TRACE_MAX: usize = 64;

pub(crate) fn init() -> Res<()> {
    if CLASSES.try_get().is_none() {
        CLASSES.set(py::dict()?);
    }
    Ok(())
}

/// Sets the function that makes the exception class of a kind.
pub(crate) fn set_class_of_kind(function: Obj<'_>) {
    CLASS_OF_KIND.set(function.to_own());
}

/// Turns a failed native call into a Python exception.
#[cold]
pub(crate) fn raise_from_native(code: c_int) -> Raised {
    let mut handle: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: `handle` is writable.
    unsafe { TVMFFIErrorMoveFromRaised(&mut handle) };
    // SAFETY: the slot gives an owned error or NULL.
    let error =
        unsafe { ObjectRef::from_owned_or_null(handle) }.and_then(|object| Error::try_from_object(object).ok());
    match error {
        Some(error) if error.kind() == ALREADY_SET && py::error_occurred() => Raised,
        Some(error) => raise(error),
        None if py::error_occurred() => Raised,
        None => {
            let text = format!("a native function failed with code {code} and raised no error");
            let _ = py::raise::<()>(py::exceptions::system_error(), &text);
            Raised
        }
    }
}

/// Raises an error as a Python exception.
#[cold]
pub(crate) fn raise(error: Error) -> Raised {
    match python_exception(&error) {
        Some(exception) => py::restore_error(exception),
        None => match make_exception(error) {
            Ok(exception) => {
                let class = exception.obj().class().as_ptr();
                // Unlike `restore_error` this notes an exception that is being handled as the context.
                // SAFETY: a class and its instance; the lock is held.
                unsafe { ffi::PyErr_SetObject(class, exception.as_ptr()) };
                Raised
            }
            Err(Raised) => Raised,
        },
    }
}

/// The exception object of an error, without raising it.
pub(crate) fn to_exception(error: Error) -> Res<Own> {
    match python_exception(&error) {
        Some(exception) => Ok(exception),
        None => make_exception(error),
    }
}

fn cell(error: &Error) -> &TVMFFIErrorCell {
    let header: *const TVMFFIObject = error.as_object().as_handle().cast();
    // SAFETY: an error has its cell behind the header.
    let cell = unsafe { header.add(1) };
    // SAFETY: as above; `error` keeps it alive.
    unsafe { &*cell.cast() }
}

/// A text of an error, whose owner is alive.
fn text(array: &TVMFFIByteArray) -> Res<Own> {
    // SAFETY: the error owns its texts; only the thread that handles an error changes one, and it is copied here.
    py::string_lossy(unsafe { array.as_slice() })
}

/// The Python exception that an error was made of.
fn python_exception(error: &Error) -> Option<Own> {
    let context: *const TVMFFIObject = cell(error).extra_context.cast();
    // SAFETY: NULL or an object that the error keeps alive.
    if unsafe { context.as_ref() }?.type_index != kTVMFFIOpaquePyObject {
        return None;
    }
    let object = opaque_object(context);
    let is_exception = object.type_flags() & ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS != 0;
    is_exception.then(|| object.to_own())
}

/// The Python object in an object of type `kTVMFFIOpaquePyObject`.
pub(crate) fn opaque_object<'a>(object: *const TVMFFIObject) -> Obj<'a> {
    // SAFETY: the caller has an object of that type, which has its cell behind the header.
    let cell: *const TVMFFIOpaqueObjectCell = unsafe { object.add(1) }.cast();
    // SAFETY: as above.
    let handle = unsafe { (*cell).handle };
    // SAFETY: such objects hold a reference to a Python object; the caller holds the lock and the object.
    unsafe { Obj::from_ptr(handle.cast()) }
}

/// Makes a native object that keeps a Python object.
pub(crate) fn make_opaque(object: Obj<'_>) -> Res<ObjectRef> {
    unsafe extern "C" fn delete(object: *mut c_void) {
        // SAFETY: the opaque object owned this reference.
        unsafe { gil::release(object.cast()) };
    }
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    let owned = object.to_own().into_ptr();
    // SAFETY: the reference passes to the new object, which gives it back through `delete`.
    let code = unsafe { TVMFFIObjectCreateOpaque(owned.cast(), kTVMFFIOpaquePyObject, Some(delete), &mut out) };
    if code != 0 {
        // SAFETY: not taken over.
        drop(unsafe { Own::from_nullable(owned) });
        return Err(raise_from_native(code));
    }
    // SAFETY: a new reference.
    match unsafe { ObjectRef::from_owned_or_null(out) } {
        Some(object) => Ok(object),
        None => Err(raise_from_native(code)),
    }
}

/// Makes the Python exception of a native error.
fn make_exception(error: Error) -> Res<Own> {
    let cell = cell(&error);
    let (kind, message) = (text(&cell.kind)?, text(&cell.message)?);
    let class = match py::dict_get(CLASSES.get(), kind.obj()) {
        Some(class) => class.to_own(),
        None => new_class(kind.obj())?,
    };
    let exception = class.obj().call(&[message.obj()])?;
    let trace = trace_note(cell)?;
    let handle = object::wrap(error.into_object())?;
    exception.obj().set_attr(names::ERROR.get(), handle.obj())?;
    if let Some(note) = trace {
        let notes = py::list(vec![note])?;
        exception.obj().set_attr(names::NOTES.get(), notes.obj())?;
    }
    Ok(exception)
}

/// What Python shows below the message: where in native code the error comes from.
fn trace_note(cell: &TVMFFIErrorCell) -> Res<Option<Own>> {
    // SAFETY: the text is copied at once; only the thread that handles an error changes it.
    let trace = unsafe { cell.backtrace.as_slice() }.trim_ascii_end();
    if trace.is_empty() {
        return Ok(None);
    }
    let mut note = Vec::with_capacity(trace.len() + 64);
    note.extend_from_slice(b"Native calls (most recent call first):\n");
    note.extend_from_slice(trace);
    py::string_lossy(&note).map(Some)
}

#[cold]
fn new_class(kind: Obj<'_>) -> Res<Own> {
    let Some(class_of_kind) = CLASS_OF_KIND.try_get() else {
        // SAFETY: a built-in class.
        return Ok(unsafe { Obj::from_ptr(py::exceptions::runtime_error()) }.to_own());
    };
    let class = class_of_kind.call(&[kind])?;
    /// Kinds may come from outside: what is kept of them is bounded.
    const KINDS_MAX: isize = 1024;
    // SAFETY: a dictionary.
    if unsafe { ffi::PyDict_Size(CLASSES.ptr()) } < KINDS_MAX {
        py::dict_set(CLASSES.get(), kind, class.obj())?;
    }
    Ok(class)
}

/// Turns the exception that is set into the thread's raised native error; gives what a native function returns.
#[cold]
pub(crate) fn raise_to_native() -> c_int {
    match py::take_error() {
        Some(exception) => of_exception(exception.obj()).raise(),
        None => Error::new("SystemError", "a Python call failed without an exception").raise(),
    }
    -1
}

/// The native error of a Python exception.
pub(crate) fn of_exception(exception: Obj<'_>) -> Error {
    if let Some(error) = native_error(exception) {
        if let Ok(trace) = trace_of(exception) {
            error.append_backtrace(&trace);
        }
        py::clear_error();
        return error;
    }
    let kind = exception.class_name();
    let message = exception.str().and_then(|text| text.obj().to_text()).unwrap_or_else(|Raised| {
        py::clear_error();
        "<the exception cannot be shown as text>".into()
    });
    let trace = trace_of(exception).unwrap_or_else(|Raised| {
        py::clear_error();
        String::new()
    });
    let context = make_opaque(exception).ok();
    py::clear_error();
    Error::try_from_texts(kind.as_bytes(), message.as_bytes(), trace.as_bytes(), None, context)
        .unwrap_or_else(|| Error::new("MemoryError", "out of memory"))
}

/// The native error that an exception was made of.
fn native_error(exception: Obj<'_>) -> Option<Error> {
    // Built-in exceptions without attributes of their own have no such attribute: the usual case.
    let attribute = exception.attr_opt(names::ERROR.get()).ok().flatten()?;
    let object = object::reference_of(attribute.obj())?;
    Error::try_from_object(object).ok()
}

/// The lines of an exception's traceback as the ABI has them: the most recent call first.
fn trace_of(exception: Obj<'_>) -> Res<String> {
    // SAFETY: an exception; a new reference or NULL without an exception.
    let mut next = py::new_ref_or_none!(ffi::PyException_GetTraceback(exception.as_ptr()));
    let mut entries = Vec::new();
    while let Some(entry) = next {
        let following = entry.obj().attr(names::TB_NEXT.get())?;
        next = (!following.obj().is_none()).then_some(following);
        entries.push(entry);
    }
    let mut text = String::new();
    for entry in entries.iter().rev().take(TRACE_MAX) {
        let line = entry.obj().attr(names::TB_LINENO.get())?;
        let frame = entry.obj().attr(names::TB_FRAME.get())?;
        let code = frame.obj().attr(names::F_CODE.get())?;
        let file = code.obj().attr(names::CO_FILENAME.get())?;
        let name = code.obj().attr(names::CO_NAME.get())?;
        text.push_str("  File \"");
        text.push_str(&String::from_utf8_lossy(file.obj().str_bytes()?));
        let _ = write!(text, "\", line {}, in ", line.obj().int().unwrap_or_default());
        text.push_str(&String::from_utf8_lossy(name.obj().str_bytes()?));
        text.push('\n');
    }
    Ok(text)
}

/// Kind, message and trace of an error object, for the Python part.
pub(crate) fn texts(error: Obj<'_>) -> Res<Own> {
    let error = error_argument(error)?;
    let cell = cell(&error);
    py::tuple(vec![text(&cell.kind)?, text(&cell.message)?, text(&cell.backtrace)?])
}

/// Cause and further context of an error object, for the Python part.
pub(crate) fn objects(error: Obj<'_>) -> Res<Own> {
    let error = error_argument(error)?;
    let cell = cell(&error);
    let wrap = |handle: TVMFFIObjectHandle| {
        // SAFETY: NULL or an object that the error keeps alive.
        match unsafe { ObjectRef::from_borrowed_or_null(handle) } {
            None => Ok(py::none()),
            Some(object) => crate::lift::lift_object(object),
        }
    };
    py::tuple(vec![wrap(cell.cause_chain)?, wrap(cell.extra_context)?])
}

fn error_argument(object: Obj<'_>) -> Res<Error> {
    let error = object::reference_of(object).filter(|object| object.is_instance(kTVMFFIError));
    match error.and_then(|object| Error::try_from_object(object).ok()) {
        Some(error) => Ok(error),
        None => py::raise(py::exceptions::type_error(), "expected an error object"),
    }
}

/// Runs the body of a function that Python calls; a panic becomes an exception.
#[inline(always)]
pub(crate) fn catch(body: impl FnOnce() -> Res<Own>) -> *mut PyObject {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => object::to_c(result),
        Err(payload) => raise_panic(&*payload),
    }
}

/// Turns a panic of this extension into an exception.
#[cold]
pub(crate) fn raise_panic(payload: &(dyn std::any::Any + Send)) -> *mut PyObject {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let _ = py::raise::<()>(py::exceptions::system_error(), &format!("panic in the anyfn extension: {text}"));
    ptr::null_mut()
}
