//! Native functions that call Python callables.
//!
//! The function objects are made here and not by the runtime, which saves one function call in each invocation. The
//! address in their field `safe_call` shows that a function object was made here.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use anyfn::abi::{
    AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject,
    TVMFFISafeCallType, kTVMFFIFunction, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, Error, ObjectRef};

use pyo3_ffi as ffi;

use crate::lent::Loans;
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};
use crate::{error, gil, lift, lower, signature, stack};

/// A native function that calls a Python object.
#[repr(C)]
struct PythonFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    /// Extension of the function object, through which the runtime queries the signature.
    ext: &'static AnyfnFunctionExt,
    /// Owned reference to the Python object that is called.
    callable: *mut PyObject,
}

/// The classes of functions and bound methods that are written in Python.
pub(crate) static PLAIN: [Global; 2] = [const { Global::new() }; 2];

/// Returns true if the class is that of functions or bound methods written in Python, or of functions written in C.
pub(crate) fn is_plain_function(class: *mut ffi::PyTypeObject) -> bool {
    class == &raw mut ffi::PyCFunction_Type || PLAIN.iter().any(|plain| ptr::eq(plain.ptr(), class.cast()))
}

/// Maximum number of arguments that a call stores on the stack; more arguments are stored on the heap.
const INLINE: usize = 8;

/// Makes a native function that calls `callable` and keeps it alive.
pub(crate) fn make(callable: Obj<'_>) -> Option<ObjectRef> {
    let function = Box::new(PythonFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: OBJECT_FLAG_FUNCTION_EXT,
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call, cpp_call: ptr::null_mut() },
        ext: &signature::PYTHON,
        callable: callable.to_own().into_ptr(),
    });
    let function = Box::into_raw(function);
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    // SAFETY: the object is valid and has one reference, which passes to the result.
    unsafe { ObjectRef::from_owned_or_null(function.cast()) }
}

/// Makes a native function that calls `callable`, and returns it as a value.
pub(crate) fn function_object(callable: Obj<'_>) -> Res<Any> {
    match make(callable) {
        Some(function) => Ok(function.into()),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Deleter of the function object. Depending on `flags`, it releases the callable, frees the memory, or both. May run
/// on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let function: *mut PythonFunction = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, and the memory still exists.
        let callable = unsafe { (*function).callable };
        // SAFETY: the function owned this reference.
        unsafe { gil::release(callable) };
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: the pointer comes from `Box`, and the content no longer owns anything.
        drop(unsafe { Box::from_raw(function) });
    }
}

/// Returns true if a native function was made here and so calls a Python object.
pub(crate) fn is_python(function: &ObjectRef) -> bool {
    python_function(function.as_handle().cast()).is_some()
}

/// Returns true if the object at this address is a function that was made here and so calls a Python object.
pub(crate) fn is_made_here(function: *mut TVMFFIObject) -> bool {
    python_function(function).is_some()
}

/// Returns the Python object that a native function calls, or `None` if the object is not a function that was made here.
pub(crate) fn python_callable<'a>(function: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: `python_function` has checked the type of the object.
    let callable = unsafe { (*python_function(function)?).callable };
    // SAFETY: the function keeps the object alive; the caller holds the GIL and the function.
    unsafe { Obj::from_nullable(callable) }
}

/// Removes the Python object from a function that was made here, and returns it. The caller must be the only owner of
/// the function. Calling the function afterwards is an error.
pub(crate) fn break_up(function: *mut TVMFFIObject) -> Option<Own> {
    let function = python_function(function)?;
    let none = py::none().into_ptr();
    // SAFETY: `python_function` has checked the type of the object, the GIL is held, and no call of the function is
    // in progress.
    let callable = unsafe { std::mem::replace(&mut (*function).callable, none) };
    // SAFETY: the function owned this reference.
    unsafe { Own::from_nullable(callable) }
}

fn python_function(function: *mut TVMFFIObject) -> Option<*mut PythonFunction> {
    // SAFETY: the caller has a valid object.
    if unsafe { (*function).type_index } != kTVMFFIFunction {
        return None;
    }
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.add(1) }.cast();
    // SAFETY: the caller has a valid function, whose cell is initialised.
    let called = unsafe { (*cell).safe_call };
    ptr::fn_addr_eq(called, safe_call as TVMFFISafeCallType).then_some(function.cast())
}

