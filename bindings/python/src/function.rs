//! Calls from Python to native functions, which the class `PackedFunc` represents.
//!
//! The call path does as little as possible: arguments go to the stack, the function's own `safe_call` is called
//! directly, and a result of a common type is converted to a Python object directly. Nothing in it can panic. As soon as an
//! argument requires more, because its native value owns something or because it is an array, [`call_any`] makes the
//! call instead, with a [`CallFrame`]. Everything else that is less common is behind a function that is not inlined.

use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use anyfn::abi::{
    DLTensor, TVMFFIAny, TVMFFIByteArray, TVMFFIFunctionCell, kTVMFFIBool, kTVMFFIDLTensorPtr, kTVMFFIFloat,
    kTVMFFIInt, kTVMFFINone, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFITensor,
};
use anyfn::observe::Watched;
use anyfn::{Any, Error, Map};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::lent::Loans;
use crate::lift::{lift_borrowed, lift_owned};
use crate::lower::{CallFrame, lower, lower_simple, release_simple};
use crate::owned::lower_owned;
use crate::packed::{self, CLASS, Entries, Layout, layout};
use crate::py::{self, Obj, Own, PyObject, Raised, Res, names, raw};
use crate::scratch::WORDS;
use crate::signature::{self, known};
use crate::types::{self, Class};
use crate::{collect, error, gil, ndarray, object, observe, params, place, python_function, trace};

/// Maximum number of arguments that a call stores on the stack. With more arguments, a call stores
/// all of them on the heap.
const INLINE: usize = 8;

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
            c"True if other Python threads can run during a call. Set it for native functions that run long or block; it \
              applies to the function, so later look-ups return it, too.",
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

/// Vectorcall functions through which Python calls the instances of `PackedFunc`.
pub(crate) static ENTRIES: Entries =
    Entries { plain: [vectorcall::<false>, vectorcall::<true>], noted: [noted::<false>, noted::<true>] };

/// Calls a native function. For the ledger of live objects, records from which line of Python code
/// the call comes.
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

/// Implements `function(*args)`: calls a native function.
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
    let count = nargsf & !raw::ARGUMENTS_OFFSET;
    // SAFETY: Python passes this many arguments.
    let first: Option<Obj<'_>> = if count > 0 { Some(unsafe { args.cast::<Obj<'_>>().read() }) } else { None };
    let is_array = first.is_some_and(ndarray::is_exact_array);
    if is_array || !kwnames.is_null() || count > INLINE {
        // SAFETY: the arguments are those that Python passes.
        return unsafe { call_any::<RELEASE>(callable, args, count, kwnames) };
    }
    let using = gil::Use::begin();
    let mut values = [const { MaybeUninit::<TVMFFIAny>::uninit() }; INLINE];
    let mut contents = [const { MaybeUninit::<TVMFFIByteArray>::uninit() }; INLINE];
    let mut owned = false;
    for index in 0..count {
        // SAFETY: Python passes this many arguments.
        let arg: *const Obj<'_> = unsafe { args.add(index) }.cast();
        // SAFETY: Python passes valid objects; `Obj` is transparent over the pointer.
        let arg = unsafe { arg.read() };
        if !lower_simple(arg, &mut values[index], &mut contents[index], &mut owned) {
            if owned {
                // SAFETY: this many valid objects have been converted.
                release_simple(&values, unsafe { arguments(args, index) }.iter().copied());
            }
            drop(using);
            // SAFETY: the arguments are those that Python passes.
            return unsafe { call_any::<RELEASE>(callable, args, count, kwnames) };
        }
    }
    let mut result = TVMFFIAny::NONE;
    // SAFETY: `callable` is a `PackedFunc`, the first `count` values are set, and the result is writable and holds no value.
    let code = unsafe { call_native::<RELEASE>(callable, values.as_ptr().cast(), count as i32, &mut result) };
    if owned {
        // SAFETY: all arguments, which are valid objects, have been converted.
        release_simple(&values, unsafe { arguments(args, count) }.iter().copied());
    }
    drop(using);
    if code != 0 {
        // SAFETY: the arguments are those that Python passes.
        return unsafe { fail(code, callable, args, count) };
    }
    match result.type_index {
        kTVMFFINone => py::none().into_ptr(),
        // SAFETY: the value is valid, and all of its bytes are initialised.
        kTVMFFIInt => object::to_c(py::int(unsafe { result.bits() } as i64)),
        // SAFETY: the function has returned an owned value, which is not used again.
        _ => unsafe { lift_other(&result) },
    }
}

