//! `PackedFunc`: calls of native functions from Python.
//!
//! The call path does as little as possible: arguments go to the stack, the function's own `safe_call` is called
//! directly, and a result of a common type is converted to a Python object directly. Everything less common is behind
//! a function that is not inlined.

use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use anyfn::__private::shorten;
use anyfn::abi::{AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject};
use anyfn::observe::{self, Watched};
use anyfn::{ObjectRef, PackedFunc};
use pyo3_ffi as ffi;

use crate::containers::collect;
use crate::lent::Loans;
use crate::lower::{At, Frame, WORDS, lower, lower_result};
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, raw};
use crate::signature::{self, Known};
use crate::types::{self, Class};
use crate::{callback, error, gil, lift, object, place};

/// Memory layout of an instance of `PackedFunc`.
#[repr(C)]
struct Layout {
    object: object::Layout,
    vectorcall: ffi::vectorcallfunc,
    /// Value of `__name__`: an owned reference or NULL.
    name: *mut PyObject,
    /// Global name under which the function was found or registered: an owned reference or NULL.
    key: *mut PyObject,
    /// Parsed signature, read on first use: an owned pointer from `Box`, or NULL.
    known: *mut Known,
    /// The instance's `__dict__`, managed by Python.
    dict: *mut PyObject,
    /// List of weak references, managed by Python.
    weak: *mut PyObject,
}

/// Maximum number of arguments that a call stores on the stack; more arguments are stored on the heap.
const INLINE: usize = 8;

/// The class `PackedFunc`.
pub(crate) static CLASS: Global = Global::new();

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let member = |name: &'static CStr, offset: usize| ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as isize,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    };
    let members = vec![
        member(c"__vectorcalloffset__", offset_of!(Layout, vectorcall)),
        member(c"__dictoffset__", offset_of!(Layout, dict)),
        member(c"__weaklistoffset__", offset_of!(Layout, weak)),
        ffi::PyMemberDef::default(),
    ];
    let getset = |name: &'static CStr, doc: &'static CStr, get, set| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set,
        doc: doc.as_ptr(),
        closure: ptr::null_mut(),
    };
    let lazy = |name: &'static CStr, doc: &'static CStr| ffi::PyGetSetDef {
        closure: name.as_ptr().cast_mut().cast(),
        ..getset(name, doc, get_lazy, Some(set_lazy))
    };
    let getsets = vec![
        lazy(c"__qualname__", c"Qualified name of the function."),
        lazy(c"__text_signature__", c"Names and defaults of the arguments in the form `(a, b=2)`, or None."),
        lazy(c"__annotations__", c"Types of the arguments and of the result by name."),
        getset(c"__name__", c"Name of the function.", get_name, Some(set_name)),
        getset(c"__dict__", c"Attributes set by users.", raw::PyObject_GenericGetDict, Some(raw::PyObject_GenericSetDict)),
        getset(c"signature", c"Signature of the function as JSON, or None.", get_signature, None),
        getset(
            c"releases_gil",
            c"True if other Python threads can run during a call. Set it for native functions that run long or block.",
            get_releases,
            Some(set_releases),
        ),
        ffi::PyGetSetDef::default(),
    ];
    let class = Class {
        name: c"anyfn.PackedFunc",
        size: size_of::<Layout>(),
        base_for_others: false,
        flags: raw::HAVE_VECTORCALL | ffi::Py_TPFLAGS_HAVE_GC,
        base: Some(object::CLASS.get()),
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_traverse, traverse as *mut c_void),
            (ffi::Py_tp_clear, clear as *mut c_void),
            (ffi::Py_tp_call, raw::PyVectorcall_Call as *mut c_void),
            (ffi::Py_tp_descr_get, descr_get as *mut c_void),
            // The tables live as long as the class: for the lifetime of the process.
            (ffi::Py_tp_members, members.leak().as_mut_ptr().cast()),
            (ffi::Py_tp_getset, getsets.leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

/// Makes the Python object of a native function.
///
/// `name` is used for messages and `__name__`. If `releases` is true, calls of a function that is not implemented in
/// Python release the GIL. Calls of a function that declares itself long-running or blocking always release it.
pub(crate) fn wrap(function: ObjectRef, name: Option<Obj<'_>>, releases: bool) -> Res<Own> {
    let releases = (releases && !callback::is_python(&function)) || asks_for_release(&function);
    let own = object::wrap_as(CLASS.ptr().cast(), function)?;
    let layout: *mut Layout = own.as_ptr().cast();
    // SAFETY: the instance is new and not shared.
    let layout = unsafe { &mut *layout };
    layout.vectorcall = entry(releases);
    layout.name = name.map_or(ptr::null_mut(), |name| name.to_own().into_ptr());
    Ok(own)
}

/// Returns the function through which Python calls an instance. It releases the GIL during a call if `releases` is
/// true, and records the location of a call if a record of live objects (a ledger) exists.
fn entry(releases: bool) -> ffi::vectorcallfunc {
    match (releases, anyfn::has_ledger()) {
        (true, false) => vectorcall::<true>,
        (false, false) => vectorcall::<false>,
        (true, true) => noted::<true>,
        (false, true) => noted::<false>,
    }
}

/// Calls a native function, and notes the location of the call in Python code for the record of live objects.
///
/// # Safety
/// The conditions of [`vectorcall`] apply.
unsafe extern "C" fn noted<const RELEASE: bool>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: guaranteed by the caller.
    place::noted(|| unsafe { vectorcall::<RELEASE>(callable, args, nargsf, kwnames) })
}

