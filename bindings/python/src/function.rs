//! `PackedFunc`: calling native functions from Python.
//!
//! The call path does no more than it must: arguments go to the stack, the function's own `safe_call` is called
//! directly, and the result of a common type becomes a Python object without a detour. Everything rarer is behind a
//! function that is not inlined.

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

/// Memory of an instance.
#[repr(C)]
struct Layout {
    object: object::Layout,
    vectorcall: ffi::vectorcallfunc,
    /// `__name__`. Owned or NULL.
    name: *mut PyObject,
    /// The global name by which the function was found or registered. Owned or NULL.
    key: *mut PyObject,
    /// What the signature tells, once somebody has asked. Owned (a box) or NULL.
    known: *mut Known,
    /// `__dict__`; Python's.
    dict: *mut PyObject,
    /// Weak references; Python's.
    weak: *mut PyObject,
}

/// Arguments that a call holds on the stack; more go to the heap.
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
        lazy(c"__qualname__", c"Name of the function with its surroundings."),
        lazy(c"__text_signature__", c"Names of the arguments, as text."),
        lazy(c"__annotations__", c"Types of the arguments and of the result."),
        getset(c"__name__", c"Name of the function.", get_name, Some(set_name)),
        getset(c"__dict__", c"Attributes that were set.", raw::PyObject_GenericGetDict, Some(raw::PyObject_GenericSetDict)),
        getset(c"signature", c"Signature of the function as JSON, or None.", get_signature, None),
        getset(
            c"releases_gil",
            c"Whether other Python threads run during a call. Can be set, for native functions that run long or block.",
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
            // The tables live as long as the class: for ever.
            (ffi::Py_tp_members, members.leak().as_mut_ptr().cast()),
            (ffi::Py_tp_getset, getsets.leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

/// Makes the Python object of a native function.
///
/// `name` is for messages and `__name__`. With `releases` the interpreter's lock is released during calls; it is also
/// for functions that say of themselves that they run long.
pub(crate) fn wrap(function: ObjectRef, name: Option<Obj<'_>>, releases: bool) -> Res<Own> {
    let releases = (releases && !callback::is_python(&function)) || asks_for_release(&function);
    let own = object::wrap_as(CLASS.ptr().cast(), function)?;
    let layout: *mut Layout = own.as_ptr().cast();
    // SAFETY: a new instance that nobody else knows.
    let layout = unsafe { &mut *layout };
    layout.vectorcall = entry(releases);
    layout.name = name.map_or(ptr::null_mut(), |name| name.to_own().into_ptr());
    Ok(own)
}

/// What Python calls.
fn entry(releases: bool) -> ffi::vectorcallfunc {
    match (releases, anyfn::has_ledger()) {
        (true, false) => vectorcall::<true>,
        (false, false) => vectorcall::<false>,
        (true, true) => noted::<true>,
        (false, true) => noted::<false>,
    }
}

/// The same call, where a ledger is to know the place.
///
/// # Safety
/// As [`vectorcall`].
unsafe extern "C" fn noted<const RELEASE: bool>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the caller guarantees.
    place::noted(|| unsafe { vectorcall::<RELEASE>(callable, args, nargsf, kwnames) })
}

/// The function's own statement that it runs long or blocks.
fn asks_for_release(function: &ObjectRef) -> bool {
    let header: *const TVMFFIObject = function.as_handle().cast();
    // SAFETY: the reference keeps the object alive.
    if unsafe { (*header).flags } & OBJECT_FLAG_FUNCTION_EXT == 0 {
        return false;
    }
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { header.add(1) }.cast();
    // SAFETY: the flag says that a pointer to the extension lies behind the cell.
    let ext: *const *const AnyfnFunctionExt = unsafe { cell.add(1) }.cast();
    // SAFETY: whoever makes a function with this flag initialises the pointer.
    let ext = unsafe { *ext };
    // SAFETY: NULL or static data of the library that made the function.
    unsafe { ext.as_ref() }.is_some_and(|ext| ext.size >= 16 && ext.flags & 1 != 0)
}

/// Calls a native function: what Python does for `function(*args)`.
///
/// # Safety
/// Called by Python with an instance of `PackedFunc`.
unsafe extern "C" fn vectorcall<const RELEASE: bool>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes a valid object and holds the lock.
    let callable: Obj<'_> = unsafe { Obj::from_ptr(callable) };
    // SAFETY: Python passes a tuple of names, or NULL if there are no named arguments.
    let names: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
    let count = nargsf & !raw::ARGUMENTS_OFFSET;
    if let Some(names) = names
        && names.tuple_len() > 0
    {
        // SAFETY: Python passes the positional arguments and one more for each name; as below.
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

/// Calls a `PackedFunc` as Python would.
///
/// # Safety
/// As [`vectorcall`].
#[inline(always)]
pub(crate) unsafe fn call_as_it_is(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: an instance of `PackedFunc`, which the caller keeps.
    let entry = unsafe { (*callable.cast::<Layout>()).vectorcall };
    // SAFETY: as the caller guarantees.
    unsafe { entry(callable, args, nargsf, kwnames) }
}

/// Whether an object is a `PackedFunc` that is called with the interpreter's lock held.
#[inline]
pub(crate) fn is_cheap(callable: Obj<'_>) -> bool {
    ptr::eq(callable.type_ptr().cast(), CLASS.ptr())
        && ptr::fn_addr_eq(layout(callable).vectorcall, vectorcall::<false> as ffi::vectorcallfunc)
}

/// Calls a function with the interpreter's lock released, whatever it says of itself.
///
/// # Safety
/// `args` are valid objects: `count` positional ones and one for each name in `names`, a tuple of strings or NULL.
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
    // SAFETY: an instance of `PackedFunc`, and arguments as the caller guarantees.
    let result = unsafe { vectorcall::<true>(callable.as_ptr(), args.as_ptr(), count, names) };
    // SAFETY: a new reference, or NULL with an exception set.
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
        // SAFETY: a `PackedFunc`, and `count` valid views, which the caller's references keep alive.
        unsafe { watched::<RELEASE>(callable, data, count, &mut result) }
    } else if RELEASE {
        // SAFETY: a valid function, `count` valid views and a result that holds nothing. The caller's references keep
        // what the views borrow alive while the lock is released.
        gil::counted(|| gil::without(|| unsafe { safe_call(handle.cast(), data, count, &mut result) }))
    } else {
        // SAFETY: a valid function, `count` valid views and a result that holds nothing; the lock is kept, so nobody takes the arguments away.
        gil::counted(|| unsafe { safe_call(handle.cast(), data, count, &mut result) })
    };
    if code != 0 {
        return Err(error::raise_from_call(code, callable, args));
    }
    lift::lift_result(result, &frame)
}