/// Calls the Python object behind a native function: the `safe_call` of all functions that are made here.
///
/// # Safety
/// Must be called by native code according to the rules of the ABI; any thread may call it.
unsafe extern "C" fn safe_call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    if stack::is_short() {
        return stack_is_short();
    }
    let Some(_held) = gil::enter() else { return interpreter_ended() };
    if anyfn::observe::is_on() && !TOLD.take() {
        // SAFETY: the arguments are those of this function, and the GIL is held.
        return unsafe { watched(handle, args, num_args, result) };
    }
    let function: *const PythonFunction = handle.cast();
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let callable = unsafe { (*function).callable };
    // SAFETY: the function owns the object, and the GIL is held.
    let callable: Obj<'_> = unsafe { Obj::from_ptr(callable) };
    let count = usize::try_from(num_args).unwrap_or_default();
    let args: &[TVMFFIAny] = if count == 0 || args.is_null() {
        &[]
    } else {
        // SAFETY: the ABI passes `num_args` valid views.
        unsafe { std::slice::from_raw_parts(args, count) }
    };
    let called = catch_unwind(AssertUnwindSafe(|| {
        let value = if args.len() <= INLINE {
            // The array has one more word in front, which the callee may use for a bound `self`.
            let mut objects = [const { MaybeUninit::<*mut PyObject>::uninit() }; INLINE + 1];
            call(callable, args, &mut objects)?
        } else {
            call(callable, args, &mut vec![MaybeUninit::uninit(); args.len() + 1])?
        };
        lower::lower_result(value.obj(), callable)
    }));
    match called {
        Ok(Ok(value)) => {
            // SAFETY: the ABI passes a writable result that holds no value.
            unsafe { result.write(value) };
            0
        }
        Ok(Err(Raised)) => error::raise_to_native(),
        Err(payload) => {
            error::raise_panic(&*payload);
            error::raise_to_native()
        }
    }
}

thread_local! {
    /// True if this thread has already reported to the observer the call that it is about to make.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

/// Reports a call to the observer, then makes it through [`safe_call`], so that the code of a call exists only once.
///
/// # Safety
/// The conditions of [`safe_call`] apply, and the GIL must be held.
#[cold]
#[inline(never)]
unsafe fn watched(handle: *mut c_void, args: *const TVMFFIAny, num_args: i32, result: *mut TVMFFIAny) -> c_int {
    let call = crate::observe::call_to(handle, args, num_args);
    // SAFETY: `call` describes the call that is made below.
    let watched = unsafe { anyfn::observe::Watched::begin(&call) };
    TOLD.set(true);
    // SAFETY: guaranteed by the caller.
    let code = unsafe { safe_call(handle, args, num_args, result) };
    // The call may have failed before it cleared the flag.
    TOLD.set(false);
    watched.end(code);
    code
}

/// Argument objects of a call, which are released at its end.
struct Args<'a> {
    objects: &'a mut [MaybeUninit<*mut PyObject>],
    /// Number of objects that are set, starting at index 1. The callee may overwrite the slot at index 0.
    count: usize,
}

impl Drop for Args<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        for object in &self.objects[1..=self.count] {
            // SAFETY: the first `count` objects after the free word are set.
            let object = unsafe { object.assume_init() };
            // SAFETY: each object is an owned reference, and the GIL is held.
            drop(unsafe { Own::from_nullable(object) });
        }
    }
}

#[inline(always)]
fn call(callable: Obj<'_>, args: &[TVMFFIAny], objects: &mut [MaybeUninit<*mut PyObject>]) -> Res<Own> {
    let mut list = Args { objects, count: 0 };
    let mut loans = Loans::new();
    for arg in args {
        let object = lift::lift_view(arg, &mut loans)?;
        list.count += 1;
        list.objects[list.count] = MaybeUninit::new(object.into_ptr());
    }
    // SAFETY: this is one past the free word, and `count` objects follow.
    let first: *const *mut PyObject = unsafe { list.objects.as_ptr().add(1) }.cast();
    // SAFETY: the objects are valid, the GIL is held, and the word in front may be overwritten; the result is a new
    // reference, or NULL with an exception set.
    let result = py::unsafe_new_ref!(py::raw::vectorcall()(
        callable.as_ptr(),
        first,
        list.count | py::raw::ARGUMENTS_OFFSET,
        ptr::null_mut(),
    ));
    if loans.is_empty() {
        return result;
    }
    // SAFETY: `count` objects follow the free word, and `list` releases them after this call.
    loans.end(unsafe { std::slice::from_raw_parts(first, list.count) }, result)
}

#[cold]
fn stack_is_short() -> c_int {
    Error::new("RecursionError", stack::SHORT).raise();
    -1
}

#[cold]
fn interpreter_ended() -> c_int {
    Error::new("RuntimeError", "cannot call a Python function: the interpreter has ended").raise();
    -1
}