/// Returns true if the function declares that it runs long or blocks.
fn asks_for_release(function: &ObjectRef) -> bool {
    let header: *const TVMFFIObject = function.as_handle().cast();
    // SAFETY: the reference keeps the object alive.
    if unsafe { (*header).flags } & OBJECT_FLAG_FUNCTION_EXT == 0 {
        return false;
    }
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { header.add(1) }.cast();
    // SAFETY: the flag shows that a pointer to the extension follows the cell.
    let ext: *const *const AnyfnFunctionExt = unsafe { cell.add(1) }.cast();
    // SAFETY: code that creates a function with this flag initialises the pointer.
    let ext = unsafe { *ext };
    // SAFETY: the pointer is NULL or refers to static data of the library that made the function.
    unsafe { ext.as_ref() }.is_some_and(|ext| ext.size >= 16 && ext.flags & 1 != 0)
}

/// Calls a native function: the implementation of `function(*args)`.
///
/// # Safety
/// Must be called by Python with an instance of `PackedFunc`.
unsafe extern "C" fn vectorcall<const RELEASE: bool>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes a valid object and holds the GIL.
    let callable: Obj<'_> = unsafe { Obj::from_ptr(callable) };
    // SAFETY: Python passes a tuple of names, or NULL if there are no named arguments.
    let names: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
    let count = nargsf & !raw::ARGUMENTS_OFFSET;
    if let Some(names) = names
        && names.tuple_len() > 0
    {
        // SAFETY: Python passes the positional arguments and one more for each name; `Obj` is transparent over the pointer.
        let args = unsafe { std::slice::from_raw_parts(args.cast(), count + names.tuple_len()) };
        return call_named::<RELEASE>(callable, args, names);
    }
    let args: &[Obj<'_>] = if count == 0 {
        &[]
    } else {
        // SAFETY: Python passes this many valid objects; `Obj` is transparent over the pointer.
        unsafe { std::slice::from_raw_parts(args.cast(), count) }
    };
    error::catch(|| {
        if count <= INLINE {
            let mut values = [const { MaybeUninit::<TVMFFIAny>::uninit() }; INLINE];
            call::<RELEASE>(callable, args, &mut values)
        } else {
            call_many::<RELEASE>(callable, args)
        }
    })
}