/// Raises the error of a failed call, whose arguments are as Python passes them. Returns NULL.
///
/// # Safety
/// `args` must be the address of `count` valid objects.
#[cold]
#[inline(never)]
unsafe fn fail(code: c_int, callable: Obj<'_>, args: *const *mut PyObject, count: usize) -> *mut PyObject {
    // SAFETY: guaranteed by the caller.
    let args = unsafe { arguments(args, count) };
    error::catch(|| Err(raise_from_call(code, callable, args)))
}

/// Converts an owned result of a less common type to a Python value.
///
/// # Safety
/// `result` must be an owned value, which passes to this function.
#[inline(never)]
unsafe fn lift_other(result: &TVMFFIAny) -> *mut PyObject {
    if matches!(result.type_index, kTVMFFIBool | kTVMFFIFloat | kTVMFFISmallStr | kTVMFFISmallBytes) {
        // These values own nothing. They are not copied: see `lift_result`.
        return error::catch(|| lift_borrowed(result));
    }
    // SAFETY: guaranteed by the caller.
    let value = unsafe { Any::from_raw(*result) };
    error::catch(|| lift_owned(value))
}

/// Borrows the arguments that Python passes to the function of a vectorcall.
///
/// # Safety
/// `args` must be the address of `count` valid objects, or anything if `count` is zero.
#[inline(always)]
unsafe fn arguments<'a>(args: *const *mut PyObject, count: usize) -> &'a [Obj<'a>] {
    if count == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller; `Obj` is transparent over the pointer.
    unsafe { std::slice::from_raw_parts(args.cast(), count) }
}

/// Calls the native function of a `PackedFunc` with arguments that have been converted. Returns the status of the call.
///
/// # Safety
/// `callable` must be a `PackedFunc`, and `data` the address of `count` valid views, which the caller's references keep
/// alive. `out` must be writable and hold no value. A [`gil::Use`] must be in progress.
#[inline(always)]
unsafe fn call_native<const RELEASE: bool>(
    callable: Obj<'_>,
    data: *const TVMFFIAny,
    count: i32,
    out: *mut TVMFFIAny,
) -> c_int {
    let handle = object::handle_unchecked(callable);
    if anyfn::observe::is_on() {
        // SAFETY: guaranteed by the caller.
        return unsafe { watched::<RELEASE>(callable, data, count, out) };
    }
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.add(1) }.cast();
    // SAFETY: the cell of a function is initialised; the instance keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    if RELEASE {
        // SAFETY: the function, the `count` views and the result, which holds no value, are valid. The caller's
        // references keep the values that the views borrow alive while the GIL is released.
        gil::without(|| unsafe { safe_call(handle.cast(), data, count, out) })
    } else {
        // SAFETY: the function, the `count` views and the result, which holds no value, are valid. The GIL is kept,
        // so no other thread can release the arguments.
        unsafe { safe_call(handle.cast(), data, count, out) }
    }
}

/// Calls a native function with arguments of any types, number and names.
///
/// # Safety
/// The arguments must be as Python passes them to the function of a vectorcall, but `count` is only a number.
#[inline(never)]
unsafe fn call_any<const RELEASE: bool>(
    callable: Obj<'_>,
    args: *const *mut PyObject,
    count: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes a tuple of names, or NULL if there are no named arguments.
    let names: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
    if let Some(names) = names
        && names.tuple_len() > 0
    {
        // SAFETY: Python passes the positional arguments and one more for each name.
        let args = unsafe { arguments(args, count + names.tuple_len()) };
        return call_named::<RELEASE>(callable, args, names);
    }
    // SAFETY: Python passes this many valid objects.
    let args = unsafe { arguments(args, count) };
    error::catch(|| {
        if count <= INLINE {
            let mut values = [const { MaybeUninit::<TVMFFIAny>::uninit() }; INLINE];
            call::<RELEASE>(callable, args, &mut values)
        } else {
            call_many::<RELEASE>(callable, args)
        }
    })
}

