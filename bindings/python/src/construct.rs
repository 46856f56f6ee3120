//! Construction of native objects from Python: `Point(1.0, 2.0)`.
//!
//! A class registered for a native type names the function that makes its objects (`__constructor__`, set by
//! `register_object`), or calls one in its `__init__` through `__init_handle_by_constructor__`. In both cases the
//! function's result becomes the handle of the instance that Python has already made; there is no second Python object.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use anyfn::ObjectRef;
use anyfn::abi::{TVMFFIAny, TVMFFIFunctionCell, kTVMFFIStaticObjectBegin};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::lower::{CallFrame, lower};
use crate::py::{self, Obj, Own, PyObject, Res, names};
use crate::scratch::WORDS;
use crate::{classes, error, function, gil, object, packed, plan, record, types};

/// Maximum number of arguments that are passed to a constructor without `PyObject_Call`. With more arguments,
/// the constructor is called like any Python callable.
const INLINE: usize = 8;

/// Implements `__new__`: makes an instance without a native object. `__init__` provides the native object later.
///
/// # Safety
/// Must be called by Python with a class derived from `Object`.
pub(crate) unsafe extern "C" fn new(
    class: *mut ffi::PyTypeObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    if ptr::eq(class.cast(), object::CLASS.ptr()) {
        // SAFETY: Python passes a class and valid arguments or NULL, and holds the GIL.
        return unsafe { types::not_constructible(class, args, kwargs) };
    }
    object::to_c(types::allocate(class))
}

/// Implements `__init__`: calls the class's constructor.
///
/// # Safety
/// Must be called by Python with an instance, a tuple, and a dictionary or NULL.
pub(crate) unsafe extern "C" fn init(this: *mut PyObject, args: *mut PyObject, kwargs: *mut PyObject) -> c_int {
    // SAFETY: Python passes a valid object and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: Python passes a tuple, which the caller of `init` keeps alive.
    let args: Obj<'_> = unsafe { Obj::from_ptr(args) };
    // SAFETY: Python passes a dictionary or NULL.
    let kwargs: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwargs) };
    let done = error::catch(|| {
        // The `__new__` of a class may already have made the complete object.
        if object::handle_unchecked(this).is_null() {
            let constructor = constructor_of(this)?;
            if let Some(made) = plan::make(constructor.obj(), args, kwargs)? {
                take(this, made)?;
                plan::finish(this, constructor.obj())?;
                return Ok(py::none());
            }
            let made = if args.tuple_len() <= INLINE && kwargs.is_none() {
                let mut items = [const { MaybeUninit::<Obj<'_>>::uninit() }; INLINE];
                for (index, item) in items.iter_mut().enumerate().take(args.tuple_len()) {
                    // SAFETY: the object is a tuple and the index is within its size.
                    let object = unsafe { ffi::PyTuple_GetItem(args.as_ptr(), index as isize) };
                    // SAFETY: the tuple keeps the item alive for the call.
                    item.write(unsafe { Obj::from_ptr(object) });
                }
                // SAFETY: as many items as the tuple has were written.
                let items = unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), args.tuple_len()) };
                make(constructor.obj(), items)?
            } else {
                let kwargs = kwargs.map_or(ptr::null_mut(), Obj::as_ptr);
                // SAFETY: the arguments are a callable, a tuple, and a dictionary or NULL; the result is a new
                // reference, or NULL with an exception set.
                let result =
                    py::unsafe_new_ref!(py::raw::PyObject_Call(constructor.as_ptr(), args.as_ptr(), kwargs))?;
                native(result.obj(), constructor.obj())?
            };
            take(this, made)?;
        } else {
            made_already(this)?;
        }
        Ok(py::none())
    });
    if done.is_null() {
        return -1;
    }
    // SAFETY: this is an owned reference to None.
    drop(unsafe { Own::from_nullable(done) });
    0
}

/// Implements `__init_handle_by_constructor__(constructor, *args, **kwargs)`: calls `constructor` to make the
/// native object of an instance.
///
/// # Safety
/// Must be called by Python. `this` must be an instance, and `args` must hold `count` positional arguments, followed
/// by one argument for each name in `kwnames`, which must be a tuple or NULL.
pub(crate) unsafe extern "C" fn init_handle(
    this: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python passes a valid object and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    error::catch(|| {
        // SAFETY: the pointer is NULL or a tuple of names, which Python keeps alive.
        let names: Option<Obj<'_>> = unsafe { Obj::from_nullable(kwnames) };
        let all = count as usize + names.map_or(0, Obj::tuple_len);
        let args: &[Obj<'_>] = if all == 0 {
            &[]
        } else {
            // SAFETY: Python passes this many valid objects; `Obj` is transparent over the pointer.
            unsafe { std::slice::from_raw_parts(args.cast(), all) }
        };
        let Some((constructor, args)) = args.split_first().filter(|_| count > 0) else {
            return py::raise(py::exceptions::type_error(), "expected a function that constructs the object");
        };
        let made = match names {
            None => make(*constructor, args)?,
            Some(names) => {
                let args = args.iter().map(|arg| arg.to_own()).collect();
                native(constructor.call_with(args, names)?.obj(), *constructor)?
            }
        };
        take(this, made)?;
        Ok(py::none())
    })
}