/// Calls a `PackedFunc` in the way in which Python calls it.
///
/// # Safety
/// The conditions of [`vectorcall`] apply.
#[inline(always)]
pub(crate) unsafe fn call_as_it_is(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: this is an instance of `PackedFunc`, which the caller keeps alive.
    let entry = unsafe { (*callable.cast::<Layout>()).vectorcall };
    // SAFETY: guaranteed by the caller.
    unsafe { entry(callable, args, nargsf, kwnames) }
}

/// Returns true if an object is a `PackedFunc` that is called with the GIL held.
#[inline]
pub(crate) fn is_cheap(callable: Obj<'_>) -> bool {
    ptr::eq(callable.type_ptr().cast(), CLASS.ptr())
        && ptr::fn_addr_eq(layout(callable).vectorcall, vectorcall::<false> as ffi::vectorcallfunc)
}

/// Calls a function with the GIL released, regardless of what it declares.
///
/// # Safety
/// `args` must be valid objects: `count` positional ones and one for each name in `names`, which must be a tuple of
/// strings or NULL.
pub(crate) unsafe fn call_released(
    callable: Obj<'_>,
    args: &[*mut PyObject],
    count: usize,
    names: *mut PyObject,
) -> Res<Own> {
    if !callable.is_instance_of(CLASS.ptr()) {
        let message = format!("expected a PackedFunc but got {}", callable.class_name());
        return py::raise(py::exceptions::type_error(), &message);
    }
    // SAFETY: the object is an instance of `PackedFunc`, and the caller guarantees the arguments.
    let result = unsafe { vectorcall::<true>(callable.as_ptr(), args.as_ptr(), count, names) };
    // SAFETY: the result is a new reference, or NULL with an exception set.
    unsafe { Own::from_result(result) }
}

#[cold]
fn call_many<const RELEASE: bool>(callable: Obj<'_>, args: &[Obj<'_>]) -> Res<Own> {
    if i32::try_from(args.len()).is_err() {
        return py::raise(py::exceptions::value_error(), "too many arguments for one call");
    }
    let mut values = vec![MaybeUninit::<TVMFFIAny>::uninit(); args.len()];
    call::<RELEASE>(callable, args, &mut values)
}

#[inline(always)]
fn call<const RELEASE: bool>(
    callable: Obj<'_>,
    args: &[Obj<'_>],
    values: &mut [MaybeUninit<TVMFFIAny>],
) -> Res<Own> {
    let handle = object::handle_unchecked(callable);
    let mut words = WORDS;
    let mut frame = Frame::new(args, values, &mut words);
    for (index, arg) in args.iter().enumerate() {
        let at = At::Argument { function: callable, index };
        lower(*arg, &mut frame, &at)?;
    }
    let mut result = TVMFFIAny::NONE;
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.add(1) }.cast();
    // SAFETY: the cell of a function is initialised; the instance keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let (data, count) = frame.enter();
    let code = if observe::is_on() {
        // SAFETY: `callable` is a `PackedFunc`, with `count` valid views, which the caller's references keep alive.
        unsafe { watched::<RELEASE>(callable, data, count, &mut result) }
    } else if RELEASE {
        // SAFETY: the function, the `count` views and the result, which holds no value, are valid. The caller's
        // references keep the values that the views borrow alive while the GIL is released.
        gil::counted(|| gil::without(|| unsafe { safe_call(handle.cast(), data, count, &mut result) }))
    } else {
        // SAFETY: the function, the `count` views and the result, which holds no value, are valid. The GIL is kept,
        // so no other thread can release the arguments.
        gil::counted(|| unsafe { safe_call(handle.cast(), data, count, &mut result) })
    };
    if code != 0 {
        return Err(error::raise_from_call(code, callable, args));
    }
    lift::lift_result(result, &frame)
}