/// Calls a function and tells of it.
///
/// # Safety
/// `callable` is a `PackedFunc`, and the arguments are what it takes.
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
    // SAFETY: that is the call. Finding a name needs the lock, and its time does not hold the waiting for it.
    let watched = unsafe { Watched::begin(&call) };
    let body = || {
        // SAFETY: the caller passes what the function takes.
        let code = unsafe { safe_call(handle.cast(), data, count, result) };
        watched.end(code);
        code
    };
    gil::counted(|| if RELEASE { gil::without(body) } else { body() })
}

/// A call with named arguments, which follow the positional ones in `args`.
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
        // SAFETY: the first `count` are set, and a set one is just the object.
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

/// A call with named arguments of a Python function: it sees the values that it would see in any other call, and itself
/// says what names it takes.
#[cold]
fn call_python(callable: Obj<'_>, python: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> Res<Own> {
    let mut values = vec![MaybeUninit::<TVMFFIAny>::uninit(); args.len()];
    let mut words = WORDS;
    let mut frame = Frame::new(args, &mut values, &mut words);
    for (index, arg) in args.iter().enumerate() {
        lower(*arg, &mut frame, &At::Argument { function: callable, index })?;
    }
    let (data, count) = frame.enter();
    // SAFETY: the frame's values, all set; there is at least one.
    let views: &[TVMFFIAny] = unsafe { std::slice::from_raw_parts(data, count as usize) };
    // Arrays come back as themselves, unless they have changed meanwhile.
    let mut loans = Loans::new();
    let lifted = views.iter().map(|view| lift::lift_view(view, &mut loans)).collect::<Res<Vec<Own>>>()?;
    // The loans end while their arguments are held.
    let held: Vec<Own> =
        if loans.is_empty() { Vec::new() } else { lifted.iter().map(|arg| arg.obj().to_own()).collect() };
    let args: Vec<*mut PyObject> = held.iter().map(Own::as_ptr).collect();
    let result = loans.end(&args, python.call_with(lifted, names))?;
    lift::lift_result(lower_result(result.obj(), python)?, &frame)
}

