//! Conversion between Python exceptions and native errors, in both directions.
//!
//! A Python exception that leaves a callback becomes an error. Its class name becomes the kind, its string the
//! message, its traceback the backtrace, and its `__cause__` the cause. The exception object itself is stored in the
//! error's context. When that error returns to Python, the same object is raised again, so its class, arguments,
//! cause and traceback survive, and `KeyboardInterrupt` and `SystemExit` keep their meaning.
//!
//! A native error becomes an exception of the built-in class named by its kind, of a class registered for the kind,
//! or of a class derived from `anyfn.Error`. The exception stores the error in `__anyfn_error__`. When it is raised
//! through native code, it is that error again, and it returns as the same exception.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIErrorCell, TVMFFIErrorMoveFromRaised, TVMFFIObject, TVMFFIObjectHandle,
    TVMFFIOpaqueObjectCell, kTVMFFIError, kTVMFFIMap, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK, kTVMFFIOpaquePyObject,
};
use anyfn::{Any, Array, Error, Map, ObjectRef};
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::{classes, gil, object, trace};

/// Dictionary from error kind to exception class. It contains all registered kinds and a bounded
/// number of other kinds that have occurred.
static CLASSES: Global = Global::new();
/// Dictionary from each registered exception class to its error kind; created when the first class is
/// registered.
static KINDS: Global = Global::new();
/// Python function `class_of_kind`, which makes the exception class of a new kind.
static CLASS_OF_KIND: Global = Global::new();

/// Kind of the error that native code raises when it stops because a Python exception is already set.
const ALREADY_SET: &str = "EnvErrorAlreadySet";
/// Key of the Python exception in the context of an error, if that context is a `Map`.
const EXCEPTION: &str = "exception";
/// Maximum length of the chain of causes that a conversion follows from an exception or a native
/// error.
const CAUSES_MAX: usize = 32;

pub(crate) fn init() -> Res<()> {
    if CLASSES.try_get().is_none() {
        CLASSES.set(py::dict()?);
    }
    trace::init()
}

/// Sets the function that makes the exception class of a kind.
pub(crate) fn set_class_of_kind(function: Obj<'_>) {
    CLASS_OF_KIND.set(function.to_own());
}

/// Registers `class` for errors of a kind. Native errors of the kind become exceptions of this class, and exceptions
/// of this class become errors of the kind.
pub(crate) fn register_class(kind: Obj<'_>, class: Obj<'_>) -> Res<()> {
    let is_exception = class.is_subclass_of(py::exceptions::base_exception());
    if !is_exception || kind.type_ptr() != &raw mut ffi::PyUnicode_Type {
        return py::raise(py::exceptions::type_error(), "expected the name of a kind and an exception class");
    }
    if KINDS.try_get().is_none() {
        KINDS.set(py::dict()?);
    }
    py::dict_set(KINDS.get(), class, kind)?;
    py::dict_set(CLASSES.get(), kind, class)
}

/// Raises the error of a failed native call as a Python exception.
#[cold]
pub(crate) fn raise_from_native(code: c_int) -> Raised {
    match take_native(code) {
        Some(error) => raise(error),
        None => Raised,
    }
}

/// Takes the error that a failed native call has raised. Returns `None` if a Python exception is
/// set instead. If the call has set neither, raises `SystemError` and returns `None`.
pub(crate) fn take_native(code: c_int) -> Option<Error> {
    let mut handle: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: `handle` is writable.
    unsafe { TVMFFIErrorMoveFromRaised(&mut handle) };
    // SAFETY: the function writes an owned error or NULL.
    let error =
        unsafe { ObjectRef::from_owned_or_null(handle) }.and_then(|object| Error::try_from_object(object).ok());
    match error {
        Some(error) if error.kind() == ALREADY_SET && py::error_occurred() => None,
        None if py::error_occurred() => None,
        None => {
            let text = format!("a native function failed with code {code} and raised no error");
            let _ = py::raise::<()>(py::exceptions::system_error(), &text);
            None
        }
        error => error,
    }
}

/// Raises an error as a Python exception.
#[cold]
pub(crate) fn raise(error: Error) -> Raised {
    if let Some(exception) = python_exception(&error) {
        return py::restore_error(exception);
    }
    let lines = error.clone();
    match make_exception(error, CAUSES_MAX) {
        Ok(exception) => {
            let class = exception.obj().class().as_ptr();
            // Unlike `restore_error`, this sets the exception being handled as the context of the new one.
            // SAFETY: the arguments are a class and its instance, and the GIL is held.
            unsafe { py::raw::PyErr_SetObject(class, exception.as_ptr()) };
            trace::add_lines(&lines.backtrace_bytes());
            Raised
        }
        Err(Raised) => Raised,
    }
}