/// Calls a function and reports the call to the observer.
///
/// # Safety
/// `callable` must be a `PackedFunc`, and the arguments must be valid for it.
#[cold]
#[inline(never)]
unsafe fn watched<const RELEASE: bool>(
    callable: Obj<'_>,
    data: *const TVMFFIAny,
    count: i32,
    result: &mut TVMFFIAny,
) -> c_int {
    let handle = object::handle_unchecked(callable);
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.add(1) }.cast();
    // SAFETY: the cell of a function is initialised; the instance keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let call = crate::observe::call_of(callable, handle.cast(), data, count);
    // SAFETY: `call` describes the call below. Finding the name needs the GIL; the measured time excludes waiting for the GIL.
    let watched = unsafe { Watched::begin(&call) };
    let body = || {
        // SAFETY: the caller passes valid arguments for the function.
        let code = unsafe { safe_call(handle.cast(), data, count, result) };
        watched.end(code);
        code
    };
    gil::counted(|| if RELEASE { gil::without(body) } else { body() })
}

/// Calls a function with named arguments. Their values follow the positional arguments in `args`, and `names`
/// contains their names.
#[inline(never)]
fn call_named<const RELEASE: bool>(callable: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> *mut PyObject {
    error::catch(|| try_call_named::<RELEASE>(callable, args, names))
}

#[inline(always)]
fn try_call_named<const RELEASE: bool>(callable: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> Res<Own> {
    if let Some(python) = callback::python_callable(object::handle_unchecked(callable)) {
        return call_python(callable, python, args, names);
    }
    let known = known(callable)?;
    let mut ordered = [None; signature::INLINE];
    if let Some(count) = known.arrange(args, names, &mut ordered) {
        // SAFETY: the first `count` elements are set, and an element that is set has the representation of the object.
        let args: &[Obj<'_>] = unsafe { std::slice::from_raw_parts(ordered.as_ptr().cast(), count) };
        let mut values = [const { MaybeUninit::<TVMFFIAny>::uninit() }; INLINE];
        return call::<RELEASE>(callable, args, &mut values);
    }
    if let Some(sentinel) = known.sentinel()? {
        let positional = args.len() - names.tuple_len();
        let mut all = args[..positional].to_vec();
        all.push(sentinel.obj());
        for (index, value) in args[positional..].iter().enumerate() {
            all.extend(py::tuple_get(names, index));
            all.push(*value);
        }
        return call_many::<RELEASE>(callable, &all);
    }
    call_many::<RELEASE>(callable, &known.arrange_any(callable, args, names)?)
}

/// Calls the Python function `python` behind `callable` with named arguments. The arguments are converted as in any
/// other call, and the function decides itself which names it accepts.
#[cold]
fn call_python(callable: Obj<'_>, python: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> Res<Own> {
    let mut values = vec![MaybeUninit::<TVMFFIAny>::uninit(); args.len()];
    let mut words = WORDS;
    let mut frame = Frame::new(args, &mut values, &mut words);
    for (index, arg) in args.iter().enumerate() {
        lower(*arg, &mut frame, &At::Argument { function: callable, index })?;
    }
    let (data, count) = frame.enter();
    // SAFETY: these are the frame's values, all of which are set; there is at least one.
    let views: &[TVMFFIAny] = unsafe { std::slice::from_raw_parts(data, count as usize) };
    // An array is lifted to the same array again, unless it has changed in the meantime.
    let mut loans = Loans::new();
    let lifted = views.iter().map(|view| lift::lift_view(view, &mut loans)).collect::<Res<Vec<Own>>>()?;
    // The loans end while references to their arguments are held.
    let held: Vec<Own> =
        if loans.is_empty() { Vec::new() } else { lifted.iter().map(|arg| arg.obj().to_own()).collect() };
    let args: Vec<*mut PyObject> = held.iter().map(Own::as_ptr).collect();
    let result = loans.end(&args, python.call_with(lifted, names))?;
    lift::lift_result(lower_result(result.obj(), python)?, &frame)
}

/// Returns the native function of a Python object, or `None` if it has none.
pub(crate) fn handle_as_packed(callable: Obj<'_>) -> Option<PackedFunc> {
    let object = object::reference_of(callable)?;
    PackedFunc::try_from_object(object).ok()
}

/// Borrows the name of a function as a Python object. `callable` must be an instance of `PackedFunc`.
pub(crate) fn name_object(callable: Obj<'_>) -> Option<Obj<'_>> {
    // SAFETY: the instance owns the object, or the pointer is NULL.
    unsafe { Obj::from_nullable(layout(callable).name) }
}

/// Returns the name of a function, for messages.
#[cold]
pub(crate) fn name_of(callable: Obj<'_>) -> String {
    let is_packed = callable.is_instance_of(CLASS.ptr());
    if let Some(Ok(key)) = is_packed.then(|| key(callable)).flatten().map(Obj::to_text) {
        return shorten(&key).into_owned();
    }
    let named = |name: Obj<'static>| {
        let name = callable.attr(name).ok()?;
        let is_str = name.obj().type_flags() & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0;
        is_str.then(|| name.obj().to_text().ok()).flatten().filter(|name| !name.is_empty())
    };
    let name = if is_packed {
        named(py::names::NAME.get())
    } else {
        let name = named(py::names::QUALNAME.get()).or_else(|| named(py::names::NAME.get()));
        Some(name.map_or_else(
            || format!("{} object", shorten(&callable.class_name())),
            |name| format!("function '{}'", shorten(&name)),
        ))
    };
    py::clear_error();
    name.map_or_else(|| "PackedFunc".into(), |name| shorten(&name).into_owned())
}

/// Returns the name of the parameter at `index`, if the signature of the function contains it.
#[cold]
pub(crate) fn argument_name(callable: Obj<'_>, index: usize) -> Option<String> {
    if !callable.is_instance_of(CLASS.ptr()) {
        return None;
    }
    match known(callable) {
        Ok(known) => known.name(index).map(String::from),
        Err(Raised) => {
            py::clear_error();
            None
        }
    }
}

/// Returns true if a function declares that it only reads the tensor that it receives as the argument at `index`.
#[cold]
pub(crate) fn argument_is_read_only(callable: Obj<'_>, index: usize) -> bool {
    if !callable.is_instance_of(CLASS.ptr()) {
        return false;
    }
    known(callable).map(|known| known.is_read_only(index)).unwrap_or_else(|Raised| {
        py::clear_error();
        false
    })
}

/// Returns the parsed signature of a function. It is read when this function is first called, and then stored in the
/// instance.
#[inline]
pub(crate) fn known<'a>(callable: Obj<'a>) -> Res<&'a Known> {
    // SAFETY: the instance owns the signature, which is never replaced once it is set.
    match unsafe { layout(callable).known.as_ref() } {
        Some(known) => Ok(known),
        None => read_known(callable),
    }
}

#[cold]
fn read_known<'a>(callable: Obj<'a>) -> Res<&'a Known> {
    let known = Box::new(Known::read(callable)?);
    let place = callable.as_ptr().cast::<Layout>();
    // Reading may have run other code that has set the signature in the meantime.
    if layout(callable).known.is_null() {
        // SAFETY: this is a field of the instance, the GIL is held, and no reference to the instance is in use.
        unsafe { (*place).known = Box::into_raw(known) };
    }
    // SAFETY: the instance owns the signature, which is not NULL at this point and is never replaced.
    Ok(unsafe { &*layout(callable).known })
}