/// Calls a function object of native code once, with any arguments.
pub(crate) fn handle_as_packed(callable: Obj<'_>) -> Option<PackedFunc> {
    let object = object::reference_of(callable)?;
    PackedFunc::try_from_object(object).ok()
}

/// The object that a function has as its name; the caller knows that it is an instance of `PackedFunc`.
pub(crate) fn name_object(callable: Obj<'_>) -> Option<Obj<'_>> {
    // SAFETY: owned by the instance, or NULL.
    unsafe { Obj::from_nullable(layout(callable).name) }
}

/// Name of a function, for messages.
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

/// Name of a function's argument, if its signature says.
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

/// Whether a function says that it only reads the tensor which it gets as an argument.
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

/// What a function's signature tells, read at the first call.
#[inline]
pub(crate) fn known<'a>(callable: Obj<'a>) -> Res<&'a Known> {
    // SAFETY: owned by the instance and never replaced once it is there.
    match unsafe { layout(callable).known.as_ref() } {
        Some(known) => Ok(known),
        None => read_known(callable),
    }
}

#[cold]
fn read_known<'a>(callable: Obj<'a>) -> Res<&'a Known> {
    let known = Box::new(Known::read(callable)?);
    let place = callable.as_ptr().cast::<Layout>();
    // Reading may have run other code, which was first.
    if layout(callable).known.is_null() {
        // SAFETY: a field of the instance; the lock is held, and no reference to the instance is in use.
        unsafe { (*place).known = Box::into_raw(known) };
    }
    // SAFETY: owned by the instance, not NULL by now, and never replaced.
    Ok(unsafe { &*layout(callable).known })
}

/// The global name by which a function was found or registered.
pub(crate) fn key<'a>(callable: Obj<'a>) -> Option<Obj<'a>> {
    // SAFETY: owned by the instance, or NULL.
    unsafe { Obj::from_nullable(layout(callable).key) }
}

/// Sets the global name; the first one stays.
pub(crate) fn set_key(callable: Obj<'_>, name: Obj<'_>) {
    if key(callable).is_none() {
        replace(callable, offset_of!(Layout, key), name);
    }
}

fn layout<'a>(object: Obj<'a>) -> &'a Layout {
    // SAFETY: only called for instances of `PackedFunc`; the lock is held, so nothing changes it meanwhile.
    unsafe { &*object.as_ptr().cast() }
}

unsafe extern "C" fn get_name(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
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
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: a valid object, or NULL to delete.
    let value = unsafe { Obj::from_nullable(value) };
    let is_str = |value: &Obj<'_>| value.type_flags() & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0;
    let Some(value) = value.filter(is_str) else {
        let _ = py::raise::<()>(py::exceptions::type_error(), "__name__ must be set to a string object");
        return -1;
    };
    replace(object, offset_of!(Layout, name), value)
}