/// Returns the constructor of an instance's class (`__constructor__`). Raises `TypeError` if the class has no constructor.
fn constructor_of(this: Obj<'_>) -> Res<Own> {
    match this.class().attr_opt(names::CONSTRUCTOR.get())? {
        Some(constructor) if !constructor.obj().is_none() => Ok(constructor),
        _ => no_constructor(this),
    }
}

#[cold]
fn no_constructor<T>(this: Obj<'_>) -> Res<T> {
    let class = this.class_name();
    let message = format!(
        "{class} has no constructor: name one in register_object(.., constructor=..), or define an __init__ that calls \
         self.__init_handle_by_constructor__(function, ..)"
    );
    py::raise(py::exceptions::type_error(), &message)
}

/// Calls a constructor and returns the native object that it makes.
#[inline]
fn make(constructor: Obj<'_>, args: &[Obj<'_>]) -> Res<ObjectRef> {
    // An observed call takes the general path.
    if !function::is_cheap(constructor) || args.len() > INLINE || anyfn::observe::is_on() {
        return native(constructor.call(args)?.obj(), constructor);
    }
    let handle = object::handle_unchecked(constructor);
    let mut values = [const { MaybeUninit::<TVMFFIAny>::uninit() }; INLINE];
    let mut words = WORDS;
    let mut frame = CallFrame::new(args, &mut values, &mut words);
    for (index, arg) in args.iter().enumerate() {
        lower(*arg, &mut frame, &At::Argument { function: constructor, index })?;
    }
    let mut result = TVMFFIAny::NONE;
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.add(1) }.cast();
    // SAFETY: the cell of a function is initialised; the instance keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let (data, count) = frame.enter();
    // SAFETY: the function, the `count` views and the result, which holds no value, are valid.
    let code = gil::counted(|| unsafe { safe_call(handle.cast(), data, count, &mut result) });
    if code != 0 {
        return Err(function::raise_from_call(code, constructor, args));
    }
    if result.type_index < kTVMFFIStaticObjectBegin {
        return no_object(constructor, anyfn::type_key(result.type_index));
    }
    // SAFETY: an owned value of an object type holds one reference.
    match unsafe { anyfn::Any::from_raw(result) }.into_object() {
        Some(object) => Ok(object),
        None => no_object(constructor, "NULL"),
    }
}

/// Returns the native object of the Python object that a constructor returned. Raises `TypeError` if the Python
/// object has no native object.
#[cold]
fn native(result: Obj<'_>, constructor: Obj<'_>) -> Res<ObjectRef> {
    match object::reference_of(result) {
        Some(object) => Ok(object),
        None => no_object(constructor, &result.class_name()),
    }
}

#[cold]
fn no_object<T>(constructor: Obj<'_>, got: &str) -> Res<T> {
    let message = format!("the constructor {} returned {got}, not an object", packed::name_of(constructor));
    py::raise(py::exceptions::type_error(), &message)
}

/// Stores `made` as the native object of an instance. Raises an exception if the instance already
/// has a native object, or if the instance's class must not represent objects of the type of
/// `made`.
fn take(this: Obj<'_>, made: ObjectRef) -> Res<()> {
    if !classes::fits(this.type_ptr(), made.type_index())? {
        return misfit(this, &made);
    }
    // The check is repeated here, since the constructor may have run Python code: a handle that is already set must
    // not be replaced here, so that a call may borrow it.
    if !object::handle_unchecked(this).is_null() {
        let message = format!("{} object is already initialised", this.class_name());
        return py::raise(py::exceptions::runtime_error(), &message);
    }
    object::set_handle(this, made);
    Ok(())
}

#[cold]
fn misfit<T>(this: Obj<'_>, made: &ObjectRef) -> Res<T> {
    let message = format!(
        "the constructor returned an object of type {}, which {} does not represent",
        made.type_key(),
        this.class_name()
    );
    py::raise(py::exceptions::type_error(), &message)
}

/// Raises `RuntimeError` if `__init__` is called again on an initialised instance of a class that is defined
/// in Python. Does nothing if the class represents a type that is defined in native code.
#[cold]
fn made_already(this: Obj<'_>) -> Res<()> {
    if record::record_of_object(object::handle_unchecked(this)).is_none() {
        return Ok(());
    }
    let message = format!("{} object is already initialised", this.class_name());
    py::raise(py::exceptions::runtime_error(), &message)
}