/// Returns the global name under which a function was found or registered.
pub(crate) fn key<'a>(callable: Obj<'a>) -> Option<Obj<'a>> {
    // SAFETY: the instance owns the object, or the pointer is NULL.
    unsafe { Obj::from_nullable(layout(callable).key) }
}

/// Sets the global name of a function. A name that is already set does not change.
pub(crate) fn set_key(callable: Obj<'_>, name: Obj<'_>) {
    if key(callable).is_none() {
        replace(callable, offset_of!(Layout, key), name);
    }
}

fn layout<'a>(object: Obj<'a>) -> &'a Layout {
    // SAFETY: only called for instances of `PackedFunc`; the GIL is held, so no other code changes the instance meanwhile.
    unsafe { &*object.as_ptr().cast() }
}

unsafe extern "C" fn get_name(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    if let Some(name) = name_object(object) {
        return name.to_own().into_ptr();
    }
    let name = callback::python_callable(object::handle_unchecked(object))
        .and_then(|callable| callable.attr_opt(py::names::NAME.get()).ok().flatten());
    py::clear_error();
    match name.or_else(|| key(object).map(Obj::to_own)) {
        Some(name) => name.into_ptr(),
        None => object::to_c(py::string(b"PackedFunc")),
    }
}

unsafe extern "C" fn set_name(object: *mut PyObject, value: *mut PyObject, _closure: *mut c_void) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: the value is a valid object, or NULL to delete the attribute.
    let value = unsafe { Obj::from_nullable(value) };
    let is_str = |value: &Obj<'_>| value.type_flags() & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0;
    let Some(value) = value.filter(is_str) else {
        let _ = py::raise::<()>(py::exceptions::type_error(), "__name__ must be set to a string object");
        return -1;
    };
    replace(object, offset_of!(Layout, name), value)
}