/// Makes the exception object of an error, without raising it.
pub(crate) fn to_exception(error: Error) -> Res<Own> {
    exception_of(error, CAUSES_MAX)
}

fn exception_of(error: Error, causes: usize) -> Res<Own> {
    match python_exception(&error) {
        Some(exception) => Ok(exception),
        None => make_exception(error, causes),
    }
}

/// Returns the address of an error object's content, which follows the header.
fn cell(error: &Error) -> *const TVMFFIErrorCell {
    let header: *const TVMFFIObject = error.as_object().as_handle().cast();
    header.wrapping_add(1).cast()
}

fn kind(error: &Error) -> &TVMFFIByteArray {
    // SAFETY: `error` keeps the cell alive, and no implementation changes this part of it.
    unsafe { &(*cell(error)).kind }
}

fn message(error: &Error) -> &TVMFFIByteArray {
    // SAFETY: `error` keeps the cell alive, and no implementation changes this part of it.
    unsafe { &(*cell(error)).message }
}

/// Makes a Python string from a string that an error contains. The error must be alive.
fn text(array: &TVMFFIByteArray) -> Res<Own> {
    // SAFETY: the error owns its strings. Only the backtrace can change, and the bytes are copied here.
    py::string_lossy(unsafe { array.as_slice() })
}

/// Returns the context of an error. A walk over a graph may have wrapped the context in an object
/// that adds the access path. This function returns the context without the wrapper.
fn context_of(error: &Error) -> Option<ObjectRef> {
    let context = error.context()?;
    match context.type_index() {
        kTVMFFIOpaquePyObject | kTVMFFIMap => Some(context),
        _ => behind_way(context),
    }
}

#[cold]
fn behind_way(context: ObjectRef) -> Option<ObjectRef> {
    if context.type_key() != "ffi.VisitErrorContext" {
        return Some(context);
    }
    context.get_field("prev_error_context").ok()?.into_object()
}

/// Key of the access path in the context of an error, if that context is a `Map`.
const VISITED: &str = "visited";
/// Key of the notes that native code has added to the context of an error, if that context is a `Map`.
const ADDED: &str = "notes";

/// Adds notes to an exception: the access path and the notes that the context of the native error
/// contains.
#[cold]
fn add_notes(exception: Obj<'_>, error: &Error) -> Res<()> {
    let Some(Ok(map)) = context_of(error).map(Map::<Any, Any>::try_from_object) else { return Ok(()) };
    if let Ok(Some(path)) = map.get_any(VISITED)
        && let Ok(path) = path.get::<&str>()
    {
        add_note(exception, &format!("while visiting {path}"))?;
    }
    if let Ok(Some(notes)) = map.get_any(ADDED)
        && let Ok(notes) = notes.get::<Array<Any>>()
    {
        for note in notes.as_slice() {
            if let Ok(note) = note.get::<&str>() {
                add_note(exception, note)?;
            }
        }
    }
    Ok(())
}

#[cold]
fn add_note(exception: Obj<'_>, note: &str) -> Res<()> {
    let note = py::string(note.as_bytes())?;
    let notes = match exception.attr_opt(names::NOTES.get())? {
        Some(notes) => notes,
        None => {
            let notes = py::list(Vec::new())?;
            exception.set_attr(names::NOTES.get(), notes.obj())?;
            notes
        }
    };
    if notes.obj().type_ptr() != &raw mut ffi::PyList_Type {
        return Ok(());
    }
    let known = py::list_len(notes.obj());
    for at in 0..known {
        if py::list_get(notes.obj(), at)
            .is_some_and(|known| known.obj().to_text().ok().as_deref() == note.obj().to_text().ok().as_deref())
        {
            return Ok(());
        }
    }
    // SAFETY: the arguments are a list and a string.
    py::check(unsafe { ffi::PyList_Append(notes.as_ptr(), note.as_ptr()) })
}

