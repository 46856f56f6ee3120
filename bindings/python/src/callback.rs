//! Python callables as native functions.
//!
//! The function object is made here, not by the runtime: that saves a call per call, and tells such functions apart by
//! the address of their `safe_call`.

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
    /// How to ask for the signature.
    ext: &'static AnyfnFunctionExt,
    /// Owned.
    callable: *mut PyObject,
}

/// The classes of functions and of methods that are written in Python.
pub(crate) static PLAIN: [Global; 2] = [const { Global::new() }; 2];

/// Whether objects of this class are functions and nothing else.
pub(crate) fn is_plain_function(class: *mut ffi::PyTypeObject) -> bool {
    class == &raw mut ffi::PyCFunction_Type || PLAIN.iter().any(|plain| ptr::eq(plain.ptr(), class.cast()))
}

/// Arguments that a call holds on the stack; more go to the heap.
const INLINE: usize = 8;

/// Makes a native function that calls `callable`, which it keeps alive.
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
    // SAFETY: made above, and counted here alone.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    // SAFETY: a valid object with one reference, which the result takes.
    unsafe { ObjectRef::from_owned_or_null(function.cast()) }
}

/// The native function for a callable, as a value.
pub(crate) fn function_object(callable: Obj<'_>) -> Res<Any> {
    match make(callable) {
        Some(function) => Ok(function.into()),
        None => py::raise(py::exceptions::memory_error(), "out of memory"),
    }
}

/// Releases the callable, the memory, or both. Any thread may be the one.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let function: *mut PythonFunction = object.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, and the memory is still there.
        let callable = unsafe { (*function).callable };
        // SAFETY: the function owned this reference.
        unsafe { gil::release(callable) };
    }
    if flags & WEAK != 0 {
        // SAFETY: counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: made by `Box`; the content is plain data by now.
        drop(unsafe { Box::from_raw(function) });
    }
}

/// Whether a function calls a Python object.
pub(crate) fn is_python(function: &ObjectRef) -> bool {
    python_function(function.as_handle().cast()).is_some()
}

/// The same of an object that is known by its address.
pub(crate) fn is_made_here(function: *mut TVMFFIObject) -> bool {
    python_function(function).is_some()
}

/// The Python object that a function calls, if it is such a function.
pub(crate) fn python_callable<'a>(function: *mut TVMFFIObject) -> Option<Obj<'a>> {
    // SAFETY: `python_function` has checked what it is.
    let callable = unsafe { (*python_function(function)?).callable };
    // SAFETY: the function keeps it alive; the caller holds the lock and the function.
    unsafe { Obj::from_nullable(callable) }
}

/// Takes the Python object away from a function that only the caller knows; calling it is an error then.
pub(crate) fn break_up(function: *mut TVMFFIObject) -> Option<Own> {
    let function = python_function(function)?;
    let none = py::none().into_ptr();
    // SAFETY: `python_function` has checked what it is; the lock is held, and no call of it is in progress.
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

/// Calls the Python object of a function.
///
/// # Safety
/// Called by native code by the rules of the ABI, from any thread.
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
        // SAFETY: called as this function, and the lock is held.
        return unsafe { watched(handle, args, num_args, result) };
    }
    let function: *const PythonFunction = handle.cast();
    // SAFETY: the function object itself, which the caller keeps alive, is passed as its own handle.
    let callable = unsafe { (*function).callable };
    // SAFETY: owned by the function; the lock is held.
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
            // One word more in front, which the callee may use for a bound `self`.
            let mut objects = [const { MaybeUninit::<*mut PyObject>::uninit() }; INLINE + 1];
            call(callable, args, &mut objects)?
        } else {
            call(callable, args, &mut vec![MaybeUninit::uninit(); args.len() + 1])?
        };
        lower::lower_result(value.obj(), callable)
    }));
    match called {
        Ok(Ok(value)) => {
            // SAFETY: the ABI passes a writable result that holds nothing.
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
    /// Whether this thread has told of the call that it is about to make.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

/// Tells of a call and makes it: by the function that came here, so that there is only one copy of the path of calls.
///
/// # Safety
/// As for [`safe_call`], with the lock held.
#[cold]
#[inline(never)]
unsafe fn watched(handle: *mut c_void, args: *const TVMFFIAny, num_args: i32, result: *mut TVMFFIAny) -> c_int {
    let call = crate::observe::call_to(handle, args, num_args);
    // SAFETY: that is the call.
    let watched = unsafe { anyfn::observe::Watched::begin(&call) };
    TOLD.set(true);
    // SAFETY: as the caller guarantees.
    let code = unsafe { safe_call(handle, args, num_args, result) };
    // It may not have come so far.
    TOLD.set(false);
    watched.end(code);
    code
}

/// Argument objects of a call, released at its end.
struct Args<'a> {
    objects: &'a mut [MaybeUninit<*mut PyObject>],
    /// Number of objects that are set, from index 1 on.
    count: usize,
}

impl Drop for Args<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        for object in &self.objects[1..=self.count] {
            // SAFETY: the first `count` behind the free word are set.
            let object = unsafe { object.assume_init() };
            // SAFETY: each is a counted reference; the lock is held.
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
    // SAFETY: one past the free word; as many objects as `count` says follow.
    let first: *const *mut PyObject = unsafe { list.objects.as_ptr().add(1) }.cast();
    // SAFETY: valid objects, the lock is held, and the word in front may be overwritten; a new reference.
    let result = py::unsafe_new_ref!(py::raw::vectorcall()(
        callable.as_ptr(),
        first,
        list.count | py::raw::ARGUMENTS_OFFSET,
        ptr::null_mut(),
    ));
    if loans.is_empty() {
        return result;
    }
    // SAFETY: as many objects as `count` says follow the free word, and `list` releases them after this.
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