/// Getter of the lazily computed attributes. Returns the value that was set for the attribute, or else the value that
/// the Python code of the package computes.
unsafe extern "C" fn get_lazy(object: *mut PyObject, name: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    error::catch(|| {
        let name = lazy_name(name)?;
        // SAFETY: the pointer is the instance's dictionary, or NULL.
        let dict: Option<Obj<'_>> = unsafe { Obj::from_nullable(layout(object).dict) };
        // The comparison of a key may run Python code, which may replace the dictionary.
        let dict = dict.map(Obj::to_own);
        let value = dict.as_ref().and_then(|dict| py::dict_get(dict.obj(), name.obj()));
        match (value, signature::ATTRIBUTE.try_get()) {
            (Some(value), _) => Ok(value),
            (None, Some(attribute)) => attribute.call(&[object, name.obj()]),
            (None, None) => Ok(py::none()),
        }
    })
}

unsafe extern "C" fn set_lazy(object: *mut PyObject, value: *mut PyObject, name: *mut c_void) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL; the result is a new reference, or NULL with an exception set.
    let Ok(dict) = py::unsafe_new_ref!(raw::PyObject_GenericGetDict(object, ptr::null_mut())) else {
        return -1;
    };
    let Ok(name) = lazy_name(name) else { return -1 };
    // SAFETY: the value is a valid object, or NULL to delete the attribute.
    match unsafe { Obj::from_nullable(value) } {
        Some(value) => py::dict_set(dict.obj(), name.obj(), value).map_or(-1, |()| 0),
        // SAFETY: the arguments are a dictionary and a string; an exception is set if the key is missing.
        None => unsafe { py::raw::PyDict_DelItem(dict.as_ptr(), name.as_ptr()) },
    }
}

/// Returns the name of a lazily computed attribute from the closure of its getter or setter.
fn lazy_name(name: *mut c_void) -> Res<Own> {
    // SAFETY: the closures in the attribute table are names that live for the lifetime of the process.
    py::intern(unsafe { CStr::from_ptr(name.cast()) })
}

/// Implements `__get__`: returns the function unchanged. A `PackedFunc` that is an attribute of a class is not bound
/// to instances, like a built-in function.
unsafe extern "C" fn descr_get(
    object: *mut PyObject,
    _instance: *mut PyObject,
    _class: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    object.to_own().into_ptr()
}