/// Returns true if an object is a `PackedFunc` whose calls keep the GIL.
#[inline]
pub(crate) fn is_cheap(callable: Obj<'_>) -> bool {
    ptr::eq(callable.type_ptr().cast(), CLASS.ptr())
        && ptr::fn_addr_eq(layout(callable).vectorcall, vectorcall::<false> as ffi::vectorcallfunc)
}

/// Calls a function with the GIL released, even if the function does not declare that it runs long or blocks.
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
    let mut words = WORDS;
    let mut frame = CallFrame::new(args, values, &mut words);
    for (index, arg) in args.iter().enumerate() {
        let at = At::Argument { function: callable, index };
        lower(*arg, &mut frame, &at)?;
    }
    let mut result = Any::NONE;
    let out: *mut TVMFFIAny = (&raw mut result).cast();
    let (data, count) = frame.enter();
    // SAFETY: `callable` is a `PackedFunc`, and the result is writable and holds no value. The frame has `count` values, and
    // has begun a use of native objects.
    let code = unsafe { call_native::<RELEASE>(callable, data, count, out) };
    if code != 0 {
        // A failed call has no result.
        std::mem::forget(result);
        return Err(raise_from_call(code, callable, args));
    }
    lift_result(result, &frame)
}

/// Converts the result of a call to a Python value.
///
/// The result is moved and never copied: the callee has just stored its members one by one, and a load of the whole
/// struct would have to wait for these stores.
#[inline(always)]
fn lift_result(result: Any, frame: &CallFrame<'_>) -> Res<Own> {
    let raw = result.as_raw();
    match raw.type_index {
        kTVMFFINone => Ok(py::none()),
        // SAFETY: the value is valid, and all of its bytes are initialised.
        kTVMFFIInt => py::int(unsafe { raw.bits() } as i64),
        kTVMFFIDLTensorPtr => {
            // SAFETY: tensor views have their value in `v_ptr`.
            let view: *const DLTensor = unsafe { raw.value.v_ptr }.cast_const().cast();
            // A function may return the view that it received, which is the caller's array.
            match frame.argument_of(view) {
                Some(array) => Ok(array.to_own()),
                None => lift_owned(result),
            }
        }
        kTVMFFITensor if frame.has_arrays() => lift_tensor(result, frame),
        _ => lift_owned(result),
    }
}

/// Converts a tensor that a function has returned to a Python value. If the tensor represents an argument of
/// the call, the result is that argument.
#[cold]
fn lift_tensor(result: Any, frame: &CallFrame<'_>) -> Res<Own> {
    // SAFETY: tensor objects have their value in `v_obj`.
    let handle = unsafe { result.as_raw().value.v_obj };
    match frame.argument_shown_by(handle) {
        Some(argument) => Ok(argument.to_own()),
        None => lift_owned(result),
    }
}

/// Raises the error of a failed function call as a Python exception, with the function in the traceback.
#[cold]
pub(crate) fn raise_from_call(code: c_int, callable: Obj<'_>, args: &[Obj<'_>]) -> Raised {
    if let Some(error) = error::take_native(code) {
        let named = with_python_type(&error, callable, args).or_else(|| with_caller(&error, callable));
        error::raise(named.unwrap_or(error));
    }
    add_call(callable);
    Raised
}

/// Adds a frame for the call of `callable` to the traceback of the current exception. Does nothing for a function
/// that is written in Python, which has its own frame.
#[cold]
fn add_call(callable: Obj<'_>) {
    if python_function::python_callable(object::handle_unchecked(callable)).is_some() {
        return;
    }
    let name = packed::key(callable).or_else(|| packed::name_object(callable));
    // Looking up names of other classes would run their code.
    let plain = name.filter(|name| name.type_ptr() == &raw mut ffi::PyUnicode_Type);
    // An owned reference is needed: making a frame runs Python code, which may rename the function.
    let plain = plain.unwrap_or_else(|| names::NATIVE.get()).to_own();
    trace::add(plain.obj());
}