/// Returns the Python exception from which a native error was made, or `None` for an error that
/// native code raised. Adds to the exception the cause and the notes that native code has added to
/// the error.
fn python_exception(error: &Error) -> Option<Own> {
    let context = context_of(error)?;
    let exception = match context.type_index() {
        kTVMFFIOpaquePyObject => opaque_object(context.as_handle().cast()).to_own(),
        kTVMFFIMap => exception_in_map(error, context)?,
        _ => return None,
    };
    let is_exception = exception.obj().type_flags() & ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS != 0;
    if is_exception && error.cause().is_some() {
        add_cause(exception.obj(), error);
    }
    is_exception.then_some(exception)
}

#[cold]
fn exception_in_map(error: &Error, context: ObjectRef) -> Option<Own> {
    let map = Map::<Any, Any>::try_from_object(context).ok()?;
    let object = map.get(&Any::new(EXCEPTION).ok()?).ok()??.into_object()?;
    let header: *const TVMFFIObject = object.as_handle().cast();
    let exception = (object.type_index() == kTVMFFIOpaquePyObject).then(|| opaque_object(header).to_own())?;
    if add_notes(exception.obj(), error).is_err() {
        py::clear_error();
    }
    Some(exception)
}

/// Sets the `__cause__` of an exception to the cause that native code has added to the exception's
/// error. Does nothing if the exception already has a cause.
#[cold]
fn add_cause(exception: Obj<'_>, error: &Error) {
    // SAFETY: the object is an exception; the result is a new reference or NULL.
    let has = py::unsafe_new_ref_or_none!(ffi::PyException_GetCause(exception.as_ptr()));
    if has.is_none() && set_cause(exception, error, CAUSES_MAX).is_err() {
        py::clear_error();
    }
}

/// Sets the `__cause__` of an exception to an exception made from the cause of `error`. `causes` is the maximum
/// length of the chain of causes.
#[cold]
fn set_cause(exception: Obj<'_>, error: &Error, causes: usize) -> Res<()> {
    let Some(cause) = error.cause() else { return Ok(()) };
    let cause = exception_of(cause, causes.saturating_sub(1))?;
    // SAFETY: both objects are exceptions; the reference to the cause passes to the exception.
    unsafe { ffi::PyException_SetCause(exception.as_ptr(), cause.into_ptr()) };
    Ok(())
}

/// Returns the Python object that a native object keeps alive. `object` must have the type `kTVMFFIOpaquePyObject`.
pub(crate) fn opaque_object<'a>(object: *const TVMFFIObject) -> Obj<'a> {
    // SAFETY: the caller has an object of that type, which has its cell behind the header.
    let cell: *const TVMFFIOpaqueObjectCell = unsafe { object.add(1) }.cast();
    // SAFETY: the object has that type, so its cell is initialised.
    let handle = unsafe { (*cell).handle };
    // SAFETY: such objects hold a reference to a Python object; the caller holds the GIL and the object.
    unsafe { Obj::from_ptr(handle.cast()) }
}

/// A native object that keeps a Python object alive.
#[repr(C)]
struct OpaqueObject {
    header: TVMFFIObject,
    /// Content of the object: an owned reference to the Python object.
    cell: TVMFFIOpaqueObjectCell,
}

/// Makes a native object that keeps a Python object alive.
pub(crate) fn make_opaque(object: Obj<'_>) -> Res<ObjectRef> {
    let opaque = Box::new(OpaqueObject {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIOpaquePyObject,
            flags: 0,
            deleter: Some(delete_opaque),
        },
        cell: TVMFFIOpaqueObjectCell { handle: object.to_own().into_ptr().cast() },
    });
    let opaque = Box::into_raw(opaque);
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(opaque, kTVMFFIOpaquePyObject) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    match unsafe { ObjectRef::from_owned_or_null(opaque.cast()) } {
        Some(object) => Ok(object),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Deleter of [`OpaqueObject`]. Depending on `flags`, it releases the Python object, frees the memory, or both. May
/// run on any thread.
unsafe extern "C" fn delete_opaque(object: *mut c_void, flags: c_int) {
    let object: *mut OpaqueObject = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, and the memory still exists.
        let held = unsafe { (*object).cell.handle };
        // SAFETY: the opaque object owned this reference.
        unsafe { gil::release(held.cast()) };
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(object, kTVMFFIOpaquePyObject) };
        // SAFETY: the pointer comes from `Box`, and the content no longer owns anything.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// Returns the Python object that a native object keeps alive, if the native object was made by [`make_opaque`].
/// Returns `None` for any other object.
pub(crate) fn own_opaque_object<'a>(object: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: the caller has a valid object, whose deleter does not change.
    let deleter = unsafe { (*object).deleter };
    // SAFETY: the caller has a valid object, whose type does not change.
    let type_index = unsafe { (*object).type_index };
    let ours = deleter.is_some_and(|deleter| ptr::fn_addr_eq(deleter, delete_opaque as Deleter));
    (type_index == kTVMFFIOpaquePyObject && ours).then(|| opaque_object(object))
}