/// An attribute that was set, or else what the Python part computes.
unsafe extern "C" fn get_lazy(object: *mut PyObject, name: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    error::catch(|| {
        let name = lazy_name(name)?;
        // SAFETY: Python's dictionary of the instance, or NULL.
        let dict: Option<Obj<'_>> = unsafe { Obj::from_nullable(layout(object).dict) };
        // A key may run Python code when it is compared, which may replace the dictionary.
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
    // SAFETY: Python passes an instance and holds the lock; a new reference or an exception.
    let Ok(dict) = py::unsafe_new_ref!(raw::PyObject_GenericGetDict(object, ptr::null_mut())) else {
        return -1;
    };
    let Ok(name) = lazy_name(name) else { return -1 };
    // SAFETY: a valid object, or NULL to delete.
    match unsafe { Obj::from_nullable(value) } {
        Some(value) => py::dict_set(dict.obj(), name.obj(), value).map_or(-1, |()| 0),
        // SAFETY: a dictionary and a string; an exception if it is not there.
        None => unsafe { py::raw::PyDict_DelItem(dict.as_ptr(), name.as_ptr()) },
    }
}

/// The name in the closure of a lazy attribute.
fn lazy_name(name: *mut c_void) -> Res<Own> {
    // SAFETY: the table of attributes has names as closures, which live for ever.
    py::intern(unsafe { CStr::from_ptr(name.cast()) })
}

/// A function found through a class or an instance is itself: it is not bound, as built-in functions are not.
unsafe extern "C" fn descr_get(
    object: *mut PyObject,
    _instance: *mut PyObject,
    _class: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    object.to_own().into_ptr()
}

/// Puts `value` into the owned slot at an offset of the instance.
fn replace(object: Obj<'_>, offset: usize, value: Obj<'_>) -> c_int {
    // SAFETY: the offset of a field of `Layout`.
    let slot: *mut *mut PyObject = unsafe { object.as_ptr().byte_add(offset) }.cast();
    // SAFETY: a field of the instance; the lock is held.
    let old = unsafe { slot.replace(value.to_own().into_ptr()) };
    // SAFETY: the instance owned the old value, which is released after it has been replaced.
    drop(unsafe { Own::from_nullable(old) });
    0
}

unsafe extern "C" fn get_signature(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match handle_as_packed(object).and_then(|function| function.signature()) {
        Some(text) => object::to_c(py::string(text.as_bytes())),
        None => py::none().into_ptr(),
    }
}

unsafe extern "C" fn get_releases(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let is_entry = |entry: ffi::vectorcallfunc| ptr::fn_addr_eq(layout(object).vectorcall, entry);
    py::boolean(is_entry(vectorcall::<true>) || is_entry(noted::<true>)).into_ptr()
}

unsafe extern "C" fn set_releases(object: *mut PyObject, value: *mut PyObject, _closure: *mut c_void) -> c_int {
    // SAFETY: a valid object, or NULL to delete.
    let value: Option<Obj<'_>> = unsafe { Obj::from_nullable(value) };
    let releases = match value.map(Obj::is_true) {
        Some(Ok(releases)) => releases,
        Some(Err(Raised)) => return -1,
        None => false,
    };
    // SAFETY: Python passes an instance and holds the lock; a running call does not look at this again.
    unsafe { (*object.cast::<Layout>()).vectorcall = entry(releases) };
    0
}

/// Shows the collector the attributes, and the Python function behind a native one.
unsafe extern "C" fn traverse(object: *mut PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: Python passes an instance and holds the lock.
    let dict = layout(unsafe { Obj::from_ptr(object) }).dict;
    if !dict.is_null() {
        // SAFETY: the collector's own function and argument, and an object that the instance owns.
        match unsafe { visit(dict, arg) } {
            0 => {}
            stop => return stop,
        }
    }
    // SAFETY: Python passes an instance and its own function and argument, and holds the lock.
    unsafe { collect::traverse(object, visit, arg) }
}

/// Breaks a cycle that nothing else uses.
unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: Python passes an instance and holds the lock.
    let this: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: a field of the instance; the lock is held.
    let dict = unsafe { std::mem::replace(&mut (*object.cast::<Layout>()).dict, ptr::null_mut()) };
    // SAFETY: the instance owned it.
    drop(unsafe { Own::from_nullable(dict) });
    if collect::owns_function(this) {
        drop(callback::break_up(object::handle_unchecked(this)));
    }
    0
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    let layout: *mut Layout = object.cast();
    // SAFETY: a valid object: the collector must not see it any more.
    unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    // SAFETY: an instance that nothing uses any more.
    let Layout { name, key, known, dict, weak, .. } = unsafe { &*layout };
    if !weak.is_null() {
        // SAFETY: an instance whose class says where its weak references are.
        unsafe { py::raw::PyObject_ClearWeakRefs(object) };
    }
    for owned in [*name, *key, *dict] {
        // SAFETY: owned by the instance, or NULL.
        drop(unsafe { Own::from_nullable(owned) });
    }
    if !known.is_null() {
        // SAFETY: made by `read_known`, owned by the instance.
        drop(unsafe { Box::from_raw(*known) });
    }
    // SAFETY: the rest is what the base class has.
    unsafe { object::dealloc(object) };
}