/// Rewrites the message of a native `TypeError` about an argument of `callable`, so that it names the
/// argument's Python class, which native code does not know. Returns `None` for any other error.
fn with_python_type(error: &Error, callable: Obj<'_>, args: &[Obj<'_>]) -> Option<Error> {
    if error.kind() != "TypeError" {
        return None;
    }
    let rest = error.message().strip_suffix('`')?;
    let rest = rest.strip_suffix("Python object").or_else(|| rest.strip_suffix("DLTensor*"))?;
    let (_, place) = rest.strip_suffix("but got `")?.split_once(" on argument #")?;
    // The same message may come from a function that this function has called.
    let of_callable = match place.split_once(" when calling: `") {
        Some((_, shown)) => {
            shown.strip_prefix(&*packed::name_of(callable)).is_some_and(|rest| rest.starts_with('('))
        }
        None => place.contains(". Expected `"),
    };
    let digits = place.find(|c: char| !c.is_ascii_digit())?;
    let arg = args.get(place[..digits].parse::<usize>().ok()?).filter(|_| of_callable)?;
    let class = arg.class_name();
    let mut context = error.context();
    if let Some(Ok(mut detail)) = context.clone().map(Map::<Any, Any>::try_from_object) {
        let got = Any::new("got").and_then(|key| detail.insert(key, Any::new(&*class)?));
        context = got.ok().map(|()| detail.into_object());
    }
    let message = format!("{rest}{class}`");
    let cause = error.cause().map(Error::into_object);
    Error::try_from_texts(b"TypeError", message.as_bytes(), error.backtrace().as_bytes(), cause, context)
}

/// Adds the name of `callable` to the message of a native error about a value of the wrong type. If
/// the value is the result of a callback, `callable` is named as the function that called the
/// callback. If the message does not say which value is wrong, it is prefixed with the name.
/// Returns `None` for any other error.
fn with_caller(error: &Error, callable: Obj<'_>) -> Option<Error> {
    let message = error.message();
    let (subject, rest) = message.split_at(message.find("expected `")?);
    if !rest.contains("` but got `") {
        return None;
    }
    let name = packed::name_of(callable);
    let mut context = error.context();
    let message = if subject.is_empty() {
        format!("{name}: {rest}")
    } else {
        let subject = subject.strip_suffix(": ")?;
        let mut detail = Map::<Any, Any>::try_from_object(context?).ok()?;
        let text = |key: &str| match detail.get_any(key) {
            Ok(Some(value)) => value.get::<&str>().ok(),
            _ => None,
        };
        // An inner call that passed through Python has already been named.
        if text("argument") != Some("result") || text("caller").is_some() {
            return None;
        }
        detail.insert(Any::new("caller").ok()?, Any::new(&*name).ok()?).ok()?;
        context = Some(detail.into_object());
        format!("{subject} in a call to `{name}`: {rest}")
    };
    let cause = error.cause().map(Error::into_object);
    let (kind, trace) = (error.kind().as_bytes(), error.backtrace());
    Error::try_from_texts(kind, message.as_bytes(), trace.as_bytes(), cause, context)
}

/// Calls a function and reports the call to the observer.
///
/// # Safety
/// `callable` must be a `PackedFunc`, the arguments must be valid for it, and `result` must be writable and hold no value.
#[cold]
#[inline(never)]
unsafe fn watched<const RELEASE: bool>(
    callable: Obj<'_>,
    data: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    let handle = object::handle_unchecked(callable);
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.add(1) }.cast();
    // SAFETY: the cell of a function is initialised; the instance keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let call = observe::call_of(callable, handle.cast(), data, count);
    // SAFETY: `call` describes the call below. Finding the name needs the GIL; the measured time excludes waiting for the GIL.
    let watched = unsafe { Watched::begin(&call) };
    let body = || {
        // SAFETY: the caller passes valid arguments for the function.
        let code = unsafe { safe_call(handle.cast(), data, count, result) };
        watched.end(code);
        code
    };
    if RELEASE { gil::without(body) } else { body() }
}