type Deleter = unsafe extern "C" fn(*mut c_void, c_int);

/// Makes the Python exception of a native error.
fn make_exception(error: Error, causes: usize) -> Res<Own> {
    let (kind, message) = (text(kind(&error))?, text(message(&error))?);
    let class = class_of(kind.obj())?;
    let exception = match class.obj().call(&[message.obj()]) {
        Ok(exception) => check_exception(exception)?,
        Err(Raised) => without_init(class.obj(), message.obj())?,
    };
    if error.cause().is_some() && causes > 0 {
        set_cause(exception.obj(), &error, causes)?;
    }
    if error.context().is_some() {
        add_notes(exception.obj(), &error)?;
    }
    let handle = classes::wrap(error.into_object())?;
    exception.obj().set_attr(names::ERROR.get(), handle.obj())?;
    Ok(exception)
}

/// Makes an exception without calling `__init__`, for a class whose constructor does not accept a
/// single message.
#[cold]
fn without_init(class: Obj<'_>, message: Obj<'_>) -> Res<Own> {
    py::clear_error();
    check_exception(class.attr(names::NEW.get())?.obj().call(&[class, message])?)
}

/// Returns the object that an exception class has made, after checking that it is an exception.
/// Raises `TypeError` otherwise, because a class may return any object.
fn check_exception(made: Own) -> Res<Own> {
    if made.obj().type_flags() & ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS == 0 {
        return py::raise(
            py::exceptions::type_error(),
            "the class registered for an error kind did not create an exception",
        );
    }
    Ok(made)
}

/// Returns the exception class of a kind. `kind` must be a string.
pub(crate) fn class_of(kind: Obj<'_>) -> Res<Own> {
    match py::dict_get(CLASSES.get(), kind) {
        Some(class) => Ok(class),
        None => new_class(kind),
    }
}

#[cold]
fn new_class(kind: Obj<'_>) -> Res<Own> {
    let Some(class_of_kind) = CLASS_OF_KIND.try_get() else {
        // SAFETY: `RuntimeError` is a built-in class, which is always valid.
        return Ok(unsafe { Obj::from_ptr(py::exceptions::runtime_error()) }.to_own());
    };
    let class = class_of_kind.call(&[kind])?;
    /// Maximum number of cached kinds. The cache is bounded because any string may occur as a kind.
    const KINDS_MAX: isize = 1024;
    // SAFETY: the object is a dictionary.
    if unsafe { ffi::PyDict_Size(CLASSES.ptr()) } < KINDS_MAX {
        py::dict_set(CLASSES.get(), kind, class.obj())?;
    }
    Ok(class)
}

/// Converts the current Python exception to a native error and raises that error on this thread. Returns -1, the
/// status code of a failed native function.
#[cold]
pub(crate) fn raise_to_native() -> c_int {
    match py::take_error() {
        Some(exception) => of_exception(exception.obj()).raise(),
        None => Error::new("SystemError", "a Python call failed without an exception").raise(),
    }
    -1
}

/// Converts a Python exception to a native error.
pub(crate) fn of_exception(exception: Obj<'_>) -> Error {
    error_of(exception, CAUSES_MAX)
}

fn error_of(exception: Obj<'_>, causes: usize) -> Error {
    let native = native_error(exception);
    let trace = trace::of_exception(exception).unwrap_or_else(|Raised| {
        py::clear_error();
        String::new()
    });
    // SAFETY: the object is an exception; the result is a new reference or NULL.
    let cause = py::unsafe_new_ref_or_none!(ffi::PyException_GetCause(exception.as_ptr()));
    let cause = cause.filter(|_| causes > 0).map(|cause| error_of(cause.obj(), causes - 1).into_object());
    let error = match native {
        Some(native) => same_again(&native, exception, &trace, cause),
        None => {
            let kind = kind_of(exception);
            let message = exception.str().and_then(|text| text.obj().to_text()).unwrap_or_else(|Raised| {
                py::clear_error();
                "<the exception cannot be shown as text>".into()
            });
            let context = make_opaque(exception).ok();
            Error::try_from_texts(kind.as_bytes(), message.as_bytes(), trace.as_bytes(), cause, context)
        }
    };
    py::clear_error();
    error.unwrap_or_else(|| Error::new("MemoryError", "out of memory"))
}