/// Stores `value` in the field of an instance at the offset `offset`, in bytes, and releases the previous value.
fn replace(object: Obj<'_>, offset: usize, value: Obj<'_>) -> c_int {
    // SAFETY: this is the offset of a field of `Layout`.
    let slot: *mut *mut PyObject = unsafe { object.as_ptr().byte_add(offset) }.cast();
    // SAFETY: this is a field of the instance, and the GIL is held.
    let old = unsafe { slot.replace(value.to_own().into_ptr()) };
    // SAFETY: the instance owned the old value, which is released only after it has been replaced.
    drop(unsafe { Own::from_nullable(old) });
    0
}

unsafe extern "C" fn get_signature(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match handle_as_packed(object).and_then(|function| function.signature()) {
        Some(text) => object::to_c(py::string(text.as_bytes())),
        None => py::none().into_ptr(),
    }
}

unsafe extern "C" fn get_releases(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let is_entry = |entry: ffi::vectorcallfunc| ptr::fn_addr_eq(layout(object).vectorcall, entry);
    py::boolean(is_entry(vectorcall::<true>) || is_entry(noted::<true>)).into_ptr()
}

unsafe extern "C" fn set_releases(object: *mut PyObject, value: *mut PyObject, _closure: *mut c_void) -> c_int {
    // SAFETY: the value is a valid object, or NULL to delete the attribute.
    let value: Option<Obj<'_>> = unsafe { Obj::from_nullable(value) };
    let releases = match value.map(Obj::is_true) {
        Some(Ok(releases)) => releases,
        Some(Err(Raised)) => return -1,
        None => false,
    };
    // SAFETY: Python passes an instance and holds the GIL; a call in progress does not read this field again.
    unsafe { (*object.cast::<Layout>()).vectorcall = entry(releases) };
    0
}

/// Reports the attributes of an instance, and the Python function that its native function calls, to the garbage
/// collector.
unsafe extern "C" fn traverse(object: *mut PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL.
    let dict = layout(unsafe { Obj::from_ptr(object) }).dict;
    if !dict.is_null() {
        // SAFETY: these are the collector's own function and argument, and the instance owns the object.
        match unsafe { visit(dict, arg) } {
            0 => {}
            stop => return stop,
        }
    }
    // SAFETY: Python passes an instance and its own function and argument, and holds the GIL.
    unsafe { collect::traverse(object, visit, arg) }
}

/// Breaks an unreachable reference cycle: `tp_clear` of the class.
unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: this is a field of the instance, and the GIL is held.
    let dict = unsafe { std::mem::replace(&mut (*object.cast::<Layout>()).dict, ptr::null_mut()) };
    // SAFETY: the instance owned the dictionary.
    drop(unsafe { Own::from_nullable(dict) });
    if collect::owns_function(this) {
        drop(callback::break_up(object::handle_unchecked(this)));
    }
    0
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    let layout: *mut Layout = object.cast();
    // SAFETY: the object is valid; the collector must not visit it any more.
    unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    // SAFETY: this is an instance that is no longer in use.
    let Layout { name, key, known, dict, weak, .. } = unsafe { &*layout };
    if !weak.is_null() {
        // SAFETY: this is an instance whose class declares where its weak references are.
        unsafe { py::raw::PyObject_ClearWeakRefs(object) };
    }
    for owned in [*name, *key, *dict] {
        // SAFETY: the instance owns the object, or the pointer is NULL.
        drop(unsafe { Own::from_nullable(owned) });
    }
    if !known.is_null() {
        // SAFETY: the pointer was made by `read_known` and is owned by the instance.
        drop(unsafe { Box::from_raw(*known) });
    }
    // SAFETY: the remaining content is that of the base class.
    unsafe { object::dealloc(object) };
}