/// Calls a function with named arguments. In `args`, the values of the named arguments follow the
/// positional arguments. `names` contains the names.
#[inline(never)]
fn call_named<const RELEASE: bool>(callable: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> *mut PyObject {
    error::catch(|| try_call_named::<RELEASE>(callable, args, names))
}

#[inline(always)]
fn try_call_named<const RELEASE: bool>(callable: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> Res<Own> {
    if let Some(python) = python_function::python_callable(object::handle_unchecked(callable)) {
        return call_python(callable, python, args, names);
    }
    let known = known(callable)?;
    let mut ordered = [None; params::INLINE];
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

/// Calls the Python function `python`, which `callable` wraps, with named arguments. The arguments are
/// converted as in any other call. The function itself rejects names that it does not accept.
#[cold]
fn call_python(callable: Obj<'_>, python: Obj<'_>, args: &[Obj<'_>], names: Obj<'_>) -> Res<Own> {
    let mut values = vec![MaybeUninit::<TVMFFIAny>::uninit(); args.len()];
    let mut words = WORDS;
    let mut frame = CallFrame::new(args, &mut values, &mut words);
    for (index, arg) in args.iter().enumerate() {
        lower(*arg, &mut frame, &At::Argument { function: callable, index })?;
    }
    let (data, count) = frame.enter();
    // SAFETY: these are the frame's values, all of which are set; there is at least one.
    let views: &[TVMFFIAny] = unsafe { std::slice::from_raw_parts(data, count as usize) };
    // An array is lifted to the same array again, unless it has changed in the meantime.
    let mut loans = Loans::new();
    let lifted = views.iter().map(|view| loans.lift(view)).collect::<Res<Vec<Own>>>()?;
    // The loans end while references to their arguments are held.
    let held: Vec<Own> =
        if loans.is_empty() { Vec::new() } else { lifted.iter().map(|arg| arg.obj().to_own()).collect() };
    let args: Vec<*mut PyObject> = held.iter().map(Own::as_ptr).collect();
    let result = loans.end(&args, python.call_with(lifted, names))?;
    let result = lower_owned(result.obj(), &At::Result { function: python })?;
    lift_result(result, &frame)
}

unsafe extern "C" fn get_name(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    if let Some(name) = packed::name_object(object) {
        return name.to_own().into_ptr();
    }
    let name = python_function::python_callable(object::handle_unchecked(object))
        .and_then(|callable| callable.attr_opt(names::NAME.get()).ok().flatten());
    py::clear_error();
    match name.or_else(|| packed::key(object).map(Obj::to_own)) {
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
    packed::replace(object, offset_of!(Layout, name), value)
}

/// Getter of the attributes that are computed on access. Returns the value that was set for the attribute, or
/// else the value that the Python code of the package computes.
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

/// Returns the name of a computed attribute. The name is the closure that Python passes to the getter and the setter
/// of the attribute.
fn lazy_name(name: *mut c_void) -> Res<Own> {
    // SAFETY: the closures in the attribute table are names that live for the lifetime of the process.
    py::intern(unsafe { CStr::from_ptr(name.cast()) })
}

/// Implements `__get__`: returns the function unchanged. Like a built-in function, a `PackedFunc` that is an
/// attribute of a class is not bound to instances.
unsafe extern "C" fn descr_get(
    object: *mut PyObject,
    _instance: *mut PyObject,
    _class: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    object.to_own().into_ptr()
}

unsafe extern "C" fn get_signature(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match packed::handle_as_packed(object).and_then(|function| function.signature()) {
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
    let releases = match value {
        Some(value) if value.is(py::boolean(true).as_ptr()) => true,
        Some(value) if !value.is(py::boolean(false).as_ptr()) => {
            let message = format!("releases_gil: expected a bool, got {}", value.class_name());
            let _ = py::raise::<()>(py::exceptions::type_error(), &message);
            return -1;
        }
        _ => false,
    };
    // SAFETY: Python passes an instance and holds the GIL.
    packed::choose_release(unsafe { Obj::from_ptr(object) }, releases);
    0
}

/// Implements `tp_traverse`: reports the attributes of an instance, and the Python function that
/// its native function calls, to the garbage collector.
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

/// Implements `tp_clear`: breaks an unreachable reference cycle.
unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: this is a field of the instance, and the GIL is held.
    let dict = unsafe { std::mem::replace(&mut (*object.cast::<Layout>()).dict, ptr::null_mut()) };
    // SAFETY: the instance owned the dictionary.
    drop(unsafe { Own::from_nullable(dict) });
    if collect::owns_function(this) {
        drop(python_function::break_up(object::handle_unchecked(this)));
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