/// Makes the native error for an exception that was itself made from the error `native`. The new
/// error has the kind and message of `native`, and the exception in its context.
fn same_again(native: &Error, exception: Obj<'_>, trace: &str, cause: Option<ObjectRef>) -> Option<Error> {
    let own_trace;
    let trace = if trace.is_empty() {
        own_trace = native.backtrace();
        &own_trace
    } else {
        // The frames of the native calls are among those of the exception.
        native.replace_backtrace(trace);
        trace
    };
    let mut context = make_opaque(exception).ok();
    if let Some(detail) = context_of(native).filter(|context| context.type_index() == kTVMFFIMap)
        && let Ok(mut detail) = Map::<Any, Any>::try_from_object(detail)
        && let Some(object) = context.take()
    {
        // The `Map` is copied before it changes. If memory is exhausted, the details are omitted.
        let added = Any::new(EXCEPTION).and_then(|key| detail.insert(key, Any::from(object.clone())));
        context = Some(if added.is_ok() { detail.into_object() } else { object });
    }
    let cause = cause.or_else(|| native.cause().map(Error::into_object));
    let (kind, message) = (native.kind().as_bytes(), native.message().as_bytes());
    Error::try_from_texts(kind, message, trace.as_bytes(), cause, context)
}

/// Returns the kind of an exception: the kind for which its class was registered, or else the name of the class.
fn kind_of(exception: Obj<'_>) -> String {
    let registered = KINDS.try_get().and_then(|kinds| py::dict_get(kinds, exception.class()));
    match registered.map(|kind| kind.obj().to_text()) {
        Some(Ok(kind)) => kind,
        _ => exception.class_name(),
    }
}

/// Returns the native error from which an exception was made, or `None` for any other exception.
fn native_error(exception: Obj<'_>) -> Option<Error> {
    let attribute = exception.attr_opt(names::ERROR.get()).unwrap_or_else(|Raised| {
        py::clear_error();
        None
    })?;
    let object = object::reference_of(attribute.obj())?;
    Error::try_from_object(object).ok()
}

/// Makes an error object; called from the Python code of the package.
pub(crate) fn make(kind: &[u8], message: &[u8], trace: &[u8], context: Obj<'_>) -> Res<Own> {
    let context = object::reference_of(context);
    match Error::try_from_texts(kind, message, trace, None, context) {
        Some(error) => classes::wrap(error.into_object()),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Returns kind, message and backtrace of an error object; called from the Python code of the package.
pub(crate) fn texts(error: Obj<'_>) -> Res<Own> {
    let error = error_argument(error)?;
    let trace = py::string_lossy(&error.backtrace_bytes())?;
    py::tuple(vec![text(kind(&error))?, text(message(&error))?, trace])
}

/// Returns cause and context of an error object.
pub(crate) fn objects(error: Obj<'_>) -> Res<[Option<ObjectRef>; 2]> {
    let error = error_argument(error)?;
    Ok([error.cause().map(Error::into_object), context_of(&error)])
}

fn error_argument(object: Obj<'_>) -> Res<Error> {
    let error = object::reference_of(object).filter(|object| object.is_instance(kTVMFFIError));
    match error.and_then(|object| Error::try_from_object(object).ok()) {
        Some(error) => Ok(error),
        None => py::raise(py::exceptions::type_error(), "expected an error object"),
    }
}

/// Runs the body of a function that Python calls, and converts a panic into an exception.
#[inline(always)]
pub(crate) fn catch(body: impl FnOnce() -> Res<Own>) -> *mut PyObject {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => object::to_c(result),
        Err(payload) => raise_panic(&*payload),
    }
}

/// Raises `SystemError` for a panic in this extension. Returns NULL.
#[cold]
pub(crate) fn raise_panic(payload: &(dyn std::any::Any + Send)) -> *mut PyObject {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let _ = py::raise::<()>(py::exceptions::system_error(), &format!("panic in the anyfn extension: {text}"));
    ptr::null_mut()
}
