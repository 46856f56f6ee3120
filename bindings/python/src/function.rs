//! `PackedFunc`: calling native functions from Python.
//!
//! The call path does no more than it must: arguments go to the stack, the function's own `safe_call` is called
//! directly, and the result of a common type becomes a Python object without a detour. Everything rarer is behind a
//! function that is not inlined.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use anyfn::__private::shorten;
use anyfn::abi::{AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject};
use anyfn::{ObjectRef, PackedFunc};
use pyo3_ffi as ffi;

use crate::lower::{At, Frame, lower};
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, raw};
use crate::types::{self, Class};
use crate::{callback, error, gil, lift, object};

/// Memory of an instance.
#[repr(C)]
struct Layout {
    object: object::Layout,
    vectorcall: ffi::vectorcallfunc,
    /// Owned or NULL.
    name: *mut PyObject,
    /// Owned or NULL.
    doc: *mut PyObject,
}

/// Arguments that a call holds on the stack; more go to the heap.
const INLINE: usize = 8;

/// The class `PackedFunc`.
pub(crate) static CLASS: Global = Global::new();

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let member = |name: &'static std::ffi::CStr, offset: usize| ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as isize,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    };
    let members =
        vec![member(c"__vectorcalloffset__", offset_of!(Layout, vectorcall)), ffi::PyMemberDef::default()];
    let getset = |name: &'static std::ffi::CStr, doc: &'static std::ffi::CStr, get, set| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set,
        doc: doc.as_ptr(),
        closure: ptr::null_mut(),
    };
    let getsets = vec![
        getset(c"__name__", c"Name of the function.", get_name, Some(set_name)),
        getset(c"__qualname__", c"Name of the function.", get_name, None),
        getset(c"__doc__", c"Documentation of the function.", get_doc, Some(set_doc)),
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
        name: c"anyfn._core.PackedFunc",
        size: size_of::<Layout>(),
        base_for_others: false,
        flags: raw::HAVE_VECTORCALL,
        base: Some(object::CLASS.get()),
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_call, raw::PyVectorcall_Call as *mut c_void),
            (ffi::Py_tp_repr, repr as *mut c_void),
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
    if releases { vectorcall::<true> } else { vectorcall::<false> }
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
    // SAFETY: as above.
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
    // SAFETY: as above; NULL if there are no named arguments.
    let names: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
    if names.is_some_and(|names| names.tuple_len() > 0) {
        return no_keywords(callable);
    }
    let count = nargsf & !raw::ARGUMENTS_OFFSET;
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
    let mut frame = Frame::new(args, values);
    for (index, arg) in args.iter().enumerate() {
        let at = At::Argument { function: callable, index };
        lower(*arg, &mut frame, &at)?;
    }
    let mut result = TVMFFIAny::NONE;
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.add(1) }.cast();
    // SAFETY: as above; the instance keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let (data, count) = frame.enter();
    let code = if RELEASE {
        // SAFETY: a valid function, `count` valid views and a result that holds nothing. The caller's references keep
        // what the views borrow alive while the lock is released.
        gil::without(|| unsafe { safe_call(handle.cast(), data, count, &mut result) })
    } else {
        // SAFETY: as above.
        unsafe { safe_call(handle.cast(), data, count, &mut result) }
    };
    if code != 0 {
        return Err(error::raise_from_call(code, callable));
    }
    lift::lift_result(result, &frame)
}

#[cold]
fn no_keywords(callable: Obj<'_>) -> *mut PyObject {
    let name = name_of(callable);
    let _ = py::raise::<()>(py::exceptions::type_error(), &format!("{name} takes no keyword arguments"));
    ptr::null_mut()
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
    let named = |name: Obj<'static>| {
        let name = callable.attr(name).ok()?;
        let is_str = name.obj().type_flags() & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0;
        is_str.then(|| name.obj().to_text().ok()).flatten().filter(|name| !name.is_empty())
    };
    let name = if callable.is_instance_of(CLASS.ptr()) {
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
    let signature = handle_as_packed(callable)?.signature()?;
    let (_, names) = signature.split_once("\"arg_names\":[")?;
    let (names, _) = names.split_once(']')?;
    // Names are identifiers: nothing in them is escaped.
    let name = names.split(',').nth(index)?.trim().trim_matches('"');
    (!name.is_empty()).then(|| name.into())
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
    match name {
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

unsafe extern "C" fn get_doc(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: owned by the instance, or NULL.
    match unsafe { Obj::from_nullable(layout(object).doc) } {
        Some(doc) => doc.to_own().into_ptr(),
        None => py::none().into_ptr(),
    }
}

unsafe extern "C" fn set_doc(object: *mut PyObject, value: *mut PyObject, _closure: *mut c_void) -> c_int {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: a valid object, or NULL to delete.
    let value = unsafe { Obj::from_nullable(value) };
    let none = py::none();
    replace(object, offset_of!(Layout, doc), value.unwrap_or(none.obj()))
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
    py::boolean(ptr::fn_addr_eq(layout(object).vectorcall, vectorcall::<true> as ffi::vectorcallfunc))
        .into_ptr()
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

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the lock.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    object::to_c(py::string(format!("<anyfn.PackedFunc {}>", name_of(object)).as_bytes()))
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    let layout: *mut Layout = object.cast();
    // SAFETY: an instance that nothing uses any more.
    let Layout { name, doc, .. } = unsafe { &*layout };
    // SAFETY: owned by the instance, or NULL.
    drop(unsafe { Own::from_nullable(*name) });
    // SAFETY: as above.
    drop(unsafe { Own::from_nullable(*doc) });
    // SAFETY: the rest is what the base class has.
    unsafe { object::dealloc(object) };
}
